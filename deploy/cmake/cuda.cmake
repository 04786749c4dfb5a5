# SPDX-License-Identifier: Apache-2.0
# The CUDA language, where nvcc is: TDM_GPU AUTO takes it or does without,
# ON insists, OFF does not look.  TDM_CUDA says which it became.
#
# The default list of architectures is short, for a quick build; the gpu
# preset sets the full one.
set(TDM_CUDA OFF)
if(NOT TDM_GPU STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90-real)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(TDM_CUDA ON)
  elseif(TDM_GPU STREQUAL "ON")
    message(FATAL_ERROR "tandem: TDM_GPU is ON and nvcc was not found")
  else()
    message(STATUS "tandem: no nvcc, the GPU rooms are left out")
  endif()
endif()

# tdm_cuda_objects(<room> f.cu...) adds device code to the room's library.
# It has warning flags of its own: the house's are the C compiler's.  The
# CUDA runtime is linked statically and loads libcuda when first called, so
# a program starts on a machine without a driver.
function(tdm_cuda_objects room)
  add_library(tdm_${room}_device OBJECT ${ARGN})
  target_include_directories(tdm_${room}_device PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(tdm_${room}_device PRIVATE
    --Werror=all-warnings -Xcompiler=-Wall,-Wextra)
  set_target_properties(tdm_${room}_device PROPERTIES
    CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static
    POSITION_INDEPENDENT_CODE ON)
  target_sources(tdm_${room} PRIVATE $<TARGET_OBJECTS:tdm_${room}_device>)
  add_dependencies(shipped tdm_${room})
endfunction()
