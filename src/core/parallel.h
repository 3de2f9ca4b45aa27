#pragma once

// Threads for the CPU kernels.

#include <ATen/Parallel.h>

#include <algorithm>

#include "core/isa.h"

namespace cppcuda::core {

// Below this many elements a second thread costs more than it saves.
inline constexpr int64_t elements_per_task = 1 << 15;

// f(isa, begin, end) on ranges of rows, each with at least work_per_task in it.
template <class F>
void parallel_rows(int64_t rows, int64_t work_per_row, int64_t work_per_task, F f) {
  const int64_t grain = std::max<int64_t>(1, work_per_task / std::max<int64_t>(1, work_per_row));
  at::parallel_for(0, rows, grain,
                   [&](int64_t begin, int64_t end) { with_isa([&](auto isa) { f(isa, begin, end); }); });
}

}  // namespace cppcuda::core
