#pragma once

// An output before it is allocated. The shape function returns it, and the CPU, CUDA and Meta kernels allocate it, so
// their results cannot differ in shape or strides.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/SmallVector.h>

#include <array>

#include "cppcuda/kit/op.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

struct Output {
  c10::SymDimVector sizes;
  at::TensorOptions options;  // contiguous unless the options have a memory format
  // If defined, the output gets the strides of this tensor, made dense if they are not. It has the same sizes.
  Tensor strides_of = {};  // NOLINT(readability-redundant-member-init): may be left out without a warning
};

Tensor allocate(const Output& output);

template <size_t N>
std::array<Tensor, N> allocate(const std::array<Output, N>& outputs) {
  std::array<Tensor, N> result;
  std::transform(outputs.begin(), outputs.end(), result.begin(), [](const Output& o) { return allocate(o); });
  return result;
}

// The placeholder for an output that output_mask masks out, because AOTInductor does not support undefined tensors.
inline Output placeholder(const Tensor& like) { return {{0}, like.options()}; }

namespace detail {

// The tensors that a call of f.out or f_ writes to, which the kernel of f takes in place of new memory (variants.h).
class GivenOutputs;

// Returns the tensors that a call on this thread gives to the operator `op`, and forgets them. Null if there are none.
const GivenOutputs* take_given_outputs(const char* op);

// The tensor that is given for output number o, if it is like the output, or a new one.
Tensor given_or_new(const GivenOutputs* given, size_t o, const Output& output);

}  // namespace detail

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
