// Counts the wavefronts in which the kernels access lines of L1 and banks of shared memory. An SM has time for seven
// wavefronts per 128 bytes of an H200's bandwidth. Of kernels that read or add to rows of a table, which are anywhere
// in memory, it counts the bytes of the sectors that they touch. This prints the tables of docs/kernels.md.

#include <ATen/ATen.h>
#include <cppcuda/cppcuda.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
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

double bytes_of(const std::vector<Tensor>& tensors) {
  double sum = 0;
  for (const Tensor& t : tensors) sum += static_cast<double>(t.numel() * t.element_size());
  return sum;
}

class Traffic : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  // Older GPUs add the values of a vector one by one. In the PTX for newer ones some accesses to shared memory are
  // split, which ptxas joins again.
  void SetUp() override {
    const char* architecture = std::getenv("CPPCUDA_EMULATOR_ARCH");
    if (architecture && std::atoi(architecture) != 90) GTEST_SKIP() << "the limits are those of compute_90";
  }

  Tensor random(at::IntArrayRef sizes) { return at::rand(sizes).to(GetParam()).to(at::kCUDA); }

  // Checks the wavefronts per 128 bytes of `read` and of what f returns. limits: in float32, in 16 bits.
  template <class F>
  void expect(const std::string& what, const std::vector<Tensor>& read, std::pair<double, double> limits, F f) {
    std::vector<Tensor> written;
    const auto traffic = cppcuda::emulator::traffic_of([&] { written = f(); });
    const double pieces = (bytes_of(read) + bytes_of(written)) / 128;
    const double lines = static_cast<double>(traffic.lines) / pieces,
                 wavefronts = static_cast<double>(traffic.wavefronts) / pieces;
    std::printf("%-40s %-8s %5.2f of global memory, %5.2f of shared\n", what.c_str(), c10::toString(GetParam()), lines,
                wavefronts);
    EXPECT_GE(lines, 0.99) << what;
    EXPECT_LE(lines + wavefronts, GetParam() == at::kFloat ? limits.first : limits.second) << what;
  }

  // The bytes of so many rows, each in the fewest sectors.
  static double row_bytes(int64_t count, int64_t features, const Tensor& table) {
    const int64_t sectors = (features * table.element_size() + 31) / 32;
    return static_cast<double>(count * sectors * 32);
  }

  // Checks the bytes of the sectors that f touches, in multiples of those that it must touch. A sector counts once for
  // each load or store of a warp. limits: in float32, in 16 bits.
  template <class F>
  void expect_bytes(const std::string& what, double needed, std::pair<double, double> limits, F f) {
    const auto traffic = cppcuda::emulator::traffic_of(f);
    const double ratio = static_cast<double>(32 * (traffic.load_sectors + traffic.store_sectors)) / needed;
    std::printf("%-40s %-8s %5.2f of the bytes\n", what.c_str(), c10::toString(GetParam()), ratio);
    EXPECT_GE(ratio, 0.99) << what;
    EXPECT_LE(ratio, GetParam() == at::kFloat ? limits.first : limits.second) << what;
  }
};

TEST_P(Traffic, Elementwise) {
  const Tensor x = random({1 << 15}), grad = random({1 << 15});
  expect("quick_gelu", {x}, {1.01, 1.01}, [&] { return std::vector{cppcuda::quick_gelu(x)}; });
  expect("quick_gelu backward", {grad, x}, {1.01, 1.01}, [&] {
    return std::vector{cppcuda::kit::ElementwiseOps<cppcuda::elementwise::QuickGelu>::Backward<0>::call(grad, x)};
  });
}

