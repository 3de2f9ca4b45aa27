#pragma once

// The threads of the CPU kernels of interpolation, and their entries in the table of kernels.

#include <algorithm>

#include "cppcuda/kit/cpu/parallel.h"
#include "cppcuda/kit/kernel_table.h"
#include "interpolation/cells.h"
#include "interpolation/cpu/kernel.h"

namespace cppcuda::interpolation {

// Calls f(batch, first, end) for the points begin .. end - 1 of all batches.
template <class F>
void for_batches(int64_t points, int64_t begin, int64_t end, F f) {
  while (begin < end) {
    const int64_t batch = begin / points, first = begin - batch * points;
    const int64_t count = std::min(points - first, end - begin);
    f(batch, first, first + count);
    begin += count;
  }
}

template <class T, class P, class Lookup>
void gather(const GatherParams<T, P, Lookup>& p, const kit::CpuContext& cpu) {
  const int64_t work = p.lookup.levels() * (int64_t{1} << Lookup::axes) * p.features;
  kit::parallel_rows(cpu, p.batches * p.points, work, kit::grain_size, [&](auto isa, int64_t begin, int64_t end) {
    for_batches(p.points, begin, end, [&](int64_t batch, int64_t first, int64_t last) {
      Kernel<typename decltype(isa)::type, T, P, Lookup>::gather(p, batch, first, last);
    });
  });
}

// A task owns rows of the table and goes through all points in order, so that sums have the same bits for any number
// of threads.
template <class T, class P, class Lookup>
void scatter(const ScatterParams<T, P, Lookup>& p, const kit::CpuContext& cpu) {
  constexpr int64_t shares = 64;  // of a level; at most so many threads work on one
  const int levels = p.lookup.levels();
  const int64_t rows = p.lookup.end_row(levels - 1), units = p.batches * levels * shares;
  const int64_t values = p.batches * (p.points * levels * (int64_t{1} << Lookup::axes) + rows) * p.features;
  kit::parallel_rows(cpu, units, values / units, kit::grain_size, [&](auto isa, int64_t begin, int64_t end) {
    for_batches(shares, begin, end, [&](int64_t batch_and_level, int64_t first, int64_t last) {
      const int level = static_cast<int>(batch_and_level % levels);
      const int64_t size = p.lookup.end_row(level) - p.lookup.first_row(level);
      Kernel<typename decltype(isa)::type, T, P, Lookup>::scatter(p, batch_and_level / levels, level,
                                                                  size * first / shares, size * last / shares);
    });
  });
}

// Adds the kernels for a lookup. Returns true, so that it can initialise a constant.
template <class Lookup>
bool add_to_table() {
  return kit::for_each_dtypes([]<class T, class P>() {
    kit::add_to_table(&gather<T, P, Lookup>);
    kit::add_to_table(&scatter<T, P, Lookup>);
  });
}

}  // namespace cppcuda::interpolation
