#include "cppcuda/kit/shape.h"

#include <ATen/OpMathType.h>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {
namespace {

template <class T>
const T& get(ArgumentPointers arguments, size_t i) {
  return *static_cast<const T*>(arguments[i]);
}

// Null if argument i, a tensor, is missing.
const Tensor* tensor(const Declaration& d, ArgumentPointers arguments, size_t i) {
  if (d.arguments[i].kind == Kind::tensor) return &get<Tensor>(arguments, i);
  const auto& optional = get<OptionalTensor>(arguments, i);
  return optional ? &*optional : nullptr;
}

bool is_requested(const Declaration& d, size_t o, ArgumentPointers arguments) {
  for (size_t i = 0; i < d.arguments.size(); ++i) {
    if (d.arguments[i].kind == Kind::mask && !get<c10::List<bool>>(arguments, i)[o]) return false;
  }
  return true;
}

}  // namespace

Checker check_arguments(const char* op, const Declaration& d, ArgumentPointers arguments) {
  Checker check(op);
  for (size_t i = 0; i < d.arguments.size(); ++i) {
    const Argument& a = d.arguments[i];
    if (a.kind == Kind::mask) check.length(a.name, get<c10::List<bool>>(arguments, i).size(), a.length);
  }
  for (size_t i = 0; i < d.arguments.size(); ++i) {
    const Argument& a = d.arguments[i];
    const Tensor* const t = is_tensor(a.kind) ? tensor(d, arguments, i) : nullptr;
    if (t != nullptr) a.is_index ? check.indices(a.name, *t) : check.floating(a.name, *t);
  }
  for (const size_t i : d.by_need) {
    const Tensor* const t = i == d.first ? nullptr : tensor(d, arguments, i);
    if (t == nullptr) continue;
    const Argument &a = d.arguments[i], &like = d.arguments[a.like];
    const Tensor* const other = a.is_index ? nullptr : tensor(d, arguments, a.like);
    if (other != nullptr) {
      a.is_opmath    ? check.opmath_dtype(a.name, *t, like.name, *other)
      : a.keeps_wide ? check.same_or_wider_dtype(a.name, *t, like.name, *other)
                     : check.same_dtype(a.name, *t, like.name, *other);
    }
    check.same_device(a.name, *t, d.arguments[d.first].name, get<Tensor>(arguments, d.first));
  }
  for (const auto& r : d.requirements) {
    if (!is_requested(d, r.output, arguments)) continue;
    const Tensor* const t = tensor(d, arguments, r.argument);
    check.required_by_gradient(d.arguments[r.argument].name, t ? OptionalTensor(*t) : std::nullopt,
                               d.outputs[r.output].name);
  }
  for (const size_t i : d.by_shape) {
    const Argument& a = d.arguments[i];
    if (a.kind == Kind::symbolic) {
      check.shape(a.name, get<c10::SymInt>(arguments, i), a.pattern);
    } else if (a.kind == Kind::integer) {
      check.shape(a.name, c10::SymInt(get<int64_t>(arguments, i)), a.pattern);
    } else if (a.kind == Kind::sizes) {
      check.shape(a.name, get<c10::SymIntArrayRef>(arguments, i), a.pattern);
    } else if (const Tensor* const t = tensor(d, arguments, i)) {
      check.shape(a.name, *t, a.pattern);
    }
  }
  return check;
}

Output output_of(const Checker& checked, const Declaration& d, size_t o, ArgumentPointers arguments) {
  const Argument& declared = d.outputs[o];
  const auto& like = get<Tensor>(arguments, declared.like);
  if (!is_requested(d, o, arguments)) return placeholder(like);
  at::TensorOptions options = like.options();
  if (declared.is_index) options = options.dtype(at::kLong);
  if (declared.is_opmath) options = options.dtype(at::toOpMathType(like.scalar_type()));
  return {checked.sizes(declared.pattern), options};
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
