// Operators whose functions return what the operators return.
//
// second::rotary_embed writes to a tensor: rotary position embedding (Su et al., 2021,
// https://arxiv.org/abs/2104.09864) of the halves of each row, in place. second::adam_step writes to lists of tensors:
// a step of Adam (Kingma and Ba, 2014, https://arxiv.org/abs/1412.6980) for all parameters in one call, as
// torch.optim.Adam computes it. second::push writes and returns a tensor, second::unstack returns a list and a tensor
// that may be missing, and second::describe a value of each other type. second::weighted_sum takes and
// returns lists, and has derivatives. second::sphere_points has no tensor among its arguments.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <cmath>
#include <numbers>

#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/math/opmath.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using AdamStep = kit::Op<
    "second::adam_step(Tensor(a!)[] params, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, Tensor[] grads, int step, "
    "*, float lr=1e-3, float beta1=0.9, float beta2=0.999, float eps=1e-8) -> ()">;

void adam_step_cpu(const kit::Args<AdamStep>& args) {
  const at::TensorList params = args.get<"params">(), averages = args.get<"exp_avgs">(),
                       squares = args.get<"exp_avg_sqs">(), grads = args.get<"grads">();
  const std::pair<const char*, at::TensorList> others[] = {
      {"exp_avgs", averages}, {"exp_avg_sqs", squares}, {"grads", grads}};
  for (const auto& [name, list] : others) {
    TORCH_CHECK(list.size() == params.size(), "adam_step: ", name, " must have ", params.size(), " tensors, got ",
                list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string in_list = "[" + std::to_string(i) + "]";
      kit::Checker("adam_step").same_shape(name + in_list, list[i], "params" + in_list, params[i]);
      kit::Checker("adam_step").same_dtype(name + in_list, list[i], "params" + in_list, params[i]);
    }
  }
  const double step = static_cast<double>(args.get<"step">()), beta1 = args.get<"beta1">(), beta2 = args.get<"beta2">();
  const double rate = args.get<"lr">() / (1 - std::pow(beta1, step)), root = std::sqrt(1 - std::pow(beta2, step));
  const double eps = args.get<"eps">();
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor written[] = {params[i], averages[i], squares[i]};
    const Tensor dense[] = {params[i].contiguous(), averages[i].contiguous(), squares[i].contiguous()};
    const Tensor grad = grads[i].contiguous();
    kit::visit_dtype(grad.scalar_type(), [&]<class T>(std::type_identity<T>) {
      using A = kit::opmath<T>;
      T *const p = dense[0].mutable_data_ptr<T>(), *const m = dense[1].mutable_data_ptr<T>(),
               *const v = dense[2].mutable_data_ptr<T>();
      const T* const g = grad.const_data_ptr<T>();
      at::parallel_for(0, grad.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
        for (int64_t e = begin; e < end; ++e) {
          const A slope = g[e],
                  average = static_cast<A>(beta1) * static_cast<A>(m[e]) + static_cast<A>(1 - beta1) * slope;
          const A square = static_cast<A>(beta2) * static_cast<A>(v[e]) + static_cast<A>(1 - beta2) * slope * slope;
          const A size = std::sqrt(square) / static_cast<A>(root) + static_cast<A>(eps);
          m[e] = static_cast<T>(average);
          v[e] = static_cast<T>(square);
          p[e] = static_cast<T>(static_cast<A>(p[e]) - static_cast<A>(rate) * average / size);
        }
      });
    });
    for (size_t t = 0; t < 3; ++t) {
      if (!dense[t].is_same(written[t])) written[t].copy_(dense[t]);
    }
  }
}

using Unstack = kit::Op<"second::unstack(Tensor x[N, F], *, bool with_least=False) -> (Tensor[] rows, Tensor? least)">;

Unstack::Result unstack(const kit::Args<Unstack>& args) {
  std::vector<Tensor> rows = args["x"].unbind(0);
  for (Tensor& row : rows) row = row.clone();
  return {rows, args.get<"with_least">() ? kit::OptionalTensor(args["x"].amin(0)) : std::nullopt};
}

