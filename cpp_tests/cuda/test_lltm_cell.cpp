#include "cuda_testing.h"
#include "ops/lltm_cell/schema.h"

namespace {

using namespace cppcuda::testing;
using cppcuda::ops::lltm_cell::Backward;
using cppcuda::ops::lltm_cell::Cell;
using cppcuda::ops::lltm_cell::Forward;

class CudaLltmCell : public ::testing::TestWithParam<Dtypes> {
 protected:
  void SetUp() override { at::manual_seed(0); }

  Tensor random(at::IntArrayRef sizes) { return (at::randn(sizes, at::kDouble) * 0.5).to(GetParam().narrow); }
  Tensor random_state(at::IntArrayRef sizes) { return (at::randn(sizes, at::kDouble) * 0.5).to(GetParam().wide); }

  struct Reference {
    Tensor gates, hy, cy;
  };

  static Reference reference(const Tensor& gates, const Tensor& cx) {
    const auto g = gates.chunk(3, -1);
    const Tensor cy = cx + at::elu(g[2]) * at::sigmoid(g[0]);
    return {gates, at::tanh(cy) * at::sigmoid(g[1]), cy};
  }

  void check_forward(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx,
                     const Tensor& cx) {
    const auto [hy, cy] = Forward::call(on_cuda(input), on_cuda(weight), on_cuda(bias), on_cuda(hx), on_cuda(cx));
    const Tensor x = at::cat({hx, input}, -1).to(at::kDouble);
    const auto [gates, expected_hy, expected_cy] =
        reference(at::matmul(x, weight.to(at::kDouble).transpose(-1, -2)) + bias.to(at::kDouble).unsqueeze(-2),
                  cx.to(at::kDouble));
    const double tolerance = 4 * GetParam().tolerance;  // the gates are rounded too
    EXPECT_EQ(hy.scalar_type(), input.scalar_type());
    EXPECT_EQ(cy.scalar_type(), cx.scalar_type());
    EXPECT_TRUE(close(hy.cpu(), expected_hy, tolerance));
    EXPECT_TRUE(close(cy.cpu(), expected_cy, tolerance));
    const auto all = Cell::call(on_cuda(input), on_cuda(weight), on_cuda(bias), on_cuda(hx), on_cuda(cx));
    EXPECT_TRUE(at::equal(std::get<0>(all).cpu(), hy.cpu()));
    EXPECT_TRUE(close(std::get<2>(all).cpu(), gates, tolerance));
  }

  // The pointwise part: d_cx, and d_gates as the gradient of a bias of one row.
  void check_backward(const Tensor& gates, const Tensor& cx, const Tensor& grad_hy, const Tensor& grad_cy,
                      const Tensor& grad_gates) {
    auto given = [](const Tensor& t) { return t.defined() ? std::optional(on_cuda(t)) : std::nullopt; };
    const auto result =
        Backward::call(given(grad_hy), given(grad_cy), given(grad_gates), on_cuda(gates), std::nullopt, std::nullopt,
                       std::nullopt, on_cuda(cx), c10::List<bool>({false, false, true, false, true}));
    const Tensor g = gates.to(at::kDouble), c = cx.to(at::kDouble);
    const auto part = g.chunk(3, -1);
    const Tensor i = at::sigmoid(part[0]), o = at::sigmoid(part[1]), t = at::tanh(c + at::elu(part[2]) * i);
    const Tensor dh = grad_hy.defined() ? grad_hy.to(at::kDouble) : at::zeros_like(c);
    const Tensor by_cy = (grad_cy.defined() ? grad_cy.to(at::kDouble) : at::zeros_like(c)) + dh * o * (1 - t * t);
    Tensor d_gates = at::cat({by_cy * at::elu(part[2]) * i * (1 - i), dh * t * o * (1 - o),
                              by_cy * i * at::where(part[2] > 0, at::ones_like(i), at::exp(part[2]))},
                             -1);
    if (grad_gates.defined()) d_gates = d_gates + grad_gates.to(at::kDouble);
    const double tolerance = 2 * GetParam().tolerance;
    EXPECT_TRUE(close(std::get<2>(result).cpu(), d_gates.sum(-2), tolerance * static_cast<double>(cx.size(-2))));
    EXPECT_TRUE(close(std::get<4>(result).cpu(), by_cy, tolerance));
  }
};

TEST_P(CudaLltmCell, Forward) {
  for (const auto& [rows, input, size] :
       {std::array{1, 1, 1}, {5, 3, 7}, {40, 4, 16}, {2, 8, 300}, {3, 0, 8}, {0, 2, 5}, {4, 2, 0}, {16, 32, 128}}) {
    SCOPED_TRACE(::testing::Message() << rows << ", " << input << ", " << size);
    check_forward(random({rows, input}), random({3 * size, size + input}), random({3 * size}), random({rows, size}),
                  random_state({rows, size}));
  }
  // Groups, as vmap over everything makes them.
  check_forward(random({3, 4, 2}), random({3, 24, 10}), random({3, 24}), random({3, 4, 8}), random_state({3, 4, 8}));
}

TEST_P(CudaLltmCell, ForwardAnyLayout) {
  for (const Layout layout : layouts) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    check_forward(in_layout(random({6, 3}), layout), in_layout(random({48, 19}), layout), random({48}),
                  in_layout(random({6, 16}), layout), in_layout(random_state({6, 16}), layout));
  }
}

TEST_P(CudaLltmCell, Backward) {
  for (const auto& [rows, size] : {std::array{1, 1}, {5, 7}, {40, 16}, {2, 300}, {9, 8}}) {
    for (const int given : {1, 2, 3, 5, 6, 7}) {
      SCOPED_TRACE(::testing::Message() << rows << ", " << size << ", gradients " << given);
      check_backward(random({rows, 3 * size}), random_state({rows, size}), given & 1 ? random({rows, size}) : Tensor(),
                     given & 2 ? random_state({rows, size}) : Tensor(),
                     given & 4 ? random({rows, 3 * size}) : Tensor());
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

INSTANTIATE_TEST_SUITE_P(All, CudaLltmCell, ::testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
