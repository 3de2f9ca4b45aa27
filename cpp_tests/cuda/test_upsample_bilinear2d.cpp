#include <cmath>

#include "cuda_testing.h"
#include "ops/upsample_bilinear2d/schema.h"

namespace {

using namespace cppcuda::testing;
using cppcuda::ops::upsample_bilinear2d::Backward;
using cppcuda::ops::upsample_bilinear2d::Forward;

// [out, in]: how much of each pixel of the input an output pixel gets along one axis, in float64.
Tensor axis_weights(int64_t in, int64_t out, const std::string& mode) {
  const Tensor o = at::arange(out, at::kDouble);
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  Tensor position = mode == "half_pixel"   ? (o + 0.5) * scale - 0.5
                    : mode == "asymmetric" ? o * scale
                                           : o * static_cast<double>(in - 1) / std::max<double>(1, out - 1);
  position = position.clamp(0, in - 1).unsqueeze(1);
  return (1 - (position - at::arange(in, at::kDouble)).abs()).clamp_min(0);
}

struct Shape {
  std::array<int64_t, 4> input;
  std::array<int64_t, 2> output;
};

constexpr Shape shapes[] = {{{2, 3, 4, 5}, {8, 10}},   {{1, 8, 5, 7}, {9, 13}},  {{2, 2, 8, 6}, {4, 3}},
                            {{1, 16, 11, 9}, {4, 2}},  {{2, 8, 3, 4}, {3, 4}},   {{2, 3, 5, 4}, {1, 1}},
                            {{2, 16, 1, 1}, {3, 5}},   {{1, 20, 1, 9}, {4, 30}}, {{3, 1, 16, 16}, {32, 32}},
                            {{1, 2, 7, 33}, {14, 66}}, {{1, 12, 6, 5}, {9, 4}},  {{1, 1, 3, 300}, {2, 700}},
                            {{70, 2, 2, 3}, {4, 6}},   {{1, 5, 9, 8}, {27, 8}}};

class CudaUpsample : public ::testing::TestWithParam<Dtypes> {
 protected:
  void SetUp() override { at::manual_seed(0); }

