#include "cuda_testing.h"
#include "lltm_testing.h"
#include "ops/lltm_cell/op.h"

namespace {

using namespace cppcuda::testing;
using cppcuda::ops::lltm_cell::Backward;
using cppcuda::ops::lltm_cell::Cell;
using cppcuda::ops::lltm_cell::Forward;

class CudaLltmCell : public ::testing::TestWithParam<Dtypes> {
 protected:
  Tensor random(at::IntArrayRef sizes) { return (at::randn(sizes, at::kDouble) * 0.5).to(GetParam().narrow); }
  Tensor random_state(at::IntArrayRef sizes) { return (at::randn(sizes, at::kDouble) * 0.5).to(GetParam().wide); }

  void check_forward(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx,
                     const Tensor& cx) {
    const auto [hy, cy] = Forward::call(on_cuda(input), on_cuda(weight), on_cuda(bias), on_cuda(hx), on_cuda(cx));
    const Tensor gates =
        reference_gates(input.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble), hx.to(at::kDouble));
    const auto [expected_hy, expected_cy] = reference_cell(gates, cx.to(at::kDouble));
    const double tolerance = 4 * GetParam().tolerance;  // the gates are rounded too
    EXPECT_EQ(hy.scalar_type(), input.scalar_type());
    EXPECT_EQ(cy.scalar_type(), cx.scalar_type());
    EXPECT_TRUE(close(hy.cpu(), expected_hy, tolerance));
    EXPECT_TRUE(close(cy.cpu(), expected_cy, tolerance));
    const auto all = Cell::call(on_cuda(input), on_cuda(weight), on_cuda(bias), on_cuda(hx), on_cuda(cx));
    EXPECT_TRUE(at::equal(std::get<0>(all).cpu(), hy.cpu()));
    EXPECT_TRUE(close(std::get<2>(all).cpu(), gates, tolerance));
  }

  // Returns d_gates and d_cx in float64.
  static std::pair<Tensor, Tensor> pointwise_backward(const Tensor& gates, const Tensor& cx, const Tensor& grad_hy,
                                                      const Tensor& grad_cy, const Tensor& grad_gates) {
    const Tensor g = gates.to(at::kDouble), c = cx.to(at::kDouble);
    const auto part = g.chunk(3, -1);
    const Tensor i = at::sigmoid(part[0]), o = at::sigmoid(part[1]), t = at::tanh(c + at::elu(part[2]) * i);
    const Tensor dh = grad_hy.defined() ? grad_hy.to(at::kDouble) : at::zeros_like(c);
    const Tensor total_grad_cy =
        (grad_cy.defined() ? grad_cy.to(at::kDouble) : at::zeros_like(c)) + dh * o * (1 - t * t);
    Tensor d_gates = at::cat({total_grad_cy * at::elu(part[2]) * i * (1 - i), dh * t * o * (1 - o),
                              total_grad_cy * i * at::where(part[2] > 0, at::ones_like(i), at::exp(part[2]))},
                             -1);
    if (grad_gates.defined()) d_gates = d_gates + grad_gates.to(at::kDouble);
    return {d_gates, total_grad_cy};
  }

  static std::optional<Tensor> given(const Tensor& t) { return t.defined() ? std::optional(on_cuda(t)) : std::nullopt; }

  // Checks the pointwise part: d_cx, and d_gates summed over the rows.
  void check_backward(const Tensor& gates, const Tensor& cx, const Tensor& grad_hy, const Tensor& grad_cy,
                      const Tensor& grad_gates) {
    const auto result =
        Backward::call(given(grad_hy), given(grad_cy), given(grad_gates), on_cuda(gates), std::nullopt, std::nullopt,
                       std::nullopt, on_cuda(cx), c10::List<bool>({false, false, true, false, true}));
    const auto [d_gates, d_cx] = pointwise_backward(gates, cx, grad_hy, grad_cy, grad_gates);
    const double tolerance = 2 * GetParam().tolerance;
    EXPECT_TRUE(close(std::get<2>(result).cpu(), d_gates.sum(-2), tolerance * static_cast<double>(cx.size(-2))));
    EXPECT_TRUE(close(std::get<4>(result).cpu(), d_cx, tolerance));
  }

  // Checks those of the five gradients that `mask` selects.
  void check_gradients(int64_t rows, int64_t inputs, int64_t size, Layout layout, std::initializer_list<bool> mask) {
    SCOPED_TRACE(::testing::Message() << rows << ", " << inputs << ", " << size << ", "
                                      << ::testing::PrintToString(layout) << ", " << ::testing::PrintToString(mask));
    auto lay = [&](const Tensor& t) { return in_layout(t, layout); };
    const Tensor gates = lay(random({rows, 3 * size})), input = lay(random({rows, inputs}));
    const Tensor weight = lay(random({3 * size, size + inputs})), hx = lay(random({rows, size}));
    const Tensor cx = lay(random_state({rows, size})), grad_hy = lay(random({rows, size})),
                 grad_cy = lay(random_state({rows, size}));
    const auto result = cppcuda::kit::to_array(Backward::call(given(grad_hy), given(grad_cy), std::nullopt,
                                                              on_cuda(gates), given(input), given(weight), given(hx),
                                                              on_cuda(cx), c10::List<bool>(mask)));
    const auto [d_gates, d_cx] = pointwise_backward(gates, cx, grad_hy, grad_cy, {});
    const Tensor w = weight.to(at::kDouble), x = at::cat({hx, input}, -1).to(at::kDouble);
    const Tensor d_x = at::matmul(d_gates, w);
    const Tensor expected[] = {d_x.narrow(-1, size, inputs), at::matmul(d_gates.t(), x), d_gates.sum(0),
                               d_x.narrow(-1, 0, size), d_cx};
    for (size_t i = 0; i < 5; ++i) {
      if (!mask.begin()[i]) continue;
      // The gradients are sums over rows or over gates.
      EXPECT_TRUE(close(result[i].cpu(), expected[i], 8 * GetParam().tolerance)) << i;
    }
  }
};

