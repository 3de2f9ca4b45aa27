// Converts tensors to the kernels' Params.

#include <torch/library.h>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/kernels.h"
#include "cppcuda/kit/output.h"
#include "ops/upsample_bilinear2d/op.h"
#include "ops/upsample_bilinear2d/params.h"
#include "ops/upsample_bilinear2d/shape.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

Tensor resize(const Tensor& source, const kit::Output& output, bool backward, std::string_view mode,
              std::optional<double> scale_h, std::optional<double> scale_w) {
  Tensor target = kit::allocate(output);
  if (target.numel() == 0) return target;
  const Tensor &input = backward ? target : source, &result = backward ? source : target;
  const bool copies = input.sizes() == result.sizes();  // whatever the scale, as in torch and ONNX Runtime
  kit::visit_dtype(source.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const Params<T> p{
        .source = source.const_data_ptr<T>(),
        .target = target.mutable_data_ptr<T>(),
        .batch = source.size(0),
        .channels = source.size(1),
        .strides = {source.stride(0), source.stride(1), source.stride(2), source.stride(3)},
        .channels_last = memory_format_of(source) == at::MemoryFormat::ChannelsLast,
        .y = make_axis<A>(*find_mode(mode), input.size(2), result.size(2), copies ? std::nullopt : scale_h),
        .x = make_axis<A>(*find_mode(mode), input.size(3), result.size(3), copies ? std::nullopt : scale_w)};
    backward ? kit::run(source.device(), BackwardParams<T>{p}) : kit::run(source.device(), ForwardParams<T>{p});
  });
  return target;
}

Tensor forward(const Tensor& input, c10::SymIntArrayRef output_size, std::string_view mode,
               std::optional<double> scale_h, std::optional<double> scale_w) {
  const auto output = forward_shape(input, output_size, mode, scale_h, scale_w);
  return resize(input, output, /*backward=*/false, mode, scale_h, scale_w);
}

Tensor backward(const Tensor& grad, c10::SymIntArrayRef input_size, std::string_view mode,
                std::optional<double> scale_h, std::optional<double> scale_w) {
  const auto output = backward_shape(grad, input_size, mode, scale_h, scale_w);
  return resize(grad, output, /*backward=*/true, mode, scale_h, scale_w);
}

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::implement<Forward, forward>(m);
  kit::implement<Backward, backward>(m);
}

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
