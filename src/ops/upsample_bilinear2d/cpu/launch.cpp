#include <algorithm>
#include <optional>
#include <vector>

#include "cppcuda/kit/cpu/parallel.h"
#include "cppcuda/kit/kernel_table.h"
#include "ops/upsample_bilinear2d/cpu/kernel.h"
#include "ops/upsample_bilinear2d/cpu/tables.h"
#include "ops/upsample_bilinear2d/params.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

// Memory as a sequence of images with `depth` values per pixel: planes of one channel, or images with all channels.
template <class T>
struct Images {
  int64_t count, depth;

  explicit Images(const Params<T>& p)
      : count(p.channels_last ? p.batch : p.batch * p.channels), depth(p.channels_last ? p.channels : 1) {}

  static const T* source(const Params<T>& p, int64_t image) {
    if (p.channels_last) return p.source + image * p.strides.n;
    return p.source + image / p.channels * p.strides.n + image % p.channels * p.strides.c;
  }
};

template <class T>
bool uses_nontemporal_stores(const Params<T>& p, const kit::CpuContext& cpu) {
  return cpu.exceeds_cache(p.batch * p.channels * (p.y.in * p.x.in + p.y.out * p.x.out) * sizeof(T));
}

// A row of the output is between two rows of the input. These are interpolated along x once, for all output rows
// between them.
template <class Kernel, class T>
class PlaneResizer {
  using A = kit::opmath<T>;

 public:
  PlaneResizer(const Params<T>& p, const Columns<A>& columns, bool nontemporal)
      : p_(p), columns_(columns), nontemporal_(nontemporal), memory_(2 * whole_blocks(p.x.out)) {}

  void write_row(int64_t plane, const Tap<A>& row, T* out) {
    const A* lower = stretched(plane, row.lower);
    const A* upper = stretched(plane, row.upper);
    Kernel::blend(lower, upper, row.lower_weight, row.upper_weight, p_.x.out, out, nontemporal_);
  }

 private:
  // A row of the input, interpolated along x. One buffer holds even rows, the other odd rows.
  const A* stretched(int64_t plane, int64_t y) {
    A* result = memory_.data() + (y & 1) * whole_blocks(p_.x.out);
    const int64_t row = plane * p_.y.in + y;
    if (held_[y & 1] == row) return result;
    held_[y & 1] = row;
    Kernel::stretch(columns_, Images<T>::source(p_, plane) + y * p_.strides.h, p_.strides.w, result);
    return result;
  }

  const Params<T>& p_;
  const Columns<A> columns_;
  const bool nontemporal_;
  std::vector<A> memory_;
  int64_t held_[2] = {-1, -1};
};

template <class T>
void forward(const ForwardParams<T>& p, const kit::CpuContext& cpu) {
  const auto rows = taps(p.y), columns = taps(p.x);
  const ColumnTaps vectors(columns, p.x.in);
  const Images<T> images(p);
  const int64_t row_size = p.x.out * images.depth;
  const bool nontemporal = uses_nontemporal_stores(p, cpu);
  kit::parallel_rows(cpu, images.count * p.y.out, row_size, kit::grain_size, [&](auto isa, int64_t begin, int64_t end) {
    using Kernel = ImageRowKernel<typename decltype(isa)::type, T>;
    PlaneResizer<Kernel, T> planes(p, vectors.view(), nontemporal);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / p.y.out;
      const auto& row = rows[i % p.y.out];
      T* out = p.target + i * row_size;
      if (!p.channels_last) {
        planes.write_row(image, row, out);
      } else {
        const T* source = Images<T>::source(p, image);
        Kernel::write_pixels(columns.data(), p.x.out, source + row.lower * p.strides.h,
                             source + row.upper * p.strides.h, row, p.strides.w, p.strides.c, p.channels, out,
                             nontemporal);
      }
    }
  });
}

// For each row of the input's gradient, sums the rows of the output's gradient along y, then the result along x.
template <class T>
void backward(const BackwardParams<T>& p, const kit::CpuContext& cpu) {
  using A = kit::opmath<T>;
  const Readers<A> rows(p.y), columns(p.x);
  const Images<T> images(p);
  const int64_t depth = images.depth;
  // If a scale is given, nearly all outputs may read the border pixels.
  const bool even = columns.max_readers * p.x.in <= 8 * (p.x.in + p.x.out);
  std::optional<VectorReaders<A>> vectors;
  if (depth == 1 && even) vectors.emplace(columns, p.x.out);
  const bool nontemporal = uses_nontemporal_stores(p, cpu);
  // The pixels along x whose sums along y fit in the L1 cache.
  const int64_t tile = depth == 1 ? p.x.in : std::max<int64_t>(1, 4096 / sizeof(A) / depth * p.x.in / p.x.out);
  // The work is determined by the larger of the two images.
  const int64_t work = std::max(p.x.in, p.x.out * p.y.out / p.y.in) * depth;
  kit::parallel_rows(cpu, images.count * p.y.in, work, kit::grain_size, [&](auto isa, int64_t begin, int64_t end) {
    using Kernel = ImageRowKernel<typename decltype(isa)::type, T>;
    std::vector<A> along_y(p.x.out * depth);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t y = i % p.y.in;
      const auto [first, last] = rows.outputs[y];
      const T* grad = Images<T>::source(p, i / p.y.in) + first * p.strides.h;
      const int64_t later = y + 1 < p.y.in ? rows.outputs[y + 1].last - last : 0;
      T* out = p.target + i * p.x.in * depth;
      for (int64_t x = 0, summed = 0; x < p.x.in; x += tile) {
        const int64_t count = std::min(tile, p.x.in - x), right = columns.outputs[x + count - 1].last;
        Kernel::sum_rows(grad + summed * p.strides.w, p.strides.h, rows.weights_of(y), last - first, later, p.strides.w,
                         p.strides.c, right - summed, depth, along_y.data() + summed * depth);
        summed = right;
        if (vectors) {
          Kernel::gather(vectors->view(), along_y.data(), out);
        } else {
          Kernel::gather_pixels(columns.outputs.data() + x, columns.first_weight.data() + x, columns.weights.data(),
                                count, along_y.data(), depth, out + x * depth, nontemporal);
        }
      }
    }
  });
}

[[maybe_unused]] const bool added = kit::for_each_dtype([]<class T>() {
  kit::add_to_table(&forward<T>);
  kit::add_to_table(&backward<T>);
});

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
