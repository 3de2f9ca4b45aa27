#pragma once

// How the CPU reads the rows of a block of points.

#include <limits>
#include <type_traits>

#include "cppcuda/kit/cpu/vec.h"
#include "ops/trilinear_indexed/lookup.h"

namespace cppcuda::ops::trilinear_indexed {
inline namespace CPPCUDA_ISA {

// As many 32-bit numbers as are shuffled at a time. They are floats, because gcc 12 knows fewer shuffles of integers.
inline constexpr int words = kit::Vec<float>::lanes < 8 ? 4 : 8;
struct Words {
  float v __attribute__((vector_size(4 * words)));
};

// The lower halves of 64-bit numbers in two vectors. Their order is one in which a processor that shuffles within 16
// bytes needs one instruction; `corner_at` says it.
CPPCUDA_INLINE Words lower_halves(Words a, Words b) {
  return [&]<int... I>(std::integer_sequence<int, I...>) -> Words {
    return {__builtin_shufflevector(a.v, b.v, (I / 4 * 4 + I % 2 * 2 + (I % 4 < 2 ? 0 : words))...)};
  }(std::make_integer_sequence<int, words>());
}

// The corner at a place of a vector whose rows are read from indices of type I.
template <class I>
constexpr int corner_at(int i) {
  return sizeof(I) == 4 ? i : (i % 4 < 2 ? 0 : words / 2) + i / 4 * 2 + i % 2;
}

// Reads the rows of points n .. n + L - 1 of a batch, or of point n + valid - 1 instead of those after it, in 32 bits.
// Returns whether all are in [-1, lookup.rows).
template <class I, int L>
CPPCUDA_INLINE bool read_rows(const Lookup<I>& lookup, int64_t batch, int64_t n, int valid, int32_t (&rows)[8][L]) {
  static_assert(L % words == 0);
  const auto& corners = lookup.corners;
  const I* from = corners.at(batch, n);
  int64_t stride = corners.row;
  I memory[L][8];
  if (corners.inner != 1 || valid < L) {
    for (int i = 0; i < L; ++i) {
      for (int c = 0; c < 8; ++c) memory[i][c] = from[(i < valid ? i : valid - 1) * stride + c * corners.inner];
    }
    from = memory[0];
    stride = 8;
  }
  constexpr int size = 4 * words, indices = size / static_cast<int>(sizeof(I));  // of a vector
  using Unsigned = std::make_unsigned_t<I>;
  using Indices __attribute__((vector_size(size))) = I;
  using UnsignedIndices __attribute__((vector_size(size))) = Unsigned;
  // Row + 1 must be in [0, rows]. Both are moved, so that the comparison is one of signed numbers.
  constexpr auto lowest = static_cast<Unsigned>(std::numeric_limits<I>::min());
  const I largest = static_cast<I>(lowest + static_cast<Unsigned>(lookup.rows));
  Indices outside{};
#pragma GCC unroll 4
  for (int i = 0; i < L; ++i) {
    // The processor's own prefetches are too late where the table is read in random order.
    __builtin_prefetch(from + (i + 2 * L) * stride);
#pragma GCC unroll 4
    for (int c = 0; c < 8; c += indices) {
      UnsignedIndices row;
      __builtin_memcpy(&row, from + i * stride + c, size);
      outside |= (Indices)(row + (lowest + 1)) > largest;
    }
  }
  I any = 0;
  for (int k = 0; k < indices; ++k) any |= outside[k];
  if (any != 0) return false;
  const auto load = [](const I* at) {
    Words result;
    __builtin_memcpy(&result, at, size);
    return result;
  };
  for (int i = 0; i < L; i += words) {
#pragma GCC unroll 2
    for (int c = 0; c < 8; c += words) {
      Words row[words];
#pragma GCC unroll 8
      for (int j = 0; j < words; ++j) {
        const I* at = from + (i + j) * stride + c;
        row[j] = sizeof(I) == 4 ? load(at) : lower_halves(load(at), load(at + words / 2));
      }
      kit::transpose<words>(row);
#pragma GCC unroll 8
      for (int j = 0; j < words; ++j) __builtin_memcpy(rows[c + corner_at<I>(j)] + i, &row[j], sizeof(Words));
    }
  }
  return true;
}

}  // namespace CPPCUDA_ISA
}  // namespace cppcuda::ops::trilinear_indexed
