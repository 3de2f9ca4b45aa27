#pragma once

#include "cppcuda/kit/math/host_device.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// m ? a : b. Formulas call it, because they also run on vectors (vec.h), which have no ?:.
template <class A>
CPPCUDA_HOST_DEVICE A select(bool m, A a, A b) {
  return m ? a : b;
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
