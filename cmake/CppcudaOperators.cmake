# cppcuda_add_operators: makes a library of operators from a folder of sources.
#
#   cppcuda_add_operators(<name> [NAMESPACE <namespace>] [SOURCES <folder>] [HEADERS <folder>] [KERNELS <file>]
#                         [INSTALL])
#
# The operators are torch.ops.<namespace>.*; by default, the namespace is the name. Error messages, and the environment
# variables <NAME>_HUGE_PAGES and <NAME>_STREAM_BYTES, carry the name. The folder SOURCES (default: src) may have these files:
#
#   *.cpp  ops/*/*.cpp  elementwise/*.cpp     the part that uses torch: declarations, derivatives, dispatch; the files of
#                                             ops/<name> are compiled as one file, so no name may be defined in two of them
#   ops/*/cpu/*kernel.cpp  */cpu/kernel.cpp   CPU kernels, compiled once per instruction set of CPPCUDA_ISAS;
#   elementwise/cpu_kernel.cpp                the same for elementwise operators; of three and more in family.h, this file
#                                             and elementwise/register.cpp are compiled for each
#   ops/*/cpu/launch.cpp  elementwise/cpu.cpp their launches
#   ops/*/cuda/*.cu  */cuda/*.cu  elementwise/*.cu  CUDA kernels and their launches, if CPPCUDA_CUDA is ON
#   loops.cpp  ops/*/loops.cpp                kernels of both kinds (kit/loop.h), compiled as C++ and, if CPPCUDA_CUDA is ON,
#                                             as CUDA
#
# HEADERS (default: none) is the folder of the public headers. The function makes two shared libraries:
#
#   <name>            the part that uses torch; it needs libc10, libtorch_cpu and <name>_kernels
#   <name>_kernels    all kernels; it does not need torch, and exports the function <name>_kernels_v1
#
# The first one works only with the torch minor version that it is built with, the second one with all of them. So that
# the kernels need not be compiled again for another torch, the option <NAME>_PREBUILT_KERNELS names a build folder of the
# same sources whose <name>_kernels is used and installed. KERNELS is the file of an installed <name>_kernels, to which
# INSTALL adds <name>.
#
# and the libraries of objects that they are linked from, so that tests can link some of them with other kernels:
#
#   <name>_ops, <name>_kernel_calls, <name>_namespace,
#   cppcuda_kit                                            for <name>
#   <name>_cpu_launches, <name>_kernels_<isa>,
#   <name>_cuda_kernels, <name>_kernel_table               for <name>_kernels
#
# The target <name> has properties for such tests: CPPCUDA_CPU_OBJECTS lists the objects of the CPU kernels and their
# launches, CPPCUDA_CUDA_SOURCES the CUDA files (also without CUDA), and CPPCUDA_SOURCES is the folder. Everything is
# compiled with the flags of the target cppcuda_flags; a project can add its own flags there.
#
# INSTALL installs
#
#   lib/lib<name>_kernels.so, lib/torch-<minor>/lib<name>.so    the libraries; a prefix can have those for several torches
#   lib/cmake/<name>                                            find_package(<name>) defines the target <name>::<name>
#   include                                                     the headers
#   share/<name>                                                the sources, and a project that builds <name> with KERNELS
#   _build.py (component "python")                              what the kernels were built with, for a Python package
#
# In:  the results of CppcudaTorch.cmake and CppcudaCuda.cmake; CPPCUDA_KIT_VERSION ("0.1.0"), the version of the kit

find_package(OpenMP REQUIRED COMPONENTS CXX)
include(CMakePackageConfigHelpers)
# In a source tree this file is <root>/cmake, in an installation <prefix>/lib/cmake/cppcuda.
if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/../src/kit")
  cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH CPPCUDA_KIT_ROOT)
  set(CPPCUDA_KIT_INCLUDE "${CPPCUDA_KIT_ROOT}/include")
