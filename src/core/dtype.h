#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

#include <type_traits>

namespace cppcuda::core {

inline bool is_16bit(c10::ScalarType dtype) { return dtype == c10::kHalf || dtype == c10::kBFloat16; }

// Calls f(std::type_identity<T>{}) with the C++ type of a dtype that Checker::floating lets
// through.
template <class F>
void visit_dtype(c10::ScalarType dtype, F&& f) {
  switch (dtype) {
    case c10::kDouble:
      return f(std::type_identity<double>{});
    case c10::kFloat:
      return f(std::type_identity<float>{});
    case c10::kHalf:
      return f(std::type_identity<c10::Half>{});
    case c10::kBFloat16:
      return f(std::type_identity<c10::BFloat16>{});
    default:
      TORCH_INTERNAL_ASSERT(false, "unchecked dtype ", dtype);
  }
}

}  // namespace cppcuda::core
