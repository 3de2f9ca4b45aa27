#pragma once

#include "core/check.h"
#include "core/output.h"

namespace cppcuda::ops::lltm_cell {

// input [G?, B, I], weight [G?, 3S, S + I], bias [G?, 3S], hx and cx [G?, B, S]
//   -> hy, cy [G?, B, S], gates [G?, B, 3S]
inline std::array<core::Output, 3> outputs(const char* op, const Tensor& input, const Tensor& weight,
                                           const Tensor& bias, const Tensor& hx, const Tensor& cx) {
  core::Checker check(op);
  check.floating("input", input);
  auto like_input = [&](const char* argument, const Tensor& t) {
    check.floating(argument, t);
    check.same_dtype(argument, t, "input", input);
    check.same_device(argument, t, "input", input);
  };
  like_input("weight", weight);
  like_input("bias", bias);
  like_input("hx", hx);
  check.floating("cx", cx);
  check.same_or_wider_dtype("cx", cx, "input", input);
  check.same_device("cx", cx, "input", input);
  check.shape("input", input, "[G?, B, I]");
  check.shape("hx", hx, "[G?, B, S]");
  check.shape("cx", cx, "[G?, B, S]");
  check.shape("weight", weight, "[G?, 3S, S + I]");
  check.shape("bias", bias, "[G?, 3S]");
  const auto state = check.sizes("[G?, B, S]");
  return {core::Output{state, input.options()}, core::Output{state, cx.options()},
          core::Output{check.sizes("[G?, B, 3S]"), input.options()}};
}

inline std::array<core::Output, 3> cell_shape(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                              const Tensor& hx, const Tensor& cx) {
  return outputs("_lltm_cell", input, weight, bias, hx, cx);
}

inline std::array<core::Output, 2> forward_shape(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                                 const Tensor& hx, const Tensor& cx) {
  const auto [hy, cy, gates] = outputs("lltm_cell", input, weight, bias, hx, cx);
  return {hy, cy};
}

// grad_hy, grad_cy [G?, B, S], grad_gates, gates [G?, B, 3S] -> gradients of input, weight, bias, hx and cx
inline std::array<core::Output, 5> backward_shape(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                  const OptionalTensor& grad_gates, const Tensor& gates,
                                                  const OptionalTensor& input, const OptionalTensor& weight,
                                                  const OptionalTensor& hx, const Tensor& cx,
                                                  const c10::List<bool>& output_mask) {
  core::Checker check("_lltm_cell_backward");
  const auto [need_input, need_weight, need_bias, need_hx, need_cx] = check.mask<5>("output_mask", output_mask);
  auto floating = [&](const char* argument, const OptionalTensor& t) {
    if (t) check.floating(argument, *t);
  };
  floating("grad_hy", grad_hy);
  floating("grad_cy", grad_cy);
  floating("grad_gates", grad_gates);
  floating("gates", gates);
  floating("input", input);
  floating("weight", weight);
  floating("hx", hx);
  floating("cx", cx);
  auto like_gates = [&](const char* argument, const OptionalTensor& t) {
    if (!t) return;
    check.same_dtype(argument, *t, "gates", gates);
    check.same_device(argument, *t, "gates", gates);
  };
  like_gates("grad_hy", grad_hy);
  like_gates("grad_gates", grad_gates);
  like_gates("input", input);
  like_gates("weight", weight);
  like_gates("hx", hx);
  check.same_or_wider_dtype("cx", cx, "gates", gates);
  check.same_device("cx", cx, "gates", gates);
  if (grad_cy) {
    check.same_dtype("grad_cy", *grad_cy, "cx", cx);
    check.same_device("grad_cy", *grad_cy, "gates", gates);
  }
  if (need_input) check.required("weight", weight, "when the gradient of input is asked for");
  if (need_hx) check.required("weight", weight, "when the gradient of hx is asked for");
  if (need_weight) check.required("input", input, "when the gradient of weight is asked for");
  if (need_weight) check.required("hx", hx, "when the gradient of weight is asked for");

  check.shape("cx", cx, "[G?, B, S]");
  check.shape("gates", gates, "[G?, B, 3S]");
  auto shape = [&](const char* argument, const OptionalTensor& t, const core::Pattern& pattern) {
    if (t) check.shape(argument, *t, pattern);
  };
  shape("grad_hy", grad_hy, "[G?, B, S]");
  shape("grad_cy", grad_cy, "[G?, B, S]");
  shape("grad_gates", grad_gates, "[G?, B, 3S]");
  shape("hx", hx, "[G?, B, S]");
  shape("input", input, "[G?, B, I]");
  shape("weight", weight, "[G?, 3S, S + I]");

  auto output = [&](bool need, const core::Pattern& pattern, const Tensor& like) {
    return need ? core::Output{check.sizes(pattern), like.options()} : core::left_out(like);
  };
  return {output(need_input, "[G?, B, I]", gates), output(need_weight, "[G?, 3S, S + I]", gates),
          output(need_bias, "[G?, 3S]", gates), output(need_hx, "[G?, B, S]", gates),
          output(need_cx, "[G?, B, S]", cx)};
}

}  // namespace cppcuda::ops::lltm_cell
