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

// Attributes of both formulas: the size of the op's result, mode, scales, the size of its argument.
struct Order {
  enum : size_t { to, mode, scale_h, scale_w, from };
};

template <class Op, class Attributes>
Tensor resize(const Tensor& t, const std::vector<c10::SymInt>& size, const Attributes& a) {
  return Op::call(t, size, std::get<Order::mode>(a), std::get<Order::scale_h>(a), std::get<Order::scale_w>(a));
}

template <class TheOp, class Transposed>
struct LinearFormula {
  using Op = TheOp;
  using Self = LinearFormula<TheOp, Transposed>;
  static constexpr std::array<core::Reads, 1> reads{};

  static auto attributes(const Tensor& t, c10::SymIntArrayRef, std::string_view, std::optional<double>,
                         std::optional<double>) {
    return std::make_tuple(spatial_size(t));
  }

  static std::array<Tensor, 1> vjp(const std::array<Tensor, 1>& grads, const core::Saved<Self>& saved,
                                   const std::array<bool, 1>&) {
    return {resize<Transposed>(grads[0], std::get<Order::from>(saved.attributes), saved.attributes)};
  }

  static std::array<Tensor, 1> jvp(const std::array<Tensor, 1>& tangents, const core::Saved<Self>& saved) {
    return {resize<TheOp>(tangents[0], std::get<Order::to>(saved.attributes), saved.attributes)};
  }
};

TORCH_LIBRARY_IMPL(cppcuda, Autograd, m) {
  m.impl(Forward::name, core::autograd<LinearFormula<Forward, Backward>>());
  m.impl(Backward::name, core::autograd<LinearFormula<Backward, Forward>>());
}

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
