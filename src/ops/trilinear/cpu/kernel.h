#pragma once

#include <cstdint>

#include "cppcuda/kit/cpu/isa.h"
#include "ops/trilinear/params.h"

namespace cppcuda::ops::trilinear {

// Rows begin .. end - 1. nontemporal: with stores that bypass the caches.
template <class Isa, class T, class P>
struct RowKernel {
  static void forward(const ForwardParams<T, P>& p, int64_t begin, int64_t end, bool nontemporal);
  static void backward(const BackwardParams<T, P>& p, int64_t begin, int64_t end, bool nontemporal);
  static void double_backward(const DoubleBackwardParams<T, P>& p, int64_t begin, int64_t end, bool nontemporal);
};

}  // namespace cppcuda::ops::trilinear
