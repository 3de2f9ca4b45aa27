#pragma once

#include <c10/macros/Macros.h>

#include <cstdint>

namespace cppcuda::core {

struct Division {
  int64_t quotient, remainder;
};

// Of numbers that are not negative. On a GPU a 64-bit division takes many times as long as one of 32 bits, which is
// enough for all but huge tensors.
C10_HOST_DEVICE inline Division divide(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) {
    const uint32_t quotient = static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
    return {quotient, static_cast<uint32_t>(a) - quotient * static_cast<uint32_t>(b)};
  }
  return {a / b, a % b};
}

}  // namespace cppcuda::core