else()
  cmake_path(SET CPPCUDA_KIT_ROOT NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../../share/cppcuda")
  cmake_path(SET CPPCUDA_KIT_INCLUDE NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../../include")
endif()

# Sets CPPCUDA_COMPILED_ISAS to the instruction sets that CPPCUDA_ISAS selects, the oldest one first.
set(CPPCUDA_ISAS "all" CACHE STRING "Instruction sets of the CPU kernels: all, native, or some of base;avx2;avx512")
function(_cppcuda_choose_isas)
  set(isas base)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    list(APPEND isas avx2 avx512)
  endif()
  if(CPPCUDA_ISAS STREQUAL "native")
    set(best base)
    # torch requires the same features. Linux lists them in this order.
    file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
    if("avx2" IN_LIST isas AND flags MATCHES " fma .* f16c .* avx2 ")
      set(best avx2)
      if(flags MATCHES " avx512f .*avx512dq .*avx512bw .*avx512vl ")
        set(best avx512)
      endif()
    endif()
    set(isas ${best})
  elseif(NOT CPPCUDA_ISAS STREQUAL "all")
    set(chosen ${CPPCUDA_ISAS})
    set(unknown ${chosen})
    list(REMOVE_ITEM unknown ${isas})
    if(unknown OR NOT chosen)
      message(FATAL_ERROR "CPPCUDA_ISAS is \"${CPPCUDA_ISAS}\", but must be \"all\", \"native\" or a list of some of: ${isas}")
    endif()
    list(JOIN chosen "|" chosen)
    list(FILTER isas INCLUDE REGEX "^(${chosen})$")
  endif()
  set(CPPCUDA_COMPILED_ISAS ${isas} PARENT_SCOPE)
endfunction()
_cppcuda_choose_isas()
# The flags of the instruction sets (include/cppcuda/kit/cpu/isa.h).
set(CPPCUDA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(CPPCUDA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)

# Only the first project that includes this file makes this target.
if(NOT TARGET cppcuda_flags)
  add_library(cppcuda_flags INTERFACE)
  target_compile_features(cppcuda_flags INTERFACE cxx_std_20)
  # The kit is in an inline namespace of its version, so that a process can load libraries made with different versions.
  string(REPLACE "." "_" kit_namespace "v${CPPCUDA_KIT_VERSION}")
  target_compile_definitions(cppcuda_flags INTERFACE CPPCUDA_KIT_VERSION=${kit_namespace})
  # torch's headers then do not include those of all its operators, which take 3 s to compile.
  target_compile_definitions(cppcuda_flags INTERFACE AT_PER_OPERATOR_HEADERS)
  target_compile_options(
    cppcuda_flags
    INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-unknown-pragmas>
              # Without OpenMP at::parallel_for is serial. Only the flag is set, because torch ships the runtime library.
              $<$<COMPILE_LANGUAGE:CXX>:${OpenMP_CXX_FLAGS}>
              # nvcc passes -Wall to the host compiler, but not -Wextra, because torch's headers cause such warnings there.
              $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall --expt-relaxed-constexpr
              --diag-suppress=445>) # 445: no function argument uses a template parameter, as in []<class T>() {}
  target_link_options(cppcuda_flags INTERFACE ${OpenMP_CXX_FLAGS})
  # Without a build type nothing would be optimised, and the kernels would be 35 times slower.
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    target_compile_options(cppcuda_flags INTERFACE -O3 -DNDEBUG)
  endif()
  # Error messages contain __FILE__, which must not show folders of the machine that compiled it.
  set(folders "${CPPCUDA_KIT_ROOT}" "${CPPCUDA_KIT_INCLUDE}" "${PROJECT_SOURCE_DIR}" "${CPPCUDA_TORCH_DIR}/include")
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    target_compile_options(cppcuda_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${folder}/=>"
                                                   "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=\"-fmacro-prefix-map=${folder}/=\">")
  endforeach()
endif()

# Adds an object library. It uses the variables ${sources} and ${generated} of the caller, which may be empty.
macro(_cppcuda_add_objects target)
  add_library(${target} OBJECT ${ARGN})
  _cppcuda_set_up(${target})
endmacro()

macro(_cppcuda_set_up target)
  set_target_properties(
    ${target}
    PROPERTIES CXX_STANDARD 20
               CXX_EXTENSIONS OFF
               CUDA_STANDARD 20
               CUDA_STANDARD_REQUIRED ON
               CXX_VISIBILITY_PRESET hidden
               CUDA_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PRIVATE ${sources} "${CPPCUDA_KIT_INCLUDE}" ${generated})
  target_link_libraries(${target} PRIVATE cppcuda_flags)
endmacro()

# Adds an object library of kernels. They may include torch's headers, but do not link its libraries.
macro(_cppcuda_add_kernel_objects target)
  _cppcuda_add_objects(${target} ${ARGN})
  target_include_directories(${target} SYSTEM PRIVATE "${CPPCUDA_TORCH_DIR}/include")
  list(JOIN CPPCUDA_COMPILED_ISAS "," isas)
  # nvcc would take each of the names for a definition.
  target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:CPPCUDA_COMPILED_ISAS=${isas}>)
endmacro()

# Adds the table of kernels that the C function <name>_kernels_v1 returns. A test that links other kernels adds its own.
function(cppcuda_add_kernel_table target name has_cuda)
  set(sources "")
  set(generated "$<TARGET_PROPERTY:${name}_kernel_headers,CPPCUDA_GENERATED>")
  _cppcuda_add_kernel_objects(${target} "${CPPCUDA_KIT_ROOT}/src/kit/kernel_table.cpp"
                              "${CPPCUDA_KIT_ROOT}/src/kit/function_table.cpp")
  target_compile_definitions(${target} PRIVATE CPPCUDA_KERNEL_TABLE=${name}_kernels_v1 CPPCUDA_HAS_CUDA=$<BOOL:${has_cuda}>)
  add_dependencies(${target} ${name}_kernel_headers)
endfunction()

# Generates the hash of the headers that both libraries include. It changes if a kernel's parameter struct changes.
function(_cppcuda_add_kernel_headers name sources generated)
  # The order must not depend on where the folders are, because the kernels may be those of another build.
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${CPPCUDA_KIT_INCLUDE}/cppcuda/kit/*.h")
  file(GLOB_RECURSE own_headers CONFIGURE_DEPENDS "${sources}/*.h")
  list(APPEND headers ${own_headers})
  set(script "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/HashHeaders.cmake")
  add_custom_command(
    OUTPUT "${generated}/kernel_headers.h"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${generated}/kernel_headers.h" -P "${script}" ${headers}
    DEPENDS ${headers} "${script}"
    VERBATIM)
  add_custom_target(${name}_kernel_headers DEPENDS "${generated}/kernel_headers.h")
  set_target_properties(${name}_kernel_headers PROPERTIES CPPCUDA_GENERATED "${generated}")
endfunction()

# Adds the compiled part of the kit: registration, the autograd Node, batching, checks. Its symbols are hidden, so that each
# library of operators has its own copy. An installation has it for each torch minor version that cppcuda was built with.
function(_cppcuda_add_kit)
  set(sources "")
  set(generated "")
  set(file "${CPPCUDA_KIT_ROOT}/../../lib/torch-${CPPCUDA_TORCH_RELEASE}/libcppcuda_kit.a")
  if(EXISTS "${file}")
    add_library(cppcuda_kit STATIC IMPORTED GLOBAL)
    set_target_properties(cppcuda_kit PROPERTIES IMPORTED_LOCATION "${file}")
    target_include_directories(cppcuda_kit INTERFACE "${CPPCUDA_KIT_INCLUDE}")
    target_link_libraries(cppcuda_kit INTERFACE cppcuda::torch_cpu)
    return()
  endif()
  file(GLOB files CONFIGURE_DEPENDS "${CPPCUDA_KIT_ROOT}/src/kit/*.cpp")
  list(FILTER files EXCLUDE REGEX "/(function_table|library|kernel_table|namespace)\\.cpp$")
  add_library(cppcuda_kit STATIC ${files})
  _cppcuda_set_up(cppcuda_kit)
  # functorch's headers include nlohmann/json.hpp, which torch does not ship, for a function not called here.
  target_include_directories(cppcuda_kit PUBLIC "${CPPCUDA_KIT_INCLUDE}" PRIVATE "${CPPCUDA_KIT_ROOT}/src/kit/third_party_stubs")
  target_link_libraries(cppcuda_kit PUBLIC cppcuda::torch_cpu)
  set_target_properties(cppcuda_kit PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
endfunction()

# Splits a family of elementwise operators, so that an edit of a formula compiles no other operator again: in place of
# elementwise/<file>, the list gets a file for each operator, which is compiled with a family.h that has this operator only.
# elementwise/<header>.cpp, if it is in the list, is compiled with it. A family of one or two, and one whose
# members are not all in headers that family.h includes, stays whole.
function(_cppcuda_split_family file sources generated list)
  cmake_path(SET folder NORMALIZE "${sources}/elementwise")
  if(NOT "${folder}/${file}" IN_LIST ${list} OR NOT EXISTS "${folder}/family.h")
    return()
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${folder}/family.h")
  file(READ "${folder}/${file}" text)
  if(NOT text MATCHES "#include \"elementwise/family.h\"")
    return() # a path that finds no other family.h
  endif()
  file(READ "${folder}/family.h" family)
  string(REGEX MATCH "Family<([^<>]*)>" whole "${family}")
  string(REGEX MATCHALL "[A-Za-z0-9_]+" members "${CMAKE_MATCH_1}")
  list(LENGTH members count)
  if(count LESS 3)
    return()
  endif()
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${family}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "#include \"(.*)\"" "${folder}/../\\1" header "${include}")
    cmake_path(NORMAL_PATH header)
    if(EXISTS "${header}")
      file(READ "${header}" text)
      foreach(member IN LISTS members)
        if(text MATCHES "struct ${member}[ \n]*{")
          set(include_${member} "${include}")
          cmake_path(REPLACE_EXTENSION header LAST_ONLY cpp OUTPUT_VARIABLE source_${member})
        endif()
      endforeach()
    endif()
  endforeach()
  set(files "")
  foreach(member IN LISTS members)
    if(NOT include_${member})
      return()
    endif()
    set(own_family "${family}")
    foreach(other IN LISTS members)
      if(NOT include_${other} STREQUAL include_${member})
        string(REPLACE "${include_${other}}" "" own_family "${own_family}")
      endif()
    endforeach()
    string(REPLACE "${whole}" "Family<${member}>" own_family "${own_family}")
    set(own "${generated}/elementwise/${member}")
    file(CONFIGURE OUTPUT "${own}/elementwise/family.h" CONTENT "${own_family}" @ONLY)
    set(text "#include \"${folder}/${file}\"\n")
    if("${source_${member}}" IN_LIST ${list})
      list(REMOVE_ITEM ${list} "${source_${member}}")
      string(APPEND text "#include \"${source_${member}}\"\n")
    endif()
    file(CONFIGURE OUTPUT "${own}/${file}" CONTENT "${text}" @ONLY)
    set_source_files_properties("${own}/${file}" PROPERTIES COMPILE_OPTIONS "-iquote${own}")
    list(APPEND files "${own}/${file}")
  endforeach()
  list(REMOVE_ITEM ${list} "${folder}/${file}")
  set(${list} ${${list}} ${files} PARENT_SCOPE)
endfunction()

# Adds <name>_kernels. It uses variables of cppcuda_add_operators, and sets has_cuda, cuda_files and cpu_objects there.
macro(_cppcuda_add_kernels)
  # The CUDA files take longest. They come first, because ninja starts with what is defined first.
  file(GLOB cuda_files CONFIGURE_DEPENDS "${sources}/ops/*/cuda/*.cu" "${sources}/*/cuda/*.cu"
         "${sources}/elementwise/*.cu")
  file(GLOB loops CONFIGURE_DEPENDS "${sources}/loops.cpp" "${sources}/ops/*/loops.cpp")
  foreach(file IN LISTS loops) # a file has one language
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${sources}" OUTPUT_VARIABLE cuda_file)
    cmake_path(REPLACE_EXTENSION cuda_file cu)
    file(CONFIGURE OUTPUT "${generated}/${cuda_file}" CONTENT "#include \"${file}\"\n" @ONLY)
    list(APPEND cuda_files "${generated}/${cuda_file}")
  endforeach()
  set(has_cuda OFF)
  if(CPPCUDA_CUDA AND cuda_files)
    set(has_cuda ON)
    _cppcuda_add_kernel_objects(${name}_cuda_kernels ${cuda_files})
  endif()
  cppcuda_add_kernel_table(${name}_kernel_table ${name} ${has_cuda})
  add_library(${name}_kernels SHARED $<TARGET_OBJECTS:${name}_kernel_table>)
  file(GLOB cpu_files CONFIGURE_DEPENDS "${sources}/ops/*/cpu/launch.cpp" "${sources}/elementwise/cpu.cpp")
  list(APPEND cpu_files ${loops})
  file(GLOB cpu_kernels CONFIGURE_DEPENDS "${sources}/*/cpu/kernel.cpp" "${sources}/ops/*/cpu/*kernel.cpp"
         "${sources}/elementwise/cpu_kernel.cpp")
  if(cpu_files)
    _cppcuda_add_kernel_objects(${name}_cpu_launches ${cpu_files})
    list(APPEND cpu_objects $<TARGET_OBJECTS:${name}_cpu_launches>)
  endif()
  _cppcuda_split_family(cpu_kernel.cpp "${sources}" "${generated}" cpu_kernels)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CPPCUDA_SANITIZE)
    # gcc limits how much inlining may enlarge a file, and such a file may have all elementwise operators.
    set(families ${cpu_kernels})
    list(FILTER families INCLUDE REGEX "/elementwise/(.*/)?cpu_kernel\\.cpp$")
    set_property(SOURCE ${families} APPEND PROPERTY COMPILE_OPTIONS --param=inline-unit-growth=1000)
  endif()
  if(cpu_kernels)
    foreach(isa IN LISTS CPPCUDA_COMPILED_ISAS)
      _cppcuda_add_isa_objects(${name}_kernels_${isa} ${isa} ${cpu_kernels})
      list(APPEND cpu_objects $<TARGET_OBJECTS:${name}_kernels_${isa}>)
    endforeach()
  endif()
  target_sources(${name}_kernels PRIVATE ${cpu_objects})
  target_link_libraries(${name}_kernels PRIVATE cppcuda_flags)
  target_link_options(${name}_kernels PRIVATE "LINKER:--no-undefined" "LINKER:--as-needed" "LINKER:--exclude-libs,ALL")
  if(has_cuda)
    target_link_libraries(${name}_kernels PRIVATE ${name}_cuda_kernels "${CPPCUDA_CUDART_STATIC}" Threads::Threads
                                                  ${CMAKE_DL_LIBS} rt)
    add_custom_command(
      TARGET ${name}_kernels
      POST_BUILD
      COMMAND "${CMAKE_COMMAND}" "-DNM=${CMAKE_NM}" "-DOBJDUMP=${CMAKE_OBJDUMP}" -P
              "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/CheckHostCalls.cmake" $<TARGET_OBJECTS:${name}_cuda_kernels>
      COMMAND_EXPAND_LISTS VERBATIM)
  endif()
endmacro()

function(cppcuda_add_operators name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "INSTALL" "NAMESPACE;SOURCES;HEADERS;KERNELS" "")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "cppcuda_add_operators(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_NAMESPACE)
    set(arg_NAMESPACE ${name})
  endif()
  foreach(identifier IN ITEMS ${name} ${arg_NAMESPACE})
    if(NOT identifier MATCHES "^[a-z][a-z0-9_]*$")
      message(FATAL_ERROR "cppcuda_add_operators(${name}): '${identifier}' must be lower-case letters, digits and "
                          "underscores, and begin with a letter")
    endif()
  endforeach()
  # A project that calls add_subdirectory(cppcuda) sees this function, but not the variables.
  if(NOT DEFINED CPPCUDA_KIT_ROOT OR NOT DEFINED CPPCUDA_CUDA)
    message(FATAL_ERROR "cppcuda_add_operators(${name}): call find_package(cppcuda CONFIG REQUIRED "
                        "COMPONENTS kit) in this folder or above it")
  endif()
  set(sources "${CMAKE_CURRENT_SOURCE_DIR}/src")
  if(arg_SOURCES)
    cmake_path(ABSOLUTE_PATH arg_SOURCES NORMALIZE OUTPUT_VARIABLE sources)
    string(REGEX REPLACE "/$" "" sources "${sources}") # of "."
  endif()
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/${name}_generated")
  _cppcuda_add_kernel_headers(${name} "${sources}" "${generated}")

  set(cpu_objects "")
  set(cuda_files "")
  set(kernels "${arg_KERNELS}")
  string(TOUPPER "${name}_PREBUILT_KERNELS" option)
  set(prebuilt "${${option}}")
  if(prebuilt)
    cmake_path(ABSOLUTE_PATH prebuilt NORMALIZE)
    set(kernels "${prebuilt}/lib${name}_kernels.so")
  endif()
  if(kernels)
    cmake_path(ABSOLUTE_PATH kernels NORMALIZE)
    if(NOT EXISTS "${kernels}")
      message(FATAL_ERROR "cppcuda_add_operators(${name}): there is no ${kernels}")
    endif()
    add_library(${name}_kernels SHARED IMPORTED)
    set_target_properties(${name}_kernels PROPERTIES IMPORTED_LOCATION "${kernels}")
  else()
    _cppcuda_add_kernels()
  endif()
  # A wheel for several versions of torch is made of all kernels and of a library for each version (_wheel.py).
  if(NOT TARGET cppcuda_all_kernels)
    add_custom_target(cppcuda_all_kernels)
  endif()
  if(NOT kernels)
    add_dependencies(cppcuda_all_kernels ${name}_kernels)
  endif()

  # ---- <name>
  if(NOT TARGET cppcuda_kit)
    _cppcuda_add_kit()
  endif()
  _cppcuda_add_objects(${name}_kernel_calls "${CPPCUDA_KIT_ROOT}/src/kit/library.cpp")
  target_compile_definitions(${name}_kernel_calls PRIVATE CPPCUDA_KERNEL_TABLE=${name}_kernels_v1 CPPCUDA_LIBRARY="${name}"
                                                          CPPCUDA_CUDA_OPTION="${CPPCUDA_CUDA_OPTION}")
  target_link_libraries(${name}_kernel_calls PRIVATE cppcuda_kit)
  add_dependencies(${name}_kernel_calls ${name}_kernel_headers)
  file(GLOB op_files CONFIGURE_DEPENDS "${sources}/*.cpp" "${sources}/ops/*/*.cpp" "${sources}/elementwise/*.cpp")
  list(FILTER op_files EXCLUDE REGEX "/(elementwise/(cpu|cpu_kernel)|loops)\\.cpp$")
  _cppcuda_split_family(register.cpp "${sources}" "${generated}" op_files)
  _cppcuda_add_objects(${name}_ops ${op_files})
  # A folder is compiled as one file, which takes half as long, because most of the time goes into torch's headers.
  set_target_properties(${name}_ops PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(file IN LISTS op_files)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY "${sources}" OUTPUT_VARIABLE file_in_sources)
    cmake_path(GET file_in_sources PARENT_PATH folder)
    if(folder)
      string(MAKE_C_IDENTIFIER "${folder}" folder)
      set_source_files_properties("${file}" PROPERTIES UNITY_GROUP "${folder}")
    endif()
  endforeach()
  target_link_libraries(${name}_ops PUBLIC cppcuda_kit)
  _cppcuda_add_objects(${name}_namespace "${CPPCUDA_KIT_ROOT}/src/kit/namespace.cpp")
  target_compile_definitions(${name}_namespace PRIVATE CPPCUDA_NAMESPACE="${arg_NAMESPACE}")
  target_link_libraries(${name}_namespace PRIVATE cppcuda_kit)
  add_library(${name} SHARED)
  target_link_libraries(${name} PRIVATE ${name}_kernels ${name}_ops ${name}_kernel_calls ${name}_namespace cppcuda_kit
                                        cppcuda_flags)
  target_link_libraries(${name} INTERFACE cppcuda::torch)
  if(arg_HEADERS)
    cmake_path(ABSOLUTE_PATH arg_HEADERS NORMALIZE OUTPUT_VARIABLE headers)
    target_include_directories(${name}_ops PUBLIC "${headers}")
    target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${headers}> $<INSTALL_INTERFACE:include>)
  endif()
  # nodelete: dlclose does not unload the library. If TorchScript has seen its operators, torch ends the process when they
  # are removed for the second time.
  target_link_options(${name} PRIVATE "LINKER:--no-undefined" "LINKER:--as-needed" "LINKER:-z,nodelete")
  # A program may need the operators but reference no symbol of the library; without this the linker would drop it.
  target_link_options(${name} INTERFACE "LINKER:--no-as-needed")
  # In site-packages torch is found beside the package; elsewhere, where it was at build time.
  set(rpath "$ORIGIN/.." "$ORIGIN/../../../torch/lib")
  if(NOT SKBUILD)
    list(APPEND rpath "${CPPCUDA_TORCH_DIR}/lib")
  endif()
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "${rpath}" CPPCUDA_CPU_OBJECTS "${cpu_objects}"
                                           CPPCUDA_CUDA_SOURCES "${cuda_files}" CPPCUDA_SOURCES "${sources}")

  if(arg_INSTALL)
    install(TARGETS ${name} LIBRARY DESTINATION lib/torch-${CPPCUDA_TORCH_RELEASE} OPTIONAL) # cppcuda_all_kernels has none
    if(NOT arg_KERNELS)
      _cppcuda_install_kernels()
    endif()
  endif()
