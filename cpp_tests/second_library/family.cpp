// Schemas, kernels and derivatives of the elementwise operators.

#include "family.h"

#include "core/pointwise_autograd.h"
#include "core/pointwise_define.h"
#include "core/pointwise_loop.h"

namespace second {

TORCH_LIBRARY_FRAGMENT(second, m) {
  core::define_pointwise(m, Family());
  core::implement_pointwise(m, Family());
}
TORCH_LIBRARY_IMPL(second, Autograd, m) { core::differentiate_pointwise(m, Family()); }

}  // namespace second
