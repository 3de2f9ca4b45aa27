#pragma once

// An elementwise op's loop over raw pointers, as pointwise_cpu.h calls it and pointwise_cpu_loop.h defines it.

#include <cstdint>

#include "cppcuda/kit/cpu/isa.h"

namespace cppcuda::kit {

template <class Isa, class Math, class T>
struct PointwiseKernel {
  // data and steps (in bytes): of the output, then of the inputs. nontemporal: with stores that bypass the
  // caches, where memory is dense.
  static void run(char* const* data, const int64_t* steps, int64_t n, bool nontemporal, Math math);
};

// The arguments of the kernel for Math and T: see PointwiseKernel.
template <class Math, class T>
struct LoopParams {
  char* const* data;
  const int64_t* steps;
  int64_t n;
  bool nontemporal;
  [[no_unique_address]] Math math;
};

}  // namespace cppcuda::kit
