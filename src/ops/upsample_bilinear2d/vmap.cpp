#include <torch/library.h>

#include "core/vmap.h"
#include "ops/upsample_bilinear2d/schema.h"
#include "ops/upsample_bilinear2d/shape.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

// A batch becomes more images: it is folded into N.
TORCH_LIBRARY_IMPL(cppcuda, FuncTorchBatched, m) {
  m.impl(Forward::name, core::vmap_leading<Forward, forward_shape, /*N*/ 1, /*input [C, H, W]*/ 3>());
  m.impl(Backward::name, core::vmap_leading<Backward, backward_shape, /*N*/ 1, /*grad [C, H, W]*/ 3>());
}

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
