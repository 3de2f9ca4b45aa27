// What holds for every operator that C++ calls: values and derivatives of plain torch, whatever the strides, the dtype
// and the number of threads, and errors that name the argument. tests/python has more samples, and the other
// properties.

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <cppcuda/cppcuda.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/vision.h>

#include <cmath>
#include <functional>

#include "lltm_testing.h"
#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::testing::close;
using cppcuda::testing::error_of;
using cppcuda::testing::on_device;
using torch::autograd::grad;
using Tensors = std::vector<Tensor>;
using Call = std::function<Tensors(const Tensors&)>;

struct Case {
  std::string op, name;
  Call call;
  Call reference;  // none: the values are those of the call in float64
  Tensors inputs;
  int wide = -1;          // the argument that may be float32 if the others have 16 bits
  bool products = false;  // uses torch's matrix products, whose bits depend on the processor and the number of threads
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.op << ", " << c.name; }

template <class Function>
Call one(Function f) {
  return [f](const Tensors& a) { return Tensors{f(a)}; };
}

template <class Tuple>
Tensors list(const Tuple& t) {
  return std::apply([](const auto&... each) { return Tensors{each...}; }, t);
}

Tensor randn(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }
Tensor uniform(at::IntArrayRef sizes, double reach) { return (at::rand(sizes, at::kDouble) * 2 - 1) * reach; }

// Three linear interpolations, one per axis, of feats [..., N, 8, F].
Tensor trilinear(const Tensor& feats, const Tensor& points) {
  Tensor x = feats.unflatten(-2, {2, 2, 2});
  for (int64_t d = 0; d < 3; ++d) {
    Tensor t = (points.select(-1, d) + 1) / 2;
    while (t.dim() < x.dim() - 1) t = t.unsqueeze(-1);
    const int64_t axis = points.dim() - 1;
    x = x.select(axis, 0) * (1 - t) + x.select(axis, 1) * t;
  }
  return x;
}

Tensor trilinear_indexed(const Tensor& table, const Tensor& corners, const Tensor& points) {
  return trilinear(table.index({corners.clamp_min(0).to(at::kLong)}).masked_fill(corners.lt(0).unsqueeze(-1), 0),
                   points);
}

Tensors trilinear_indexed_with_grad(const Tensors& a) {
  const Tensor points = a[2].requires_grad() ? a[2] : a[2].detach().requires_grad_();
  const Tensor value = trilinear_indexed(a[0], a[1], points);
  Tensors columns;
  for (const Tensor& column : value.unbind(-1)) {
    columns.push_back(grad({column.sum()}, {points}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0]);
  }
  return {value, at::stack(columns, -2)};
}

Tensor grid_sample3d(const Tensor& input, const Tensor& points, const std::string& padding_mode, bool align_corners) {
  namespace F = torch::nn::functional;
  const Tensor x = input.permute({0, 4, 1, 2, 3}), p = points.unsqueeze(2).unsqueeze(2);
  auto options = F::GridSampleFuncOptions().mode(torch::kBilinear).align_corners(align_corners);
  if (padding_mode == "zeros") options.padding_mode(torch::kZeros);
  if (padding_mode == "border") options.padding_mode(torch::kBorder);
  if (padding_mode == "reflection") options.padding_mode(torch::kReflection);
  return F::grid_sample(x, p, options).flatten(2).transpose(1, 2);
}

Tensor lltm_weight(int64_t size, int64_t input) {
  return randn({3 * size, size + input}) / std::sqrt(size + input + 1.0);
}

