#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <cppcuda/cppcuda.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <set>

#include "cppcuda/kit/op.h"
#include "ops/trilinear/cuda/launch.h"
#include "ops/trilinear/op.h"
#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::testing::close;
using cppcuda::testing::error_of;
using cppcuda::testing::on_device;
using torch::autograd::grad;

// Three linear interpolations, one per axis, in float64.
Tensor reference(const Tensor& feats, const Tensor& points) {
  Tensor x = feats.to(at::kDouble).unflatten(-2, {2, 2, 2});  // [..., 2, 2, 2, F]
  for (int64_t d = 0; d < 3; ++d) {
    Tensor t = (points.to(at::kDouble).select(-1, d) + 1) / 2;
    while (t.dim() < x.dim() - 1) t = t.unsqueeze(-1);
    const int64_t axis = points.dim() - 1;
    x = x.select(axis, 0) * (1 - t) + x.select(axis, 1) * t;
  }
  return x;
}

struct Sample {
  Tensor feats, points;
};

// batch < 0: no batch dim.
Sample sample(int64_t batch, int64_t rows, int64_t features) {
  std::vector<int64_t> feats{rows, 8, features}, points{rows, 3};
  if (batch >= 0) {
    feats.insert(feats.begin(), batch);
    points.insert(points.begin(), batch);
  }
  return {at::randn(feats, at::kDouble), at::rand(points, at::kDouble) * 2 - 1};
}

struct Shape {
  const char* name;
  int64_t batch, rows, features;
};

void PrintTo(const Shape& s, std::ostream* os) { *os << s.name; }

// The gradients of a sum of f's output weighted by `weight`, and the gradients of a sum of those gradients weighted by
// `weights`.
template <class F>
std::vector<Tensor> first_and_second_order(F f, const Sample& s, const Tensor& weight,
                                           const std::vector<Tensor>& weights) {
  const Tensor feats = s.feats.detach().requires_grad_(), points = s.points.detach().requires_grad_();
  const Tensor w = weight.detach().requires_grad_();
  auto first = grad({f(feats, points)}, {feats, points}, {w}, /*retain_graph=*/true, /*create_graph=*/true);
  auto second = grad({first[0], first[1]}, {feats, points, w}, {weights[0], weights[1]});
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

class TrilinearShapes : public ::testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    at::manual_seed(0);
    s = sample(GetParam().batch, GetParam().rows, GetParam().features);
  }
  Sample s;
};

TEST_P(TrilinearShapes, EqualsPlainTorch) {
  const Tensor out = cppcuda::trilinear(s.feats, s.points);
  EXPECT_TRUE(out.is_contiguous());
  EXPECT_TRUE(close(out, reference(s.feats, s.points), 1e-12));
}

TEST_P(TrilinearShapes, GradientsOfBothOrdersEqualPlainTorch) {
  const Tensor expected_out = reference(s.feats, s.points);
  const Tensor weight = at::randn_like(expected_out);
  const std::vector<Tensor> weights{at::randn_like(s.feats), at::randn_like(s.points)};
  const auto actual = first_and_second_order(cppcuda::trilinear, s, weight, weights);
  const auto expected = first_and_second_order(reference, s, weight, weights);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(close(actual[i], expected[i], 1e-11)) << "gradient " << i;
}

INSTANTIATE_TEST_SUITE_P(Trilinear, TrilinearShapes,
                         ::testing::Values(Shape{"OneFeature", -1, 5, 1}, Shape{"OneRow", -1, 1, 7},
                                           Shape{"OddFeatures", -1, 33, 19}, Shape{"Wide", -1, 3, 1000},
                                           Shape{"ManyRows", -1, 5000, 4}, Shape{"Batched", 3, 11, 5},
                                           Shape{"OneBatch", 1, 6, 16}, Shape{"NoRows", -1, 0, 4},
                                           Shape{"NoFeatures", -1, 4, 0}, Shape{"NoBatches", 0, 4, 4}),
                         [](const auto& info) { return info.param.name; });

// The dtypes of feats and points, and the tolerance.
struct Dtypes {
  const char* name;
  at::ScalarType feats, points;
  double tolerance;
};

