// Schemas, kernels and derivatives of the elementwise operators, and the public C++ functions.

#include <cppcuda/ops/quick_gelu.h>
#include <cppcuda/ops/sigmoid.h>

#include "core/pointwise_autograd.h"
#include "core/pointwise_define.h"
#include "core/pointwise_family.h"
#include "core/pointwise_loop.h"
#include "elementwise/family.h"

namespace cppcuda {

Tensor quick_gelu(const Tensor& input) { return core::call<elementwise::QuickGelu>(input); }
Tensor& quick_gelu_(Tensor& self) { return core::call_in_place<elementwise::QuickGelu>(self); }
Tensor& quick_gelu_out(Tensor& out, const Tensor& input) { return core::call_out<elementwise::QuickGelu>(out, input); }

Tensor sigmoid(const Tensor& input) { return core::call<elementwise::Sigmoid>(input); }
Tensor& sigmoid_(Tensor& self) { return core::call_in_place<elementwise::Sigmoid>(self); }
Tensor& sigmoid_out(Tensor& out, const Tensor& input) { return core::call_out<elementwise::Sigmoid>(out, input); }

namespace elementwise {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  core::define_pointwise(m, Family());
  core::implement_pointwise(m, Family());
}
TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) { core::differentiate_pointwise(m, Family()); }

}  // namespace elementwise
}  // namespace cppcuda
