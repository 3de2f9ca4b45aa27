#include <ATen/Parallel.h>
#include <cppcuda/cppcuda.h>
#include <torch/csrc/autograd/autograd.h>

#include <tuple>

#include "cppcuda/kit/op.h"
#include "ops/trilinear_indexed/op.h"
#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::testing::close;
using cppcuda::testing::error_of;
using torch::autograd::grad;

// The rows of the corners, and zeros for missing vertices: [..., N, 8, F].
Tensor features_of(const Tensor& table, const Tensor& corners) {
  const Tensor missing = corners.lt(0).unsqueeze(-1), rows = corners.clamp_min(0).to(at::kLong);
  if (table.dim() == 2) return table.index({rows}).masked_fill(missing, 0);
  std::vector<Tensor> batch;
  for (int64_t b = 0; b < table.size(0); ++b) batch.push_back(table[b].index({rows[b]}));
  return at::stack(batch).masked_fill(missing, 0);
}

// Three linear interpolations, one per axis, in float64.
Tensor reference(const Tensor& table, const Tensor& corners, const Tensor& points) {
  Tensor x = features_of(table.to(at::kDouble), corners).unflatten(-2, {2, 2, 2});  // [..., 2, 2, 2, F]
  for (int64_t d = 0; d < 3; ++d) {
    Tensor t = (points.to(at::kDouble).select(-1, d) + 1) / 2;
    while (t.dim() < x.dim() - 1) t = t.unsqueeze(-1);
    const int64_t axis = points.dim() - 1;
    x = x.select(axis, 0) * (1 - t) + x.select(axis, 1) * t;
  }
  return x;
}

// The derivatives by the coordinates, one feature after another.
std::tuple<Tensor, Tensor> reference_with_grad(const Tensor& table, const Tensor& corners, const Tensor& points) {
  const Tensor p = points.requires_grad() ? points : points.detach().requires_grad_();
  const Tensor value = reference(table, corners, p);
  std::vector<Tensor> columns;
  for (const Tensor& column : value.unbind(-1)) {
    columns.push_back(grad({column.sum()}, {p}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0]);
  }
  return {value, at::stack(columns, -2)};
}

struct Sample {
  Tensor table, corners, points;
};

// batch < 0: no batch dim.
Sample sample(int64_t batch, int64_t vertices, int64_t rows, int64_t features) {
  const auto shape = [&](std::initializer_list<int64_t> sizes) {
    std::vector<int64_t> all(sizes);
    if (batch >= 0) all.insert(all.begin(), batch);
    return all;
  };
  return {at::randn(shape({vertices, features}), at::kDouble), at::randint(-1, vertices, shape({rows, 8}), at::kLong),
          at::rand(shape({rows, 3}), at::kDouble) * 2 - 1};
}

