#pragma once

// Runs elementwise functions over tensors: the conversion from tensors to the arguments of kernels.

#include <c10/util/FunctionRef.h>

#include <span>

#include "cppcuda/kit/dtype.h"
#include "cppcuda/kit/elementwise/arguments.h"
#include "cppcuda/kit/elementwise/cpu_kernel.h"
#include "cppcuda/kit/elementwise/params.h"
#include "cppcuda/kit/kernels.h"
#include "cppcuda/kit/rows/operators.h"
#include "cppcuda/kit/rows/params.h"
#include "cppcuda/kit/shape.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

namespace detail {

// Calls the loop (ElementwiseKernel::run without Math) over the elements of the tensors, of which the first ones are
// the outputs, in parallel. An output of smaller shape gets the sums of the values for each of its elements.
using CpuLoop = void(char* const* data, const int64_t* steps, int64_t n, bool nontemporal, unsigned sums);
void run_cpu_loop(TensorRefs tensors, size_t outputs, OwnSizesOf own, c10::function_ref<CpuLoop> loop);

// Sets the sizes and, for each tensor, the strides of StridedParams. Returns the number of dims.
int set_strides(TensorRefs tensors, size_t outputs, Divisor* sizes, std::span<int64_t* const> strides);

// The same for PointParams. Null tensors have no strides.
int set_point_strides(TensorRefs tensors, size_t outputs, OwnSizesOf own, Divisor* sizes,
                      std::span<int64_t* const> strides, int64_t (*own_strides)[2]);

// Tensors as Params of CUDA kernels; `all` has the outputs, followed by the inputs.
template <class T, class Math, class All>
void run_elements_on_cuda(const Math& math, const std::array<const Tensor*, Math::outputs>& out,
                          const std::array<const Tensor*, Math::inputs>& in, const All& all) {
  constexpr size_t outputs = Math::outputs;
  const auto fill = [&](auto& p) {
    for (size_t o = 0; o < out.size(); ++o)
      p.out[o] = out[o] != nullptr ? out[o]->template mutable_data_ptr<T>() : nullptr;
    for (size_t i = 0; i < in.size(); ++i) p.in[i] = in[i]->template const_data_ptr<T>();
    p.count = in[0]->numel();
    p.math = math;
  };
  const c10::Device device = in[0]->device();
  if constexpr (Math::is_of_points) {
    PointParams<Math, T> p{};
    fill(p);
    p.count /= Math::own[outputs].count();
    int64_t* strides[Math::outputs + Math::inputs];
    for (size_t t = 0; t < all.size(); ++t) strides[t] = p.strides[t];
    p.dims = set_point_strides(all, outputs, Math::own, p.sizes, strides, p.own_strides);
    run(device, p);
  } else if (are_dense_alike(all)) {
    DenseParams<Math, T> p;
    fill(p);
    run(device, p);
  } else {
    StridedParams<Math, T> p{};
    fill(p);
    int64_t* strides[Math::outputs + Math::inputs];
    for (size_t t = 0; t < all.size(); ++t) strides[t] = t < outputs ? p.out_strides[t] : p.in_strides[t - outputs];
    p.dims = set_strides(all, outputs, p.sizes, strides);
    run(device, p);
  }
}

template <class T, class Math, class All>
void run_rows_on_cuda(const Math& math, const std::array<const Tensor*, Math::outputs>& out,
                      const std::array<const Tensor*, Math::inputs>& in, const All& all) {
  RowParams<Math, T> p{};
  for (size_t o = 0; o < out.size(); ++o) p.out[o] = out[o] != nullptr ? out[o]->mutable_data_ptr() : nullptr;
  for (size_t i = 0; i < in.size(); ++i) p.in[i] = in[i]->const_data_ptr();
  p.math = math;
  int64_t *strides[Math::outputs + Math::inputs], own_strides[Math::outputs + Math::inputs][2];
  for (size_t t = 0; t < all.size(); ++t) strides[t] = p.strides[t];
  p.dims = set_point_strides(all, Math::outputs, Math::own, p.sizes, strides, own_strides);
  for (size_t t = 0; t < all.size(); ++t) p.inner[t] = own_strides[t][0];
  p.rows = 1;
  for (int d = 0; d < p.dims; ++d) p.rows *= p.sizes[d].value();
  if (p.rows > 0) run(in[0]->device(), p);
}

// Runs an elementwise function over tensors, on their device.
template <class Math>
void run_elementwise(Math math, const std::array<const Tensor*, Math::outputs>& out,
                     const std::array<const Tensor*, Math::inputs>& in) {
  constexpr size_t outputs = Math::outputs;
  std::array<const Tensor*, Math::outputs + Math::inputs> all;
  std::copy(in.begin(), in.end(), std::copy(out.begin(), out.end(), all.begin()));
  const Tensor& first = *in[first_of_dtype<Math>()];
  if constexpr (Math::is_of_rows) math.features = sym_row_size(in, own_sizes_of_inputs<Math>()).expect_int();
  visit_dtype(first.scalar_type(), [&]<class T>(std::type_identity<T>) {
    if (first.is_cpu()) {
      const auto loop = [&](char* const* data, const int64_t* steps, int64_t n, bool nontemporal, unsigned sums) {
        run_with(LoopParams<Math, T>{data, steps, n, nontemporal, sums, math}, cpu_context());
      };
      run_cpu_loop(all, outputs, own_sizes_of<Math>(), loop);
      return;
    }
    if constexpr (Math::is_of_rows) {
      run_rows_on_cuda<T>(math, out, in, all);
    } else if (first.numel() > 0) {
      run_elements_on_cuda<T>(math, out, in, all);
    }
  });
}

template <class Kernels>
void implement_functional(torch::Library& m) {
  using TheOp = typename Kernels::TheOp;
  implement<TheOp>(m, kernel<TheOp, &Kernels::run, &Kernels::shape>());
}

template <class Definition>
void implement_each(torch::Library& m) {
  if constexpr (is_of_rows<Definition>) {
    using Kernels = RowKernelsOf<Definition>;
    implement_functional<typename Kernels::Forward>(m);
    if constexpr (Kernels::hides) implement_functional<typename Kernels::Whole>(m);
    if constexpr (Kernels::has_backward) implement_functional<typename Kernels::Backward>(m);
  } else {
    implement_functional<ForwardKernels<Definition>>(m);
    implement_functional<BackwardKernels<Definition>>(m);
    implement_functional<DoubleBackwardKernels<Definition>>(m);
  }
}

}  // namespace detail

// Call this in a TORCH_LIBRARY_FRAGMENT.
template <class... Definitions>
void implement_elementwise(torch::Library& m, Family<Definitions...>) {
  (detail::implement_each<Definitions>(m), ...);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
