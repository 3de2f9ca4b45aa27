// second::store(Tensor(a!) cache, Tensor(b!)? counts, Tensor values, Tensor rows) -> (): writes values into the rows of
// a cache of any dtype that `rows` names, and adds one to the count of each of them.

#include <torch/library.h>

#include "cppcuda/kit/define.h"
#include "cppcuda/kit/fill.h"
#include "store.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

using Store = kit::Op<
    "second::store(Tensor(a!) cache[B?, V, F] any, Tensor(b!)? counts[B?, V] int64, "
    "Tensor values[B?, N, F] like cache, Tensor rows[B?, N] int32 or int64) -> ()">;

template <class Word>
void run_store(const kit::Args<Store>& args) {
  const Tensor &cache = args["cache"], &rows = args["rows"];
  const auto with = [&]<class Index>(Index) {
    const auto into = kit::view_of<const Index, 2>(rows);
    for (int64_t i = 0; rows.is_cpu() && i < rows.numel(); ++i) {
      const auto [b, n] = into.indices(i);
      TORCH_CHECK_INDEX(into(b, n) >= 0 && into(b, n) < cache.size(-2), "store: rows must be in [0, ", cache.size(-2),
                        "), got ", into(b, n));
    }
    kit::run(cache.device(),
             StoreLoop<Word, Index>{kit::view_of<Word, 3>(cache), kit::view_of<int64_t, 2>(args["counts"]),
                                    kit::view_of<const Word, 3>(args["values"]), into, rows.numel(),
                                    cache.size(-1) + rows.size(-1)});
  };
  rows.scalar_type() == at::kInt ? with(int32_t()) : with(int64_t());
}

void store(const kit::Args<Store>& args) {
  switch (args["cache"].element_size()) {
    case 1:
      return run_store<uint8_t>(args);
    case 2:
      return run_store<uint16_t>(args);
    case 4:
      return run_store<uint32_t>(args);
    case 8:
      return run_store<uint64_t>(args);
    default:
      return run_store<Word16>(args);
  }
}

TORCH_LIBRARY_FRAGMENT(second, m) { kit::define<Store>(m).implement<store>(); }

}  // namespace
}  // namespace second
