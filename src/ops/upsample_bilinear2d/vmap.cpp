#include <torch/library.h>

#include "core/vmap.h"
#include "ops/upsample_bilinear2d/schema.h"
#include "ops/upsample_bilinear2d/shape.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

// A batch becomes more images: it is folded into N.
TORCH_LIBRARY_IMPL(cppcuda, FuncTorchBatched, m) {
  m.impl(Forward::name, core::vmap<Forward, forward_shape>());
  m.impl(Backward::name, core::vmap<Backward, backward_shape>());
}

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
