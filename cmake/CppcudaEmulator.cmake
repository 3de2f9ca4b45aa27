# The emulator of CUDA kernels, which needs nvcc but no GPU. A program that links it in place of CUDA's runtime library runs
# the host code that nvcc compiled, and interprets the PTX that nvcc embedded. docs/kernels.md describes the emulator,
# emulator/emulator.h its functions and environment variables.
#
#   cppcuda_add_emulated_test(<test> <library> [RACES <filter>] SOURCES <file>...)
#
# makes the program <test> from the files and from the objects of a library of cppcuda_add_operators. In it, at::kCUDA is the
# emulator's device. The caller links GoogleTest. CPPCUDA_EMULATED_ARCHITECTURES lists the compute capabilities whose PTX is
# compiled, such as 75;90; by default it is the last one for which the library is built, but at least 90, and OFF leaves out
# these tests. The objects of the library then have this PTX as text and the lines of their sources, so they are larger, and
# CPPCUDA_EMULATED is defined, with which kernels tell the emulator about their shared memory. The tests are
#
#   <test>.<capability>     for each of them
#   <test>.races            with the last one, looking for data races with a third of the blocks; RACES is a
#                           GoogleTest filter for it
#
# and <test>.<last capability> fails if it launches a kernel, or an instance of a kernel template, in no test.
#
#   cppcuda_add_emulated_library(<target> <library>)
#
# makes a library that Python loads in place of <library>, with the emulator's device.
#
# In:  the results of CppcudaTorch.cmake, CppcudaCuda.cmake and CppcudaOperators.cmake
# Out: CPPCUDA_EMULATOR_MISSING (why there is no emulator, "" if there is one; without it cppcuda_add_emulated_test does
#      nothing, and cppcuda_add_emulated_library is an error)

set(CPPCUDA_EMULATED_ARCHITECTURES "" CACHE STRING "Compute capabilities whose PTX the emulator runs, such as 75;90")
set(CPPCUDA_EMULATOR_MISSING "")
if("${CPPCUDA_EMULATED_ARCHITECTURES}" STREQUAL "OFF")
  set(CPPCUDA_EMULATOR_MISSING "CPPCUDA_EMULATED_ARCHITECTURES=OFF")
elseif(NOT CPPCUDA_CUDA)
  set(CPPCUDA_EMULATOR_MISSING "the build has no CUDA kernels")
endif()

# Adds the PTX that the emulator runs to the objects of a library, as text, with the lines of the sources. Sets `out` to
# its compute capabilities.
function(_cppcuda_embed_ptx library out)
  get_target_property(architectures ${library}_cuda_kernels CUDA_ARCHITECTURES)
  set(emulated ${CPPCUDA_EMULATED_ARCHITECTURES})
  if(NOT emulated)
    list(GET architectures -1 last)
    string(REGEX MATCH "^[0-9]+" emulated "${last}")
    if(emulated LESS 90)
      set(emulated 90)
    endif()
  endif()
  set(${out} ${emulated} PARENT_SCOPE)
  foreach(number IN LISTS emulated)
    if("${number}-real" IN_LIST architectures)
      list(TRANSFORM architectures REPLACE "^${number}-real$" "${number}")
    elseif(NOT "${number}" IN_LIST architectures AND NOT "${number}-virtual" IN_LIST architectures)
      list(APPEND architectures "${number}-virtual")
    endif()
  endforeach()
  set_target_properties(${library}_cuda_kernels PROPERTIES CUDA_ARCHITECTURES "${architectures}")
  target_compile_options(${library}_cuda_kernels PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--no-compress -lineinfo>)
  target_compile_definitions(${library}_cuda_kernels PRIVATE CPPCUDA_EMULATED)
endfunction()

# Sets CPPCUDA_EMULATOR_MISSING also if the library has no CUDA kernels.
macro(_cppcuda_look_for_kernels library)
  if(NOT CPPCUDA_EMULATOR_MISSING AND NOT TARGET ${library}_cuda_kernels)
    set(CPPCUDA_EMULATOR_MISSING "${library} has no CUDA kernels")
  endif()
endmacro()

# Adds the operators of a library and the emulator to a target.
function(_cppcuda_add_emulated target library)
  get_target_property(cpu_objects ${library} CPPCUDA_CPU_OBJECTS)
  target_sources(${target} PRIVATE ${cpu_objects})
  foreach(objects ${library}_cuda_kernels ${library}_kernel_table ${library}_ops ${library}_kernel_calls cppcuda_emulator_device)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
  target_link_libraries(${target} PRIVATE cppcuda_emulator cppcuda_flags cppcuda_kit cppcuda::torch_cpu)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

