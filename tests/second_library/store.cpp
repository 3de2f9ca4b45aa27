// second::store(Tensor(a!) cache, Tensor(b!)? counts, Tensor values, Tensor rows) -> (): writes values into the rows of
// a cache that `rows` names, and adds one to the count of each of them.

#include <torch/library.h>

#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/math/opmath.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using Store = kit::Op<
    "second::store(Tensor(a!) cache[B?, V, F], Tensor(b!)? counts[B?, V], Tensor values[B?, N, F], "
    "Tensor rows[B?, N] int32 or int64) -> ()">;

void store_cpu(const kit::Args<Store>& args) {
  const Tensor &cache = args["cache"], &counts = args["counts"];
  const Tensor values = args["values"].contiguous(), rows = args["rows"].to(at::kLong).contiguous();
  const bool has_batch = cache.dim() == 3;
  const int64_t batch = has_batch ? cache.size(0) : 1, n = rows.size(-1), features = cache.size(-1);
  const int64_t cache_stride = has_batch ? cache.stride(0) : 0;
  const int64_t* const row = rows.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < batch * n; ++i) {
    TORCH_CHECK_INDEX(row[i] >= 0 && row[i] < cache.size(-2), "store: rows must be in [0, ", cache.size(-2), "), got ",
                      row[i]);
  }
  kit::visit_dtype(cache.scalar_type(), [&]<class T>(std::type_identity<T>) {
    T* const to = cache.mutable_data_ptr<T>();
    T* const count = counts.defined() ? counts.mutable_data_ptr<T>() : nullptr;
    const T* from = values.const_data_ptr<T>();
    for (int64_t i = 0; i < batch * n; ++i) {
      T* const into = to + i / n * cache_stride + row[i] * cache.stride(-2);
      for (int64_t f = 0; f < features; ++f) into[f * cache.stride(-1)] = *from++;
      if (count == nullptr) continue;
      T& c = count[(has_batch ? i / n * counts.stride(0) : 0) + row[i] * counts.stride(-1)];
      c = static_cast<T>(static_cast<kit::opmath<T>>(c) + 1);
    }
  });
}

TORCH_LIBRARY_FRAGMENT(second, m) { kit::define<Store>(m).implement_cpu<store_cpu>(); }

}  // namespace
}  // namespace second
