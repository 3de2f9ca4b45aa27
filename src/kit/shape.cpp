#include "cppcuda/kit/shape.h"

#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>

#include <functional>
#include <numeric>
#include <vector>

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

// Calls f(name, tensor) for the tensors in argument i, a list. Their names are "xs[0]", "xs[1]", ...
template <class F>
void for_each_in_list(const Declaration& d, ArgumentPointers arguments, size_t i, F f) {
  const auto name = [&](size_t e) { return std::string(d.arguments[i].name) + "[" + std::to_string(e) + "]"; };
  const auto in_list = [&](at::TensorList list) {
    for (size_t e = 0; e < list.size(); ++e) f(name(e), list[e]);
  };
  if (d.arguments[i].kind == Kind::tensors) in_list(get<at::TensorList>(arguments, i));
  if (d.arguments[i].kind == Kind::maybe_tensors) {
    in_list(get<std::optional<at::TensorList>>(arguments, i).value_or(at::TensorList()));
  }
  if (d.arguments[i].kind == Kind::optional_tensors) {
    const auto& list = get<c10::List<OptionalTensor>>(arguments, i);
    for (size_t e = 0; e < list.size(); ++e) {
      const OptionalTensor t = list[e];
      if (t.has_value()) f(name(e), *t);
    }
  }
}

bool is_requested(const Declaration& d, size_t o, ArgumentPointers arguments) {
  for (size_t i = 0; i < d.arguments.size(); ++i) {
    if (d.arguments[i].kind == Kind::mask && !get<c10::List<bool>>(arguments, i)[o]) return false;
  }
  return true;
}

}  // namespace

void check_dtype(const Checker& check, const Declaration& d, size_t i, std::string_view name, const Tensor& t) {
  check.dtypes(name, t, d.arguments[i].allowed);
}

Checker check_arguments(const char* op, const Declaration& d, ArgumentPointers arguments) {
  Checker check(op);
  for (size_t i = 0; i < d.arguments.size(); ++i) {
    const Argument& a = d.arguments[i];
    if (a.kind == Kind::mask) check.length(a.name, get<c10::List<bool>>(arguments, i).size(), a.length);
  }
  for (size_t i = 0; i < d.arguments.size(); ++i) {
    const Argument& a = d.arguments[i];
    const Tensor* const t = is_tensor(a.kind) ? tensor(d, arguments, i) : nullptr;
    if (t != nullptr) check_dtype(check, d, i, a.name, *t);
    if (!d.takes_lists) continue;
    for_each_in_list(d, arguments, i,
                     [&](const std::string& name, const Tensor& each) { check_dtype(check, d, i, name, each); });
  }
  // The tensor whose device the others have, and its name.
  const Tensor* first = d.first < d.arguments.size() ? &get<Tensor>(arguments, d.first) : nullptr;
  std::string_view name_of_first = first != nullptr ? d.arguments[d.first].name : std::string_view();
  std::string in_list;
  const auto check_beside = [&](size_t i, std::string_view name, const Tensor& t) {
    const Argument& a = d.arguments[i];
    const bool is_like = a.dtypes == 0 && a.like < d.arguments.size() && is_tensor(d.arguments[a.like].kind);
    if (const Tensor* const other = is_like ? tensor(d, arguments, a.like) : nullptr) {
      const std::string_view like = d.arguments[a.like].name;
      a.is_opmath    ? check.opmath_dtype(name, t, like, *other)
      : a.keeps_wide ? check.same_or_wider_dtype(name, t, like, *other)
                     : check.same_dtype(name, t, like, *other);
    }
    if (first != nullptr) return check.same_device(name, t, name_of_first, *first);
    first = &t;
    name_of_first = in_list = name;
  };
  for (const size_t i : d.by_need) {
    const Tensor* const t = i == d.first ? nullptr : tensor(d, arguments, i);
    if (t != nullptr) check_beside(i, d.arguments[i].name, *t);
  }
  for (size_t i = 0; i < d.arguments.size() && d.takes_lists; ++i) {
    for_each_in_list(d, arguments, i,
                     [&](const std::string& name, const Tensor& each) { check_beside(i, name, each); });
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
    } else if (is_tensor_list(a.kind)) {
      for_each_in_list(d, arguments, i,
                       [&](const std::string& name, const Tensor& each) { check.shape(name, each, a.pattern); });
    } else if (const Tensor* const t = tensor(d, arguments, i)) {
      check.shape(a.name, *t, a.pattern);
    }
  }
  return check;
}

void flatten_leading(const Declaration& d, std::span<Tensor> arguments, std::span<Tensor> outputs) {
  const auto pattern = [&](size_t i) -> const Pattern& { return d.arguments[d.tensor_argument(i)].pattern; };
  std::vector<int64_t> leading;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].defined() || !pattern(i).has_any_leading()) continue;
    const auto sizes = arguments[i].sizes();
    leading = at::infer_size(leading, sizes.slice(0, sizes.size() - pattern(i).rank()));
  }
  const int64_t rows = std::accumulate(leading.begin(), leading.end(), int64_t{1}, std::multiplies());
  const auto with_own = [](std::vector<int64_t> sizes, const Tensor& t, const Pattern& p) {
    sizes.insert(sizes.end(), t.sizes().end() - p.rank(), t.sizes().end());
    return sizes;
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    Tensor& t = arguments[i];
    if (!t.defined() || !pattern(i).has_any_leading()) continue;
    t = t.expand(with_own(leading, t, pattern(i))).reshape(with_own({rows}, t, pattern(i)));
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Pattern& own = d.outputs[o].pattern;
    if (outputs[o].defined() && own.has_any_leading()) outputs[o] = outputs[o].view(with_own({rows}, outputs[o], own));
  }
}

Output output_of(const Checker& checked, const Declaration& d, size_t o, ArgumentPointers arguments) {
  const Argument& declared = d.outputs[o];
  const auto& like = get<Tensor>(arguments, declared.like);
  if (!is_requested(d, o, arguments)) return placeholder(like);
  at::TensorOptions options = like.options();
  if (declared.dtypes != 0) options = options.dtype(dtype_of(declared.dtypes));
  if (declared.is_opmath) options = options.dtype(at::toOpMathType(like.scalar_type()));
  const bool has_sizes_of =
      d.strides_of < d.arguments.size() && declared.pattern.text() == d.arguments[d.strides_of].pattern.text();
  return {checked.sizes(declared.pattern), options, has_sizes_of ? get<Tensor>(arguments, d.strides_of) : Tensor()};
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
