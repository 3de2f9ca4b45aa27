#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// A check at compile time. The compiler's error shows the message as an argument of this function.
constexpr void require(bool condition, const char* message, std::string_view text) {
  if (!condition) throw std::invalid_argument(std::string(message) + ": " + std::string(text));
}

// A pattern of sizes, such as "[B?, N, 8, F]". A number is a fixed size. A letter matches any size, but the same size
// in all patterns of a call. A first dim with "?" may be missing. "3S", "LC" (a product), "S + I" and "LL + 2L + 1" are
// computed from letters that earlier patterns bound; a sum has up to three terms and may contain one new letter without
// a factor, which is bound to the remainder.
//
// Literals are parsed at compile time; an invalid pattern does not compile.
class Pattern {
 public:
  // A product of a number and up to two letters.
  struct Term {
    int64_t factor = 1;
    char letter = 0, other = 0;
    constexpr bool is_letter() const { return letter != 0 && other == 0 && factor == 1; }
  };
  using Sum = std::span<const Term>;

  consteval Pattern(const char* literal) : Pattern(std::string_view(literal)) {}  // NOLINT: literals convert

  explicit constexpr Pattern(std::string_view text) : text_(text) {
    const auto accept = [text](bool good) { require(good, "not a pattern of sizes", text); };
    bool new_dim = true, new_term = true;
    auto term = [&]() -> Term& {
      if (new_dim) ++rank_;
      Dim& dim = dims_.at(rank_ - 1);
      if (new_dim || new_term) ++dim.terms;
      new_dim = new_term = false;
      return dim.sum.at(dim.terms - 1);
    };
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c >= 'A' && c <= 'Z') {
        Term& t = term();
        accept(t.other == 0);
        (t.letter == 0 ? t.letter : t.other) = c;
      } else if (is_digit(c)) {
        int64_t number = c - '0';
        while (i + 1 < text.size() && is_digit(text[i + 1])) number = 10 * number + (text[++i] - '0');
        term().factor = number;
      } else if (c == '?') {
        accept(rank_ == 1);
        optional_ = true;
      } else if (c == '+') {
        new_term = true;
      } else if (c == ',') {
        new_dim = true;
      } else {
        accept(c == '[' || c == ']' || c == ' ');
      }
    }
  }

  constexpr std::string_view text() const { return text_; }

  // Including the optional dim.
  constexpr size_t rank() const { return rank_; }

  constexpr Sum operator[](size_t dim) const { return {dims_[dim].sum.data(), dims_[dim].terms}; }

  // The letter that a dim is, 0 if it is a number, a product or a sum.
  constexpr char letter(size_t dim) const {
    const Term& term = dims_[dim].sum[0];
    return dims_[dim].terms == 1 && term.is_letter() ? term.letter : 0;
  }

  // Whether the first dim may be missing.
  constexpr bool has_optional() const { return optional_; }

 private:
  struct Dim {
    std::array<Term, 3> sum;
    size_t terms = 0;
  };

  static constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

  std::string_view text_;
  std::array<Dim, 6> dims_;
  size_t rank_ = 0;
  bool optional_ = false;
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
