#include <ATen/detail/CUDAHooksInterface.h>

#include <cmath>

#include "cuda_testing.h"
#include "ops/upsample_bilinear2d/op.h"

namespace {

using namespace cppcuda::testing;
using cppcuda::ops::upsample_bilinear2d::Backward;
using cppcuda::ops::upsample_bilinear2d::Forward;

// The weight of each input pixel in each output pixel along one axis, [out, in], in float64.
Tensor axis_weights(int64_t in, int64_t out, const std::string& mode, std::optional<double> given = {}) {
  const Tensor o = at::arange(out, at::kDouble);
  const double scale = given ? 1 / *given : static_cast<double>(in) / static_cast<double>(out);
  Tensor position = mode == "half_pixel"   ? (o + 0.5) * scale - 0.5
                    : mode == "asymmetric" ? o * scale
                                           : o * static_cast<double>(in - 1) / std::max<double>(1, out - 1);
  position = position.clamp(0, in - 1).unsqueeze(1);
  return (1 - (position - at::arange(in, at::kDouble)).abs()).clamp_min(0);
}

std::vector<c10::SymInt> size(const Tensor& images) { return {images.size(2), images.size(3)}; }

struct Shape {
  std::array<int64_t, 4> input;
  std::array<int64_t, 2> output;
};

constexpr Shape shapes[] = {{{2, 3, 4, 5}, {8, 10}},   {{1, 8, 5, 7}, {9, 13}},  {{2, 2, 8, 6}, {4, 3}},
                            {{1, 16, 11, 9}, {4, 2}},  {{2, 8, 3, 4}, {3, 4}},   {{2, 3, 5, 4}, {1, 1}},
                            {{2, 16, 1, 1}, {3, 5}},   {{1, 20, 1, 9}, {4, 30}}, {{3, 1, 16, 16}, {32, 32}},
                            {{1, 2, 7, 33}, {14, 66}}, {{1, 12, 6, 5}, {9, 4}},  {{1, 1, 3, 300}, {2, 700}},
                            {{70, 2, 2, 3}, {4, 6}},   {{1, 5, 9, 8}, {27, 8}}};

constexpr unsigned forward = 1, backward = 2, reverse = 4;

class CudaUpsample : public ::testing::TestWithParam<Dtypes> {
 protected:
  // scale: the scale factor of the width.
  void check(const Tensor& input, const Tensor& grad, const char* mode, std::optional<double> scale = {},
             unsigned runs = forward | backward) {
    const Tensor y = axis_weights(input.size(2), grad.size(2), mode),
                 x = axis_weights(input.size(3), grad.size(3), mode, scale);
    const std::optional<double> none;
    // The sampling position itself is rounded, to float32 or a wider type.
    const double tolerance =
        GetParam().tolerance +
        (GetParam().narrow == at::kDouble ? 0 : 3e-7 * static_cast<double>(std::max(input.size(2), input.size(3))));
    if (runs & forward) {
      const Tensor out = Forward::call(on_cuda(input), size(grad), mode, none, scale);
      EXPECT_EQ(out.scalar_type(), input.scalar_type());
      EXPECT_TRUE(close(out.cpu(), at::matmul(at::matmul(y, input.to(at::kDouble)), x.t()), tolerance));
    }
    if (!(runs & backward)) return;
    const Tensor result = Backward::call(on_cuda(grad), size(input), mode, none, scale);
    // A float32 sum over more pixels has more rounding errors.
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

// An image needs this many times as many rows for a launch of many blocks on a GPU as for one in the emulator, which
// counts as a GPU that holds few blocks at once.
const int64_t rows_for_many_blocks = at::detail::getCUDAHooks().hasCUDART() ? 8 : 1;

// Enough pixels that each thread computes several planes and rows. The last groups of planes and of rows are smaller,
// one group has planes of two images, and there are gaps between rows and between planes.
TEST_P(CudaUpsample, ManyPixels) {
  struct Case {
    const char* what;
    std::array<int64_t, 2> planes, in, out;
    const char* mode;
    unsigned runs;  // what the case is about; reverse is the gradient of the resizing from out to in
    std::optional<double> scale;
  };
  const int64_t h = rows_for_many_blocks;
  const Case cases[] = {
      {"forward by tiles", {2, 9}, {5, 16}, {43 * h, 344}, "align_corners", forward | reverse, {}},
      {"forward by tiles of a width of their own",
       {2, 9},
       {5, 352},
       {43 * h, 344},
       "asymmetric",
       forward | reverse,
       {}},
      {"backward by tiles", {1, 5}, {70 * h, 264}, {140 * h, 528}, "half_pixel", backward, {}},
      {"tiles of columns that nothing reads", {1, 5}, {140 * h, 520}, {5, 136}, "half_pixel", backward, 1.0},
      {"tiles beyond the last column", {1, 5}, {5, 136}, {140 * h, 520}, "half_pixel", forward | backward, 2.0},
      {"tiles of pairs and of single columns", {2, 30}, {5, 7}, {43 * h, 42}, "half_pixel", forward | reverse, {}},
      {"tiles of single columns with more readers than a thread keeps",
       {1, 5},
       {64 * h, 259},
       {64 * h, 1295},
       "half_pixel",
       backward,
       {}},
      {"tiles of single columns, from pairs", {1, 5}, {64 * h, 130}, {64 * h, 520}, "half_pixel", backward, {}},
      {"forward without tiles", {2, 9}, {5, 660}, {25 * h, 220}, "half_pixel", forward, {}},
      {"backward without tiles", {2, 9}, {125 * h, 44}, {5, 748}, "half_pixel", backward, {}},
  };
  for (const auto& [what, planes, in, out, mode, runs, scale] : cases) {
    SCOPED_TRACE(what);
    const auto images = [&, c = planes[1]](const std::array<int64_t, 2>& size) {
      const Tensor t = at::randn({planes[0], c + 1, size[0], size[1] + 8}, at::kDouble).to(GetParam().narrow);
      return t.narrow(1, 0, c).narrow(3, 8, size[1]);
    };
    const Tensor input = images(in), grad = images(out);
    check(input, grad, mode, scale, runs);
    if (runs & reverse) check(grad, input, mode, scale, backward);
  }
}

// In both directions, a pixel whose position is met exactly is copied, including -0 and subnormal numbers. A pixel that
// is not read gets a gradient of 0.
TEST(CudaUpsampleExactPixels, AreCopied) {
  const std::optional<double> none;
  const auto same_bits = [](const Tensor& a, const Tensor& b) {
    return a.cpu().contiguous().view(at::kInt).equal(b.contiguous().view(at::kInt));
  };
  const Tensor kinds = at::tensor({1e-45, 4.2e-45, 1.7e-38, -0.0, 0.0, 0.7, 3e38}, at::kDouble).to(at::kFloat);
  for (const std::array<int64_t, 4> sizes : {std::array<int64_t, 4>{2, 3, 5, 7}, {1, 8, 5, 6}, {1, 5, 560, 264}}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      SCOPED_TRACE(::testing::Message() << at::IntArrayRef(sizes) << format);
      const Tensor x = kinds.take(at::randint(kinds.numel(), sizes)).contiguous(format);
      EXPECT_TRUE(same_bits(Forward::call(on_cuda(x), size(x), "asymmetric", none, none), x));
      EXPECT_TRUE(same_bits(Backward::call(on_cuda(x), size(x), "asymmetric", none, none), x));
      const std::vector<c10::SymInt> corners{2 * sizes[2] - 1, 2 * sizes[3] - 1};
      const Tensor larger = Forward::call(on_cuda(x), corners, "align_corners", none, none).cpu();
      EXPECT_TRUE(same_bits(larger.slice(2, 0, {}, 2).slice(3, 0, {}, 2), x));
      const std::vector<c10::SymInt> enlarged{4 * sizes[2], 4 * sizes[3]};
      Tensor expected = at::zeros({sizes[0], sizes[1], 4 * sizes[2], 4 * sizes[3]}, x.options());
      expected.slice(2, 0, {}, 4).slice(3, 0, {}, 4).fill_(-0.0);
      const Tensor grad = at::full(sizes, -0.0, x.options()).contiguous(format);
      EXPECT_TRUE(same_bits(Backward::call(on_cuda(grad), enlarged, "asymmetric", none, none), expected));
    }
  }
}

// A pixel that is not finite affects only the results in which it has a weight, not those that read its neighbours.
TEST(CudaUpsampleNeighbours, DoNotLeak) {
  using Size = std::array<int64_t, 2>;
  const auto pixels = [](const Size& size) {
    const Tensor t = at::randn({1, 5, size[0], size[1]}, at::kFloat);
    const Tensor chosen = at::rand(t.sizes());
    return t.masked_fill(chosen < 1e-3, std::nan("")).masked_fill(chosen > 1 - 1e-3, INFINITY);
  };
  for (const auto& [in, out] : {std::pair<Size, Size>{{560, 264}, {1120, 528}}, {{512, 130}, {512, 520}}}) {
    for (const char* mode : {"half_pixel", "asymmetric"}) {
      const Tensor input = pixels(in), grad = pixels(out);
      const Tensor y = axis_weights(in[0], out[0], mode).gt(0).to(at::kFloat),
                   x = axis_weights(in[1], out[1], mode).gt(0).to(at::kFloat);
      const auto bad = [](const Tensor& t) { return t.isfinite().logical_not(); };
      const std::optional<double> none;
      const Tensor result = Forward::call(on_cuda(input), size(grad), mode, none, none).cpu();
      EXPECT_TRUE(bad(result).equal(at::matmul(at::matmul(y, bad(input).to(at::kFloat)), x.t()).gt(0))) << mode;
      const Tensor grad_input = Backward::call(on_cuda(grad), size(input), mode, none, none).cpu();
      EXPECT_TRUE(bad(grad_input).equal(at::matmul(at::matmul(y.t(), bad(grad).to(at::kFloat)), x).gt(0))) << mode;
    }
  }
}

TEST_P(CudaUpsample, ManyPixelsOfChannelsLast) {
  for (const int64_t channels : {24, 7}) {  // with and without vector accesses
    const auto images = [&](int64_t height, int64_t width) {
      return at::randn({1, height, width, channels}, at::kDouble).to(GetParam().narrow).permute({0, 3, 1, 2});
    };
    const Tensor input = images(22 * rows_for_many_blocks, 172), grad = images(44 * rows_for_many_blocks, 344);
    check(input, grad, "half_pixel");
    check(grad, input, "half_pixel");
  }
}

// Offsets within a row that need 64 bits, as far as a small allocation can have them.
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
