#pragma once

// The kernels of the operators of a formula of rows (formula.h) over tensors.

#include <ATen/OpMathType.h>

#include "cppcuda/kit/elementwise/arguments.h"
#include "cppcuda/kit/rows/formula.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// An operator that returns new tensors, which are contiguous.
template <class Op, class Math>
struct RowKernels {
  using TheOp = Op;
  static constexpr bool is_backward = Math::is_backward;
  static constexpr size_t inputs = Math::inputs, outputs = Counts<typename TheOp::Type>::outputs;

  static auto shape(const Args<TheOp>& args) {
    const auto in = tensors(args);
    const auto own = own_sizes_of_inputs<Math>();
    const auto sizes =
        check_broadcasting(names_of<TheOp>(), in, own, static_cast<size_t>(Math::first_own), Math::own_count);
    const c10::SymInt row = sym_row_size(in, own);
    const at::TensorOptions options = in[first_of_dtype<Math>()]->options();
    const auto output = [&](size_t o) -> Output {
      if constexpr (Math::is_backward) {
        const bool is_wanted = std::apply([&](const auto&... each) { return is_requested(o, each...); }, args.all());
        if (!is_wanted) return placeholder(*in[first_of_dtype<Math>()]);
        return {c10::SymDimVector(in[own_tensor(o)]->sym_sizes()), options};
      } else {
        const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
        return {with_own(sizes, Math::own[o], row),
                Math::own[o].is_opmath ? options.dtype(at::toOpMathType(dtype)) : options};
      }
    };
    if constexpr (outputs == 1) {
      return output(0);
    } else {
      return [&]<size_t... O>(std::index_sequence<O...>) {
        return std::array{output(O)...};
      }(std::make_index_sequence<outputs>());
    }
  }

  // `args` and `out` are those of the operator with the hidden outputs, of which some may be undefined.
  static void run(const Args<WithHidden<TheOp>>& args, const Outputs<WithHidden<TheOp>>& out) {
    auto in = tensors(args);
    std::array<Tensor, inputs> zeros;
    for (size_t i = 0; i < inputs; ++i) {
      if (in[i] != nullptr) continue;
      const Tensor& like = *in[first_of_dtype<Math>()];
      const bool is_row = Math::own[Math::outputs + i].is_row();
      zeros[i] =
          at::zeros({1}, like.options()).expand(is_row ? like.sizes().slice(like.dim() - 1) : at::IntArrayRef{1});
      if (!is_row) zeros[i] = zeros[i].select(0, 0);
      in[i] = &zeros[i];
    }
    check_indices(names_of<TheOp>(), in, own_sizes_of_inputs<Math>());
    std::array<const Tensor*, Math::outputs> to;
    for (size_t o = 0; o < to.size(); ++o) to[o] = out[o].defined() ? &out[o] : nullptr;
    run_broadcast(std::apply([](const auto&... each) { return elementwise_math_of<Math>(each...); }, args.all()), to,
                  in);
  }

  // The tensor among the inputs whose gradient output number o is.
  static constexpr size_t own_tensor(size_t o) {
    return Math::tensors == 0 ? Math::first_own : Math::first_own + Math::Schema::differentiable[o];
  }

 private:
  template <class AnyOp>
  static std::array<const Tensor*, inputs> tensors(const Args<AnyOp>& args) {
    std::array<const Tensor*, inputs> in;
    const Declaration& d = TheOp::declaration;
    for (size_t i = 0; i < inputs; ++i) {
      const bool may_be_missing = d.arguments[d.tensor_argument(i)].kind == Kind::optional_tensor;
      in[i] = may_be_missing && !args.tensor(i).defined() ? nullptr : &args.tensor(i);
    }
    return in;
  }
};

// The kernels of all operators of a formula.
template <class Definition>
struct RowKernelsOf {
  using Ops = RowOps<Definition>;
  static constexpr bool has_backward = RowSchema<Definition>::has_backward,
                        hides = !std::is_same_v<typename Ops::Forward, typename Ops::Whole>,
                        has_variants = RowSchema<Definition>::visible == 1;
  using Forward = RowKernels<typename Ops::Forward, RowForward<Definition>>;
  using Whole = RowKernels<typename Ops::Whole, RowForward<Definition>>;
  using Backward = RowKernels<typename Ops::Backward, RowBackward<Definition>>;
};

}  // namespace detail

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
