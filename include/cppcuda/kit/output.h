#pragma once

// An output before it has memory. The shape function returns it, and the CPU, CUDA and Meta kernels allocate it, so
// that the three cannot differ.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/SmallVector.h>

#include <array>

#include "cppcuda/kit/op.h"

namespace cppcuda::kit {

struct Output {
  c10::SymDimVector sizes;
  at::TensorOptions options;  // contiguous, or the memory format that these name
  // Or the strides of this tensor, which has these sizes; dense if they are not.
  Tensor strides_of = {};  // NOLINT(readability-redundant-member-init): may be left out without a warning
};

Tensor allocate(const Output& output);

template <size_t N>
std::array<Tensor, N> allocate(const std::array<Output, N>& outputs) {
  std::array<Tensor, N> result;
  std::transform(outputs.begin(), outputs.end(), result.begin(), [](const Output& o) { return allocate(o); });
  return result;
}

// Stands for an output that output_mask leaves out: AOTInductor has no undefined tensors.
inline Output placeholder(const Tensor& like) { return {{0}, like.options()}; }

}  // namespace cppcuda::kit
