// The overhead of a call from C++, cppcuda's operators and torch's in turns: elementwise operators on 64 elements, and
// one row of trilinear beside at::sigmoid of its output.
//
//   cmake --build build/torch-2.15 --target cppcuda_benchmarks
//   build/torch-2.15/tests/cpp/cppcuda_benchmarks [--benchmark_filter=...] [--benchmark_repetitions=...]
//
// The target exists if Google Benchmark is installed (apt-get install libbenchmark-dev).
//
// Every benchmark runs 20 times for 50 ms, in random order; the last lines are ratios of medians. Names: "grad" is a
// plain call with an input that needs no gradient; "no_grad" and "inference" are calls under NoGradGuard and
// InferenceMode.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>
#include <cppcuda/cppcuda.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cppcuda/kit/elementwise/loop.h"
#include "elementwise/family.h"

namespace {

using at::Tensor;
namespace kit = cppcuda::kit;
namespace elementwise = cppcuda::elementwise;

constexpr int64_t elements = 64;

using Compared = std::vector<std::pair<std::string, std::string>>;

// Prints the usual table, then the ratio of the medians of each pair of benchmarks.
class Reporter : public benchmark::ConsoleReporter {
 public:
  explicit Reporter(Compared pairs) : pairs_(std::move(pairs)) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      if (run.aggregate_name == "median") medians_[run.run_name.function_name] = run.GetAdjustedCPUTime();
    }
  }

  void Finalize() override {
    ConsoleReporter::Finalize();
    for (const auto& [ours, peer] : pairs_) {
      if (!medians_.contains(ours) || !medians_.contains(peer)) continue;
      GetOutputStream() << ours << " / " << peer << ": " << medians_[ours] / medians_[peer] << "\n";
    }
    GetOutputStream().flush();
  }

 private:
  Compared pairs_;
  std::map<std::string, double> medians_;
};

struct GradMode {};  // the default

template <class Mode, class F>
void add(const std::string& name, F f) {
  benchmark::RegisterBenchmark(name.c_str(), [f](benchmark::State& state) {
    [[maybe_unused]] const Mode mode;
    for (auto _ : state) f();
  });
}

template <class F>
void add_in_all_modes(const std::string& name, F f) {
  add<GradMode>(name + "/grad", f);
  add<at::NoGradGuard>(name + "/no_grad", f);
  add<c10::InferenceMode>(name + "/inference", f);
}

// Chooses and calls the loop as elementwise/loop.h does.
template <class Math>
void run_kernel(const float* x, float* out) {
  char* data[] = {reinterpret_cast<char*>(out), const_cast<char*>(reinterpret_cast<const char*>(x))};
  const int64_t steps[] = {sizeof(float), sizeof(float)};
  kit::detail::run_with(kit::detail::LoopParams<Math, float>{data, steps, elements, false, 0, Math()},
                        kit::detail::cpu_context());
  benchmark::ClobberMemory();
}

Tensor eager_quick_gelu(const Tensor& x) { return x * at::sigmoid(1.702 * x); }

template <class F>
void forward_backward(F f, const Tensor& x, const Tensor& grad) {
  f(x).backward(grad);
  x.mutable_grad().reset();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> options{argv[0], "--benchmark_enable_random_interleaving=true", "--benchmark_repetitions=20",
                                   "--benchmark_min_time=0.05", "--benchmark_report_aggregates_only=true"};
  options.insert(options.end(), argv + 1, argv + argc);  // later options override earlier ones
  std::vector<char*> pointers;
  for (std::string& option : options) pointers.push_back(option.data());
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) return 1;

  const Tensor x = at::randn(elements), grad = at::ones(elements);
  const Tensor leaf = at::randn(elements).requires_grad_();
  Tensor out = at::empty(elements);
  add_in_all_modes("at::sigmoid", [&] { at::sigmoid(x); });
  add_in_all_modes("cppcuda::sigmoid", [&] { cppcuda::sigmoid(x); });
  add_in_all_modes("at::sigmoid_out", [&] { at::sigmoid_out(out, x); });
  add_in_all_modes("cppcuda::sigmoid_out", [&] { cppcuda::sigmoid_out(out, x); });
  add_in_all_modes("eager quick_gelu", [&] { eager_quick_gelu(x); });
  add_in_all_modes("cppcuda::quick_gelu", [&] { cppcuda::quick_gelu(x); });

  const Tensor feats = at::randn({1, 8, 4}), points = at::rand({1, 3}), row = at::randn({1, 4});
  add_in_all_modes("at::sigmoid of a row", [&] { at::sigmoid(row); });
  add_in_all_modes("cppcuda::trilinear of a row", [&] { cppcuda::trilinear(feats, points); });

  using Math = kit::detail::ElementwiseForward<elementwise::Sigmoid>;
  using Kernels = kit::detail::ForwardKernels<elementwise::Sigmoid>;
  add<GradMode>("sigmoid, loop only", [&] { run_kernel<Math>(x.const_data_ptr<float>(), out.data_ptr<float>()); });
  add<at::NoGradGuard>("sigmoid, at::empty and loop", [&] {
    const Tensor result = at::empty(elements);
    run_kernel<Math>(x.const_data_ptr<float>(), result.data_ptr<float>());
  });
  add<c10::InferenceMode>("sigmoid, CPU kernel without dispatcher", [&] {
    const at::AutoDispatchBelowADInplaceOrView below;
    kit::detail::AllocatingKernel<Kernels::TheOp, &Kernels::run, &Kernels::shape>::run(x);
  });

  add<GradMode>("at::sigmoid/requires_grad", [&] { at::sigmoid(leaf); });
  add<GradMode>("cppcuda::sigmoid/requires_grad", [&] { cppcuda::sigmoid(leaf); });
  add<GradMode>("eager quick_gelu/requires_grad", [&] { eager_quick_gelu(leaf); });
  add<GradMode>("cppcuda::quick_gelu/requires_grad", [&] { cppcuda::quick_gelu(leaf); });
  add<GradMode>("at::sigmoid/forward and backward", [&] { forward_backward(at::sigmoid, leaf, grad); });
  add<GradMode>("cppcuda::sigmoid/forward and backward", [&] { forward_backward(cppcuda::sigmoid, leaf, grad); });
  add<GradMode>("eager quick_gelu/forward and backward", [&] { forward_backward(eager_quick_gelu, leaf, grad); });
  add<GradMode>("cppcuda::quick_gelu/forward and backward", [&] { forward_backward(cppcuda::quick_gelu, leaf, grad); });

  Compared pairs;
  for (const std::string mode : {"grad", "no_grad", "inference", "requires_grad", "forward and backward"}) {
    pairs.emplace_back("cppcuda::sigmoid/" + mode, "at::sigmoid/" + mode);
    pairs.emplace_back("cppcuda::sigmoid_out/" + mode, "at::sigmoid_out/" + mode);
    pairs.emplace_back("cppcuda::quick_gelu/" + mode, "eager quick_gelu/" + mode);
    pairs.emplace_back("cppcuda::trilinear of a row/" + mode, "at::sigmoid of a row/" + mode);
  }
  Reporter reporter(std::move(pairs));
  benchmark::RunSpecifiedBenchmarks(&reporter);
}
