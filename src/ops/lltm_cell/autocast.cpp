#include "cppcuda/kit/autocast.h"

#include "cppcuda/kit/dtype.h"
#include "ops/lltm_cell/op.h"

namespace cppcuda::ops::lltm_cell {
namespace {

// The product runs in the autocast dtype, the cell state, a sum over the whole sequence, in float32. float64 is left
// alone, as autocast does everywhere.
template <c10::DeviceType Device>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> cast(at::ScalarType dtype, const Tensor& input, const Tensor& weight,
                                                        const Tensor& bias, const Tensor& hx, const Tensor& cx) {
  auto low = [&](const Tensor& t) { return at::autocast::cached_cast(dtype, t, Device); };
  return {low(input), low(weight), low(bias), low(hx), kit::is_16bit(cx.scalar_type()) ? cx.to(at::kFloat) : cx};
}

TORCH_LIBRARY_IMPL(cppcuda, AutocastCPU, m) {
  m.impl(Forward::name, kit::autocast<Forward, cast<at::kCPU>, at::kCPU>());
}
TORCH_LIBRARY_IMPL(cppcuda, AutocastCUDA, m) {
  m.impl(Forward::name, kit::autocast<Forward, cast<at::kCUDA>, at::kCUDA>());
}

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
