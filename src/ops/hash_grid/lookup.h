#pragma once

#include <cmath>
#include <cstdint>

#include "interpolation/cells.h"

namespace cppcuda::ops::hash_grid {

using interpolation::Cells;

constexpr int max_levels = 128;
constexpr int64_t max_resolution = int64_t{1} << 30;

// The layout of tiny-cuda-nn (include/tiny-cuda-nn/encodings/grid.h), so that parameters are interchangeable.
struct Level {
  float scale;          // of coordinates; in float32 for every dtype, because the resolution follows from it
  uint32_t resolution;  // vertices per axis
  uint32_t size;        // rows of the level's table
  bool is_hashed;       // otherwise x + y resolution + z resolution^2 ...
  int64_t first_row;
};

template <int Axes>
struct Lookup {
  static constexpr int axes = Axes;
  static constexpr bool is_curved = true;
  static constexpr bool gives_slopes = false;
  static constexpr bool has_levels = true;

  int count;
  bool is_smooth;
  Level level[max_levels];

  CPPCUDA_HOST_DEVICE int levels() const { return count; }
  CPPCUDA_HOST_DEVICE int64_t first_row(int l) const { return level[l].first_row; }
  CPPCUDA_HOST_DEVICE int64_t end_row(int l) const { return level[l].first_row + level[l].size; }

  template <class A, int L>
  CPPCUDA_HOST_DEVICE void locate(int64_t, int64_t, int, int l, const A (&point)[Axes][L],
                                  Cells<A, Axes, L>& cells) const {
    const Level& at = level[l];
    const A scale = static_cast<A>(at.scale);
    uint32_t vertex[Axes][L];  // on the near side
    for (int d = 0; d < Axes; ++d) {
      for (int i = 0; i < L; ++i) {
        const A position = position_of(point[d][i], scale), floor = std::floor(position);
        cells.far[d][i] = position - floor;
        cells.near[d][i] = 1 - cells.far[d][i];
        cells.slope[d][i] = scale;
        cells.curvature[d][i] = 0;
        // Negative vertices wrap around. The conversion of what an int32 cannot hold, or of NaN, would be undefined.
        vertex[d][i] = static_cast<uint32_t>(static_cast<int32_t>(std::abs(floor) < A(2147483648.0) ? floor : A(0)));
      }
    }
    // What each side of an axis contributes to the index.
    constexpr uint32_t primes[4] = {1, 2654435761u, 805459861u, 3674653429u};
    uint32_t part[Axes][2][L];
    uint32_t stride = 1;
    for (int d = 0; d < Axes; ++d) {
      const uint32_t factor = at.is_hashed ? primes[d] : stride;
      for (int i = 0; i < L; ++i) {
        part[d][0][i] = vertex[d][i] * factor;
        part[d][1][i] = part[d][0][i] + factor;
      }
      stride *= at.resolution;
    }
    constexpr int corners = 1 << Axes;
    uint32_t index[corners][L];
    CPPCUDA_UNROLL(16)
    for (int c = 0; c < corners; ++c) {
      for (int i = 0; i < L; ++i) {
        uint32_t sum = part[0][Cells<A, Axes, L>::is_far(c, 0)][i], hash = sum;
        CPPCUDA_UNROLL(4)
        for (int d = 1; d < Axes; ++d) {
          sum += part[d][Cells<A, Axes, L>::is_far(c, d)][i];
          hash ^= part[d][Cells<A, Axes, L>::is_far(c, d)][i];
        }
        index[c][i] = at.is_hashed ? hash : sum;
      }
    }
    if ((at.size & (at.size - 1)) == 0) {
      for (int c = 0; c < corners; ++c) {
        for (int i = 0; i < L; ++i) index[c][i] &= at.size - 1;
      }
    } else {
      // Only points near the far sides, or outside, need the division.
      uint32_t most[L] = {}, last = 0;
      for (int c = 0; c < corners; ++c) {
        for (int i = 0; i < L; ++i) most[i] = index[c][i] > most[i] ? index[c][i] : most[i];
      }
      for (int i = 0; i < L; ++i) last = most[i] > last ? most[i] : last;
      if (last >= at.size) {
        for (int c = 0; c < corners; ++c) {
          for (int i = 0; i < L; ++i) index[c][i] %= at.size;
        }
      }
    }
    cells.is_narrow = L > 1;
    for (int c = 0; c < corners; ++c) {
      for (int i = 0; i < L; ++i) {
        if constexpr (L > 1) {
          cells.narrow_row[c][i] = static_cast<int32_t>(index[c][i]);  // tables have at most 2^30 rows
        } else {
          cells.row[c][i] = index[c][i];
        }
      }
    }
  }

 private:
  // fma(x, scale, 0.5). Processors without that instruction would call a function of the standard library.
  template <class A>
  CPPCUDA_HOST_DEVICE static A position_of(A x, A scale) {
#if defined(__CUDA_ARCH__) || defined(__FMA__)
    return std::fma(x, scale, A(0.5));
#else
    return static_cast<A>(static_cast<double>(x) * static_cast<double>(scale) + 0.5);
#endif
  }
};

}  // namespace cppcuda::ops::hash_grid
