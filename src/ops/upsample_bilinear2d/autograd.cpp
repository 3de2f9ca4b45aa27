// With the weights wy[o, i] and wx[o, i] of input pixel i in output pixel o along each axis:
//
//   output     = wy input wx^T
//   grad_input = wy^T grad_output wx
//
// Both are linear, and each is the transpose of the other. So each is the derivative of the other, at any order.

#include "cppcuda/kit/autograd.h"

#include <torch/library.h>

#include "ops/upsample_bilinear2d/op.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

std::vector<c10::SymInt> spatial_size(const Tensor& t) { return {t.sym_size(2), t.sym_size(3)}; }

template <class TheOp, class Transposed, kit::FixedString Size>
struct LinearFormula {
  using Op = TheOp;
  using Saved = kit::Saved<LinearFormula>;
  static constexpr std::array<kit::Reads, 1> reads{};

  // The size of the op's argument.
  static constexpr auto attribute_names = kit::names("size");
  static auto attributes(const Tensor& t, c10::SymIntArrayRef, std::string_view, std::optional<double>,
                         std::optional<double>) {
    return std::make_tuple(spatial_size(t));
  }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const Saved& saved, const kit::Need<Op>&) {
    return resize<Transposed>(grads[0], saved, saved.template attribute<"size">());
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const Saved& saved) {
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
  m.impl(Forward::name, kit::autograd<LinearFormula<Forward, Backward, "output_size">>());
  m.impl(Backward::name, kit::autograd<LinearFormula<Backward, Forward, "input_size">>());
}

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
