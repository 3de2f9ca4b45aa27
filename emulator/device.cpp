// A "cuda" device for torch with the emulator's memory, so that the launchers in src run unmodified. All other
// operators on its tensors run torch's CPU kernels on the same memory.

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include "emulator.h"

namespace cppcuda::emulator {
namespace {

using at::Tensor;
constexpr c10::DispatchKeySet cuda_keys(c10::DispatchKey::CUDA);

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = emulator::allocate(bytes);
    return {memory, memory, &emulator::release, c10::Device(c10::kCUDA, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &emulator::release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

Allocator allocator;

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, cuda_keys, at::dtype_or_default(dtype), format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, cuda_keys, at::dtype_or_default(dtype));
}

// Pairs of a tensor and its alias on the CPU.
using Aliases = std::vector<std::pair<Tensor, Tensor>>;

Tensor on_cpu(const Tensor& t, Aliases& aliases) {
  if (!t.defined() || !t.is_cuda()) return t;
  aliases.emplace_back(t, at::from_blob(t.data_ptr(), t.sizes(), t.strides(), t.options().device(at::kCPU)));
  return aliases.back().second;
}

Tensor on_cuda(const Tensor& t, const Aliases& aliases) {
  if (!t.defined()) return t;
  for (const auto& [cuda, cpu] : aliases) {
    if (t.is_same(cpu)) return cuda;
  }
  return t.to(at::kCUDA);
}

void call_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Aliases aliases;
  for (auto it = stack->end() - op.schema().arguments().size(); it != stack->end(); ++it) {
    c10::IValue& value = *it;
    if (value.isTensor()) {
      value = on_cpu(value.toTensor(), aliases);
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& t : value.toTensorVector()) list.push_back(on_cpu(t, aliases));
      value = list;
    } else {
      TORCH_CHECK(!value.isDevice() && !value.isOptionalTensorList(), "the emulator: ", op.schema(),
                  " is not supported");
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (auto it = stack->end() - op.schema().returns().size(); it != stack->end(); ++it) {
    if (it->isTensor()) *it = on_cuda(it->toTensor(), aliases);
  }
}

struct DeviceGuardImpl : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }
};
C10_REGISTER_GUARD_IMPL(CUDA, DeviceGuardImpl)

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  // torch's own kernel covers all devices, but calls CUDA's implementation.
  m.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&call_on_cpu>());
}

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&call_on_cpu>()); }

}  // namespace
}  // namespace cppcuda::emulator
