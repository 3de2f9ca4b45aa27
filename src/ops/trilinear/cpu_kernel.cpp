#include "ops/trilinear/cpu_kernel.h"

#include "core/opmath.h"
#include "core/vec.h"
#include "ops/trilinear/math.h"

namespace cppcuda::ops::trilinear {
inline namespace CPPCUDA_ISA {

using core::for_vectors;
using core::Vec;
using core::write_vectors;

template <class T, class P>
struct Loops {
  using A = core::opmath<T>;
  using V = Vec<A>;

  template <class Weight, class Params>
  CPPCUDA_INLINE static Voxel<Weight> voxel_at(const Params& p, int64_t row) {
    const P* point = p.points + p.points_rows.offset(p.rows, row);
    return {point[0], point[p.points_coordinate], point[2 * p.points_coordinate]};
  }

  // Asks for the features of a row that comes later, of those that lie behind one another.
  CPPCUDA_INLINE static void prefetch(const T* feats, int64_t features) {
    const int64_t bytes = 8 * features * sizeof(T);
    const char* later =
        reinterpret_cast<const char*>(feats) + (bytes > core::prefetch_bytes ? bytes : core::prefetch_bytes);
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(later + i);
  }

  template <bool Stream>
  CPPCUDA_INLINE static void write(V v, T* to, int64_t n) {
    Stream ? v.stream(to) : v.store(to, n);
  }

  // A corner in each lane: of the 8 F values of a row, where they are taken as one.
  struct Corners {
    typename V::Mask far[3];
    CPPCUDA_INLINE friend auto is_far(const Corners& c, int d) { return c.far[d]; }
  };

  CPPCUDA_INLINE static void set_corners(int64_t features, Corners* corners) {
    for (int64_t i = 0; i < 8 * features; i += V::lanes) {
      for (int64_t at = i; at < i + V::lanes; ++at) {
        for (int d = 0; d < 3; ++d) {
          corners[i / V::lanes].far[d].lanes[at - i] = is_far(static_cast<int>(at / features), d) ? -1 : 0;
        }
      }
    }
  }

  // Of so few features, a power of 2, that one register takes the sums of several rows.
  template <int features>
  CPPCUDA_FLATTEN static void forward_packed(const ForwardParams<T, P>& p, int64_t begin, int64_t end) {
    constexpr int rows = V::lanes / features, values = 8 * features;
    Corners corners[8];
    set_corners(features, corners);
    typename V::Mask there;  // of one register
    for (int lane = 0; lane < V::lanes; ++lane) there.lanes[lane] = lane < values ? -1 : 0;
    for (int64_t row = begin; row < end; row += rows) {
      const int64_t left = end - row < rows ? end - row : rows;
      V sums[rows];
      for (int r = 0; r < rows; ++r) {
        sums[r] = 0;
        if (r >= left) continue;
        const auto voxel = voxel_at<V>(p, row + r);
        const T* feats = p.feats + p.feats_rows.offset(p.rows, row + r);
        prefetch(feats, features);
        for_vectors<V>(values, [&](int64_t i, auto n) {
          const V term = voxel.weight(corners[i / V::lanes]) * V::load(feats + i, n);
          // Else an infinite weight makes a NaN of the zeros where there is no value.
          sums[r] += values < V::lanes ? select(there, term, V(0)) : term;
        });
      }
      const V result = V::template folded<features>(sums);
      T* out = p.out + row * features;
      left == rows ? result.store(out) : result.store(out, left * features);
    }
  }

  // Unit: features lie next to each other.
  template <bool Unit, bool Stream>
  CPPCUDA_FLATTEN static void forward(const ForwardParams<T, P>& p, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto voxel = voxel_at<A>(p, row);
      V weight[8];
      for (int c = 0; c < 8; ++c) weight[c] = voxel.weight(c);
      const T* feats = p.feats + p.feats_rows.offset(p.rows, row);
      if (Unit) prefetch(feats, p.features);
      T* out = p.out + row * p.features;
      write_vectors<V, Stream>(out, p.features, [&](int64_t f, auto n) {
        V sum = 0;
        for (int c = 0; c < 8; ++c) {
          const T* from = feats + c * p.feats_corner;
          sum += weight[c] * (Unit ? V::load(from + f, n) : V::load(from + f * p.feats_feature, p.feats_feature, n));
        }
        return sum;
      });
    }
  }

  template <bool Unit, bool Stream, bool Feats, bool Points>
  CPPCUDA_FLATTEN static void backward(const BackwardParams<T, P>& p, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto voxel = voxel_at<A>(p, row);
      V weight[8], dot[8];
      for (int c = 0; c < 8; ++c) {
        weight[c] = voxel.weight(c);
        dot[c] = 0;
      }
      const T* grad = p.grad + p.grad_rows.offset(p.rows, row);
      const T* feats = Points ? p.feats + p.feats_rows.offset(p.rows, row) : nullptr;
      if (Unit && Points) prefetch(feats, p.features);
      T* grad_feats = p.grad_feats + row * 8 * p.features;
      for_vectors<V>(p.features, [&](int64_t f, auto n) {
        const V g = Unit ? V::load(grad + f, n) : V::load(grad + f * p.grad_feature, p.grad_feature, n);
        for (int c = 0; c < 8; ++c) {
          if (Feats) write<Stream>(weight[c] * g, grad_feats + c * p.features + f, n);
          if (!Points) continue;
          const T* from = feats + c * p.feats_corner;
          dot[c] += g * (Unit ? V::load(from + f, n) : V::load(from + f * p.feats_feature, p.feats_feature, n));
        }
      });
      if (!Points) continue;
      V by_coordinate[3];
      for (int d = 0; d < 3; ++d) {
        by_coordinate[d] = 0;
        for (int c = 0; c < 8; ++c) by_coordinate[d] += V(voxel.slope(c, d)) * dot[c];
      }
      write_sums(by_coordinate, p.grad_points + row * 3);
    }
  }

