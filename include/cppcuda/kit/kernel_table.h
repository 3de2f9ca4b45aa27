#pragma once

// The kernels lie in a library of their own, which needs nothing of torch and exports one function: it returns the
// table of the kernels. Every kernel is a function void(const Params&, const CpuContext&) or void(const Params&,
// CudaStream&); its name in the table is that of these types.
// Params are plain structs, which both libraries must lay out in the same way: kit/kernels.h compares a hash of the
// headers that they were compiled with.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <typeinfo>

#include "cppcuda/kit/cpu/context.h"
#include "cppcuda/kit/cuda/stream.h"

namespace cppcuda::kit {

template <class Params, class Context>
using Kernel = void (*)(const Params&, Context&);

template <class Params, class Context>
struct KernelName {
  static const char* get() { return typeid(KernelName).name(); }
};

using AnyKernel = void (*)();

struct KernelTable {
  const char* headers;                  // their hash
  bool has_cuda;                        // whether there are kernels for CUDA
  AnyKernel (*find)(const char* name);  // null where there is none
};

// In files of kernels: puts a kernel into the table.
void add_to_table(const char* name, AnyKernel kernel);

template <class Params, class Context>
void add_to_table(Kernel<Params, Context> kernel) {
  add_to_table(KernelName<Params, Context>::get(), reinterpret_cast<AnyKernel>(kernel));
}

// Calls f.template operator()<T>() for each dtype. Returns true, for the initialiser of a constant.
template <class F>
bool for_each_dtype(F f) {
  f.template operator()<double>();
  f.template operator()<float>();
  f.template operator()<c10::Half>();
  f.template operator()<c10::BFloat16>();
  return true;
}

// The same with the dtypes of an argument and of one that may be wider, as visit_dtypes has them.
template <class F>
bool for_each_dtypes(F f) {
  for_each_dtype([&]<class T>() {
    f.template operator()<T, T>();
    if constexpr (sizeof(T) == 2) f.template operator()<T, float>();
  });
  return true;
}

}  // namespace cppcuda::kit
