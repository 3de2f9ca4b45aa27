#pragma once

#include <ATen/core/Tensor.h>

namespace second {

// The tensor with a batch of 1 if it has none.
inline at::Tensor batched(const at::Tensor& t, int64_t rank) { return t.dim() == rank ? t : t.unsqueeze(0); }

}  // namespace second
