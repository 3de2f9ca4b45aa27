#pragma once

#include <type_traits>

#include "cppcuda/kit/math/host_device.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// m ? a : b. Formulas call it, because they also run on vectors (vec.h), which have no ?:. m is a comparison.
template <class A>
CPPCUDA_HOST_DEVICE A select(bool m, A a, A b) {
  return m ? a : b;
}
template <class Mask, class A>
  requires(!std::is_same_v<Mask, bool>)
CPPCUDA_HOST_DEVICE A select(const Mask& m, const A& a, const A& b) {
  return select(m, a, b);  // that of A
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
