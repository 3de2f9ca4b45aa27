// Counts the wavefronts in which the kernels access lines of L1 and banks of shared memory. An SM has time for seven
// wavefronts per 128 bytes of an H200's bandwidth. This prints the table of docs/kernels.md.

#include <ATen/ATen.h>
#include <cppcuda/cppcuda.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "cppcuda/kit/elementwise/family.h"
#include "elementwise/family.h"
#include "ops/lltm_cell/op.h"
#include "ops/trilinear/op.h"
#include "ops/upsample_bilinear2d/op.h"
#include "traffic.h"

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
  Tensor random(at::IntArrayRef sizes) { return at::rand(sizes).to(GetParam()).to(at::kCUDA); }

  // Checks the wavefronts per 128 bytes of `read` and of what f returns. limits: in float32, in 16 bits.
  template <class F>
  void expect(const std::string& what, const std::vector<Tensor>& read, std::pair<double, double> limits, F f) {
    std::vector<Tensor> written;
    const auto traffic = cppcuda::simt::traffic_of([&] { written = f(); });
    const double pieces = (bytes_of(read) + bytes_of(written)) / 128;
    const double lines = traffic.lines / pieces, wavefronts = traffic.wavefronts / pieces;
    std::printf("%-40s %-8s %5.2f of global memory, %5.2f of shared\n", what.c_str(), c10::toString(GetParam()), lines,
                wavefronts);
    EXPECT_GE(lines, 0.99) << what;
    EXPECT_LE(lines + wavefronts, GetParam() == at::kFloat ? limits.first : limits.second) << what;
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
