#include <cppcuda/cppcuda.h>
#include "cppcuda/kit/autograd.h"
#include "cppcuda/kit/check.h"
#include "cppcuda/kit/cuda/driver_error.h"
#include "cppcuda/kit/cuda/launch_shape.h"
#include "cppcuda/kit/cuda/width.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/elementwise/arguments.h"
#include "cppcuda/kit/kernels.h"
#include "cppcuda/kit/math/divide.h"
#include "cppcuda/kit/op.h"
#include "cppcuda/kit/output.h"
#include "cppcuda/kit/vmap.h"
#include "testing.h"

#include <ATen/autocast_mode.h>
#include <c10/util/irange.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>
#include <limits>

namespace {

using at::Tensor;
using cppcuda::kit::OptionalTensor;
using cppcuda::testing::close;
using cppcuda::testing::error_of;
using cppcuda::testing::on_device;
namespace kit = cppcuda::kit;

// ---- check.h

// Checks one shape after another; returns "ok" or the error.
std::string shapes(std::initializer_list<std::pair<std::vector<int64_t>, kit::Pattern>> arguments) {
  kit::Checker check("op");
  const std::string error = error_of([&] {
    char name[] = "a";
    for (const auto& [sizes, pattern] : arguments) {
      check.shape(name, at::empty(sizes, at::kMeta), pattern);
      ++name[0];
    }
  });
  return error == "no error" ? "ok" : error;
}

TEST(Checker, NumbersAndLetters) {
  EXPECT_EQ(shapes({{{5, 8, 3}, "[N, 8, F]"}}), "ok");
  EXPECT_EQ(shapes({{{5, 12}, "[N, 12]"}}), "ok");
  EXPECT_EQ(shapes({{{0, 8, 0}, "[N, 8, F]"}}), "ok");
  EXPECT_EQ(shapes({{{5, 7, 3}, "[N, 8, F]"}}), "op: a must be [N, 8, F], got [5, 7, 3]");
  EXPECT_EQ(shapes({{{5, 1}, "[N, 12]"}}), "op: a must be [N, 12], got [5, 1]");
  EXPECT_EQ(shapes({{{5, 8}, "[N, 8, F]"}}), "op: a must be [N, 8, F], got [5, 8]");
  EXPECT_EQ(shapes({{{}, "[N]"}}), "op: a must be [N], got []");
}

TEST(Checker, ALetterIsOneSizeEverywhere) {
  EXPECT_EQ(shapes({{{4, 4}, "[N, N]"}}), "ok");
  EXPECT_EQ(shapes({{{4, 5}, "[N, N]"}}), "op: a must be [N, N] with N = 4, got [4, 5]");
  EXPECT_EQ(shapes({{{4, 5}, "[N, F]"}, {{5, 4}, "[F, N]"}}), "ok");
  EXPECT_EQ(shapes({{{4, 5}, "[N, F]"}, {{5, 5}, "[F, N]"}}), "op: b must be [F, N] with N = 4, got [5, 5]");
}

TEST(Checker, SumsOfLettersAndNumbers) {
  EXPECT_EQ(shapes({{{3}, "[L]"}, {{5, 16}, "[N, LL + 2L + 1]"}}), "ok");
  EXPECT_EQ(shapes({{{3}, "[L]"}, {{5, 15}, "[N, LL + 2L + 1]"}}),
            "op: b must be [N, LL + 2L + 1] with L = 3, got [5, 15]");
}

TEST(Checker, OptionalFirstDim) {
  EXPECT_EQ(shapes({{{4, 3}, "[B?, N, 3]"}}), "ok");
  EXPECT_EQ(shapes({{{2, 4, 3}, "[B?, N, 3]"}}), "ok");
  EXPECT_EQ(shapes({{{4}, "[B?, N, 3]"}}), "op: a must be [N, 3] or [B, N, 3], got [4]");
  EXPECT_EQ(shapes({{{4, 2}, "[B?, N, 3]"}}), "op: a must be [N, 3] or [B, N, 3], got [4, 2]");
  // If the first argument has the optional dim, all arguments must have it; otherwise none may.
  EXPECT_EQ(shapes({{{2, 4, 3}, "[B?, N, 3]"}, {{2, 4}, "[B?, N]"}}), "ok");
  EXPECT_EQ(shapes({{{2, 4, 3}, "[B?, N, 3]"}, {{4}, "[B?, N]"}}), "op: b must be [B, N], got [4]");
  EXPECT_EQ(shapes({{{4, 3}, "[B?, N, 3]"}, {{2, 4}, "[B?, N]"}}), "op: b must be [N], got [2, 4]");
  EXPECT_EQ(shapes({{{2, 4, 3}, "[B?, N, 3]"}, {{3, 4}, "[B?, N]"}}), "op: b must be [B, N] with B = 2, got [3, 4]");
}

TEST(Checker, SizesForOutputs) {
  for (const bool batched : {false, true}) {
    kit::Checker check("op");
    check.shape("a", batched ? at::empty({2, 4, 5}, at::kMeta) : at::empty({4, 5}, at::kMeta), "[B?, N, F]");
    const auto sizes = check.sizes("[B?, F, 8, N]");
    const std::vector<int64_t> expected = batched ? std::vector<int64_t>{2, 5, 8, 4} : std::vector<int64_t>{5, 8, 4};
    EXPECT_EQ(std::vector<c10::SymInt>(sizes.begin(), sizes.end()),
              std::vector<c10::SymInt>(expected.begin(), expected.end()));
  }
}

TEST(Checker, RefusesPatternsThatItDoesNotKnow) {
  const auto mistake = [](std::string_view pattern) {
    kit::Mistake result;
    kit::Pattern(pattern, result);
    return std::string(result.text);
  };
  EXPECT_EQ(mistake("[B?, 3S, LC, S + I, LL + 2L + 1, 8]"), "");
  for (const auto& [pattern, part] : {std::pair("[N, 2*F]", "*"), {"[N, f]", "f"}}) {
    EXPECT_EQ(mistake(pattern), std::string(pattern) + " has the part " + part +
                                    "; a dim is a number, a capital letter, a product such as 3S or LC, D/2, or a sum "
                                    "such as S + 1");
  }
  for (const char* pattern : {"[N, B?]", "[?]", "[N, ?]"}) {
    EXPECT_EQ(mistake(pattern), std::string(pattern) + " has a ? that does not follow the first dim");
  }
  EXPECT_EQ(mistake("[N, HWC]"), "[N, HWC] has a product of more than 2 letters");
  EXPECT_EQ(mistake("[A, B, C, D, E, F, G, H]"), "");
  EXPECT_EQ(mistake("[A, B, C, D, E, F, G, H, I]"), "[A, B, C, D, E, F, G, H, I] has more than 8 dims");
  EXPECT_EQ(mistake("[A + B + C + D]"), "[A + B + C + D] has a sum of more than 3 terms");
  kit::Checker check("op");
  check.shape("a", at::empty({4}, at::kMeta), "[N]");
  EXPECT_NE(error_of([&] { check.sizes("[N, G]"); }).find("no size is known of G"), std::string::npos);
}

TEST(Checker, QuotientsAndDifferences) {
  kit::Checker check("op");
  check.shape("x", at::empty({4, 6}, at::kMeta), "[N - 1, D]");
  check.shape("y", at::empty({3, 9, 1}, at::kMeta), "[D/2, 3D/2, 2N - D/2 - 6]");
  EXPECT_EQ(check.sizes("[D/3, N - 5]"), (c10::SymDimVector{2, 0}));
  EXPECT_EQ(error_of([&] { check.shape("y", at::empty({2}, at::kMeta), "[D/2]"); }),
            "op: y must be [D/2] with D = 6, got [2]");
  EXPECT_EQ(error_of([&] { check.shape("y", at::empty({1}, at::kMeta), "[D/4]"); }),
            "op: y must be [D/4] with D = 6, which is not divisible by 4");
  EXPECT_EQ(error_of([&] { check.sizes("[N/2]"); }),
            "op: the output must be [N/2] with N = 5, which is not divisible by 2");
  EXPECT_EQ(error_of([&] { check.sizes("[N - D]"); }),
            "op: the output must be [N - D] with N = 5, D = 6, which is negative");
}

TEST(Checker, FloatingTensors) {
  const kit::Checker check("op");
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    EXPECT_NO_THROW(check.floating("a", at::empty({1}, dtype)));
  }
  auto error = [&](const Tensor& t) { return error_of([&] { check.floating("a", t); }); };
  EXPECT_EQ(error(at::empty({1}, at::kInt)), "op: a must be of dtype float64, float32, float16 or bfloat16, got int32");
  EXPECT_EQ(error(at::empty({1}, at::kBool)), "op: a must be of dtype float64, float32, float16 or bfloat16, got bool");
  EXPECT_EQ(error(at::empty({1}, at::kFloat8_e4m3fn)),
            "op: a must be of dtype float64, float32, float16 or bfloat16, got float8_e4m3fn");
  EXPECT_EQ(error(at::ones({2, 2}).to_sparse()), "op: a must be a dense (strided) tensor, got layout Sparse");
  EXPECT_EQ(error(at::ones({2, 2}).to_sparse_csr()), "op: a must be a dense (strided) tensor, got layout SparseCsr");
  EXPECT_EQ(error({}), "op: a must be a Tensor, got an undefined Tensor");
}

