// Operators over segments of rows, whose bounds are those of a matrix in CSR format: segment s has the rows from
// indptr[s] to indptr[s + 1]. They compute what segment_csr and gather_csr of torch_scatter and softmax_csr of pyg_lib
// do.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "batched.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/math/opmath.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

// The sum or the mean of each segment; 0 for an empty one.
using Segment = kit::Op<
    "second::segment_csr(Tensor src[B?, N, F], Tensor indptr[B?, S + 1] int64, str reduce=\"sum\") -> Tensor[B?, S, F]",
    kit::Sharded<"F">>;
// The least or the largest value of each segment and its row; 0 and N for an empty segment. A NaN is both.
using Extreme = kit::Op<
    "second::segment_extreme_csr(Tensor src[B?, N, F], Tensor indptr[B?, S + 1] int64, bool largest=True) -> "
    "(Tensor values[B?, S, F], Tensor rows[B?, S, F] int64)",
    kit::Sharded<"F">>;
// The row of `src` that belongs to the segment of each of n rows; 0 for a row without a segment.
using Gather =
    kit::Op<"second::gather_csr(Tensor src[B?, S, F], Tensor indptr[B?, S + 1] int64, SymInt n[N]) -> Tensor[B?, N, F]",
            kit::Sharded<"F">>;
// exp(src) divided by its sum over the segment; 0 for a row without a segment.
using Softmax = kit::Op<"second::softmax_csr(Tensor src[B?, N, F], Tensor indptr[B?, S + 1] int64) -> Tensor[B?, N, F]",
                        kit::Sharded<"F">>;

// Calls f(batch, segment, first, last) for the segments of each batch, in parallel. Segments are in order, and within
// the `rows` that there are.
template <class F>
void for_each_segment(const char* op, const Tensor& indptr, int64_t rows, int64_t features, F f) {
  const Tensor all = batched(indptr, 2);
  const auto bounds = all.accessor<const int64_t, 2>();
  const int64_t segments = all.size(1) - 1;
  for (int64_t b = 0; b < all.size(0); ++b) {
    for (int64_t s = 0; s <= segments; ++s) {
      TORCH_CHECK_INDEX(bounds[b][s] >= (s == 0 ? 0 : bounds[b][s - 1]) && bounds[b][s] <= rows, op,
                        ": indptr must not decrease and be in [0, ", rows, "], got ", bounds[b][s], " at ", s);
    }
  }
  const int64_t work = 1 + features * rows / std::max<int64_t>(1, segments);
  at::parallel_for(0, all.size(0) * segments, 1 + (1 << 14) / work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / segments, s = i % segments;
      f(b, s, bounds[b][s], bounds[b][s + 1]);
    }
  });
}

bool is_mean(const kit::Args<Segment>& args) {
  const std::string_view reduce = args.get<"reduce">();
  TORCH_CHECK(reduce == "sum" || reduce == "mean", "segment_csr: reduce must be 'sum' or 'mean', got '", reduce, "'");
  return reduce == "mean";
}

void segment_cpu(const kit::Args<Segment>& args, const kit::Outputs<Segment>& out) {
  const bool mean = is_mean(args);
  const Tensor src = batched(args["src"], 3), sums = batched(out["output"], 3);
  const int64_t features = src.size(2);
  kit::visit_dtype(src.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const auto from = src.accessor<const T, 3>();
    auto to = sums.accessor<T, 3>();
    const auto reduce = [&](int64_t b, int64_t s, int64_t first, int64_t last) {
      const A divisor = mean ? static_cast<A>(std::max<int64_t>(1, last - first)) : A(1);
      for (int64_t f = 0; f < features; ++f) {
        A sum = 0;
        for (int64_t i = first; i < last; ++i) sum += static_cast<A>(from[b][i][f]);
        to[b][s][f] = static_cast<T>(sum / divisor);
      }
    };
    for_each_segment("segment_csr", args["indptr"], src.size(1), features, reduce);
  });
}

void extreme_cpu(const kit::Args<Extreme>& args, const kit::Outputs<Extreme>& out) {
  const bool largest = args.get<"largest">();
  const Tensor src = batched(args["src"], 3), values = batched(out["values"], 3), rows = batched(out["rows"], 3);
  const int64_t features = src.size(2);
  kit::visit_dtype(src.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const auto from = src.accessor<const T, 3>();
    auto to = values.accessor<T, 3>();
    auto row = rows.accessor<int64_t, 3>();
    const auto reduce = [&](int64_t b, int64_t s, int64_t first, int64_t last) {
      for (int64_t f = 0; f < features; ++f) {
        int64_t best = first;
        for (int64_t i = first + 1; i < last; ++i) {
          const A x = static_cast<A>(from[b][i][f]), y = static_cast<A>(from[b][best][f]);
          if (!std::isnan(y) && (std::isnan(x) || (largest ? x > y : x < y))) best = i;
        }
        to[b][s][f] = first < last ? from[b][best][f] : T(0);
        row[b][s][f] = first < last ? best : src.size(1);
      }
    };
    for_each_segment("segment_extreme_csr", args["indptr"], src.size(1), features, reduce);
  });
}

