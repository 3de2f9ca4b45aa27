#pragma once

#include "cppcuda/kit/elementwise/points.h"
#include "cppcuda/kit/rows/formula.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

// Calls f<Math>() for the functions of each operator that kernels compute.
template <class... Definitions, class F>
constexpr void for_each_math(Family<Definitions...>, F f) {
  const auto each = [&]<class Definition>(std::type_identity<Definition>) {
    if constexpr (is_of_rows<Definition>) {
      f.template operator()<RowForward<Definition>>();
      if constexpr (RowSchema<Definition>::has_backward) f.template operator()<RowBackward<Definition>>();
    } else {
      f.template operator()<ForwardMath<Definition>>();
      f.template operator()<BackwardMath<Definition>>();
      f.template operator()<DoubleBackwardMath<Definition>>();
    }
  };
  (each(std::type_identity<Definitions>()), ...);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
