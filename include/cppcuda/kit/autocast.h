#pragma once

// Autocast kernels: the operator's policy casts its arguments, and the operator runs with autocast disabled.

#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "cppcuda/kit/op.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class TheOp, auto Cast, c10::DeviceType Device, class Type = typename TheOp::Type>
struct AutocastKernel;

template <class TheOp, auto Cast, c10::DeviceType Device, class R, class... Args>
struct AutocastKernel<TheOp, Cast, Device, R(Args...)> {
  static R run(Args... args) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto dtype = at::autocast::get_autocast_dtype(Device);
    return std::apply([](const auto&... cast) { return TheOp::call(cast...); }, Cast(dtype, args...));
  }
};

// Cast(autocast dtype, args...) returns the tuple of arguments to call the op with.
template <class Op, auto Cast, c10::DeviceType Device>
auto autocast() {
  return torch::CppFunction::makeFromUnboxedFunction(TORCH_FN((AutocastKernel<Op, Cast, Device>::run)));
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
