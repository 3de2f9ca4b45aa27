// A whole operator in one file: the sums of rows, with gradients of any order in both modes, and under vmap.
//
//   import cppcuda.kit
//   ops = cppcuda.kit.load("one_file", "examples/one_file/row_sum.cpp")
//   ops.row_sum(torch.rand(5, 3))

#include <torch/library.h>

#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "cppcuda/kit/math/opmath.h"

namespace one_file {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using RowSum = kit::Op<"one_file::row_sum(Tensor input[B?, N, F]) -> Tensor[B?, N]", kit::Independent<"N">>;

// `out` has memory, with the sizes of the declaration.
void row_sum_cpu(const kit::Args<RowSum>& args, const kit::Outputs<RowSum>& out) {
  const Tensor& input = args["input"];
  // Supports any strides: a contiguous copy would cost as much as the sum, and vmap passes operands with stride 0.
  const kit::Rows rows = kit::make_rows(args);
  const int64_t features = input.size(-1);
  kit::visit_dtype(input.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const kit::RowsOf<T> from = kit::rows_of<T>(input, /*own=*/1);
    T* to = out["output"].mutable_data_ptr<T>();
    for (int64_t row = 0; row < rows.count; ++row) {
      const T* values = from.at(rows, row);
      kit::opmath<T> sum = 0;
      for (int64_t f = 0; f < features; ++f) sum += values[f * from.inner];
      to[row] = static_cast<T>(sum);
    }
  });
}

struct ForwardFormula {
  using Op = RowSum;
  static constexpr auto reads = kit::reads_nothing<Op>();

  // The number of features, which the gradient's shape does not give.
  static constexpr auto attribute_names = kit::names("features");
  static auto attributes(const kit::Args<Op>& args) { return std::make_tuple(args["input"].sym_size(-1)); }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>&) {
    const Tensor& grad = grads["output"];
    auto sizes = grad.sym_sizes().vec();
    sizes.push_back(saved.attribute<"features">());
    return grad.unsqueeze(-1).expand_symint(sizes);
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>&) {
    return RowSum::call(tangents["input"]);
  }
};

TORCH_LIBRARY_FRAGMENT(one_file, m) {
  kit::define<RowSum>(m).implement_cpu<row_sum_cpu>().differentiate<ForwardFormula>();
}

}  // namespace
}  // namespace one_file
