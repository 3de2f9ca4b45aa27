#pragma once

// The arguments and outputs of elementwise operators, and their checks. math.h explains how to define an operator;
// loop.h runs it over tensors.

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/FunctionRef.h>
#include <torch/library.h>

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "cppcuda/kit/args.h"
#include "cppcuda/kit/elementwise/family.h"
#include "cppcuda/kit/output.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

// Tensors of a call, of which some may be missing: null or undefined.
using TensorRefs = std::span<const Tensor* const>;

// The names in the errors of an operator. Looking them up takes longer than the checks, so it is done once.
struct ElementwiseNames {
  explicit ElementwiseNames(const c10::FunctionSchema& schema);

  const char* op;
  std::vector<std::string_view> tensors;
};

template <class TheOp>
const ElementwiseNames& names_of() {
  static const ElementwiseNames names(TheOp::schema());
  return names;
}

// Throws unless all are strided floating-point tensors with the same device, dtype and shape. Null ones are missing.
void check_elementwise(const ElementwiseNames& names, TensorRefs tensors);

// For each tensor the sizes of a point's values, which are its last ones; empty if no tensor has any.
using OwnSizesOf = std::span<const OwnSizes>;

// The same, but the operator's own tensors broadcast: those from number `first` on, as many as `count`. The tensors
// before them have the resulting sizes, which are returned; those after them have the sizes of these, one by one. Sizes
// of values are checked, and do not broadcast.
c10::SymDimVector check_broadcasting(const ElementwiseNames& names, TensorRefs tensors, OwnSizesOf own, size_t first,
                                     size_t count);

// The number of values in the rows of tensors; 1 if they have none.
c10::SymInt sym_row_size(TensorRefs tensors, OwnSizesOf own);

// Sizes, followed by those of a point's values or by `row`, the size of a row.
c10::SymDimVector with_own(c10::SymDimVector sizes, const OwnSizes& own, const c10::SymInt& row = 1);

// An output of these sizes, with the memory order and strides of the first tensor that has them, or contiguous.
Output output_of_sizes(const c10::SymDimVector& sizes, TensorRefs tensors);

// Throws if an index on the CPU is neither -1 nor that of a value in a row.
void check_indices(const ElementwiseNames& names, TensorRefs tensors, OwnSizesOf own);

// Calls run() with inputs of one shape: expands those of other shapes. Except on the CPU, whose kernels add up what
// they compute (loop.h), smaller outputs are replaced by new memory, of which they get the sums. Null outputs are left
// out.
void run_expanded(std::span<const Tensor*> out, std::span<const Tensor*> in, OwnSizesOf own,
                  c10::function_ref<void()> run);

// The sizes of values of a function's outputs, followed by its inputs.
template <class Math>
OwnSizesOf own_sizes_of() {
  if constexpr (Math::is_of_points) {
    return Math::own;
  } else {
    return {};
  }
}
template <class Math>
OwnSizesOf own_sizes_of_inputs() {
  const OwnSizesOf all = own_sizes_of<Math>();
  return all.empty() ? all : all.subspan(Math::outputs);
}

// Whether an operator's tensors broadcast; a single one without values of its own needs fewer checks.
template <class Math>
inline constexpr bool broadcasts = Math::tensors > 1 || Math::is_of_points;

// Whether two tensors of the same shape have the same strides. Those of dims of size 1 do not matter.
inline bool have_same_strides(const Tensor& a, const Tensor& b) {
  if (a.strides() == b.strides()) return true;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.sizes()[d] != 1 && a.strides()[d] != b.strides()[d]) return false;
  }
  return true;
}

// Whether all tensors are dense with the same strides, so that they can be traversed as one dim. Null ones are left
// out.
inline bool are_dense_alike(TensorRefs tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* const t : tensors) {
    if (t == nullptr) continue;
    if (first == nullptr) {
      if (!t->is_non_overlapping_and_dense()) return false;
      first = t;
    } else if (!have_same_strides(*t, *first)) {
      return false;
    }
  }
  return true;
}

// The first input that has the dtype of the operator.
template <class Math>
constexpr size_t first_of_dtype() {
  size_t i = 0;
  if constexpr (Math::is_of_points) {
    while (Math::own[Math::outputs + i].is_index || Math::own[Math::outputs + i].is_opmath) ++i;
  }
  return i;
}

// Runs an elementwise function over tensors (loop.h). Outputs that are not requested are null.
template <class Math>
void run_elementwise(Math math, const std::array<const Tensor*, Math::outputs>& out,
                     const std::array<const Tensor*, Math::inputs>& in);

// The same, but the inputs broadcast if the operator has several tensors.
template <class Math>
void run_broadcast(Math math, std::array<const Tensor*, Math::outputs> out,
                   std::array<const Tensor*, Math::inputs> in) {
  std::array<Tensor, Math::is_of_rows ? Math::inputs : 0> indices;
  if constexpr (Math::is_of_rows) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (Math::own[Math::outputs + i].is_index) in[i] = &(indices[i] = in[i]->to(at::kLong));
    }
  }
  if constexpr (broadcasts<Math>) {
    run_expanded(out, in, own_sizes_of<Math>(), [&] { run_elementwise(math, out, in); });
  } else {
    run_elementwise(math, out, in);
  }
}

