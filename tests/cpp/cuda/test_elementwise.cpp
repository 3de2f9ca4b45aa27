#include <cppcuda/cppcuda.h>

#include <torch/autograd.h>

#include "cppcuda/kit/elementwise/family.h"
#include "cuda_testing.h"
#include "elementwise/family.h"

namespace {

using namespace cppcuda::testing;
namespace kit = cppcuda::kit;

struct Sigmoid {
  using Backward = cppcuda::kit::ElementwiseOps<cppcuda::elementwise::Sigmoid>::Backward;
  using DoubleBackward = cppcuda::kit::ElementwiseOps<cppcuda::elementwise::Sigmoid>::DoubleBackward;
  static Tensor call(const Tensor& x) { return cppcuda::sigmoid(x); }
  static Tensor& call_(Tensor& x) { return cppcuda::sigmoid_(x); }
  static Tensor reference(const Tensor& x) { return at::sigmoid(x); }
  // The gradient as a function of what backward reads: grad and the output.
  static Tensor gradient(const Tensor& grad, const Tensor& output) { return grad * output * (1 - output); }
};

struct QuickGelu {
  using Backward = cppcuda::kit::ElementwiseOps<cppcuda::elementwise::QuickGelu>::Backward;
  using DoubleBackward = cppcuda::kit::ElementwiseOps<cppcuda::elementwise::QuickGelu>::DoubleBackward;
  static Tensor call(const Tensor& x) { return cppcuda::quick_gelu(x); }
  static Tensor& call_(Tensor& x) { return cppcuda::quick_gelu_(x); }
  static Tensor reference(const Tensor& x) { return x * at::sigmoid(1.702 * x); }
  static Tensor gradient(const Tensor& grad, const Tensor& x) {
    const Tensor s = at::sigmoid(1.702 * x);
    return grad * (s + 1.702 * x * s * (1 - s));
  }
};

template <class Op>
class CudaElementwise : public ::testing::Test {
 protected:
  static void check(const Tensor& x, const Tensor& grad, double tolerance) {
    const at::NoGradGuard no_grad;
    const Tensor dx = on_cuda(x), exact = x.to(at::kDouble);
    const Tensor out = Op::call(dx);
    EXPECT_EQ(out.scalar_type(), x.scalar_type());
    EXPECT_TRUE(close(out.cpu(), Op::reference(exact), tolerance));
    EXPECT_TRUE(
        close(Op::Backward::call(on_cuda(grad), dx).cpu(), Op::gradient(grad.to(at::kDouble), exact), tolerance));
    check_double_backward(x, grad, tolerance);
    Tensor self = on_cuda(x);
    Op::call_(self);
    EXPECT_TRUE(at::equal(self.cpu(), out.cpu()));
  }