TEST(Checker, DtypesAndDevicesOfTwoArguments) {
  const kit::Checker check("op");
  const Tensor f64 = at::empty({1}, at::kDouble), f32 = at::empty({1}), f16 = at::empty({1}, at::kHalf),
               b16 = at::empty({1}, at::kBFloat16);
  EXPECT_NO_THROW(check.same_dtype("a", f32, "b", f32));
  EXPECT_EQ(error_of([&] { check.same_dtype("a", f32, "b", f16); }),
            "op: a must be of dtype float16, the dtype of b, got float32");
  for (const auto& [a, b] : {std::pair{f64, f64}, {f32, f32}, {f16, f16}, {f32, f16}, {f32, b16}}) {
    EXPECT_NO_THROW(check.same_or_wider_dtype("a", a, "b", b));
  }
  for (const auto& [a, b] : {std::pair{f64, f32}, {f32, f64}, {f16, f32}, {f16, b16}, {f64, f16}}) {
    EXPECT_NE(error_of([&] { check.same_or_wider_dtype("a", a, "b", b); }), "no error");
  }
  EXPECT_EQ(error_of([&] { check.same_or_wider_dtype("a", f16, "b", b16); }),
            "op: a must be of dtype bfloat16, the dtype of b, or float32, got float16");
  EXPECT_NO_THROW(check.same_device("a", f32, "b", f64));
  EXPECT_EQ(error_of([&] { check.same_device("a", f32, "b", f32.to(at::kMeta)); }),
            "op: a must be on meta, the device of b, got cpu");
}

