#pragma once

// What the kit, which is compiled once, needs to know of a library of operators. library.cpp and namespace.cpp are
// compiled for each library, and include next to nothing of torch.

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

struct KernelTable;

struct Library {
  const char* name;
  const char* cuda_option;  // the CMake variable that turns its CUDA kernels on
  const char* headers;      // the hash of those that its kernels must have been compiled with
  const KernelTable* (*kernels)();
};

extern const Library library;

// Ends the process, with an error, unless the loaded torch has this minor version.
void check_torch(const char* version, int major, int minor);

// Defines the namespace of the operators, and in it the operators _library_path and _torch_version.
bool define_namespace(const char* name, const char* torch_version);

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
