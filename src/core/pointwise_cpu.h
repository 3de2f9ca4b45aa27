#pragma once

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include "core/dtype.h"
#include "core/opmath.h"
#include "core/pointwise.h"

namespace cppcuda::core {

template <class Math>
struct CpuLoop {
  // Below this many elements a second thread costs more than it saves.
  static constexpr int64_t elements_per_task = 1 << 15;

  template <class... Inputs>
  static void run(const Tensor& out, const Inputs&... inputs) {
    visit_dtype(out.scalar_type(), [&]<class T>(std::type_identity<T>) {
      are_dense_alike({out, inputs...}) ? dense<T>(out, inputs...) : strided<T>(out, inputs...);
    });
  }

 private:
  template <class T, class... Inputs>
  static void dense(const Tensor& out, const Inputs&... inputs) {
    auto loop = [n = out.numel()](T* to, const auto*... from) {
      at::parallel_for(0, n, elements_per_task, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(Math()(static_cast<opmath<T>>(from[i])...));
      });
    };
    loop(out.mutable_data_ptr<T>(), inputs.template const_data_ptr<T>()...);
  }

  template <class T, class... Inputs>
  static void strided(const Tensor& out, const Inputs&... inputs) {
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(false).resize_outputs(false).add_output(out);
    (config.add_const_input(inputs), ...);
    auto iterator = config.build();
    // data[0] and strides[0] are of out; strides of the outer loop follow those of the inner one.
    auto loop = [](char** data, const int64_t* strides, int64_t inner, int64_t outer) {
      [&]<size_t... I>(std::index_sequence<I...>) {
        constexpr size_t tensors = sizeof...(I) + 1;
        for (int64_t j = 0; j < outer; ++j) {
          const auto at = [&](size_t t, int64_t i) { return data[t] + j * strides[tensors + t] + i * strides[t]; };
          for (int64_t i = 0; i < inner; ++i) {
            *reinterpret_cast<T*>(at(0, i)) =
                static_cast<T>(Math()(static_cast<opmath<T>>(*reinterpret_cast<const T*>(at(I + 1, i)))...));
          }
        }
      }(std::index_sequence_for<Inputs...>());
    };
    iterator.for_each(loop, elements_per_task);
  }
};

}  // namespace cppcuda::core
