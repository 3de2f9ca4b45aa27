// With weights wy[o, i] and wx[o, i] of input pixel i in output pixel o, along each axis:
//
//   out  = wy input wx^T
//   grad = wy^T grad_out wx
//
// Each is linear and the transpose of the other, so they are each other's derivative, at any order.

#include "core/autograd.h"

#include <torch/library.h>

#include "ops/upsample_bilinear2d/schema.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

std::vector<c10::SymInt> spatial_size(const Tensor& t) { return {t.sym_size(2), t.sym_size(3)}; }

template <class TheOp, class Transposed, core::FixedString Size>
struct LinearFormula {
  using Op = TheOp;
  using Saved = core::Saved<LinearFormula>;
  static constexpr std::array<core::Reads, 1> reads{};

  // The size of the op's argument.
  static auto attributes(const Tensor& t, c10::SymIntArrayRef, std::string_view, std::optional<double>,
                         std::optional<double>) {
    return std::make_tuple(spatial_size(t));
  }

  static core::Inputs<Op> vjp(const core::Outputs<Op>& grads, const Saved& saved, const core::Need<Op>&) {
    return resize<Transposed>(grads[0], saved, std::get<4>(saved.attributes));
  }

  static core::Outputs<Op> jvp(const core::Inputs<Op>& tangents, const Saved& saved) {
    return resize<TheOp>(tangents[0], saved, saved.template attribute<Size>());
  }

 private:
  template <class Resize>
  static Tensor resize(const Tensor& t, const Saved& saved, const std::vector<c10::SymInt>& size) {
    return Resize::call(t, size, saved.template attribute<"coordinate_transformation_mode">(),
                        saved.template attribute<"scale_h">(), saved.template attribute<"scale_w">());
  }
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) {
  m.impl(Forward::name, core::autograd<LinearFormula<Forward, Backward, "output_size">>());
  m.impl(Backward::name, core::autograd<LinearFormula<Backward, Forward, "input_size">>());
}

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