  // Of fewer features than a register has lanes: the 8 F values of a row lie behind one another and are taken as one.
  template <bool Stream, bool Feats>
  CPPCUDA_FLATTEN static void backward_packed(const BackwardParams<T, P>& p, int64_t begin, int64_t end) {
    const int64_t features = p.features, values = 8 * features;
    Corners corners[8];
    set_corners(features, corners);
    typename V::Ints feature_of[8];
    for (int64_t i = 0; i < values; i += V::lanes) {
      for (int64_t at = i; at < i + V::lanes; ++at) {
        // Where there is no value, a lane of the gradient that is 0.
        feature_of[i / V::lanes][at - i] = at < values ? at % features : features;
      }
    }
    for (int64_t row = begin; row < end; ++row) {
      const auto voxel = voxel_at<V>(p, row);
      const V grad = V::load(p.grad + p.grad_rows.offset(p.rows, row), features);
      const T* feats = p.feats + p.feats_rows.offset(p.rows, row);
      prefetch(feats, features);
      T* grad_feats = p.grad_feats + row * values;
      V by_coordinate[3] = {0, 0, 0};
      for_vectors<V>(values, [&](int64_t i, auto n) {
        const Corners& c = corners[i / V::lanes];
        const V g = grad.permuted(feature_of[i / V::lanes]);
        if (Feats) write<Stream>(voxel.weight(c) * g, grad_feats + i, n);
        const V dot = g * V::load(feats + i, n);
        for (int d = 0; d < 3; ++d) by_coordinate[d] += voxel.slope(c, d) * dot;
      });
      write_sums(by_coordinate, p.grad_points + row * 3);
    }
  }

  CPPCUDA_INLINE static void write_sums(const V* by_coordinate, P* to) {
    A sums[3];
    V::sums(by_coordinate, std::integral_constant<int, 3>(), sums);
    for (int d = 0; d < 3; ++d) to[d] = static_cast<P>(sums[d]);
  }

  // Streaming stores take whole registers.
  static bool can_stream(const T* to, int64_t values) {
    return reinterpret_cast<uintptr_t>(to) % V::template streamed<T> == 0 && values % V::lanes == 0;
  }
};

}  // namespace CPPCUDA_ISA

template <class Isa, class T, class P>
void RowKernel<Isa, T, P>::forward(const ForwardParams<T, P>& p, int64_t begin, int64_t end, bool stream) {
  using L = Loops<T, P>;
  const bool unit = p.feats_feature == 1;
  const auto packed = [&]<int features>() {
    if constexpr (features < L::V::lanes) {
      if (unit && p.features == features && p.feats_corner == features) {
        L::template forward_packed<features>(p, begin, end);
        return true;
      }
    }
    return false;
  };
  if (packed.template operator()<1>() || packed.template operator()<2>() || packed.template operator()<4>() ||
      packed.template operator()<8>()) {
    return;
  }
  const auto loop = stream && unit ? L::template forward<true, true>
                    : unit         ? L::template forward<true, false>
                                   : L::template forward<false, false>;
  loop(p, begin, end);
}

template <class Isa, class T, class P>
void RowKernel<Isa, T, P>::backward(const BackwardParams<T, P>& p, int64_t begin, int64_t end, bool stream) {
  using L = Loops<T, P>;
  const bool unit = p.grad_feature == 1 && p.feats_feature == 1;
  const bool packed = unit && p.grad_points && p.features < L::V::lanes && p.feats_corner == p.features;
  stream &= unit && L::can_stream(p.grad_feats, packed ? 8 * p.features : p.features);
  auto of_outputs = [&]<bool Unit, bool Stream>() {
    const auto loop = !p.grad_points  ? L::template backward<Unit, Stream, true, false>
                      : !p.grad_feats ? L::template backward<Unit, false, false, true>
                                      : L::template backward<Unit, Stream, true, true>;
    const auto packed_loop =
        p.grad_feats ? L::template backward_packed<Stream, true> : L::template backward_packed<false, false>;
    (packed ? packed_loop : loop)(p, begin, end);
  };
  stream ? of_outputs.template operator()<true, true>()
  : unit ? of_outputs.template operator()<true, false>()
         : of_outputs.template operator()<false, false>();
}

template struct RowKernel<core::Isa, double, double>;
template struct RowKernel<core::Isa, float, float>;
template struct RowKernel<core::Isa, c10::Half, c10::Half>;
template struct RowKernel<core::Isa, c10::Half, float>;
template struct RowKernel<core::Isa, c10::BFloat16, c10::BFloat16>;
template struct RowKernel<core::Isa, c10::BFloat16, float>;

}  // namespace cppcuda::ops::trilinear