void PrintTo(const Dtypes& d, std::ostream* os) { *os << d.name; }

class TrilinearDtypes : public ::testing::TestWithParam<Dtypes> {};

TEST_P(TrilinearDtypes, ValuesAndGradients) {
  at::manual_seed(1);
  const auto [name, feats_dtype, points_dtype, tolerance] = GetParam();
  const Sample s = sample(-1, 40, 24);
  const Tensor feats = s.feats.to(feats_dtype).requires_grad_(), points = s.points.to(points_dtype).requires_grad_();
  const Tensor exact_feats = feats.detach().to(at::kDouble).requires_grad_();
  const Tensor exact_points = points.detach().to(at::kDouble).requires_grad_();
  const Tensor out = cppcuda::trilinear(feats, points), exact = reference(exact_feats, exact_points);
  EXPECT_EQ(out.scalar_type(), feats_dtype);
  EXPECT_TRUE(close(out, exact, tolerance));

  const Tensor weight = at::randn({40, 24}).to(feats_dtype);
  out.backward(weight);
  exact.backward(weight.to(at::kDouble));
  EXPECT_EQ(feats.grad().scalar_type(), feats_dtype);
  EXPECT_EQ(points.grad().scalar_type(), points_dtype);
  EXPECT_TRUE(close(feats.grad(), exact_feats.grad(), tolerance));
  EXPECT_TRUE(close(points.grad(), exact_points.grad(), tolerance));
}

INSTANTIATE_TEST_SUITE_P(Trilinear, TrilinearDtypes,
                         ::testing::Values(Dtypes{"float64", at::kDouble, at::kDouble, 1e-12},
                                           Dtypes{"float32", at::kFloat, at::kFloat, 2e-6},
                                           Dtypes{"float16", at::kHalf, at::kHalf, 2e-3},
                                           Dtypes{"bfloat16", at::kBFloat16, at::kBFloat16, 1e-2},
                                           Dtypes{"float16_float32", at::kHalf, at::kFloat, 2e-3},
                                           Dtypes{"bfloat16_float32", at::kBFloat16, at::kFloat, 1e-2}),
                         [](const auto& info) { return info.param.name; });

struct Strides {
  const char* name;
  Tensor (*feats)();   // [6, 8, 10]
  Tensor (*points)();  // [6, 3]
};

void PrintTo(const Strides& s, std::ostream* os) { *os << s.name; }

Tensor plain_feats() { return at::randn({6, 8, 10}, at::kDouble); }
Tensor plain_points() { return at::rand({6, 3}, at::kDouble) * 2 - 1; }

class TrilinearStrides : public ::testing::TestWithParam<Strides> {};

TEST_P(TrilinearStrides, DoNotMatter) {
  at::manual_seed(2);
  const Sample s{GetParam().feats(), GetParam().points()};
  ASSERT_EQ(s.feats.sizes(), at::IntArrayRef({6, 8, 10}));
  ASSERT_EQ(s.points.sizes(), at::IntArrayRef({6, 3}));
  EXPECT_TRUE(cppcuda::trilinear(s.feats, s.points).is_contiguous());
  EXPECT_TRUE(close(cppcuda::trilinear(s.feats, s.points), reference(s.feats, s.points), 1e-12));

  const Tensor weight = at::randn({10, 6}, at::kDouble).t();
  const std::vector<Tensor> weights{at::randn({10, 8, 6}, at::kDouble).transpose(0, 2),
                                    at::randn({3, 6}, at::kDouble).t()};
  const auto actual = first_and_second_order(cppcuda::trilinear, s, weight, weights);
  const auto expected = first_and_second_order(reference, s, weight, weights);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(close(actual[i], expected[i], 1e-12)) << "gradient " << i;
}

