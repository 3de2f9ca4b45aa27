#pragma once

// Threads for the CPU kernels.

#include <algorithm>

#include "cppcuda/kit/cpu/context.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// Below this many elements a second thread costs more than it saves.
inline constexpr int64_t grain_size = 1 << 15;

// Calls f(isa, begin, end) on ranges of rows, each with at least work_per_task units of work.
template <class F>
void parallel_rows(const CpuContext& cpu, int64_t rows, int64_t work_per_row, int64_t work_per_task, const F& f) {
  const int64_t rows_per_task = std::max<int64_t>(1, work_per_task / std::max<int64_t>(1, work_per_row));
  const auto task = [&](int64_t begin, int64_t end) {
    with_isa(cpu.capability, [&](auto isa) { f(isa, begin, end); });
  };
  cpu.parallel_for(rows, rows_per_task, &task, [](const void* task_, int64_t begin, int64_t end) {
    (*static_cast<decltype(&task)>(task_))(begin, end);
  });
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