std::vector<Case> cases() {
  at::manual_seed(0);
  std::vector<Case> all;
  const auto add = [&](const char* op, const std::string& name, Call call, Call reference, Tensors inputs,
                       int wide = -1) {
    all.push_back({op, name, std::move(call), std::move(reference), std::move(inputs), wide});
  };
  for (const int64_t n : {0, 1, 7, 1000, 100003}) {
    const std::string size = std::to_string(n);
    add("sigmoid", size, one([](auto& a) { return cppcuda::sigmoid(a[0]); }),
        one([](auto& a) { return at::sigmoid(a[0]); }), {4 * randn({n})});
    add("quick_gelu", size, one([](auto& a) { return cppcuda::quick_gelu(a[0]); }),
        one([](auto& a) { return a[0] * at::sigmoid(1.702 * a[0]); }), {4 * randn({n})});
  }
  for (const auto& [rows, features] : {std::pair{5, 1}, {1, 7}, {33, 19}, {3, 1000}, {5000, 4}, {0, 4}, {4, 0}}) {
    const std::string size = std::to_string(rows) + "_rows_of_" + std::to_string(features);
    add("trilinear", size, one([](auto& a) { return cppcuda::trilinear(a[0], a[1]); }),
        one([](auto& a) { return trilinear(a[0], a[1]); }), {randn({rows, 8, features}), uniform({rows, 3}, 1.2)}, 1);
    const Tensors indexed{randn({20, features}), at::randint(-1, 20, {rows, 8}, at::kLong), uniform({rows, 3}, 1.2)};
    add("trilinear_indexed", size, one([](auto& a) { return cppcuda::trilinear_indexed(a[0], a[1], a[2]); }),
        one([](auto& a) { return trilinear_indexed(a[0], a[1], a[2]); }), indexed, 2);
    if (features == 0 || features > 100) continue;
    add(
        "trilinear_indexed_with_grad", size,
        [](auto& a) { return list(cppcuda::trilinear_indexed_with_grad(a[0], a[1], a[2])); },
        trilinear_indexed_with_grad, indexed, 2);
  }
  add("trilinear", "batch", one([](auto& a) { return cppcuda::trilinear(a[0], a[1]); }),
      one([](auto& a) { return trilinear(a[0], a[1]); }), {randn({3, 11, 8, 5}), uniform({3, 11, 3}, 1.2)}, 1);
  for (const std::string mode : {"zeros", "border", "reflection"}) {
    for (const bool align : {false, true}) {
      for (const int64_t features : {1, 4, 19}) {
        add("grid_sample3d", mode + (align ? "_aligned_" : "_") + std::to_string(features),
            one([=](auto& a) { return cppcuda::grid_sample3d(a[0], a[1], mode, align); }),
            one([=](auto& a) { return grid_sample3d(a[0], a[1], mode, align); }),
            {randn({2, 4, 3, 5, features}), uniform({2, 100, 3}, 1.7)}, 1);
      }
    }
  }
  // With several threads, the work is split in the middle of an image, and several threads add to one voxel.
  add("grid_sample3d", "many_points", one([](auto& a) { return cppcuda::grid_sample3d(a[0], a[1]); }),
      one([](auto& a) { return grid_sample3d(a[0], a[1], "zeros", false); }),
      {randn({1, 13, 11, 17, 4}), uniform({1, 20011, 3}, 1.1)}, 1);
  add("upsample_bilinear2d", "many_pixels", one([](auto& a) { return cppcuda::upsample_bilinear2d(a[0], {131, 150}); }),
      one([](auto& a) { return at::upsample_bilinear2d(a[0], {131, 150}, false); }), {randn({3, 5, 61, 67})});
  // Python compares these with scipy.
  for (const int64_t order : {1, 2, 3, 5}) {
    const std::string name = "order_" + std::to_string(order);
    add("spline_sample2d", name, one([=](auto& a) { return cppcuda::spline_sample2d(a[0], a[1], order, "reflect"); }),
        {}, {randn({2, 4, 5, 3}), uniform({2, 50, 2}, 6)}, 1);
    add("spline_sample3d", name, one([=](auto& a) { return cppcuda::spline_sample3d(a[0], a[1], order); }), {},
        {randn({4, 3, 5, 9}), uniform({70, 3}, 6)}, 1);
    add("spline_splat2d", name,
        one([=](auto& a) { return cppcuda::spline_splat2d(a[0], a[1], {4, 5}, order, "nearest"); }), {},
        {randn({50, 3}), uniform({50, 2}, 6)}, 1);
    add("spline_splat3d", name, one([=](auto& a) { return cppcuda::spline_splat3d(a[0], a[1], {4, 3, 5}, order); }), {},
        {randn({2, 50, 3}), uniform({2, 50, 3}, 6)}, 1);
    add("spline_prefilter2d", name, one([=](auto& a) { return cppcuda::spline_prefilter2d(a[0], order); }), {},
        {randn({7, 6, 2})});
    add("spline_prefilter3d", name, one([=](auto& a) { return cppcuda::spline_prefilter3d(a[0], order, "grid-wrap"); }),
        {}, {randn({2, 4, 3, 5, 18})});
  }
  for (const int64_t axes : {2, 3, 4}) {
    for (const int64_t features : {1, 2, 4, 8}) {
      const cppcuda::HashGridConfig config{.n_levels = 4,
                                           .n_features_per_level = features,
                                           .log2_hashmap_size = 8,
                                           .base_resolution = 3,
                                           .per_level_scale = 1.6,
                                           .interpolation = features % 4 == 2 ? "Smoothstep" : "Linear"};
      add("hash_grid", std::to_string(axes) + "_dims_" + std::to_string(features) + "_features",
          one([=](auto& a) { return cppcuda::hash_grid(a[0], a[1], config); }), {},
          {randn({cppcuda::hash_grid_parameters(axes, config)}), uniform({axes == 3 ? 9001 : 50, axes}, 1.5)}, 1);
    }
  }
  for (const auto& [in_h, in_w, out_h, out_w] : {std::tuple{4, 5, 8, 10},
                                                 {5, 7, 9, 13},
                                                 {8, 6, 4, 3},
                                                 {11, 9, 4, 2},
                                                 {3, 4, 3, 4},
                                                 {5, 4, 1, 1},
                                                 {1, 1, 3, 5},
                                                 {1, 9, 4, 30}}) {
    for (const bool align : {false, true}) {
      const std::vector<int64_t> size{out_h, out_w};
      add("upsample_bilinear2d",
          std::to_string(in_h) + "x" + std::to_string(in_w) + "_to_" + std::to_string(out_h) + "x" +
              std::to_string(out_w) + (align ? "_aligned" : ""),
          one([=](auto& a) {
            return cppcuda::upsample_bilinear2d(a[0], size, align ? "align_corners" : "half_pixel");
          }),
          one([=](auto& a) { return at::upsample_bilinear2d(a[0], size, align); }), {randn({2, 9, in_h, in_w})});
    }
  }
  const Call cell = [](auto& a) { return list(cppcuda::lltm_cell(a[0], a[1], a[2], a[3], a[4])); };
  const Call reference_cell = [](auto& a) {
    return list(cppcuda::testing::reference_cell(cppcuda::testing::reference_gates(a[0], a[1], a[2], a[3]), a[4]));
  };
  const Call sequence = [](auto& a) { return list(cppcuda::lltm(a[0], a[1], a[2], a[3], a[4])); };
  const Call reference_sequence = [](auto& a) {
    const auto found = cppcuda::testing::reference_sequence(a);
    return Tensors(found.begin(), found.begin() + 3);
  };
  for (const auto& [rows, input, size] :
       {std::tuple{1, 1, 1}, {5, 3, 7}, {37, 4, 16}, {1, 8, 530}, {0, 2, 5}, {4, 0, 5}, {4, 2, 0}}) {
    const auto name = std::to_string(rows) + "x" + std::to_string(input) + "x" + std::to_string(size);
    const Tensor weight = lltm_weight(size, input), bias = randn({3 * size}), h = randn({rows, size}),
                 c = randn({rows, size});
    add("lltm_cell", name, cell, reference_cell, {randn({rows, input}), weight, bias, h, c}, 4);
    all.back().products = true;
    add("lltm", name, sequence, reference_sequence, {randn({3, rows, input}), weight, bias, h, c}, 4);
    all.back().products = size > 512;  // smaller states have a kernel of their own
  }
  return all;
}