void gather_cpu(const kit::Args<Gather>& args, const kit::Outputs<Gather>& out) {
  const Tensor src = batched(args["src"], 3), rows = batched(out["output"], 3);
  const int64_t features = src.size(2);
  out["output"].zero_();
  kit::visit_dtype(src.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from = src.accessor<const T, 3>();
    auto to = rows.accessor<T, 3>();
    const auto repeat = [&](int64_t b, int64_t s, int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        for (int64_t f = 0; f < features; ++f) to[b][i][f] = from[b][s][f];
      }
    };
    for_each_segment("gather_csr", args["indptr"], rows.size(1), features, repeat);
  });
}

void softmax_cpu(const kit::Args<Softmax>& args, const kit::Outputs<Softmax>& out) {
  const Tensor src = batched(args["src"], 3), shares = batched(out["output"], 3);
  const int64_t features = src.size(2);
  out["output"].zero_();
  kit::visit_dtype(src.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const auto from = src.accessor<const T, 3>();
    auto to = shares.accessor<T, 3>();
    const auto divide = [&](int64_t b, int64_t, int64_t first, int64_t last) {
      for (int64_t f = 0; f < features; ++f) {
        A most = -std::numeric_limits<A>::infinity(), sum = 0;
        for (int64_t i = first; i < last; ++i) most = std::max(most, static_cast<A>(from[b][i][f]));
        const auto value = [&](int64_t i) { return std::exp(static_cast<A>(from[b][i][f]) - most); };
        for (int64_t i = first; i < last; ++i) sum += value(i);
        for (int64_t i = first; i < last; ++i) to[b][i][f] = static_cast<T>(value(i) / sum);
      }
    };
    for_each_segment("softmax_csr", args["indptr"], src.size(1), features, divide);
  });
}

// Linear, and the transpose of gather_csr.
struct SegmentFormula {
  using Op = Segment;
  static constexpr auto reads = kit::reads<Op>({{"src", {"indptr"}}});
  static constexpr auto attribute_names = kit::names("rows");
  static auto attributes(const kit::Args<Op>& args) { return std::make_tuple(args["src"].sym_size(-2)); }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<SegmentFormula>& saved,
                             const kit::Need<Op>&) {
    const Tensor& indptr = saved["indptr"];
    Tensor grad = grads["output"];
    if (saved.attribute<"reduce">() == "mean") grad = grad / indptr.diff().clamp_min(1).unsqueeze(-1);
    kit::Inputs<Op> result;
    result["src"] = Gather::call(grad, indptr, saved.attribute<"rows">());
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<SegmentFormula>& saved) {
    return Op::call(tangents["src"], saved["indptr"], saved.attribute<"reduce">());
  }
};

struct GatherFormula {
  using Op = Gather;
  static constexpr auto reads = kit::reads<Op>({{"src", {"indptr"}}});

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<GatherFormula>& saved,
                             const kit::Need<Op>&) {
    kit::Inputs<Op> result;
    result["src"] = Segment::call(grads["output"], saved["indptr"], "sum");
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<GatherFormula>& saved) {
    return Op::call(tangents["src"], saved["indptr"], saved.attribute<"n">());
  }
};

// Each value is that of one row, or of a row of zeros after the last one.
struct ExtremeFormula {
  using Op = Extreme;
  static constexpr auto reads = kit::reads<Op>({{"src", {"rows"}}});
  static constexpr auto attribute_names = kit::names("rows_of_src");
  static auto attributes(const kit::Args<Op>& args) { return std::make_tuple(args["src"].sym_size(-2)); }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ExtremeFormula>& saved,
                             const kit::Need<Op>&) {
    const Tensor &grad = grads["values"], &rows = saved["rows"];
    const c10::SymInt& count = saved.attribute<"rows_of_src">();
    auto sizes = grad.sym_sizes().vec();
    sizes[sizes.size() - 2] = count + 1;
    kit::Inputs<Op> result;
    result["src"] = grad.new_zeros_symint(sizes).scatter_add(-2, rows, grad).narrow_symint(-2, 0, count);
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ExtremeFormula>& saved) {
    const Tensor& tangent = tangents["src"];
    kit::Outputs<Op> result;
    result["values"] = at::constant_pad_nd(tangent, {0, 0, 0, 1}).gather(-2, saved["rows"]);
    return result;
  }
};

// With s = sum over the segment of y dy: grad_src = y (grad - s), and the Jacobian is symmetric.
struct SoftmaxFormula {
  using Op = Softmax;
  static constexpr auto reads = kit::reads<Op>({{"src", {"output", "indptr"}}});

  static Tensor derivative(const Tensor& t, const kit::Saved<SoftmaxFormula>& saved) {
    const Tensor& indptr = saved["indptr"];
    const Tensor y = kit::in_opmath(saved["output"]), change = y * t;
    return (change - y * Gather::call(Segment::call(change, indptr, "sum"), indptr, t.sym_size(-2)))
        .to(t.scalar_type());
  }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<SoftmaxFormula>& saved,
                             const kit::Need<Op>&) {
    kit::Inputs<Op> result;
    result["src"] = derivative(grads["output"], saved);
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<SoftmaxFormula>& saved) {
    return derivative(tangents["src"], saved);
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define<Segment>(m).implement_cpu<segment_cpu>().differentiate<SegmentFormula>();
  kit::define<Extreme>(m).implement_cpu<extreme_cpu>().differentiate<ExtremeFormula>();
  kit::define<Gather>(m).implement_cpu<gather_cpu>().differentiate<GatherFormula>();
  kit::define<Softmax>(m).implement_cpu<softmax_cpu>().differentiate<SoftmaxFormula>();
}

}  // namespace
}  // namespace second
