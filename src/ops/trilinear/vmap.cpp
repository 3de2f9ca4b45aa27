#include <torch/library.h>

#include "core/vmap.h"
#include "ops/trilinear/schema.h"
#include "ops/trilinear/shape.h"

namespace cppcuda::ops::trilinear {
namespace {

TORCH_LIBRARY_IMPL(cppcuda, FuncTorchBatched, m) {
  m.impl(Forward::name, core::vmap_rows<Forward, forward_shape, /*feats [8, F]*/ 2, /*points [3]*/ 1>());
  m.impl(Backward::name, core::vmap_rows<Backward, backward_shape, /*grad [F]*/ 1,
                                         /*feats [8, F]*/ 2, /*points [3]*/ 1>());
}

}  // namespace
}  // namespace cppcuda::ops::trilinear
