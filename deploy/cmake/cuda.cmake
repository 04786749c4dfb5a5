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

# tdm_cuda_objects(<room> f.cu... [ARCH <name> <architecture>]) adds device
# code to the room's library; with ARCH for one architecture, as a part of
# that name.
# It has warning flags of its own: the house's are the C compiler's.  The
# CUDA runtime is linked statically and loads libcuda when first called, so
# a program starts on a machine without a driver.
function(tdm_cuda_objects room)
  cmake_parse_arguments(C "" "" "ARCH" ${ARGN})
  set(part device)
  if(C_ARCH)
    list(GET C_ARCH 0 part)
    list(GET C_ARCH 1 arch)
  endif()
  add_library(tdm_${room}_${part} OBJECT ${C_UNPARSED_ARGUMENTS})
  if(C_ARCH)
    set_target_properties(tdm_${room}_${part} PROPERTIES CUDA_ARCHITECTURES ${arch})
  endif()
  target_include_directories(tdm_${room}_${part} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(tdm_${room}_${part} PRIVATE
    --Werror=all-warnings -Xcompiler=-Wall,-Wextra)
  set_target_properties(tdm_${room}_${part} PROPERTIES
    CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static
    POSITION_INDEPENDENT_CODE ON)
  target_sources(tdm_${room} PRIVATE $<TARGET_OBJECTS:tdm_${room}_${part}>)
  add_dependencies(shipped tdm_${room})
endfunction()
