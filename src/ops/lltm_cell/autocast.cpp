#include "cppcuda/kit/autocast.h"

#include "cppcuda/kit/dtype.h"
#include "ops/lltm_cell/op.h"

namespace cppcuda::ops::lltm_cell {
namespace {

// The matrix product runs in the autocast dtype. The cell state, a sum over the whole sequence, is float32. Autocast
// never changes float64.
template <c10::DeviceType Device>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> cast(at::ScalarType dtype, const Tensor& input, const Tensor& weight,
                                                        const Tensor& bias, const Tensor& hx, const Tensor& cx) {
  auto lower = [&](const Tensor& t) { return at::autocast::cached_cast(dtype, t, Device); };
  return {lower(input), lower(weight), lower(bias), lower(hx),
          kit::is_16bit(cx.scalar_type()) ? cx.to(at::kFloat) : cx};
}

TORCH_LIBRARY_IMPL(cppcuda, AutocastCPU, m) {
  m.impl(Forward::name, kit::autocast<Forward, cast<at::kCPU>, at::kCPU>());
  m.impl(Sequence::name, kit::autocast<Sequence, cast<at::kCPU>, at::kCPU>());
}
TORCH_LIBRARY_IMPL(cppcuda, AutocastCUDA, m) {
  m.impl(Forward::name, kit::autocast<Forward, cast<at::kCUDA>, at::kCUDA>());
  m.impl(Sequence::name, kit::autocast<Sequence, cast<at::kCUDA>, at::kCUDA>());
}

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
