#pragma once

#include "types.h"

namespace cppcuda::ops::spline_prefilter {

using Prefilter2d = kit::Op<
    "cppcuda::spline_prefilter2d(Tensor input[B?, H, W, F], int order=3, str border=\"mirror\") -> "
    "Tensor[B?, H, W, F]",
    kit::Independent<"F">>;
using Prefilter3d = kit::Op<
    "cppcuda::spline_prefilter3d(Tensor input[B?, D, H, W, F], int order=3, str border=\"mirror\") -> "
    "Tensor[B?, D, H, W, F]",
    kit::Independent<"F">>;

// The adjoint.
template <class Prefilter>
using Backward = kit::BackwardOf<Prefilter, kit::GradientReads<"input">>;

template <class TheOp>
inline constexpr bool is_backward = false;
template <>
inline constexpr bool is_backward<Backward<Prefilter2d>> = true;
template <>
inline constexpr bool is_backward<Backward<Prefilter3d>> = true;

template <class TheOp>
inline constexpr const char* tensor = is_backward<TheOp> ? "grad" : "input";
template <class TheOp>
inline constexpr int64_t axes =
    std::is_same_v<TheOp, Prefilter3d> || std::is_same_v<TheOp, Backward<Prefilter3d>> ? 3 : 2;

}  // namespace cppcuda::ops::spline_prefilter
