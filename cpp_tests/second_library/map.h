#pragma once

// The CPU loop of the elementwise ops here.

#include <ATen/Parallel.h>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/math/opmath.h"
#include "cppcuda/kit/output.h"

namespace second {

using cppcuda::OptionalTensor;
using cppcuda::Tensor;
namespace kit = cppcuda::kit;

// out[i] = f(inputs[i]...), where an undefined input counts as zeros.
template <class F, class... Inputs>
void map(const Tensor& out, F f, const Inputs&... inputs) {
  kit::visit_dtype(out.scalar_type(), [&]<class T>(std::type_identity<T>) {
    using A = kit::opmath<T>;
    auto run = [&](T* to, const auto*... from) {
      at::parallel_for(0, out.numel(), /*grain_size=*/1 << 15, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(f((from ? static_cast<A>(from[i]) : A(0))...));
      });
    };
    const auto contiguous = [](const Tensor& t) { return t.defined() ? t.contiguous() : t; };
    const auto pointer = [](const Tensor& t) -> const T* { return t.defined() ? t.const_data_ptr<T>() : nullptr; };
    run(out.mutable_data_ptr<T>(), pointer(contiguous(inputs))...);
  });
}

}  // namespace second