// The products weights[i] * xs[i] and their sum, in one pass over the tensors.
using MeanOf =
    kit::Op<"second::mean_of(Tensor[] xs[N, F], Tensor[]? weights[N]=None) -> Tensor[N, F]", kit::Sharded<"N", "F">>;

// The mean of several tensors, weighted for each row.
Tensor mean_of(const kit::Args<MeanOf>& args) {
  const at::TensorList xs = args.get<"xs">();
  TORCH_CHECK(!xs.empty(), "mean_of: xs must have at least one tensor");
  const auto& weights = args.get<"weights">();
  const Tensor all = kit::in_opmath(at::stack(xs));
  if (!weights.has_value()) return all.mean(0).to(xs[0].scalar_type());
  TORCH_CHECK(weights->size() == xs.size(), "mean_of: weights must have as many tensors as xs, ", xs.size(), ", got ",
              weights->size());
  const Tensor scales = kit::in_opmath(at::stack(*weights)).unsqueeze(-1);
  return ((all * scales).sum(0) / scales.sum(0)).to(xs[0].scalar_type());
}

using WeightedSum = kit::Op<
    "second::weighted_sum(Tensor[] xs[N, F], float[] weights, Tensor? shift[F]=None) -> (Tensor sum, Tensor[] parts)">;

at::TensorList checked_list(const kit::Args<WeightedSum>& args) {
  const at::TensorList xs = args.get<"xs">();
  const size_t weights = args.get<"weights">().size();
  TORCH_CHECK(xs.size() == weights && weights > 0, "weighted_sum: xs must have as many tensors as weights, ", weights,
              ", and at least one, got ", xs.size());
  const kit::Checker check("weighted_sum");
  for (size_t i = 1; i < xs.size(); ++i) check.same_dtype("xs[" + std::to_string(i) + "]", xs[i], "xs[0]", xs[0]);
  if (args["shift"].defined()) check.same_dtype("shift", args["shift"], "xs[0]", xs[0]);
  return xs;
}

WeightedSum::Result weighted_sum_on_tensors(const kit::Args<WeightedSum>& args) {
  std::vector<Tensor> parts;
  for (const Tensor& x : checked_list(args)) parts.push_back(x * args.get<"weights">()[parts.size()]);
  const Tensor sum = at::stack(parts).sum(0);
  return {args["shift"].defined() ? sum + args["shift"] : sum, parts};
}

WeightedSum::Result weighted_sum_cpu(const kit::Args<WeightedSum>& args) {
  const at::TensorList xs = checked_list(args);
  const Tensor sum = at::empty(xs[0].sizes(), xs[0].options()), &shift = args["shift"];
  std::vector<Tensor> parts;
  for (size_t i = 0; i < xs.size(); ++i) parts.push_back(at::empty_like(sum));
  kit::visit_dtype(sum.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    auto to = sum.accessor<T, 2>();
    for (int64_t n = 0; n < sum.size(0); ++n) {
      for (int64_t f = 0; f < sum.size(1); ++f) {
        A total = shift.defined() ? static_cast<A>(shift.accessor<const T, 1>()[f]) : A(0);
        for (size_t i = 0; i < xs.size(); ++i) {
          const A part = static_cast<A>(args.get<"weights">()[i]) * static_cast<A>(xs[i].accessor<const T, 2>()[n][f]);
          parts[i].accessor<T, 2>()[n][f] = static_cast<T>(part);
          total += part;
        }
        to[n][f] = static_cast<T>(total);
      }
    }
  });
  return {sum, parts};
}

using Rotary =
    kit::Op<"second::rotary_embed(Tensor(a!) x[B?, N, H, D], Tensor cos[B?, N, D/2], Tensor sin[B?, N, D/2]) -> ()">;

void rotary_cpu(const kit::Args<Rotary>& args) {
  const Tensor &x = args["x"], cos = args["cos"].unsqueeze(-2), sin = args["sin"].unsqueeze(-2);
  const int64_t half = x.size(-1) / 2;
  const Tensor first = kit::in_opmath(x.slice(-1, 0, half)), second = kit::in_opmath(x.slice(-1, half));
  const Tensor turned = first * cos - second * sin;
  x.slice(-1, half).copy_(second * cos + first * sin);
  x.slice(-1, 0, half).copy_(turned);
}

