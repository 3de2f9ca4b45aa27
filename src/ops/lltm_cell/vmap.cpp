#include <torch/library.h>

#include "core/vmap.h"
#include "ops/lltm_cell/schema.h"

namespace cppcuda::ops::lltm_cell {
namespace {

TORCH_LIBRARY_IMPL(cppcuda, FuncTorchBatched, m) {
  m.impl(Forward::name, core::vmap<Forward>());
  m.impl(Cell::name, core::vmap<Cell>());
  m.impl(Backward::name, core::vmap<Backward>());
}

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
