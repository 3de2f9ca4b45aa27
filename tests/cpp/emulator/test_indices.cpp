// A kernel stops at an index that the table does not have. On a GPU no other test of the process could follow; there,
// test_cuda.py checks it.

#include <ATen/ATen.h>
#include <cppcuda/cppcuda.h>
#include <gtest/gtest.h>

#include <string>

#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::testing::error_of;

TEST(Indices, OutOfRangeStopTheKernel) {
  const Tensor table = at::ones({5, 2}).to(at::kCUDA), points = at::zeros({3, 3}).to(at::kCUDA);
  for (const auto dtype : {at::kInt, at::kLong}) {
    for (const int64_t index : {5, -2}) {
      Tensor corners = at::zeros({3, 8}, dtype);
      const auto call = [&] { cppcuda::trilinear_indexed(table, corners.to(at::kCUDA), points); };
      EXPECT_EQ(error_of(call), "no error");
      corners[1][6] = index;
      EXPECT_NE(
          error_of(call).find("trilinear_indexed: corners must be in [-1, V); thread (1, 0, 0) of block (0, 0, 0)"),
          std::string::npos)
          << error_of(call);
    }
  }
}

}  // namespace
