#pragma once

#include <cstdint>

#include "cppcuda/kit/cpu/isa.h"
#include "interpolation/params.h"

namespace cppcuda::interpolation {

template <class Isa, class T, class P, class Lookup>
struct Kernel {
  // The points first .. end - 1 of a batch, at all levels.
  static void gather(const GatherParams<T, P, Lookup>& p, int64_t batch, int64_t first, int64_t end);

  // Sets the rows begin .. end - 1 of a level of a batch's table to the sums over all points, in the order of the
  // points.
  static void scatter(const ScatterParams<T, P, Lookup>& p, int64_t batch, int level, int64_t begin, int64_t end);
};

// Instantiates the kernels of an operator for all dtypes. In namespace cppcuda::interpolation.
#define CPPCUDA_INSTANTIATE_INTERPOLATION(LOOKUP)                         \
  template struct Kernel<kit::Isa, double, double, LOOKUP>;               \
  template struct Kernel<kit::Isa, float, float, LOOKUP>;                 \
  template struct Kernel<kit::Isa, c10::Half, c10::Half, LOOKUP>;         \
  template struct Kernel<kit::Isa, c10::Half, float, LOOKUP>;             \
  template struct Kernel<kit::Isa, c10::BFloat16, c10::BFloat16, LOOKUP>; \
  template struct Kernel<kit::Isa, c10::BFloat16, float, LOOKUP>

}  // namespace cppcuda::interpolation
