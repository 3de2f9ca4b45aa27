#pragma once

// Elementwise operators: how to define one, and the functions that kernels evaluate. An operator is a struct in a
// header of its own:
//
//   struct Swish {
//     static constexpr char schema[] = "second::swish(Tensor x, float beta)";  // tensors first, then attributes
//     static constexpr auto saves = kit::Saves::input;                        // read by its derivatives
//
//     template <class A>
//     CPPCUDA_HOST_DEVICE static A forward(A x, A beta);
//     template <class A>
//     CPPCUDA_HOST_DEVICE static A slope(A x, A beta);  // d forward / d x
//   };
//
// A is the accumulation type, or a vector of it. All tensors have the same sizes and dtype. An operator with several
// tensors has `slopes` instead of `slope`, which returns kit::PerInput<A, N>. In an operator that saves its output, the
// parameter of slope is the output instead of the inputs. The kit multiplies the slope by the gradient, and derives
// second derivatives from the slope (dual.h). For one tensor, slope_of_slope with the parameters of slope may give its
// derivative instead, if that is more accurate.
//
// Under autocast, an operator of several tensors casts them to the widest dtype among them, and one of a single tensor
// keeps its dtype. One word chooses another policy (autocast.h); calls in place and with out= never cast:
//
//     static constexpr auto under_autocast = kit::CastPolicy::fp32;

#include <utility>

#include "cppcuda/kit/autocast.h"
#include "cppcuda/kit/math/host_device.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

enum class Saves { input, output };

// The derivatives with respect to each of N inputs.
template <class A, int N>
struct PerInput {
  A value[N];
};

// The operators of a library.
template <class... Definitions>
struct Family {};

namespace detail {

constexpr int count_arguments(const char* schema, const char* type) {
  int count = 0;
  for (; *schema != '\0'; ++schema) {
    int i = 0;
    while (type[i] != '\0' && schema[i] == type[i]) ++i;
    count += type[i] == '\0' && schema[i] == ' ';
  }
  return count;
}

template <class Definition>
inline constexpr int input_count = count_arguments(Definition::schema, "Tensor");
template <class Definition>
inline constexpr int attribute_count = count_arguments(Definition::schema, "float");
template <class Definition>
inline constexpr int saved_count = Definition::saves == Saves::input ? input_count<Definition> : 1;

template <int N>
struct Attributes {
  double value[N];
};
template <>
struct Attributes<0> {};

template <class Definition>
struct ElementwiseForward {
  static constexpr int inputs = input_count<Definition>;
  [[no_unique_address]] Attributes<attribute_count<Definition>> attributes;

  template <class A, class... As>
  CPPCUDA_HOST_DEVICE A operator()(A first, As... others) const {
    return call(std::make_integer_sequence<int, attribute_count<Definition>>(), first, others...);
  }

 private:
  template <int... I, class A, class... As>
  CPPCUDA_HOST_DEVICE A call(std::integer_sequence<int, I...>, A first, As... others) const {
    return Definition::forward(first, others..., A(attributes.value[I])...);
  }
};

// The gradient of one input.
template <class Definition, int Input>
struct ElementwiseBackward {
  static constexpr int inputs = 1 + saved_count<Definition>;
  [[no_unique_address]] Attributes<attribute_count<Definition>> attributes;

  template <class A, class... As>
  CPPCUDA_HOST_DEVICE A operator()(A grad, As... saved) const {
    return grad * slope(saved...);
  }

  template <class A, class... As>
  CPPCUDA_HOST_DEVICE A slope(A first, As... others) const {
    return call(std::make_integer_sequence<int, attribute_count<Definition>>(), first, others...);
  }

 private:
  template <int... I, class A, class... As>
  CPPCUDA_HOST_DEVICE A call(std::integer_sequence<int, I...>, A first, As... others) const {
    if constexpr (input_count<Definition> == 1) {
      return Definition::slope(first, others..., A(attributes.value[I])...);
    } else {
      return Definition::slopes(first, others..., A(attributes.value[I])...).value[Input];
    }
  }
};

// Calls f<Math>() for the functions of each operator: its value, and its gradient with respect to each input.
template <class... Definitions, class F>
constexpr void for_each_math(Family<Definitions...>, F f) {
  const auto backward = [&]<class Definition, int... Input>(std::integer_sequence<int, Input...>) {
    (f.template operator()<ElementwiseBackward<Definition, Input>>(), ...);
  };
  ((f.template operator()<ElementwiseForward<Definitions>>(),
    backward.template operator()<Definitions>(std::make_integer_sequence<int, input_count<Definitions>>())),
   ...);
}

}  // namespace detail

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
