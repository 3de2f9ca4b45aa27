#pragma once

#include <c10/macros/Macros.h>

#include <cstdint>

namespace cppcuda::core {

struct Division {
  int64_t quotient, remainder;
};

// A number that others are divided by: by a multiplication where both are below 2^31. On a GPU a division takes 20
// instructions for 32 bits, and many times as many for 64. (T. Granlund and P. L. Montgomery, "Division by invariant
// integers using multiplication", 1994.)
class Divisor {
 public:
  Divisor() : Divisor(1) {}
  Divisor(int64_t value) : value_(value) {
    if (value == 0 || value >> 31 != 0) return;  // 0: for nothing to divide
    while (int64_t{1} << shift_ < value) ++shift_;
    factor_ = static_cast<uint32_t>((((int64_t{1} << shift_) - value) << 32) / value + 1);
  }

  C10_HOST_DEVICE int64_t value() const { return value_; }

  // Both below 2^31.
  C10_HOST_DEVICE uint32_t quotient(uint32_t a) const {
    return (static_cast<uint32_t>(uint64_t{a} * factor_ >> 32) + a) >> shift_;
  }

  // a: not negative
  C10_HOST_DEVICE Division divide(int64_t a) const {
    const int64_t q = (a | value_) >> 31 == 0 ? quotient(static_cast<uint32_t>(a)) : a / value_;
    return {q, a - q * value_};
  }

 private:
  int64_t value_;
  uint32_t factor_ = 0;
  int shift_ = 0;
};

}  // namespace cppcuda::core
