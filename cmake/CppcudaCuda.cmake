# Decides whether the CUDA kernels are built, and with which nvcc; says what was chosen and why.
#
# In:  CPPCUDA_WITH_CUDA (AUTO, ON, OFF), the results of CppcudaTorch.cmake
# Out: CPPCUDA_CUDA (ON or OFF); with ON the CUDA language is enabled and CMAKE_CUDA_ARCHITECTURES set

# 7.5 to 12.0 as machine code, and PTX of the last for what comes after it.
set(CPPCUDA_RELEASE_ARCHITECTURES "75-real;80-real;86-real;89-real;90-real;100-real;120")

# "8.0 9.0+PTX" or "8.0;9.0+PTX" (torch's form) -> "80-real;90" (CMake's form)
function(cppcuda_translate_arch_list text out)
  string(REGEX REPLACE "[ ,]+" ";" items "${text}")
  set(result "")
  foreach(item IN LISTS items)
    if(NOT item MATCHES "^([0-9]+)\\.([0-9]+[af]?)(\\+PTX)?$")
      message(FATAL_ERROR "cppcuda: TORCH_CUDA_ARCH_LIST must hold entries such as 8.0 or 9.0+PTX, got '${item}'")
    endif()
    if(CMAKE_MATCH_3)
      list(APPEND result "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
    else()
      list(APPEND result "${CMAKE_MATCH_1}${CMAKE_MATCH_2}-real")
    endif()
  endforeach()
  set(${out} "${result}" PARENT_SCOPE)
endfunction()

# The first nvcc whose major version is torch's: CUDACXX, the interpreter's own packages, the system's.
function(cppcuda_find_nvcc out reason)
  set(major "${CPPCUDA_TORCH_CUDA_MAJOR}")
  find_program(CPPCUDA_SYSTEM_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" PATHS /usr/local/cuda/bin)
  mark_as_advanced(CPPCUDA_SYSTEM_NVCC)
  set(refused "")
  foreach(
    nvcc IN
    ITEMS "${CMAKE_CUDA_COMPILER}" "$ENV{CUDACXX}" "${CPPCUDA_TORCH_DIR}/../nvidia/cu${major}/bin/nvcc"
          "${CPPCUDA_SYSTEM_NVCC}")
    if(NOT nvcc OR NOT EXISTS "${nvcc}")
      continue()
    endif()
    execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE text ERROR_QUIET)
    if(text MATCHES "release ([0-9]+)\\.([0-9]+)" AND CMAKE_MATCH_1 EQUAL major)
      cmake_path(NORMAL_PATH nvcc)
      set(${out} "${nvcc}" PARENT_SCOPE)
      set(${reason} "nvcc ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}: ${nvcc}" PARENT_SCOPE)
      return()
    endif()
    string(APPEND refused "; ${nvcc} is not of CUDA ${major}")
  endforeach()
  set(${out} "" PARENT_SCOPE)
  set(${reason}
      "torch is built for CUDA ${CPPCUDA_TORCH_CUDA}, and no nvcc of CUDA ${major} was found${refused} (pip install 'cuda-toolkit[nvcc,nvvm,cccl,cudart]==${CPPCUDA_TORCH_CUDA}.*' brings one)"
      PARENT_SCOPE)
endfunction()

set(CPPCUDA_CUDA OFF)
if(CPPCUDA_WITH_CUDA STREQUAL "OFF")
  set(_cppcuda_why "CPPCUDA_WITH_CUDA=OFF")
elseif(NOT CPPCUDA_TORCH_CUDA)
  set(_cppcuda_why "torch ${CPPCUDA_TORCH_VERSION} is a CPU build")
elseif(NOT TARGET cppcuda::torch_cuda)
  set(_cppcuda_why "the CUDA runtime that torch ${CPPCUDA_TORCH_VERSION} needs was not found")
else()
  cppcuda_find_nvcc(_cppcuda_nvcc _cppcuda_why)
  if(_cppcuda_nvcc)
    set(CPPCUDA_CUDA ON)
  endif()
endif()
if(CPPCUDA_WITH_CUDA STREQUAL "ON" AND NOT CPPCUDA_CUDA)
  message(FATAL_ERROR "cppcuda: CPPCUDA_WITH_CUDA=ON, but ${_cppcuda_why}")
endif()

if(CPPCUDA_CUDA)
  set(CMAKE_CUDA_COMPILER "${_cppcuda_nvcc}" CACHE FILEPATH "nvcc")
  # libcudart comes from torch's own packages, see CppcudaTorch.cmake.
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    if(NOT "$ENV{TORCH_CUDA_ARCH_LIST}" STREQUAL "")
      cppcuda_translate_arch_list("$ENV{TORCH_CUDA_ARCH_LIST}" CMAKE_CUDA_ARCHITECTURES)
    else()
      set(CMAKE_CUDA_ARCHITECTURES "${CPPCUDA_RELEASE_ARCHITECTURES}")
    endif()
  endif()
  # CMake's check of the compiler links a program; the nvcc of PyPI looks for its libraries in lib64, they are in lib.
  cmake_path(GET _cppcuda_nvcc PARENT_PATH _cppcuda_nvcc_dir)
  set(ENV{LIBRARY_PATH} "${_cppcuda_nvcc_dir}/../lib:$ENV{LIBRARY_PATH}")
  enable_language(CUDA)
  message(STATUS "cppcuda: CUDA on (${_cppcuda_why}; architectures ${CMAKE_CUDA_ARCHITECTURES})")
else()
  message(STATUS "cppcuda: CUDA off (${_cppcuda_why})")
endif()
