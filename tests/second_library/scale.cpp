// second::scale(Tensor input, float factor, ...) -> Tensor: a complete op in one file, with an argument of almost every
// type.

#include <torch/library.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "cppcuda/kit/call.h"
#include "cppcuda/kit/define.h"
#include "map.h"

namespace second {
namespace {

using Scale = kit::Op<
    "second::scale(Tensor input[B?, N, F], float factor, *, int? power=None, bool? negate=None, str? prefix=None, "
    "SymInt? columns=None, float[] factors=[], int[2] ratio=[1, 1], Scalar by=1, ScalarType? dtype=None, "
    "Device? device=None, int[]? powers=None, SymInt[]? sizes=None, float[]? divisors=None, "
    "Scalar? over=None, Layout? layout=None, MemoryFormat? memory_format=None, "
    "Generator? generator=None) -> Tensor[B?, N, F]">;

// The product of all arguments that are given.
double product(const kit::Args<Scale>& args) {
  const auto& factors = args.get<"factors">();
  const auto& ratio = args.get<"ratio">();
  double result = args.get<"factor">() * args.get<"by">().toDouble();
  result = std::accumulate(factors.begin(), factors.end(), result, std::multiplies());
  result = std::pow(result, args.get<"power">().value_or(1));
  result *= static_cast<double>(ratio[0]) / static_cast<double>(ratio[1]);
  if (args.get<"negate">().value_or(false)) result = -result;
  if (args.get<"prefix">().has_value()) result *= *args.get<"prefix">() == "kilo" ? 1e3 : 1e-3;
  if (args.get<"columns">().has_value()) result *= static_cast<double>(args.get<"columns">()->expect_int());
  if (args.get<"dtype">() == at::kBFloat16) result *= 5;
  if (args.get<"device">() == at::kCPU) result *= 7;
  for (const int64_t power : args.get<"powers">().value_or(at::IntArrayRef())) result = std::pow(result, power);
  for (const c10::SymInt& size : args.get<"sizes">().value_or(c10::SymIntArrayRef())) {
    result *= static_cast<double>(size.expect_int());
  }
  for (const double by : args.get<"divisors">().value_or(at::ArrayRef<double>())) result /= by;
  if (args.get<"over">().has_value()) result /= args.get<"over">()->toDouble();
  if (args.get<"layout">() == at::kStrided) result *= 11;
  if (args.get<"memory_format">() == at::MemoryFormat::ChannelsLast) result *= 13;
  if (args.get<"generator">().has_value()) result *= static_cast<double>(args.get<"generator">()->current_seed());
  return result;
}

void scale_cpu(const kit::Args<Scale>& args, const kit::Outputs<Scale>& out) {
  const double factor = product(args);
  map(out["output"], [=](auto x) { return static_cast<decltype(x)>(x * factor); }, args["input"]);
}

// Linear: the derivative is the op itself.
struct ForwardFormula {
  using Op = Scale;
  static constexpr auto reads = kit::reads_nothing<Op>();

  static Tensor scaled(const Tensor& t, const kit::Saved<ForwardFormula>& saved) {
    kit::Call<Scale> call(saved);
    call.tensors["input"] = t;
    return call.run()["output"];
  }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>&) {
    return scaled(grads["output"], saved);
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    return scaled(tangents["input"], saved);
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) { kit::define<Scale>(m).implement_cpu<scale_cpu>().differentiate<ForwardFormula>(); }

}  // namespace
}  // namespace second
