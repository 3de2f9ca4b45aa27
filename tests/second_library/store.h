#pragma once

#include "cppcuda/kit/loop.h"

namespace second {

namespace kit = cppcuda::kit;

// A value of 16 bytes.
struct Word16 {
  uint64_t halves[2];
};

// A step is a row of `values`. Of several rows that go into the same row of the cache, the last one is stored, and its
// step counts all of them, so that no two steps write to the same memory. A Word has the size of a value.
template <class Word, class Index>
struct StoreLoop {
  kit::View<Word, 3> cache;
  kit::View<int64_t, 2> counts;  // its address is null if there are none
  kit::View<const Word, 3> values;
  kit::View<const Index, 2> rows;
  int64_t count, work;

  CPPCUDA_HOST_DEVICE void operator()(int64_t i) const {
    const auto [b, own] = rows.indices(i);
    const int64_t n = rows.sizes[1], row = rows(b, own);
#if defined(CPPCUDA_DEVICE_CODE)  // the operator checks it on the CPU, with a better message
    if (row < 0 || row >= cache.sizes[1]) kit::fail_on_device("store", "rows must be in [0, V)");
#endif
    for (int64_t later = own + 1; later < n; ++later) {
      if (rows(b, later) == row) return;
    }
    for (int64_t f = 0; f < values.sizes[2]; ++f) cache(b, row, f) = values(b, own, f);
    if (counts.data == nullptr) return;
    for (int64_t other = 0; other < n; ++other) counts(b, row) += rows(b, other) == row ? 1 : 0;
  }
};

}  // namespace second
