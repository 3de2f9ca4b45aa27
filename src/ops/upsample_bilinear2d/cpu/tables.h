#pragma once

// Tables for the CPU kernels: the taps of an axis, and the outputs that read each input.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cppcuda/kit/math/divide.h"
#include "ops/upsample_bilinear2d/cpu/kernel.h"
#include "ops/upsample_bilinear2d/math.h"

namespace cppcuda::ops::upsample_bilinear2d {

template <class A>
std::vector<Tap<A>> taps(const Axis<A>& axis) {
  std::vector<Tap<A>> result(axis.out);
  for (int64_t o = 0; o < axis.out; ++o) result[o] = axis.tap(o);
  return result;
}

inline int64_t whole_blocks(int64_t n) { return kit::round_up(n, int64_t{block}); }

// The taps as a structure of arrays for SIMD. The padding of the last block repeats the last tap.
template <class A>
class ColumnTaps {
 public:
  explicit ColumnTaps(const std::vector<Tap<A>>& taps, int64_t in) : in_(in), out_(static_cast<int64_t>(taps.size())) {
    for (int64_t o = 0; o < whole_blocks(out_); ++o) {
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

// The outputs that read each input pixel, and the pixel's weights in them, concatenated.
template <class A>
struct Readers {
  std::vector<Range<>> outputs;
  std::vector<int64_t> first_weight;
  std::vector<A> weights;
  int64_t max_readers = 0;  // of one pixel

  explicit Readers(const Axis<A>& axis) {
    for (int64_t i = 0; i < axis.in; ++i) {
      outputs.push_back(axis.outputs_of(i));
      max_readers = std::max(max_readers, outputs[i].last - outputs[i].first);
      first_weight.push_back(static_cast<int64_t>(weights.size()));
      for (int64_t o = outputs[i].first; o < outputs[i].last; ++o) weights.push_back(axis.tap(o).weight(i));
    }
  }

  const A* weights_of(int64_t i) const { return weights.data() + first_weight[i]; }
};

// The same as a structure of arrays for SIMD, with non-decreasing indices. Every pixel has max_readers entries. The
// weight of a placeholder is the value that it adds: -0, or 0 for a pixel without readers.
template <class A>
class VectorReaders {
 public:
  VectorReaders(const Readers<A>& readers, int64_t out)
      : in_(static_cast<int64_t>(readers.outputs.size())),
        out_(out),
        stride_(whole_blocks(in_)),
        max_readers_(readers.max_readers) {
    outputs_.resize(max_readers_ * stride_);
    weights_.resize(max_readers_ * stride_, A(-0.0));
    for (int64_t i = 0; i < stride_; ++i) {
      const auto [left, right] = readers.outputs[std::min(i, in_ - 1)];
      if (i % block == 0) first_.push_back(std::min(left, out - 1));
      for (int64_t k = 0; k < max_readers_; ++k) {
        const int64_t o = std::min(left + k, std::max(left, right - 1));
        outputs_[k * stride_ + i] = static_cast<int32_t>(std::min(o, out - 1) - first_.back());
        if (i < in_ && left + k < right) weights_[k * stride_ + i] = readers.weights_of(i)[k];
      }
      if (left == right) weights_[i] = 0;
    }
  }

  ColumnReaders<A> view() const {
    return {in_, out_, max_readers_, stride_, first_.data(), outputs_.data(), weights_.data()};
  }

 private:
  int64_t in_, out_, stride_, max_readers_;
  std::vector<int64_t> first_;
  std::vector<int32_t> outputs_;
  std::vector<A> weights_;
};

}  // namespace cppcuda::ops::upsample_bilinear2d
