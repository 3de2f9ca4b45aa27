#include "ops/upsample_bilinear2d/op.h"

#include <cppcuda/ops/upsample_bilinear2d.h>
#include <torch/library.h>

#include <cmath>

#include "cppcuda/kit/call.h"
#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "cppcuda/kit/dtype.h"
#include "ops/upsample_bilinear2d/math.h"
#include "ops/upsample_bilinear2d/params.h"

namespace cppcuda {

Tensor upsample_bilinear2d(const Tensor& input, at::IntArrayRef output_size,
                           std::string_view coordinate_transformation_mode, std::optional<double> scale_h,
                           std::optional<double> scale_w) {
  return kit::call<ops::upsample_bilinear2d::Forward>(input, c10::fromIntArrayRefSlow(output_size),
                                                      coordinate_transformation_mode, scale_h, scale_w);
}

namespace ops::upsample_bilinear2d {
namespace {

std::optional<Mode> find_mode(std::string_view name) {
  if (name == "half_pixel") return Mode::half_pixel;
  if (name == "align_corners") return Mode::align_corners;
  if (name == "asymmetric") return Mode::asymmetric;
  return std::nullopt;
}

// Like Tensor::suggest_memory_format, except that sizes of 0 count as 1: an unbacked N or C may or may not be 0.
at::MemoryFormat memory_format_of(const Tensor& tensor) {
  const auto sizes = tensor.sym_sizes(), strides = tensor.sym_strides();
  c10::SymInt min_stride = 1;  // so that an expanded C is not channels_last
  for (const int64_t d : {1, 3, 2, 0}) {
    if (TORCH_GUARD_OR_FALSE(strides[d].sym_lt(min_stride))) return at::MemoryFormat::Contiguous;
    if (d == 0 && TORCH_GUARD_OR_FALSE(min_stride.sym_eq(strides[1]))) return at::MemoryFormat::Contiguous;
    min_stride = strides[d] * sizes[d].max(1);
  }
  return at::MemoryFormat::ChannelsLast;
}

// tensor [N, C, H, W] -> [N, C, *size], in the tensor's memory format. The tensor and the size are the first arguments.
template <class TheOp>
kit::Output output(const kit::Args<TheOp>& args) {
  const char* const op = TheOp::base_name();
  const auto argument = TheOp::declaration.arguments[0].name, size_argument = TheOp::declaration.arguments[1].name;
  const Tensor& tensor = std::get<0>(args.all());
  const c10::SymIntArrayRef size = std::get<1>(args.all());
  const kit::Checker check = kit::checked(args);
  for (const int64_t d : {2, 3}) {
    TORCH_SYM_CHECK(tensor.sym_size(d).sym_ge(1), op, ": ", argument,
                    " must be [N, C, H, W] with H and W at least 1, got ", tensor.sym_sizes());
  }
  const auto& mode = args.template get<"coordinate_transformation_mode">();
  TORCH_CHECK(find_mode(mode), op,
              ": coordinate_transformation_mode must be 'half_pixel', 'align_corners' or 'asymmetric', got '", mode,
              "'");
  auto check_scale = [op](const char* name, std::optional<double> scale) {
    TORCH_CHECK(!scale || (*scale > 0 && std::isfinite(*scale)), op, ": ", name, " must be positive and finite, got ",
                *scale);
  };
  check_scale("scale_h", args.template get<"scale_h">());
  check_scale("scale_w", args.template get<"scale_w">());
  TORCH_CHECK(size.size() == 2, op, ": ", size_argument, " must have 2 entries, got ", size.size());
  for (const c10::SymInt& s : size) {
    TORCH_SYM_CHECK(s.sym_ge(1), op, ": ", size_argument, " must be at least 1 in each entry, got ", size);
  }
  auto sizes = check.sizes("[N, C, H, W]");
  sizes[2] = size[0];
  sizes[3] = size[1];
  return {sizes, tensor.options().memory_format(memory_format_of(tensor))};
}

// ---- kernels

template <class TheOp, template <class> class TheParams>
void resize(const kit::Args<TheOp>& args, const Tensor& source, const Tensor& target, const Tensor& input,
            const Tensor& output) {
  if (target.numel() == 0) return;
  const Mode mode = *find_mode(args.template get<"coordinate_transformation_mode">());
  const bool copies = input.sizes() == output.sizes();  // whatever the scale, as in torch and ONNX Runtime
  const std::optional<double>&scale_h = args.template get<"scale_h">(), &scale_w = args.template get<"scale_w">();
  kit::visit_dtype(source.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    kit::run(source.device(),
             TheParams<T>{{.source = source.const_data_ptr<T>(),
                           .target = target.mutable_data_ptr<T>(),
                           .batch = source.size(0),
                           .channels = source.size(1),
                           .strides = {source.stride(0), source.stride(1), source.stride(2), source.stride(3)},
                           .channels_last = memory_format_of(source) == at::MemoryFormat::ChannelsLast,
                           .y = make_axis<A>(mode, input.size(2), output.size(2), copies ? std::nullopt : scale_h),
                           .x = make_axis<A>(mode, input.size(3), output.size(3), copies ? std::nullopt : scale_w)}});
  });
}

void forward(const kit::Args<Forward>& args, const kit::Outputs<Forward>& out) {
  const Tensor &input = args["input"], &output = out[0];
  resize<Forward, ForwardParams>(args, input, output, input, output);
}

void backward(const kit::Args<Backward>& args, const kit::Outputs<Backward>& out) {
  const Tensor &grad = args["grad"], &grad_input = out[0];
  resize<Backward, BackwardParams>(args, grad, grad_input, grad_input, grad);
}

// ---- derivatives

// With the weights wy[o, i] and wx[o, i] of input pixel i in output pixel o along each axis:
//
//   output     = wy input wx^T
//   grad_input = wy^T grad_output wx
//
// Both are linear, and each is the transpose of the other. So each is the derivative of the other, at any order.

std::vector<c10::SymInt> spatial_size(const Tensor& t) { return {t.sym_size(2), t.sym_size(3)}; }

template <class TheOp, class Transposed, kit::FixedString Size>
struct LinearFormula {
  using Op = TheOp;
  using Saved = kit::Saved<LinearFormula>;
  static constexpr auto reads = kit::reads_nothing<Op>();

  // The size of the op's argument.
  static constexpr auto attribute_names = kit::names("size");
  static auto attributes(const kit::Args<Op>& args) { return std::make_tuple(spatial_size(std::get<0>(args.all()))); }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const Saved& saved, const kit::Need<Op>&) {
    return resize<Transposed>(grads[0], saved, saved.template attribute<"size">());
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const Saved& saved) {
    return resize<TheOp>(tangents[0], saved, saved.template attribute<Size>());
  }

 private:
  template <class Resize>
  static Tensor resize(const Tensor& t, const Saved& saved, const std::vector<c10::SymInt>& size) {
    kit::Call<Resize> call(saved);
    call.tensors[0] = t;
    std::get<0>(call.attributes) = size;
    return call.run()[0];
  }
};

TORCH_LIBRARY_FRAGMENT(cppcuda, m) {
  kit::define<Forward, output<Forward>>(m)
      .implement<forward>()
      .differentiate<LinearFormula<Forward, Backward, "output_size">>();
  kit::define<Backward, output<Backward>>(m)
      .implement<backward>()
      .differentiate<LinearFormula<Backward, Forward, "input_size">>();
}

}  // namespace
}  // namespace ops::upsample_bilinear2d
}  // namespace cppcuda
