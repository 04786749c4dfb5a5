# SPDX-License-Identifier: Apache-2.0
# How a room of the house is built: tdm_module() for a room, tdm_test()
# for its tests.  Included once, by the root CMakeLists.txt.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(TDM_SANITIZE "" CACHE STRING "Sanitizers for every target: address,undefined or thread")
set(TDM_GPU AUTO CACHE STRING "CUDA backend: AUTO (if nvcc is found), ON or OFF")
set(TDM_MODEL_DIR ${CMAKE_SOURCE_DIR}/build/models CACHE PATH
  "Where deploy/fetch/smollm2 put the demo model; tests that need it are skipped without")
option(TDM_FUZZ "Build the libFuzzer targets (clang)" OFF)
option(TDM_COVERAGE "Count lines and branches with gcov" OFF)

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

add_library(tdm_warnings INTERFACE)
target_compile_options(tdm_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wundef -Werror
  -fno-common -fvisibility=hidden)
target_compile_definitions(tdm_warnings INTERFACE _GNU_SOURCE)
if(TDM_SANITIZE)
  target_compile_options(tdm_warnings INTERFACE -fsanitize=${TDM_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(tdm_warnings INTERFACE -fsanitize=${TDM_SANITIZE})
  target_compile_definitions(tdm_warnings INTERFACE TDM_DEV=1)
endif()
if(NOT TDM_SANITIZE AND NOT TDM_COVERAGE)
  # What ships holds no path of the machine that built it, and is hardened
  # as Debian's own programs are (dpkg-buildflags(1)), and against a stack
  # that clashes.  Jumps are not marked (-fcf-protection): Debian 12's start
  # files are not, so the mark of the whole program would be lost.
  target_compile_options(tdm_warnings INTERFACE -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=
    $<$<COMPILE_LANGUAGE:C>:-fstack-protector-strong;-fstack-clash-protection;-Wformat-security>)
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo") # it wants an optimiser
    target_compile_options(tdm_warnings INTERFACE $<$<COMPILE_LANGUAGE:C>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>)
  endif()
  target_link_options(tdm_warnings INTERFACE -Wl,-z,relro,-z,now)
endif()
if(TDM_COVERAGE)
  target_compile_options(tdm_warnings INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(tdm_warnings INTERFACE --coverage)
endif()

# tdm_arrow_check(<room> <dep>...) stops the configuration when <room> may
# not include <dep>.
function(tdm_arrow_check room)
  foreach(row ${TDM_ARROWS})
    if(row MATCHES "^${room}:(.*)$")
      string(STRIP "${CMAKE_MATCH_1}" allowed)
      string(REPLACE " " ";" allowed "${allowed}")
      foreach(dep ${ARGN})
        if(NOT dep STREQUAL "base" AND NOT dep STREQUAL "abi" AND NOT dep IN_LIST allowed)
          message(FATAL_ERROR "tandem: ${room} may not use ${dep} (TDM_ARROWS in CMakeLists.txt)")
        endif()
      endforeach()
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "tandem: room ${room} has no row in TDM_ARROWS")
endfunction()

# tdm_module(<room> SOURCES f.c... HEADERS f.h... [DEPS room...]
#            [PKG pkg-config-name...] [LIBS lib...])
# makes the static library tdm_<room>.  Headers are included from the
# repository root ("appliance/abi/plan.h"); tests/tidy proves that the
# include lines stay inside the same arrows.  PKG names are private to the
# room: their include paths do not travel to its users.
function(tdm_module room)
  cmake_parse_arguments(M "" "" "SOURCES;HEADERS;DEPS;PKG;LIBS" ${ARGN})
  tdm_arrow_check(${room} ${M_DEPS})
  if(NOT M_SOURCES)
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${room}_empty.c
      CONTENT "typedef int tdm_${room}_has_headers_only_t;\n")
    set(M_SOURCES ${CMAKE_CURRENT_BINARY_DIR}/${room}_empty.c)
  endif()
  add_library(tdm_${room} STATIC ${M_SOURCES})
  target_sources(tdm_${room} PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${M_HEADERS})
  set_target_properties(tdm_${room} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  target_link_libraries(tdm_${room} PRIVATE tdm_warnings Threads::Threads)
  target_include_directories(tdm_${room} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_definitions(tdm_${room} INTERFACE _GNU_SOURCE)
  set(floor base abi)
  if(room STREQUAL "base")
    set(floor "")
  elseif(room STREQUAL "abi")
    set(floor base)
  endif()
  foreach(dep ${floor} ${M_DEPS})
    target_link_libraries(tdm_${room} PUBLIC tdm_${dep})
  endforeach()
  foreach(pkg ${M_PKG})
    string(MAKE_C_IDENTIFIER ${pkg} id)
    pkg_check_modules(${id} REQUIRED IMPORTED_TARGET GLOBAL ${pkg})
    target_link_libraries(tdm_${room} PRIVATE PkgConfig::${id})
  endforeach()
  target_link_libraries(tdm_${room} PRIVATE ${M_LIBS})
endfunction()

# tdm_program(<name> <row> SOURCES f.c... DEPS room... [PKG pkg...] [LIBS lib...])
# makes an executable; <row> is its row in TDM_ARROWS.  A room that this
# machine cannot build (kernels_cuda without nvcc) is left out; TDM_HAS_CUDA
# tells the program.
function(tdm_program name row)
  cmake_parse_arguments(P "" "" "SOURCES;DEPS;PKG;LIBS" ${ARGN})
  set(foreign ${P_DEPS})
  list(REMOVE_ITEM foreign ${row}) # a program may use the room it stands in
  tdm_arrow_check(${row} ${foreign})
  add_executable(${name} ${P_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE tdm_warnings tdm_base tdm_abi Threads::Threads m)
  target_compile_definitions(${name} PRIVATE TDM_VERSION="${PROJECT_VERSION}")
  foreach(dep ${P_DEPS})
    if(TARGET tdm_${dep})
      target_link_libraries(${name} PRIVATE tdm_${dep})
    endif()
  endforeach()
  if(TARGET tdm_kernels_cuda AND "kernels_cuda" IN_LIST P_DEPS)
    target_compile_definitions(${name} PRIVATE TDM_HAS_CUDA=1)
  endif()
  foreach(pkg ${P_PKG})
    string(MAKE_C_IDENTIFIER ${pkg} id)
    pkg_check_modules(${id} REQUIRED IMPORTED_TARGET GLOBAL ${pkg})
    target_link_libraries(${name} PRIVATE PkgConfig::${id})
  endforeach()
  target_link_libraries(${name} PRIVATE ${P_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  add_dependencies(shipped ${name})
endfunction()

# tdm_test(<name> SOURCES f.c... LABELS host|dpdk|model|slow... [DEPS room...]
#          [PKG pkg...] [LIBS lib...] [ARGS arg...] [TIMEOUT s])
# makes one cmocka program and one CTest entry of the same name.  A test
# that lacks what it needs exits 77 and counts as skipped.  Label tsan puts
# the program into target tsan_tests, built and run with ThreadSanitizer.
# Target shipped: the programs, device code where nvcc is, and the tests
# that the build that ships must pass (labels model and e2e).
add_custom_target(tsan_tests)
add_custom_target(shipped)
function(tdm_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LABELS;DEPS;PKG;LIBS;ARGS" ${ARGN})
  foreach(dep ${T_DEPS})
    if(NOT TARGET tdm_${dep})
      return()
    endif()
  endforeach()
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE tdm_warnings tdm_base tdm_abi Threads::Threads cmocka m)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE TDM_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    TDM_MODEL_DIR="${TDM_MODEL_DIR}")
  foreach(dep ${T_DEPS})
    target_link_libraries(${name} PRIVATE tdm_${dep})
  endforeach()
  foreach(pkg ${T_PKG})
    string(MAKE_C_IDENTIFIER ${pkg} id)
    pkg_check_modules(${id} REQUIRED IMPORTED_TARGET GLOBAL ${pkg})
    target_link_libraries(${name} PRIVATE PkgConfig::${id})
  endforeach()
  target_link_libraries(${name} PRIVATE ${T_LIBS})
  add_test(NAME ${name} COMMAND ${name} ${T_ARGS})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 600) # for what hangs: a slow machine that does much else is no failure
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT}
    SKIP_RETURN_CODE 77)
  if("tsan" IN_LIST T_LABELS)
    add_dependencies(tsan_tests ${name})
  endif()
  if("model" IN_LIST T_LABELS)
    add_dependencies(shipped ${name})
  endif()
endfunction()
