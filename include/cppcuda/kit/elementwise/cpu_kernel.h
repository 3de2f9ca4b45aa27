#pragma once

// The declaration of an elementwise operator's loop over raw pointers. cpu_loop.h defines it.

#include <cstdint>

#include "cppcuda/kit/cpu/isa.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

template <class Isa, class Math, class T>
struct ElementwiseKernel {
  // data and steps (in bytes) are those of the outputs, followed by the inputs. The data of an output that is not
  // requested is null. nontemporal: stores to dense memory bypass the caches. sums has bit o if output number o is
  // added to numbers of type double.
  static void run(char* const* data, const int64_t* steps, int64_t n, bool nontemporal, unsigned sums, Math math);
};

// The arguments of the kernel for Math and T: see ElementwiseKernel.
template <class Math, class T>
struct LoopParams {
  char* const* data;
  const int64_t* steps;
  int64_t n;
  bool nontemporal;
  unsigned sums;
  [[no_unique_address]] Math math;
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