TEST_P(Traffic, Trilinear) {
  struct Case {
    int64_t features;
    std::pair<double, double> forward, backward;
  };
  for (const auto& [features, forward, backward] :
       {Case{1, {2.9, 3.2}, {3.0, 3.8}}, Case{2, {2.9, 3.0}, {3.0, 3.4}}, Case{3, {3.9, 3.7}, {3.9, 3.5}},
        Case{4, {2.9, 2.9}, {3.0, 3.3}}, Case{7, {3.9, 5.3}, {3.7, 4.9}}, Case{8, {3.8, 2.9}, {3.9, 3.1}},
        Case{33, {4.3, 5.5}, {4.1, 5.3}}, Case{256, {1.1, 1.1}, {1.1, 1.1}}}) {
    const int64_t rows = std::max<int64_t>(512, 16384 / features);
    const Tensor feats = random({rows, 8, features}), points = random({rows, 3}), grad = random({rows, features});
    const std::string what = "F = " + std::to_string(features);
    expect("trilinear, " + what, {feats, points}, forward,
           [&] { return std::vector{ops::trilinear::Forward::call(feats, points)}; });
    expect("trilinear backward, " + what, {grad, feats, points}, backward, [&] {
      const auto [grad_feats, grad_points] =
          ops::trilinear::Backward::call(grad, feats, points, c10::List<bool>({true, true}));
      return std::vector{grad_feats, grad_points};
    });
  }
}

// The limits of expect_bytes for rows of so many features.
struct OfRows {
  int64_t features;
  std::pair<double, double> forward, points, table;
};

TEST_P(Traffic, TrilinearIndexed) {
  namespace op = ops::trilinear_indexed;
  const int64_t rows = 4096, count = 512;
  const std::vector<c10::SymInt> size{rows};
  for (const auto& [features, forward, of_points, of_table] :
       {OfRows{2, {1.2, 1.15}, {1.27, 1.25}, {1.18, 1.15}}, OfRows{8, {1.2, 1.17}, {1.26, 1.26}, {1.18, 1.15}},
        OfRows{32, {1.09, 1.11}, {1.12, 1.16}, {1.07, 1.07}}}) {
    const Tensor table = random({rows, features}), points = random({count, 3}), grad = random({count, features});
    const Tensor corners = at::randint(0, rows, {count, 8}, at::kInt).to(at::kCUDA);
    const std::string what = ", F = " + std::to_string(features);
    const double read = bytes_of({points, corners}), gathered = row_bytes(count * 8, features, table);
    const double added = row_bytes(count * 8, features, table.to(at::kFloat));
    expect_bytes("trilinear_indexed" + what, read + gathered + bytes_of({grad}), forward,
                 [&] { op::Forward::call(table, corners, points); });
    expect_bytes("trilinear_indexed backward, points" + what, read + gathered + bytes_of({grad, points}), of_points,
                 [&] { op::Backward::call(grad, table, corners, points, size, c10::List<bool>({false, true})); });
    expect_bytes("trilinear_indexed backward, table" + what, read + added + bytes_of({grad}), of_table, [&] {
      op::Backward::call(grad, std::nullopt, corners, points, size, c10::List<bool>({true, false}));
    });
  }
}

TEST_P(Traffic, GridSample3d) {
  namespace op = ops::grid_sample3d;
  const int64_t side = 16, count = 512;
  const std::vector<c10::SymInt> size{side, side, side};
  for (const auto& [features, forward, of_points, of_table] :
       {OfRows{2, {1.1, 1.05}, {1.18, 1.15}, {1.08, 1.04}}, OfRows{8, {1.11, 1.07}, {1.18, 1.17}, {1.09, 1.05}},
        OfRows{32, {1.06, 1.06}, {1.09, 1.11}, {1.04, 1.04}}}) {
    const Tensor input = random({side, side, side, features}), grad = random({count, features});
    const Tensor points = ((at::rand({count, 3}) * 2 - 1) * (1 - 1.0 / side)).to(GetParam()).to(at::kCUDA);
    const std::string what = ", F = " + std::to_string(features);
    const double read = bytes_of({points}), gathered = row_bytes(count * 8, features, input);
    const double added = row_bytes(count * 8, features, input.to(at::kFloat));
    expect_bytes("grid_sample3d" + what, read + gathered + bytes_of({grad}), forward,
                 [&] { op::Forward::call(input, points, "zeros", false); });
    expect_bytes("grid_sample3d backward, points" + what, read + gathered + bytes_of({grad, points}), of_points, [&] {
      op::Backward::call(grad, input, points, size, "zeros", false, c10::List<bool>({false, true}));
    });
    expect_bytes("grid_sample3d backward, input" + what, read + added + bytes_of({grad}), of_table, [&] {
      op::Backward::call(grad, std::nullopt, points, size, "zeros", false, c10::List<bool>({true, false}));
    });
  }
}

