#include <torch/library.h>

#include "core/vmap.h"
#include "ops/trilinear/schema.h"

namespace cppcuda::ops::trilinear {
namespace {

TORCH_LIBRARY_IMPL(cppcuda, FuncTorchBatched, m) {
  m.impl(Forward::name, core::vmap<Forward>());
  m.impl(Backward::name, core::vmap<Backward>());
}

}  // namespace
}  // namespace cppcuda::ops::trilinear
