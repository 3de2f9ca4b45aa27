// Counts what kernels need of an SM: the wavefronts in which it serves lines of L1 and banks of shared memory, for
// which it has time for seven per 128 bytes of an H200's bandwidth; where points choose rows of a table, the bytes of
// the sectors that are touched; and the instructions. This prints the tables of docs/kernels.md.

#include <ATen/ATen.h>
#include <cppcuda/cppcuda.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "cppcuda/kit/elementwise/family.h"
#include "elementwise/family.h"
#include "emulator.h"
#include "ops/grid_sample3d/op.h"
#include "ops/hash_grid/layout.h"
#include "ops/hash_grid/op.h"
#include "ops/lltm_cell/op.h"
#include "ops/trilinear/op.h"
#include "ops/trilinear_indexed/op.h"
#include "ops/upsample_bilinear2d/op.h"

namespace {

using at::Tensor;
namespace ops = cppcuda::ops;

// In float32 and in bfloat16: the wavefronts per 128 bytes, or the bytes of sectors per byte, and the instructions per
// value that is stored.
using Limits = std::array<double, 4>;
const std::map<std::string, Limits> limits{
    {"sigmoid", {1.02, 21.2, 1.02, 11}},
    {"sigmoid backward", {1.02, 9.6, 1.02, 13.7}},
    {"quick_gelu", {1.02, 22.2, 1.02, 13.1}},
    {"quick_gelu backward", {1.02, 33.8, 1.02, 24.6}},
    {"trilinear, F = 1", {2.86, 115, 3.19, 126}},
    {"trilinear backward, F = 1", {2.94, 22.5, 3.77, 22.3}},
    {"trilinear double backward, F = 1", {6.34, 36.3, 6.66, 41.3}},
    {"trilinear, F = 2", {2.84, 83.9, 2.98, 100.5}},
    {"trilinear backward, F = 2", {2.93, 19.9, 3.38, 19.6}},
    {"trilinear double backward, F = 2", {6.98, 44.4, 7.34, 49.9}},
    {"trilinear, F = 3", {3.83, 82.7, 3.63, 77.2}},
    {"trilinear backward, F = 3", {3.87, 16.7, 3.4, 16.5}},
    {"trilinear double backward, F = 3", {7.41, 64.7, 7.92, 72.6}},
    {"trilinear, F = 4", {2.82, 92, 2.9, 85.7}},
    {"trilinear backward, F = 4", {2.92, 15.3, 3.16, 17.6}},
    {"trilinear double backward, F = 4", {7.14, 15.2, 7.76, 55.8}},
    {"trilinear, F = 7", {3.87, 156, 4.8, 141}},
    {"trilinear backward, F = 7", {3.59, 33.2, 4.42, 31.3}},
    {"trilinear double backward, F = 7", {5.42, 61.2, 8.4, 68.2}},
    {"trilinear, F = 8", {3.26, 140, 2.86, 76.4}},
    {"trilinear backward, F = 8", {3.86, 10.3, 3.04, 16.2}},
    {"trilinear double backward, F = 8", {3.81, 16.4, 7.35, 15.3}},
    {"trilinear, F = 33", {4.18, 168, 5.4, 123}},
    {"trilinear backward, F = 33", {4., 34.2, 5.15, 24.2}},
    {"trilinear double backward, F = 33", {3.21, 79, 5.46, 90.5}},
    {"trilinear, F = 256", {1.11, 27.5, 1.11, 39}},
    {"trilinear backward, F = 256", {1.09, 10.1, 1.12, 11}},
    {"trilinear double backward, F = 256", {1.06, 14.2, 1.12, 17.3}},
    {"trilinear_indexed, F = 2", {1.2, 124, 1.16, 145}},
    {"trilinear_indexed backward, points, F = 2", {1.27, 109, 1.25, 61.7}},
    {"trilinear_indexed backward, table, F = 2", {1.2, 15.8, 1.17, 18}},
    {"trilinear_indexed double backward, F = 2", {1.35, 127, 1.3, 86.3}},
    {"trilinear_indexed, F = 8", {1.2, 66.5, 1.17, 55.5}},
    {"trilinear_indexed backward, points, F = 8", {1.26, 273, 1.26, 97.3}},
    {"trilinear_indexed backward, table, F = 8", {1.2, 8.4, 1.17, 11.3}},
    {"trilinear_indexed double backward, F = 8", {1.3, 135, 1.28, 68.5}},
    {"trilinear_indexed, F = 32", {1.09, 66.5, 1.11, 55.5}},
    {"trilinear_indexed backward, points, F = 32", {1.12, 1269, 1.16, 438}},
    {"trilinear_indexed backward, table, F = 32", {1.09, 8.4, 1.08, 11.3}},
    {"trilinear_indexed double backward, F = 32", {1.13, 185, 1.17, 109}},
    {"grid_sample3d, F = 2", {1.1, 182, 1.03, 203}},
    {"grid_sample3d backward, points, F = 2", {1.18, 149, 1.15, 81.9}},
    {"grid_sample3d backward, input, F = 2", {1.1, 23.3, 1.05, 26.2}},
    {"grid_sample3d double backward, F = 2", {1.28, 143.5, 1.2, 96.8}},
    {"grid_sample3d, F = 8", {1.11, 95.5, 1.05, 69.6}},
    {"grid_sample3d backward, points, F = 8", {1.18, 350, 1.17, 117}},
    {"grid_sample3d backward, input, F = 8", {1.11, 12.3, 1.06, 15.1}},
    {"grid_sample3d double backward, F = 8", {1.23, 149, 1.2, 75.3}},
    {"grid_sample3d, F = 32", {1.05, 95.5, 1.05, 69.6}},
    {"grid_sample3d backward, points, F = 32", {1.09, 1576, 1.11, 520}},
    {"grid_sample3d backward, input, F = 32", {1.05, 12.3, 1.05, 15}},
    {"grid_sample3d double backward, F = 32", {1.11, 202.5, 1.13, 119.5}},
    {"hash_grid", {1.12, 102, 1.05, 114}},
    {"hash_grid backward, points", {1.15, 711, 1.22, 424}},
    {"hash_grid backward, params", {1.15, 13.9, 1.15, 14.3}},
    {"hash_grid double backward", {1.46, 221, 1.44, 206}},
    {"upsample_bilinear2d, doubled", {2.32, 12.7, 2.32, 16}},
    {"upsample_bilinear2d backward, doubled", {3.61, 55.4, 3.76, 72.9}},
    {"upsample_bilinear2d, wide times 4", {3.59, 16.6, 3.69, 23.1}},
    {"upsample_bilinear2d backward, wide times 4", {3.66, 69.2, 3.86, 69.9}},
    {"upsample_bilinear2d, 31 wide times 2", {3.46, 23.6, 4.16, 28.5}},
    {"upsample_bilinear2d backward, 31 wide times 2", {4.14, 57.1, 4.83, 52}},
    {"lltm_cell", {1.02, 57, 1.02, 33}},
    {"lltm_cell backward", {1.02, 40.9, 1.02, 24.8}},
    {"lltm", {4.01, 99.3, 6.98, 103}},
    {"lltm backward", {1.4, 194, 1.5, 198}},
};

double bytes_of(const std::vector<Tensor>& tensors) {
  double sum = 0;
  for (const Tensor& t : tensors) sum += static_cast<double>(t.defined() ? t.numel() * t.element_size() : 0);
  return sum;
}

template <class... T>
std::vector<Tensor> list(std::tuple<T...> tensors) {
  return std::apply([](auto&... t) { return std::vector<Tensor>{t...}; }, tensors);
}
std::vector<Tensor> list(const Tensor& t) { return {t}; }

class Traffic : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  // Older GPUs add the values of a vector one by one. In the PTX for newer ones some accesses to shared memory are
  // split, which ptxas joins again.
  void SetUp() override {
    const char* architecture = std::getenv("CPPCUDA_EMULATOR_ARCH");
    if (architecture && std::atoi(architecture) != 90) GTEST_SKIP() << "the limits are those of compute_90";
  }