TEST_P(CudaLltmCell, Forward) {
  for (const auto& [rows, input, size] : {std::array{1, 1, 1},
                                          {5, 3, 7},
                                          {40, 4, 16},
                                          {2, 8, 300},
                                          {3, 0, 8},
                                          {0, 2, 5},
                                          {4, 2, 0},
                                          {16, 32, 128},
                                          {60, 64, 64}}) {
    SCOPED_TRACE(::testing::Message() << rows << ", " << input << ", " << size);
    check_forward(random({rows, input}), random({3 * size, size + input}), random({3 * size}), random({rows, size}),
                  random_state({rows, size}));
  }
  // Groups, as vmap over all arguments produces them.
  check_forward(random({3, 4, 2}), random({3, 24, 10}), random({3, 24}), random({3, 4, 8}), random_state({3, 4, 8}));
}

TEST_P(CudaLltmCell, ForwardAnyLayout) {
  for (const Layout layout : layouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    check_forward(in_layout(random({6, 3}), layout), in_layout(random({48, 19}), layout), random({48}),
                  in_layout(random({6, 16}), layout), in_layout(random_state({6, 16}), layout));
  }
}

// A single group is small enough for one kernel; several are not.
TEST_P(CudaLltmCell, Backward) {
  for (const auto& [rows, size] : {std::array{1, 1}, {5, 7}, {40, 16}, {2, 300}}) {
    for (const int given : {1, 2, 3, 5, 6, 7}) {
      for (const bool grouped : {false, true}) {
        SCOPED_TRACE(::testing::Message() << rows << ", " << size << ", gradients " << given << ", " << grouped);
        auto sizes = [&](int64_t columns) {
          std::vector<int64_t> s{rows, columns};
          if (grouped) s.insert(s.begin(), 2);
          return s;
        };
        check_backward(random(sizes(3 * size)), random_state(sizes(size)), given & 1 ? random(sizes(size)) : Tensor(),
                       given & 2 ? random_state(sizes(size)) : Tensor(),
                       given & 4 ? random(sizes(3 * size)) : Tensor());
      }
    }
  }
}

TEST_P(CudaLltmCell, BackwardAnyLayout) {
  for (const Layout layout : layouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    auto lay = [&](const Tensor& t) { return in_layout(t, layout); };
    check_backward(lay(random({6, 48})), lay(random_state({6, 16})), lay(random({6, 16})), lay(random_state({6, 16})),
                   lay(random({6, 48})));
    check_backward(lay(random({2, 6, 48})), lay(random_state({2, 6, 16})), lay(random({2, 6, 16})),
                   lay(random_state({2, 6, 16})), lay(random({2, 6, 48})));
  }
}

TEST_P(CudaLltmCell, AllGradients) {
  for (const auto& [rows, inputs, size] :
       {std::array{1, 1, 1}, {5, 3, 7}, {16, 32, 128}, {3, 0, 8}, {9, 8, 16}, {33, 24, 8}, {2, 40, 300}}) {
    check_gradients(rows, inputs, size, Layout::contiguous, {true, true, true, true, true});
  }
  for (const Layout layout : layouts) {
    for (int only = 0; only < 5; ++only) {
      check_gradients(6, 16, 8, layout, {only == 0, only == 1, only == 2, only == 3, only == 4});
    }
  }
}

// Also sizes for which the kernels' loops are unrolled.
TEST_P(CudaLltmCell, AnySize) {
  const auto number = [](int64_t most) { return at::randint(1, most + 1, {1}).item<int64_t>(); };
  for (int k = 0; k < 12; ++k) {
    const int64_t rows = number(5), multiple = k % 2 ? 1 : 8;
    const int64_t inputs = number((k % 3 == 0 ? 400 : 60) / multiple) * multiple,
                  size = number((k % 3 == 1 ? 250 : 60) / multiple) * multiple;
    SCOPED_TRACE(::testing::Message() << rows << ", " << inputs << ", " << size);
    check_forward(random({rows, inputs}), random({3 * size, size + inputs}) * 0.2, random({3 * size}),
                  random({rows, size}), random_state({rows, size}));
    check_gradients(rows, inputs, size, k % 4 == 3 ? Layout::offset : Layout::contiguous,
                    {true, true, true, true, true});
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaLltmCell, ::testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
