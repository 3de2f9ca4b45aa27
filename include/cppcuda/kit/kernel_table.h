#pragma once

// The kernels are in a library of their own, which does not depend on torch and exports one function that returns the
// table of kernels. Every kernel is a function void(const Params&, const CpuContext&) or void(const Params&,
// CudaStream&); its name in the table consists of these types.
// Params are plain structs, which must have the same layout in both libraries: kit/kernels.h compares a hash of the
// headers that they were compiled with.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <typeinfo>

#include "cppcuda/kit/cpu/context.h"
#include "cppcuda/kit/cuda/stream.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class Params, class Context>
using Kernel = void (*)(const Params&, Context&);

namespace detail {

template <class Params, class Context>
struct KernelName {
  static const char* get() { return typeid(KernelName).name(); }
};

using AnyKernel = void (*)();

struct KernelTable {
  const char* headers;                  // the hash of the headers
  bool has_cuda;                        // whether the table has CUDA kernels
  Capability oldest;                    // the oldest instruction set of the CPU kernels
  AnyKernel (*find)(const char* name);  // null if there is none
};

void add_to_table(const char* name, AnyKernel kernel);

}  // namespace detail

// Adds a kernel to the table. Called in the files of kernels.
template <class Params, class Context>
void add_to_table(Kernel<Params, Context> kernel) {
  detail::add_to_table(detail::KernelName<Params, Context>::get(), reinterpret_cast<detail::AnyKernel>(kernel));
}

// Calls f.template operator()<T>() for each dtype. Returns true, so that it can initialise a constant.
template <class F>
bool for_each_dtype(F f) {
  f.template operator()<double>();
  f.template operator()<float>();
  f.template operator()<c10::Half>();
  f.template operator()<c10::BFloat16>();
  return true;
}

// The same for the pairs of dtypes of visit_dtypes: an argument and one that may be wider.
template <class F>
bool for_each_dtypes(F f) {
  for_each_dtype([&]<class T>() {
    f.template operator()<T, T>();
    if constexpr (sizeof(T) == 2) f.template operator()<T, float>();
  });
  return true;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
