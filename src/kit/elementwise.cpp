#include "cppcuda/kit/elementwise/arguments.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <numeric>
#include <set>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/cpu/parallel.h"
#include "cppcuda/kit/elementwise/define.h"
#include "cppcuda/kit/elementwise/loop.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {
namespace {

bool is_tensor(const c10::Argument& a) { return a.type()->isSubtypeOf(*c10::OptionalType::ofTensor()); }

// Whether sum_d k_d strides_d = distance has a solution with |k_d| < sizes_d. Dims are ordered from large strides to
// small ones. Also returns true if there are too many partial sums to try, which can happen if strides are not nested.
bool reaches(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t distance) {
  constexpr int64_t max_distances = 1024;
  int64_t reach = 0;  // the largest sum over the dims that follow
  for (size_t d = 0; d < sizes.size(); ++d) reach += (sizes[d] - 1) * strides[d];
  std::set<int64_t> distances{distance};
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t size = sizes[d], stride = strides[d];
    if (size == 1) continue;
    reach -= (size - 1) * stride;
    std::set<int64_t> rests;
    for (const int64_t from : distances) {
      const int64_t first = std::max((from - reach) / stride - 1, 1 - size);
      const int64_t last = std::min((from + reach) / stride + 1, size - 1);
      if (last - first >= max_distances) return true;
      for (int64_t k = first; k <= last; ++k) {
        if (std::abs(from - k * stride) <= reach) rests.insert(from - k * stride);
      }
    }
    if (rests.size() > max_distances) return true;
    distances = std::move(rests);
  }
  return distances.contains(0);
}

// Whether a and b share an element. Returns true if that is hard to determine, as for two views of the same memory with
// different strides.
bool overlap(const Tensor& a, const Tensor& b) {
  const auto elements = [](const Tensor& t) {  // from the first one to the last one in memory
    if (t.is_non_overlapping_and_dense()) return t.numel();
    int64_t last = 0;
    for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
    return last + 1;
  };
  const auto a_begin = reinterpret_cast<intptr_t>(a.const_data_ptr());
  const auto b_begin = reinterpret_cast<intptr_t>(b.const_data_ptr());
  const int64_t bytes = b_begin - a_begin, size = a.element_size();
  if (a.numel() == 0 || bytes >= elements(a) * size || -bytes >= elements(b) * size) return false;
  if (a.strides() != b.strides() || bytes % size != 0) return true;
  std::vector<int64_t> order(a.dim()), sizes, strides;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t d, int64_t e) { return a.stride(d) > a.stride(e); });
  for (const int64_t d : order) {
    sizes.push_back(a.size(d));
    strides.push_back(a.stride(d));
  }
  return reaches(sizes, strides, bytes / size);
}

// Null outputs are left out.
at::TensorIterator iterator_over(TensorRefs tensors, size_t outputs) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).resize_outputs(false);
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (t >= outputs) {
      config.add_const_input(*tensors[t]);
    } else if (tensors[t] != nullptr) {
      config.add_output(*tensors[t]);
    }
  }
  return config.build();
}

bool same_view(const Tensor& a, const Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.strides() == b.strides();
}

}  // namespace

const c10::Argument& tensor_argument(const c10::FunctionSchema& schema, size_t i) {
  for (const c10::Argument& a : schema.arguments()) {
    if (is_tensor(a) && i-- == 0) return a;
  }
  TORCH_INTERNAL_ASSERT(false, schema, " has fewer tensors");
}

const c10::Argument& written_argument(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return *std::find_if(arguments.begin(), arguments.end(),
                       [](const c10::Argument& a) { return a.alias_info() && a.alias_info()->isWrite(); });
}

ElementwiseNames::ElementwiseNames(const c10::FunctionSchema& schema) : op(op_name(schema)) {
  for (const c10::Argument& a : schema.arguments()) {
    if (is_tensor(a)) tensors.emplace_back(a.name());
  }
}

void check_elementwise(const ElementwiseNames& names, TensorRefs tensors) {
  const Checker check(names.op);
  const Tensor* first = nullptr;
  std::string_view first_name;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] == nullptr) continue;
    const std::string_view name = names.tensors[i];
    const Tensor& t = *tensors[i];
    check.floating(name, t);
    if (first == nullptr) {
      first = &t;
      first_name = name;
      continue;
    }
    check.same_dtype(name, t, first_name, *first);
    check.same_device(name, t, first_name, *first);
    check.same_shape(name, t, first_name, *first);
  }
}

void check_writable(const c10::FunctionSchema& schema, const Tensor& out) {
  TORCH_CHECK(at::has_internal_overlap(out) != at::MemOverlap::Yes, op_name(schema), ": ",
              written_argument(schema).name(), " must not have elements that share memory, got strides ",
              out.sym_strides());
}

void check_no_overlap(const c10::FunctionSchema& schema, TensorRefs inputs, const Tensor& out) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& in = *inputs[i];
    TORCH_CHECK(same_view(in, out) || !overlap(in, out), op_name(schema), ": ", written_argument(schema).name(),
                " must be ", tensor_argument(schema, i).name(), " itself or share no memory with it, got an overlap");
  }
}

