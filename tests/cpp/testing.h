#pragma once

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>

namespace cppcuda::testing {

// The message of the error that a call throws, without the backtrace.
template <class F>
std::string error_of(F call) {
  try {
    call();
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  }
  return "no error";
}

// Checks that the sizes are equal and that |actual - expected| <= tolerance * (1 + |expected|) in float64. Strides and
// dtypes may differ.
inline ::testing::AssertionResult close(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  if (actual.sizes() != expected.sizes()) {
    return ::testing::AssertionFailure() << "sizes " << actual.sizes() << ", expected " << expected.sizes();
  }
  const at::Tensor a = actual.detach().to(at::kDouble), e = expected.detach().to(at::kDouble);
  if (at::allclose(a, e, tolerance, tolerance)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "differs by up to " << (a - e).abs().max().item<double>();
}

// A tensor without memory on a device that need not exist, which is enough for the dispatcher to choose a kernel.
inline at::Tensor on_device(c10::DeviceType device, at::IntArrayRef sizes) {
  const auto key = c10::computeDispatchKey(at::kFloat, at::kStrided, c10::Device(device, 0));
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(c10::DispatchKeySet(key), caffe2::TypeMeta::Make<float>(),
                                                          c10::Device(device, 0));
  t.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return t;
}

}  // namespace cppcuda::testing
