#pragma once

#include "cppcuda/kit/rows/formula.h"

namespace second {

namespace kit = cppcuda::kit;

// A formula of rows with indices: -log softmax(logits)[target] for each row, and 0 where target is -1.
struct CrossEntropy {
  static constexpr char schema[] =
      "second::cross_entropy(Tensor logits[..., F], Tensor target[...] int32 or int64) -> "
      "(Tensor loss[...], hidden Tensor log_sum[...] opmath)";

  template <class Row, class In, class Index, class A>
  CPPCUDA_HOST_DEVICE static void forward(const Row& row, const In& logits, Index target, A& loss, A& log_sum) {
    const A greatest = row.max([&](auto f) { return logits[f]; });
    log_sum = greatest + kit::log(row.sum([&](auto f) { return kit::exp(logits[f] - greatest); }));
    loss = row.has(target) * log_sum - row.at(logits, target);
  }

  template <class Row, class In, class Index, class A>
  CPPCUDA_HOST_DEVICE static void backward(const Row& row, A grad, const In& logits, Index target, A log_sum,
                                           auto& grad_logits) {
    const A scale = grad * row.has(target);
    row.for_each(
        [&](auto f) { grad_logits.set(f, scale * kit::exp(logits[f] - log_sum) - grad * row.is_at(f, target)); });
  }
};

}  // namespace second