INSTANTIATE_TEST_SUITE_P(
    Trilinear, TrilinearStrides,
    ::testing::Values(
        Strides{"FeaturesFirst", [] { return at::randn({10, 8, 6}, at::kDouble).transpose(0, 2); }, plain_points},
        Strides{"CornersFirst", [] { return at::randn({8, 6, 10}, at::kDouble).transpose(0, 1); }, plain_points},
        Strides{"EverySecondFeature", [] { return at::randn({6, 8, 20}, at::kDouble).slice(2, 1, 20, 2); },
                plain_points},
        Strides{"Offset", [] { return at::randn({7, 9, 11}, at::kDouble).slice(0, 1).slice(1, 1).slice(2, 1); },
                [] { return at::rand({7, 4}, at::kDouble).slice(0, 1).slice(1, 1); }},
        Strides{"ExpandedRows", [] { return at::randn({1, 8, 10}, at::kDouble).expand({6, 8, 10}); },
                [] { return at::rand({1, 3}, at::kDouble).expand({6, 3}); }},
        Strides{"ExpandedFeatures", [] { return at::randn({6, 8, 1}, at::kDouble).expand({6, 8, 10}); }, plain_points},
        Strides{"TransposedPoints", plain_feats, [] { return at::rand({3, 6}, at::kDouble).t(); }},
        Strides{"ReversedPoints", plain_feats, [] { return at::rand({6, 3}, at::kDouble).flip({0, 1}); }}),
    [](const auto& info) { return info.param.name; });

TEST(Trilinear, BatchesOfUnevenStrides) {
  at::manual_seed(3);
  const Tensor feats = at::randn({4, 9, 8, 5}, at::kDouble).slice(1, 0, 7).slice(0, 0, 4, 2);  // [2, 7, 8, 5]
  const Tensor points = at::rand({7, 3}, at::kDouble).expand({2, 7, 3});
  const Sample s{feats, points};
  const Tensor weight = at::randn({2, 7, 5}, at::kDouble);
  const std::vector<Tensor> weights{at::randn_like(feats), at::randn_like(points)};
  const auto actual = first_and_second_order(cppcuda::trilinear, s, weight, weights);
  const auto expected = first_and_second_order(reference, s, weight, weights);
  EXPECT_TRUE(close(cppcuda::trilinear(feats, points), reference(feats, points), 1e-12));
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(close(actual[i], expected[i], 1e-12)) << "gradient " << i;
}

TEST(Trilinear, CornersAreReturnedAsTheyAre) {
  const Tensor feats = at::randn({8, 8, 3}, at::kDouble);
  std::vector<Tensor> corners;
  for (int64_t c = 0; c < 8; ++c) corners.push_back(at::tensor({c >> 2, c >> 1 & 1, c & 1}, at::kDouble) * 2 - 1);
  const Tensor out = cppcuda::trilinear(feats, at::stack(corners));
  for (int64_t c = 0; c < 8; ++c) EXPECT_TRUE(at::equal(out[c], feats[c][c])) << "corner " << c;
}

TEST(Trilinear, ContinuesLinearlyOutside) {
  at::manual_seed(4);
  const Sample s{plain_feats(), plain_points() * 4};
  EXPECT_TRUE(close(cppcuda::trilinear(s.feats, s.points), reference(s.feats, s.points), 1e-12));
}

TEST(Trilinear, BackwardAccumulatesAndThreadsAgree) {
  at::manual_seed(5);
  Sample s = sample(-1, 20000, 8);
  s.feats.requires_grad_();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Tensor one = cppcuda::trilinear(s.feats, s.points);
  at::set_num_threads(threads);
  const Tensor out = cppcuda::trilinear(s.feats, s.points);
  EXPECT_TRUE(at::equal(one, out));
  out.sum().backward({}, /*retain_graph=*/true);
  const Tensor once = s.feats.grad().clone();
  out.sum().backward();
  EXPECT_TRUE(close(s.feats.grad(), once * 2, 1e-15));
}

TEST(Trilinear, OnlyTheRequestedGradientIsDefined) {
  for (const bool need_feats : {true, false}) {
    Sample s = sample(-1, 4, 5);
    (need_feats ? s.feats : s.points).requires_grad_();
    cppcuda::trilinear(s.feats, s.points).sum().backward();
    EXPECT_EQ(s.feats.grad().defined(), need_feats);
    EXPECT_EQ(s.points.grad().defined(), !need_feats);
  }
}

