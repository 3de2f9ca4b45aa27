// Operators of torchvision over boxes [x1, y1, x2, y2]: nms, which finds the size of its result, and roi_align.

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "cppcuda/kit/call.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/fill.h"
#include "cppcuda/kit/math/opmath.h"

namespace second {
namespace {

using at::Tensor;
namespace kit = cppcuda::kit;

// The boxes that remain when each one that overlaps a box with a higher score by more than the threshold is removed,
// by descending score.
using Nms = kit::Op<"second::nms(Tensor dets[N, 4], Tensor scores[N], float iou_threshold) -> Tensor[{M}] int64">;

Tensor nms_cpu(const kit::Args<Nms>& args) {
  // As in torchvision, areas and their ratio have the dtype of the boxes.
  const Tensor dets = args["dets"].contiguous(), order = args["scores"].argsort(/*stable=*/true, -1, true);
  const int64_t n = dets.size(0);
  const int64_t* const by_score = order.const_data_ptr<int64_t>();
  std::vector<int64_t> kept;
  std::vector<bool> is_removed(n);
  kit::visit_dtype(dets.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const T* const boxes = dets.const_data_ptr<T>();
    const auto side = [&](int64_t box, int64_t k) { return static_cast<A>(boxes[4 * box + k]); };
    const auto area = [&](int64_t box) { return (side(box, 2) - side(box, 0)) * (side(box, 3) - side(box, 1)); };
    for (int64_t i = 0; i < n; ++i) {
      const int64_t box = by_score[i];
      if (is_removed[box]) continue;
      kept.push_back(box);
      for (int64_t j = i + 1; j < n; ++j) {
        const int64_t other = by_score[j];
        const auto overlap = [&](int64_t k) {
          return std::max(A(0),
                          std::min(side(box, k + 2), side(other, k + 2)) - std::max(side(box, k), side(other, k)));
        };
        const A both = overlap(0) * overlap(1);
        if (both / (area(box) + area(other) - both) > args.get<"iou_threshold">()) is_removed[other] = true;
      }
    }
  });
  return at::tensor(kept, at::kLong);
}

// For each region [image, x1, y1, x2, y2] and each cell of a grid in it, the mean of bilinear samples of the image.
using RoiAlign = kit::Op<
    "second::roi_align(Tensor input[B?, N, C, H, W], Tensor rois[B?, K, 5], float spatial_scale, "
    "SymInt pooled_height[P], SymInt pooled_width[Q], int sampling_ratio=-1, bool aligned=False) -> "
    "Tensor[B?, K, C, P, Q]",
    kit::Sharded<"C">>;
// Its transpose: the gradient of `input`. Regions have none, as in torchvision.
using RoiAlignBackward = kit::BackwardOf<RoiAlign, kit::GradientReads<"input", "rois">>;

struct Tap {
  int64_t y, x;
  double weight;
};

// Calls f(batch, region, image, row, column, taps) for each cell. The cell is the sum of weight * image[y, x] over its
// taps.
template <class TheOp, class F>
void for_each_cell(const kit::Args<TheOp>& args, at::IntArrayRef sizes, int64_t rows, int64_t columns, F f) {
  const Tensor rois = args["rois"].to(at::kDouble);
  const auto roi = kit::view_of<const double, 3>(rois);
  const double scale = args.template get<"spatial_scale">();
  const bool aligned = args.template get<"aligned">();
  const int64_t images = sizes[1], height = sizes[3], width = sizes[4], ratio = args.template get<"sampling_ratio">();
  std::vector<Tap> taps;
  for (int64_t b = 0; b < roi.sizes[0]; ++b) {
    for (int64_t k = 0; k < roi.sizes[1]; ++k) {
      const int64_t image = static_cast<int64_t>(roi(b, k, 0));
      TORCH_CHECK_INDEX(image >= 0 && image < images, TheOp::base_name(), ": rois must name images in [0, ", images,
                        "), got ", image);
      const double shift = aligned ? 0.5 : 0, least = aligned ? 0 : 1;
      const double x1 = roi(b, k, 1) * scale - shift, y1 = roi(b, k, 2) * scale - shift;
      const double cell_width = std::max(roi(b, k, 3) * scale - shift - x1, least) / static_cast<double>(columns);
      const double cell_height = std::max(roi(b, k, 4) * scale - shift - y1, least) / static_cast<double>(rows);
      const int64_t ny = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(cell_height));
      const int64_t nx = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(cell_width));
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          taps.clear();
          for (int64_t i = 0; i < ny * nx; ++i) {
            double y = y1 + (r + (i / nx + 0.5) / ny) * cell_height, x = x1 + (c + (i % nx + 0.5) / nx) * cell_width;
            if (!(y >= -1 && y <= height && x >= -1 && x <= width)) continue;
            y = std::clamp<double>(y, 0, height - 1);
            x = std::clamp<double>(x, 0, width - 1);
            const int64_t top = static_cast<int64_t>(y), left = static_cast<int64_t>(x);
            for (const int64_t down : {0, 1}) {
              for (const int64_t right : {0, 1}) {
                const double weight = std::abs(1 - down - (y - top)) * std::abs(1 - right - (x - left));
                if (weight > 0) taps.push_back({top + down, left + right, weight / (ny * nx)});
              }
            }
          }
          f(b, k, image, r, c, taps);
        }
      }
    }
  }
}