  Tensor random(at::IntArrayRef sizes) { return at::rand(sizes).to(GetParam()).to(at::kCUDA); }

  // Checks the wavefronts per 128 bytes of `read` and of what f returns.
  template <class F>
  void expect(const std::string& what, const std::vector<Tensor>& read, F f) {
    std::vector<Tensor> written;
    const auto counts = cppcuda::emulator::counts_of([&] { written = list(f()); });
    check(what, "wavefronts", static_cast<double>(counts.lines), static_cast<double>(counts.wavefronts),
          (bytes_of(read) + bytes_of(written)) / 128, counts, static_cast<double>(c10::elementSize(GetParam())));
  }

  // Checks the bytes of the sectors that f touches, in multiples of those that it must touch. A sector counts once for
  // each load or store of a warp.
  template <class F>
  void expect_bytes(const std::string& what, double needed, F f, bool adds = false) {
    const auto counts = cppcuda::emulator::counts_of([&] { f(); });
    check(what, "bytes", 32.0 * static_cast<double>(counts.load_sectors + counts.store_sectors), 0, needed, counts,
          adds ? 4 : static_cast<double>(c10::elementSize(GetParam())));  // sums are in float32
  }

  // The bytes of so many rows, each in the fewest sectors.
  static double row_bytes(int64_t count, int64_t features, int64_t element_bytes) {
    return static_cast<double>(count * ((features * element_bytes + 31) / 32) * 32);
  }