void check_loses_no_gradient(const c10::FunctionSchema& schema, at::ArrayRef<Tensor> tensors) {
  for (size_t lost = 0; lost < tensors.size(); ++lost) {
    const bool forward_mode = torch::autograd::isFwGradDefined(tensors[lost]);
    if (!forward_mode && !torch::autograd::compute_requires_grad(tensors[lost])) continue;
    std::string functional = op_name(schema), arguments;
    if (functional.back() == '_') functional.pop_back();
    for (const c10::Argument& a : schema.arguments()) {
      if (!a.kwarg_only()) arguments += (arguments.empty() ? "" : ", ") + a.name();
    }
    TORCH_CHECK(false, op_name(schema), ": ", tensor_argument(schema, lost).name(),
                forward_mode ? " has a tangent" : " requires a gradient", ", which a call that writes to ",
                written_argument(schema).name(), " loses; call ", functional, "(", arguments, ") instead",
                forward_mode ? "" : ", or this one under torch.no_grad()");
  }
}

void run_batched_variant(const c10::FunctionSchema& schema, std::span<Tensor> tensors, const Tensor& written,
                         c10::function_ref<void()> check, c10::function_ref<void()> run) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::FuncTorchBatched);
  const auto level = VmapLevel::current();
  const auto batched =
      std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return level.is_batched(t); });
  if (batched == tensors.end()) return run();
  check();
  TORCH_CHECK(level.is_batched(written), op_name(schema), ": ", written_argument(schema).name(),
              " must have the batch that vmap gives to ", tensor_argument(schema, batched - tensors.begin()).name(),
              ", which one tensor cannot hold; use the functional form");
  const c10::SymInt batch = level.batch_size({tensors.data(), tensors.size()});
  for (Tensor& t : tensors) t = level.unwrap(t, batch);
  run();
}

void run_cpu_loop(TensorRefs tensors, size_t outputs, c10::function_ref<CpuLoop> loop) {
  constexpr size_t max_operands = 2 * max_arguments;
  const size_t count = tensors.size();
  TORCH_INTERNAL_ASSERT(count <= max_operands);
  if (are_dense_alike(tensors)) {
    const Tensor& in = *tensors[outputs];
    const int64_t size = in.element_size();
    const bool nontemporal = cpu_context().exceeds_cache(count * in.nbytes());
    c10::SmallVector<char*, 8> first;
    for (size_t t = 0; t < count; ++t) {  // the loop writes to the outputs only
      const Tensor* const tensor = tensors[t];
      first.push_back(static_cast<char*>(tensor == nullptr ? nullptr
                                         : t < outputs     ? tensor->mutable_data_ptr()
                                                           : const_cast<void*>(tensor->const_data_ptr())));
    }
    const c10::SmallVector<int64_t, 8> steps(count, size);
    at::parallel_for(0, in.numel(), grain_size, [&](int64_t begin, int64_t end) {
      auto data = first;
      for (char*& d : data) d += d == nullptr ? 0 : begin * size;
      loop(data.data(), steps.data(), end - begin, nontemporal);
    });
    return;
  }
  auto iterator = iterator_over(tensors, outputs);
  // The operands of the iterator. The steps of its outer loop follow those of its inner loop.
  const auto all = [&](char** data, const int64_t* steps, int64_t inner, int64_t outer) {
    const size_t operands = iterator.ntensors();
    std::array<char*, max_operands> each{};
    std::array<int64_t, max_operands> each_step;
    each_step.fill(tensors[outputs]->element_size());
    for (int64_t j = 0; j < outer; ++j) {
      for (size_t t = 0, operand = 0; t < count; ++t) {
        if (tensors[t] == nullptr) continue;
        each[t] = data[operand];
        each_step[t] = steps[operand];
        data[operand] += steps[operands + operand];
        ++operand;
      }
      loop(each.data(), each_step.data(), inner, false);
    }
  };
  iterator.for_each(all, grain_size);
}

int set_strides(TensorRefs tensors, size_t outputs, Divisor* sizes, std::span<int64_t* const> strides) {
  const auto iterator = iterator_over(tensors, outputs);  // orders the dims by stride and merges them if possible
  TORCH_CHECK(iterator.ndim() <= elementwise_max_dims, library_name(),
              ": elementwise operators on CUDA take tensors of at most ", elementwise_max_dims,
              " dims that cannot be merged, got ", iterator.ndim());
  const int64_t size = tensors[outputs]->element_size();
  for (int d = 0; d < iterator.ndim(); ++d) {
    sizes[d] = iterator.shape()[d];
    for (size_t t = 0, operand = 0; t < tensors.size(); ++t) {
      if (tensors[t] != nullptr) strides[t][d] = iterator.strides(static_cast<int>(operand++))[d] / size;
    }
  }
  return iterator.ndim();
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
