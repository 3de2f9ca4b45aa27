#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "core/memory.h"
#include "ops/upsample_bilinear2d/adapter.h"
#include "ops/upsample_bilinear2d/cpu_kernel.h"
#include "ops/upsample_bilinear2d/schema.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

// Below this many elements a second thread costs more than it saves.
constexpr int64_t elements_per_task = 1 << 15;

// f(isa, begin, end) on ranges of rows.
template <class F>
void parallel_rows(int64_t rows, int64_t elements_per_row, F f) {
  at::parallel_for(0, rows, std::max<int64_t>(1, elements_per_task / elements_per_row),
                   [&](int64_t begin, int64_t end) { core::with_isa([&](auto isa) { f(isa, begin, end); }); });
}

template <class A>
std::vector<Tap<A>> taps(const Axis<A>& axis) {
  std::vector<Tap<A>> result(axis.out);
  for (int64_t o = 0; o < axis.out; ++o) result[o] = axis.tap(o);
  return result;
}

int64_t round_up(int64_t n) { return (n + block - 1) / block * block; }

// Taps in the order in which vectors want them. Those that fill the last block read what the last pixel reads.
template <class A>
class ColumnTaps {
 public:
  explicit ColumnTaps(const std::vector<Tap<A>>& taps, int64_t in) : in_(in), out_(static_cast<int64_t>(taps.size())) {
    for (int64_t o = 0; o < round_up(out_); ++o) {
      const Tap<A>& tap = taps[std::min(o, out_ - 1)];
      if (o % block == 0) first_.push_back(tap.lower);
      lower_.push_back(static_cast<int32_t>(tap.lower - first_.back()));
      upper_.push_back(static_cast<int32_t>(tap.upper - first_.back()));
      lower_weight_.push_back(tap.lower_weight);
      upper_weight_.push_back(tap.upper_weight);
    }
  }

  Columns<A> view() const {
    return {in_, out_, first_.data(), lower_.data(), upper_.data(), lower_weight_.data(), upper_weight_.data()};
  }

 private:
  int64_t in_, out_;
  std::vector<int64_t> first_;
  std::vector<int32_t> lower_, upper_;
  std::vector<A> lower_weight_, upper_weight_;
};

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

// The same in the order in which vectors want them: no index is less than the one before it.
template <class A>
class VectorReaders {
 public:
  VectorReaders(const Readers<A>& readers, int64_t out)
      : in_(static_cast<int64_t>(readers.outputs.size())), out_(out), stride_(round_up(in_)) {
    for (const Range& r : readers.outputs) most_ = std::max(most_, r.last - r.first);
    outputs_.resize(most_ * stride_);
    weights_.resize(most_ * stride_);
    for (int64_t i = 0; i < stride_; ++i) {
      const auto [left, right] = readers.outputs[std::min(i, in_ - 1)];
      if (i % block == 0) first_.push_back(std::min(left, out - 1));
      for (int64_t k = 0; k < most_; ++k) {
        const int64_t o = std::min(left + k, std::max(left, right - 1));
        outputs_[k * stride_ + i] = static_cast<int32_t>(std::min(o, out - 1) - first_.back());
        if (i < in_ && left + k < right) weights_[k * stride_ + i] = readers.weights_of(i)[k];
      }
    }
  }

  ColumnReaders<A> view() const { return {in_, out_, most_, stride_, first_.data(), outputs_.data(), weights_.data()}; }

 private:
  int64_t in_, out_, stride_, most_ = 0;
  std::vector<int64_t> first_;
  std::vector<int32_t> outputs_;
  std::vector<A> weights_;
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

template <class T>
bool streams(const Params<T>& p) {
  return core::exceeds_cache(p.batch * p.channels * (p.y.in * p.x.in + p.y.out * p.x.out) * sizeof(T));
}

// A row of the output lies between two rows of the input; those are interpolated along x first, and serve all the
// rows of the output that lie between them.
template <class Kernel, class T>
class PlaneResizer {
  using A = core::opmath<T>;

