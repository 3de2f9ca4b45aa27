#pragma once

// The CPU loop of scale, exp and sincos.

#include <ATen/Parallel.h>

#include <algorithm>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/output.h"

namespace second {

using at::Tensor;
using cppcuda::kit::OptionalTensor;
namespace kit = cppcuda::kit;

// The elements of a row; zeros if the tensor is missing.
template <class T>
auto elements(const kit::RowsOf<T>& operand, const kit::Rows& rows, int64_t row) {
  return [from = operand.data ? operand.at(rows, row) : nullptr, step = operand.inner](int64_t i) {
    return from ? static_cast<kit::opmath<T>>(from[i * step]) : kit::opmath<T>(0);
  };
}

// out[b, n, i] = f(inputs[b, n, i]...), for inputs with any strides and a contiguous `out`.
template <class F, class... Inputs>
void map(const Tensor& out, F f, const Inputs&... inputs) {
  kit::visit_dtype(out.scalar_type(), [&]<class T>(std::type_identity<T>) {
    auto run = [&](T* to, const auto&... from) {
      const kit::Rows rows = kit::make_rows(out, /*own=*/1, from...);
      const int64_t features = out.size(-1),
                    grain_size = std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(1, features));
      at::parallel_for(0, rows.count, grain_size, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          auto map_row = [&](auto... value) {
            for (int64_t i = 0; i < features; ++i) to[row * features + i] = static_cast<T>(f(value(i)...));
          };
          map_row(elements(from, rows, row)...);
        }
      });
    };
    run(out.mutable_data_ptr<T>(), kit::rows_of<T>(inputs, /*own=*/1)...);
  });
}

}  // namespace second