endfunction()

# Installs what all torch versions have in common. It uses variables of cppcuda_add_operators.
macro(_cppcuda_install_kernels)
  if(prebuilt)
    install(PROGRAMS "${kernels}" DESTINATION lib)
  else()
    install(TARGETS ${name}_kernels LIBRARY DESTINATION lib)
  endif()
  set(headers_argument "")
  if(arg_HEADERS)
    install(DIRECTORY "${headers}/" DESTINATION include FILES_MATCHING PATTERN "*.h")
    set(headers_argument "HEADERS ../../include")
  endif()
  install(DIRECTORY "${sources}/" DESTINATION share/${name}/src FILES_MATCHING PATTERN "*.h" PATTERN "*.cpp")
  configure_file("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/project.cmake.in" "${generated}/CMakeLists.txt" @ONLY)
  install(FILES "${generated}/CMakeLists.txt" DESTINATION share/${name})
  set(cmake_dir lib/cmake/${name})
  configure_package_config_file("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/config.cmake.in" "${generated}/${name}-config.cmake"
                                INSTALL_DESTINATION ${cmake_dir})
  write_basic_package_version_file("${generated}/${name}-config-version.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${generated}/${name}-config.cmake" "${generated}/${name}-config-version.cmake"
                "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/CppcudaTorch.cmake" DESTINATION ${cmake_dir})
  if(prebuilt)
    configure_file("${prebuilt}/${name}_generated/_build.py" "${generated}/_build.py" COPYONLY)
  else()
    set(cuda "")
    if(has_cuda)
      set(cuda "${CPPCUDA_NVCC_VERSION}")
    endif()
    configure_file("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/build.py.in" "${generated}/_build.py" @ONLY)
  endif()
  install(FILES "${generated}/_build.py" DESTINATION . COMPONENT python EXCLUDE_FROM_ALL)
