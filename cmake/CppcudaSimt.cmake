# The emulator of CUDA kernels, which needs neither a GPU nor nvcc. A program that links it compiles CUDA kernels as C++ and
# runs them on the CPU, with one fiber per thread. simt/include/simt.h declares what nvcc declares, and
# simt/include/cppcuda/kit replaces the headers of the kit that need nvcc. docs/kernels.md describes the emulator.
#
#   cppcuda::simt                 with AddressSanitizer and UndefinedBehaviorSanitizer, which also check the kernels' memory
#   cppcuda::simt_traffic         without sanitizers; counts the lines and wavefronts of accesses (include/traffic.h),
#                                 finds races and preempts threads (include/races.h)
#   cppcuda::simt_traffic_flags   the include folders and options of simt_traffic without its objects
#   cppcuda::simt_device          a "cuda" device for torch in the host's memory, on which unmodified launchers run
#
#   cppcuda_add_emulated_test(<test> <library> [SHARDS <count>] SOURCES <file>...)
#
# makes the program <test> from the files and from the objects of a library of cppcuda_add_operators, with its CUDA files
# compiled for the emulator. In it, at::kCUDA is the emulator's device. The caller links GoogleTest. The test <test> runs the
# program, or with SHARDS the tests <test>.<number>, which ctest may run side by side; the test <test>.every_kernel fails if
# a kernel, or an instance of a kernel template, ran in none of them.
#
# In:  the results of CppcudaTorch.cmake and CppcudaOperators.cmake
# Out: CPPCUDA_SIMT_MISSING (why there is no emulator, "" if there is one; without it there are no such targets, and
#      cppcuda_add_emulated_test does nothing)

find_package(Boost CONFIG QUIET COMPONENTS context)
# CUDA's headers with the vector types and 16-bit types come with torch's packages or with a CUDA toolkit.
file(GLOB _cppcuda_packaged "${CPPCUDA_TORCH_DIR}/../nvidia/cu*/include")
find_path(CPPCUDA_CUDA_HEADERS cuda_bf16.h HINTS ${_cppcuda_packaged} "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
mark_as_advanced(CPPCUDA_CUDA_HEADERS)
set(CPPCUDA_SIMT_MISSING "")
if(NOT TARGET Boost::context)
  set(CPPCUDA_SIMT_MISSING "Boost.Context is not installed (apt-get install libboost-context-dev)")
elseif(NOT CPPCUDA_CUDA_HEADERS)
  set(CPPCUDA_SIMT_MISSING "CUDA's headers were not found (pip install 'cuda-toolkit[cudart]')")
endif()

# Lists files with the contents of the CUDA files of a library, to be compiled as C++.
function(cppcuda_emulated_sources library out)
  get_target_property(cuda_sources ${library} CPPCUDA_CUDA_SOURCES)
  get_target_property(folder ${library} BINARY_DIR)
  set(sources "")
  foreach(source IN LISTS cuda_sources)
    string(SHA256 hash "${source}")
    string(SUBSTRING "${hash}" 0 8 hash)
    cmake_path(GET source STEM stem)
    set(copy "${folder}/${library}_generated/emulated/${stem}_${hash}.cpp")
    file(CONFIGURE OUTPUT "${copy}" CONTENT "#include \"${source}\"\n")
    list(APPEND sources "${copy}")
  endforeach()
  set(${out} "${sources}" PARENT_SCOPE)
endfunction()

function(cppcuda_add_emulated_test test library)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "SHARDS" "SOURCES")
  if(CPPCUDA_SIMT_MISSING)
    message(STATUS "${PROJECT_NAME}: ${test} SKIPPED: ${CPPCUDA_SIMT_MISSING}")
    return()
  endif()
  get_target_property(cpu_objects ${library} CPPCUDA_CPU_OBJECTS)
  get_target_property(folders ${library}_ops INCLUDE_DIRECTORIES)
  cppcuda_emulated_sources(${library} sources)
  cppcuda_add_kernel_table(${test}_table ${library} TRUE)
  # All of the library, with its CUDA files compiled for the emulator. The headers that replace those of the kit come first.
  add_library(${test}_library INTERFACE)
  target_sources(
    ${test}_library
    INTERFACE ${cpu_objects} $<TARGET_OBJECTS:cppcuda_simt> $<TARGET_OBJECTS:${test}_kernels> $<TARGET_OBJECTS:${library}_ops>
              $<TARGET_OBJECTS:${library}_kernel_calls> $<TARGET_OBJECTS:cppcuda_simt_device>
              $<TARGET_OBJECTS:${test}_table>)
  target_include_directories(${test}_library INTERFACE "${CPPCUDA_KIT_ROOT}/simt/include" ${folders})
  target_link_libraries(${test}_library INTERFACE cppcuda::simt cppcuda_kit cppcuda::torch_cpu)
  add_library(${test}_kernels OBJECT ${sources})
  target_include_directories(${test}_kernels PRIVATE "${CPPCUDA_KIT_ROOT}/simt/include" ${folders})
  target_link_libraries(${test}_kernels PRIVATE cppcuda::simt cppcuda::torch_cpu)
  add_executable(${test} ${arg_SOURCES})
  target_link_libraries(${test} PRIVATE ${test}_library)
  set(tests ${test})
  set(environment "")
  if(arg_SHARDS)
    set(tests "")
    math(EXPR last "${arg_SHARDS} - 1")
    foreach(shard RANGE ${last})
      list(APPEND tests ${test}.${shard})
    endforeach()
  endif()
  set(launched "")
  set(shard 0)
  foreach(one IN LISTS tests)
    set(file "${CMAKE_CURRENT_BINARY_DIR}/launched-$<CONFIG>-${one}.txt")
    list(APPEND launched "${file}")
    if(arg_SHARDS)
      set(environment "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}")
    endif()
    add_test(NAME ${one} COMMAND ${test} --gtest_brief=1)
    set_tests_properties(${one} PROPERTIES FIXTURES_SETUP ${test} ENVIRONMENT "CPPCUDA_SIMT_KERNELS=${file};${environment}")
    math(EXPR shard "${shard} + 1")
  endforeach()
  get_target_property(cuda_sources ${library} CPPCUDA_CUDA_SOURCES)
  get_target_property(source_folder ${library} CPPCUDA_SOURCES)
  add_test(NAME ${test}.every_kernel COMMAND bash "${CPPCUDA_KIT_ROOT}/simt/check_kernels.sh" $<TARGET_FILE:${test}>
                                             "${CPPCUDA_KIT_INCLUDE}/cppcuda/kit" "${source_folder}" -- ${launched})
  set_tests_properties(${test}.every_kernel PROPERTIES FIXTURES_REQUIRED ${test})
