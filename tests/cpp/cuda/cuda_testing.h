#pragma once

// Tests of the CUDA kernels. They are linked twice: with the library, for a GPU (cppcuda_cuda_tests), and with its
// objects and the emulator (cppcuda_emulated_tests): same inputs, same expected values.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "testing.h"

namespace cppcuda::testing {

using at::Tensor;

// A copy on the device with the same strides and storage offset.
inline Tensor on_cuda(const Tensor& t) {
  if (!t.defined()) return t;
  const auto elements = static_cast<int64_t>(t.storage().nbytes() / t.element_size());
  return t.as_strided({elements}, {1}, 0).to(at::kCUDA).as_strided(t.sizes(), t.strides(), t.storage_offset());
}

// Memory layouts for the same values. All but `contiguous` rule out the widest vector accesses.
enum class Layout { contiguous, offset, half_aligned, transposed, every_second };
constexpr Layout layouts[] = {Layout::contiguous, Layout::offset, Layout::half_aligned, Layout::transposed,
                              Layout::every_second};

inline void PrintTo(Layout layout, std::ostream* os) {
  const char* names[] = {"contiguous", "offset", "half_aligned", "transposed", "every_second"};
  *os << names[static_cast<int>(layout)];
}

inline Tensor in_layout(const Tensor& t, Layout layout) {
  // A contiguous copy that starts `elements` into a larger allocation.
  auto shifted = [&](int64_t elements) {
    return at::empty({t.numel() + elements}, t.options()).narrow(0, elements, t.numel()).view(t.sizes()).copy_(t);
  };
  switch (layout) {
    case Layout::contiguous:
      return t.contiguous();
    case Layout::offset:
      return shifted(1);
    case Layout::half_aligned:
      return shifted(8 / t.element_size());
    case Layout::transposed:
      return t.transpose(0, -1).contiguous().transpose(0, -1);
    case Layout::every_second: {
      auto sizes = t.sizes().vec();
      sizes.back() *= 2;
      return at::empty(sizes, t.options()).slice(-1, 0, sizes.back(), 2).copy_(t);
    }
  }
  return {};
}

// The dtype of an op's arguments, the dtype of the argument that may be wider, and the tolerance of the results.
struct Dtypes {
  const char* name;
  at::ScalarType narrow, wide;
  double tolerance;
};

inline void PrintTo(const Dtypes& d, std::ostream* os) { *os << d.name; }

constexpr Dtypes all_dtypes[] = {
    {"float64", at::kDouble, at::kDouble, 1e-12},     {"float32", at::kFloat, at::kFloat, 3e-6},
    {"float16", at::kHalf, at::kHalf, 2e-3},          {"bfloat16", at::kBFloat16, at::kBFloat16, 1.6e-2},
    {"float16_float32", at::kHalf, at::kFloat, 2e-3}, {"bfloat16_float32", at::kBFloat16, at::kFloat, 1.6e-2}};

}  // namespace cppcuda::testing