function(cppcuda_add_emulated_library target library)
  _cppcuda_look_for_kernels(${library})
  if(CPPCUDA_EMULATOR_MISSING)
    message(FATAL_ERROR "${PROJECT_NAME}: there are no kernels to emulate: ${CPPCUDA_EMULATOR_MISSING}")
  endif()
  _cppcuda_embed_ptx(${library} emulated)
  add_library(${target} MODULE $<TARGET_OBJECTS:${library}_namespace>)
  _cppcuda_add_emulated(${target} ${library})
  target_link_options(${target} PRIVATE "LINKER:--no-undefined" "LINKER:-z,nodelete")
endfunction()

function(cppcuda_add_emulated_test test library)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "RACES" "SOURCES")
  _cppcuda_look_for_kernels(${library})
  if(CPPCUDA_EMULATOR_MISSING)
    message(STATUS "${PROJECT_NAME}: ${test} SKIPPED: ${CPPCUDA_EMULATOR_MISSING}")
    return()
  endif()
  _cppcuda_embed_ptx(${library} emulated)
  add_executable(${test} ${arg_SOURCES})
  _cppcuda_add_emulated(${test} ${library})
  get_target_property(folders ${library}_ops INCLUDE_DIRECTORIES)
  target_include_directories(${test} PRIVATE ${folders} "${CPPCUDA_KIT_ROOT}/emulator")
  list(GET emulated -1 last)
  # torch's threads would wait actively for the emulator.
  set(environment OMP_NUM_THREADS=1)
  foreach(number IN LISTS emulated)
    if(number EQUAL last)
      list(APPEND environment CPPCUDA_EMULATOR_EVERY_KERNEL=1)
    endif()
    add_test(NAME ${test}.${number} COMMAND ${test} --gtest_brief=1)
    set_tests_properties(${test}.${number} PROPERTIES ENVIRONMENT "${environment};CPPCUDA_EMULATOR_ARCH=${number}" COST 60)
  endforeach()
  if(NOT arg_RACES)
    set(arg_RACES "*")
  endif()
  add_test(NAME ${test}.races COMMAND ${test} --gtest_brief=1 "--gtest_filter=${arg_RACES}")
  set_tests_properties(
    ${test}.races PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1;CPPCUDA_EMULATOR_ARCH=${last};CPPCUDA_EMULATOR_RACES=1;CPPCUDA_EMULATOR_GRID_STRIDE=3"
               COST 50)
endfunction()

if(CPPCUDA_EMULATOR_MISSING OR TARGET cppcuda_emulator)
  return()
endif()
set(_cppcuda_emulator "${CPPCUDA_KIT_ROOT}/emulator")
set(_cppcuda_targets cppcuda_emulator_device)
# An installation whose kernels were compiled for CUDA has it.
string(REGEX MATCH "^[0-9]+" _cppcuda_major "${CPPCUDA_NVCC_VERSION}")
set(_cppcuda_file "${CPPCUDA_KIT_ROOT}/../../lib/libcppcuda_emulator_cu${_cppcuda_major}.a")
if(EXISTS "${_cppcuda_file}")
  add_library(cppcuda_emulator STATIC IMPORTED GLOBAL)
  set_target_properties(cppcuda_emulator PROPERTIES IMPORTED_LOCATION "${_cppcuda_file}")
  target_include_directories(cppcuda_emulator INTERFACE "${_cppcuda_emulator}")
else()
  add_library(cppcuda_emulator STATIC EXCLUDE_FROM_ALL
              "${_cppcuda_emulator}/operations.cpp" "${_cppcuda_emulator}/parse.cpp" "${_cppcuda_emulator}/races.cpp"
              "${_cppcuda_emulator}/run.cpp" "${_cppcuda_emulator}/runtime.cpp")
  set_target_properties(cppcuda_emulator PROPERTIES OUTPUT_NAME cppcuda_emulator_cu${_cppcuda_major})
  # Values of several types share memory. A result is rounded once, as the instruction says. psabi: vectors are no arguments.
  target_compile_options(cppcuda_emulator PRIVATE -O2 -fno-strict-aliasing -ffp-contract=off -Wno-psabi)
  target_include_directories(cppcuda_emulator SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  list(APPEND _cppcuda_targets cppcuda_emulator)
endif()
# Not cppcuda::torch, because libtorch_cuda.so has a "cuda" device of its own.
add_library(cppcuda_emulator_device OBJECT EXCLUDE_FROM_ALL "${_cppcuda_emulator}/device.cpp")
target_link_libraries(cppcuda_emulator_device PUBLIC cppcuda::torch_cpu)
foreach(_cppcuda_target IN LISTS _cppcuda_targets)
  target_include_directories(${_cppcuda_target} PUBLIC "${_cppcuda_emulator}")
  target_link_libraries(${_cppcuda_target} PUBLIC cppcuda_flags)
  set_target_properties(${_cppcuda_target} PROPERTIES CXX_STANDARD 20 CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden
                                                      VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)
endforeach()
