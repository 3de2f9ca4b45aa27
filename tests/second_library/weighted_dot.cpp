// second::weighted_dot: the sum over k of weight[k] x[..., k] y[..., k]. The dims before the last one broadcast, all
// rows share the weights, and a kernel computes the gradients.

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include "cppcuda/kit/call.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/math/opmath.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using Dot = kit::Op<"second::weighted_dot(Tensor x[..., K], Tensor y[..., K], Tensor weight[K]) -> Tensor[...]">;
using DotBackward = kit::BackwardOf<Dot, kit::GradientReads<"x", "y", "weight">, kit::GradientReads<"y", "x", "weight">,
                                    kit::GradientReads<"weight", "x", "y">>;

// A kernel sees one dim in place of "...". Formulas see the tensors as they are, and torch sums gradients.
void dot_cpu(const kit::Args<Dot>& args, const kit::Outputs<Dot>& out) {
  kit::visit_dtype(args["x"].scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const auto x = args["x"].accessor<const T, 2>(), y = args["y"].accessor<const T, 2>();
    const auto weight = args["weight"].accessor<const T, 1>();
    auto to = out["output"].accessor<T, 1>();
    for (int64_t r = 0; r < to.size(0); ++r) {
      A sum = 0;
      for (int64_t k = 0; k < weight.size(0); ++k) {
        sum += static_cast<A>(weight[k]) * static_cast<A>(x[r][k]) * static_cast<A>(y[r][k]);
      }
      to[r] = static_cast<T>(sum);
    }
  });
}

void dot_backward_cpu(const kit::Args<DotBackward>& args, const kit::Outputs<DotBackward>& out) {
  kit::visit_dtype(args["grad"].scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const auto grad = args["grad"].accessor<const T, 1>();
    const auto rows = grad.size(0);
    const auto value = [](const Tensor& t, int64_t r, int64_t k) {
      return static_cast<A>(t.dim() == 1 ? t.accessor<const T, 1>()[k] : t.accessor<const T, 2>()[r][k]);
    };
    const auto write = [&](const Tensor& to, const Tensor& a, const Tensor& b) {
      if (!to.defined()) return;
      const int64_t features = to.size(-1);
      const bool is_sum = to.dim() == 1;
      for (int64_t k = 0; k < features; ++k) {
        A sum = 0;
        for (int64_t r = 0; r < rows; ++r) {
          const A product = static_cast<A>(grad[r]) * value(a, r, k) * value(b, r, k);
          if (is_sum) sum += product;
          if (!is_sum) to.accessor<T, 2>()[r][k] = static_cast<T>(product);
        }
        if (is_sum) to.accessor<T, 1>()[k] = static_cast<T>(sum);
      }
    };
    write(out["grad(x)"], args["y"], args["weight"]);
    write(out["grad(y)"], args["x"], args["weight"]);
    write(out["grad(weight)"], args["x"], args["y"]);
  });
}

struct DotFormula : kit::GradientsBy<Dot, DotBackward> {
  static kit::Outputs<Dot> jvp(const kit::Inputs<Dot>& tangents, const kit::Saved<DotFormula>& saved) {
    kit::Outputs<Dot> result;
    const Tensor tensors[] = {saved["x"], saved["y"], saved["weight"]};
    for (size_t i = 0; i < 3; ++i) {
      if (!tangents[i].defined()) continue;
      Tensor along[] = {tensors[0], tensors[1], tensors[2]};
      along[i] = tangents[i];
      kit::accumulate(result["output"], Dot::call(along[0], along[1], along[2]));
    }
    return result;
  }
};

// The gradients are g y w, g x w, and the sum of g x y over the rows.
struct DotBackwardFormula {
  using Op = DotBackward;
  using Saved = kit::Saved<DotBackwardFormula>;
  static constexpr auto reads = kit::reads<Op>({{"grad", {"x", "y", "weight"}},
                                                {"x", {"grad", "y", "weight"}},
                                                {"y", {"grad", "x", "weight"}},
                                                {"weight", {"grad", "x", "y"}}});

  // Undefined tensors are zeros.
  static void add(Tensor& sum, const Tensor& a, const Tensor& b, const Tensor& c) {
    if (a.defined() && b.defined() && c.defined()) kit::accumulate(sum, a * b * c);
  }
  static void add_sum(Tensor& sum, const Tensor& a, const Tensor& b, const Tensor& c) {
    if (!a.defined() || !b.defined() || !c.defined()) return;
    const Tensor product = a * b * c;
    kit::accumulate(sum, at::sum_to(product, c10::SymIntArrayRef{product.sym_size(-1)}));
  }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& h, const Saved& saved, const kit::Need<Op>& need) {
    const auto& [x, y, w] = saved.get<"x", "y", "weight">();
    const Tensor g = saved["grad"].defined() ? saved["grad"].unsqueeze(-1) : Tensor();
    const Tensor &hx = h["grad(x)"], &hy = h["grad(y)"], &hw = h["grad(weight)"];
    kit::Inputs<Op> result;
    Tensor products;
    if (need["grad"]) {
      add(products, hx, y, w);
      add(products, x, hy, w);
      add(products, x, y, hw);
      if (products.defined()) result["grad"] = products.sum(-1);
    }
    if (need["x"]) {
      add(result["x"], g, hy, w);
      add(result["x"], g, y, hw);
    }
    if (need["y"]) {
      add(result["y"], g, hx, w);
      add(result["y"], g, x, hw);
    }
    if (need["weight"]) {
      add_sum(result["weight"], g, hx, y);
      add_sum(result["weight"], g, x, hy);
    }
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& t, const Saved& saved) {
    const auto& [x, y, w] = saved.get<"x", "y", "weight">();
    const Tensor g = saved["grad"].unsqueeze(-1), dg = t["grad"].defined() ? t["grad"].unsqueeze(-1) : Tensor();
    const Tensor &dx = t["x"], &dy = t["y"], &dw = t["weight"];
    kit::Outputs<Op> result;
    if (saved.is_requested("grad(x)")) {
      add(result["grad(x)"], dg, y, w);
      add(result["grad(x)"], g, dy, w);
      add(result["grad(x)"], g, y, dw);
    }
    if (saved.is_requested("grad(y)")) {
      add(result["grad(y)"], dg, x, w);
      add(result["grad(y)"], g, dx, w);
      add(result["grad(y)"], g, x, dw);
    }
    if (saved.is_requested("grad(weight)")) {
      add_sum(result["grad(weight)"], dg, x, y);
      add_sum(result["grad(weight)"], g, dx, y);
      add_sum(result["grad(weight)"], g, x, dy);
    }
    return result;
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define<Dot>(m).implement_cpu<dot_cpu>().differentiate<DotFormula>();
  kit::define<DotBackward>(m).implement_cpu<dot_backward_cpu>().differentiate<DotBackwardFormula>();
}

}  // namespace
}  // namespace second
