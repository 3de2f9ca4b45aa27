// Schemas, kernels and derivatives of the elementwise operators.

#include "cppcuda/kit/elementwise/autograd.h"
#include "cppcuda/kit/elementwise/define.h"
#include "cppcuda/kit/elementwise/loop.h"
#include "elementwise/family.h"

namespace cppcuda::elementwise {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define_elementwise(m, Family());
  kit::implement_elementwise(m, Family());
}
TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) { kit::differentiate_elementwise(m, Family()); }

}  // namespace cppcuda::elementwise