// Writes and returns: values go to the end of a queue, and as many rows leave it.
using Push = kit::Op<"second::push(Tensor(a!) queue[B?, V, F], Tensor values[B?, N, F]) -> Tensor[B?, N, F]">;

Tensor push_cpu(const kit::Args<Push>& args) {
  const Tensor &queue = args["queue"], &values = args["values"];
  const int64_t rows = queue.size(-2), count = values.size(-2);
  TORCH_CHECK(count <= rows, "push: values must have at most ", rows, " rows, those of queue, got ", count);
  const Tensor left = queue.narrow(-2, 0, count).clone();
  queue.copy_(at::cat({queue.narrow(-2, count, rows - count), values}, -2));
  return left;
}

// The rows whose sum is above `least`, and their numbers.
using RowsAbove =
    kit::Op<"second::rows_above(Tensor x[N, F], float least=0.0) -> (Tensor rows[{M}, F], Tensor numbers[M] int64)">;

RowsAbove::Result rows_above(const kit::Args<RowsAbove>& args) {
  const Tensor numbers = (args["x"].sum(1) > args.get<"least">()).nonzero().squeeze(1);
  return {args["x"].index_select(0, numbers), numbers};
}

using Describe = kit::Op<
    "second::describe(Tensor x[N, F], Tensor?[] weights, Tensor[]? shifts[_, F]=None, *, str[] names, bool[] flags) -> "
    "(int count, float sum, bool is_finite, SymInt features, str text, int[] sizes)">;

Describe::Result describe(const kit::Args<Describe>& args) {
  const Tensor& x = args["x"];
  const c10::List<kit::OptionalTensor>& weights = args.get<"weights">();
  Tensor total = x.sum();
  for (const kit::OptionalTensor weight : weights) {
    if (weight.has_value()) total = total + weight->sum();
  }
  for (const Tensor& shift : args.get<"shifts">().value_or(at::TensorList())) total = total + shift.sum();
  std::string text = c10::toString(x.scalar_type());
  for (const std::string& name : args.get<"names">()) text += " " + name;
  for (const bool flag : args.get<"flags">()) text += flag ? " yes" : " no";
  return {static_cast<int64_t>(weights.size()),
          total.item<double>(),
          at::isfinite(total).item<bool>(),
          x.sym_size(1),
          text,
          x.sizes().vec()};
}

using SpherePoints = kit::Op<"second::sphere_points(int n, *, ScalarType? dtype=None, Device? device=None) -> Tensor">;

// Points that cover the sphere evenly, [n, 3] (Gonzalez, 2009, https://arxiv.org/abs/0912.4540).
Tensor sphere_points(const kit::Args<SpherePoints>& args) {
  const double golden = std::numbers::pi * (3 - std::sqrt(5.0)), n = static_cast<double>(args.get<"n">());
  const Tensor i = at::arange(args.get<"n">(), at::dtype(at::kDouble)), z = (i + 0.5) * (2 / n) - 1;
  const Tensor radius = (1 - z * z).sqrt(),
               points = at::stack({radius * (golden * i).cos(), radius * (golden * i).sin(), z}, 1);
  return points.to(at::dtype(args.get<"dtype">().value_or(at::kFloat)).device(args.get<"device">().value_or(at::kCPU)));
}

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define<AdamStep>(m).implement_cpu<adam_step_cpu>();
  kit::define<Unstack, unstack>(m).implement_cpu<unstack>();
  kit::define<MeanOf, mean_of>(m).implement_cpu<mean_of>().differentiate<mean_of>();
  kit::define<WeightedSum, weighted_sum_on_tensors>(m)
      .implement_cpu<weighted_sum_cpu>()
      .differentiate<weighted_sum_on_tensors>();
  kit::define<Rotary>(m).implement_cpu<rotary_cpu>();
  kit::define<Push>(m).implement_cpu<push_cpu>();
  kit::define<RowsAbove>(m).implement_cpu<rows_above>().differentiate<rows_above>();
  kit::define<Describe>(m).implement_cpu<describe>();
  kit::define<SpherePoints>(m).implement<sphere_points>();
}

}  // namespace
}  // namespace second
