// The CPU kernels: rows begin .. end - 1.
#pragma once

#include <cstdint>

#include "cppcuda/kit/cpu/isa.h"
#include "ops/spherical_harmonics/params.h"

namespace sph::ops::spherical_harmonics {

template <class Isa, class T>
struct RowKernel {
  static void run(const ForwardParams<T>& p, int64_t begin, int64_t end);
  static void run(const BackwardParams<T>& p, int64_t begin, int64_t end);
  static void run(const PartialsParams<T>& p, int64_t begin, int64_t end);
  static void run(const PartialsTransposedParams<T>& p, int64_t begin, int64_t end);
};

}  // namespace sph::ops::spherical_harmonics
