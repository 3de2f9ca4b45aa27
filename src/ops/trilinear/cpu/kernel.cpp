#include "ops/trilinear/cpu/kernel.h"

#include "cppcuda/kit/cpu/loops.h"
#include "cppcuda/kit/cpu/math.h"
#include "cppcuda/kit/cpu/vec.h"
#include "cppcuda/kit/math/opmath.h"
#include "ops/trilinear/math.h"

namespace cppcuda::ops::trilinear {
inline namespace CPPCUDA_ISA {

using kit::for_vectors;
using kit::Vec;
using kit::write_vectors;

template <class T, class P>
struct Loops {
  using A = kit::opmath<T>;
  using V = Vec<A>;

  template <class Weight, class Params>
  CPPCUDA_INLINE static Voxel<Weight> voxel_at(const Params& p, int64_t row) {
    const P* point = p.points.at(p.rows, row);
    return {point[0], point[p.points.inner], point[2 * p.points.inner]};
  }

  // grad_grad_points of a row.
  template <class Weight>
  struct Direction {
    Weight axis[3];
  };
  template <class Weight>
  CPPCUDA_INLINE static Direction<Weight> direction_at(const DoubleBackwardParams<T, P>& p, int64_t row) {
    const P* from = p.grad_grad_points.at(p.rows, row);
    const int64_t step = p.grad_grad_points.inner;
    return {{static_cast<Weight>(from[0]), static_cast<Weight>(from[step]), static_cast<Weight>(from[2 * step])}};
  }

  // Prefetches the features of a later row. Rows are contiguous.
  CPPCUDA_INLINE static void prefetch(const T* feats, int64_t features) {
    const int64_t bytes = 8 * features * sizeof(T);
    const int64_t ahead = bytes > kit::prefetch_bytes ? bytes : kit::prefetch_bytes;
    kit::prefetch(reinterpret_cast<const char*>(feats) + ahead, bytes);
  }

  template <bool Nontemporal, class Count>
  CPPCUDA_INLINE static void write(V v, T* to, Count n) {
    Nontemporal ? v.store_nontemporal(to) : v.store(to, n);
  }

  // One corner per lane: the 8 F values of a row are one vector.
  struct Corners {
    typename V::Mask far[3];
    CPPCUDA_INLINE friend auto is_far(const Corners& c, int d) { return c.far[d]; }
  };

  // The 8 F values of a row as one vector, in up to eight registers. F is less than the number of lanes.
  struct Packed {
    Corners corners[8];
    typename V::Ints feature[8];

    CPPCUDA_INLINE explicit Packed(int64_t features) {
      const int64_t values = 8 * features;
      for (int64_t i = 0; i < values; i += V::lanes) {
        for (int64_t at = i; at < i + V::lanes; ++at) {
          for (int d = 0; d < 3; ++d) {
            corners[i / V::lanes].far[d].lanes[at - i] = is_far(static_cast<int>(at / features), d) ? -1 : 0;
          }
          // Lanes without a value take a lane of the gradient that is 0.
          feature[i / V::lanes][at - i] = at < values ? at % features : features;
        }
      }
    }
  };

  // Several corners of a row in one register. They differ only along the last axes.
  template <int count>
  struct Together {
    int first;
    const typename V::Mask* far;
    CPPCUDA_INLINE friend auto is_far(const Together& c, int d) {
      const bool lanes_differ = count >> (2 - d) > 1;
      if (lanes_differ) return c.far[d];
      return typename V::Mask{typename V::Ints{} - (is_far(c.first, d) ? 1 : 0)};
    }
  };

  // The number of corners of a row in a register: a power of two.
  static constexpr int few_corners(int features) {
    const int fit = V::lanes / features;
    return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
  }

  // Fast path: `count` corners of a row fit into one register.
  template <int count>
  CPPCUDA_FLATTEN static void forward_few(const ForwardParams<T, P>& p, int64_t begin, int64_t end) {
    const int64_t features = p.features;
    typename V::Mask far[3];
    typename V::Ints later[3];  // the lane that has the feature of this one, count / 2, count / 4, ... corners later
    for (int lane = 0; lane < V::lanes; ++lane) {
      for (int d = 0; d < 3; ++d) {
        far[d].lanes[lane] = is_far(static_cast<int>(lane / features), d) ? -1 : 0;
        later[d][lane] = (lane + features * (count >> (d + 1))) % V::lanes;
      }
    }
    for (int64_t row = begin; row < end; ++row) {
      const auto voxel = voxel_at<V>(p, row);
      const T* feats = p.feats.at(p.rows, row);
      prefetch(feats, features);
      V sum = 0;
#pragma GCC unroll 8
      for (int c = 0; c < 8; c += count) {
        sum += voxel.weight(Together<count>{c, far}) * V::load(feats + c * features, count * features);
      }
#pragma GCC unroll 3
      for (int d = 0; count >> d > 1; ++d) sum += sum.permuted(later[d]);
      sum.store(p.out + row * features, features);
    }
  }

  // Fast path for one feature, where a register has as many lanes as a point has corners: lanes are points.
  static constexpr bool has_points_loop = V::lanes == 8;

  struct Block {
    int64_t n;
    const T* feats[V::lanes];  // the last points may be repeated
    V point[3];
  };
  template <class Params, class F>
  CPPCUDA_INLINE static void for_blocks(const Params& p, int64_t begin, int64_t end, F f) {
    for (int64_t row = begin; row < end; row += V::lanes) {
      Block block;
      block.n = end - row < V::lanes ? end - row : V::lanes;
      typename V::Values point[3];
#pragma GCC unroll 8
      for (int i = 0; i < V::lanes; ++i) {
        const int64_t at = i < block.n ? row + i : end - 1;
        const P* from = p.points.at(p.rows, at);
        for (int d = 0; d < 3; ++d) point[d][i] = from[d * p.points.inner];
        block.feats[i] = p.feats.at(p.rows, at);
      }
      for (int d = 0; d < 3; ++d) block.point[d] = point[d];
      f(row, block);
    }
  }

  // The corners of a block's points.
  CPPCUDA_INLINE static void load_corners(const Block& block, V (&x)[8]) {
    for (int i = 0; i < V::lanes; ++i) {
      x[i] = V::load(block.feats[i]);
      __builtin_prefetch(block.feats[i] + kit::prefetch_bytes / sizeof(T));
    }
    V::transpose(x);
  }

  CPPCUDA_FLATTEN static void forward_points(const ForwardParams<T, P>& p, int64_t begin, int64_t end) {
    for_blocks(p, begin, end, [&](int64_t row, const Block& block) {
      const Voxel<V> voxel(block.point[0], block.point[1], block.point[2]);
      V x[8], sum = 0;
      load_corners(block, x);
#pragma GCC unroll 8
      for (int c = 0; c < 8; ++c) sum += voxel.weight(c) * x[c];
      sum.store(p.out + row, block.n);
    });
  }

  // The gradient of points and, if requested, of features.
  template <bool Nontemporal, bool Feats>
  CPPCUDA_FLATTEN static void backward_points(const BackwardParams<T, P>& p, int64_t begin, int64_t end) {
    for_blocks(p, begin, end, [&](int64_t row, const Block& block) {
      const Voxel<V> voxel(block.point[0], block.point[1], block.point[2]);
      V grad = 0;
      for (int i = 0; i < block.n; ++i) grad.v[i] = *p.grad.at(p.rows, row + i);
      V x[8], by_coordinate[3] = {0, 0, 0};
      load_corners(block, x);
#pragma GCC unroll 8
      for (int c = 0; c < 8; ++c) {
        const V dot = grad * x[c];
        for (int d = 0; d < 3; ++d) by_coordinate[d] += voxel.slope(c, d) * dot;
      }
      P* to = p.grad_points + row * 3;
      for (int i = 0; i < block.n; ++i) {
        for (int d = 0; d < 3; ++d) to[i * 3 + d] = by_coordinate[d].v[i];
      }
      if (Feats) {
        V y[8];
        for (int c = 0; c < 8; ++c) y[c] = voxel.weight(c) * grad;
        V::transpose(y);
        for (int i = 0; i < block.n; ++i) write<Nontemporal>(y[i], p.grad_feats + (row + i) * 8, V::lanes);
      }
    });
  }

  // Unit: features are contiguous.
  template <bool Unit, bool Nontemporal>
  CPPCUDA_FLATTEN static void forward(const ForwardParams<T, P>& p, int64_t begin, int64_t end) {
    const int64_t features = p.features, corner = p.feats.outer;
    for (int64_t row = begin; row < end; ++row) {
      const auto voxel = voxel_at<A>(p, row);
      V weight[8];
      for (int c = 0; c < 8; ++c) weight[c] = voxel.weight(c);
      const T* feats = p.feats.at(p.rows, row);
      if (Unit) prefetch(feats, features);
      T* out = p.out + row * features;
      write_vectors<V, Nontemporal>(out, features, [&](int64_t f, auto n) {
        V sum = 0;
        for (int c = 0; c < 8; ++c) {
          const T* from = feats + c * corner;
          sum += weight[c] * (Unit ? V::load(from + f, n) : V::load(from + f * p.feats.inner, p.feats.inner, n));
        }
        return sum;
      });
    }
  }

  template <bool Unit, bool Nontemporal, bool Feats, bool Points>
  CPPCUDA_FLATTEN static void backward(const BackwardParams<T, P>& p, int64_t begin, int64_t end) {
    const int64_t features = p.features, corner = p.feats.outer;
    for (int64_t row = begin; row < end; ++row) {
      const auto voxel = voxel_at<A>(p, row);
      V weight[8], dot[8];
      for (int c = 0; c < 8; ++c) {
        weight[c] = voxel.weight(c);
        dot[c] = 0;
      }
      const T* grad = p.grad.at(p.rows, row);
      const T* feats = Points ? p.feats.at(p.rows, row) : nullptr;
      if (Unit && Points) prefetch(feats, features);
      T* grad_feats = p.grad_feats + row * 8 * features;
      for_vectors<V>(features, [&](int64_t f, auto n) {
        const V g = Unit ? V::load(grad + f, n) : V::load(grad + f * p.grad.inner, p.grad.inner, n);
        for (int c = 0; c < 8; ++c) {
          if (Feats) write<Nontemporal>(weight[c] * g, grad_feats + c * features + f, n);
          if (!Points) continue;
          const T* from = feats + c * corner;
          dot[c] += g * (Unit ? V::load(from + f, n) : V::load(from + f * p.feats.inner, p.feats.inner, n));
        }
      });
      if (!Points) continue;
      V by_coordinate[3];
#pragma GCC unroll 3
      for (int d = 0; d < 3; ++d) {
        by_coordinate[d] = 0;
        for (int c = 0; c < 8; ++c) by_coordinate[d] += V(voxel.slope(c, d)) * dot[c];
      }
      write_sums(by_coordinate, p.grad_points + row * 3);
    }
  }

  // Fast path for fewer features than lanes: the 8 F values of a row are contiguous and treated as one vector.
  template <bool Nontemporal, bool Feats, bool Points>
  CPPCUDA_FLATTEN static void backward_packed(const BackwardParams<T, P>& p, int64_t begin, int64_t end) {
    const int64_t features = p.features, values = 8 * features;
    const Packed packed(features);
    for (int64_t row = begin; row < end; ++row) {
      const auto voxel = voxel_at<V>(p, row);
      const V grad = V::load(p.grad.at(p.rows, row), features);
      const T* feats = Points ? p.feats.at(p.rows, row) : nullptr;
      if (Points) prefetch(feats, features);
      T* grad_feats = p.grad_feats + row * values;
      V by_coordinate[3] = {0, 0, 0};
      for_vectors<V>(values, [&](int64_t i, auto n) {
        const Corners& c = packed.corners[i / V::lanes];
        const V g = grad.permuted(packed.feature[i / V::lanes]);
        if (Feats) write<Nontemporal>(voxel.weight(c) * g, grad_feats + i, n);
        if (!Points) return;
        const V dot = g * V::load(feats + i, n);
        for (int d = 0; d < 3; ++d) by_coordinate[d] += voxel.slope(c, d) * dot;
      });
      if (Points) write_sums(by_coordinate, p.grad_points + row * 3);
    }
  }

  // Fast path for the gradient of few features alone: a register has `count` corners of a row.
  template <int features, bool Nontemporal>
  CPPCUDA_FLATTEN static void backward_few(const BackwardParams<T, P>& p, int64_t begin, int64_t end) {
    constexpr int count = few_corners(features);
    typename V::Mask far[3];
    typename V::Ints feature;
    for (int lane = 0; lane < V::lanes; ++lane) {
      for (int d = 0; d < 3; ++d) far[d].lanes[lane] = is_far(lane / features, d) ? -1 : 0;
      feature[lane] = lane % features;
    }
    for (int64_t row = begin; row < end; ++row) {
      const auto voxel = voxel_at<V>(p, row);
      const V grad = V::load(p.grad.at(p.rows, row), features).permuted(feature);
      T* to = p.grad_feats + row * 8 * features;
#pragma GCC unroll 8
      for (int c = 0; c < 8; c += count) {
        const V product = voxel.weight(Together<count>{c, far}) * grad;
        // Lanes beyond these corners are written again by the next register, except in the last one.
        if (c + count < 8 || count * features == V::lanes) {
          write<Nontemporal>(product, to + c * features, std::integral_constant<int, V::lanes>());
        } else {
          product.store(to + c * features, count * features);
        }
      }
    }
  }

  // Unit: all features are contiguous.
  template <bool Unit, bool Nontemporal>
  CPPCUDA_FLATTEN static void double_backward(const DoubleBackwardParams<T, P>& p, int64_t begin, int64_t end) {
    const int64_t features = p.features;
    const auto load = [](const T* from, int64_t f, int64_t step, auto n) {
      return Unit ? V::load(from + f, n) : V::load(from + f * step, step, n);
    };
    for (int64_t row = begin; row < end; ++row) {
      const auto voxel = voxel_at<A>(p, row);
      const auto direction = direction_at<A>(p, row);
      V weight[8], weight_along[8], dot[8], grad_grad_dot[8];
      for (int c = 0; c < 8; ++c) {
        weight[c] = voxel.weight(c);
        weight_along[c] = voxel.weight_along(c, direction.axis);
        dot[c] = grad_grad_dot[c] = 0;
      }
      const T* grad = p.grad.at(p.rows, row);
      const T* feats = p.feats.at(p.rows, row);
      const T* grad_grad_feats = p.grad_grad_feats.at(p.rows, row);
      if (Unit && feats) prefetch(feats, features);
      T* grad_feats = p.grad_feats + row * 8 * features;
      for_vectors<V>(features, [&](int64_t f, auto n) {
        const V g = load(grad, f, p.grad.inner, n);
        V sum = 0;
        if (feats) {
          for (int c = 0; c < 8; ++c) {
            const V x = load(feats + c * p.feats.outer, f, p.feats.inner, n);
            sum += weight_along[c] * x;
            dot[c] += g * x;
          }
        }
        if (grad_grad_feats) {
          for (int c = 0; c < 8; ++c) {
            const V x = load(grad_grad_feats + c * p.grad_grad_feats.outer, f, p.grad_grad_feats.inner, n);
            sum += weight[c] * x;
            grad_grad_dot[c] += g * x;
          }
        }
        if (p.grad_feats) {
          for (int c = 0; c < 8; ++c) write<Nontemporal>(weight_along[c] * g, grad_feats + c * features + f, n);
        }
        if (p.grad_grad) sum.store(p.grad_grad + row * features + f, n);
      });
      if (!p.grad_points) continue;
      V by_coordinate[3];
#pragma GCC unroll 3
      for (int d = 0; d < 3; ++d) {
        by_coordinate[d] = 0;
        for (int c = 0; c < 8; ++c) {
          by_coordinate[d] += V(voxel.slope_along(c, d, direction.axis)) * dot[c];
          if (grad_grad_feats) by_coordinate[d] += V(voxel.slope(c, d)) * grad_grad_dot[c];
        }
      }
      write_sums(by_coordinate, p.grad_points + row * 3);
    }
  }

  // Fast path for fewer features than lanes, as in backward_packed.
  template <bool Nontemporal>
  CPPCUDA_FLATTEN static void double_backward_packed(const DoubleBackwardParams<T, P>& p, int64_t begin, int64_t end) {
    const int64_t features = p.features, values = 8 * features;
    const Packed packed(features);
    for (int64_t row = begin; row < end; ++row) {
      const auto voxel = voxel_at<V>(p, row);
      const auto direction = direction_at<V>(p, row);
      const V grad = V::load(p.grad.at(p.rows, row), features);
      const T* feats = p.feats.at(p.rows, row);
      const T* grad_grad_feats = p.grad_grad_feats.at(p.rows, row);
      if (feats) prefetch(feats, features);
      T* grad_feats = p.grad_feats + row * values;
      V by_coordinate[3] = {0, 0, 0};
      for_vectors<V>(values, [&](int64_t i, auto n) {
        const Corners& c = packed.corners[i / V::lanes];
        const V g = grad.permuted(packed.feature[i / V::lanes]);
        if (p.grad_feats) write<Nontemporal>(voxel.weight_along(c, direction.axis) * g, grad_feats + i, n);
        if (!p.grad_points) return;
        const V dot = g * V::load(feats + i, n);
        for (int d = 0; d < 3; ++d) by_coordinate[d] += voxel.slope_along(c, d, direction.axis) * dot;
        if (!grad_grad_feats) return;
        const V grad_grad_dot = g * V::load(grad_grad_feats + i, n);
        for (int d = 0; d < 3; ++d) by_coordinate[d] += voxel.slope(c, d) * grad_grad_dot;
      });
      if (p.grad_points) write_sums(by_coordinate, p.grad_points + row * 3);
      if (!p.grad_grad) continue;
      const auto of_row = voxel_at<A>(p, row);
      const auto direction_of_row = direction_at<A>(p, row);
      V sum = 0;
      for (int c = 0; c < 8; ++c) {
        sum += V(of_row.weight_along(c, direction_of_row.axis)) * V::load(feats + c * features, features);
        if (grad_grad_feats) sum += V(of_row.weight(c)) * V::load(grad_grad_feats + c * features, features);
      }
      sum.store(p.grad_grad + row * features, features);
    }
  }

  CPPCUDA_INLINE static void write_sums(const V* by_coordinate, P* to) {
    A sums[3];
    V::sums(by_coordinate, std::integral_constant<int, 3>(), sums);
    for (int d = 0; d < 3; ++d) to[d] = static_cast<P>(sums[d]);
  }
};

}  // namespace CPPCUDA_ISA

template <class Isa, class T, class P>
void RowKernel<Isa, T, P>::forward(const ForwardParams<T, P>& p, int64_t begin, int64_t end, bool nontemporal) {
  using L = Loops<T, P>;
  const bool unit = p.feats.inner == 1;
  if constexpr (L::has_points_loop) {
    if (p.features == 1 && p.feats.outer == 1) return L::forward_points(p, begin, end);
  }
  const auto few = [&]<int count>() {
    if constexpr (count < L::V::lanes || (count == 8 && L::V::lanes == 8)) {
      if (unit && count * p.features <= L::V::lanes && p.feats.outer == p.features) {
        L::template forward_few<count>(p, begin, end);
        return true;
      }
    }
    return false;
  };
  if (few.template operator()<8>() || few.template operator()<4>() || few.template operator()<2>()) return;
  const auto loop = nontemporal && unit ? L::template forward<true, true>
                    : unit              ? L::template forward<true, false>
                                        : L::template forward<false, false>;
  loop(p, begin, end);
}

template <class Isa, class T, class P>
void RowKernel<Isa, T, P>::backward(const BackwardParams<T, P>& p, int64_t begin, int64_t end, bool nontemporal) {
  using L = Loops<T, P>;
  const bool unit = p.grad.inner == 1 && p.feats.inner == 1;
  // Without the gradient of points, 8 features or more are written corner by corner.
  const bool packed =
      unit && p.features < L::V::lanes && (p.grad_points ? p.feats.outer == p.features : p.features < 8);
  nontemporal &= unit && L::V::can_store_nontemporal(p.grad_feats, packed ? 8 * p.features : p.features);
  const auto of_requested = [&](auto feats, auto points, auto both) {
    return !p.grad_points ? feats : !p.grad_feats ? points : both;
  };
  auto of_outputs = [&]<bool Unit, bool Nontemporal>() {
    const auto few = [&]<int features>() {
      constexpr int values = L::few_corners(features) * features;
      if constexpr (values <= L::V::lanes && (!Nontemporal || values == L::V::lanes)) {
        if (unit && p.features == features) {
          L::template backward_few<features, Nontemporal>(p, begin, end);
          return true;
        }
      }
      return false;
    };
    if (!p.grad_points && (few.template operator()<1>() || few.template operator()<2>() ||
                           few.template operator()<3>() || few.template operator()<4>())) {
      return;
    }
    if constexpr (L::has_points_loop) {
      if (p.grad_points && p.features == 1 && p.feats.outer == 1) {
        const auto loop =
            p.grad_feats ? L::template backward_points<Nontemporal, true> : L::template backward_points<false, false>;
        return loop(p, begin, end);
      }
    }
    const auto loop = of_requested(L::template backward<Unit, Nontemporal, true, false>,
                                   L::template backward<Unit, false, false, true>,
                                   L::template backward<Unit, Nontemporal, true, true>);
    const auto packed_loop = of_requested(L::template backward_packed<Nontemporal, true, false>,
                                          L::template backward_packed<false, false, true>,
                                          L::template backward_packed<Nontemporal, true, true>);
    (packed ? packed_loop : loop)(p, begin, end);
  };
  nontemporal ? of_outputs.template operator()<true, true>()
  : unit      ? of_outputs.template operator()<true, false>()
              : of_outputs.template operator()<false, false>();
}

template <class Isa, class T, class P>
void RowKernel<Isa, T, P>::double_backward(const DoubleBackwardParams<T, P>& p, int64_t begin, int64_t end,
                                           bool nontemporal) {
  using L = Loops<T, P>;
  const bool unit = p.grad.inner == 1 && p.feats.inner == 1 && p.grad_grad_feats.inner == 1;
  const bool packed = unit && p.features < L::V::lanes && (!p.feats.data || p.feats.outer == p.features) &&
                      (!p.grad_grad_feats.data || p.grad_grad_feats.outer == p.features);
  nontemporal &=
      unit && p.grad_feats && L::V::can_store_nontemporal(p.grad_feats, packed ? 8 * p.features : p.features);
  const auto loop = packed && nontemporal ? L::template double_backward_packed<true>
                    : packed              ? L::template double_backward_packed<false>
                    : nontemporal         ? L::template double_backward<true, true>
                    : unit                ? L::template double_backward<true, false>
                                          : L::template double_backward<false, false>;
  loop(p, begin, end);
}

template struct RowKernel<kit::Isa, double, double>;
template struct RowKernel<kit::Isa, float, float>;
template struct RowKernel<kit::Isa, c10::Half, c10::Half>;
template struct RowKernel<kit::Isa, c10::Half, float>;
template struct RowKernel<kit::Isa, c10::BFloat16, c10::BFloat16>;
template struct RowKernel<kit::Isa, c10::BFloat16, float>;

}  // namespace cppcuda::ops::trilinear