TEST(Checker, MasksAndOptionalArguments) {
  const kit::Checker check("op");
  EXPECT_EQ(check.mask<3>("m", c10::List<bool>({true, false, true})), (std::array<bool, 3>{true, false, true}));
  EXPECT_EQ(error_of([&] { check.mask<2>("m", c10::List<bool>({true})); }), "op: m must have 2 entries, got 1");
  EXPECT_EQ(error_of([&] { check.required("a", std::nullopt, "here"); }), "op: a must be a Tensor here, got None");
  EXPECT_EQ(error_of([&] { check.required("a", Tensor(), "here"); }), "op: a must be a Tensor here, got None");
  EXPECT_EQ(error_of([&] { kit::detail::check_defined("op", "a", {}); }),
            "op: a must be a Tensor, got an undefined Tensor");
}

// ---- op.h

TEST(Op, TakesTensorsOutOfArguments) {
  const Tensor a = at::ones({1}), b = at::ones({2});
  const auto tensors =
      kit::detail::tensor_arguments(a, 1.5, OptionalTensor(b), std::string_view("x"), OptionalTensor());
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_TRUE(tensors[0].is_same(a) && tensors[1].is_same(b) && !tensors[2].defined());
  static_assert(kit::detail::is_tensor_argument<const Tensor&> && kit::detail::is_tensor_argument<OptionalTensor>);
  static_assert(!kit::detail::is_tensor_argument<double> && !kit::detail::is_tensor_argument<at::TensorList>);
}

TEST(Op, TurnsResultsIntoArraysAndBack) {
  const Tensor a = at::ones({1}), b = at::ones({2});
  static_assert(kit::detail::tensor_count<Tensor> == 1 && kit::detail::tensor_count<std::tuple<Tensor, Tensor>> == 2);
  EXPECT_TRUE(kit::to_array(a)[0].is_same(a));
  const auto both = kit::to_array(std::make_tuple(a, b));
  EXPECT_TRUE(both[0].is_same(a) && both[1].is_same(b));
  EXPECT_TRUE((kit::detail::from_array<Tensor, 1>({a}).is_same(a)));
  EXPECT_TRUE(std::get<1>(kit::detail::from_array<std::tuple<Tensor, Tensor>, 2>({a, b})).is_same(b));
  EXPECT_FALSE(kit::to_optional({}).has_value());
  EXPECT_TRUE(kit::to_optional(a)->is_same(a));
  EXPECT_EQ(kit::to_list(std::array<bool, 2>{true, false}).vec(), (std::vector<bool>{true, false}));
}

TEST(Op, TypesDifferByName) {
  static_assert(!std::is_same_v<kit::Op<"a::f", Tensor(const Tensor&)>, kit::Op<"b::f", Tensor(const Tensor&)>>);
  static_assert(std::is_same_v<kit::Op<"a::f", Tensor(const Tensor&)>, kit::Op<"a::f", Tensor(const Tensor&)>>);
  EXPECT_STREQ((kit::Op<"a::f", Tensor(const Tensor&)>::name), "a::f");
  EXPECT_NE(error_of([] { kit::Op<"no::such_op", Tensor(const Tensor&)>::call(at::ones({1})); }), "no error");
}

