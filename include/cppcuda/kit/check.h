#pragma once

// Checks of arguments. Every error names the operator, the argument, the expected value and the actual one:
//   trilinear: points must be [N, 3], got [5, 4]

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <c10/core/SymInt.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <span>
#include <string>

#include "cppcuda/kit/op.h"
#include "cppcuda/kit/pattern.h"
#include "cppcuda/kit/schema.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Checks the arguments of one call.
class Checker {
 public:
  explicit Checker(const char* op) : op_(op) {}

  // Each of these functions throws unless its condition holds.

  // `t` is defined, strided, and of one of these dtypes.
  void dtypes(std::string_view argument, const Tensor& t, Dtypes dtypes) const;
  void floating(std::string_view argument, const Tensor& t) const { dtypes(argument, t, floating_dtypes); }
  void indices(std::string_view argument, const Tensor& t) const { dtypes(argument, t, index_dtypes); }

  // `t` is on the device of `as`, or of what `other` names.
  void same_device(std::string_view argument, const Tensor& t, std::string_view other, const Tensor& as) const {
    same_device(argument, t, other, as.device());
  }
  void same_device(std::string_view argument, const Tensor& t, std::string_view other, c10::Device expected) const;

  // `t` has the sizes of `as`, or of what `other` names.
  void same_shape(std::string_view argument, const Tensor& t, std::string_view other, const Tensor& as) const {
    same_shape(argument, t, other, as.sym_sizes());
  }
  void same_shape(std::string_view argument, const Tensor& t, std::string_view other,
                  c10::SymIntArrayRef expected) const;

  // Sizes of tensors broadcast, to those that are returned. `which` says which sizes they are: "the shape of ".
  c10::SymDimVector broadcast(std::span<const std::string_view> arguments, std::span<const c10::SymIntArrayRef> sizes,
                              const char* which) const;

  // `t` has the dtype of `as`, or of what `other` names.
  void same_dtype(std::string_view argument, const Tensor& t, std::string_view other, const Tensor& as) const {
    same_dtype(argument, t, other, as.scalar_type());
  }
  void same_dtype(std::string_view argument, const Tensor& t, std::string_view other, at::ScalarType expected) const;

  // `t` has the dtype of `as`, or is float32 if `as` has 16 bits.
  void same_or_wider_dtype(std::string_view argument, const Tensor& t, std::string_view other, const Tensor& as) const;
  void opmath_dtype(std::string_view argument, const Tensor& t, std::string_view other, const Tensor& as) const;

  // The sizes match the pattern.
  void shape(std::string_view argument, c10::SymIntArrayRef sizes, const Pattern& pattern);
  void shape(std::string_view argument, const Tensor& t, const Pattern& pattern) {
    shape(argument, t.sym_sizes(), pattern);
  }

  // The sizes of an output, from the letters that earlier patterns bound.
  c10::SymDimVector sizes(const Pattern& pattern) const;

  // A bool[N] argument; kernels receive it as a list of any length.
  template <size_t N>
  std::array<bool, N> mask(std::string_view argument, const c10::List<bool>& list) const {
    length(argument, list.size(), N);
    std::array<bool, N> result;
    std::copy(list.begin(), list.end(), result.begin());
    return result;
  }
  void length(std::string_view argument, size_t actual, size_t expected) const;

  // An optional argument that this call needs.
  const Tensor& required(std::string_view argument, const OptionalTensor& t, const char* when) const;

  // An optional argument that is read for the requested gradient of `of`.
  void required_by_gradient(std::string_view argument, const OptionalTensor& t, std::string_view of) const;

 private:
  struct Dim {
    char letter;
    c10::SymInt size;
  };

  // Binds the dims that "..." stands for in one of the patterns.
  void broadcast_leading(std::string_view argument, c10::SymIntArrayRef sizes);
  const Dim* find(char letter) const;
  size_t missing_dims(const Pattern& pattern) const;
  const Pattern::Term* new_letter(Pattern::Sum sum) const;
  c10::SymInt product(const Pattern::Term& term) const;  // 0 if a letter has no size yet
  c10::SymInt value(Pattern::Sum sum) const;
  // Throws if a size is not divisible as `sum` says. `what` has the sizes `pattern`.
  void check_divisible(std::string_view what, const Pattern& pattern, Pattern::Sum sum) const;
  std::string spell_letters(Pattern::Sum sum) const;
  void strided(std::string_view argument, const Tensor& t) const;

  const char* op_;
  c10::SmallVector<Dim, 6> dims_;
  std::optional<bool> batched_;  // whether the optional first dim is present; set by the first pattern that has one
  c10::SymDimVector leading_;
  std::vector<std::string> have_leading_;  // the arguments whose patterns have "..."
};

namespace detail {

// The name of the library of operators that this copy of the kit is compiled for. Errors that concern no single
// operator begin with it, and the names of environment variables with its capitals: "my_ops" and MY_OPS_HUGE_PAGES.
const char* library_name();
std::string library_name_in_capitals();

// The CMake variable that turns its CUDA kernels on: "MY_OPS_WITH_CUDA".
const char* cuda_option();

// The dtype that one bit stands for, and the inverse.
at::ScalarType dtype_of(Dtypes bit);
Dtypes bit_of(at::ScalarType dtype);

// "sigmoid" for cppcuda::sigmoid and its overloads.
const char* op_name(const c10::FunctionSchema& schema);

// Throws if a tensor is undefined.
void check_defined(const char* op, std::string_view argument, const Tensor& t);

}  // namespace detail

// The call in an operator's public C++ function. torch rejects undefined tensors only if all of them are undefined, and
// its message does not name the argument.
template <class TheOp, class... Values>
  requires requires { TheOp::declaration; }
auto call(const Values&... values) {
  size_t tensor = 0;
  const auto check = [&]<class T>(const T& value) {
    if constexpr (std::is_same_v<T, Tensor>) {
      const Declaration& d = TheOp::declaration;
      if (!value.defined())
        detail::check_defined(TheOp::base_name(), d.arguments[d.tensor_argument(tensor)].name, value);
    }
    tensor += detail::is_tensor_argument<T>;
  };
  (check(values), ...);
  return TheOp::call(values...);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