class Operators : public ::testing::TestWithParam<Case> {
 protected:
  // The outputs, and the first derivatives of a sum of their products with given weights. `order` 2: the derivatives
  // of a sum of squares of these, too.
  Tensors results(const Call& f, const Tensors& inputs, int order, const Tensors& weights) const {
    Tensors all = inputs, leaves;
    for (Tensor& t : all) {
      if (!t.is_floating_point()) continue;
      t = t.detach().requires_grad_();
      leaves.push_back(t);
    }
    Tensors found = f(all);
    Tensor loss = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < found.size(); ++i) {
      const Tensor t = found[i].to(at::kDouble);
      loss = loss + ((order == 2 ? t.sin() : t) * weights[i]).sum();
    }
    const Tensors first = grad({loss}, leaves, {}, /*retain_graph=*/true, /*create_graph=*/order == 2);
    found.insert(found.end(), first.begin(), first.end());
    if (order == 1) return found;
    Tensor sum = at::zeros({}, at::kDouble);
    for (const Tensor& t : first) sum = sum + (t * t).sum();
    const Tensors second = grad({sum}, leaves);
    found.insert(found.end(), second.begin(), second.end());
    return found;
  }
  Tensors weights() const {
    Tensors found;
    for (const Tensor& t : GetParam().call(GetParam().inputs)) found.push_back(at::randn_like(t));
    return found;
  }
  // The tolerance is relative to the largest value of a tensor, because its values are sums.
  void expect_close(const Tensors& actual, const Tensors& expected, double tolerance) const {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      const double size = expected[i].numel() == 0 ? 0 : expected[i].abs().max().item<double>();
      EXPECT_TRUE(close(actual[i], expected[i], tolerance * (1 + size))) << "tensor " << i;
    }
  }
};