// ---- output.h, width.h, dtype.h, autograd.h: the small pieces

TEST(Output, IsAllocatedContiguous) {
  const Tensor like = at::empty({3, 2}, at::kHalf).t();
  const auto outputs = kit::allocate(std::array<kit::Output, 2>{{{{4, 5}, like.options()}, kit::placeholder(like)}});
  EXPECT_EQ(outputs[0].sizes(), at::IntArrayRef({4, 5}));
  EXPECT_TRUE(outputs[0].is_contiguous());
  EXPECT_EQ(outputs[0].scalar_type(), at::kHalf);
  EXPECT_EQ(outputs[1].sizes(), at::IntArrayRef({0}));
  EXPECT_EQ(outputs[1].scalar_type(), at::kHalf);
}

TEST(Width, KnowsAlignment) {
  alignas(16) float data[8] = {};
  EXPECT_TRUE(kit::is_aligned16(data, {}));
  EXPECT_TRUE(kit::is_aligned16(data, {4, 0, -8}));
  EXPECT_FALSE(kit::is_aligned16(data + 1, {}));
  EXPECT_FALSE(kit::is_aligned16(data, {4, 2}));
  EXPECT_TRUE(kit::is_aligned16<float>(nullptr, {}));
}

TEST(Dtype, VisitsTheTypeOfADtype) {
  size_t size = 0;
  auto visit = [&](at::ScalarType dtype) {
    kit::visit_dtype(dtype, [&]<class T>(std::type_identity<T>) { size = sizeof(T); });
    return size;
  };
  EXPECT_EQ(visit(at::kDouble), 8u);
  EXPECT_EQ(visit(at::kFloat), 4u);
  EXPECT_EQ(visit(at::kHalf), 2u);
  EXPECT_EQ(visit(at::kBFloat16), 2u);
  EXPECT_NE(error_of([&] { visit(at::kInt); }), "no error");
}

TEST(Autograd, AttributesAreOwned) {
  std::vector<c10::SymInt> sizes{2, 3};
  std::string mode = "left";
  std::vector<std::string> names{"a", "b"};
  struct Formula {
    using Op = kit::Op<"kit_test::none", Tensor(const Tensor&)>;
  };
  const auto attributes = kit::detail::attributes_of<Formula>(
      Tensor(), c10::SymIntArrayRef(sizes), std::string_view(mode), OptionalTensor(), std::optional<double>(1.5),
      c10::List<bool>({true, false}), at::ArrayRef<std::string>(names), at::OptionalIntArrayRef(),
      at::Device(at::kCPU));
  sizes[0] = 7;
  names[1] = "c";
  mode[0] = 'x';
  EXPECT_EQ(attributes, std::make_tuple(std::vector<c10::SymInt>{2, 3}, std::string("left"), std::optional<double>(1.5),
                                        std::vector<bool>{true, false}, std::vector<std::string>{"a", "b"},
                                        std::optional<std::vector<int64_t>>(), std::optional<at::Device>(at::kCPU)));
  const auto is_requested = [&](size_t o) {
    return std::apply([&](const auto&... a) { return kit::is_requested(o, a...); }, attributes);
  };
  EXPECT_TRUE(is_requested(0));
  EXPECT_FALSE(is_requested(1));
  EXPECT_TRUE(kit::is_requested(1, 1.5));
}

TEST(Autograd, AnUndefinedSumIsZero) {
  Tensor sum;
  kit::accumulate(sum, at::ones({2}));
  kit::accumulate(sum, at::ones({2}));
  EXPECT_TRUE(at::equal(sum, at::full({2}, 2.)));
}

// ---- whole kernels: three ops of this file double an input [N], two of them in a wrong way

kit::Output twice_shape(const Tensor& input) {
  kit::Checker check("twice");
  check.floating("input", input);
  check.shape("input", input, "[N]");
  return {check.sizes("[N]"), input.options()};
}

template <class TheOp>
struct Twice {
  using Op = TheOp;
  static constexpr auto reads = kit::reads_nothing<Op>();
  static std::array<Tensor, 1> vjp(const std::array<Tensor, 1>& grads, const kit::Saved<Twice>&,
                                   const std::array<bool, 1>&) {
    return {grads[0] * 2};
  }
  static std::array<Tensor, 1> jvp(const std::array<Tensor, 1>& tangents, const kit::Saved<Twice>&) {
    return {tangents[0] * 2};
  }
};

