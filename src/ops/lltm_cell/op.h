#pragma once

#include "types.h"

namespace cppcuda::ops::lltm_cell {

// Under autocast the matrix product runs in autocast's dtype. The cell state, a sum over the whole sequence, is
// float32.
using UnderAutocast = kit::UnderAutocast<kit::CastPolicy::lower_precision_fp>;

using Forward = kit::Op<
    "cppcuda::lltm_cell(Tensor input[G?, B, I], Tensor weight[G?, 3S, S + I], Tensor bias[G?, 3S], "
    "Tensor hx[G?, B, S], Tensor cx[G?, B, S] keep_wide) -> "
    "(Tensor hy[G?, B, S], Tensor cy[G?, B, S] like cx, hidden Tensor gates[G?, B, 3S])",
    kit::Independent<"B">, UnderAutocast>;

// Also returns the pre-activations of the gates, which backward reads.
using Cell = Forward::WithHidden;

using Backward =
    kit::BackwardOf<Cell, kit::GradientReads<"input", "weight", "cx", "gates">,
                    kit::GradientReads<"weight", "input", "hx", "cx", "gates">,
                    kit::GradientReads<"bias", "cx", "gates">, kit::GradientReads<"hx", "weight", "cx", "gates">,
                    kit::GradientReads<"cx", "cx", "gates">>;

// ---- sequences

using Sequence = kit::Op<
    "cppcuda::lltm(Tensor input[G?, T, B, I], Tensor weight[G?, 3S, S + I], Tensor bias[G?, 3S], "
    "Tensor h0[G?, B, S], Tensor c0[G?, B, S] keep_wide) -> "
    "(Tensor output[G?, T, B, S], Tensor hn[G?, B, S], Tensor cn[G?, B, S] like c0, "
    "hidden Tensor cells[G?, T, B, S] like c0, hidden Tensor gates[G?, T, B, 3S])",
    kit::Independent<"B">, UnderAutocast>;

// Also returns the states of all cells, and the gates, which backward reads.
using Steps = Sequence::WithHidden;

using StepsBackward =
    kit::BackwardOf<Steps, kit::GradientReads<"input", "weight", "c0", "cells", "gates">,
                    kit::GradientReads<"weight", "input", "weight", "h0", "c0", "output", "cells", "gates">,
                    kit::GradientReads<"bias", "weight", "c0", "cells", "gates">,
                    kit::GradientReads<"h0", "weight", "c0", "cells", "gates">,
                    kit::GradientReads<"c0", "weight", "c0", "cells", "gates">>;

}  // namespace cppcuda::ops::lltm_cell
