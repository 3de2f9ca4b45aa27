#pragma once

#include "core/host_device.h"

namespace cppcuda::core {

// m ? a : b, which formulas write so because they also run on vectors (vec.h).
template <class A>
CPPCUDA_HOST_DEVICE A select(bool m, A a, A b) {
  return m ? a : b;
}

}  // namespace cppcuda::core
