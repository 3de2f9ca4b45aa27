// second::cube_by_function(Tensor x) -> Tensor: wrong on purpose. Its gradient is a torch::autograd::Function, which
// torch.func refuses and which has no forward mode. tests/python/test_wrong_operators.py tests that this is found.

#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace second {
namespace {

using at::Tensor;

Tensor cube(const Tensor& x) { return x * x * x; }

Tensor cube_meta(const Tensor& x) { return at::empty_like(x); }

struct CubeFunction : torch::autograd::Function<CubeFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    at::AutoDispatchBelowADInplaceOrView guard;
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("second::cube_by_function", "").typed<Tensor(const Tensor&)>();
    return op.call(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const Tensor x = context->get_saved_variables()[0];
    return {3 * x * x * grads[0]};
  }
};

Tensor cube_autograd(const Tensor& x) { return CubeFunction::apply(x); }

TORCH_LIBRARY_FRAGMENT(second, m) { m.def("cube_by_function(Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag}); }
TORCH_LIBRARY_IMPL(second, CPU, m) { m.impl("cube_by_function", TORCH_FN(cube)); }
TORCH_LIBRARY_IMPL(second, Meta, m) { m.impl("cube_by_function", TORCH_FN(cube_meta)); }
TORCH_LIBRARY_IMPL(second, Autograd, m) { m.impl("cube_by_function", TORCH_FN(cube_autograd)); }

}  // namespace
}  // namespace second
