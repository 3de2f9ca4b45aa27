#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "ops/upsample_bilinear2d/adapter.h"
#include "ops/upsample_bilinear2d/math.h"
#include "ops/upsample_bilinear2d/schema.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

// Below this many elements a second thread costs more than it saves.
constexpr int64_t elements_per_task = 1 << 15;

// f(begin, end) on ranges of rows.
template <class F>
void parallel_rows(int64_t rows, int64_t elements_per_row, F f) {
  at::parallel_for(0, rows, std::max<int64_t>(1, elements_per_task / elements_per_row), f);
}

template <class A>
std::vector<Tap<A>> taps(const Axis<A>& axis) {
  std::vector<Tap<A>> result(axis.out);
  for (int64_t o = 0; o < axis.out; ++o) result[o] = axis.tap(o);
  return result;
}

// The outputs that read each input pixel, and its weights in them, one after another.
template <class A>
struct Readers {
  std::vector<Range> outputs;
  std::vector<int64_t> first_weight;
  std::vector<A> weights;

  explicit Readers(const Axis<A>& axis) {
    for (int64_t i = 0; i < axis.in; ++i) {
      outputs.push_back(axis.outputs_of(i));
      first_weight.push_back(static_cast<int64_t>(weights.size()));
      for (int64_t o = outputs[i].first; o < outputs[i].last; ++o) weights.push_back(axis.tap(o).weight(i));
    }
  }

  const A* weights_of(int64_t i) const { return weights.data() + first_weight[i]; }
};

// Memory is a sequence of images of `depth` values per pixel: planes of one channel, or all channels.
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

// A row of the output lies between two rows of the input; those are interpolated along x first, and serve all the
// rows of the output that lie between them.
template <class T>
class PlaneResizer {
  using A = core::opmath<T>;

 public:
  PlaneResizer(const Params<T>& p, const std::vector<Tap<A>>& columns)
      : p_(p), columns_(columns), memory_(2 * columns.size()) {}

  void write_row(int64_t plane, const Tap<A>& row, T* out) {
    const A* lower = stretched(plane, row.lower);
    const A* upper = stretched(plane, row.upper);
    for (int64_t x = 0; x < p_.x.out; ++x) {
      out[x] = static_cast<T>(row.lower_weight * lower[x] + row.upper_weight * upper[x]);
    }
  }

 private:
  // A row of the input, interpolated along x. Of two neighbours one is even and one is odd.
  const A* stretched(int64_t plane, int64_t y) {
    A* result = memory_.data() + (y & 1) * p_.x.out;
    const int64_t wanted = plane * p_.y.in + y;
    if (held_[y & 1] == wanted) return result;
    held_[y & 1] = wanted;
    const T* row = Images<T>::source(p_, plane) + y * p_.strides.h;
    for (int64_t x = 0; x < p_.x.out; ++x) {
      const Tap<A>& column = columns_[x];
      result[x] = column.lower_weight * static_cast<A>(row[column.lower * p_.strides.w]) +
                  column.upper_weight * static_cast<A>(row[column.upper * p_.strides.w]);
    }
    return result;
  }

  const Params<T>& p_;
  const std::vector<Tap<A>>& columns_;
  std::vector<A> memory_;
  int64_t held_[2] = {-1, -1};
};

// Unit: channels lie next to each other, which the compiler must know to use vectors.
template <bool Unit, class T>
void write_pixels(const Params<T>& p, const T* image, const Tap<core::opmath<T>>& row,
                  const std::vector<Tap<core::opmath<T>>>& columns, T* out) {
  using A = core::opmath<T>;
  const int64_t step = Unit ? 1 : p.strides.c;
  for (int64_t x = 0; x < p.x.out; ++x, out += p.channels) {
    const Tap<A>& column = columns[x];
    const T* top_left = image + row.lower * p.strides.h + column.lower * p.strides.w;
    const T* top_right = image + row.lower * p.strides.h + column.upper * p.strides.w;
    const T* bottom_left = image + row.upper * p.strides.h + column.lower * p.strides.w;
    const T* bottom_right = image + row.upper * p.strides.h + column.upper * p.strides.w;
    for (int64_t c = 0; c < p.channels; ++c) {
      const A top = column.lower_weight * static_cast<A>(top_left[c * step]) +
                    column.upper_weight * static_cast<A>(top_right[c * step]);
      const A bottom = column.lower_weight * static_cast<A>(bottom_left[c * step]) +
                       column.upper_weight * static_cast<A>(bottom_right[c * step]);
      out[c] = static_cast<T>(row.lower_weight * top + row.upper_weight * bottom);
    }
  }
}