using Good = kit::Op<"kit_test::twice", Tensor(const Tensor& input)>;
using ReturnsInput = kit::Op<"kit_test::returns_input", Tensor(const Tensor& input)>;
using ReturnsMemory = kit::Op<"kit_test::returns_memory", Tensor(const Tensor& input)>;

Tensor twice(const Tensor& input) { return input + input; }
Tensor returns_input(const Tensor& input) { return input.contiguous(); }
Tensor returns_memory(const Tensor& input) { return input.slice(0, 0); }

TORCH_LIBRARY(kit_test, m) {
  kit::define<Good, twice_shape>(m, "twice(Tensor input) -> Tensor");
  kit::define<ReturnsInput, twice_shape>(m, "returns_input(Tensor input) -> Tensor");
  kit::define<ReturnsMemory, twice_shape>(m, "returns_memory(Tensor input) -> Tensor");
}

TORCH_LIBRARY_IMPL(kit_test, CPU, m) {
  m.impl(Good::name, TORCH_FN(twice));
  m.impl(ReturnsInput::name, TORCH_FN(returns_input));
  m.impl(ReturnsMemory::name, TORCH_FN(returns_memory));
}

TORCH_LIBRARY_IMPL(kit_test, Autograd, m) {
  m.impl(Good::name, kit::autograd<Twice<Good>>());
  m.impl(ReturnsInput::name, kit::autograd<Twice<ReturnsInput>>());
  m.impl(ReturnsMemory::name, kit::autograd<Twice<ReturnsMemory>>());
}

TORCH_LIBRARY_IMPL(kit_test, FuncTorchBatched, m) { m.impl(Good::name, kit::vmap_rows<Good, twice_shape, 0>()); }

TEST(AutogradKernel, NodeIsNamedAfterItsOp) {
  const Tensor x = at::ones({3}).requires_grad_();
  const Tensor y = Good::call(x);
  EXPECT_EQ(y.grad_fn()->name(), "kit_test::twiceBackward");
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 2.)));
  EXPECT_EQ(Good::call(x.detach()).grad_fn(), nullptr);
}

TEST(AutogradKernel, RefusesAKernelThatReturnsItsInput) {
  const Tensor x = at::ones({3}).requires_grad_();
  EXPECT_NE(error_of([&] { ReturnsInput::call(x); }).find("kit_test::returns_input: a kernel returned its input"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              ReturnsMemory::call(x);
            }).find("kit_test::returns_memory: a kernel returned the memory of its input"),
            std::string::npos);
}

template <class T>
struct NobodysParams {};

TEST(Kernels, AMissingOneIsNamed) {
  const std::string message = error_of([] { kit::run(at::kCPU, NobodysParams<double>()); });
  EXPECT_NE(message.find(": there is no CPU kernel for "), std::string::npos) << message;
  EXPECT_NE(message.find("NobodysParams<double>. Add it to the table with kit::add_to_table in a cpu/kernel.cpp"),
            std::string::npos)
      << message;
}

// An argument passed by value must still exist when the attributes are read from it.
using Times = kit::Op<"kit_test::times", Tensor(const Tensor& input, std::string by)>;

kit::Output times_shape(const Tensor& input, const std::string&) { return twice_shape(input); }
Tensor times(const Tensor& input, std::string by) { return input * std::stod(by); }

struct TimesFormula {
  using Op = Times;
  static constexpr auto reads = kit::reads_nothing<Op>();
  static std::array<Tensor, 1> vjp(const std::array<Tensor, 1>& grads, const kit::Saved<TimesFormula>& saved,
                                   const std::array<bool, 1>&) {
    return {grads[0] * std::stod(std::get<0>(saved.attributes))};
  }
  static std::array<Tensor, 1> jvp(const std::array<Tensor, 1>& tangents, const kit::Saved<TimesFormula>& saved) {
    return {tangents[0] * std::stod(std::get<0>(saved.attributes))};
  }
};

TORCH_LIBRARY_FRAGMENT(kit_test, m) {
  kit::define<Times, times_shape>(m, "times(Tensor input, str by) -> Tensor");
  m.impl(Times::name, torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(times)));
  m.impl(Times::name, torch::dispatch(c10::DispatchKey::Autograd, kit::autograd<TimesFormula>()));
}

