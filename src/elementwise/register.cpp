// Schemas, kernels and derivatives of the elementwise operators, and the public C++ functions.

#include <cppcuda/ops/quick_gelu.h>
#include <cppcuda/ops/sigmoid.h>

#include "cppcuda/kit/elementwise/autograd.h"
#include "cppcuda/kit/elementwise/define.h"
#include "cppcuda/kit/elementwise/family.h"
#include "cppcuda/kit/elementwise/loop.h"
#include "elementwise/family.h"

namespace cppcuda {

Tensor quick_gelu(const Tensor& input) { return kit::call<elementwise::QuickGelu>(input); }
Tensor& quick_gelu_(Tensor& self) { return kit::call_in_place<elementwise::QuickGelu>(self); }
Tensor& quick_gelu_out(Tensor& out, const Tensor& input) { return kit::call_out<elementwise::QuickGelu>(out, input); }

Tensor sigmoid(const Tensor& input) { return kit::call<elementwise::Sigmoid>(input); }
Tensor& sigmoid_(Tensor& self) { return kit::call_in_place<elementwise::Sigmoid>(self); }
Tensor& sigmoid_out(Tensor& out, const Tensor& input) { return kit::call_out<elementwise::Sigmoid>(out, input); }

namespace elementwise {

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define_elementwise(m, Family());
  kit::implement_elementwise(m, Family());
}
TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) { kit::differentiate_elementwise(m, Family()); }

}  // namespace elementwise
}  // namespace cppcuda
