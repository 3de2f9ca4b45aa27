// Operators of torch_cluster over points in groups, which find the sizes of their results: knn and fps. Group p has the
// points from ptr[p] to ptr[p + 1].

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "cppcuda/kit/define.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

// Pairs of a point in `y` and one of its k nearest points in `x`, those of the same group, by distance. A group with
// fewer points gives fewer pairs.
using Knn = kit::Op<
    "second::knn(Tensor x[N, D], Tensor y[M, D], int k, Tensor? ptr_x[P] int64=None, Tensor? ptr_y[P] int64=None, "
    "bool cosine=False) -> Tensor[2, {E}] int64">;

// The bounds of groups: those of one group if they are not given.
std::vector<int64_t> bounds_of(const char* op, const char* name, const Tensor& ptr, int64_t points) {
  if (!ptr.defined()) return {0, points};
  const Tensor all = ptr.contiguous();
  std::vector<int64_t> result(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel());
  TORCH_CHECK_INDEX(
      !result.empty() && result[0] == 0 && result.back() == points && std::is_sorted(result.begin(), result.end()), op,
      ": ", name, " must begin with 0, not decrease, and end with ", points, ", the number of points, got ",
      at::IntArrayRef(result));
  return result;
}

Tensor knn_cpu(const kit::Args<Knn>& args) {
  const int64_t k = args.get<"k">(), dims = args["x"].size(1);
  TORCH_CHECK(k >= 0, "knn: k must be at least 0, got ", k);
  const auto of_x = bounds_of("knn", "ptr_x", args["ptr_x"], args["x"].size(0));
  const auto of_y = bounds_of("knn", "ptr_y", args["ptr_y"], args["y"].size(0));
  TORCH_CHECK(of_x.size() == of_y.size(), "knn: ptr_x and ptr_y must have groups of the same number, got ",
              of_x.size() - 1, " and ", of_y.size() - 1);
  const Tensor x = args["x"].to(at::kDouble).contiguous(), y = args["y"].to(at::kDouble).contiguous();
  const double *const from = x.const_data_ptr<double>(), *const to = y.const_data_ptr<double>();
  const auto distance = [&, cosine = args.get<"cosine">()](int64_t i, int64_t j) {
    const double *const a = from + i * dims, *const b = to + j * dims;
    double squares = 0, product = 0, a_squares = 0, b_squares = 0;
    for (int64_t d = 0; d < dims; ++d) {
      squares += (a[d] - b[d]) * (a[d] - b[d]);
      product += a[d] * b[d];
      a_squares += a[d] * a[d];
      b_squares += b[d] * b[d];
    }
    return cosine ? 1 - product / std::sqrt(a_squares * b_squares) : squares;
  };
  std::vector<int64_t> rows, columns, order;
  std::vector<double> distances;
  for (size_t group = 0; group + 1 < of_y.size(); ++group) {
    const int64_t first = of_x[group], count = of_x[group + 1] - first, nearest = std::min(k, count);
    for (int64_t j = of_y[group]; j < of_y[group + 1]; ++j) {
      distances.resize(count);
      for (int64_t i = 0; i < count; ++i) distances[i] = distance(first + i, j);
      order.resize(count);
      std::iota(order.begin(), order.end(), 0);
      // NaN would leave the order undefined.
      std::partial_sort(order.begin(), order.begin() + nearest, order.end(), [&](int64_t a, int64_t b) {
        const bool a_last = std::isnan(distances[a]), b_last = std::isnan(distances[b]);
        if (a_last != b_last) return b_last;
        return distances[a] != distances[b] && !a_last ? distances[a] < distances[b] : a < b;
      });
      for (int64_t n = 0; n < nearest; ++n) {
        rows.push_back(j);
        columns.push_back(first + order[n]);
      }
    }
  }
  return at::stack({at::tensor(rows, at::kLong), at::tensor(columns, at::kLong)});
}

// Farthest point sampling: of each group ceil(ratio * points), each the farthest one from those before it.
using Fps = kit::Op<
    "second::fps(Tensor src[N, D], Tensor? ptr[P] int64=None, float ratio=0.5, bool random_start=False, *, "
    "Generator? generator=None) -> Tensor[{M}] int64">;

Tensor fps_cpu(const kit::Args<Fps>& args) {
  const double ratio = args.get<"ratio">();
  TORCH_CHECK(ratio > 0 && ratio <= 1, "fps: ratio must be in (0, 1], got ", ratio);
  const auto bounds = bounds_of("fps", "ptr", args["ptr"], args["src"].size(0));
  const Tensor src = args["src"].to(at::kDouble).contiguous();
  const double* const points = src.const_data_ptr<double>();
  const int64_t dims = src.size(1);
  std::vector<int64_t> chosen;
  std::vector<double> nearest;  // the squared distance of each point of the group to those that are chosen
  for (size_t group = 0; group + 1 < bounds.size(); ++group) {
    const int64_t first = bounds[group], count = bounds[group + 1] - first;
    if (count == 0) continue;
    int64_t last = 0;
    if (args.get<"random_start">()) last = at::randint(count, {1}, args.get<"generator">()).item<int64_t>();
    nearest.assign(count, std::numeric_limits<double>::infinity());
    const int64_t samples = static_cast<int64_t>(std::ceil(ratio * static_cast<double>(count)));
    for (int64_t n = 0; n < samples; ++n) {
      if (n > 0) last = std::max_element(nearest.begin(), nearest.end()) - nearest.begin();
      chosen.push_back(first + last);
      for (int64_t i = 0; i < count; ++i) {
        double squares = 0;
        for (int64_t d = 0; d < dims; ++d) {
          const double change = points[(first + i) * dims + d] - points[(first + last) * dims + d];
          squares += change * change;
        }
        nearest[i] = std::min(nearest[i], squares);
      }
    }
  }
  return at::tensor(chosen, at::kLong);
}

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define<Knn>(m).implement_cpu<knn_cpu>();
  kit::define<Fps>(m).implement_cpu<fps_cpu>();
}

}  // namespace
}  // namespace second