TEST(AutogradKernel, KeepsArgumentsPassedByValue) {
  const std::string by(100, '0');  // too long for the small-string optimisation
  const Tensor x = at::ones({3}).requires_grad_();
  Times::call(x, by + "3").sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 3.)));

  const auto level = torch::autograd::ForwardADLevel::get_next_idx();
  const Tensor dual = at::_make_dual(at::ones({3}), at::ones({3}), static_cast<int64_t>(level));
  const auto [primal, tangent] = at::_unpack_dual(Times::call(dual, by + "3"), static_cast<int64_t>(level));
  EXPECT_TRUE(at::equal(tangent, at::full({3}, 3.)));
  torch::autograd::ForwardADLevel::release_idx(level);
}

// An op whose formula has a matrix product that autocast would compute in 16 bits.
using ByProduct = kit::Op<"kit_test::by_product", Tensor(const Tensor& input)>;

struct ByProductFormula {
  using Op = ByProduct;
  static constexpr auto reads = kit::reads_nothing<Op>();
  static Tensor twice(const Tensor& t) { return at::mm(t.unsqueeze(1), at::full({1, 1}, 2, t.options())).squeeze(1); }
  static std::array<Tensor, 1> vjp(const std::array<Tensor, 1>& grads, const kit::Saved<ByProductFormula>&,
                                   const std::array<bool, 1>&) {
    return {twice(grads[0])};
  }
  static std::array<Tensor, 1> jvp(const std::array<Tensor, 1>& tangents, const kit::Saved<ByProductFormula>&) {
    return {twice(tangents[0])};
  }
};

TORCH_LIBRARY_FRAGMENT(kit_test, m) {
  kit::define<ByProduct, twice_shape>(m, "by_product(Tensor input) -> Tensor");
  m.impl(ByProduct::name, torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(twice)));
  m.impl(ByProduct::name, torch::dispatch(c10::DispatchKey::Autograd, kit::autograd<ByProductFormula>()));
}

TEST(AutogradKernel, FormulasRunWithoutAutocast) {
  const Tensor x = at::ones({3}).requires_grad_(), direction = at::full({3}, 1.001);  // not representable in 16 bits
  const Tensor expected = direction * 2;
  const auto level = torch::autograd::ForwardADLevel::get_next_idx();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  ByProduct::call(x).backward(direction);
  const Tensor dual = at::_make_dual(at::ones({3}), direction, static_cast<int64_t>(level));
  const auto [primal, tangent] = at::_unpack_dual(ByProduct::call(dual), static_cast<int64_t>(level));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_TRUE(at::equal(x.grad(), expected));
  EXPECT_TRUE(at::equal(tangent, expected));
  torch::autograd::ForwardADLevel::release_idx(level);
}

#define CPPCUDA_RECEIVE(name)                                                                                     \
  "kit_test::" name                                                                                               \
  "(Tensor x[N], Tensor? y[N], Tensor indices[N] int32 or int64, Tensor wide[N] keep_wide, Tensor? more[N] like " \
  "wide, str by) "                                                                                                \
  "-> Tensor[N]"
using Promoted = kit::Op<CPPCUDA_RECEIVE("promoted")>;
using Internal = kit::Op<CPPCUDA_RECEIVE("_internal")>;
using Lower = kit::Op<CPPCUDA_RECEIVE("lower"), kit::UnderAutocast<kit::CastPolicy::lower_precision_fp>>;
using Float32 = kit::Op<CPPCUDA_RECEIVE("float32"), kit::UnderAutocast<kit::CastPolicy::fp32>>;
using Left = kit::Op<CPPCUDA_RECEIVE("left"), kit::UnderAutocast<kit::CastPolicy::none>>;
using One = kit::Op<"kit_test::one(Tensor x[N], Tensor indices[N] int32 or int64) -> Tensor[N]">;

std::vector<at::ScalarType> received;

Tensor receive(const Tensor& x, const OptionalTensor& y, const Tensor& indices, const Tensor& wide,
               const OptionalTensor& more, std::string_view) {
  received.clear();
  for (const Tensor& t : kit::detail::tensor_arguments(x, y, indices, wide, more)) {
    received.push_back(t.defined() ? t.scalar_type() : at::ScalarType::Undefined);
  }
  return at::empty_like(x);
}

template <class... Ops>
void define_receivers(torch::Library& m) {
  ((kit::define<Ops>(m), m.impl(Ops::name, torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(receive)))), ...);
}

TORCH_LIBRARY_FRAGMENT(kit_test, m) {
  define_receivers<Promoted, Internal, Lower, Float32, Left>(m);
  kit::define<One>(m);
}

