#pragma once

// The arguments of a call by the names of the operator's declaration. Shape functions, kernels and formulas take them:
//
//   void forward(const kit::Args<Forward>& args, const kit::Outputs<Forward>& out) {
//     ... args["points"], args.get<"align_corners">(), args.config().n_levels, out["output"] ...
//
// A name that the declaration does not have does not compile.

#include <array>
#include <tuple>
#include <type_traits>

#include "cppcuda/kit/names.h"
#include "cppcuda/kit/op.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

template <class Type>
struct Counts;

template <class R, class... Args>
struct Counts<R(Args...)> {
  static constexpr size_t inputs = (size_t{is_tensor_argument<Args>} + ... + 0);
  static constexpr size_t outputs = tensor_count<R>;
};

// Arrays with an entry for each tensor argument or each output, also indexed by name if the operator has a declaration.
template <class TheOp>
struct ArraysOf {
  using Size = Counts<typename TheOp::Type>;
  using Inputs = std::array<Tensor, Size::inputs>;
  using Outputs = std::array<Tensor, Size::outputs>;
  using Need = std::array<bool, Size::inputs>;
};

template <class TheOp>
  requires requires { TheOp::declaration; }
struct ArraysOf<TheOp> {
  using Size = Counts<typename TheOp::Type>;
  using Inputs = Named<Tensor, Size::inputs, InputKey<TheOp>>;
  using Outputs = Named<Tensor, Size::outputs, OutputKey<TheOp>>;
  using Need = Named<bool, Size::inputs, InputKey<TheOp>>;
};

}  // namespace detail

template <class TheOp>
using Inputs = typename detail::ArraysOf<TheOp>::Inputs;
template <class TheOp>
using Outputs = typename detail::ArraysOf<TheOp>::Outputs;
template <class TheOp>
using Need = typename detail::ArraysOf<TheOp>::Need;

template <class TheOp, class Type = typename TheOp::Type>
class Args;

// It refers to the tensors and lists of the call, and must not outlive it.
template <class TheOp, class R, class... As>
class Args<TheOp, R(As...)> {
 public:
  explicit Args(const As&... all) : all_(all...) {
    [[maybe_unused]] size_t i = 0;
    const auto append = [&](const auto& arg) {
      if constexpr (std::is_same_v<decltype(arg), const Tensor&>) {
        tensors_[i++] = &arg;
      } else if constexpr (std::is_same_v<decltype(arg), const OptionalTensor&>) {
        static const Tensor missing;
        tensors_[i++] = arg.has_value() ? &*arg : &missing;
      }
    };
    (append(all), ...);
  }

  // A tensor. A missing optional one is undefined.
  const Tensor& operator[](InputKey<TheOp> key) const { return *tensors_[key.index]; }

  // Tensor number i.
  const Tensor& tensor(size_t i) const { return *tensors_[i]; }

  // Any argument, in its C++ type.
  template <FixedString Name>
  const auto& get() const {
    return std::get<argument_index<TheOp, Name>()>(all_);
  }

  // The arguments that the Config in the declaration names.
  auto config() const { return detail::config_from<TheOp, TheOp::declaration.config_first>(all_); }

  // All of them, in the order of the declaration.
  const std::tuple<As...>& all() const { return all_; }

 private:
  std::tuple<As...> all_;
  std::array<const Tensor*, detail::Counts<R(As...)>::inputs> tensors_;
};

namespace detail {

// An argument of a call, or the next tensor instead.
template <class T>
T replaced(const T& arg, const Tensor*& next) {
  if constexpr (is_tensor_argument<T>) {
    const Tensor& t = *next++;
    return t.defined() ? T(t) : arg;
  } else {
    return arg;
  }
}

// The arguments of a call in a tuple, with other tensors. The arguments stay whose tensors are undefined.
template <class... As>
std::tuple<As...> with_tensors(const Tensor* tensors, const As&... args) {
  return {replaced(args, tensors)...};  // braces evaluate from left to right
}

}  // namespace detail

// For an operator that is linear in all tensors: its gradients read none.
template <class TheOp>
consteval auto reads_nothing() {
  return std::array<Reads, detail::Counts<typename TheOp::Type>::inputs>{};
}

namespace detail {

// A function of a call's Args as one of its arguments, which torch registers.
template <class TheOp, auto Function, class Type = typename TheOp::Type>
struct ByPosition;

template <class TheOp, auto Function, class R, class... As>
struct ByPosition<TheOp, Function, R(As...)> {
  static auto run(As... all) { return Function(Args<TheOp>(all...)); }
};

// The function itself if it takes all arguments.
template <class TheOp, auto Function>
consteval auto by_position() {
  if constexpr (std::is_invocable_v<decltype(Function), const Args<TheOp>&>) {
    return &ByPosition<TheOp, Function>::run;
  } else {
    return Function;
  }
}

}  // namespace detail

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
