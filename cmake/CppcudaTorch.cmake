# Defines the imported targets cppcuda::torch_cpu and cppcuda::torch from torch's include and lib folders.
#
# find_package(Torch) is not used: with a CUDA build of torch it fails unless a CUDA toolkit is installed, it changes
# CMAKE_CUDA_ARCHITECTURES, and it requires libraries that the wheels do not ship. The build of cppcuda uses this file and,
# because it is installed beside cppcuda-config.cmake, so do the projects that use cppcuda.
#
# In:  CPPCUDA_TORCH_DIR (the folder that holds torch's include/ and lib/), or Torch_DIR or CMAKE_PREFIX_PATH
#      (`python -c 'import torch; print(torch.utils.cmake_prefix_path)'`), or a Python with torch
# Out: CPPCUDA_TORCH_DIR, CPPCUDA_TORCH_VERSION ("2.15.0+cu132"), CPPCUDA_TORCH_RELEASE ("2.15"), CPPCUDA_TORCH_CUDA
#      ("13.2", "" for a CPU torch), CPPCUDA_TORCH_CUDA_MAJOR ("13"), CPPCUDA_TORCH_ERROR (why there is no torch, "" if
#      there is one)

set(CPPCUDA_TORCH_ERROR "")
if(NOT CPPCUDA_TORCH_DIR)
  # Only the path of TorchConfig.cmake is used; the file is not read.
  if(EXISTS "${Torch_DIR}/TorchConfig.cmake")
    set(CPPCUDA_TORCH_CONFIG_DIR "${Torch_DIR}")
  else()
    find_path(CPPCUDA_TORCH_CONFIG_DIR TorchConfig.cmake PATH_SUFFIXES Torch share/cmake/Torch)
  endif()
  if(CPPCUDA_TORCH_CONFIG_DIR)
    cmake_path(SET CPPCUDA_TORCH_DIR NORMALIZE "${CPPCUDA_TORCH_CONFIG_DIR}/../../..")
  else()
    find_package(Python3 COMPONENTS Interpreter QUIET)
    if(Python3_FOUND)
      execute_process(
        COMMAND "${Python3_EXECUTABLE}" -c
                "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
        OUTPUT_VARIABLE CPPCUDA_TORCH_DIR
        OUTPUT_STRIP_TRAILING_WHITESPACE
        ERROR_QUIET)
    endif()
  endif()
endif()
if(NOT EXISTS "${CPPCUDA_TORCH_DIR}/include/torch/library.h")
  # pip, uv and `python -m build` make the environment of an isolated build in a folder with such a name.
  if(SKBUILD AND "$ENV{PATH}:${Python3_EXECUTABLE}" MATCHES "/(pip-)?build-env-|/builds-v[0-9]+/")
    string(CONCAT CPPCUDA_TORCH_ERROR
      "the build is isolated: it does not see the torch of the environment that you install into. Build in that "
      "environment:\n  pip install scikit-build-core cmake ninja && pip install --no-build-isolation .")
  else()
    string(CONCAT CPPCUDA_TORCH_ERROR
      "no torch found (looked in '${CPPCUDA_TORCH_DIR}'). Install it (pip install torch) and pass "
      "-DPython3_EXECUTABLE=<python that has it>, or -DCPPCUDA_TORCH_DIR=<folder with torch's include/ and lib/>.")
  endif()
  return()
endif()
set(CPPCUDA_TORCH_DIR "${CPPCUDA_TORCH_DIR}" CACHE PATH "Folder that holds torch's include/ and lib/")

# The wheel states its versions in version.py, the libtorch archive in build-version.
set(CPPCUDA_TORCH_VERSION "")
set(CPPCUDA_TORCH_CUDA "")
if(EXISTS "${CPPCUDA_TORCH_DIR}/version.py")
  file(READ "${CPPCUDA_TORCH_DIR}/version.py" _cppcuda_text)
  if(_cppcuda_text MATCHES "__version__ = '([^']+)'")
    set(CPPCUDA_TORCH_VERSION "${CMAKE_MATCH_1}")
  endif()
  if(_cppcuda_text MATCHES "\ncuda[^=\n]*= '([0-9.]+)'")
    set(CPPCUDA_TORCH_CUDA "${CMAKE_MATCH_1}")
  endif()
elseif(EXISTS "${CPPCUDA_TORCH_DIR}/build-version")
  file(STRINGS "${CPPCUDA_TORCH_DIR}/build-version" CPPCUDA_TORCH_VERSION LIMIT_COUNT 1)
  if(CPPCUDA_TORCH_VERSION MATCHES "\\+cu([0-9]+)([0-9])$")
    set(CPPCUDA_TORCH_CUDA "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
  endif()
endif()
if(NOT CPPCUDA_TORCH_VERSION)
  set(CPPCUDA_TORCH_ERROR "cannot tell the version of the torch in '${CPPCUDA_TORCH_DIR}'")
  return()
endif()

string(REGEX MATCH "^[0-9]+\\.[0-9]+" CPPCUDA_TORCH_RELEASE "${CPPCUDA_TORCH_VERSION}")
string(REGEX MATCH "^[0-9]+" CPPCUDA_TORCH_CUDA_MAJOR "${CPPCUDA_TORCH_CUDA}")

if(NOT TARGET cppcuda::torch_cpu)
  find_package(Threads REQUIRED)
  add_library(cppcuda::torch_cpu INTERFACE IMPORTED)
  set_target_properties(
    cppcuda::torch_cpu
    PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES
      "${CPPCUDA_TORCH_DIR}/include;${CPPCUDA_TORCH_DIR}/include/torch/csrc/api/include"
      INTERFACE_COMPILE_FEATURES cxx_std_20
      INTERFACE_LINK_LIBRARIES
      "${CPPCUDA_TORCH_DIR}/lib/libc10.so;${CPPCUDA_TORCH_DIR}/lib/libtorch_cpu.so;Threads::Threads"
      # CUDA builds of torch need the NCCL of their own wheel. The linker may find an older NCCL of the system first, which
      # lacks symbols that are present at run time.
      INTERFACE_LINK_OPTIONS "LINKER:--allow-shlib-undefined")
endif()

# For programs that may use any device of this torch. cppcuda::torch_cpu does not have libtorch.so, because that needs
# libtorch_cuda.so, and in torch 2.11 the linker resolves parts of the C++ standard library from it.
if(NOT TARGET cppcuda::torch)
  add_library(cppcuda::torch INTERFACE IMPORTED)
  set(_cppcuda_libraries cppcuda::torch_cpu "${CPPCUDA_TORCH_DIR}/lib/libtorch.so")
  foreach(_cppcuda_library IN ITEMS "${CPPCUDA_TORCH_DIR}/lib/libc10_cuda.so" "${CPPCUDA_TORCH_DIR}/lib/libtorch_cuda.so")
    if(CPPCUDA_TORCH_CUDA AND EXISTS "${_cppcuda_library}")
      list(APPEND _cppcuda_libraries "${_cppcuda_library}")
    endif()
  endforeach()
  set_target_properties(cppcuda::torch PROPERTIES INTERFACE_LINK_LIBRARIES "${_cppcuda_libraries}")
endif()
