#include "cppcuda/kit/check.h"

#include <ATen/OpMathType.h>
#include <c10/core/ScalarType.h>
#include <c10/core/SymBool.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "cppcuda/kit/dtype.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {
namespace {

// "[N, 3]", or "[B, N, 3]" with the optional dim.
std::string spell(std::string_view pattern, bool with_optional) {
  const auto mark = pattern.find("?, ");
  if (mark == std::string_view::npos) return std::string(pattern);
  const std::string rest(pattern.substr(mark + 3));
  return with_optional ? std::string(pattern.substr(0, mark)) + ", " + rest : "[" + rest;
}

// The condition of TORCH_SYM_CHECK(a.sym_eq(b)), without its calls if both are numbers: a small operator makes many.
bool expect_equal(const c10::SymInt& a, const c10::SymInt& b) {
  if (!a.is_heap_allocated() && !b.is_heap_allocated()) return a.as_int_unchecked() == b.as_int_unchecked();
  return a.sym_eq(b).expect_true(__FILE__, __LINE__);
}

// "float32", as Python spells it.
std::string spell(at::ScalarType dtype) { return std::string(c10::getDtypeNames(dtype).first); }

}  // namespace

namespace detail {

std::string library_name_in_capitals() {
  std::string name = library_name();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

const char* op_name(const c10::FunctionSchema& schema) { return schema.name().c_str() + schema.name().find("::") + 2; }

void check_defined(const char* op, std::string_view argument, const Tensor& t) {
  TORCH_CHECK(t.defined(), op, ": ", argument, " must be a Tensor, got an undefined Tensor");
}

}  // namespace detail

void Checker::strided(std::string_view argument, const Tensor& t) const {
  detail::check_defined(op_, argument, t);
  TORCH_CHECK(t.layout() == at::kStrided, op_, ": ", argument, " must be a dense (strided) tensor, got layout ",
              t.layout());
}

void Checker::floating(std::string_view argument, const Tensor& t) const {
  strided(argument, t);
  const auto dtype = t.scalar_type();
  TORCH_CHECK(dtype == at::kDouble || dtype == at::kFloat || is_16bit(dtype), op_, ": ", argument,
              " must be of dtype float64, float32, float16 or bfloat16, got ", spell(dtype));
}

void Checker::indices(std::string_view argument, const Tensor& t) const {
  strided(argument, t);
  const auto dtype = t.scalar_type();
  TORCH_CHECK(dtype == at::kInt || dtype == at::kLong, op_, ": ", argument, " must be of dtype int32 or int64, got ",
              spell(dtype));
}

void Checker::same_device(std::string_view argument, const Tensor& t, std::string_view other,
                          c10::Device expected) const {
  TORCH_CHECK(t.device() == expected, op_, ": ", argument, " must be on ", expected, ", the device of ", other,
              ", got ", t.device());
}

void Checker::same_shape(std::string_view argument, const Tensor& t, std::string_view other,
                         c10::SymIntArrayRef expected) const {
  const auto sizes = t.sym_sizes();
  TORCH_CHECK(sizes.size() == expected.size(), op_, ": ", argument, " must be ", expected, ", the shape of ", other,
              ", got ", sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    TORCH_CHECK(expect_equal(sizes[i], expected[i]), op_, ": ", argument, " must be ", expected, ", the shape of ",
                other, ", got ", sizes);
  }
}

c10::SymDimVector Checker::broadcast(std::span<const std::string_view> arguments,
                                     std::span<const c10::SymIntArrayRef> all, const char* which) const {
  const auto is_one = [](const c10::SymInt& size) {
    return size.is_heap_allocated() ? TORCH_GUARD_OR_FALSE(size.sym_eq(1)) : size.as_int_unchecked() == 1;
  };
  const auto names_before = [&](size_t i) {
    std::string names(arguments[0]);
    for (size_t j = 1; j < i; ++j) names.append(" and ").append(arguments[j]);
    return names;
  };
  c10::SymDimVector sizes(all[0]);
  for (size_t i = 1; i < all.size(); ++i) {
    const auto own = all[i];
    const c10::SymDimVector before = sizes;
    if (own.size() > sizes.size()) sizes.insert(sizes.begin(), own.begin(), own.end() - sizes.size());
    for (size_t d = 1; d <= own.size() && d <= before.size(); ++d) {
      const c10::SymInt& size = own[own.size() - d];
      c10::SymInt& result = sizes[sizes.size() - d];
      if (is_one(result)) {
        result = size;
      } else {
        TORCH_CHECK(is_one(size) || expect_equal(size, result), op_, ": ", arguments[i], " must broadcast with ",
                    before, ", ", which, names_before(i), ", got ", own);
      }
    }
  }
  return sizes;
}

void Checker::same_dtype(std::string_view argument, const Tensor& t, std::string_view other,
                         at::ScalarType expected) const {
  TORCH_CHECK(t.scalar_type() == expected, op_, ": ", argument, " must be of dtype ", spell(expected),
              ", the dtype of ", other, ", got ", spell(t.scalar_type()));
}

void Checker::same_or_wider_dtype(std::string_view argument, const Tensor& t, std::string_view other,
                                  const Tensor& as) const {
  if (t.scalar_type() == as.scalar_type() || (is_16bit(as.scalar_type()) && t.scalar_type() == at::kFloat)) return;
  TORCH_CHECK(false, op_, ": ", argument, " must be of dtype ", spell(as.scalar_type()), ", the dtype of ", other,
              is_16bit(as.scalar_type()) ? ", or float32" : "", ", got ", spell(t.scalar_type()));
}

void Checker::opmath_dtype(std::string_view argument, const Tensor& t, std::string_view other, const Tensor& as) const {
  const at::ScalarType opmath = at::toOpMathType(as.scalar_type());
  TORCH_CHECK(t.scalar_type() == opmath, op_, ": ", argument, " must be of dtype ", spell(opmath),
              ", the opmath dtype of ", other, ", got ", spell(t.scalar_type()));
}

void Checker::shape(std::string_view argument, c10::SymIntArrayRef sizes, const Pattern& pattern) {
  const auto known = batched_;
  if (pattern.has_optional()) batched_ = known.value_or(sizes.size() == pattern.rank());
  const size_t missing = missing_dims(pattern);
  auto expected = [&] {
    if (!pattern.has_optional()) return std::string(pattern.text());
    if (known) return spell(pattern.text(), *known);
    return spell(pattern.text(), false) + " or " + spell(pattern.text(), true);
  };
  TORCH_CHECK(sizes.size() == pattern.rank() - missing, op_, ": ", argument, " must be ", expected(), ", got ", sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto sum = pattern[i + missing];
    if (const auto* rest = new_letter(sum)) {
      c10::SymInt left = sizes[i];
      if (sum.size() > 1) {
        left = left - value(sum);
        TORCH_SYM_CHECK(left.sym_ge(0), op_, ": ", argument, " must be ", expected(), spell_letters(sum), ", got ",
                        sizes);
      }
      dims_.push_back({rest->letter, left});
      continue;
    }
    TORCH_CHECK(expect_equal(sizes[i], value(sum)), op_, ": ", argument, " must be ", expected(), spell_letters(sum),
                ", got ", sizes);
  }
}

c10::SymDimVector Checker::sizes(const Pattern& pattern) const {
  c10::SymDimVector result;
  for (size_t i = missing_dims(pattern); i < pattern.rank(); ++i) {
    for (const auto& term : pattern[i]) {
      for (const char letter : {term.letter, term.other}) {
        TORCH_INTERNAL_ASSERT(!letter || find(letter), "no size is known of ", letter);
      }
    }
    result.push_back(value(pattern[i]));
  }
  return result;
}

size_t Checker::missing_dims(const Pattern& pattern) const {
  return pattern.has_optional() && !batched_.value_or(false) ? 1 : 0;
}

c10::SymInt Checker::value(Pattern::Sum sum) const {
  const auto value_of = [&](const Pattern::Term& term) {
    c10::SymInt product = term.factor;
    for (const char letter : {term.letter, term.other}) {
      if (!letter) continue;
      const Dim* dim = find(letter);
      if (!dim) return c10::SymInt(0);
      product = product == 1 ? dim->size : product * dim->size;
    }
    return product;
  };
  c10::SymInt result = value_of(sum[0]);
  for (const auto& term : sum.subspan(1)) result += value_of(term);
  return result;
}

const Pattern::Term* Checker::new_letter(Pattern::Sum sum) const {
  const auto term =
      std::find_if(sum.begin(), sum.end(), [&](const auto& t) { return t.is_letter() && !find(t.letter); });
  return term == sum.end() ? nullptr : &*term;
}

// " with S = 4, I = 3"
std::string Checker::spell_letters(Pattern::Sum sum) const {
  std::ostringstream out;
  std::string spelled;
  for (const auto& t : sum) {
    for (const char letter : {t.letter, t.other}) {
      const Dim* dim = letter && spelled.find(letter) == spelled.npos ? find(letter) : nullptr;
      if (!dim) continue;
      out << (spelled.empty() ? " with " : ", ") << letter << " = " << dim->size;
      spelled += letter;
    }
  }
  return out.str();
}

const Tensor& Checker::required(std::string_view argument, const OptionalTensor& t, const char* when) const {
  TORCH_CHECK(t.has_value() && t->defined(), op_, ": ", argument, " must be a Tensor ", when, ", got None");
  return *t;
}

void Checker::required_by_gradient(std::string_view argument, const OptionalTensor& t, std::string_view of) const {
  if (t.has_value() && t->defined()) return;
  required(argument, t, ("if the gradient of " + std::string(of) + " is requested").c_str());
}

const Checker::Dim* Checker::find(char letter) const {
  const auto dim = std::find_if(dims_.begin(), dims_.end(), [&](const Dim& d) { return d.letter == letter; });
  return dim == dims_.end() ? nullptr : &*dim;
}

void Checker::length(std::string_view argument, size_t actual, size_t expected) const {
  TORCH_CHECK(actual == expected, op_, ": ", argument, " must have ", expected, " entries, got ", actual);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
