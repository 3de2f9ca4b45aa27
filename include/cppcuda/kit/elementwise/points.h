#pragma once

// Formulas of points: elementwise operators (math.h) whose tensors have a few values for each element. The schema has
// their sizes after "...", and arguments and result of the formula are arrays (array.h):
//
//   struct Rotate {
//     static constexpr char schema[] = "shapes::rotate(Tensor q[..., 4], Tensor v[..., 3]) -> Tensor[..., 3]";
//
//     template <class A>
//     CPPCUDA_HOST_DEVICE static kit::Array<A, 3> forward(kit::Array<A, 4> q, kit::Array<A, 3> v);
//   };
//
// A tensor [..., 3, 3] is a kit::Array<A, 3, 3>, and [...], or no sizes at all, an A. The dims before the sizes
// broadcast. Derivatives are computed in the loop, from numbers with a derivative for each value of a tensor. With many
// values, gradients that are written by hand are faster:
//
//   backward(grad, q, v)  the gradients of the tensors, from that of the result: an array, or kit::Gradients of several

#include <array>
#include <type_traits>
#include <utility>

#include "cppcuda/kit/elementwise/math.h"
#include "cppcuda/kit/math/array.h"
#include "cppcuda/kit/math/partials.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// What backward() returns for several tensors: return {grad_q, grad_v}.
template <class First, class... Rest>
struct Gradients {
  First first;
  Gradients<Rest...> rest;
};
template <class Last>
struct Gradients<Last> {
  Last first;
};

namespace detail {

// The values of a tensor in a formula, which has so many for each point.
template <class Definition, int Tensor>
struct PointValues {
  static constexpr OwnSizes own = own_sizes(Definition::schema, Tensor);
  static constexpr int count = own.count();

  template <class A>
  static auto type() {
    if constexpr (own.rank == 0) {
      return std::type_identity<A>();
    } else {
      return std::type_identity<
          Array<A, static_cast<int>(own.sizes[0]), own.rank == 1 ? 0 : static_cast<int>(own.sizes[1])>>();
    }
  }
  template <class A>
  using Type = typename decltype(type<A>())::type;

  template <class A>
  CPPCUDA_HOST_DEVICE static Type<A> get(const A* from) {
    if constexpr (own.rank == 0) {
      return from[0];
    } else {
      return Type<A>::of([&](int i) CPPCUDA_LAMBDA { return from[i]; });
    }
  }
};

template <class A>
CPPCUDA_HOST_DEVICE void put(const A& value, A* to) {
  to[0] = value;
}
template <class A, int Rows, int Columns>
CPPCUDA_HOST_DEVICE void put(const Array<A, Rows, Columns>& values, A* to) {
  [&]<int... I>(std::integer_sequence<int, I...>)
      CPPCUDA_LAMBDA { ((to[I] = values.values[I]), ...); }(std::make_integer_sequence<int, values.count>());
}
template <class A, class First, class... Rest>
CPPCUDA_HOST_DEVICE void put(const Gradients<First, Rest...>& gradients, A* to) {
  put(gradients.first, to);
  if constexpr (sizeof...(Rest) > 0) put(gradients.rest, to + sizeof(First) / sizeof(A));
}

// The formula of an operator of points. The values of tensors are in one array, a tensor after another.
template <class Definition, class Inputs = std::make_integer_sequence<int, input_count<Definition>>,
          class Numbers = std::make_integer_sequence<int, attribute_count<Definition>>>
struct PointMath;

template <class Definition, int... Input, int... Number>
struct PointMath<Definition, std::integer_sequence<int, Input...>, std::integer_sequence<int, Number...>>
    : ElementwiseMath<Definition> {
  static_assert(!saves_output<Definition>(), "a formula of points saves its tensors");
  static constexpr bool is_of_points = true;
  // The numbers of values: those of the result, of each tensor, and of all.
  static constexpr int result_count = PointValues<Definition, -1>::count;
  static constexpr int input_counts[] = {PointValues<Definition, Input>::count...};
  static constexpr int all_count = (PointValues<Definition, Input>::count + ...);
  static constexpr bool has_backward = requires { &Definition::template backward<double>; };

  static constexpr int first_value(int input) {
    int result = 0;
    for (int i = 0; i < input; ++i) result += input_counts[i];
    return result;
  }

  // The values of the result.
  template <class A>
  CPPCUDA_HOST_DEVICE Array<A, result_count> value(const A* in) const {
    const auto result = Definition::forward(PointValues<Definition, Input>::get(in + first_value(Input))...,
                                            this->template attribute<A>(std::integral_constant<int, Number>())...);
    static_assert(std::is_same_v<decltype(result), const typename PointValues<Definition, -1>::template Type<A>>,
                  "forward() returns the array that the schema declares");
    Array<A, result_count> values;
    put(result, values.values);
    return values;
  }

  template <class A>
  CPPCUDA_HOST_DEVICE Array<A, all_count> gradients(const A* grad, const A* in) const {
    Array<A, all_count> values;
    put(Definition::backward(PointValues<Definition, -1>::get(grad),
                             PointValues<Definition, Input>::get(in + first_value(Input))...,
                             this->template attribute<A>(std::integral_constant<int, Number>())...),
        values.values);
    return values;
  }

  // Sets the gradients of the tensors that are requested, a bit for each. `in` has numbers or dual numbers; get()
  // returns the part of a derivative of the result that is multiplied with `grad`.
  template <class A, class In, class Get>
  CPPCUDA_HOST_DEVICE void differentiate(const A* grad, const In* in, A* out, unsigned requested, Get get) const {
    const auto of_input = [&]<int I>(std::integral_constant<int, I>) CPPCUDA_LAMBDA {
      if ((requested >> I & 1) == 0) return;
      constexpr int first = first_value(I), count = input_counts[I];
      using Numbers = Duals<In, count>;
      const auto x = Array<Numbers, all_count>::of([&](int i) CPPCUDA_LAMBDA {
        return i >= first && i < first + count ? Numbers::variable(in[i], i - first) : Numbers::constant(in[i]);
      });
      const auto y = value(x.values);
      const auto g = Array<A, result_count>::of([&](int o) CPPCUDA_LAMBDA { return grad[o]; });
      put(Array<A, count>::of([&](int i) CPPCUDA_LAMBDA {
            return dot(g, Array<A, result_count>::of([&](int o) CPPCUDA_LAMBDA { return get(y[o].tangents[i]); }));
          }),
          out + first);
    };
    (of_input(std::integral_constant<int, Input>()), ...);
  }
};

// The rows of a kernel: one for each value of its outputs, then of its inputs. IsResult says for each of these if it is
// like the result, or stands for the operator's own tensors.
template <class Definition, int Outputs, bool... IsResult>
struct PointRows : PointMath<Definition> {
  static constexpr int outputs = Outputs, inputs = (... + (IsResult ? 1 : input_count<Definition>)) - Outputs;