TEST(Trilinear, GradientOfFeatsDoesNotKeepFeats) {
  for (const bool need_points : {false, true}) {
    const Sample s = sample(-1, 4, 5);
    const Tensor leaf = s.feats.requires_grad_(), points = s.points.requires_grad_(need_points);
    Tensor feats = leaf * 2;
    const auto memory = feats.storage().getWeakStorageImpl();
    const Tensor out = cppcuda::trilinear(feats, points);
    feats.reset();
    EXPECT_EQ(memory.expired(), !need_points);
    out.sum().backward();
    EXPECT_TRUE(memory.expired());  // the graph is freed
  }
}

TEST(Trilinear, NoticesChangesInPlace) {
  Sample s = sample(-1, 4, 5);
  s.points.requires_grad_();
  const Tensor out = cppcuda::trilinear(s.feats, s.points);
  s.feats.add_(1);
  EXPECT_NE(error_of([&] { out.sum().backward(); }).find("modified by an inplace operation"), std::string::npos);
}

TEST(Trilinear, NoGradAndInferenceMode) {
  Sample s = sample(-1, 4, 5);
  s.feats.requires_grad_();
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(cppcuda::trilinear(s.feats, s.points).requires_grad());
  }
  EXPECT_TRUE(cppcuda::trilinear(s.feats, s.points).requires_grad());
  const c10::InferenceMode inference;
  const Tensor out = cppcuda::trilinear(s.feats.detach(), s.points);
  EXPECT_TRUE(out.is_inference());
  EXPECT_TRUE(close(out, reference(s.feats, s.points), 1e-12));
}

TEST(Trilinear, MetaTensorsGiveTheShape) {
  const Sample s = sample(2, 4, 5);
  const Tensor out = cppcuda::trilinear(s.feats.to(at::kMeta), s.points.to(at::kMeta));
  EXPECT_TRUE(out.is_meta());
  EXPECT_EQ(out.sizes(), at::IntArrayRef({2, 4, 5}));
}

struct Mistake {
  const char* name;
  Tensor (*feats)();
  Tensor (*points)();
  const char* message;
};

void PrintTo(const Mistake& m, std::ostream* os) { *os << m.name; }

class TrilinearErrors : public ::testing::TestWithParam<Mistake> {};

TEST_P(TrilinearErrors, NameOpArgumentAndWhatCame) {
  const Tensor feats = GetParam().feats(), points = GetParam().points();
  EXPECT_EQ(error_of([&] { cppcuda::trilinear(feats, points); }), GetParam().message);
}

Tensor undefined() { return {}; }