  int64_t element_bytes() const { return static_cast<int64_t>(c10::elementSize(GetParam())); }

 private:
  static void check(const std::string& what, const char* unit, double global, double shared, double needed,
                    const cppcuda::emulator::Counts& counts, double value_bytes) {
    const double memory = global / needed, all = memory + shared / needed;
    const double instructions =
        32 * static_cast<double>(counts.issued) * value_bytes / static_cast<double>(counts.store_bytes);
    std::printf("%-45s %-8s %5.2f of global memory, %5.2f of shared (%s), %6.1f instructions\n", what.c_str(),
                c10::toString(GetParam()), memory, shared / needed, unit, instructions);
    const auto limit = limits.find(what);
    ASSERT_NE(limit, limits.end()) << what;
    const auto* of_dtype = &limit->second[GetParam() == at::kFloat ? 0 : 2];
    EXPECT_GE(memory, 0.99) << what;
    EXPECT_LE(all, of_dtype[0]) << what;
    EXPECT_LE(instructions, of_dtype[1]) << what;
  }
};

TEST_P(Traffic, Elementwise) {
  using Gelu = cppcuda::kit::ElementwiseOps<cppcuda::elementwise::QuickGelu>;
  using Sigmoid = cppcuda::kit::ElementwiseOps<cppcuda::elementwise::Sigmoid>;
  const Tensor x = random({1 << 15}), grad = random({1 << 15});
  expect("sigmoid", {x}, [&] { return cppcuda::sigmoid(x); });
  expect("sigmoid backward", {grad, x}, [&] { return Sigmoid::Backward::call(grad, x); });
  expect("quick_gelu", {x}, [&] { return cppcuda::quick_gelu(x); });
  expect("quick_gelu backward", {grad, x}, [&] { return Gelu::Backward::call(grad, x); });
}

TEST_P(Traffic, Trilinear) {
  namespace op = ops::trilinear;
  for (const int64_t features : {1, 2, 3, 4, 7, 8, 33, 256}) {
    const int64_t rows = std::max<int64_t>(512, 16384 / features);
    const Tensor feats = random({rows, 8, features}), points = random({rows, 3}), grad = random({rows, features});
    const std::string what = ", F = " + std::to_string(features);
    expect("trilinear" + what, {feats, points}, [&] { return op::Forward::call(feats, points); });
    expect("trilinear backward" + what, {grad, feats, points},
           [&] { return op::Backward::call(grad, feats, points, c10::List<bool>({true, true})); });
    expect("trilinear double backward" + what, {grad, feats, points, feats, points}, [&] {
      return op::DoubleBackward::call(grad, feats, points, feats, points, c10::List<bool>({true, true, true}));
    });
  }
}