endfunction()

if(CPPCUDA_SIMT_MISSING)
  message(STATUS "${PROJECT_NAME}: emulated CUDA kernels SKIPPED: ${CPPCUDA_SIMT_MISSING}")
  return()
endif()
if(TARGET cppcuda_simt)
  return()
endif()

add_library(cppcuda_simt_base INTERFACE)
target_include_directories(cppcuda_simt_base BEFORE INTERFACE "${CPPCUDA_KIT_ROOT}/simt/include" "${CPPCUDA_KIT_INCLUDE}")
target_include_directories(cppcuda_simt_base SYSTEM INTERFACE "${CPPCUDA_CUDA_HEADERS}")
target_compile_options(cppcuda_simt_base INTERFACE -include "${CPPCUDA_KIT_ROOT}/simt/include/simt.h" -O1 -g1)
target_link_libraries(cppcuda_simt_base INTERFACE cppcuda_flags Boost::context)

add_library(cppcuda_simt_flags INTERFACE)
target_compile_options(cppcuda_simt_flags INTERFACE -fno-omit-frame-pointer -fsanitize=address,undefined
                                                    -fno-sanitize-recover=all)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # clang has no such option
  target_compile_options(cppcuda_simt_flags INTERFACE -fsanitize-sections=simt_shared)
endif()
target_link_options(cppcuda_simt_flags INTERFACE -fsanitize=address,undefined)
target_link_libraries(cppcuda_simt_flags INTERFACE cppcuda_simt_base)

set(_cppcuda_simt "${CPPCUDA_KIT_ROOT}/simt")
# Most of the time is spent in these files. Their options come after those of the target, so -O2 overrides -O1.
set_source_files_properties("${_cppcuda_simt}/emulator.cpp" "${_cppcuda_simt}/races.cpp" "${_cppcuda_simt}/traffic.cpp"
                            PROPERTIES COMPILE_OPTIONS -O2)
add_library(cppcuda_simt OBJECT EXCLUDE_FROM_ALL "${_cppcuda_simt}/emulator.cpp")
target_link_libraries(cppcuda_simt PUBLIC cppcuda_simt_flags)
add_library(cppcuda_simt_traffic OBJECT EXCLUDE_FROM_ALL "${_cppcuda_simt}/emulator.cpp" "${_cppcuda_simt}/races.cpp"
                                                         "${_cppcuda_simt}/traffic.cpp")
target_link_libraries(cppcuda_simt_traffic PUBLIC cppcuda_simt_base)
# Not cppcuda::torch, because libtorch_cuda.so has a "cuda" device of its own.
add_library(cppcuda_simt_device OBJECT EXCLUDE_FROM_ALL "${_cppcuda_simt}/device.cpp")
target_link_libraries(cppcuda_simt_device PUBLIC cppcuda_simt_base cppcuda::torch_cpu)
set_target_properties(cppcuda_simt cppcuda_simt_traffic cppcuda_simt_device
                      PROPERTIES CXX_STANDARD 20 CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                                 POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)
add_library(cppcuda::simt ALIAS cppcuda_simt)
add_library(cppcuda::simt_traffic ALIAS cppcuda_simt_traffic)
add_library(cppcuda::simt_traffic_flags ALIAS cppcuda_simt_base)
add_library(cppcuda::simt_device ALIAS cppcuda_simt_device)