INSTANTIATE_TEST_SUITE_P(
    Trilinear, TrilinearErrors,
    ::testing::Values(
        Mistake{"UndefinedFeats", undefined, plain_points,
                "trilinear: feats must be a Tensor, got an undefined Tensor"},
        Mistake{"UndefinedPoints", plain_feats, undefined,
                "trilinear: points must be a Tensor, got an undefined Tensor"},
        Mistake{"BothUndefined", undefined, undefined, "trilinear: feats must be a Tensor, got an undefined Tensor"},
        Mistake{"RankOfFeats", [] { return at::randn({8, 10}, at::kDouble); }, plain_points,
                "trilinear: feats must be [N, 8, F] or [B, N, 8, F], got [8, 10]"},
        Mistake{"RankOfPoints", plain_feats, [] { return at::randn({3}, at::kDouble); },
                "trilinear: points must be [N, 3], got [3]"},
        Mistake{"BatchOfOne", plain_feats, [] { return at::randn({2, 6, 3}, at::kDouble); },
                "trilinear: points must be [N, 3], got [2, 6, 3]"},
        Mistake{"Corners", [] { return at::randn({6, 7, 10}, at::kDouble); }, plain_points,
                "trilinear: feats must be [N, 8, F] or [B, N, 8, F], got [6, 7, 10]"},
        Mistake{"Coordinates", plain_feats, [] { return at::randn({6, 4}, at::kDouble); },
                "trilinear: points must be [N, 3], got [6, 4]"},
        Mistake{"Rows", plain_feats, [] { return at::randn({5, 3}, at::kDouble); },
                "trilinear: points must be [N, 3] with N = 6, got [5, 3]"},
        Mistake{"IntegerFeats", [] { return at::ones({6, 8, 10}, at::kLong); }, plain_points,
                "trilinear: feats must be of dtype float64, float32, float16 or bfloat16, got int64"},
        Mistake{"ComplexFeats", [] { return at::ones({6, 8, 10}, at::kComplexFloat); }, plain_points,
                "trilinear: feats must be of dtype float64, float32, float16 or bfloat16, got complex64"},
        Mistake{"Narrower", plain_feats, [] { return at::ones({6, 3}, at::kFloat); },
                "trilinear: points must be of dtype float64, the dtype of feats, got float32"},
        Mistake{"WiderThanFloat32", [] { return at::ones({6, 8, 10}, at::kHalf); }, plain_points,
                "trilinear: points must be of dtype float16, the dtype of feats, or float32, got float64"},
        Mistake{"Sparse", [] { return plain_feats().to_sparse(); }, plain_points,
                "trilinear: feats must be a dense (strided) tensor, got layout Sparse"},
        Mistake{"Quantized", [] { return at::quantize_per_tensor(at::ones({6, 8, 10}), 0.1, 0, at::kQInt8); },
                plain_points, "trilinear: feats must be of dtype float64, float32, float16 or bfloat16, got qint8"},
        Mistake{"Devices", [] { return plain_feats().to(at::kMeta); }, plain_points,
                "trilinear: points must be on meta, the device of feats, got cpu"},
        Mistake{"UnknownBackend", [] { return on_device(at::kHPU, {6, 8, 10}); },
                [] { return on_device(at::kHPU, {6, 3}); },
#ifdef CPPCUDA_CUDA
                "trilinear: feats must be on cpu or cuda, got hpu:0"
#else
                "trilinear: feats must be on cpu, got hpu:0"
#endif
        }),
    [](const auto& info) { return info.param.name; });

#ifndef CPPCUDA_CUDA
TEST(Trilinear, SaysThatItWasBuiltWithoutCuda) {
  EXPECT_EQ(error_of([] { cppcuda::trilinear(on_device(at::kCUDA, {6, 8, 10}), on_device(at::kCUDA, {6, 3})); }),
            "trilinear: feats must be on cpu, got cuda:0: this cppcuda was built without CUDA; build it again with "
            "CPPCUDA_WITH_CUDA=ON");
}
#endif

TEST(Trilinear, BackwardRefusesAMaskOfAnotherLength) {
  using Backward = cppcuda::ops::trilinear::Backward;
  const Sample s = sample(-1, 4, 5);
  auto call = [&](std::initializer_list<bool> mask) {
    return error_of([&] { Backward::call(at::ones({4, 5}, at::kDouble), s.feats, s.points, c10::List<bool>(mask)); });
  };
  EXPECT_EQ(call({true, true}), "no error");
  EXPECT_EQ(call({true}), "_trilinear_backward: output_mask must have 2 entries, got 1");
  EXPECT_EQ(error_of([&] {
              Backward::call(at::ones({4, 5}, at::kDouble), std::nullopt, s.points, c10::List<bool>({true, true}));
            }),
            "_trilinear_backward: feats must be a Tensor if the gradient of points is requested, got None");
}

using cppcuda::kit::threads_per_block;
using cppcuda::ops::trilinear::Access;
using cppcuda::ops::trilinear::backward_direct_bytes;
using cppcuda::ops::trilinear::forward_direct_bytes;
using cppcuda::ops::trilinear::is_whole;
using cppcuda::ops::trilinear::row_launch;
using cppcuda::ops::trilinear::RowLaunch;
using cppcuda::ops::trilinear::rows_per_thread;

