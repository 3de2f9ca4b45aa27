// Operators allocate only their outputs on the device. On a GPU, test_cuda.py checks this with torch's allocator.

#include <cppcuda/cppcuda.h>
#include <dlfcn.h>

#include "cppcuda/kit/elementwise/family.h"
#include "cuda/cuda_testing.h"
#include "elementwise/family.h"
#include "emulator.h"
#include "ops/grid_sample3d/op.h"
#include "ops/trilinear/op.h"
#include "ops/trilinear_indexed/op.h"
#include "ops/upsample_bilinear2d/op.h"

namespace {

using namespace cppcuda::testing;
using cppcuda::emulator::allocation_count;

template <class F>
size_t allocated(F call) {
  const size_t before = allocation_count();
  call();
  return allocation_count() - before;
}

// If torch's own CUDA kernels were in the process, these tests would not run the emulator's kernels.
TEST(Device, IsTheEmulatorAlone) { EXPECT_EQ(dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD), nullptr); }

TEST(DeviceMemory, ElementwiseOps) {
  using Backward = cppcuda::kit::ElementwiseOps<cppcuda::elementwise::QuickGelu>::Backward;
  const at::NoGradGuard no_grad;
  for (const Layout layout : layouts) {
    Tensor x = on_cuda(in_layout(at::randn({6, 8}), layout)), out = on_cuda(at::empty({6, 8}));
    EXPECT_EQ(allocated([&] { cppcuda::quick_gelu(x); }), 1u) << ::testing::PrintToString(layout);
    EXPECT_EQ(allocated([&] { Backward::call(x, x); }), 1u);
    EXPECT_EQ(allocated([&] { cppcuda::quick_gelu_(x); }), 0u);
    EXPECT_EQ(allocated([&] { cppcuda::quick_gelu_out(out, x); }), 0u);
  }
}

TEST(DeviceMemory, Trilinear) {
  using cppcuda::ops::trilinear::Backward;
  for (const Layout layout : layouts) {
    for (const int64_t features : {3, 8}) {
      auto make = [&](at::IntArrayRef sizes) { return on_cuda(in_layout(at::randn(sizes), layout)); };
      const Tensor feats = make({5, 8, features}), points = make({5, 3}), grad = make({5, features});
      auto backward = [&](bool need_feats, bool need_points) {
        return allocated([&] {
          Backward::call(grad, need_points ? std::optional(feats) : std::nullopt, points,
                         c10::List<bool>({need_feats, need_points}));
        });
      };
      EXPECT_EQ(allocated([&] { cppcuda::trilinear(feats, points); }), 1u) << ::testing::PrintToString(layout);
      EXPECT_EQ(backward(true, true), 2u);
      EXPECT_EQ(backward(true, false), 1u);
      EXPECT_EQ(backward(false, true), 1u);
    }
  }
}

TEST(DeviceMemory, Upsample) {
  using cppcuda::ops::upsample_bilinear2d::Backward;
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const Tensor x = on_cuda(at::randn({2, 8, 5, 7}).contiguous(format));
    EXPECT_EQ(allocated([&] { cppcuda::upsample_bilinear2d(x, {9, 10}); }), 1u);
    const std::vector<c10::SymInt> size{3, 4};
    const std::optional<double> none;
    EXPECT_EQ(allocated([&] { Backward::call(x, size, "half_pixel", none, none); }), 1u);
  }
}

TEST(DeviceMemory, TrilinearIndexed) {
  using cppcuda::ops::trilinear_indexed::Backward;
  const Tensor corners = on_cuda(at::randint(-1, 6, {5, 8}, at::kLong));
  for (const Layout layout : layouts) {
    auto make = [&](at::IntArrayRef sizes) { return on_cuda(in_layout(at::randn(sizes), layout)); };
    const Tensor table = make({6, 4}), points = make({5, 3}), grad = make({5, 4});
    auto backward = [&](bool need_table, bool need_points) {
      return allocated([&] {
        Backward::call(grad, need_points ? std::optional(table) : std::nullopt, corners, points,
                       std::vector<c10::SymInt>{6}, c10::List<bool>({need_table, need_points}));
      });
    };
    EXPECT_EQ(allocated([&] { cppcuda::trilinear_indexed(table, corners, points); }), 1u)
        << ::testing::PrintToString(layout);
    EXPECT_EQ(allocated([&] { cppcuda::trilinear_indexed_with_grad(table, corners, points); }), 2u);
    EXPECT_EQ(backward(true, true), 2u);
    EXPECT_EQ(backward(true, false), 1u);
    EXPECT_EQ(backward(false, true), 1u);
  }
}

TEST(DeviceMemory, GridSample3d) {
  using cppcuda::ops::grid_sample3d::Backward;
  const Tensor points = on_cuda(at::rand({5, 3})), grad = on_cuda(at::rand({5, 4}));
  const Tensor input = on_cuda(at::rand({2, 3, 2, 4}));
  EXPECT_EQ(allocated([&] { cppcuda::grid_sample3d(input, points); }), 1u);
  EXPECT_EQ(allocated([&] {
              Backward::call(grad, input, points, std::vector<c10::SymInt>{2, 3, 2}, "zeros", false,
                             c10::List<bool>({true, true}));
            }),
            2u);
}

}  // namespace
