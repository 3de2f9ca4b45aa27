#pragma once

// Division of integers: rounded up, and as a multiplication.

#include <cstdint>

#include "cppcuda/kit/math/host_device.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// a / divisor rounded up, and a rounded up to a multiple of divisor. a must not be negative.
template <class T>
CPPCUDA_HOST_DEVICE constexpr T ceil_div(T a, T divisor) {
  return (a + divisor - 1) / divisor;
}
template <class T>
CPPCUDA_HOST_DEVICE constexpr T round_up(T a, T divisor) {
  return ceil_div(a, divisor) * divisor;
}

struct Division {
  int64_t quotient, remainder;
};

// A divisor that is known in advance, so that division becomes a multiplication and a shift. On a GPU a 32-bit division
// takes 20 instructions, and a 64-bit one calls a function. (T. Granlund and P. L. Montgomery, "Division by invariant
// integers using multiplication", 1994.)
class Divisor {
 public:
  Divisor() : Divisor(1) {}
  // A divisor of 0 is allowed but must not be used.
  Divisor(int64_t value) : value_(value) {
    if (value == 0) return;
    while (uint64_t{1} << shift_ < static_cast<uint64_t>(value)) ++shift_;
    const Wide rest = (uint64_t{1} << shift_) - static_cast<uint64_t>(value);  // less than value
    factor_ = static_cast<uint64_t>((rest << 64) / static_cast<uint64_t>(value) + 1);
    narrow_factor_ = static_cast<uint32_t>((rest << 32) / static_cast<uint64_t>(value) + 1);
  }

  CPPCUDA_HOST_DEVICE int64_t value() const { return value_; }

  // a and the divisor must be below 2^31.
  CPPCUDA_HOST_DEVICE uint32_t quotient(uint32_t a) const {
    return (static_cast<uint32_t>(uint64_t{a} * narrow_factor_ >> 32) + a) >> shift_;
  }

  // The same for 32-bit numbers, where the divisor must be below 2^31, too.
  CPPCUDA_HOST_DEVICE Division divide(int32_t a) const {
    const auto q = static_cast<int32_t>(quotient(static_cast<uint32_t>(a)));
    return {q, a - q * static_cast<int32_t>(value_)};
  }

  // a must not be negative.
  CPPCUDA_HOST_DEVICE Division divide(int64_t a) const {
    const auto n = static_cast<uint64_t>(a);
    const auto q = static_cast<int64_t>((static_cast<uint64_t>(Wide{n} * factor_ >> 64) + n) >> shift_);
    return {q, a - q * value_};
  }

 private:
  using Wide = unsigned __int128;

  int64_t value_;
  uint64_t factor_ = 0;
  uint32_t narrow_factor_ = 0;
  int shift_ = 0;
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
