#pragma once

// The launches of the CUDA kernels of interpolation, and their entries in the table of kernels.

#include "cppcuda/kit/cuda/launch.cuh"
#include "cppcuda/kit/cuda/width.h"
#include "cppcuda/kit/kernel_table.h"
#include "interpolation/cuda/kernel.cuh"
#include "interpolation/cuda/launch.h"

namespace cppcuda::interpolation {

inline Work work_of(int64_t groups, int64_t batches, int64_t points, int lane_bits) {
  return {.count = groups * batches * points, .group = batches * points, .batch = points, .lane_bits = lane_bits};
}

// What the Params have besides points, which kernels read through Points.
template <class T, class P, class Lookup>
Interpolation<T, T, Lookup> without_points(const Interpolation<T, P, Lookup>& p) {
  return {p.lookup, p.batches, p.points, p.features, {}, {}, p.order};
}

// Whether accesses of this many values are aligned. A row is contiguous.
template <class T>
bool is_aligned(const RowsOf<T>& t, int width) {
  return !t.data || (t.inner == 1 && kit::is_aligned(t.data, {t.batch, t.row}, width * sizeof(T)));
}

// Calls f(std::integral_constant<int, N>) with N = pack, 2 or 1.
template <int pack, class F>
void with_access_width(int width, F f) {
  if (width == pack) return f(std::integral_constant<int, pack>());
  if constexpr (pack > 2) {
    if (width == 2) return f(std::integral_constant<int, 2>());
  }
  f(std::integral_constant<int, 1>());
}

// Launches levels_kernel if the rows of the tables are contiguous and aligned. Returns whether they are.
template <class T, class Lookup>
bool forward_levels(const GatherParams<T, T, Lookup>& p, const Points<T>& point, kit::CudaStream& stream) {
  constexpr int most = kit::pack_size<T>;
  if (p.table.row != p.features || !is_aligned(p.table, std::min<int>(p.features, most))) return false;
  const auto run = [&](auto f) {
    constexpr int features = f;
    constexpr int64_t together = levels_of_store<T>(features);
    const Work work = work_of(kit::ceil_div<int64_t>(p.lookup.levels(), together), p.batches, p.points, 0);
    const bool packs = kit::is_aligned(p.out, {p.columns()}, std::min<int>(together * features, most) * sizeof(T));
    kit::launch(levels_kernel<features, T, Lookup>, kit::grid_stride_launch(work.count), stream, p, point, work, packs);
  };
  return [&]<int... F>(std::integer_sequence<int, F...>) {
    return ((p.features == F && (run(std::integral_constant<int, F>()), true)) || ...);
  }(std::integer_sequence<int, 1, 2, 4, 8>());
}

template <class T, class P, class Lookup>
void gather(const GatherParams<T, P, Lookup>& p, kit::CudaStream& stream) {
  constexpr int pack = kit::pack_size<T>;
  const int64_t points = p.batches * p.points, levels = p.lookup.levels();
  const int width = access_width(p.features, pack, [&](int n) {
    const int bytes = n * sizeof(T);
    return is_aligned(p.table, n) && is_aligned(p.second, n) && is_aligned(p.grad, n) &&
           kit::is_aligned(p.out, {}, bytes) && kit::is_aligned(p.out_slopes, {}, bytes);
  });
  const GatherParams<T, T, Lookup> params{without_points(p), p.table,      p.second, p.grad, p.out,
                                          p.out_slopes,      p.grad_points};
  const Points<T> point = p.point, direction = p.direction;
  // levels_of_work: the number of levels whose work is divided among threads.
  const auto run = [&](int n, int64_t levels_of_work, auto call) {
    const PointLaunch launch = point_launch(points * levels_of_work, p.features, n);
    call(launch.shape, work_of(levels_of_work, p.batches, p.points, launch.lane_bits));
  };
  // The kernels that sum over levels are launched for some levels after the others.
  const auto for_each_levels = [&](auto call) {
    int64_t largest = 0;
    for (int l = 0; l < levels; ++l) largest = std::max(largest, p.lookup.end_row(l) - p.lookup.first_row(l));
    const int64_t size = levels_of_launch(points, levels, largest * p.features * sizeof(T));
    for (int64_t first = 0; first < levels; first += size) {
      call(Levels{static_cast<int>(first), static_cast<int>(std::min(first + size, levels))});
    }
  };
  if (direction.given()) {
    with_access_width<pack>(width, [&](auto n) {
      run(n, 1, [&](const auto& shape, const Work& work) {
        for_each_levels([&](Levels some) {
          kit::launch(double_backward_kernel<n, T, Lookup>, shape, stream, params, point, direction, work, some);
        });
      });
    });
    return;
  }
  if constexpr (Lookup::gives_slopes) {
    if (p.out_slopes) {
      kit::with_width<pack>(width == pack, [&](auto n) {
        run(n, 1, [&](const auto& shape, const Work& work) {
          kit::launch(slopes_kernel<n, T, Lookup>, shape, stream, params, point, work);
        });
      });
      return;
    }
  }
  const auto forward = [&](auto n) {
    run(n, levels, [&](const auto& shape, const Work& work) {
      kit::launch(forward_kernel<n, T, Lookup>, shape, stream, params, point, work);
    });
  };
  if (p.out) {
    if constexpr (Lookup::has_levels && sizeof(T) < sizeof(double)) {  // few use float64
      if (!forward_levels(params, point, stream)) forward(std::integral_constant<int, 1>());
    } else {
      with_access_width<pack>(width, forward);
    }
  }
  if (p.grad_points) {
    with_access_width<pack>(width, [&](auto n) {
      run(n, 1, [&](const auto& shape, const Work& work) {
        for_each_levels([&](Levels some) {
          kit::launch(grad_points_kernel<n, T, Lookup>, shape, stream, params, point, work, some);
        });
      });
    });
  }
}

template <class T, class P, class Lookup>
void scatter(const ScatterParams<T, P, Lookup>& p, kit::CudaStream& stream) {
  using A = kit::opmath<T>;
  const int64_t levels = p.lookup.levels(), size = levels_of_scatter(p.features, sizeof(A));
  const int64_t groups = kit::ceil_div(levels, size);
  const ScatterParams<T, T, Lookup> params{without_points(p), p.grad, p.table};
  const auto run = [&](auto n) {
    const PointLaunch launch = point_launch(groups * p.batches * p.points, p.features, n);
    kit::launch(scatter_kernel<n, T, Lookup>, launch.shape, stream, params, p.point, p.direction,
                work_of(groups, p.batches, p.points, launch.lane_bits), static_cast<int>(size));
  };
  if constexpr (std::is_same_v<A, float>) {
    const int width = scatter_width(p.features, kit::compute_capability(stream) >= 90, [&](int n) {
      return is_aligned(p.grad, n) && kit::is_aligned(p.table, {}, n * sizeof(A));
    });
    with_access_width<4>(width, run);
  } else {
    run(std::integral_constant<int, 1>());
  }
}

template <class P, class Lookup>
void terms(const TermParams<P, Lookup>& p, kit::CudaStream& stream) {
  kit::launch(terms_kernel<P, Lookup>, kit::grid_stride_launch(p.count), stream, p, p.point, p.direction,
              work_of(p.lookup.levels(), p.batches, p.points, 0));
}

template <class T>
void sum(const SumParams<T>& p, kit::CudaStream& stream) {
  const PointLaunch launch = point_launch(p.runs(), p.features, 1);
  const Work work = work_of(p.levels, p.batches, p.points, launch.lane_bits);
  kit::launch(sum_kernel<T>, launch.shape, stream, p, p.count, work);
  kit::launch(join_kernel<T>, point_launch(p.runs() - 1, p.features, 1).shape, stream, p, work);
}

// Adds the kernels for a lookup. Returns true, so that it can initialise a constant.
template <class Lookup>
bool add_to_table() {
  kit::for_each_dtypes([]<class T, class P>() {
    kit::add_to_table(&gather<T, P, Lookup>);
    kit::add_to_table(&scatter<T, P, Lookup>);
  });
  return kit::for_each_dtype([]<class T>() {
    kit::add_to_table(&terms<T, Lookup>);
    kit::add_to_table(&sum<T>);
  });
}

}  // namespace cppcuda::interpolation
