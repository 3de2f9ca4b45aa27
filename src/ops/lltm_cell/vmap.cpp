#include <torch/library.h>

#include "core/vmap.h"
#include "ops/lltm_cell/schema.h"
#include "ops/lltm_cell/shape.h"

namespace cppcuda::ops::lltm_cell {
namespace {

// A matrix each, but for bias [3S]; before it at most one group dim.
TORCH_LIBRARY_IMPL(cppcuda, FuncTorchBatched, m) {
  m.impl(Forward::name, core::vmap_leading<Forward, forward_shape, 1, /*input*/ 2, /*weight*/ 2, /*bias*/ 1, /*hx*/ 2,
                                           /*cx*/ 2>());
  m.impl(Cell::name, core::vmap_leading<Cell, cell_shape, 1, /*input*/ 2, /*weight*/ 2, /*bias*/ 1, /*hx*/ 2,
                                        /*cx*/ 2>());
  m.impl(Backward::name, core::vmap_leading<Backward, backward_shape, 1, /*grad_hy*/ 2, /*grad_cy*/ 2, /*grad_gates*/ 2,
                                            /*gates*/ 2, /*input*/ 2, /*weight*/ 2, /*hx*/ 2, /*cx*/ 2>());
}

}  // namespace
}  // namespace cppcuda::ops::lltm_cell
