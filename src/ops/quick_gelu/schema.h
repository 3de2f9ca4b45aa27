#pragma once

#include "core/op.h"

namespace cppcuda::ops::quick_gelu {

using Forward = core::Op<"cppcuda::quick_gelu", Tensor(const Tensor& input)>;
using InPlace = core::Op<"cppcuda::quick_gelu_", void(const Tensor& self)>;
using Out = core::Op<"cppcuda::quick_gelu.out", void(const Tensor& input, const Tensor& out)>;
using Backward = core::Op<"cppcuda::_quick_gelu_backward", Tensor(const Tensor& grad, const Tensor& input)>;

}  // namespace cppcuda::ops::quick_gelu
