#pragma once

// From tensors to Params, for CPU and CUDA alike: check, allocate, call run(Params).

#include "core/dtype.h"
#include "core/output.h"
#include "ops/upsample_bilinear2d/params.h"
#include "ops/upsample_bilinear2d/shape.h"

namespace cppcuda::ops::upsample_bilinear2d {

template <class Run>
Tensor resize(const Tensor& source, const core::Output& output, bool backward, std::string_view mode,
              std::optional<double> scale_h, std::optional<double> scale_w, Run run) {
  Tensor target = core::allocate(output);
  if (target.numel() == 0) return target;
  const Tensor &input = backward ? target : source, &result = backward ? source : target;
  if (input.sizes() == result.sizes()) scale_h = scale_w = std::nullopt;  // as in torch and ONNX Runtime, a copy
  core::visit_dtype(source.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = core::opmath<T>;
    run(Params<T>{.source = source.const_data_ptr<T>(),
                  .target = target.mutable_data_ptr<T>(),
                  .batch = source.size(0),
                  .channels = source.size(1),
                  .strides = {source.stride(0), source.stride(1), source.stride(2), source.stride(3)},
                  .channels_last = memory_format_of(source) == at::MemoryFormat::ChannelsLast,
                  .y = make_axis<A>(*find_mode(mode), input.size(2), result.size(2), scale_h),
                  .x = make_axis<A>(*find_mode(mode), input.size(3), result.size(3), scale_w)});
  });
  return target;
}

template <class Run>
Tensor forward(const Tensor& input, c10::SymIntArrayRef output_size, std::string_view mode,
               std::optional<double> scale_h, std::optional<double> scale_w, Run run) {
  const auto output = forward_shape(input, output_size, mode, scale_h, scale_w);
  return resize(input, output, /*backward=*/false, mode, scale_h, scale_w, run);
}

template <class Run>
Tensor backward(const Tensor& grad, c10::SymIntArrayRef input_size, std::string_view mode,
                std::optional<double> scale_h, std::optional<double> scale_w, Run run) {
  const auto output = backward_shape(grad, input_size, mode, scale_h, scale_w);
  return resize(grad, output, /*backward=*/true, mode, scale_h, scale_w, run);
}

}  // namespace cppcuda::ops::upsample_bilinear2d
