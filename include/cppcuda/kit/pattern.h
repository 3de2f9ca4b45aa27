#pragma once

// The sizes of a tensor in a declaration, such as [B?, N, 8, F], parsed at compile time.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// A check at compile time. The compiler's error shows the message as an argument of this function.
constexpr void require(bool condition, const char* message, std::string_view text) {
  if (!condition) throw std::invalid_argument(std::string(message) + ": " + std::string(text));
}

// The first mistake in a declaration, as a sentence; empty if there is none. The compiler prints it as the argument of
// a template (OpBase in derive.h), because g++ does not show the values that a constant expression computes.
struct Mistake {
  char text[384] = {};

  constexpr bool exists() const { return text[0] != 0; }

  // Returns the condition. If it is false, joins the parts to a sentence, unless there is a mistake already.
  constexpr bool require(bool condition, std::initializer_list<std::string_view> parts) {
    if (condition || exists()) return condition;
    size_t size = 0;
    for (const std::string_view part : parts) {
      for (size_t i = 0; i < part.size() && size + 1 < sizeof(text); ++i) text[size++] = part[i];
    }
    return false;
  }
};

// A pattern of sizes, such as "[B?, N, 8, F]". A number is a fixed size. A letter matches any size, but the same size
// in all patterns of a call. A first dim with "?" may be missing. "3S", "LC" (a product), "D/2", "S - 1" and
// "LL + 2L + 1" are computed from letters that earlier patterns bound; a sum has up to three terms and may contain one
// new letter without a factor, which is bound to the remainder. "_" matches any size. "{M}", in an output, is a size
// that the kernel finds. "[..., 3]" has any dims before the last one; those of all such patterns of a call broadcast.
//
// Literals are parsed at compile time; an invalid pattern does not compile.
class Pattern {
 public:
  // A product of a number and up to two letters, divided by a number.
  struct Term {
    int64_t factor = 1, divisor = 1;
    char letter = 0, other = 0;
    constexpr bool is_letter() const { return letter != 0 && other == 0 && factor == 1 && divisor == 1; }
  };
  using Sum = std::span<const Term>;

  constexpr Pattern() = default;

  consteval Pattern(const char* literal) {  // NOLINT: literals convert
    Mistake mistake;
    *this = Pattern(literal, mistake);
    require(!mistake.exists(), "not a pattern of sizes", literal);
  }

  constexpr Pattern(std::string_view text, Mistake& mistake) : text_(text) {
    bool new_dim = true, new_term = true, is_negative = false;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '{') {
        const bool is_letter_alone = i + 2 < text.size() && is_letter(text[i + 1]) && text[i + 2] == '}';
        if (!mistake.require(is_letter_alone, {text, " has braces without one letter between them, as in {M}"})) return;
        found_ |= 1U << (text[i + 1] - 'A');
        continue;
      }
      if (c == '}') continue;
      if (c == '_') {
        const bool is_alone = i > 0 && (text[i - 1] == '[' || text[i - 1] == ' ' || text[i - 1] == ',') &&
                              i + 1 < text.size() && (text[i + 1] == ']' || text[i + 1] == ',');
        if (!mistake.require(is_alone, {text, " has a _ that is not a dim alone"})) return;
      }
      if (is_letter(c) || is_digit(c)) {
        if (new_dim && !mistake.require(rank_ < max_rank, {text, " has more than 8 dims"})) return;
        if (new_dim) {
          begins_[rank_ + 1] = begins_[rank_];
          ++rank_;
        }
        uint8_t& end = begins_[rank_];
        new_term |= new_dim;
        if (new_term && (!mistake.require(end - begins_[rank_ - 1] < 3, {text, " has a sum of more than 3 terms"}) ||
                         !mistake.require(end < terms_.size(), {text, " has more than 16 terms"}))) {
          return;
        }
        if (new_term) ++end;
        Term& term = terms_[end - 1];
        if (new_term) term.factor = is_negative ? -1 : 1;
        new_dim = new_term = is_negative = false;
        if (c == '_') any_size_ = true;
        if (is_letter(c)) {
          mistake.require(term.other == 0, {text, " has a product of more than 2 letters"});
          (term.letter == 0 ? term.letter : term.other) = c;
        } else {
          term.factor *= read_number(text, i);
        }
      } else if (c == '/') {
        const bool has_number = i + 1 < text.size() && is_digit(text[i + 1]) && text[i + 1] != '0';
        if (!mistake.require(!new_term && !new_dim && has_number,
                             {text, " has a / that does not divide a product by a number, as in D/2"})) {
          return;
        }
        terms_[begins_[rank_] - 1].divisor = read_number(text, ++i);
      } else if (c == '.') {
        mistake.require(rank_ == 0 && text.substr(i, 3) == "...", {text, " has dots that are not ... before all dims"});
        any_leading_ = true;
        i += 2;
      } else if (c == '?') {
        mistake.require(rank_ == 1 && !new_dim, {text, " has a ? that does not follow the first dim"});
        optional_ = true;
      } else if (c == '+' || c == '-') {
        new_term = true;
        is_negative = c == '-';
      } else if (c == ',') {
        new_dim = true;
      } else {
        mistake.require(
            c == '[' || c == ']' || c == ' ',
            {text, " has the part ", text.substr(i, 1),
             "; a dim is a number, a capital letter, a product such as 3S or LC, D/2, or a sum such as S + 1"});
      }
    }
  }

  constexpr std::string_view text() const { return text_; }

  // Including the optional dim.
  constexpr size_t rank() const { return rank_; }

  constexpr Sum operator[](size_t dim) const { return {&terms_[begins_[dim]], &terms_[0] + begins_[dim + 1]}; }

  // The letter that a dim is, 0 if it is a number, a product or a sum.
  constexpr char letter(size_t dim) const {
    const Sum sum = (*this)[dim];
    return sum.size() == 1 && sum[0].is_letter() && sum[0].letter != '_' ? sum[0].letter : 0;
  }

  // A bit for each letter in braces.
  constexpr unsigned found() const { return found_; }

  constexpr bool is_any(size_t dim) const { return (*this)[dim][0].letter == '_'; }

  // Whether a dim is "_".
  constexpr bool has_any_size() const { return any_size_; }

  // Whether any dims may come before those of the pattern.
  constexpr bool has_any_leading() const { return any_leading_; }

  // Whether the first dim may be missing.
  constexpr bool has_optional() const { return optional_; }

 private:
  static constexpr size_t max_rank = 8;

  static constexpr bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }
  static constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

  // Moves i to the last digit of the number.
  static constexpr int64_t read_number(std::string_view text, size_t& i) {
    int64_t result = text[i] - '0';
    while (i + 1 < text.size() && is_digit(text[i + 1])) result = 10 * result + (text[++i] - '0');
    return result;
  }

  std::string_view text_;
  std::array<Term, 16> terms_;                     // of all dims
  std::array<uint8_t, max_rank + 1> begins_ = {};  // of each dim
  size_t rank_ = 0;
  unsigned found_ = 0;
  bool optional_ = false, any_leading_ = false, any_size_ = false;
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
