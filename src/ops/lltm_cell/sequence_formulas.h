#pragma once

// The derivatives of a cell are in formulas.h. Those of a sequence are made of them, step by step; only its first
// derivative is an operator of its own. With h_t, c_t the state after step t, and hn, cn the last one,
//
//   (h_t, c_t, gates_t) = cell(x_t, h_(t - 1), c_(t - 1))
//   (grad x_t, ..., a_(t - 1), b_(t - 1)) = cell_backward(grad output_t + a_t, grad cells_t + b_t, grad gates_t)
//
// where a and b are the gradients of h and c that come from later steps, and start as those of hn and cn.

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "cppcuda/kit/call.h"
#include "ops/lltm_cell/formulas.h"

namespace cppcuda::ops::lltm_cell {
inline int64_t steps_of(const Tensor& gates) { return gates.sym_size(-3).guard_int(__FILE__, __LINE__); }

inline Tensor at_step(const Tensor& t, int64_t step) { return t.defined() ? t.select(-3, step) : t; }

// The value before a step.
inline Tensor before(const Tensor& first, const Tensor& all, int64_t step) {
  return step == 0 ? first : at_step(all, step - 1);
}

// Values of all steps, of which undefined ones are zeros; undefined if all are.
inline Tensor stacked(std::vector<Tensor> steps) {
  const auto defined = std::find_if(steps.begin(), steps.end(), [](const Tensor& t) { return t.defined(); });
  if (defined == steps.end()) return {};
  const Tensor like = *defined;
  for (Tensor& t : steps) {
    if (!t.defined()) t = at::zeros_like(like);
  }
  return at::stack(steps, -3);
}

// In the dtype of another tensor, because the tangents of a cell may be wider.
inline Tensor as(const Tensor& t, const Tensor& like) { return t.defined() ? t.to(like.scalar_type()) : t; }

struct StepsFormula : kit::GradientsBy<Steps, StepsBackward> {
  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<StepsFormula>& saved) {
    const auto [x, w, b, h0, c0] = saved.get<"input", "weight", "bias", "h0", "c0">();
    const auto [output, cells, gates] = saved.get<"output", "cells", "gates">();
    Tensor h = tangents["h0"], c = tangents["c0"];
    std::vector<Tensor> all_h, all_c, all_gates;
    for (int64_t t = 0; t < steps_of(gates); ++t) {
      const kit::Saved<CellFormula> cell{{{at_step(x, t), w, b, before(h0, output, t), before(c0, cells, t)}},
                                         {{at_step(output, t), at_step(cells, t), at_step(gates, t)}},
                                         {}};
      const auto along =
          CellFormula::jvp({{at_step(tangents["input"], t), tangents["weight"], tangents["bias"], h, c}}, cell);
      h = as(along["hy"], output), c = as(along["cy"], cells);
      all_h.push_back(h), all_c.push_back(c), all_gates.push_back(as(along["gates"], gates));
    }
    return {{stacked(all_h), h, c, stacked(all_c), stacked(all_gates)}};
  }
};

struct StepsBackwardFormula {
  using Op = StepsBackward;
  static constexpr auto reads = kit::reads<Op>({
      {"grad_output", {"gates", "cells", "output", "input", "weight", "h0", "c0"}},
      {"grad_hn", {"gates", "cells", "output", "input", "weight", "h0", "c0"}},
      {"grad_cn", {"gates", "cells", "output", "input", "weight", "h0", "c0"}},
      {"grad_cells", {"gates", "cells", "output", "input", "weight", "h0", "c0"}},
      {"grad_gates", {"gates", "cells", "output", "input", "weight", "h0", "c0"}},
      {"gates",
       {"grad_output", "grad_hn", "grad_cn", "grad_cells", "grad_gates", "gates", "cells", "output", "input", "weight",
        "h0", "c0"}},
      {"cells",
       {"grad_output", "grad_hn", "grad_cn", "grad_cells", "grad_gates", "gates", "cells", "output", "input", "weight",
        "h0", "c0"}},
      {"output", {"grad_output", "grad_hn", "grad_cn", "grad_cells", "grad_gates", "gates", "cells", "weight", "c0"}},
      {"input", {"grad_output", "grad_hn", "grad_cn", "grad_cells", "grad_gates", "gates", "cells", "weight", "c0"}},
      {"weight",
       {"grad_output", "grad_hn", "grad_cn", "grad_cells", "grad_gates", "gates", "cells", "output", "input", "weight",
        "h0", "c0"}},
      {"h0", {"grad_output", "grad_hn", "grad_cn", "grad_cells", "grad_gates", "gates", "cells", "weight", "c0"}},
      {"c0",
       {"grad_output", "grad_hn", "grad_cn", "grad_cells", "grad_gates", "gates", "cells", "output", "input", "weight",
        "h0", "c0"}},
  });

  using Cell = kit::Saved<CellBackwardFormula>;