TEST_P(Operators, ValuesAndDerivativesOfPlainTorch) {
  const auto& [op, name, call, reference, inputs, wide, products] = GetParam();
  // The first derivatives of F.grid_sample have none of their own. Python compares those of ours with plain torch.
  const int order = op == "grid_sample3d" ? 1 : 2;
  const Tensors w = weights();
  if (reference) expect_close(results(call, inputs, order, w), results(reference, inputs, order, w), 1e-11);
}

TEST_P(Operators, StridesDoNotMatter) {
  const auto& [op, name, call, reference, inputs, wide, products] = GetParam();
  const Tensors w = weights(), expected = results(call, inputs, 2, w);
  Tensors turned, sliced;
  for (const Tensor& t : inputs) {
    std::vector<int64_t> reversed, sizes;
    for (int64_t d = 0; d < t.dim(); ++d) {
      reversed.push_back(t.dim() - 1 - d);
      sizes.push_back(2 * t.size(d) + 1);
    }
    turned.push_back(t.permute(reversed).contiguous().permute(reversed));
    Tensor view = at::zeros(sizes, t.options());
    for (int64_t d = 0; d < t.dim(); ++d) view = view.slice(d, 1, 2 * t.size(d) + 1, 2);
    sliced.push_back(view.copy_(t));
  }
  expect_close(results(call, turned, 2, w), expected, 1e-12);
  expect_close(results(call, sliced, 2, w), expected, 1e-12);
}