TEST(Define, PoliciesUnderAutocast) {
  constexpr auto b16 = at::kBFloat16, f16 = at::kHalf, f32 = at::kFloat, f64 = at::kDouble;
  constexpr auto missing = at::ScalarType::Undefined;
  using Dtypes = std::vector<at::ScalarType>;
  const auto dtypes = []<class TheOp>(std::type_identity<TheOp>, const Dtypes& given, bool enabled = true) {
    const auto tensor = [&](size_t i) { return given[i] == missing ? Tensor() : at::ones({2}, given[i]); };
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    TheOp::call(tensor(0), kit::to_optional(tensor(1)), tensor(2), tensor(3), kit::to_optional(tensor(4)), "");
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return received;
  };
  const auto promoted = std::type_identity<Promoted>();
  EXPECT_EQ(dtypes(promoted, {b16, f32, at::kInt, b16, f16}), (Dtypes{f32, f32, at::kInt, f32, f32}));
  EXPECT_EQ(dtypes(promoted, {f32, b16, at::kInt, f32, f32}), (Dtypes{f32, f32, at::kInt, f32, f32}));
  EXPECT_EQ(dtypes(promoted, {f16, b16, at::kLong, f32, missing}), (Dtypes{f32, f32, at::kLong, f32, missing}));
  EXPECT_EQ(dtypes(promoted, {f16, f16, at::kInt, f32, missing}), (Dtypes{f16, f16, at::kInt, f32, missing}));
  EXPECT_EQ(dtypes(promoted, {b16, missing, at::kInt, b16, missing}), (Dtypes{b16, missing, at::kInt, f32, missing}));
  EXPECT_EQ(dtypes(promoted, {f64, f16, at::kInt, f64, f64}), (Dtypes{f64, f16, at::kInt, f64, f64}));
  const Dtypes mixed{f16, f32, at::kInt, f16, f32};
  EXPECT_EQ(dtypes(promoted, mixed, /*enabled=*/false), mixed);
  EXPECT_EQ(dtypes(std::type_identity<Internal>(), mixed), mixed);
  EXPECT_EQ(dtypes(std::type_identity<Left>(), mixed), mixed);
  EXPECT_EQ(dtypes(std::type_identity<Lower>(), mixed), (Dtypes{b16, b16, at::kInt, f32, f32}));
  EXPECT_EQ(dtypes(std::type_identity<Lower>(), {f64, f32, at::kInt, f64, f64}),
            (Dtypes{f64, b16, at::kInt, f64, f64}));
  EXPECT_EQ(dtypes(std::type_identity<Float32>(), mixed), (Dtypes{f32, f32, at::kInt, f32, f32}));

  const auto has_kernel = [](const char* name, c10::DispatchKey key) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").hasKernelForDispatchKey(key);
  };
  for (const auto key : {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}) {
    EXPECT_TRUE(has_kernel(Promoted::name, key));
    EXPECT_FALSE(has_kernel(One::name, key));
  }
}

TEST(Define, MetaComesFromTheShape) {
  EXPECT_EQ(Good::call(at::ones({3}, at::kMeta)).sizes(), at::IntArrayRef({3}));
  EXPECT_EQ(error_of([] { Good::call(at::ones({3, 3}, at::kMeta)); }), "twice: input must be [N], got [3, 3]");
}

TEST(Define, RefusesTheSchemaOfAnotherOperator) {
  const auto error = error_of([] {
    torch::Library library(torch::Library::FRAGMENT, "kit_test", std::nullopt, __FILE__, __LINE__);
    kit::define<Good, twice_shape>(library, "other(Tensor input) -> Tensor");
  });
  EXPECT_EQ(error,
            std::string(Good::name) + " is defined with the schema of another operator: other(Tensor input) -> Tensor");
}

TEST(Define, RefusesWhatHasNoKernel) {
  auto error = [](const Tensor& t) { return error_of([&] { Good::call(t); }); };
  EXPECT_EQ(error(at::ones({3}).to_sparse()), "twice: input must be a dense (strided) tensor, got layout Sparse");
  EXPECT_EQ(error(at::quantize_per_tensor(at::ones({3}), 0.1, 0, at::kQUInt8)),
            "twice: input must be of dtype float64, float32, float16 or bfloat16, got quint8");
  EXPECT_NE(error(on_device(at::kHPU, {3})).find(", got hpu:0"), std::string::npos);
  EXPECT_NE(error(on_device(at::kXLA, {3})).find(", got xla:0"), std::string::npos);
}