void roi_align_cpu(const kit::Args<RoiAlign>& args, const kit::Outputs<RoiAlign>& out) {
  const Tensor& input = args["input"];
  kit::visit_dtype(input.scalar_type(), [&]<class T>(std::type_identity<T>) {
    const auto from = kit::view_of<const T, 5>(input);
    const auto to = kit::view_of<T, 5>(out["output"]);
    for_each_cell(args, from.sizes, to.sizes[3], to.sizes[4],
                  [&](int64_t b, int64_t k, int64_t image, int64_t r, int64_t c, const auto& taps) {
                    for (int64_t channel = 0; channel < from.sizes[2]; ++channel) {
                      double sum = 0;
                      for (const Tap& t : taps)
                        sum += t.weight * static_cast<double>(from(b, image, channel, t.y, t.x));
                      to(b, k, channel, r, c) = static_cast<T>(sum);
                    }
                  });
  });
}

void roi_align_backward_cpu(const kit::Args<RoiAlignBackward>& args, const kit::Outputs<RoiAlignBackward>& out) {
  const Tensor& grad = args["grad"];
  const Tensor sums = at::zeros(out[0].sizes(), out[0].options().dtype(at::toOpMathType(out[0].scalar_type())));
  kit::visit_dtype(grad.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const auto from = kit::view_of<const T, 5>(grad);
    const auto to = kit::view_of<A, 5>(sums);
    for_each_cell(args, to.sizes, from.sizes[3], from.sizes[4],
                  [&](int64_t b, int64_t k, int64_t image, int64_t r, int64_t c, const auto& taps) {
                    for (int64_t channel = 0; channel < from.sizes[2]; ++channel) {
                      const double g = static_cast<double>(from(b, k, channel, r, c));
                      for (const Tap& t : taps) to(b, image, channel, t.y, t.x) += static_cast<A>(t.weight * g);
                    }
                  });
  });
  out[0].copy_(sums);
}

struct RoiAlignFormula : kit::GradientsBy<RoiAlign, RoiAlignBackward> {
  static kit::Outputs<RoiAlign> jvp(const kit::Inputs<RoiAlign>& tangents, const kit::Saved<RoiAlignFormula>& saved) {
    TORCH_CHECK(!tangents["rois"].defined(), "roi_align: rois has no derivative");
    kit::Call<RoiAlign> call(saved);
    call.tensors["input"] = tangents["input"];
    return call.run();
  }
};

// Linear in the gradient, and the transpose of the forward operator.
struct RoiAlignBackwardFormula {
  using Op = RoiAlignBackward;
  static constexpr auto reads = kit::reads<Op>({{"grad", {"rois"}}});

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<RoiAlignBackwardFormula>& saved,
                             const kit::Need<Op>&) {
    kit::Call<RoiAlign> call(saved);
    call.tensors["input"] = grads[0];
    kit::Inputs<Op> result;
    result["grad"] = call.run()[0];
    return result;
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<RoiAlignBackwardFormula>& saved) {
    kit::Call<Op> call(saved);
    call.tensors["grad"] = tangents["grad"];
    return call.run();
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define<Nms>(m).implement_cpu<nms_cpu>();
  kit::define<RoiAlign>(m).implement_cpu<roi_align_cpu>().differentiate<RoiAlignFormula>();
  kit::define<RoiAlignBackward>(m).implement_cpu<roi_align_backward_cpu>().differentiate<RoiAlignBackwardFormula>();
}

}  // namespace
}  // namespace second
