#pragma once

// The arguments and outputs of elementwise operators, and their checks. math.h explains how to define an operator;
// loop.h runs it over tensors.

#include <torch/library.h>

#include <functional>
#include <string_view>
#include <vector>

#include "cppcuda/kit/args.h"
#include "cppcuda/kit/elementwise/family.h"
#include "cppcuda/kit/output.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

using TensorRefs = std::initializer_list<std::reference_wrapper<const Tensor>>;

// Tensor argument number i, and the argument that is written to.
const c10::Argument& tensor_argument(const c10::FunctionSchema& schema, size_t i);
const c10::Argument& written_argument(const c10::FunctionSchema& schema);

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

// Throws unless all are strided floating-point tensors with the device, dtype and shape of the first one.
void check_elementwise(const ElementwiseNames& names, TensorRefs tensors);

// Throws if elements of the argument that is written to are known to share memory (a stride of 0), like
// at::assert_no_internal_overlap.
void check_writable(const c10::FunctionSchema& schema, const Tensor& out);

// Throws if an input and the argument that is written to overlap without being the same.
void check_no_overlap(const c10::FunctionSchema& schema, TensorRefs inputs, const Tensor& out);

// Whether two tensors of the same shape have the same strides. Those of dims of size 1 do not matter.
inline bool have_same_strides(const Tensor& a, const Tensor& b) {
  if (a.strides() == b.strides()) return true;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.sizes()[d] != 1 && a.strides()[d] != b.strides()[d]) return false;
  }
  return true;
}

// Whether all tensors are dense with the same strides, so that they can be traversed as one dim.
inline bool are_dense_alike(TensorRefs tensors) {
  const Tensor& first = tensors.begin()->get();
  return first.is_non_overlapping_and_dense() &&
         std::all_of(tensors.begin() + 1, tensors.end(), [&](const Tensor& t) { return have_same_strides(t, first); });
}

// The tensors among the arguments of a call. The attributes follow them.
template <class... Args>
auto tensors_of(const Args&... args) {
  const auto tensor = [](const auto& arg) {
    if constexpr (is_tensor_argument<decltype(arg)>) {
      return std::tie(arg);
    } else {
      return std::tuple<>();
    }
  };
  return std::tuple_cat(tensor(args)...);
}

// Runs an elementwise function over tensors (loop.h).
template <class Math, class... Inputs>
void run_elementwise(Math math, const Tensor& out, const Inputs&... inputs);

template <class Math, class... Args>
Math math_of(const Args&... args) {
  Math math{};
  [[maybe_unused]] int i = 0;
  [[maybe_unused]] const auto add = [&](const auto& arg) {
    if constexpr (!is_tensor_argument<decltype(arg)>) math.attributes.value[i++] = arg;
  };
  (add(args), ...);
  return math;
}

// An operator that returns a new tensor, with the memory order and strides of argument Like.
template <class TheOp, int Like, class Type = typename TheOp::Type>
struct FunctionalKernel;

template <class TheOp, int Like, class... Args>
struct FunctionalKernel<TheOp, Like, Tensor(Args...)> {
  static Output shape(const kit::Args<TheOp>& args) {
    return std::apply([](const auto&... each) { return shape_of(each...); }, args.all());
  }

  static Output shape_of(const Args&... args) {
    const auto tensors = tensors_of(args...);
    std::apply([](const auto&... t) { check_elementwise(names_of<TheOp>(), {t...}); }, tensors);
    const Tensor& like = std::get<Like>(tensors);
    return {c10::SymDimVector(like.sym_sizes()), like.options(), /*strides_of=*/like};
  }

  template <class Math>
  static Tensor run(Args... args) {
    Tensor out = allocate(shape_of(args...));
    std::apply([&](const auto&... t) { run_elementwise(math_of<Math>(args...), out, t...); }, tensors_of(args...));
    return out;
  }
};

// An operator that writes to its argument Written: sigmoid_(self), sigmoid.out(input, out).
template <class TheOp, int Written, class Type = typename TheOp::Type>
struct OutVariantKernel;

template <class TheOp, int Written, class... Args>
struct OutVariantKernel<TheOp, Written, void(Args...)> {
  // The number of arguments of the functional form, which has no `out`.
  static constexpr size_t functional_arguments = Written == 0 ? sizeof...(Args) : Written;

  static const Tensor& written(const Args&... args) { return std::get<Written>(std::tie(args...)); }

  // The checks that need no memory.
  static void check(Args... args) {
    std::apply([](const auto&... t) { check_elementwise(names_of<TheOp>(), {t...}); }, tensors_of(args...));
    check_writable(TheOp::schema(), written(args...));
  }

  template <class Math>
  static void run(Args... args) {
    check(args...);
    const Tensor& out = written(args...);
    const auto tensors = tensors_of(args...);
    [&]<size_t... I>(std::index_sequence<I...>) {
      check_no_overlap(TheOp::schema(), {std::get<I>(tensors)...}, out);
      run_elementwise(math_of<Math>(args...), out, std::get<I>(tensors)...);
    }(std::make_index_sequence<Math::inputs>());
  }
};

template <class Definition>
using InPlaceKernels = OutVariantKernel<typename ElementwiseOps<Definition>::InPlace, 0>;
template <class Definition>
using OutKernels =
    OutVariantKernel<typename ElementwiseOps<Definition>::Out, input_count<Definition> + attribute_count<Definition>>;
template <class Definition>
using ForwardKernels = FunctionalKernel<typename ElementwiseOps<Definition>::Forward, 0>;
template <class Definition, int Input>
using BackwardKernels = FunctionalKernel<typename ElementwiseOps<Definition>::template Backward<Input>,
                                         ElementwiseOps<Definition>::template backward_like<Input>>;

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
