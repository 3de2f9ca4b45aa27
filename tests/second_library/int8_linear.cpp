// second::int8_linear: a linear layer whose weights are int8, with a scale for each row of them, as in weight-only
// quantisation. Points that `mask` excludes, such as padding, give zeros.

#include <ATen/Parallel.h>
#include <torch/library.h>

#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/math/opmath.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using Int8Linear = kit::Op<
    "second::int8_linear(Tensor x[B?, N, K], Tensor weight[B?, M, K] int8, Tensor scale[B?, M], "
    "Tensor? mask[B?, N] bool=None) -> Tensor[B?, N, M]",
    kit::UnderAutocast<kit::CastPolicy::lower_precision_fp>>;

// The elements of a tensor [B?, ...] with any strides.
template <class T>
struct Elements {
  explicit Elements(const Tensor& t, int64_t own)
      : data(t.defined() ? t.const_data_ptr<T>() : nullptr),
        batch(t.defined() && t.dim() > own ? t.stride(0) : 0),
        row(own > 1 && t.defined() ? t.stride(-2) : 0),
        inner(t.defined() ? t.stride(-1) : 0) {}
  T at(int64_t b, int64_t i, int64_t j) const { return data[b * batch + i * row + j * inner]; }

  const T* data;
  int64_t batch, row, inner;
};

void int8_linear_cpu(const kit::Args<Int8Linear>& args, const kit::Outputs<Int8Linear>& out) {
  const Tensor& x = args["x"];
  const int64_t n = x.size(-2), k = x.size(-1), m = args["scale"].size(-1), rows = x.dim() == 3 ? x.size(0) * n : n;
  kit::visit_dtype(x.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const Elements<T> from(x, 2), scales(args["scale"], 1);
    const Elements<int8_t> weights(args["weight"], 2);
    const Elements<bool> kept(args["mask"], 1);
    T* const to = out["output"].mutable_data_ptr<T>();
    at::parallel_for(0, rows, 1 + (1 << 15) / (1 + m * k), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t b = r / n, i = r % n;
        const bool is_kept = kept.data == nullptr || kept.at(b, 0, i);
        for (int64_t o = 0; o < m; ++o) {
          A sum = 0;
          for (int64_t j = 0; j < k && is_kept; ++j) {
            sum += static_cast<A>(from.at(b, i, j)) * static_cast<A>(weights.at(b, o, j));
          }
          to[r * m + o] = static_cast<T>(sum * static_cast<A>(scales.at(b, 0, o)));
        }
      }
    });
  });
}

// The mask has no gradient and the weights have none.
struct ForwardFormula {
  using Op = Int8Linear;
  static constexpr auto reads = kit::reads<Op>({{"x", {"scale"}}, {"scale", {"x"}}});

  static Tensor kept(const Tensor& t, const kit::Saved<ForwardFormula>& saved) {
    const Tensor& mask = saved["mask"];
    return mask.defined() ? t * mask.unsqueeze(-1) : t;
  }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>& need) {
    const auto& [x, scale] = saved.get<"x", "scale">();
    const Tensor grad = kit::in_opmath(kept(grads["output"], saved));
    const Tensor weight = saved["weight"].to(grad.scalar_type());
    kit::Inputs<Op> result;
    if (need["x"]) {
      result["x"] = ((grad * scale.unsqueeze(-2)).unsqueeze(-1) * weight.unsqueeze(-3)).sum(-2).to(scale.scalar_type());
    }
    if (need["scale"]) {
      const Tensor products = (kit::in_opmath(x).unsqueeze(-2) * weight.unsqueeze(-3)).sum(-1);
      result["scale"] = (grad * products).sum(-2).to(x.scalar_type());
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    kit::Outputs<Op> result;
    const auto add = [&](const Tensor& x, const Tensor& scale) {
      if (!x.defined() || !scale.defined()) return;
      kit::accumulate(result["output"], Op::call(x, saved["weight"], scale, kit::to_optional(saved["mask"])));
    };
    add(tangents["x"], saved["scale"]);
    add(saved["x"], tangents["scale"]);
    return result;
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define<Int8Linear>(m).implement_cpu<int8_linear_cpu>().differentiate<ForwardFormula>();
}

}  // namespace
}  // namespace second