TEST_P(Traffic, HashGrid) {
  namespace op = ops::hash_grid;
  const op::Config config{
      .n_levels = 8, .n_features_per_level = 2, .log2_hashmap_size = 15, .base_resolution = 32, .per_level_scale = 1.5};
  const int64_t count = 1024, rows = count * 8 * config.n_levels;
  const Tensor params = random({op::count_parameters(config, 3)}), points = random({count, 3});
  const Tensor grad = random({count, config.n_levels * 2});
  const std::vector<c10::SymInt> size{params.size(0)};
  const double other = bytes_of({points, grad}), added = row_bytes(rows, 2, params.to(at::kFloat));
  const auto with_attributes = [&](auto f) {
    return f(config.n_levels, config.n_features_per_level, config.log2_hashmap_size, config.base_resolution,
             config.per_level_scale, std::string_view("Linear"));
  };
  const auto backward = [&](const std::optional<Tensor>& table, bool of_params) {
    with_attributes([&](auto... a) {
      op::Backward::call(grad, table, points, size, a..., c10::List<bool>({of_params, !of_params}));
    });
  };
  expect_bytes("hash_grid", row_bytes(rows, 2, params) + other, {1.1, 1.04},
               [&] { with_attributes([&](auto... a) { op::Forward::call(params, points, a...); }); });
  expect_bytes("hash_grid backward, points", row_bytes(rows, 2, params) + other, {1.26, 1.21},
               [&] { backward(params, false); });
  expect_bytes("hash_grid backward, params", added + other, {1.14, 1.14}, [&] { backward(std::nullopt, true); });
}

// The images are large enough to be split among threads as large images are, except that strips have fewer rows.
TEST_P(Traffic, Upsample) {
  using Size = std::array<int64_t, 2>;
  struct Case {
    const char* what;
    Size planes, in, out;
    std::pair<double, double> forward, backward;
  };
  for (const auto& [what, planes, in, out, forward, backward] : {
           Case{"doubled", {1, 4}, {2048, 128}, {4096, 256}, {2.4, 2.4}, {3.7, 3.9}},
           Case{"wide times 4", {1, 16}, {1024, 64}, {1024, 256}, {3.7, 3.8}, {3.7, 3.9}},
           Case{"31 wide times 2", {4, 64}, {128, 31}, {128, 62}, {3.6, 4.3}, {4.2, 4.9}},
       }) {
    const Tensor image = random({planes[0], planes[1], in[0], in[1]});
    const Tensor grad = random({planes[0], planes[1], out[0], out[1]});
    const std::vector<c10::SymInt> in_size{in[0], in[1]}, out_size{out[0], out[1]};
    const std::optional<double> none;
    const std::string name = std::string(", ") + what;
    expect("upsample_bilinear2d" + name, {image}, forward, [&] {
      return std::vector{ops::upsample_bilinear2d::Forward::call(image, out_size, "half_pixel", none, none)};
    });
    expect("upsample_bilinear2d backward" + name, {grad}, backward, [&] {
      return std::vector{ops::upsample_bilinear2d::Backward::call(grad, in_size, "half_pixel", none, none)};
    });
  }
}

// The part without torch's matrix products.
TEST_P(Traffic, LltmCell) {
  const int64_t rows = 64, inputs = 8, size = 512;
  const Tensor input = random({rows, inputs}), weight = random({3 * size, size + inputs}), bias = random({3 * size});
  const Tensor hx = random({rows, size}), cx = random({rows, size});
  const Tensor gates = std::get<2>(ops::lltm_cell::Cell::call(input, weight, bias, hx, cx));
  expect("lltm_cell", {gates, cx}, {1.01, 1.01}, [&] {
    const auto [hy, cy] = ops::lltm_cell::Forward::call(input, weight, bias, hx, cx);
    return std::vector{hy, cy};
  });
  const std::optional<Tensor> none;
  expect("lltm_cell backward", {hx, cx, gates, cx}, {1.01, 1.01}, [&] {
    const auto result = ops::lltm_cell::Backward::call(hx, cx, none, gates, input, weight, hx, cx,
                                                       c10::List<bool>({true, false, false, false, true}));
    return std::vector{gates, std::get<4>(result)};  // as many values as gates has are written but not returned
  });
}

INSTANTIATE_TEST_SUITE_P(All, Traffic, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