  // The direction is the gradient, too. torch differentiates Op::gradient in float64.
  static void check_double_backward(const Tensor& x, const Tensor& grad, double tolerance) {
    const Tensor exact = x.to(at::kDouble).requires_grad_(), exact_grad = grad.to(at::kDouble).requires_grad_();
    const auto expected = [&] {
      const at::AutoGradMode with_grad(true);
      return torch::autograd::grad({Op::gradient(exact_grad, exact)}, {exact_grad, exact}, {exact_grad.detach()});
    }();
    const Tensor dx = on_cuda(x), dgrad = on_cuda(grad);
    for (const auto& mask :
         {c10::List<bool>({true, true}), c10::List<bool>({true, false}), c10::List<bool>({false, true})}) {
      const auto actual = kit::to_array(Op::DoubleBackward::call(dgrad, dx, dgrad, mask));
      for (size_t o = 0; o < 2; ++o) {
        if (mask[o]) {
          EXPECT_TRUE(close(actual[o].cpu(), expected[o], tolerance));
        } else {
          EXPECT_EQ(actual[o].numel(), 0);
        }
      }
    }
    const auto alone = kit::to_array(Op::DoubleBackward::call(std::nullopt, dx, dgrad, c10::List<bool>({true, false})));
    EXPECT_TRUE(close(alone[0].cpu(), expected[0], tolerance));
  }
};
using Ops = ::testing::Types<Sigmoid, QuickGelu>;
TYPED_TEST_SUITE(CudaElementwise, Ops);

TYPED_TEST(CudaElementwise, AnySizeAndOffset) {
  for (const auto& types : all_dtypes) {
    if (types.narrow != types.wide) continue;
    for (const int64_t n : {0, 1, 2, 7, 8, 9, 255, 1000, 4099, 10000}) {
      for (const Layout layout : {Layout::contiguous, Layout::offset, Layout::half_aligned}) {
        SCOPED_TRACE(::testing::Message() << types.name << ", " << n << ", " << ::testing::PrintToString(layout));
        const Tensor x = in_layout((3 * at::randn({n}, at::kDouble)).to(types.narrow), layout);
        const Tensor grad = at::randn({n}, at::kDouble).to(types.narrow);
        this->check(x, grad, types.tolerance);
        this->check(x, in_layout(grad, layout), types.tolerance);
      }
    }
  }
}

TYPED_TEST(CudaElementwise, AnyStrides) {
  for (const auto& types : all_dtypes) {
    if (types.narrow != types.wide) continue;
    auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble).to(types.narrow); };
    const Tensor big = random({5, 6, 7, 8});
    for (const Tensor& x : {big.transpose(0, 2), big.slice(3, 0, 8, 2), big.slice(1, 1, 6, 2).permute({3, 1, 0, 2}),
                            random({5, 1, 7, 1}).expand({5, 6, 7, 8}), random({}).expand({2, 3}),
                            random({2, 3, 2, 2, 2, 2, 3}).permute({6, 0, 2, 4, 1, 3, 5})}) {
      SCOPED_TRACE(::testing::Message() << types.name << ", strides " << x.strides());
      if (!x.is_non_overlapping_and_dense()) {
        // An in-place call is an error if several elements share memory.
        const Tensor dx = on_cuda(x), grad = random(x.sizes());
        EXPECT_TRUE(close(TypeParam::call(dx).cpu(), TypeParam::reference(x.to(at::kDouble)), types.tolerance));
        EXPECT_TRUE(close(TypeParam::Backward::call(on_cuda(grad), dx).cpu(),
                          TypeParam::gradient(grad.to(at::kDouble), x.to(at::kDouble)), types.tolerance));
      } else {
        this->check(x, random(x.sizes()), types.tolerance);
      }
    }
  }
}

// The position of a number of 16 bits among all numbers of its dtype.
Tensor order(const Tensor& t) {
  const Tensor bits = t.view(at::kShort).to(at::kInt);
  return at::where(bits < 0, -bits.bitwise_and(0x7fff), bits);
}

// A result is the nearest number to the exact one, or for some of the 65,536 inputs the next one. The instructions take
// subnormal numbers of float32 for 0.
TYPED_TEST(CudaElementwise, EveryNumberOf16Bits) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const Tensor x = at::arange(-32768, 32768, at::kInt).to(at::kShort).view(dtype), exact = x.to(at::kDouble);
    const Tensor actual = TypeParam::call(on_cuda(x)).cpu();
    const Tensor expected =
        at::where(exact == -INFINITY, TypeParam::call(x).to(at::kDouble), TypeParam::reference(exact)).to(dtype);
    EXPECT_TRUE(at::equal(actual.isnan(), expected.isnan())) << dtype;
    const Tensor is_tiny = (actual.to(at::kDouble).abs() < 1e-36) & (expected.to(at::kDouble).abs() < 1e-36);
    const Tensor steps = (order(actual) - order(expected)).abs().masked_fill(is_tiny | expected.isnan(), 0);
    EXPECT_LE(steps.max().template item<int>(), 1) << dtype;
    EXPECT_LE((steps > 0).sum().template item<int64_t>(), 16) << dtype;
  }
}

}  // namespace
