#pragma once

// Checks of what the operators of splines have in common.

#include <algorithm>
#include <string_view>

#include "cppcuda/kit/check.h"
#include "interpolation/splines.h"

namespace cppcuda::interpolation {

inline Border find_border(const char* op, std::string_view name) {
  static constexpr std::string_view names[] = {"mirror", "reflect", "grid-wrap", "nearest", "grid-constant"};
  const auto* const found = std::find(std::begin(names), std::end(names), name);
  TORCH_CHECK(found != std::end(names), op,
              ": border must be 'mirror', 'reflect', 'grid-wrap', 'nearest' or 'grid-constant', got '", name, "'");
  return static_cast<Border>(found - std::begin(names));
}

inline void check_order(const char* op, int64_t order) {
  TORCH_CHECK(order >= 0 && order <= max_order, op, ": order must be from 0 to ", max_order, ", got ", order);
}

inline void check_size(const char* op, const char* argument, c10::SymIntArrayRef size, c10::SymIntArrayRef shown) {
  for (const c10::SymInt& s : size) {
    TORCH_SYM_CHECK(s.sym_ge(1), op, ": ", argument, " must have at least one coefficient along each axis, got ",
                    shown);
    TORCH_SYM_CHECK(s.sym_le(max_coefficients), op, ": ", argument, " must have at most ", max_coefficients,
                    " coefficients along each axis, got ", shown);
  }
}

}  // namespace cppcuda::interpolation