TEST_P(Operators, DtypesOfResultsAndGradients) {
  const auto& [op, name, call, reference, inputs, wide, products] = GetParam();
  const Tensors w = weights();
  for (const auto& [dtype, tolerance] : {std::pair{at::kFloat, 2e-5}, {at::kHalf, 2e-3}, {at::kBFloat16, 1e-2}}) {
    for (const bool mixed : {false, true}) {
      if (mixed && (wide < 0 || dtype == at::kFloat)) continue;
      SCOPED_TRACE(::testing::Message() << dtype << (mixed ? " and float32" : ""));
      Tensors narrow = inputs, exact = inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!inputs[i].is_floating_point()) continue;
        narrow[i] = inputs[i].to(mixed && static_cast<int>(i) == wide ? at::kFloat : dtype);
        exact[i] = narrow[i].to(at::kDouble);
      }
      const Tensors actual = results(call, narrow, 1, w), expected = results(reference ? reference : call, exact, 1, w);
      expect_close(actual, expected, tolerance);
      for (size_t i = w.size(), input = 0; i < actual.size(); ++i, ++input) {
        while (!inputs[input].is_floating_point()) ++input;
        EXPECT_EQ(actual[i].scalar_type(), narrow[input].scalar_type()) << "tensor " << i;
      }
    }
  }
}

TEST_P(Operators, ThreadsGiveTheSameBits) {
  const Case& c = GetParam();
  const int before = at::get_num_threads();
  const Tensors w = weights();
  std::vector<Tensors> found;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    found.push_back(results(c.call, c.inputs, 1, w));
  }
  at::set_num_threads(before);
  if (c.products) {
    for (const Tensors& other : {found[1], found[2]}) expect_close(other, found[0], 1e-13);
    return;
  }
  for (size_t i = 0; i < found[0].size(); ++i) {
    EXPECT_TRUE(at::equal(found[0][i], found[1][i]) && at::equal(found[0][i], found[2][i])) << "tensor " << i;
  }
}

TEST_P(Operators, NoGradInferenceAndMeta) {
  const Case& c = GetParam();
  Tensors leaves = c.inputs, meta;
  for (Tensor& t : leaves) {
    meta.push_back(t.to(at::kMeta));
    if (t.is_floating_point()) t = t.detach().requires_grad_();
  }
  const Tensors expected = c.call(c.inputs), shapes = c.call(meta);
  EXPECT_TRUE(c.call(leaves)[0].requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(c.call(leaves)[0].requires_grad());
  const c10::InferenceMode inference;
  const Tensors found = c.call(c.inputs);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].is_inference() && at::equal(found[i], expected[i])) << "tensor " << i;
    EXPECT_TRUE(shapes[i].is_meta() && shapes[i].sizes() == found[i].sizes() &&
                shapes[i].strides() == found[i].strides());
  }
}

TEST_P(Operators, ErrorsNameTheArgument) {
  const Case& c = GetParam();
  const auto& schema = c10::Dispatcher::singleton().findSchemaOrThrow(("cppcuda::" + c.op).c_str(), "").schema();
  Tensors elsewhere;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const std::string argument = c.op + ": " + schema.arguments()[i].name();
    const auto error = [&](const Tensor& t) {
      Tensors inputs = c.inputs;
      inputs[i] = t;
      return error_of([&] { c.call(inputs); });
    };
    EXPECT_EQ(error({}), argument + " must be a Tensor, got an undefined Tensor");
    EXPECT_EQ(error(c.inputs[i].to_sparse()), argument + " must be a dense (strided) tensor, got layout Sparse");
    EXPECT_EQ(error(c.inputs[i].to(at::kComplexFloat)).find(argument + " must be of dtype "), 0u);
    if (!c.inputs[i].is_floating_point()) return;
    elsewhere.push_back(on_device(at::kHPU, c.inputs[i].sizes()));
  }
  const std::string error = error_of([&] { c.call(elsewhere); });
  EXPECT_EQ(error.find(c.op + ": " + schema.arguments()[0].name() + " must be on cpu"), 0u) << error;
}

INSTANTIATE_TEST_SUITE_P(All, Operators, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.op + "_of_" + info.param.name; });

}  // namespace
