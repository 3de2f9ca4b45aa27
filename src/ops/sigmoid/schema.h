#pragma once

#include "core/op.h"

namespace cppcuda::ops::sigmoid {

using Forward = core::Op<"cppcuda::sigmoid", Tensor(const Tensor& input)>;
using InPlace = core::Op<"cppcuda::sigmoid_", void(const Tensor& self)>;
using Out = core::Op<"cppcuda::sigmoid.out", void(const Tensor& input, const Tensor& out)>;
using Backward = core::Op<"cppcuda::_sigmoid_backward", Tensor(const Tensor& grad, const Tensor& output)>;

}  // namespace cppcuda::ops::sigmoid
