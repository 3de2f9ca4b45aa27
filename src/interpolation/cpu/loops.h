#pragma once

// The CPU loops of interpolation. They take blocks of points: the cells of a block are located while the block before
// it is computed, so that the rows of its corners can be prefetched.
//
// An operator's cpu/kernel.cpp includes this file and instantiates Kernel for its lookup.

#include <limits>

#include "cppcuda/kit/cpu/loops.h"
#include "interpolation/cells.h"
#include "interpolation/cpu/kernel.h"
#include "interpolation/cpu/terms.h"
#include "interpolation/params.h"

namespace cppcuda::interpolation {
inline namespace CPPCUDA_ISA {

// What does not depend on the dtypes of the table and of the points.
template <class A, class Lookup>
struct CellLoops {
  static constexpr int axes = Lookup::axes, corners = 1 << axes;

  struct Block {
    Cells<A, axes, block_points> cells;
    A point[axes][block_points], direction[axes][block_points];
    int valid;  // the number of points
  };
  using Weights = A[block_points];  // of a corner
  using Rows = char* [block_points];
  using Offsets = int32_t[block_points];
  using Sink = A[8];  // what is added to a row that is not there

  CPPCUDA_FLATTEN [[gnu::noinline]] static void locate(const Lookup& lookup, int64_t batch, int64_t n, int level,
                                                       Order order, Block& block) {
    interpolation::locate(lookup, batch, n, block.valid, level, block.point, order, block.cells);
  }

  // The weights of the corners or, with a direction, their derivatives.
  CPPCUDA_FLATTEN [[gnu::noinline]] static void weigh(const Block& block, bool has_direction,
                                                      Weights* __restrict weight) {
    if (has_direction) {
#pragma GCC unroll 16
      for (int c = 0; c < corners; ++c) {
        for (int i = 0; i < block_points; ++i) {
          weight[c][i] = block.cells.weight_along(c, block.direction, i);
        }
      }
    } else {
#pragma GCC unroll 16
      for (int c = 0; c < corners; ++c) {
        for (int i = 0; i < block_points; ++i) weight[c][i] = block.cells.weight(c, i);
      }
    }
  }

  struct Found {
    bool all, any;  // whether all rows are in the range, and whether one is
  };

  // The addresses of rows begin .. end - 1 of a table. Those of other rows are null, or sink[corner] if there is one.
  CPPCUDA_FLATTEN [[gnu::noinline]] static Found set_rows(const Block& block, const void* table, int64_t row_bytes,
                                                          int64_t begin, int64_t end, Sink* sink, Rows* rows) {
    const auto first = reinterpret_cast<uintptr_t>(table);
    // In vectors, a product of 32-bit numbers is one instruction, and one of 64-bit numbers six.
    const auto set = [&]<class I>(const I(&from)[corners][block_points]) -> Found {
      using Unsigned = std::make_unsigned_t<I>;
      const auto low = static_cast<I>(begin), high = static_cast<I>(end);
      const auto bytes = static_cast<Unsigned>(row_bytes);
      I outside[block_points] = {}, inside[block_points] = {};
      for (int c = 0; c < corners; ++c) {
        const auto other = reinterpret_cast<uintptr_t>(sink ? sink[c] : nullptr);
        for (int i = 0; i < block_points; ++i) {
          const I row = from[c][i], is_own = row >= low && row < high ? I(-1) : I(0);
          outside[i] |= ~is_own;
          inside[i] |= is_own;
          const uintptr_t at = first + uint64_t{static_cast<Unsigned>(row)} * bytes;
          rows[c][i] = reinterpret_cast<char*>(is_own ? at : other);
        }
      }
      I any_outside = 0, any_inside = 0;
      for (int i = 0; i < block_points; ++i) {
        any_outside |= outside[i];
        any_inside |= inside[i];
      }
      return {any_outside == 0, any_inside != 0};
    };
    return block.cells.is_narrow && row_bytes <= std::numeric_limits<int32_t>::max() ? set(block.cells.narrow_row)
                                                                                     : set(block.cells.row);
  }

  // The offsets of rows begin .. end - 1 from row `begin`. All: these are all rows.
  template <bool All>
  CPPCUDA_FLATTEN [[gnu::noinline]] static void set_offsets(const Block& block, int64_t row_stride, int64_t begin,
                                                            int64_t end, Offsets* __restrict offset) {
    const auto stride = static_cast<int32_t>(row_stride), rows = static_cast<int32_t>(end - begin);
    const auto set = [&]<class I>(const I(&from)[corners][block_points]) {
      const I low = All ? 0 : static_cast<I>(begin), high = static_cast<I>(end);
      for (int c = 0; c < corners; ++c) {
        // If many corners may be missing, not one row for all: an addition waits for the one before it in its place.
        const int32_t other = All || c >= rows ? -1 : ~(c * stride);
        for (int i = 0; i < block_points; ++i) {
          const I row = from[c][i];
          offset[c][i] = row >= low && (All || row < high) ? static_cast<int32_t>(row - low) * stride : other;
        }
      }
    };
    block.cells.is_narrow ? set(block.cells.narrow_row) : set(block.cells.row);
  }

  CPPCUDA_FLATTEN static Found found(const Offsets* offset) {
    Offsets outside = {}, inside = {};
    for (int c = 0; c < corners; ++c) {
      for (int i = 0; i < block_points; ++i) {
        outside[i] |= offset[c][i];
        inside[i] |= ~offset[c][i];
      }
    }
    int32_t any_outside = 0, any_inside = 0;
    for (int i = 0; i < block_points; ++i) {
      any_outside |= outside[i];
      any_inside |= inside[i];
    }
    return {any_outside >= 0, any_inside < 0};
  }

  // to += the products of rows with grad, and of rows of the second table, times the slopes of their weights.
  template <int count>
  CPPCUDA_FLATTEN [[gnu::noinline]] static void add_slopes(const Block& block, bool has_direction,
                                                           const Weights (&dot)[count], A* to) {
    A sum[axes][block_points] = {};
#pragma GCC unroll 16
    for (int c = 0; c < corners; ++c) {
#pragma GCC unroll 4
      for (int d = 0; d < axes; ++d) {
        if (has_direction) {
          for (int i = 0; i < block_points; ++i) {
            sum[d][i] += block.cells.template slope_along<Lookup::is_curved>(c, d, block.direction, i) * dot[c][i];
          }
        } else {
          for (int i = 0; i < block_points; ++i) sum[d][i] += block.cells.slope_of(c, d, i) * dot[c][i];
        }
        if constexpr (count > corners) {
          for (int i = 0; i < block_points; ++i) sum[d][i] += block.cells.slope_of(c, d, i) * dot[corners + c][i];
        }
      }
    }
    for (int i = 0; i < block.valid; ++i) {
      for (int d = 0; d < axes; ++d) to[i * axes + d] += sum[d][i];
    }
  }

  CPPCUDA_FLATTEN [[gnu::noinline]] static void set_slopes(const Block& block,
                                                           A (&slope)[corners][axes][block_points]) {
#pragma GCC unroll 16
    for (int c = 0; c < corners; ++c) {
#pragma GCC unroll 4
      for (int d = 0; d < axes; ++d) {
        for (int i = 0; i < block_points; ++i) slope[c][d][i] = block.cells.slope_of(c, d, i);
      }
    }
  }
};

template <class Params>
struct Loops {
  using T = typename Params::Element;
  using A = kit::opmath<T>;
  using Lookup = typename Params::Lookup;
  using Cell = CellLoops<A, Lookup>;
  static constexpr int axes = Cell::axes, corners = Cell::corners;
  using Calls = TermLoops<T, corners>;

  template <int count>
  struct Block : Cell::Block {
    Terms<A, count> terms;
    bool has_missing;
    bool is_used;  // of a scatter: whether a row of this task gets a term
  };

  // Calls prepare(n, block) for the blocks of points first .. end - 1, and then f(n, block, terms of the next block);
  // after the last block, these are its own.
  template <int count, class Prepare, class F>
  CPPCUDA_INLINE static void for_blocks(const Params& p, int64_t batch, int64_t first, int64_t end, int level,
                                        Prepare prepare, F f) {
    Block<count> blocks[2];
    const auto prepare_if_any = [&](int64_t n, Block<count>& block) {
      if (n >= end) return;
      block.valid = static_cast<int>(end - n < block_points ? end - n : block_points);
      read(p.point, batch, n, block.valid, block.point);
      if (p.direction.data) read(p.direction, batch, n, block.valid, block.direction);
      Cell::locate(p.lookup, batch, n, level, p.order, block);
      prepare(block);
    };
    prepare_if_any(first, blocks[0]);
    int now = 0;
    for (int64_t n = first; n < end; n += block_points) {
      prepare_if_any(n + block_points, blocks[1 - now]);
      const int next = n + block_points < end ? 1 - now : now;
      f(n, blocks[now], blocks[next].terms);
      now = next;
    }
  }

  template <class P>
  CPPCUDA_INLINE static void read(const RowsOf<P>& points, int64_t batch, int64_t n, int valid,
                                  A (&to)[axes][block_points]) {
    if (valid == block_points && points.inner == 1 && points.row == axes) {
      const P* from = points.at(batch, n);
      for (int i = 0; i < block_points; ++i) {
        for (int d = 0; d < axes; ++d) to[d][i] = static_cast<A>(from[i * axes + d]);
      }
      return;
    }
    for (int i = 0; i < block_points; ++i) {
      const P* point = points.at(batch, n + (i < valid ? i : valid - 1));
      for (int d = 0; d < axes; ++d) to[d][i] = static_cast<A>(point[d * points.inner]);
    }
  }

  // Where lanes are points, the rows of larger tables are prefetched. On an EPYC of the third generation, prefetches
  // doubled the speed of grid_sample3d with 64 MiB (one channel of 256^3); with 1 MiB it was 0.7 to 1 of that without.
  static constexpr int64_t large_table = int64_t{2} << 20;

  static bool has_slopes(const Params& p) {
    if constexpr (requires { p.out_slopes; }) return p.out_slopes;
    return false;
  }

  // One table, or two.
  template <int count>
  CPPCUDA_FLATTEN static void gather_level(const Params& p, int64_t batch, int64_t first, int64_t end, int level) {
    const int64_t column = level * p.features, first_row = p.lookup.first_row(level),
                  rows = p.lookup.end_row(level) - first_row;
    // A lane whose corner is missing may read the first row.
    const auto has_offsets = [&](const RowsOf<T>& table) {
      return rows > 0 && rows * table.row + p.features * table.inner <= std::numeric_limits<int32_t>::max();
    };
    const bool lanes_are_points = p.features <= Calls::max_features_of_points && has_offsets(p.table) &&
                                  has_offsets(p.second) && !(Lookup::gives_slopes && has_slopes(p));
    const auto prepare = [&](Block<count>& block) {
      const auto set_rows = [&](const RowsOf<T>& table, int from) {
        if (lanes_are_points) {
          Cell::template set_offsets<true>(block, table.row, 0, rows, block.terms.offset + from);
          return false;
        }
        const auto found =
            Cell::set_rows(block, table.at(batch, first_row), table.row * static_cast<int64_t>(sizeof(T)), 0, rows,
                           nullptr, block.terms.row + from);
        return !found.all;
      };
      block.has_missing = set_rows(p.table, 0);
      Cell::weigh(block, p.direction.data, block.terms.weight);
      if constexpr (count > corners) {
        set_rows(p.second, corners);
        Cell::weigh(block, false, block.terms.weight + corners);
      }
    };
    for_blocks<count>(p, batch, first, end, level, prepare, [&](int64_t n, auto& block, const auto& next) {
      const int64_t row = batch * p.points + n;
      const BlockArguments<T> arguments{.valid = block.valid,
                                        .features = p.features,
                                        .has_missing = block.has_missing,
                                        .table = lanes_are_points ? p.table.at(batch, first_row) : nullptr,
                                        .second = count > corners ? p.second.at(batch, first_row) : nullptr,
                                        .table_is_large = rows * p.table.row * sizeof(T) > large_table,
                                        .step = p.table.inner,
                                        .second_step = p.second.inner,
                                        .grad = p.grad.data ? p.grad.at(batch, n) + column * p.grad.inner : nullptr,
                                        .grad_row = p.grad.row,
                                        .grad_step = p.grad.inner,
                                        .out = p.out ? p.out + row * p.columns() + column : nullptr,
                                        .out_row = p.columns()};
      if constexpr (Lookup::gives_slopes && count == corners) {
        if (p.out_slopes) {
          A slope[corners][axes][block_points];
          Cell::set_slopes(block, slope);
          return Calls::gather_slopes(block.terms, next, arguments, slope, p.out_slopes + row * p.features * axes);
        }
      }
      Calls::gather(block.terms, next, arguments);
      if (p.grad_points) {
        Cell::add_slopes(block, p.direction.data, block.terms.dot, p.grad_points + row * axes);
      }
    });
  }

  CPPCUDA_FLATTEN static void gather(const Params& p, int64_t batch, int64_t first, int64_t end) {
    if (p.grad_points) {
      A* to = p.grad_points + (batch * p.points + first) * axes;
      for (int64_t i = 0; i < (end - first) * axes; ++i) to[i] = 0;
    }
    const auto loop = p.second.data ? gather_level<2 * corners> : gather_level<corners>;
    for (int level = 0; level < p.lookup.levels(); ++level) loop(p, batch, first, end, level);
  }

  // Rows begin .. end - 1 of a level. Those of other tasks count as missing.
  CPPCUDA_FLATTEN static void scatter(const Params& p, int64_t batch, int level, int64_t begin, int64_t end) {
    using V = kit::Vec<A>;
    const int64_t rows = p.lookup.end_row(p.lookup.levels() - 1), column = level * p.features;
    A* table = p.table + (batch * rows + p.lookup.first_row(level)) * p.features;
    const int64_t size = (end - begin) * p.features;
    kit::for_vectors<V>(size, [&](int64_t f, auto n) { V(0).store(table + begin * p.features + f, n); });
    typename Cell::Sink sink[corners] = {};
    const bool is_few = Calls::is_few(p.features);
    const bool lanes_are_points =
        p.features <= Calls::max_features_of_points && size <= std::numeric_limits<int32_t>::max();
    const auto prepare = [&](Block<corners>& block) {
      Cell::weigh(block, p.direction.data, block.terms.weight);
      typename Cell::Found found;
      if (lanes_are_points) {
        const bool has_all = end - begin == p.lookup.end_row(level) - p.lookup.first_row(level);
        const auto set_offsets = has_all ? Cell::template set_offsets<true> : Cell::template set_offsets<false>;
        set_offsets(block, p.features, begin, end, block.terms.offset);
        found = Cell::found(block.terms.offset);
      } else {
        found = Cell::set_rows(block, table, p.features * static_cast<int64_t>(sizeof(A)), begin, end,
                               is_few ? sink : nullptr, block.terms.row);
      }
      block.has_missing = !found.all;
      block.is_used = found.any;
    };
    for_blocks<corners>(p, batch, 0, p.points, level, prepare, [&](int64_t n, auto& block, const auto& next) {
      if (!block.is_used) return;
      Calls::scatter(block.terms, next,
                     {.valid = block.valid,
                      .features = p.features,
                      .has_missing = block.has_missing,
                      .table_is_large = size * static_cast<int64_t>(sizeof(A)) > large_table,
                      .sums = lanes_are_points ? table + begin * p.features : nullptr,
                      .grad = p.grad.at(batch, n) + column * p.grad.inner,
                      .grad_row = p.grad.row,
                      .grad_step = p.grad.inner});
    });
  }
};

}  // namespace CPPCUDA_ISA

template <class Isa, class T, class P, class Lookup>
void Kernel<Isa, T, P, Lookup>::gather(const GatherParams<T, P, Lookup>& p, int64_t batch, int64_t first, int64_t end) {
  Loops<GatherParams<T, P, Lookup>>::gather(p, batch, first, end);
}

template <class Isa, class T, class P, class Lookup>
void Kernel<Isa, T, P, Lookup>::scatter(const ScatterParams<T, P, Lookup>& p, int64_t batch, int level, int64_t begin,
                                        int64_t end) {
  Loops<ScatterParams<T, P, Lookup>>::scatter(p, batch, level, begin, end);
}

}  // namespace cppcuda::interpolation