endmacro()

# Adds the CPU kernels for one instruction set.
function(_cppcuda_add_isa_objects target isa)
  _cppcuda_add_kernel_objects(${target} ${ARGN})
  target_compile_definitions(${target} PRIVATE CPPCUDA_ISA=${isa})
  # no-trapping-math: nobody reads the flags of floating-point exceptions, and a comparison that may set one becomes no
  # vector. psabi: vectors are passed to inlined functions only. uninitialized: gcc 12 warns in its own avx512fintrin.h.
  target_compile_options(${target} PRIVATE ${CPPCUDA_FLAGS_${isa}} -ffp-contract=fast -fno-trapping-math -Wno-psabi
                                           -Wno-uninitialized
                                           $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CPPCUDA_SANITIZE)
    # CPPCUDA_FLATTEN does not inline calls within lambdas. gcc unrolls loops of up to 16 steps before it makes vectors
    # of them, which then often fails.
    target_compile_options(${target} PRIVATE -finline-limit=20000 --param=max-completely-peel-times=14)
  endif()
  if(CPPCUDA_BUILD_TESTS AND isa STREQUAL "base" AND "avx2" IN_LIST CPPCUDA_COMPILED_ISAS AND NOT CPPCUDA_SANITIZE
     AND NOT CPPCUDA_COVERAGE)
    target_compile_options(${target} PRIVATE -O1) # in half the time; no test measures these kernels
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF) # these files are the largest
endfunction()
