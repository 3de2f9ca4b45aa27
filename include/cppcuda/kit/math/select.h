#pragma once

#include "cppcuda/kit/math/host_device.h"

namespace cppcuda::kit {

// m ? a : b. Formulas call this function because they also run on vectors (vec.h).
template <class A>
CPPCUDA_HOST_DEVICE A select(bool m, A a, A b) {
  return m ? a : b;
}

}  // namespace cppcuda::kit