TEST_P(Traffic, TrilinearIndexed) {
  namespace op = ops::trilinear_indexed;
  const int64_t rows = 4096, count = 512;
  const std::vector<c10::SymInt> size{rows};
  for (const int64_t features : {2, 8, 32}) {
    const Tensor table = random({rows, features}), points = random({count, 3}), grad = random({count, features});
    const Tensor corners = at::randint(0, rows, {count, 8}, at::kInt).to(at::kCUDA);
    const std::string name = "trilinear_indexed", what = ", F = " + std::to_string(features);
    const double read = bytes_of({points, corners}), gathered = row_bytes(count * 8, features, element_bytes());
    const double added = row_bytes(count * 8, features, 4);
    const std::optional<Tensor> none;
    expect_bytes(name + what, read + gathered + bytes_of({grad}), [&] { op::Forward::call(table, corners, points); });
    expect_bytes(name + " backward, points" + what, read + gathered + bytes_of({grad, points}),
                 [&] { op::Backward::call(grad, table, corners, points, size, c10::List<bool>({false, true})); });
    const auto of_table = [&] {
      op::Backward::call(grad, none, corners, points, size, c10::List<bool>({true, false}));
    };
    expect_bytes(name + " backward, table" + what, read + added + bytes_of({grad}), of_table, /*adds=*/true);
    expect_bytes(name + " double backward" + what, read + gathered + bytes_of({grad, points, points, grad}), [&] {
      op::DoubleBackward::call(grad, table, corners, points, none, points, size, c10::List<bool>({true, false, true}),
                               at::IntArrayRef());
    });
  }
}

TEST_P(Traffic, GridSample3d) {
  namespace op = ops::grid_sample3d;
  const int64_t side = 16, count = 512;
  const std::vector<c10::SymInt> size{side, side, side};
  for (const int64_t features : {2, 8, 32}) {
    const Tensor input = random({side, side, side, features}), grad = random({count, features});
    const Tensor points = ((at::rand({count, 3}) * 2 - 1) * (1 - 1.0 / side)).to(GetParam()).to(at::kCUDA);
    const std::string name = "grid_sample3d", what = ", F = " + std::to_string(features);
    const double read = bytes_of({points}), gathered = row_bytes(count * 8, features, element_bytes());
    const double added = row_bytes(count * 8, features, 4);
    const std::optional<Tensor> none;
    expect_bytes(name + what, read + gathered + bytes_of({grad}),
                 [&] { op::Forward::call(input, points, "zeros", false); });
    const auto backward = [&](const std::optional<Tensor>& table) {
      const c10::List<bool> mask({!table, table.has_value()});
      op::Backward::call(grad, table, points, size, "zeros", false, mask);
    };
    expect_bytes(name + " backward, points" + what, read + gathered + bytes_of({grad, points}),
                 [&] { backward(input); });
    expect_bytes(
        name + " backward, input" + what, read + added + bytes_of({grad}), [&] { backward(none); }, /*adds=*/true);
    expect_bytes(name + " double backward" + what, read + gathered + bytes_of({grad, points, points, grad}), [&] {
      const c10::List<bool> mask({true, false, true});
      op::DoubleBackward::call(grad, input, points, none, points, size, "zeros", false, mask, at::IntArrayRef());
    });
  }
}

TEST_P(Traffic, HashGrid) {
  namespace op = ops::hash_grid;
  const cppcuda::HashGridConfig config{
      .n_levels = 8, .n_features_per_level = 2, .log2_hashmap_size = 15, .base_resolution = 32, .per_level_scale = 1.5};
  const int64_t count = 1024, rows = count * 8 * config.n_levels;
  const Tensor params = random({op::count_parameters(config, 3)}), points = random({count, 3});
  const Tensor grad = random({count, config.n_levels * 2});
  const std::vector<c10::SymInt> size{params.size(0)};
  const std::optional<Tensor> none;
  const double other = bytes_of({points, grad}), gathered = row_bytes(rows, 2, element_bytes());
  const auto backward = [&](const std::optional<Tensor>& table) {
    const c10::List<bool> mask({!table, table.has_value()});
    op::Backward::call(grad, table, points, size, config, mask);
  };
  expect_bytes("hash_grid", gathered + other, [&] { op::Forward::call(params, points, config); });
  expect_bytes("hash_grid backward, points", gathered + other, [&] { backward(params); });
  expect_bytes("hash_grid backward, params", row_bytes(rows, 2, 4) + other, [&] { backward(none); }, /*adds=*/true);
  expect_bytes("hash_grid double backward", gathered + other + bytes_of({grad, points, points}), [&] {
    const c10::List<bool> mask({true, false, true});
    op::DoubleBackward::call(grad, params, points, none, points, size, config, mask, at::IntArrayRef());
  });
}