  // The sizes of the values of each tensor.
  static constexpr auto own = [] {
    std::array<OwnSizes, Outputs + inputs> result{};
    int t = 0;
    for (const bool is_result : {IsResult...}) {
      for (int i = 0; i < (is_result ? 1 : input_count<Definition>); ++i) {
        result[t++] = own_sizes(Definition::schema, is_result ? -1 : i);
      }
    }
    return result;
  }();
  static constexpr int first_row(int t) {
    int result = 0;
    for (int i = 0; i < t; ++i) result += own[i].count();
    return result;
  }
  static constexpr int out_count = first_row(outputs), in_count = first_row(outputs + inputs) - out_count;
};

// What the kernels compute, as in math.h. `requested` has a bit for each output.

template <class Definition>
struct PointForward : PointRows<Definition, 1, true, false> {
  template <class A>
  CPPCUDA_HOST_DEVICE void operator()(const A* in, A* out, unsigned) const {
    put(this->value(in), out);
  }
};

template <class Definition>
struct PointBackward : PointRows<Definition, input_count<Definition>, false, true, false> {
  using Math = PointMath<Definition>;

  template <class A>
  CPPCUDA_HOST_DEVICE void operator()(const A* in, A* out, unsigned requested) const {
    const A *const grad = in, *const saved = in + Math::result_count;
    if constexpr (Math::has_backward) {
      put(this->gradients(grad, saved), out);
    } else {
      this->differentiate(grad, saved, out, requested, [](A tangent) CPPCUDA_LAMBDA { return tangent; });
    }
  }
};

// With the result f and directions v: D_v f, the gradient of `grad`, and for each saved value x the derivative of
// grad D_v f with respect to x.
template <class Definition>
struct PointDoubleBackward : PointRows<Definition, 1 + input_count<Definition>, true, false, true, false, false> {
  using Math = PointMath<Definition>;

  template <class A>
  CPPCUDA_HOST_DEVICE void operator()(const A* in, A* out, unsigned requested) const {
    using Result = Array<A, Math::result_count>;
    const A *const grad = in, *const saved = in + Math::result_count, *const along = saved + Math::all_count;
    const auto x =
        Array<Dual<A>, Math::all_count>::of([&](int i) CPPCUDA_LAMBDA { return Dual<A>(saved[i], along[i]); });
    if ((requested & 1) != 0) {
      const auto y = this->value(x.values);
      put(Result::of([&](int o) CPPCUDA_LAMBDA { return y[o].tangent; }), out);
    }
    A* const to = out + Math::result_count;
    if constexpr (Math::has_backward) {
      const auto g =
          Array<Dual<A>, Math::result_count>::of([&](int o) CPPCUDA_LAMBDA { return Dual<A>::constant(grad[o]); });
      const auto y = this->gradients(g.values, x.values);
      put(Array<A, Math::all_count>::of([&](int i) CPPCUDA_LAMBDA { return y[i].tangent; }), to);
    } else {
      this->differentiate(grad, x.values, to, requested >> 1,
                          [](const Dual<A>& tangent) CPPCUDA_LAMBDA { return tangent.tangent; });
    }
  }
};

template <class Definition>
using ForwardMath =
    std::conditional_t<is_of_points<Definition>, PointForward<Definition>, ElementwiseForward<Definition>>;
template <class Definition>
using BackwardMath =
    std::conditional_t<is_of_points<Definition>, PointBackward<Definition>, ElementwiseBackward<Definition>>;
template <class Definition>
using DoubleBackwardMath = std::conditional_t<is_of_points<Definition>, PointDoubleBackward<Definition>,
                                              ElementwiseDoubleBackward<Definition>>;

}  // namespace detail

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