template <class T>
void run_forward(const Params<T>& p) {
  const auto rows = taps(p.y), columns = taps(p.x);
  const Images<T> images(p);
  const int64_t row_size = p.x.out * images.depth;
  parallel_rows(images.count * p.y.out, row_size, [&](int64_t begin, int64_t end) {
    PlaneResizer<T> planes(p, columns);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / p.y.out;
      const auto& row = rows[i % p.y.out];
      T* out = p.target + i * row_size;
      if (!p.channels_last) {
        planes.write_row(image, row, out);
      } else {
        const T* source = Images<T>::source(p, image);
        p.strides.c == 1 ? write_pixels<true>(p, source, row, columns, out)
                         : write_pixels<false>(p, source, row, columns, out);
      }
    }
  });
}

// sums = or += weight * a row of the gradient, [OW, depth]. Unit: its values lie next to each other.
template <bool Unit, bool Add, class T, class A>
void accumulate_row(const Params<T>& p, int64_t depth, const T* grad, A weight, A* sums) {
  const int64_t pixels = Unit ? 1 : p.x.out, values = Unit ? p.x.out * depth : depth, step = Unit ? 1 : p.strides.c;
  for (int64_t x = 0; x < pixels; ++x) {
    for (int64_t c = 0; c < values; ++c) {
      const A term = weight * static_cast<A>(grad[x * p.strides.w + c * step]);
      sums[x * values + c] = Add ? sums[x * values + c] + term : term;
    }
  }
}

template <class A>
A dot(const A* weights, const A* values, int64_t count, int64_t step) {
  A sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += weights[i] * values[i * step];
  return sum;
}

// A row of the input's gradient: the rows of the output's gradient summed along y, then that along x.
template <bool Unit, class T>
void backward_rows(const Params<T>& p, const Readers<core::opmath<T>>& rows, const Readers<core::opmath<T>>& columns,
                   int64_t begin, int64_t end) {
  using A = core::opmath<T>;
  const Images<T> images(p);
  const int64_t depth = images.depth;
  constexpr int64_t few = 8;  // values that are not worth a loop of vectors
  std::vector<A> along_y(p.x.out * depth), pixel(depth);
  for (int64_t i = begin; i < end; ++i) {
    const T* grad = Images<T>::source(p, i / p.y.in);
    const int64_t y = i % p.y.in;
    T* out = p.target + i * p.x.in * depth;
    const auto [first, last] = rows.outputs[y];
    if (first == last) {
      std::fill_n(out, p.x.in * depth, T(0));
      continue;
    }
    for (int64_t o = first; o < last; ++o) {
      const A weight = rows.weights_of(y)[o - first];
      const T* row = grad + o * p.strides.h;
      o == first ? accumulate_row<Unit, false>(p, depth, row, weight, along_y.data())
                 : accumulate_row<Unit, true>(p, depth, row, weight, along_y.data());
    }
    for (int64_t x = 0; x < p.x.in; ++x, out += depth) {
      const auto [left, right] = columns.outputs[x];
      const A* weights = columns.weights_of(x);
      if (depth == 1) {
        *out = static_cast<T>(dot(weights, along_y.data() + left, right - left, 1));
      } else if (depth < few) {
        for (int64_t c = 0; c < depth; ++c) {
          out[c] = static_cast<T>(dot(weights, along_y.data() + left * depth + c, right - left, depth));
        }
      } else {
        std::fill(pixel.begin(), pixel.end(), A(0));
        for (int64_t o = left; o < right; ++o) {
          const A weight = weights[o - left];
          const A* values = along_y.data() + o * depth;
          for (int64_t c = 0; c < depth; ++c) pixel[c] += weight * values[c];
        }
        for (int64_t c = 0; c < depth; ++c) out[c] = static_cast<T>(pixel[c]);
      }
    }
  }
}

template <class T>
void run_backward(const Params<T>& p) {
  const Readers rows(p.y), columns(p.x);
  const Images<T> images(p);
  const bool unit = p.strides.w == images.depth && (images.depth == 1 || p.strides.c == 1);
  // Work follows the larger of the two images.
  const int64_t work = std::max(p.x.in, p.x.out * p.y.out / p.y.in) * images.depth;
  parallel_rows(images.count * p.y.in, std::max<int64_t>(1, work), [&](int64_t begin, int64_t end) {
    unit ? backward_rows<true>(p, rows, columns, begin, end) : backward_rows<false>(p, rows, columns, begin, end);
  });
}

Tensor forward_cpu(const Tensor& input, c10::SymIntArrayRef output_size, std::string_view mode,
                   std::optional<double> scale_h, std::optional<double> scale_w) {
  return forward(input, output_size, mode, scale_h, scale_w, [](const auto& p) { run_forward(p); });
}

Tensor backward_cpu(const Tensor& grad, c10::SymIntArrayRef input_size, std::string_view mode,
                    std::optional<double> scale_h, std::optional<double> scale_w) {
  return backward(grad, input_size, mode, scale_h, scale_w, [](const auto& p) { run_backward(p); });
}

TORCH_LIBRARY_IMPL(cppcuda, CPU, m) {
  m.impl(Forward::name, TORCH_FN(forward_cpu));
  m.impl(Backward::name, TORCH_FN(backward_cpu));
}

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