// An operator that returns new tensors. Output number o has the memory order and strides of tensor argument o + Like,
// or of the second one if that is missing. If the operator has several tensors, which broadcast, the output has the
// sizes of that argument only if it is a gradient of theirs; another output has the sizes to which they broadcast.
template <class Op, class Math, size_t Like>
struct FunctionalKernel {
  using TheOp = Op;
  // The last outputs, which are gradients of the operator's own tensors or of what it saves of them.
  static constexpr size_t gradients_of_own = Math::inputs > Math::tensors ? Math::tensors : 0;

  static auto shape(const Args<TheOp>& args) {
    std::array<const Tensor*, Math::inputs> in;
    for (size_t i = 0; i < in.size(); ++i)
      in[i] = may_be_missing(i) && !args.tensor(i).defined() ? nullptr : &args.tensor(i);
    [[maybe_unused]] c10::SymDimVector broadcast;
    if constexpr (broadcasts<Math>) {
      broadcast = check_broadcasting(names_of<TheOp>(), in, own_sizes_of_inputs<Math>(), first_own, Math::tensors);
    } else {
      check_elementwise(names_of<TheOp>(), in);
    }
    const auto output = [&](size_t o) {
      const Tensor& like = *(in[o + Like] != nullptr ? in[o + Like] : in[second]);
      if (!is_wanted(args, o)) return placeholder(like);
      if constexpr (Math::is_of_points) {
        if (o + gradients_of_own < Math::outputs) return output_of_sizes(with_own(broadcast, Math::own[o]), in);
      } else if constexpr (broadcasts<Math>) {
        if (o + gradients_of_own < Math::outputs) return output_of_sizes(broadcast, in);
      }
      return Output{c10::SymDimVector(like.sym_sizes()), like.options(), /*strides_of=*/like};
    };
    if constexpr (Math::outputs == 1) {
      return output(0);
    } else {
      check_required(args);
      return [&]<size_t... O>(std::index_sequence<O...>) {
        return std::array{output(O)...};
      }(std::make_index_sequence<Math::outputs>());
    }
  }

  static void run(const Args<TheOp>& args, const Outputs<TheOp>& out) {
    std::array<const Tensor*, Math::outputs> to;
    for (size_t o = 0; o < to.size(); ++o) to[o] = out[o].defined() ? &out[o] : nullptr;
    std::array<const Tensor*, Math::inputs> in;
    std::array<Tensor, Math::inputs> zeros;
    for (size_t i = 0; i < in.size(); ++i) {
      in[i] = &args.tensor(i);
      if (in[i]->defined()) continue;
      const Tensor& like = args.tensor(second);
      if constexpr (Math::is_of_points) {
        const OwnSizes& own = Math::own[Math::outputs + i];
        zeros[i] = at::zeros({}, like.options()).expand(at::IntArrayRef(own.sizes, own.rank));
      } else if (i > 0) {
        zeros[i] = at::zeros({}, like.options()).expand(like.sizes());
      }
      in[i] = zeros[i].defined() ? &zeros[i] : &like;  // the requested outputs do not depend on a missing gradient
    }
    const auto math = std::apply([](const auto&... each) { return elementwise_math_of<Math>(each...); }, args.all());
    run_broadcast(math, to, in);
  }

 private:
  // The first of the operator's own tensors, or of what it saves of them.
  static constexpr size_t first_own = Math::inputs > Math::tensors ? 1 : 0;

  static bool may_be_missing(size_t tensor) {
    const Declaration& d = TheOp::declaration;
    return d.arguments[d.tensor_argument(tensor)].kind == Kind::optional_tensor;
  }

  // A tensor that is not missing if the first one is.
  static constexpr size_t second = Math::inputs > 1 ? 1 : 0;

  static bool is_wanted(const Args<TheOp>& args, size_t output) {
    return std::apply([&](const auto&... each) { return is_requested(output, each...); }, args.all());
  }

  static void check_required(const Args<TheOp>& args) {
    const Declaration& d = TheOp::declaration;
    for (const auto& r : d.requirements) {
      const bool is_missing = !args.tensor(d.tensor_index(r.argument)).defined();
      if (is_missing && is_wanted(args, r.output)) {
        Checker(TheOp::base_name())
            .required_by_gradient(d.arguments[r.argument].name, std::nullopt, d.outputs[r.output].name);
      }
    }
  }
};

template <class Definition>
using ForwardKernels = FunctionalKernel<typename ElementwiseOps<Definition>::Forward, ForwardMath<Definition>, 0>;
template <class Definition>
using BackwardKernels = FunctionalKernel<typename ElementwiseOps<Definition>::Backward, BackwardMath<Definition>, 1>;
template <class Definition>
using DoubleBackwardKernels =
    FunctionalKernel<typename ElementwiseOps<Definition>::DoubleBackward, DoubleBackwardMath<Definition>, 0>;

// Whether the operator has a form that writes to its first tensor, which then has the sizes of the result.
template <class Definition>
constexpr bool has_in_place() {
  const OwnSizes result = own_sizes(Definition::schema, -1), first = own_sizes(Definition::schema, 0);
  return result.letter == first.letter && result.rank == first.rank && result.sizes[0] == first.sizes[0] &&
         result.sizes[1] == first.sizes[1];
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
