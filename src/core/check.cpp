#include "core/check.h"

#include <c10/core/ScalarType.h>
#include <c10/core/SymBool.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>

#include "core/dtype.h"

namespace cppcuda::core {
namespace {

bool is_letter(char c) { return c >= 'A' && c <= 'Z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// One entry of a pattern, a sum.
struct Item {
  c10::SmallVector<Checker::Term, 2> terms;
  bool optional = false;
};

c10::SmallVector<Item, 6> parse(std::string_view pattern) {
  c10::SmallVector<Item, 6> items;
  bool new_item = true, new_term = true;
  auto term = [&]() -> Checker::Term& {
    if (new_item) items.emplace_back();
    if (new_item || new_term) items.back().terms.emplace_back();
    new_item = new_term = false;
    return items.back().terms.back();
  };
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (is_letter(c)) {
      TORCH_INTERNAL_ASSERT(new_item || new_term || !items.back().terms.back().letter, pattern);
      term().letter = c;
    } else if (is_digit(c)) {
      int64_t number = c - '0';
      while (i + 1 < pattern.size() && is_digit(pattern[i + 1])) number = 10 * number + (pattern[++i] - '0');
      term().factor = number;
    } else if (c == '?') {
      items.back().optional = true;
    } else if (c == '+') {
      new_term = true;
    } else if (c == ',') {
      new_item = true;
    } else {
      TORCH_INTERNAL_ASSERT(c == '[' || c == ']' || c == ' ', "not a pattern of sizes: ", pattern);
    }
  }
  return items;
}

// "[N, 3]", or with the optional dim "[B, N, 3]"
std::string spell(std::string_view pattern, bool with_optional) {
  const auto mark = pattern.find("?, ");
  if (mark == std::string_view::npos) return std::string(pattern);
  const std::string rest(pattern.substr(mark + 3));
  return with_optional ? std::string(pattern.substr(0, mark)) + ", " + rest : "[" + rest;
}

// "float32", as Python spells it.
std::string spell(at::ScalarType dtype) { return std::string(c10::getDtypeNames(dtype).first); }

}  // namespace

const char* op_name(const c10::FunctionSchema& schema) { return schema.name().c_str() + schema.name().find("::") + 2; }

void check_defined(const char* op, const char* argument, const Tensor& t) {
  TORCH_CHECK(t.defined(), op, ": ", argument, " must be a Tensor, got an undefined Tensor");
}

void Checker::floating(const char* argument, const Tensor& t) const {
  check_defined(op_, argument, t);
  TORCH_CHECK(t.layout() == at::kStrided, op_, ": ", argument, " must be a dense (strided) tensor, got layout ",
              t.layout());
  const auto dtype = t.scalar_type();
  TORCH_CHECK(dtype == at::kDouble || dtype == at::kFloat || is_16bit(dtype), op_, ": ", argument,
              " must be of dtype float64, float32, float16 or bfloat16, got ", spell(dtype));
}

void Checker::same_device(const char* argument, const Tensor& t, const char* other, const Tensor& as) const {
  TORCH_CHECK(t.device() == as.device(), op_, ": ", argument, " must be on ", as.device(), ", the device of ", other,
              ", got ", t.device());
}

void Checker::same_shape(const char* argument, const Tensor& t, const char* other, const Tensor& as) const {
  const auto sizes = t.sym_sizes(), expected = as.sym_sizes();
  TORCH_CHECK(sizes.size() == expected.size(), op_, ": ", argument, " must be ", expected, ", the shape of ", other,
              ", got ", sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    TORCH_SYM_CHECK(sizes[i].sym_eq(expected[i]), op_, ": ", argument, " must be ", expected, ", the shape of ", other,
                    ", got ", sizes);
  }
}

void Checker::same_dtype(const char* argument, const Tensor& t, const char* other, const Tensor& as) const {
  TORCH_CHECK(t.scalar_type() == as.scalar_type(), op_, ": ", argument, " must be of dtype ", spell(as.scalar_type()),
              ", the dtype of ", other, ", got ", spell(t.scalar_type()));
}

void Checker::same_or_wider_dtype(const char* argument, const Tensor& t, const char* other, const Tensor& as) const {
  if (t.scalar_type() == as.scalar_type() || (is_16bit(as.scalar_type()) && t.scalar_type() == at::kFloat)) return;
  TORCH_CHECK(false, op_, ": ", argument, " must be of dtype ", spell(as.scalar_type()), ", the dtype of ", other,
              is_16bit(as.scalar_type()) ? ", or float32" : "", ", got ", spell(t.scalar_type()));
}

void Checker::shape(const char* argument, const Tensor& t, std::string_view pattern) {
  const auto sizes = t.sym_sizes();
  auto items = parse(pattern);
  std::string expected(pattern);
  if (items.front().optional) {
    const bool there = batched_.value_or(sizes.size() == items.size());
    if (!there) items.erase(items.begin());
    expected = batched_ ? spell(pattern, there) : spell(pattern, false) + " or " + spell(pattern, true);
    batched_ = there;
  }
  TORCH_CHECK(sizes.size() == items.size(), op_, ": ", argument, " must be ", expected, ", got ", sizes);
  for (size_t i = 0; i < items.size(); ++i) {
    const auto& terms = items[i].terms;
    if (const Term* rest = new_letter(terms)) {
      c10::SymInt left = sizes[i];
      if (terms.size() > 1) {
        left = left - value(terms);
        TORCH_SYM_CHECK(left.sym_ge(0), op_, ": ", argument, " must be ", expected, spell_letters(terms), ", got ",
                        sizes);
      }
      dims_.push_back({rest->letter, left});
      continue;
    }
    TORCH_SYM_CHECK(sizes[i].sym_eq(value(terms)), op_, ": ", argument, " must be ", expected, spell_letters(terms),
                    ", got ", sizes);
  }
}

c10::SymDimVector Checker::sizes(std::string_view pattern) const {
  c10::SymDimVector result;
  for (const Item& item : parse(pattern)) {
    if (item.optional && !batched_.value_or(false)) continue;
    for (const Term& t : item.terms)
      TORCH_INTERNAL_ASSERT(!t.letter || find(t.letter), "no size is known of ", t.letter);
    result.push_back(value(item.terms));
  }
  return result;
}

c10::SymInt Checker::value(c10::ArrayRef<Term> terms) const {
  c10::SymInt sum = 0;
  for (const Term& t : terms) {
    if (t.letter && !find(t.letter)) continue;
    sum += t.letter ? t.factor * find(t.letter)->size : c10::SymInt(t.factor);
  }
  return sum;
}

const Checker::Term* Checker::new_letter(c10::ArrayRef<Term> terms) const {
  const auto at = std::find_if(terms.begin(), terms.end(),
                               [&](const Term& t) { return t.factor == 1 && t.letter && !find(t.letter); });
  return at == terms.end() ? nullptr : at;
}

// " with S = 4, I = 3"
std::string Checker::spell_letters(c10::ArrayRef<Term> terms) const {
  std::ostringstream out;
  const char* before = " with ";
  for (const Term& t : terms) {
    if (!t.letter || !find(t.letter)) continue;
    out << before << t.letter << " = " << find(t.letter)->size;
    before = ", ";
  }
  return out.str();
}

const Tensor& Checker::required(const char* argument, const OptionalTensor& t, const char* when) const {
  TORCH_CHECK(t.has_value() && t->defined(), op_, ": ", argument, " must be a Tensor ", when, ", got None");
  return *t;
}

const Checker::Dim* Checker::find(char letter) const {
  const auto at = std::find_if(dims_.begin(), dims_.end(), [&](const Dim& d) { return d.letter == letter; });
  return at == dims_.end() ? nullptr : &*at;
}

void Checker::check_length(const char* argument, size_t came, size_t expected) const {
  TORCH_CHECK(came == expected, op_, ": ", argument, " must have ", expected, " entries, got ", came);
}

}  // namespace cppcuda::core
