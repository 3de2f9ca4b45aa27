// second::crop_or_pad(Tensor input, SymInt[1] output_size, str side="right", float? gain=None) -> Tensor: crops the
// last dim, or pads it with zeros, to output_size, and multiplies by gain. The derivative needs no tensor, only the
// size of the input.

#include <torch/library.h>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/define.h"
#include "map.h"

namespace second {
namespace {

using CropOrPad = kit::Op<
    "second::crop_or_pad(Tensor input[B?, N, F], SymInt[1] output_size, str side=\"right\", "
    "float? gain=None) -> Tensor",
    kit::Variants>;

// input [B?, N, F] -> [B?, N, output_size]
kit::Output shape(const kit::Args<CropOrPad>& args) {
  const auto& output_size = args.get<"output_size">();
  const auto& side = args.get<"side">();
  const kit::Checker check = kit::checked(args);
  TORCH_CHECK(output_size.size() == 1, "crop_or_pad: output_size must have 1 entry, got ", output_size);
  TORCH_CHECK(side == "left" || side == "right", "crop_or_pad: side must be 'left' or 'right', got '", side, "'");
  auto sizes = check.sizes("[B?, N, F]");
  sizes.back() = output_size[0];
  return {sizes, args["input"].options()};
}

void crop_or_pad_cpu(const kit::Args<CropOrPad>& args, const kit::Outputs<CropOrPad>& outputs) {
  const Tensor in = args["input"].contiguous(), &out = outputs[0];
  const bool keeps_left = args.get<"side">() == "right";
  const double gain = args.get<"gain">().value_or(1);
  const int64_t from = in.size(-1), to = out.size(-1), both = std::min(from, to);
  // Where the values that are kept start in each row.
  const int64_t in_offset = keeps_left ? 0 : from - both, out_offset = keeps_left ? 0 : to - both;
  const int64_t rows = to == 0 ? 0 : out.numel() / to;
  kit::visit_dtype(in.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    const T* source = in.const_data_ptr<T>();
    T* target = out.mutable_data_ptr<T>();
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < to; ++i) {
        const int64_t kept = i - out_offset;
        const bool inside = kept >= 0 && kept < both;
        target[row * to + i] =
            inside ? static_cast<T>(static_cast<A>(source[row * from + in_offset + kept]) * gain) : T(0);
      }
    }
  });
}

struct ForwardFormula {
  using Op = CropOrPad;
  static constexpr auto reads = kit::reads_nothing<Op>();

  // The size of the input.
  static constexpr auto attribute_names = kit::names("input_size");
  static auto attributes(const kit::Args<Op>& args) {
    return std::make_tuple(std::vector<c10::SymInt>{args["input"].sym_size(-1)});
  }

  static kit::Inputs<Op> vjp(const kit::Outputs<Op>& grads, const kit::Saved<ForwardFormula>& saved,
                             const kit::Need<Op>&) {
    return CropOrPad::call(grads["output"], saved.attribute<"input_size">(), saved.attribute<"side">(),
                           saved.attribute<"gain">());
  }

  static kit::Outputs<Op> jvp(const kit::Inputs<Op>& tangents, const kit::Saved<ForwardFormula>& saved) {
    return CropOrPad::call(tangents["input"], saved.attribute<"output_size">(), saved.attribute<"side">(),
                           saved.attribute<"gain">());
  }
};

TORCH_LIBRARY_FRAGMENT(second, m) {
  kit::define<CropOrPad, shape>(m).implement_cpu<crop_or_pad_cpu>().differentiate<ForwardFormula>();
}

}  // namespace
}  // namespace second
