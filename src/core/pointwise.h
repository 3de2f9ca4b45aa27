#pragma once

// Elementwise ops: what they take, what comes out, and the kernels' frame. An op gives its formula,
//
//   struct ForwardMath {
//     template <class A>
//     CPPCUDA_HOST_DEVICE A operator()(A x) const;  // in the type that sums are taken in, one argument per input
//   };
//
// and pointwise_loop.h runs it over tensors.

#include <torch/library.h>

#include <functional>

#include "core/kernels.h"
#include "core/op.h"
#include "core/output.h"

namespace cppcuda::core {

using TensorRefs = std::initializer_list<std::reference_wrapper<const Tensor>>;

// Throws unless all are dense floating tensors of the first one's device, dtype and shape.
void check_pointwise(const c10::FunctionSchema& schema, TensorRefs tensors);

// Throws when elements of the last argument, which is written to, are known to share memory (a stride of 0), as
// at::assert_no_internal_overlap does.
void check_writable(const c10::FunctionSchema& schema, TensorRefs tensors);

// Throws when the last argument and the other one overlap without being the same.
void check_no_overlap(const c10::FunctionSchema& schema, TensorRefs tensors);

// Whether memory can be walked through as if all tensors had one dim: the same strides, no gaps.
inline bool are_dense_alike(TensorRefs tensors) {
  const Tensor& first = tensors.begin()->get();
  return first.is_non_overlapping_and_dense() && std::all_of(tensors.begin() + 1, tensors.end(), [&](const Tensor& t) {
           return t.strides() == first.strides();
         });
}

template <class TheOp, class Type = typename TheOp::Type>
struct Pointwise;

template <class TheOp, class... Tensors>
struct Pointwise<TheOp, Tensor(Tensors...)> {
  // Memory order and strides of the last argument: in a backward op that is what forward saved.
  static Output shape(Tensors... tensors) {
    check_pointwise(TheOp::schema(), {tensors...});
    const Tensor& last = std::get<sizeof...(Tensors) - 1>(std::tie(tensors...));
    return {c10::SymDimVector(last.sym_sizes()), last.options(), /*strides_of=*/last};
  }

  template <class Loop>
  static Tensor run(Tensors... tensors) {
    Tensor out = allocate(shape(tensors...));
    Loop::run(out, tensors...);
    return out;
  }
};

// An op that writes to its last argument: sigmoid_(self), sigmoid.out(input, out).
template <class TheOp, class... Tensors>
struct Pointwise<TheOp, void(Tensors...)> {
  // The checks that need no memory.
  static void check(Tensors... tensors) {
    check_pointwise(TheOp::schema(), {tensors...});
    check_writable(TheOp::schema(), {tensors...});
  }

  template <class Loop>
  static void run(Tensors... tensors) {
    check(tensors...);
    check_no_overlap(TheOp::schema(), {tensors...});
    const auto all = std::tie(tensors...);
    Loop::run(std::get<sizeof...(Tensors) - 1>(all), std::get<0>(all));
  }
};

// In a TORCH_LIBRARY_FRAGMENT: ops with the same formula, which Loop runs over tensors.
template <class Loop, class... Ops>
void pointwise(torch::Library& library) {
  (implement<Ops, Pointwise<Ops>::template run<Loop>>(library), ...);
}

}  // namespace cppcuda::core
