// Declarations of operators: what the compiler reads from them, and the checks that follow from them.
// tests/python/test_declarations.py tests that wrong declarations do not compile.
#include "cppcuda/kit/call.h"
#include "cppcuda/kit/names.h"
#include "cppcuda/kit/op.h"
#include "cppcuda/kit/schema.h"
#include "cppcuda/kit/shape.h"
#include "testing.h"

namespace {

using at::Tensor;
using cppcuda::kit::OptionalTensor;
using cppcuda::testing::error_of;
namespace kit = cppcuda::kit;
using std::string_view;

using Linear = kit::Op<
    "declared::linear(Tensor input[G?, B, I], Tensor weight[G?, 3S, S + I], Tensor? bias[G?, 3S], Tensor hx[G?, B, S] "
    "keep_wide, "
    "Tensor? cx[G?, B, S] keep_wide, Tensor? grad_cx[G?, B, S] like cx, SymInt[2] size, str mode=\"a\", float? "
    "scale=None, "
    "float by=1.5, bool flag=False, int n=1, bool[3] output_mask) -> "
    "(Tensor hy[G?, B, S], Tensor grad(hx), Tensor grad(bias)[2S])",
    kit::GradientReads<"hx", "bias", "cx">>;

static_assert(string_view(Linear::name) == "declared::linear");
static_assert(
    string_view(Linear::torch_schema) ==
    "linear(Tensor input, Tensor weight, Tensor? bias, Tensor hx, Tensor? cx, Tensor? grad_cx, SymInt[2] size, "
    "str mode=\"a\", float? scale=None, float by=1.5, bool flag=False, int n=1, "
    "bool[3] output_mask) -> (Tensor hy, Tensor, Tensor)");
static_assert(
    std::is_same_v<Linear::Type, std::tuple<Tensor, Tensor, Tensor>(
                                     const Tensor&, const Tensor&, const OptionalTensor&, const Tensor&,
                                     const OptionalTensor&, const OptionalTensor&, c10::SymIntArrayRef, string_view,
                                     std::optional<double>, double, bool, int64_t, c10::List<bool>)>);

using One = kit::Op<"declared::one(Tensor input[B?, N]) -> Tensor[B?, N]">;
static_assert(std::is_same_v<One::Type, Tensor(const Tensor&)>);
static_assert(string_view(One::torch_schema) == "one(Tensor input) -> Tensor");

using Spaces = kit::Op<
    "declared::spaces(Tensor x[N], Tensor? y[N] like x = None, Tensor? at[N] int32 or int64=None, "
    "str mode = \"a = b\") -> Tensor[N]">;
static_assert(string_view(Spaces::torch_schema) ==
              "spaces(Tensor x, Tensor? y=None, Tensor? at=None, str mode=\"a = b\") -> Tensor");
static_assert(Spaces::declaration.arguments[1].pattern.text() == "[N]" &&
              Spaces::declaration.arguments[2].dtype_text == "int32 or int64");

using Named = kit::Op<"declared::named(Tensor input[N]) -> (Tensor out[N])">;
static_assert(string_view(Named::torch_schema) == "named(Tensor input) -> (Tensor out)");

using Overload = kit::Op<"declared::scale.by(Tensor input, *, float by) -> Tensor">;
static_assert(std::is_same_v<Overload::Type, Tensor(const Tensor&, double)>);
static_assert(string_view(Overload::torch_schema) == "scale.by(Tensor input, *, float by) -> Tensor");
static_assert(string_view(Overload::base_name()) == "scale.by");

// The argument whose dtype an argument or output has (`like`): grad_cx has that of cx, grad(hx) that of hx, and cx, hy
// and grad(bias) that of the first tensor.
constexpr const kit::Declaration& linear = Linear::declaration;
static_assert(linear.first == 0 && linear.arguments[5].like == 4 && linear.arguments[4].like == 0);
static_assert(linear.outputs[0].like == 0 && linear.outputs[1].like == 3 && linear.outputs[2].like == 0);
static_assert(linear.outputs[1].pattern.text() == "[G?, B, S]" && linear.outputs[2].pattern.text() == "[2S]");

// Names.
static_assert(kit::InputKey<Linear>("hx").index == 3 && kit::OutputKey<Linear>("grad(hx)").index == 1);
static_assert(kit::TensorKey<Linear>("hy").is_output && !kit::TensorKey<Linear>("hx").is_output);
static_assert(kit::OutputKey<One>("output").index == 0 && kit::OutputKey<Named>("out").index == 0);
static_assert(kit::attribute_index<Linear, "size">() == 0 && kit::attribute_index<Linear, "output_mask">() == 6);
constexpr auto reads = kit::reads<Linear>({{"weight", {"input", "hx", "hy"}}, {"hx", {"grad(hx)"}}});
static_assert(reads.size() == 6 && reads[1].inputs == (1 | 8) && reads[1].outputs == 1);
static_assert(reads[3].inputs == 0 && reads[3].outputs == 2 && reads[0].inputs == 0);

// Indices have a dtype of their own; the rows N share the table.
using Lookup = kit::Op<
    "declared::lookup(Tensor rows[B?, N, 8] int32 or int64, Tensor table[B?, V, F], Tensor points[B?, N, 3]) -> "
    "(Tensor out[B?, N, F], Tensor found[B?, N] int64)",
    kit::Independent<"N", "F">>;
static_assert(string_view(Lookup::torch_schema) ==
              "lookup(Tensor rows, Tensor table, Tensor points) -> (Tensor out, Tensor found)");
static_assert(!Lookup::declaration.is_differentiable(Lookup::declaration.arguments[0]) &&
              !Lookup::declaration.is_differentiable(Lookup::declaration.outputs[1]));
static_assert(Lookup::declaration.first == 1 &&
              Lookup::declaration.is_differentiable(Lookup::declaration.arguments[1]));
static_assert(kit::detail::rows_share(Lookup::declaration) && !kit::detail::rows_share(One::declaration));

// Dtypes. Those that a declaration names are not cast by autocast, and have a gradient if they may be floating point.
using Dtypes = kit::Op<
    "declared::dtypes(Tensor(cache!) codes[N] int8 or uint8, Tensor!? z[N] complex64 or complex128, Tensor! x[N], "
    "Tensor w[N] float32, Tensor any[N] any, Tensor same[N] like codes, Tensor wide[N] keep_wide) -> ()">;
static_assert(
    string_view(Dtypes::torch_schema) ==
    "dtypes(Tensor(a!) codes, Tensor(b!)? z, Tensor(c!) x, Tensor w, Tensor any, Tensor same, Tensor wide) -> ()");
static_assert([] {
  constexpr const kit::Declaration& d = Dtypes::declaration;
  using kit::detail::Cast;
  constexpr Cast casts[] = {Cast::none, Cast::none, Cast::by_policy, Cast::none,
                            Cast::none, Cast::none, Cast::to_float32};
  constexpr bool differentiable[] = {false, true, true, true, true, false, true};
  for (size_t i = 0; i < d.arguments.size(); ++i) {
    if (kit::detail::cast_of(d, i) != casts[i] || d.is_differentiable(d.arguments[i]) != differentiable[i])
      return false;
  }
  return d.first == 2;
}());
using OfIndices =
    kit::Op<"declared::of_indices(Tensor i[N] int64, Tensor m[N] bool) -> (Tensor[N], Tensor x[N] float32)">;
static_assert(OfIndices::declaration.first == 0 &&
              !OfIndices::declaration.is_differentiable(OfIndices::declaration.outputs[0]) &&
              OfIndices::declaration.is_differentiable(OfIndices::declaration.outputs[1]));

// Rows need not be the first dim of each tensor.
using Series = kit::Op<
    "declared::series(Tensor input[B?, T, N, F], Tensor weight[B?, F], Tensor first[B?, N, F]) -> "
    "(Tensor out[B?, T, N, F], Tensor last[B?, N, F])",
    kit::Independent<"N">>;
static_assert(kit::detail::rows_share(Series::declaration));
static_assert([] {
  constexpr const kit::Declaration& d = Series::declaration;
  return kit::detail::row_dim(d, d.arguments[0]) == 1 && kit::detail::row_dim(d, d.arguments[1]) == -1 &&
         kit::detail::row_dim(d, d.arguments[2]) == 0 && kit::detail::row_dim(d, d.outputs[0]) == 1;
}());

// To which tensors vmap adds its batch.
template <class TheOp>
constexpr std::string lead() {
  std::string result;
  const kit::Declaration& d = TheOp::declaration;
  for (const auto& a : d.arguments) result += kit::detail::has_leading(d, a.pattern) ? '1' : '0';
  for (const auto& o : d.outputs) result += kit::detail::has_leading(d, o.pattern) ? '1' : '0';
  return result;
}
static_assert(lead<One>() == "11");
static_assert(lead<kit::Op<"declared::f(Tensor w[F], Tensor x[B?, N, F], Tensor y[N, F]) -> Tensor[B?, F]">>() ==
              "0101");
static_assert(lead<kit::Op<"declared::f(Tensor x[N, K], Tensor w[K, M]) -> (Tensor[N, M], Tensor sum[K])">>() ==
              "1010");
static_assert(lead<kit::Op<"declared::f(Tensor x[..., K], Tensor w[M, K], Tensor m[...]) -> Tensor[..., M]">>() ==
              "1011");
static_assert(lead<kit::Op<"declared::f(Tensor x[3, F], Tensor y[3]) -> Tensor[F]">>() == "000");

TEST(Declaration, ChecksTensorsThatAreNotOptionalFirst) {
  const auto order = [](const auto& list) { return std::vector<size_t>(list.begin(), list.end()); };
  EXPECT_EQ(order(linear.by_need), (std::vector<size_t>{0, 1, 3, 2, 4, 5}));
  // weight has 3S, so hx, which gives S, is checked before it.
  EXPECT_EQ(order(linear.by_shape), (std::vector<size_t>{0, 3, 1, 2, 4, 5}));
}

TEST(Declaration, NamedArrays) {
  kit::Named<int, 6, kit::InputKey<Linear>> values(std::array<int, 6>{10, 11, 12, 13, 14, 15});
  EXPECT_EQ(values["hx"], 13);
  values["weight"] = 7;
  EXPECT_EQ(values[1], 7);
}

// ---- args.h

struct Grid {
  int64_t levels = 1;
  double scale = 2;
  string_view mode = "a";
};

using Encoded = kit::Op<
    "declared::encoded(Tensor x[N], Tensor? y[N], int levels=1, float scale=2.0, str mode=\"a\", bool flag=False) -> "
    "Tensor[N]",
    kit::Config<Grid, "levels", "mode">>;
static_assert(std::is_same_v<Encoded::Config, Grid> && std::is_void_v<One::Config>);

TEST(Args, HaveTheNamesOfTheDeclaration) {
  const Tensor x = at::ones({3});
  const kit::Args<Encoded> args(x, std::nullopt, 4, 1.5, "b", true);
  EXPECT_TRUE(args["x"].is_same(x));
  EXPECT_FALSE(args["y"].defined());
  EXPECT_TRUE(args.get<"flag">());
  EXPECT_EQ(args.get<"mode">(), "b");
  const Grid grid = args.config();
  EXPECT_EQ(grid.levels, 4);
  EXPECT_EQ(grid.scale, 1.5);
  EXPECT_EQ(grid.mode, "b");
}

// ---- shape.h

using Cell = kit::Op<
    "declared::cell(Tensor? grad[B?, N] like state, Tensor x[B?, N, 2F], Tensor state[B?, N, F] keep_wide, bool[2] "
    "output_mask) "
    "-> "
    "(Tensor grad(x), Tensor grad(state))",
    kit::GradientReads<"state", "grad">>;

// What BackwardOf derives: the letters of a size that no argument says, required and optional tensors, dtypes, and
// hidden outputs.
using Gather = kit::Op<
    "declared::gather(Tensor table[B?, V, F], Tensor at[B?, N] int32 or int64, Tensor points[B?, N] keep_wide, "
    "str mode=\"a\", int levels[L]=2) -> (Tensor output[B?, N, F], hidden Tensor weight[B?, N, L] opmath)",
    kit::Independent<"N">, kit::UnderAutocast<kit::CastPolicy::fp32>>;
using GatherBackward = kit::BackwardOf<Gather, kit::GradientReads<"table", "weight">,
                                       kit::GradientReads<"points", "table", "points", "weight">>;
static_assert(GatherBackward::text ==
              "declared::_gather_backward(Tensor grad[B?, N, F], Tensor weight[B?, N, L] opmath, "
              "Tensor? table[B?, V, F], Tensor at[B?, N] int32 or int64, Tensor points[B?, N] keep_wide, "
              "SymInt[1] size[V], str mode, int levels[L], bool[2] output_mask) -> "
              "(Tensor grad(table), Tensor grad(points))");
using GatherDoubleBackward = kit::BackwardOf<GatherBackward, kit::GradientReads<"grad", "weight", "grad_grad_table">,
                                             kit::GradientReads<"weight", "grad", "table", "points", "grad_grad_table">,
                                             kit::FurtherArguments<"int[] order=[]">, kit::Without<"mode">>;
static_assert(GatherDoubleBackward::text ==
              "declared::_gather_double_backward(Tensor grad[B?, N, F], Tensor weight[B?, N, L] opmath, "
              "Tensor? table[B?, V, F], Tensor at[B?, N] int32 or int64, Tensor? points[B?, N] keep_wide, "
              "Tensor grad_grad_table[B?, V, F], Tensor? grad_grad_points[B?, N] like points, SymInt[1] size[V], "
              "int levels[L], bool[2] output_mask, int[] order=[]) -> (Tensor grad(grad), Tensor grad(weight))");
static_assert(GatherBackward::declaration.independent == Gather::declaration.independent);
static_assert(kit::detail::cast_policy(GatherBackward::declaration) == kit::CastPolicy::none);
// Indices have no gradient, so there is one gradient of an output, which is required.
using Extreme =
    kit::Op<"declared::extreme(Tensor x[N, F], Tensor ptr[P] int64) -> (Tensor values[P, F], Tensor rows[P, F] int64)">;
using ExtremeBackward = kit::BackwardOf<Extreme, kit::GradientReads<"x", "rows">>;
static_assert(ExtremeBackward::text ==
              "declared::_extreme_backward(Tensor grad_values[P, F], Tensor rows[P, F] int64, Tensor ptr[P] int64, "
              "SymInt[1] size[N]) -> Tensor grad(x)[N, F]");
// s is required because its gradient has its dtype, so GradientsBy saves it for that gradient too.
using ScaleRows = kit::Op<"declared::scale_rows(Tensor x[N, F], Tensor s[N] keep_wide) -> Tensor[N, F]">;
using ScaleRowsBackward = kit::BackwardOf<ScaleRows, kit::GradientReads<"x", "s">, kit::GradientReads<"s", "x">>;
static_assert(kit::GradientsBy<ScaleRows, ScaleRowsBackward>::reads[0].inputs == 0b10);
static_assert(kit::GradientsBy<ScaleRows, ScaleRowsBackward>::reads[1].inputs == 0b11);
// table reads at, and points reads table, at, points and the weight.
static_assert(kit::reads_of<Gather::WithHidden, GatherBackward>()[0].inputs == 0b010);
static_assert(kit::reads_of<Gather::WithHidden, GatherBackward>()[2].inputs == 0b111);
static_assert(kit::reads_of<Gather::WithHidden, GatherBackward>()[2].outputs == 0b10);

std::string cell_error(const OptionalTensor& grad, const Tensor& x, const Tensor& state,
                       const std::vector<bool>& mask = {true, true}) {
  c10::List<bool> list;
  for (const bool b : mask) list.push_back(b);
  return error_of([&] { kit::outputs_of(kit::Args<Cell>(grad, x, state, list)); });
}

TEST(Shape, ChecksWhatIsDeclared) {
  const Tensor grad = at::empty({4}), x = at::empty({4, 6}), state = at::empty({4, 3});
  EXPECT_EQ(cell_error(grad, x, state), "no error");
  EXPECT_EQ(cell_error(grad, x, state, {true}), "cell: output_mask must have 2 entries, got 1");
  EXPECT_EQ(cell_error({}, x, state, {true, false}), "no error");
  EXPECT_EQ(cell_error({}, x, state), "cell: grad must be a Tensor if the gradient of state is requested, got None");
  EXPECT_EQ(cell_error(grad.to(at::kInt), x.to(at::kInt), state),
            "cell: grad must be of dtype float64, float32, float16 or bfloat16, got int32");
  EXPECT_EQ(cell_error(grad, x.to(at::kMeta), state), "cell: state must be on meta, the device of x, got cpu");
  EXPECT_EQ(cell_error(grad, x, state.to(at::kDouble)),
            "cell: state must be of dtype float32, the dtype of x, got float64");
  EXPECT_EQ(cell_error(grad, x.to(at::kHalf), state), "no error");
  EXPECT_EQ(cell_error(grad.to(at::kHalf), x.to(at::kHalf), state),
            "cell: grad must be of dtype float32, the dtype of state, got float16");
  EXPECT_EQ(cell_error(grad, x, at::empty({4})), "cell: state must be [N, F] or [B, N, F], got [4]");
  EXPECT_EQ(cell_error(grad, at::empty({4, 5}), state), "cell: x must be [N, 2F] with F = 3, got [4, 5]");
  EXPECT_EQ(cell_error(at::empty({5}), x, state), "cell: grad must be [N] with N = 4, got [5]");
}

TEST(Shape, OutputsAreAsDeclared) {
  const Tensor x = at::empty({2, 4, 6}, at::kHalf), state = at::empty({2, 4, 3});
  const auto all = kit::outputs_of(kit::Args<Cell>(at::empty({2, 4}), x, state, c10::List<bool>({true, true})));
  EXPECT_EQ(kit::allocate(all[0]).sizes(), at::IntArrayRef({2, 4, 6}));
  EXPECT_EQ(kit::allocate(all[0]).scalar_type(), at::kHalf);
  EXPECT_EQ(kit::allocate(all[1]).sizes(), at::IntArrayRef({2, 4, 3}));
  EXPECT_EQ(kit::allocate(all[1]).scalar_type(), at::kFloat);
  const auto first = kit::outputs_of(kit::Args<Cell>(std::nullopt, x, state, c10::List<bool>({true, false})));
  EXPECT_EQ(kit::allocate(first[1]).sizes(), at::IntArrayRef({0}));
  EXPECT_EQ(kit::allocate(first[1]).scalar_type(), at::kFloat);
  EXPECT_EQ(kit::allocate(kit::outputs_of(kit::Args<One>(at::empty({4})))).sizes(), at::IntArrayRef({4}));
}

TEST(Shape, OpmathIsWider) {
  using Scaled = kit::Op<"declared::scaled(Tensor factor[N] opmath, Tensor x[N, F]) -> Tensor grad(factor)">;
  const auto scaled = [](at::ScalarType factor, at::ScalarType x) {
    return kit::outputs_of(kit::Args<Scaled>(at::empty({2}, factor), at::empty({2, 3}, x)));
  };
  EXPECT_EQ(kit::allocate(scaled(at::kFloat, at::kBFloat16)).scalar_type(), at::kFloat);
  EXPECT_EQ(error_of([&] { scaled(at::kBFloat16, at::kBFloat16); }),
            "scaled: factor must be of dtype float32, the opmath dtype of x, got bfloat16");
  EXPECT_EQ(error_of([&] { scaled(at::kFloat, at::kDouble); }),
            "scaled: factor must be of dtype float64, the opmath dtype of x, got float32");

  using Sum = kit::Op<"declared::sum(Tensor x[N, F]) -> (Tensor y[N, F], Tensor sum[N] opmath)">;
  for (const auto& [narrow, wide] :
       {std::pair{at::kHalf, at::kFloat}, {at::kFloat, at::kFloat}, {at::kDouble, at::kDouble}}) {
    const auto outputs = kit::outputs_of(kit::Args<Sum>(at::empty({2, 3}, narrow)));
    EXPECT_EQ(kit::allocate(outputs[0]).scalar_type(), narrow);
    EXPECT_EQ(kit::allocate(outputs[1]).scalar_type(), wide);
  }
}

using Hides = kit::Op<
    "declared::norm(Tensor x[N, F], float eps) -> (Tensor y[N, F], hidden Tensor scale[N] opmath, hidden Tensor "
    "more[F])",
    kit::UnderAutocast<kit::CastPolicy::fp32>>;
static_assert(string_view(Hides::torch_schema) == "norm(Tensor x, float eps) -> (Tensor y)");
static_assert(string_view(Hides::WithHidden::torch_schema) ==
              "_norm(Tensor x, float eps) -> (Tensor y, Tensor scale, Tensor more)");
static_assert(kit::detail::cast_policy(Hides::declaration) == kit::CastPolicy::fp32 &&
              kit::detail::cast_policy(Hides::WithHidden::declaration) == kit::CastPolicy::none);
static_assert(!kit::detail::hidden_outputs_come_last("a::f(Tensor x[N]) -> (hidden Tensor y[N], Tensor z[N])"));
static_assert(!kit::detail::hides_outputs("a::f(Tensor hidden like x) -> (Tensor y, Tensor z)"));
static_assert(std::is_same_v<kit::WithHidden<Hides>, Hides::WithHidden> && std::is_same_v<kit::WithHidden<One>, One>);

TEST(Shape, HiddenOutputsBelongToTheInternalOperator) {
  const Tensor x = at::empty({2, 3}, at::kHalf);
  EXPECT_EQ(kit::outputs_of(kit::Args<Hides>(x, 1.0)).sizes, c10::SymDimVector({2, 3}));
  const auto all = kit::outputs_of(kit::Args<Hides::WithHidden>(x, 1.0));
  EXPECT_EQ(all[1].sizes, c10::SymDimVector({2}));
  EXPECT_EQ(kit::allocate(all[1]).scalar_type(), at::kFloat);
  EXPECT_EQ(all[2].sizes, c10::SymDimVector({3}));
}

TEST(Shape, ChecksIndices) {
  const Tensor rows = at::zeros({4, 8}, at::kInt), table = at::empty({5, 2}, at::kHalf),
               points = at::empty({4, 3}, at::kHalf);
  const auto outputs = kit::outputs_of(kit::Args<Lookup>(rows, table, points));
  EXPECT_EQ(kit::allocate(outputs[0]).scalar_type(), at::kHalf);
  EXPECT_EQ(kit::allocate(outputs[1]).scalar_type(), at::kLong);
  EXPECT_EQ(kit::allocate(outputs[1]).sizes(), at::IntArrayRef({4}));
  const auto lookup_error = [&](const Tensor& wrong) {
    return error_of([&] { kit::outputs_of(kit::Args<Lookup>(wrong, table, points)); });
  };
  EXPECT_EQ(lookup_error(rows.to(at::kLong)), "no error");
  EXPECT_EQ(lookup_error(rows.to(at::kFloat)), "lookup: rows must be of dtype int32 or int64, got float32");
  EXPECT_EQ(lookup_error(rows.to(at::kByte)), "lookup: rows must be of dtype int32 or int64, got uint8");
  EXPECT_EQ(lookup_error(rows.to(at::kMeta)), "lookup: rows must be on cpu, the device of table, got meta");
  EXPECT_EQ(lookup_error(at::zeros({3, 8}, at::kInt)), "lookup: points must be [N, 3] with N = 3, got [4, 3]");
}

}  // namespace
