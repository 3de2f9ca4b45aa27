// Runs the CUDA kernels in the emulator and compares them with the CPU kernels.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "emulator.h"
#include "ops/spherical_harmonics/math.h"
#include "ops/spherical_harmonics/op.h"
#include "ops/spherical_harmonics/params.h"

namespace {

using namespace sph::ops::spherical_harmonics;
using at::Tensor;

void expect_close(const Tensor& cuda, const Tensor& cpu) {
  const double tolerance = cpu.element_size() == 2 ? 2e-2 : cpu.element_size() == 4 ? 1e-4 : 1e-11;
  const Tensor actual = cuda.cpu().to(at::kDouble), expected = cpu.to(at::kDouble);
  const double size = expected.numel() == 0 ? 0 : expected.abs().max().item<double>();
  EXPECT_TRUE(at::allclose(actual, expected, tolerance, tolerance * size)) << cpu.dtype() << cpu.sizes();
}

// Calls f with tensors that are contiguous, transposed, and expanded along the batch, on the CPU and in the emulator.
template <class F>
void for_each_layout(std::vector<int64_t> sizes, at::ScalarType dtype, F f) {
  const Tensor plain = at::randn(sizes, at::kDouble).to(dtype);
  const Tensor turned = plain.transpose(1, -1).contiguous().transpose(1, -1);
  for (const Tensor& t : {plain, turned}) {
    f(t, t.to(at::kCUDA));
    f(t[0].expand(t.sizes()), t[0].to(at::kCUDA).expand(t.sizes()));
  }
}

void check(at::ScalarType dtype, int64_t degree) {
  const int64_t rows = 39, n = size(static_cast<int>(degree)), lower = size(static_cast<int>(degree - 1));
  const Tensor xyz = at::randn({2, rows, 3}, at::kDouble).to(dtype), cuda_xyz = xyz.to(at::kCUDA);
  for (const bool normalize : {false, true}) {
    for_each_layout({2, rows, 3}, dtype, [&](const Tensor& t, const Tensor& cuda) {
      expect_close(Forward::call(cuda, degree, normalize), Forward::call(t, degree, normalize));
    });
    for_each_layout({2, rows, n}, dtype, [&](const Tensor& t, const Tensor& cuda) {
      expect_close(Backward::call(cuda, cuda_xyz, degree, normalize), Backward::call(t, xyz, degree, normalize));
    });
  }
  for_each_layout({2, rows, lower}, dtype, [&](const Tensor& t, const Tensor& cuda) {
    expect_close(Partials::call(cuda, degree), Partials::call(t, degree));
  });
  for_each_layout({2, rows, 3, n}, dtype, [&](const Tensor& t, const Tensor& cuda) {
    expect_close(PartialsTransposed::call(cuda, degree), PartialsTransposed::call(t, degree));
  });
}

TEST(EmulatedSphericalHarmonics, EqualsTheCpu) {
  at::manual_seed(0);
  const at::NoGradGuard no_grad;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t degree : {1, 4}) check(dtype, degree);
  }
  check(at::kFloat, 0);
}

// Rows that do not fit into shared memory: of harmonics of high degree, or of any.
TEST(EmulatedSphericalHarmonics, LargeDegree) {
  at::manual_seed(0);
  const at::NoGradGuard no_grad;
  const Tensor xyz = at::randn({3, 3}, at::kDouble);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const Tensor t = xyz.to(dtype), grad = at::randn({3, size(max_degree)}, at::kDouble).to(dtype);
    const Tensor cuda = t.to(at::kCUDA), cuda_grad = grad.to(at::kCUDA);
    expect_close(Forward::call(cuda, max_degree, true), Forward::call(t, max_degree, true));
    expect_close(Backward::call(cuda_grad, cuda, max_degree, true), Backward::call(grad, t, max_degree, true));
  }
}

// Neighbouring threads read and write neighbouring values, so that a sector of 32 bytes belongs to one access.
TEST(EmulatedSphericalHarmonics, TouchesEachSectorOnce) {
  for (const int64_t degree : {1, 4, 10}) {
    const Tensor xyz = at::randn({64, 3}).to(at::kCUDA), output = Forward::call(xyz, degree, true);
    const auto sectors = [](const Tensor& t) { return static_cast<double>(t.numel() * t.element_size()) / 32; };
    const auto forward = cppcuda::emulator::counts_of([&] { Forward::call(xyz, degree, true); });
    const auto backward = cppcuda::emulator::counts_of([&] { Backward::call(output, xyz, degree, true); });
    EXPECT_EQ(static_cast<double>(forward.store_sectors) / sectors(output), 1) << degree;
    // A point is read in three accesses, and a long row begins and ends inside of a sector.
    EXPECT_LE(static_cast<double>(backward.load_sectors), sectors(output) * 1.5 + sectors(xyz) * 3) << degree;
  }
}

}  // namespace
