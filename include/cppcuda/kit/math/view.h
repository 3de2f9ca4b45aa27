#pragma once

// A tensor of any strides as a kernel addresses it: x(i, j). The data of a missing tensor is null.

#include <array>
#include <cstddef>
#include <cstdint>

#include "cppcuda/kit/math/host_device.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class T, size_t dims>
struct View {
  T* data = nullptr;
  int64_t sizes[dims] = {}, strides[dims] = {};

  template <class... Indices>
  CPPCUDA_HOST_DEVICE T& operator()(Indices... indices) const {
    static_assert(sizeof...(indices) == dims);
    int64_t offset = 0;
    size_t dim = 0;
    ((offset += indices * strides[dim++]), ...);
    return data[offset];
  }

  // The indices of element i, where the last dim is the fastest one: const auto [row, column] = x.indices(i).
  CPPCUDA_HOST_DEVICE std::array<int64_t, dims> indices(int64_t i) const {
    std::array<int64_t, dims> result;
    for (size_t dim = dims; dim-- > 0; i /= sizes[dim]) result[dim] = i % sizes[dim];
    return result;
  }
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
