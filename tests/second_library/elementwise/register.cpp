// Schemas, kernels and derivatives of the elementwise operators.

// CMake compiles files that include "elementwise/family.h" once for each operator. Together they take half of the time.
#include "family.h"

#include "cppcuda/kit/elementwise/autograd.h"
#include "cppcuda/kit/elementwise/define.h"
#include "cppcuda/kit/elementwise/loop.h"

namespace second {

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define_elementwise(m, Family());
  kit::implement_elementwise(m, Family());
}
TORCH_LIBRARY_IMPL(second, Autograd, m) { kit::differentiate_elementwise(m, Family()); }

}  // namespace second
