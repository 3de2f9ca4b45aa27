// second::row_sum(Tensor input) -> Tensor: an output of lower rank than the input.

#include <torch/library.h>

#include "core/autograd.h"
#include "core/define.h"
#include "core/row_strides.h"
#include "elementwise.h"

namespace second {
namespace {

using RowSum = core::Op<"second::row_sum(Tensor input[B?, N, F]) -> Tensor[B?, N]">;

Tensor row_sum_cpu(const Tensor& input) {
  Tensor out = core::allocate(core::Shape<RowSum>::outputs(input));
  // Any strides: a contiguous copy would cost as much as the sum itself, and vmap gives operands of stride 0.
  const core::RowStride strides = core::row_stride(input, /*core=*/1);
  const core::Rows rows = core::make_rows(input, /*core=*/1, strides);
  const int64_t features = input.size(-1), step = input.stride(-1);
  core::visit_dtype(input.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const T* from = input.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    for (int64_t row = 0; row < rows.count; ++row) {
      const T* values = from + strides.offset(rows, row);
      core::opmath<T> sum = 0;
      for (int64_t f = 0; f < features; ++f) sum += values[f * step];
      to[row] = static_cast<T>(sum);
    }
  });
  return out;
}

struct ForwardFormula {
  using Op = RowSum;
  static constexpr std::array<core::Reads, 1> reads{};

  // The number of features, which the gradient does not show.
  static auto attributes(const Tensor& input) { return std::make_tuple(input.sym_size(-1)); }

  static core::Inputs<Op> vjp(const core::Outputs<Op>& grads, const core::Saved<ForwardFormula>& saved,
                              const core::Need<Op>&) {
    const Tensor& grad = grads["output"];
    auto sizes = grad.sym_sizes().vec();
    sizes.push_back(std::get<0>(saved.attributes));
    return grad.unsqueeze(-1).expand_symint(sizes);
  }

  static core::Outputs<Op> jvp(const core::Inputs<Op>& tangents, const core::Saved<ForwardFormula>&) {
    return RowSum::call(tangents["input"]);
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) { core::define<RowSum>(m); }
TORCH_LIBRARY_IMPL(second, CPU, m) { m.impl(RowSum::name, TORCH_FN(row_sum_cpu)); }
TORCH_LIBRARY_IMPL(second, Autograd, m) { m.impl(RowSum::name, core::autograd<ForwardFormula>()); }

}  // namespace
}  // namespace second
