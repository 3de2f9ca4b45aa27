// The CPU kernels: rows begin .. end - 1. Change: the functions.
#pragma once

#include <cstdint>

#include "cppcuda/kit/cpu/isa.h"
#include "ops/row_norm/params.h"

namespace my_ops::ops::row_norm {

template <class Isa, class T>
struct RowKernel {
  static void forward(const ForwardParams<T>& p, int64_t begin, int64_t end);
  static void backward(const BackwardParams<T>& p, int64_t begin, int64_t end);
};

}  // namespace my_ops::ops::row_norm