// How often the kernels' loops over all blocks and threads write each value of the output.
std::vector<int> visits(const RowLaunch& launch, int64_t rows, int64_t features) {
  std::vector<int> count(rows * features);
  const auto& [access, shape, width, lane_bits, tile] = launch;
  const int lanes = 1 << lane_bits, tile_rows = tile.rows;
  for (int64_t block = 0; block < shape.blocks; ++block) {
    for (int64_t thread = 0; thread < shape.threads; ++thread) {
      if (access == Access::staged) {
        const int64_t warp = (block * shape.threads + thread) / 32,
                      step = shape.blocks * shape.threads / 32 * tile_rows;
        for (int64_t first = warp * tile_rows; first < rows; first += step) {
          const int64_t end = std::min<int64_t>(rows, first + tile_rows);
          for (int64_t row = first + thread % 32 / lanes; row < end; row += 32 / lanes) {
            for (int64_t f = thread % lanes * width; f < features; f += int64_t{lanes} * width) {
              for (int v = 0; v < width; ++v) ++count.at(row * features + f + v);
            }
          }
        }
        continue;
      }
      const int64_t rows_per_block = shape.threads / lanes;
      for (int64_t row = block * rows_per_block + thread / lanes; row < rows; row += shape.blocks * rows_per_block) {
        for (int64_t f = thread % lanes * width; f < features; f += int64_t{lanes} * width) {
          for (int i = 0; i < width; ++i) ++count.at(row * features + f + i);
        }
      }
    }
  }
  return count;
}

TEST(RowLaunch, EveryValueIsWrittenOnce) {
  for (const int64_t rows : {1, 2, 7, 31, 33, 256, 1000}) {
    for (const int64_t features : {1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 64, 100, 256}) {
      for (const int element_bytes : {2, 4, 8}) {
        for (const bool packs : {false, true}) {
          for (const bool dense : {false, true}) {
            for (const auto direct_bytes : {forward_direct_bytes, backward_direct_bytes}) {
              const auto launch = row_launch(rows, features, element_bytes, packs, dense, direct_bytes);
              const auto count = visits(launch, rows, features);
              EXPECT_EQ(std::count(count.begin(), count.end(), 1), rows * features)
                  << rows << " rows of " << features << ", " << element_bytes << packs << dense;
            }
          }
        }
      }
    }
  }
}

TEST(RowLaunch, ShortAndOddRowsAreStaged) {
  auto staged = [](int64_t features, int element_bytes, bool dense, int64_t direct_bytes = backward_direct_bytes) {
    return row_launch(100, features, element_bytes, /*packs=*/true, dense, direct_bytes).access == Access::staged &&
           !is_whole(features, element_bytes);
  };
  for (const int64_t features : {5, 7, 9, 63, 315}) EXPECT_TRUE(staged(features, 4, true)) << features;
  for (const int64_t features : {1, 4, 8, 12, 16, 64, 256}) EXPECT_FALSE(staged(features, 4, true)) << features;
  for (const int64_t features : {5, 6, 10, 12, 15}) EXPECT_TRUE(staged(features, 2, true)) << features;
  EXPECT_TRUE(staged(8, 4, true, forward_direct_bytes));
  EXPECT_FALSE(staged(16, 4, true, forward_direct_bytes));
  EXPECT_FALSE(staged(3, 4, false));
  EXPECT_FALSE(staged(317, 4, true));  // not even one row would fit into the memory of a warp
}

// When the threads of a warp read the next features of a corner, they read from different banks of 4 bytes.
TEST(RowLaunch, RowsOfATileAreInDifferentBanks) {
  for (int64_t features = 3; features < 300; ++features) {
    for (const int element_bytes : {2, 4, 8}) {
      const auto launch =
          row_launch(1000, features, element_bytes, /*packs=*/true, /*dense=*/true, forward_direct_bytes);
      if (launch.access != Access::staged || is_whole(features, element_bytes)) continue;
      const int lanes = 1 << launch.lane_bits, bytes = launch.width * element_bytes, at_once = 128 / std::max(bytes, 4);
      for (int begin = 0; begin < 32; begin += at_once) {
        std::map<int, std::set<int>> words;  // by bank
        for (int thread = begin; thread < begin + at_once; ++thread) {
          const int from = thread / lanes * launch.tile.row_step * 16 + thread % lanes * bytes;
          for (int byte = from; byte < from + bytes; ++byte) words[byte / 4 % 32].insert(byte / 4);
        }
        for (const auto& [bank, of_bank] : words) {
          ASSERT_EQ(of_bank.size(), 1u) << features << " of " << element_bytes << " bytes, bank " << bank;
        }
      }
    }
  }
}

