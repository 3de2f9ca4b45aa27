// second::store(Tensor(a!) cache, Tensor(b!)? counts, Tensor values, Tensor rows) -> (): writes values into the rows of
// a cache of any dtype that `rows` names, and adds one to the count of each of them.

#include <torch/library.h>

#include <cstring>

#include "cppcuda/kit/define.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using Store = kit::Op<
    "second::store(Tensor(a!) cache[B?, V, F] any, Tensor(b!)? counts[B?, V] int64, "
    "Tensor values[B?, N, F] like cache, Tensor rows[B?, N] int32 or int64) -> ()">;

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
  const int64_t size = static_cast<int64_t>(cache.element_size());
  char* const to = static_cast<char*>(cache.mutable_data_ptr());
  const char* from = static_cast<const char*>(values.const_data_ptr());
  int64_t* const count = counts.defined() ? counts.mutable_data_ptr<int64_t>() : nullptr;
  for (int64_t i = 0; i < batch * n; ++i) {
    const int64_t into = i / n * cache_stride + row[i] * cache.stride(-2);
    for (int64_t f = 0; f < features; ++f, from += size) {
      std::memcpy(to + (into + f * cache.stride(-1)) * size, from, size);
    }
    if (count != nullptr) ++count[(has_batch ? i / n * counts.stride(0) : 0) + row[i] * counts.stride(-1)];
  }
}

TORCH_LIBRARY_FRAGMENT(second, m) { kit::define<Store>(m).implement_cpu<store_cpu>(); }

}  // namespace
}  // namespace second
