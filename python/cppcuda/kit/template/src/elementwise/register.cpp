// Defines the elementwise operators, their kernels and their derivatives. Change: nothing.
#include <torch/library.h>

#include "cppcuda/kit/elementwise/autograd.h"
#include "cppcuda/kit/elementwise/define.h"
#include "cppcuda/kit/elementwise/loop.h"
#include "elementwise/family.h"

namespace my_ops {

TORCH_LIBRARY_FRAGMENT(my_ops, m) {
  cppcuda::kit::define_elementwise(m, Family());
  cppcuda::kit::implement_elementwise(m, Family());
}
TORCH_LIBRARY_IMPL(my_ops, Autograd, m) { cppcuda::kit::differentiate_elementwise(m, Family()); }

}  // namespace my_ops