// The images are large enough to be split among threads as large images are, except that strips have fewer rows.
TEST_P(Traffic, Upsample) {
  namespace op = ops::upsample_bilinear2d;
  using Size = std::array<int64_t, 2>;
  struct Case {
    const char* what;
    Size planes, in, out;
  };
  for (const auto& [what, planes, in, out] :
       {Case{", doubled", {1, 4}, {2048, 128}, {4096, 256}}, Case{", wide times 4", {1, 16}, {1024, 64}, {1024, 256}},
        Case{", 31 wide times 2", {4, 64}, {128, 31}, {128, 62}}}) {
    const Tensor image = random({planes[0], planes[1], in[0], in[1]});
    const Tensor grad = random({planes[0], planes[1], out[0], out[1]});
    const std::vector<c10::SymInt> in_size{in[0], in[1]}, out_size{out[0], out[1]};
    const std::optional<double> none;
    expect(std::string("upsample_bilinear2d") + what, {image},
           [&] { return op::Forward::call(image, out_size, "half_pixel", none, none); });
    expect(std::string("upsample_bilinear2d backward") + what, {grad},
           [&] { return op::Backward::call(grad, in_size, "half_pixel", none, none); });
  }
}

// The part without torch's matrix products.
TEST_P(Traffic, LltmCell) {
  namespace op = ops::lltm_cell;
  const int64_t rows = 64, inputs = 8, size = 512;
  const Tensor input = random({rows, inputs}), weight = random({3 * size, size + inputs}), bias = random({3 * size});
  const Tensor hx = random({rows, size}), cx = random({rows, size});
  const Tensor gates = std::get<2>(op::Cell::call(input, weight, bias, hx, cx));
  expect("lltm_cell", {gates, cx}, [&] { return op::Forward::call(input, weight, bias, hx, cx); });
  const std::optional<Tensor> none;
  expect("lltm_cell backward", {hx, cx, gates, cx}, [&] {
    const auto result = op::Backward::call(hx, cx, none, gates, input, weight, hx, cx,
                                           c10::List<bool>({true, false, false, false, true}));
    return std::tuple(gates, std::get<4>(result));  // as many values as gates has are written but not returned
  });
}

// The gates are read, and written in their place. A thread reads its row of the weights in single values, each of which
// counts for a sector.
TEST_P(Traffic, LltmSteps) {
  namespace op = ops::lltm_cell;
  const int64_t steps = 32, rows = 64, inputs = 8, size = 64;
  const Tensor input = random({steps, rows, inputs}), weight = random({3 * size, size + inputs});
  const Tensor bias = random({3 * size}), h0 = random({rows, size}), c0 = random({rows, size});
  const auto [output, hn, cn, cells, gates] = op::Steps::call(input, weight, bias, h0, c0);
  const double other = bytes_of({h0, c0});
  expect_bytes("lltm", bytes_of({gates, gates, output, cells}) + other,
               [&] { op::Steps::call(input, weight, bias, h0, c0); });
  const std::optional<Tensor> none;
  expect_bytes("lltm backward", bytes_of({output, gates, gates, cells}) + other, [&] {
    op::StepsBackward::call(output, none, none, none, none, output, cells, gates, input, weight, h0, c0,
                            c10::List<bool>({false, false, false, true, true}));
  });
}

INSTANTIATE_TEST_SUITE_P(All, Traffic, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
