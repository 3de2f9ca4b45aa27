#pragma once

// The checks of an op's arguments, and its outputs before they have memory, derived from its declaration (schema.h).
// Only sizes, dtypes and devices are left to run time.

#include <array>
#include <tuple>
#include <utility>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/op.h"
#include "cppcuda/kit/output.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

template <class TheOp, class Type = typename TheOp::Type>
class Shape;

template <class TheOp, class R, class... Args>
class Shape<TheOp, R(Args...)> {
  static constexpr const Declaration& declaration = TheOp::declaration;
  using Arguments = std::tuple<const std::remove_cvref_t<Args>&...>;

 public:
  // Throws unless the arguments match the declaration. The returned Checker knows the sizes. Errors name `op`.
  static Checker check(const char* op, const Args&... args) {
    Checker check(op);
    const Arguments all(args...);
    for_each<sizeof...(Args)>([&]<size_t I>() {
      if constexpr (argument<I>.kind == Kind::mask) check.mask<argument<I>.length>(argument<I>.name, std::get<I>(all));
    });
    for_each<sizeof...(Args)>([&]<size_t I>() {
      if constexpr (is_tensor(argument<I>.kind)) {
        const Tensor* t = get(std::get<I>(all));
        if (t) argument<I>.is_index ? check.indices(argument<I>.name, *t) : check.floating(argument<I>.name, *t);
      }
    });
    for_each<declaration.by_need.size()>([&]<size_t N>() { check_kind<declaration.by_need[N]>(check, all); });
    for_each<declaration.requirements.size()>([&]<size_t N>() {
      constexpr auto r = declaration.requirements[N];
      static constexpr const Declared& gradient = declaration.outputs[r.output];
      if (is_requested(r.output, args...)) {
        check.required_by_gradient(argument<r.argument>.name, std::get<r.argument>(all), gradient.name);
      }
    });
    for_each<declaration.by_shape.size()>([&]<size_t N>() {
      constexpr size_t i = declaration.by_shape[N];
      if constexpr (argument<i>.kind == Kind::integer) {
        check.shape(argument<i>.name, c10::SymInt(std::get<i>(all)), argument<i>.pattern);
      } else if constexpr (argument<i>.kind == Kind::sizes) {
        check.shape(argument<i>.name, std::get<i>(all), argument<i>.pattern);
      } else if (const Tensor* t = get(std::get<i>(all))) {
        check.shape(argument<i>.name, *t, argument<i>.pattern);
      }
    });
    return check;
  }

  using Outputs = std::conditional_t<std::is_same_v<R, Tensor>, Output, std::array<Output, declaration.outputs.size()>>;

  // Errors name `op`.
  static Outputs outputs_as(const char* op, const Args&... args) {
    const Checker checked = check(op, args...);
    const Arguments all(args...);
    return [&]<size_t... O>(std::index_sequence<O...>) {
      return Outputs{output<O>(checked, all, args...)...};
    }(std::make_index_sequence<declaration.outputs.size()>());
  }

  // The shape function of an operator whose outputs all have size patterns.
  static Outputs outputs(Args... args) { return outputs_as(TheOp::base_name(), args...); }

 private:
  template <size_t I>
  static constexpr const Declared& argument = declaration.arguments[I];

  template <size_t N, class F>
  static void for_each(F f) {
    [&]<size_t... I>(std::index_sequence<I...>) { (f.template operator()<I>(), ...); }(std::make_index_sequence<N>());
  }

  static const Tensor* get(const Tensor& t) { return &t; }
  static const Tensor* get(const OptionalTensor& t) { return t ? &*t : nullptr; }

  template <size_t I>
  static void check_dtype(const Checker& check, const Tensor& t, const Tensor* like) {
    if (!like) return;
    if constexpr (argument<I>.may_be_wider) {
      check.same_or_wider_dtype(argument<I>.name, t, argument<argument<I>.like>.name, *like);
    } else {
      check.same_dtype(argument<I>.name, t, argument<argument<I>.like>.name, *like);
    }
  }

  // Checks dtype and device.
  template <size_t I>
  static void check_kind(const Checker& check, const Arguments& all) {
    if constexpr (I != declaration.first) {
      const Tensor* t = get(std::get<I>(all));
      if (!t) return;
      if constexpr (!argument<I>.is_index) check_dtype<I>(check, *t, get(std::get<argument<I>.like>(all)));
      check.same_device(argument<I>.name, *t, argument<declaration.first>.name, std::get<declaration.first>(all));
    }
  }

  template <size_t O>
  static Output output(const Checker& checked, const Arguments& all, const Args&... args) {
    static constexpr const Declared& declared = declaration.outputs[O];
    static_assert(declared.pattern.rank() > 0 || declared.pattern.text() == "[]",
                  "an output without a pattern of sizes needs a shape function");
    const Tensor& like = std::get<declared.like>(all);
    if (!is_requested(O, args...)) return placeholder(like);
    return {checked.sizes(declared.pattern), declared.is_index ? like.options().dtype(at::kLong) : like.options()};
  }
};

// Only the checks, for hand-written shape functions.
template <class TheOp, class... Args>
Checker checked(const Args&... args) {
  return Shape<TheOp>::check(TheOp::base_name(), args...);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