TEST(RowLaunch, AThreadTakesRowsOfFewFeatures) {
  auto whole = [](int64_t features, int element_bytes, bool dense) {
    return row_launch(100, features, element_bytes, /*packs=*/true, dense, 0).access == Access::staged &&
           is_whole(features, element_bytes);
  };
  for (const int64_t features : {1, 2, 3, 4, 8}) EXPECT_TRUE(whole(features, 2, true)) << features;
  for (const int64_t features : {1, 2, 3, 4}) EXPECT_TRUE(whole(features, 4, true)) << features;
  for (const int64_t features : {1, 2}) EXPECT_TRUE(whole(features, 8, true)) << features;
  for (const int64_t features : {5, 8, 16}) EXPECT_FALSE(whole(features, 4, true)) << features;
  EXPECT_FALSE(whole(3, 4, false));
}

TEST(RowLaunch, HoldsForAnySize) {
  constexpr int64_t two31 = int64_t{1} << 31;
  for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{1} << 20, two31 - 1, two31, two31 + 1, int64_t{1} << 45}) {
    for (const int64_t features : {int64_t{1}, int64_t{3}, int64_t{32}, int64_t{33}, two31, int64_t{1} << 40}) {
      for (const int element_bytes : {2, 4, 8}) {
        for (const bool dense : {false, true}) {
          const auto [access, shape, width, lane_bits, tile] =
              row_launch(rows, features, element_bytes, true, dense, forward_direct_bytes);
          const bool staged = access == Access::staged;
          const int lanes = 1 << lane_bits, tile_rows = tile.rows;
          EXPECT_TRUE(lane_bits >= 0 && lanes <= 32) << lanes;  // a group lies in one warp
          EXPECT_TRUE(lanes == 1 || staged || lanes / 2 * width < features) << "fewer lanes would do";
          EXPECT_EQ(features % width, 0) << width;
          EXPECT_TRUE(width == 1 || width * element_bytes == 16 || (staged && width == 2)) << width;
          EXPECT_EQ(tile_rows > 0, staged);
          const bool whole = is_whole(features, element_bytes);
          const int64_t row_packs = features * element_bytes / 2;
          if (staged && !whole) {
            EXPECT_GE(tile.row_step, row_packs);
            EXPECT_EQ(tile.input_packs.value(), row_packs);
            EXPECT_EQ(tile.packs, tile_rows * tile.row_step);
          }
          EXPECT_EQ(shape.threads, unsigned{threads_per_block});
          EXPECT_EQ(shape.threads % lanes, 0u);
          EXPECT_LE(shape.blocks, (1u << 31) - 1);  // CUDA's limit
          EXPECT_LE(shape.shared_bytes, 48u << 10);
          EXPECT_EQ(shape.shared_bytes, threads_per_block / 32 * tile.packs * 16);
          if (staged && whole) {
            EXPECT_EQ(tile_rows, 32 * rows_per_thread(static_cast<int>(row_packs)));
            EXPECT_GE(tile.packs, tile_rows * row_packs);
          }
          // Indices within a tile have 32 bits.
          EXPECT_LT(tile_rows * 8 * (staged ? features : 0), two31);
          // The groups of all blocks start at rows 0, 1, 2, ... and step by the number of groups, so each row has
          // exactly one group if there are any. No block starts past the end.
          const int64_t rows_per_block = staged ? shape.threads / 32 * tile_rows : shape.threads / lanes;
          EXPECT_EQ(shape.blocks == 0, rows == 0);
          if (rows > 0) {
            EXPECT_LT((int64_t{shape.blocks} - 1) * rows_per_block, rows);
          }
        }
      }
    }
  }
}

}  // namespace
