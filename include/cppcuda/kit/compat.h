#pragma once

// Differences between the supported versions of torch, in one place.

#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <memory>

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11, "the kit needs torch 2.11 or newer");

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

#if TORCH_VERSION_MINOR >= 13
template <class N>
using NodePtr = c10::intrusive_ptr<N>;

template <class N, class... Args>
NodePtr<N> make_node(Args&&... args) {
  return c10::make_intrusive<N>(std::forward<Args>(args)...);
}
#else
template <class N>
using NodePtr = std::shared_ptr<N>;

template <class N, class... Args>
NodePtr<N> make_node(Args&&... args) {
  return NodePtr<N>(new N(std::forward<Args>(args)...), torch::autograd::deleteNode);
}
#endif

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
