// Operators over segments of rows, whose bounds are those of a matrix in CSR format: segment s has the rows from
// indptr[s] to indptr[s + 1]. They compute what segment_csr and gather_csr of torch_scatter and softmax_csr of pyg_lib
// do.

#include <ATen/ATen.h>
#include <torch/library.h>

#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "public/csr.h"

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

// The steps of a loop over the features of segments, which are in order and within the `rows` that there are.
csr::Segments segments(const char* op, const Tensor& indptr, int64_t rows, int64_t features) {
  const auto bounds = kit::view_of<const int64_t, 2>(indptr);
  const int64_t count = bounds.sizes[0] * (bounds.sizes[1] - 1);
  for (int64_t i = 0; indptr.is_cpu() && i < indptr.numel(); ++i) {
    const auto [b, s] = bounds.indices(i);
    TORCH_CHECK_INDEX(bounds(b, s) >= (s == 0 ? 0 : bounds(b, s - 1)) && bounds(b, s) <= rows, op,
                      ": indptr must not decrease and be in [0, ", rows, "], got ", bounds(b, s), " at ", s);
  }
  return {bounds, rows, features, count * features, 1 + rows / (1 + count)};
}

void segment(const kit::Args<Segment>& args, const kit::Outputs<Segment>& out) {
  const std::string_view reduce = args.get<"reduce">();
  TORCH_CHECK(reduce == "sum" || reduce == "mean", "segment_csr: reduce must be 'sum' or 'mean', got '", reduce, "'");
  const Tensor& src = args["src"];
  const auto steps = segments("segment_csr", args["indptr"], src.size(-2), src.size(-1));
  kit::visit_dtype(src.scalar_type(), [&]<class T>(std::type_identity<T>) {
    kit::run(src.device(),
             csr::Sum<T>{steps, kit::view_of<const T, 3>(src), kit::view_of<T, 3>(out["output"]), reduce == "mean"});
  });
}

void extreme(const kit::Args<Extreme>& args, const kit::Outputs<Extreme>& out) {
  const Tensor& src = args["src"];
  const auto steps = segments("segment_extreme_csr", args["indptr"], src.size(-2), src.size(-1));
  kit::visit_dtype(src.scalar_type(), [&]<class T>(std::type_identity<T>) {
    kit::run(src.device(), csr::Extreme<T>{steps, kit::view_of<const T, 3>(src), kit::view_of<T, 3>(out["values"]),
                                           kit::view_of<int64_t, 3>(out["rows"]), args.get<"largest">()});
  });
}

// Rows that no segment has are zeros.
template <template <class> class Loop, class Arguments>
void fill_rows(const char* op, const Arguments& args, const Tensor& rows) {
  const Tensor& src = args["src"];
  const auto steps = segments(op, args["indptr"], rows.size(-2), src.size(-1));
  rows.zero_();
  kit::visit_dtype(src.scalar_type(), [&]<class T>(std::type_identity<T>) {
    kit::run(src.device(), Loop<T>{steps, kit::view_of<const T, 3>(src), kit::view_of<T, 3>(rows)});
  });
}

void gather(const kit::Args<Gather>& args, const kit::Outputs<Gather>& out) {
  fill_rows<csr::Gather>("gather_csr", args, out["output"]);
}

void softmax(const kit::Args<Softmax>& args, const kit::Outputs<Softmax>& out) {
  fill_rows<csr::Softmax>("softmax_csr", args, out["output"]);
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
  kit::define<Segment>(m).implement<segment>().differentiate<SegmentFormula>();
  kit::define<Extreme>(m).implement<extreme>().differentiate<ExtremeFormula>();
  kit::define<Gather>(m).implement<gather>().differentiate<GatherFormula>();
  kit::define<Softmax>(m).implement<softmax>().differentiate<SoftmaxFormula>();
}

}  // namespace
}  // namespace second