  // The calls of cell_backward, one per step; the mask says which outputs their derivatives have.
  static std::vector<Cell> unrolled(const kit::Saved<StepsBackwardFormula>& saved, const kit::OutputMask& mask) {
    const auto [gates, cells, output, x, w, h0, c0] =
        saved.get<"gates", "cells", "output", "input", "weight", "h0", "c0">();
    const int64_t steps = steps_of(gates);
    std::vector<Cell> result(steps);
    Tensor h = saved["grad_hn"], c = saved["grad_cn"];
    for (int64_t t = steps - 1; t >= 0; --t) {
      kit::accumulate(h, at_step(saved["grad_output"], t));
      kit::accumulate(c, at_step(saved["grad_cells"], t));
      const Tensor grad_gates = at_step(saved["grad_gates"], t), previous = before(c0, cells, t);
      result[t] = {{{h, c, grad_gates, at_step(gates, t), at_step(x, t), w,
                     h0.defined() ? before(h0, output, t) : Tensor(), previous}},
                   {},
                   {mask, w.sym_size(-1) - c0.sym_size(-1)}};
      if (t == 0) break;
      kit::Call<Backward> call(result[t]);
      call.tensors["input"] = call.tensors["hx"] = Tensor();
      call.attribute<"output_mask">() = {false, false, false, true, true};
      const auto grads = call.run();
      h = grads["grad(hx)"], c = grads["grad(cx)"];
    }
    return result;
  }

  // Along the steps: the gradient of a_(t - 1) is that of what step t - 1 adds to it.
  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<StepsBackwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const std::vector<Cell> cells = unrolled(saved, kit::OutputMask(5, true));
    // The gradient of the weights is linear in the inputs and the states: their gradients do not go from step to step.
    const bool goes_on = need["grad_output"] || need["grad_hn"] || need["grad_cn"] || need["grad_cells"] ||
                         need["grad_gates"] || need["gates"] || need["cells"] || need["weight"] || need["c0"];
    Tensor h = grads["grad(h0)"], c = grads["grad(c0)"];
    kit::Inputs<Op> result;
    std::vector<Tensor> grad_output, grad_cells, grad_gates, gates, x, states, cell_states;
    for (size_t t = 0; t < cells.size(); ++t) {
      const auto step = static_cast<int64_t>(t);
      kit::Need<Backward> of_cell;
      of_cell.fill(goes_on);
      of_cell["input"] = need["input"], of_cell["hx"] = true, of_cell["weight"] = need["weight"];
      const auto of = CellBackwardFormula::vjp(
          {{at_step(grads["grad(input)"], step), grads["grad(weight)"], grads["grad(bias)"], h, c}}, cells[t], of_cell);
      h = of["grad_hy"], c = of["grad_cy"];
      grad_output.push_back(h), grad_cells.push_back(c), grad_gates.push_back(of["grad_gates"]);
      gates.push_back(of["gates"]);
      if (need["input"]) x.push_back(of["input"]);
      states.push_back(of["hx"]), cell_states.push_back(of["cx"]);
      if (need["weight"]) kit::accumulate(result["weight"], of["weight"]);
    }
    result["grad_output"] = stacked(grad_output), result["grad_hn"] = h;
    result["grad_cells"] = stacked(grad_cells), result["grad_cn"] = c;
    result["grad_gates"] = stacked(grad_gates), result["gates"] = stacked(gates), result["input"] = stacked(x);
    // Step t reads the states before it: the last ones are read by none.
    if (!cells.empty()) {
      result["h0"] = states[0], result["c0"] = cell_states[0];
      std::rotate(states.begin(), states.begin() + 1, states.end());
      std::rotate(cell_states.begin(), cell_states.begin() + 1, cell_states.end());
      states.back() = cell_states.back() = Tensor();
      result["output"] = stacked(states), result["cells"] = stacked(cell_states);
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<StepsBackwardFormula>& saved) {
    kit::OutputMask mask = saved.attribute<"output_mask">();
    mask[3] = mask[4] = true;
    const std::vector<Cell> cells = unrolled(saved, mask);
    kit::Outputs<Op> result;
    std::vector<Tensor> x(cells.size());
    Tensor h = tangents["grad_hn"], c = tangents["grad_cn"];
    for (int64_t t = static_cast<int64_t>(cells.size()) - 1; t >= 0; --t) {
      kit::accumulate(h, at_step(tangents["grad_output"], t));
      kit::accumulate(c, at_step(tangents["grad_cells"], t));
      const auto of = CellBackwardFormula::jvp(
          {{h, c, at_step(tangents["grad_gates"], t), at_step(tangents["gates"], t), at_step(tangents["input"], t),
            tangents["weight"], before(tangents["h0"], tangents["output"], t),
            before(tangents["c0"], tangents["cells"], t)}},
          cells[t]);
      if (mask[0]) x[t] = of["grad(input)"];
      h = as(of["grad(hx)"], saved["gates"]), c = as(of["grad(cx)"], saved["cells"]);
      if (mask[1]) kit::accumulate(result["grad(weight)"], of["grad(weight)"]);
      if (mask[2]) kit::accumulate(result["grad(bias)"], of["grad(bias)"]);
    }
    if (mask[0]) result["grad(input)"] = stacked(x);
    result["grad(h0)"] = h, result["grad(c0)"] = c;
    return result;
  }
};

}  // namespace cppcuda::ops::lltm_cell
