#include "cppcuda/kit/check.h"

#include <ATen/OpMathType.h>
#include <c10/core/ScalarType.h>
#include <c10/core/SymBool.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
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

// "int8, int16 or int32"
std::string spell(Dtypes dtypes) {
  std::string result;
  for (size_t i = std::size(dtype_names); i-- > 0;) {
    if ((dtypes >> i & 1) == 0) continue;
    const Dtypes before = dtypes & ((1U << i) - 1);
    const std::string_view separator = before == 0 ? "" : (dtypes >> (i + 1)) == 0 ? " or " : ", ";
    result = std::string(separator) + std::string(dtype_names[i]) + result;
  }
  return result;
}

constexpr at::ScalarType dtypes_by_name[] = {
    at::kDouble, at::kFloat, at::kHalf,  at::kBFloat16, at::kComplexFloat, at::kComplexDouble, at::kBool,
    at::kByte,   at::kChar,  at::kShort, at::kInt,      at::kLong,         at::kFloat8_e4m3fn, at::kFloat8_e5m2};
static_assert(std::size(dtypes_by_name) == std::size(dtype_names));

}  // namespace

namespace detail {

at::ScalarType dtype_of(Dtypes bit) { return dtypes_by_name[std::countr_zero(bit)]; }

Dtypes bit_of(at::ScalarType dtype) {
  static constexpr auto bits = [] {
    std::array<Dtypes, 256> result{};
    for (size_t i = 0; i < std::size(dtypes_by_name); ++i) result[static_cast<uint8_t>(dtypes_by_name[i])] = 1U << i;
    return result;
  }();
  return bits[static_cast<uint8_t>(dtype)];
}

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

void Checker::dtypes(std::string_view argument, const Tensor& t, Dtypes dtypes) const {
  strided(argument, t);
  TORCH_CHECK((detail::bit_of(t.scalar_type()) & dtypes) != 0, op_, ": ", argument, " must be of dtype ", spell(dtypes),
              ", got ", spell(t.scalar_type()));
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
  const size_t rank = pattern.rank() - missing;
  TORCH_CHECK(sizes.size() == rank || (pattern.has_any_leading() && sizes.size() > rank), op_, ": ", argument,
              " must be ", expected(), ", got ", sizes);
  const auto all = sizes;
  sizes = all.slice(all.size() - rank);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (pattern.is_any(i + missing)) continue;
    const auto sum = pattern[i + missing];
    check_divisible(argument, pattern, sum);
    if (const auto* rest = new_letter(sum)) {
      c10::SymInt left = sizes[i];
      if (sum.size() > 1) {
        left = left - value(sum);
        TORCH_SYM_CHECK(left.sym_ge(0), op_, ": ", argument, " must be ", expected(), spell_letters(sum), ", got ",
                        all);
      }
      dims_.push_back({rest->letter, left});
      continue;
    }
    TORCH_CHECK(expect_equal(sizes[i], value(sum)), op_, ": ", argument, " must be ", expected(), spell_letters(sum),
                ", got ", all);
  }
  if (pattern.has_any_leading()) broadcast_leading(argument, all.slice(0, all.size() - rank));
}

void Checker::broadcast_leading(std::string_view argument, c10::SymIntArrayRef sizes) {
  have_leading_.emplace_back(argument);
  const std::vector<std::string_view> names(have_leading_.begin(), have_leading_.end());
  const c10::SymDimVector before = names.size() == 1 ? c10::SymDimVector(sizes) : leading_;
  std::vector<c10::SymIntArrayRef> all(names.size(), before);
  all.back() = sizes;
  leading_ = broadcast(names, all, "the dims before the last ones of ");
}

c10::SymDimVector Checker::sizes(const Pattern& pattern) const {
  c10::SymDimVector result(pattern.has_any_leading() ? leading_ : c10::SymDimVector());
  for (size_t i = missing_dims(pattern); i < pattern.rank(); ++i) {
    for (const auto& term : pattern[i]) {
      for (const char letter : {term.letter, term.other}) {
        TORCH_INTERNAL_ASSERT(!letter || find(letter), "no size is known of ", letter);
      }
    }
    check_divisible("the output", pattern, pattern[i]);
    result.push_back(value(pattern[i]));
    const auto is_negative = [](const auto& term) { return term.factor < 0; };
    if (std::any_of(pattern[i].begin(), pattern[i].end(), is_negative)) {
      TORCH_SYM_CHECK(result.back().sym_ge(0), op_, ": the output must be ", pattern.text(), spell_letters(pattern[i]),
                      ", which is negative");
    }
  }
  return result;
}

void Checker::check_divisible(std::string_view what, const Pattern& pattern, Pattern::Sum sum) const {
  for (const auto& term : sum) {
    if (term.divisor == 1) continue;
    TORCH_SYM_CHECK((product(term) % term.divisor).sym_eq(0), op_, ": ", what, " must be ", pattern.text(),
                    spell_letters(sum), ", which is not divisible by ", term.divisor);
  }
}

c10::SymInt Checker::product(const Pattern::Term& term) const {
  c10::SymInt result = term.factor;
  for (const char letter : {term.letter, term.other}) {
    if (!letter) continue;
    const Dim* dim = find(letter);
    if (!dim) return c10::SymInt(0);
    result = result == 1 ? dim->size : result * dim->size;
  }
  return result;
}

size_t Checker::missing_dims(const Pattern& pattern) const {
  return pattern.has_optional() && !batched_.value_or(false) ? 1 : 0;
}

c10::SymInt Checker::value(Pattern::Sum sum) const {
  const auto value_of = [&](const Pattern::Term& term) {
    return term.divisor == 1 ? product(term) : product(term) / term.divisor;
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