 public:
  PlaneResizer(const Params<T>& p, const Columns<A>& columns, bool stream)
      : p_(p), columns_(columns), stream_(stream), memory_(2 * round_up(p.x.out)) {}

  void write_row(int64_t plane, const Tap<A>& row, T* out) {
    const A* lower = stretched(plane, row.lower);
    const A* upper = stretched(plane, row.upper);
    Kernel::blend(lower, upper, row.lower_weight, row.upper_weight, p_.x.out, out, stream_);
  }

 private:
  // A row of the input, interpolated along x. Of two neighbours one is even and one is odd.
  const A* stretched(int64_t plane, int64_t y) {
    A* result = memory_.data() + (y & 1) * round_up(p_.x.out);
    const int64_t wanted = plane * p_.y.in + y;
    if (held_[y & 1] == wanted) return result;
    held_[y & 1] = wanted;
    Kernel::stretch(columns_, Images<T>::source(p_, plane) + y * p_.strides.h, p_.strides.w, result);
    return result;
  }

  const Params<T>& p_;
  const Columns<A> columns_;
  const bool stream_;
  std::vector<A> memory_;
  int64_t held_[2] = {-1, -1};
};

template <class T>
void run_forward(const Params<T>& p) {
  const auto rows = taps(p.y), columns = taps(p.x);
  const ColumnTaps vectors(columns, p.x.in);
  const Images<T> images(p);
  const int64_t row_size = p.x.out * images.depth;
  const bool stream = streams(p);
  parallel_rows(images.count * p.y.out, row_size, [&](auto isa, int64_t begin, int64_t end) {
    using Kernel = RowKernel<typename decltype(isa)::type, T>;
    PlaneResizer<Kernel, T> planes(p, vectors.view(), stream);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / p.y.out;
      const auto& row = rows[i % p.y.out];
      T* out = p.target + i * row_size;
      if (!p.channels_last) {
        planes.write_row(image, row, out);
      } else {
        const T* source = Images<T>::source(p, image);
        Kernel::write_pixels(columns.data(), p.x.out, source + row.lower * p.strides.h,
                             source + row.upper * p.strides.h, row, p.strides.w, p.strides.c, p.channels, out, stream);
      }
    }
  });
}

// A row of the input's gradient: the rows of the output's gradient summed along y, then that along x.
template <class T>
void run_backward(const Params<T>& p) {
  using A = core::opmath<T>;
  const Readers<A> rows(p.y), columns(p.x);
  const VectorReaders<A> vectors(columns, p.x.out);
  const Images<T> images(p);
  const int64_t depth = images.depth;
  // Work follows the larger of the two images.
  const int64_t work = std::max(p.x.in, p.x.out * p.y.out / p.y.in) * depth;
  parallel_rows(images.count * p.y.in, std::max<int64_t>(1, work), [&](auto isa, int64_t begin, int64_t end) {
    using Kernel = RowKernel<typename decltype(isa)::type, T>;
    std::vector<A> along_y(p.x.out * depth);
    for (int64_t i = begin; i < end; ++i) {
      const T* grad = Images<T>::source(p, i / p.y.in);
      const int64_t y = i % p.y.in;
      const auto [first, last] = rows.outputs[y];
      Kernel::sum_rows(grad + first * p.strides.h, p.strides.h, rows.weights_of(y), last - first, p.strides.w,
                       p.strides.c, p.x.out, depth, along_y.data());
      T* out = p.target + i * p.x.in * depth;
      if (depth == 1) {
        Kernel::gather(vectors.view(), along_y.data(), out);
      } else {
        Kernel::gather_pixels(columns.outputs.data(), columns.first_weight.data(), columns.weights.data(), p.x.in,
                              along_y.data(), depth, out);
      }
    }
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
