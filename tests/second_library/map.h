#pragma once

// The CPU loop of scale, exp and sincos.

#include <ATen/Parallel.h>

#include <algorithm>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/output.h"
#include "cppcuda/kit/row_strides.h"

namespace second {

using cppcuda::OptionalTensor;
using cppcuda::Tensor;
namespace kit = cppcuda::kit;

// The values of a tensor [B?, N, F] with any strides; zeros if it is undefined.
template <class T>
struct Operand {
  const T* data = nullptr;
  kit::RowStride rows{};
  int64_t step = 0;

  explicit Operand(const Tensor& t) {
    if (t.defined()) data = t.const_data_ptr<T>(), rows = kit::row_stride(t, /*own=*/1), step = t.stride(-1);
  }

  // The elements of a row.
  auto row(const kit::Rows& all, int64_t row) const {
    return [from = data ? data + rows.offset(all, row) : nullptr, step = step](int64_t i) {
      return from ? static_cast<kit::opmath<T>>(from[i * step]) : kit::opmath<T>(0);
    };
  }
};

// out[b, n, i] = f(inputs[b, n, i]...), for a contiguous `out`.
template <class F, class... Inputs>
void map(const Tensor& out, F f, const Inputs&... inputs) {
  kit::visit_dtype(out.scalar_type(), [&]<class T>(std::type_identity<T>) {
    auto run = [&](T* to, const auto&... from) {
      const kit::Rows rows = kit::make_rows(out, /*own=*/1, from.rows...);
      const int64_t features = out.size(-1),
                    grain_size = std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(1, features));
      at::parallel_for(0, rows.count, grain_size, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          auto map_row = [&](auto... value) {
            for (int64_t i = 0; i < features; ++i) to[row * features + i] = static_cast<T>(f(value(i)...));
          };
          map_row(from.row(rows, row)...);
        }
      });
    };
    run(out.mutable_data_ptr<T>(), Operand<T>(inputs)...);
  });
}

}  // namespace second