  void check(const Tensor& input, const Tensor& grad, const char* mode) {
    const auto size = [](const Tensor& t) { return std::vector<c10::SymInt>{t.size(2), t.size(3)}; };
    const Tensor y = axis_weights(input.size(2), grad.size(2), mode),
                 x = axis_weights(input.size(3), grad.size(3), mode);
    const std::optional<double> none;
    // The position itself is rounded, in float32 at least.
    const double tolerance =
        GetParam().tolerance +
        (GetParam().narrow == at::kDouble ? 0 : 3e-7 * static_cast<double>(std::max(input.size(2), input.size(3))));
    const Tensor out = Forward::call(on_cuda(input), size(grad), mode, none, none);
    EXPECT_EQ(out.scalar_type(), input.scalar_type());
    EXPECT_TRUE(close(out.cpu(), at::matmul(at::matmul(y, input.to(at::kDouble)), x.t()), tolerance));
    const Tensor result = Backward::call(on_cuda(grad), size(input), mode, none, none);
    // A sum over more pixels, in float32, has more roundings.
    const double terms = std::max(1.0, static_cast<double>(grad.numel()) / static_cast<double>(input.numel() + 1));
    EXPECT_TRUE(
        close(result.cpu(), at::matmul(at::matmul(y.t(), grad.to(at::kDouble)), x), 4 * tolerance * std::sqrt(terms)));
  }
};

TEST_P(CudaUpsample, ModesAndMemoryFormats) {
  for (const auto& [input, output] : shapes) {
    for (const char* mode : {"half_pixel", "align_corners", "asymmetric"}) {
      const Tensor x = at::randn(input, at::kDouble).to(GetParam().narrow);
      const Tensor grad = at::randn({input[0], input[1], output[0], output[1]}, at::kDouble).to(GetParam().narrow);
      SCOPED_TRACE(::testing::Message() << x.sizes() << " -> " << grad.sizes() << ", " << mode);
      check(x, grad, mode);
      check(x.contiguous(at::MemoryFormat::ChannelsLast), grad.contiguous(at::MemoryFormat::ChannelsLast), mode);
    }
  }
}

TEST_P(CudaUpsample, AnyLayout) {
  for (const Layout layout : layouts) {
    for (const bool channels_last : {false, true}) {
      SCOPED_TRACE(::testing::Message() << ::testing::PrintToString(layout) << channels_last);
      auto make = [&](at::IntArrayRef nhwc) {
        const Tensor t = at::randn(nhwc, at::kDouble).to(GetParam().narrow);
        return channels_last ? in_layout(t, layout).permute({0, 3, 1, 2}) : in_layout(t.permute({0, 3, 1, 2}), layout);
      };
      check(make({2, 6, 5, 16}), make({2, 9, 8, 16}), "half_pixel");
    }
  }
}

// Enough pixels for threads to take several planes and rows; the last group of planes and the last rows are fewer. Tiles
// are for forward in the first two cases, for backward in the next one, for neither in the last one.
TEST_P(CudaUpsample, ManyPixels) {
  struct Case {
    std::array<int64_t, 2> planes, in, out;
    const char* mode;
  };
  constexpr Case cases[] = {{{2, 9}, {5, 16}, {341, 344}, "align_corners"},
                            {{2, 9}, {5, 352}, {341, 344}, "asymmetric"},
                            {{1, 5}, {512, 260}, {1024, 520}, "half_pixel"},
                            {{2, 9}, {5, 7}, {341, 343}, "half_pixel"}};
  for (const auto& [planes, in, out, mode] : cases) {
    const Tensor input = at::randn({planes[0], planes[1], in[0], in[1]}, at::kDouble).to(GetParam().narrow);
    const Tensor grad = at::randn({planes[0], planes[1], out[0], out[1]}, at::kDouble).to(GetParam().narrow);
    SCOPED_TRACE(::testing::Message() << input.sizes() << " and " << grad.sizes());
    check(input, grad, mode);
    if (in[0] == 5) check(grad, input, mode);
  }
}

TEST_P(CudaUpsample, ManyPixelsOfChannelsLast) {
  for (const int64_t channels : {24, 7}) {  // with packs and without
    const auto images = [&](int64_t height, int64_t width) {
      return at::randn({1, height, width, channels}, at::kDouble).to(GetParam().narrow).permute({0, 3, 1, 2});
    };
    const Tensor input = images(170, 172), grad = images(340, 344);
    check(input, grad, "half_pixel");
    check(grad, input, "half_pixel");
  }
}

// Offsets within a row that need 64 bits, as far as a small memory can have them.
TEST_P(CudaUpsample, LargeStrides) {
  constexpr int64_t huge = int64_t{1} << 32;
  const Tensor pixel = at::randn({1, 3, 4, 1}, at::kDouble).to(GetParam().narrow);
  check(pixel.as_strided({1, 3, 4, 1}, {12, 4, 1, huge}), at::randn({1, 3, 8, 1}, pixel.options()), "half_pixel");
  check(at::randn({1, 3, 8, 1}, pixel.options()), pixel.as_strided({1, 3, 4, 1}, {12, 4, 1, huge}), "half_pixel");
  const Tensor last = pixel.as_strided({1, 12, 1, 1}, {huge, 1, huge, huge});
  ASSERT_EQ(last.suggest_memory_format(), at::MemoryFormat::ChannelsLast);
  check(last, at::randn({1, 12, 2, 3}, pixel.options()), "half_pixel");
  check(at::randn({1, 12, 2, 3}, pixel.options()), last, "half_pixel");
}

TEST_P(CudaUpsample, NothingToDo) {
  check(at::empty({0, 3, 4, 5}, GetParam().narrow), at::empty({0, 3, 2, 2}, GetParam().narrow), "half_pixel");
  check(at::empty({2, 0, 4, 5}, GetParam().narrow), at::empty({2, 0, 2, 2}, GetParam().narrow), "half_pixel");
}

INSTANTIATE_TEST_SUITE_P(All, CudaUpsample, ::testing::ValuesIn(all_dtypes, all_dtypes + 4),
                         [](const auto& info) { return info.param.name; });

}  // namespace