TEST(Divisor, DividesAsTheLanguageDoes) {
  constexpr int64_t two31 = int64_t{1} << 31, most = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> divisors = {two31 - 1, two31, two31 + 1, two31 / 2 - 1, two31 / 2, two31 / 2 + 1, most};
  for (int64_t n = 1; n < 1000; ++n) divisors.push_back(n);
  for (const int64_t n : divisors) {
    const cppcuda::kit::Divisor divisor = n;
    // Around multiples, where a quotient changes.
    for (const int64_t q : {int64_t{0}, int64_t{1}, int64_t{2}, two31 / n / 2, two31 / n, most / n - 1}) {
      for (int64_t d = -1; d <= 1; ++d) {
        if (q > (most - 1) / n || q * n + d < 0) continue;
        const auto [quotient, remainder] = divisor.divide(q * n + d);
        EXPECT_EQ(quotient, (q * n + d) / n) << q * n + d << " / " << n;
        EXPECT_EQ(remainder, (q * n + d) % n) << q * n + d << " / " << n;
        if (n < two31 && q * n + d < two31) {
          EXPECT_EQ(divisor.quotient(q * n + d), (q * n + d) / n) << q * n + d << " / " << n;
          EXPECT_EQ(divisor.divide(static_cast<int32_t>(q * n + d)).remainder, (q * n + d) % n)
              << q * n + d << " / " << n;
        }
      }
    }
  }
}

TEST(DenseTensors, StridesOfDimsOfSize1DoNotMatter) {
  const auto strided = [](at::IntArrayRef strides) { return at::empty_strided({4, 1, 3}, strides); };
  const at::Tensor dense = strided({3, 3, 1}), odd = strided({3, 77, 1}), other = strided({1, 1, 4});
  const at::Tensor with_gaps = strided({6, 1, 2});
  const auto dense_alike = [](std::initializer_list<const Tensor*> tensors) {
    return kit::detail::are_dense_alike({tensors.begin(), tensors.size()});
  };
  EXPECT_TRUE(dense_alike({&dense, &odd}));
  EXPECT_TRUE(dense_alike({nullptr, &odd, &dense, nullptr, &dense}));
  EXPECT_FALSE(dense_alike({&dense, &other}));
  EXPECT_FALSE(dense_alike({&with_gaps, &with_gaps}));
}

TEST(DriverError, NamesBothVersions) {
  EXPECT_EQ(kit::driver_error(12080, 13000),
            "the CUDA driver supports CUDA 12.8, but the kernels were compiled with CUDA 13.0, and need a driver for "
            "CUDA 13. Update the driver, or build the library with an older nvcc.");
  EXPECT_EQ(kit::driver_error(0, 13020).find("no CUDA driver is installed, but "), 0);
}

TEST(Library, KnowsTheVersionOfTorch) { EXPECT_STREQ(cppcuda::torch_version(), TORCH_VERSION); }

// The kernel has a grid-stride loop, so one block would be enough; without work, no block is launched.
TEST(StrideLaunch, CoversTheWorkOrFillsAnyGpu) {
  using cppcuda::kit::grid_stride_launch;
  EXPECT_EQ(grid_stride_launch(0).blocks, 0u);
  for (const int64_t per_block : {1, 8, 256, 1024}) {
    for (const int64_t work :
         {int64_t{1}, int64_t{255}, int64_t{256}, int64_t{257}, int64_t{1} << 20, int64_t{1} << 40}) {
      const auto shape = grid_stride_launch(work, per_block);
      EXPECT_GE(shape.blocks, 1u);
      EXPECT_LT(int64_t{shape.blocks} * per_block, work + per_block);
      EXPECT_TRUE(int64_t{shape.blocks} * per_block >= work || shape.blocks == 1u << 20) << work;
    }
  }
}

// Compared with a search through every number of rows.
TEST(RowsPerPart, TakesTheShortestTime) {
  using cppcuda::kit::ceil_div;
  for (const int64_t rows : {1, 5, 37, 128, 1000}) {
    for (const int64_t parts : {1, 7, 32, 395, 396, 5000}) {
      const int64_t slots = 396, overhead = 3, least = 4, most = 64;
      const auto time = [&](int64_t rows_of_part) {
        return ceil_div(parts * ceil_div(rows, rows_of_part), slots) * (rows_of_part + overhead);
      };
      const int64_t chosen = cppcuda::kit::rows_per_part(rows, parts, slots, overhead, least, most);
      EXPECT_TRUE(0 < chosen && chosen <= std::min(rows, most));
      for (int64_t other = std::min(rows, least); other <= std::min(rows, most); ++other) {
        EXPECT_LE(time(chosen), time(other)) << rows << " rows, " << parts << " parts: " << other;
      }
    }
  }
  EXPECT_EQ(cppcuda::kit::rows_per_part(0, 7, 396, 3, 4, 64), 0);
  // 12 segments of 32 parts are 384 of the 396 at once.
  EXPECT_EQ(cppcuda::kit::rows_per_part(128, 32, 396, 3, 4, 64), 11);
}

}  // namespace
