// A "cuda" device for torch with the emulator's memory, so that the launchers in src run unmodified. All other
// operators on its tensors run torch's CPU kernels on the same memory, also if torch has CUDA kernels.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstring>

#include "emulator.h"

namespace cppcuda::emulator {
namespace {

using at::Tensor;
constexpr c10::DispatchKeySet cuda_keys(c10::DispatchKey::CUDA);

template <c10::DeviceType type>
struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = emulator::allocate(bytes);
    return {memory, memory, &emulator::release, c10::Device(type, type == c10::kCUDA ? 0 : -1)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &emulator::release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

template <c10::DeviceType type>
Allocator<type> allocator;

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator<c10::kCUDA>, cuda_keys, at::dtype_or_default(dtype), format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator<c10::kCUDA>, cuda_keys,
                                           at::dtype_or_default(dtype));
}

// The same elements, in another storage.
Tensor with_storage(const Tensor& t, const c10::Storage& storage, c10::DispatchKey key) {
  auto result = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), t.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  return result;
}

// The list with f applied to each element.
template <class F>
c10::IValue transformed(const c10::IValue& list, F f) {
  auto result = list.toList().copy();
  for (size_t i = 0; i < result.size(); ++i) result.set(i, f(result.get(i)));
  return result;
}

// The tensors of a call on the CPU.
class OnCpu {
 public:
  c10::IValue to_cpu(const c10::IValue& value) {
    if (value.isTensor()) return to_cpu(value.toTensor());
    if (value.isTensorList() || value.isOptionalTensorList()) {
      return transformed(value, [&](const c10::IValue& v) { return to_cpu(v); });
    }
    return value.isDevice() ? c10::IValue(c10::Device(c10::kCPU)) : value;
  }

  c10::IValue to_cuda(const c10::IValue& value) const {
    if (value.isTensor()) return to_cuda(value.toTensor());
    return value.isTensorList() ? transformed(value, [&](const c10::IValue& v) { return to_cuda(v); }) : value;
  }

  // An operator may have resized its arguments.
  void finish() {
    for (const auto& [cuda, cpu] : storages_) {
      if (cpu.data() == cuda.data()) continue;
      c10::DataPtr data = cpu.set_data_ptr({});
      const auto deleter = data.get_deleter();
      void* const context = data.release_context();
      cuda.set_data_ptr_noswap({context, context, deleter, cuda.device()});
      cuda.set_nbytes(cpu.nbytes());
    }
    for (const auto& [cuda, cpu] : tensors_) {
      if (cuda.sizes() == cpu.sizes() && cuda.strides() == cpu.strides()) continue;
      cuda.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
    }
  }

 private:
  Tensor to_cpu(const Tensor& t) {
    if (!t.defined() || !t.is_cuda()) return t;
    for (const auto& [cuda, cpu] : tensors_) {
      if (t.is_same(cuda)) return cpu;
    }
    const c10::Storage* storage = nullptr;
    for (const auto& [cuda, cpu] : storages_) {
      if (t.storage().is_alias_of(cuda)) storage = &cpu;
    }
    if (!storage) {
      c10::DataPtr data(t.storage().mutable_data(), c10::Device(c10::kCPU));
      storages_.emplace_back(t.storage(), c10::Storage(c10::Storage::use_byte_size_t(), t.storage().nbytes(),
                                                       std::move(data), &allocator<c10::kCPU>, /*resizable=*/true));
      storage = &storages_.back().second;
    }
    tensors_.emplace_back(t, with_storage(t, *storage, c10::DispatchKey::CPU));
    return tensors_.back().second;
  }

  Tensor to_cuda(const Tensor& t) const {
    if (!t.defined()) return t;
    for (const auto& [cuda, cpu] : tensors_) {
      if (t.is_same(cpu)) return cuda;
    }
    for (const auto& [cuda, cpu] : storages_) {
      if (t.storage().is_alias_of(cpu)) return with_storage(t, cuda, c10::DispatchKey::CUDA);
    }
    return t.to(at::kCUDA);
  }

  std::vector<std::pair<Tensor, Tensor>> tensors_;
  std::vector<std::pair<c10::Storage, c10::Storage>> storages_;
};

void call_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  OnCpu call;
  for (auto it = stack->end() - op.schema().arguments().size(); it != stack->end(); ++it) *it = call.to_cpu(*it);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  call.finish();
  for (auto it = stack->end() - op.schema().returns().size(); it != stack->end(); ++it) *it = call.to_cuda(*it);
}

struct DeviceGuardImpl : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCUDA, 0)); }
  c10::Device exchangeDevice(c10::Device) const override { return stream().device(); }
  c10::Device getDevice() const override { return stream().device(); }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }
  // Calls end when they return, so there is nothing to wait for.
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
};

// What torch asks of CUDA, for example in backward. Random numbers are those of the CPU.
struct Hooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};

// Registers the device in place of torch's CUDA kernels.
bool register_device() {
  static Hooks hooks;
  static c10::impl::DeviceGuardImplRegistrar guard(c10::kCUDA, new DeviceGuardImpl);
  // torch has created its own hooks, which ask the driver. Both classes have a virtual table and no data.
  auto* const own = const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks());
  std::memcpy(static_cast<void*>(own), static_cast<void*>(&hooks), sizeof(void*));
  const auto library = [](const char* name) {  // never destroyed, because torch may be unloaded before
    return new torch::Library(torch::Library::IMPL, name, c10::DispatchKey::CUDA, __FILE__, __LINE__);
  };
  const auto on_cpu = [] { return torch::CppFunction::makeFromBoxedFunction<&call_on_cpu>(); };
  library("_")->fallback(on_cpu());
  auto* const aten = library("aten");
  aten->impl("empty.memory_format", TORCH_FN(empty));
  aten->impl("empty_strided", TORCH_FN(empty_strided));
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name == "aten::empty" || name.name == "aten::empty_strided") continue;
    const auto op = dispatcher.findOp(name);
    const bool calls_cuda = name.name == "aten::copy_";  // its kernel is for all devices
    if (name.getNamespace() == "aten" && op && (calls_cuda || op->hasKernelForDispatchKey(c10::DispatchKey::CUDA))) {
      aten->impl(c10::toString(name).c_str(), on_cpu());
    }
  }
  return true;
}

}  // namespace

// Once in a process, by the first library that has the emulator: its static variable is unique, as it is not hidden.
[[gnu::visibility("default")]] inline bool is_registered() {
  static const bool done = register_device();
  return done;
}

namespace {
[[maybe_unused]] const bool registered = is_registered();
}  // namespace

}  // namespace cppcuda::emulator