// The gradients of a sum of f's output weighted by `weight`, and the gradients of a sum of those gradients weighted by
// `weights`.
template <class F>
std::vector<Tensor> first_and_second_order(F f, const Sample& s, const Tensor& weight,
                                           const std::vector<Tensor>& weights) {
  const Tensor table = s.table.detach().requires_grad_(), points = s.points.detach().requires_grad_();
  const Tensor w = weight.detach().requires_grad_();
  auto first = grad({f(table, s.corners, points)}, {table, points}, {w}, /*retain_graph=*/true, /*create_graph=*/true);
  auto second = grad({first[0], first[1]}, {table, points, w}, {weights[0], weights[1]});
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void expect_plain_torch(const Sample& s) {
  const Tensor out = cppcuda::trilinear_indexed(s.table, s.corners, s.points);
  const Tensor expected_out = reference(s.table, s.corners, s.points);
  EXPECT_TRUE(out.is_contiguous());
  EXPECT_TRUE(close(out, expected_out, 1e-12));
  const Tensor weight = at::randn_like(expected_out);
  const std::vector<Tensor> weights{at::randn_like(s.table), at::randn_like(s.points)};
  const auto actual = first_and_second_order(cppcuda::trilinear_indexed, s, weight, weights);
  const auto expected = first_and_second_order(reference, s, weight, weights);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(close(actual[i], expected[i], 1e-10)) << "gradient " << i;
}

struct Shape {
  const char* name;
  int64_t batch, vertices, rows, features;
};

void PrintTo(const Shape& s, std::ostream* os) { *os << s.name; }

class TrilinearIndexedShapes : public ::testing::TestWithParam<Shape> {};

TEST_P(TrilinearIndexedShapes, EqualsPlainTorch) {
  at::manual_seed(0);
  const auto [name, batch, vertices, rows, features] = GetParam();
  expect_plain_torch(sample(batch, vertices, rows, features));
}

INSTANTIATE_TEST_SUITE_P(TrilinearIndexed, TrilinearIndexedShapes,
                         ::testing::Values(Shape{"OneFeature", -1, 7, 5, 1}, Shape{"OneRow", -1, 7, 1, 7},
                                           Shape{"OneVertex", -1, 1, 9, 3}, Shape{"OddFeatures", -1, 20, 33, 19},
                                           Shape{"Wide", -1, 6, 3, 1000}, Shape{"ManyRows", -1, 40, 5000, 4},
                                           Shape{"LargeTable", -1, 5000, 11, 4}, Shape{"Batched", 3, 6, 11, 5},
                                           Shape{"NoRows", -1, 6, 0, 4}, Shape{"NoFeatures", -1, 6, 4, 0}),
                         [](const auto& info) { return info.param.name; });

TEST(TrilinearIndexed, StridesDoNotMatter) {
  at::manual_seed(1);
  const Sample s{at::randn({10, 9}, at::kDouble).t(), at::randint(-1, 9, {8, 6}, at::kInt).t(),
                 at::rand({6, 6}, at::kDouble).slice(1, 1, 6, 2)};
  ASSERT_EQ(s.points.sizes(), at::IntArrayRef({6, 3}));
  expect_plain_torch(s);
  Sample expanded = sample(-1, 9, 6, 10);
  expanded.corners = expanded.corners.slice(0, 0, 1).expand({6, 8});  // all points in one voxel
  expect_plain_torch(expanded);
}

TEST(TrilinearIndexed, SixteenBitsSumInFloat32) {
  at::manual_seed(2);
  const Sample s = sample(-1, 12, 3000, 8);
  for (const auto& [dtype, tolerance] : {std::pair(at::kHalf, 2e-3), std::pair(at::kBFloat16, 1e-2)}) {
    const Tensor table = s.table.to(dtype).requires_grad_(), points = s.points.to(at::kFloat).requires_grad_();
    const Tensor exact_table = table.detach().to(at::kDouble).requires_grad_();
    const Tensor exact_points = points.detach().to(at::kDouble).requires_grad_();
    const Tensor weight = at::rand({3000, 8}).to(dtype);
    const Tensor out = cppcuda::trilinear_indexed(table, s.corners, points);
    const Tensor exact = reference(exact_table, s.corners, exact_points);
    EXPECT_EQ(out.scalar_type(), dtype);
    EXPECT_TRUE(close(out, exact, tolerance));
    out.backward(weight);
    exact.backward(weight.to(at::kDouble));
    EXPECT_EQ(table.grad().scalar_type(), dtype);
    EXPECT_EQ(points.grad().scalar_type(), at::kFloat);
    EXPECT_TRUE(close(table.grad(), exact_table.grad(), tolerance));
    EXPECT_TRUE(close(points.grad(), exact_points.grad(), tolerance));
  }
}

TEST(TrilinearIndexed, MissingVerticesAreNotRead) {
  Sample s = sample(-1, 6, 40, 5);
  s.table[0].fill_(NAN);
  s.table[5].fill_(NAN);
  s.corners = s.corners.clamp_min(1).clamp_max(4).masked_fill(at::rand({40, 8}).lt(0.5), -1);
  s.table.requires_grad_();
  const Tensor out = cppcuda::trilinear_indexed(s.table, s.corners, s.points);
  EXPECT_FALSE(out.isnan().any().item<bool>());
  out.sum().backward();
  EXPECT_FALSE(s.table.grad()[0].any().item<bool>());
  EXPECT_FALSE(s.table.grad()[5].any().item<bool>());
}

TEST(TrilinearIndexed, ThreadsGiveTheSameBits) {
  at::manual_seed(3);
  const Sample s = sample(-1, 300, 20000, 3);
  const int threads = at::get_num_threads();
  std::vector<Tensor> gradients;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    const Tensor table = s.table.detach().to(at::kFloat).requires_grad_();
    cppcuda::trilinear_indexed(table, s.corners, s.points.to(at::kFloat)).sin().sum().backward();
    gradients.push_back(table.grad());
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
  EXPECT_TRUE(at::equal(gradients[0], gradients[2]));
}

TEST(TrilinearIndexed, GradientOfTheTableDoesNotKeepIt) {
  for (const bool need_points : {false, true}) {
    const Sample s = sample(-1, 6, 4, 5);
    const Tensor leaf = s.table.requires_grad_(), points = s.points.requires_grad_(need_points);
    Tensor table = leaf * 2;
    const auto memory = table.storage().getWeakStorageImpl();
    const Tensor out = cppcuda::trilinear_indexed(table, s.corners, points);
    table.reset();
    EXPECT_EQ(memory.expired(), !need_points);
    out.sum().backward();
    EXPECT_TRUE(memory.expired());  // the graph is freed
  }
}

TEST(TrilinearIndexedWithGrad, EqualsPlainTorch) {
  at::manual_seed(4);
  for (const int64_t batch : {-1, 2}) {
    const Sample s = sample(batch, 9, 13, 3);
    const auto [value, gradient] = cppcuda::trilinear_indexed_with_grad(s.table, s.corners, s.points);
    const auto [expected_value, expected_gradient] = reference_with_grad(s.table, s.corners, s.points);
    EXPECT_TRUE(close(value, expected_value, 1e-12));
    EXPECT_TRUE(close(gradient, expected_gradient, 1e-12));
    const Tensor weight = at::randn_like(expected_gradient);
    // The second output, then both.
    const std::vector<Tensor> weights{at::randn_like(s.table), at::randn_like(s.points)};
    for (const double of_value : {0.0, 1.5}) {
      const auto loss = [&](auto f) {
        return [f, of_value](const Tensor& table, const Tensor& corners, const Tensor& points) {
          const auto [v, g] = f(table, corners, points);
          return of_value == 0 ? g : g + of_value * v.unsqueeze(-1);
        };
      };
      const auto actual = first_and_second_order(loss(cppcuda::trilinear_indexed_with_grad), s, weight, weights);
      const auto expected = first_and_second_order(loss(reference_with_grad), s, weight, weights);
      for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(close(actual[i], expected[i], 1e-11)) << "gradient " << i;
    }
  }
}

TEST(TrilinearIndexed, MetaTensorsGiveTheShape) {
  const Sample s = sample(2, 6, 4, 5);
  const auto [value, gradient] =
      cppcuda::trilinear_indexed_with_grad(s.table.to(at::kMeta), s.corners.to(at::kMeta), s.points.to(at::kMeta));
  EXPECT_TRUE(value.is_meta() && gradient.is_meta());
  EXPECT_EQ(value.sizes(), at::IntArrayRef({2, 4, 5}));
  EXPECT_EQ(gradient.sizes(), at::IntArrayRef({2, 4, 5, 3}));
}

TEST(TrilinearIndexed, IndexErrorsNameTheFirstOffender) {
  using cppcuda::ops::trilinear_indexed::Backward;
  Sample s = sample(-1, 5, 4, 3);
  s.corners[1][3] = 7;
  s.corners[2][0] = -5;
  const std::string rest = ": corners must be in [-1, V) with V = 5, got 7 at [1, 3]";
  const auto forward = [&] { cppcuda::trilinear_indexed(s.table, s.corners, s.points); };
  EXPECT_THROW(forward(), c10::IndexError);
  EXPECT_EQ(error_of(forward), "trilinear_indexed" + rest);
  EXPECT_EQ(error_of([&] { cppcuda::trilinear_indexed_with_grad(s.table, s.corners, s.points); }),
            "trilinear_indexed_with_grad" + rest);
  EXPECT_EQ(error_of([&] {
              Backward::call(at::ones({4, 3}, at::kDouble), s.table, s.corners, s.points, c10::SymIntArrayRef{5},
                             c10::List<bool>({true, true}));
            }),
            "_trilinear_indexed_backward" + rest);
}

struct Mistake {
  const char* name;
  Tensor (*table)();
  Tensor (*corners)();
  Tensor (*points)();
  const char* message;  // after the name of the operator
};

void PrintTo(const Mistake& m, std::ostream* os) { *os << m.name; }

class TrilinearIndexedErrors : public ::testing::TestWithParam<Mistake> {};

TEST_P(TrilinearIndexedErrors, NameOpArgumentAndWhatCame) {
  const Tensor table = GetParam().table(), corners = GetParam().corners(), points = GetParam().points();
  const std::string message = GetParam().message;
  EXPECT_EQ(error_of([&] { cppcuda::trilinear_indexed(table, corners, points); }), "trilinear_indexed: " + message);
  EXPECT_EQ(error_of([&] { cppcuda::trilinear_indexed_with_grad(table, corners, points); }),
            "trilinear_indexed_with_grad: " + message);
}

Tensor undefined() { return {}; }
Tensor plain_table() { return at::randn({5, 10}, at::kDouble); }
Tensor plain_corners() { return at::zeros({6, 8}, at::kLong); }
Tensor plain_points() { return at::rand({6, 3}, at::kDouble); }

INSTANTIATE_TEST_SUITE_P(
    TrilinearIndexed, TrilinearIndexedErrors,
    ::testing::Values(Mistake{"UndefinedTable", undefined, plain_corners, plain_points,
                              "table must be a Tensor, got an undefined Tensor"},
                      Mistake{"UndefinedCorners", plain_table, undefined, plain_points,
                              "corners must be a Tensor, got an undefined Tensor"},
                      Mistake{"UndefinedPoints", plain_table, plain_corners, undefined,
                              "points must be a Tensor, got an undefined Tensor"},
                      Mistake{"RankOfTable", [] { return at::randn({5}, at::kDouble); }, plain_corners, plain_points,
                              "table must be [V, F] or [B, V, F], got [5]"},
                      Mistake{"SevenCorners", plain_table, [] { return at::zeros({6, 7}, at::kLong); }, plain_points,
                              "corners must be [N, 8], got [6, 7]"},
                      Mistake{"Rows", plain_table, plain_corners, [] { return at::rand({5, 3}, at::kDouble); },
                              "points must be [N, 3] with N = 6, got [5, 3]"},
                      Mistake{"FloatingCorners", plain_table, [] { return at::zeros({6, 8}); }, plain_points,
                              "corners must be of dtype int32 or int64, got float32"},
                      Mistake{"IntegerTable", [] { return at::ones({5, 10}, at::kLong); }, plain_corners, plain_points,
                              "table must be of dtype float64, float32, float16 or bfloat16, got int64"},
                      Mistake{"Narrower", plain_table, plain_corners, [] { return at::rand({6, 3}); },
                              "points must be of dtype float64, the dtype of table, got float32"},
                      Mistake{"SparseCorners", plain_table, [] { return plain_corners().to_sparse(); }, plain_points,
                              "corners must be a dense (strided) tensor, got layout Sparse"},
                      Mistake{"SparsePoints", plain_table, plain_corners, [] { return plain_points().to_sparse(); },
                              "points must be a dense (strided) tensor, got layout Sparse"},
                      Mistake{"Devices", plain_table, [] { return plain_corners().to(at::kMeta); }, plain_points,
                              "corners must be on cpu, the device of table, got meta"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
