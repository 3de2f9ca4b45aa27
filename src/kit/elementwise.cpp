#include "cppcuda/kit/elementwise/arguments.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "cppcuda/kit/check.h"
#include "cppcuda/kit/cpu/parallel.h"
#include "cppcuda/kit/elementwise/define.h"
#include "cppcuda/kit/elementwise/loop.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {
namespace {

bool is_tensor(const c10::Argument& a) { return a.type()->isSubtypeOf(*c10::OptionalType::ofTensor()); }

// Null outputs are left out.
at::TensorIterator iterator_over(TensorRefs tensors, size_t outputs) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).resize_outputs(false).check_all_same_dtype(false);
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (t >= outputs) {
      config.add_const_input(*tensors[t]);
    } else if (tensors[t] != nullptr) {
      config.add_output(*tensors[t]);
    }
  }
  return config.build();
}

constexpr size_t max_operands = 32;

// The arguments of an iterator's loop. The steps of the outer loop follow those of the inner one.
struct IteratorLoop {
  char** data;
  const int64_t* steps;
  int64_t inner, outer;
};

// Tensors as the loops take them: of a tensor of points or rows, the first value of each. `distances` has, in bytes,
// how far all values are from the first one, tensor by tensor; for a row only the second one.
struct FirstValues {
  std::vector<Tensor> memory;
  std::vector<const Tensor*> tensors;
  std::vector<int64_t> distances;
  std::vector<std::array<int64_t, 2>> own_strides;  // of the dims of the values

  FirstValues(TensorRefs all, OwnSizesOf own) : tensors(all.begin(), all.end()) {
    if (own.empty()) return;
    memory.reserve(all.size());
    for (size_t t = 0; t < all.size(); ++t) {
      const auto& sizes = own[t].sizes;
      own_strides.push_back({0, 0});
      if (all[t] != nullptr) {
        Tensor first = *all[t];
        for (int d = own[t].rank - 1; d >= 0; --d) {
          own_strides[t][d] = first.stride(-1);
          // A row without values has no first one; none is read.
          first = first.size(-1) > 0 ? first.select(-1, 0)
                                     : at::empty({1}, first.options()).expand(first.sizes().slice(0, first.dim() - 1));
        }
        tensors[t] = &memory.emplace_back(first);
      }
      const int64_t size = all[t] != nullptr ? all[t]->element_size() : 0;
      if (own[t].is_row()) {
        distances.push_back(own_strides[t][0] * size);
        continue;
      }
      for (int i = 0; i < sizes[0]; ++i) {
        for (int j = 0; j < sizes[1]; ++j) distances.push_back((i * own_strides[t][0] + j * own_strides[t][1]) * size);
      }
    }
  }
};

// Calls row(data, steps) for the rows of an iterator over the tensors that are not null, with a pointer and a step for
// every tensor, and the distances after the steps. Adds `offsets`, if there are any, to the pointers. The last tensor
// is an input.
template <class Row>
void run_rows(TensorRefs tensors, std::span<const int64_t> offsets, std::span<const int64_t> distances,
              const IteratorLoop& of, Row row) {
  const size_t operands = std::count_if(tensors.begin(), tensors.end(), [](const Tensor* t) { return t; });
  std::array<char*, max_operands> data{};
  std::vector<int64_t> steps(tensors.size());  // gcc 12 warns falsely about a SmallVector
  steps.insert(steps.end(), distances.begin(), distances.end());
  for (int64_t j = 0; j < of.outer; ++j) {
    for (size_t t = 0, operand = 0; t < tensors.size(); ++t) {
      steps[t] = tensors.back()->element_size();
      if (tensors[t] == nullptr) continue;
      data[t] = of.data[operand] + (offsets.empty() ? 0 : offsets[t]) + j * of.steps[operands + operand];
      steps[t] = of.steps[operand++];
    }
    row(data.data(), steps.data());
  }
}

// The sizes of a tensor before those of a point's values.
template <class Sizes>
Sizes leading(const Sizes& sizes, OwnSizesOf own, size_t tensor) {
  return own.empty() ? sizes : sizes.slice(0, sizes.size() - static_cast<size_t>(own[tensor].rank));
}

// A tensor that has rows; null if there is none.
const Tensor* find_rows(TensorRefs tensors, OwnSizesOf own) {
  for (size_t t = 0; t < own.size(); ++t) {
    if (own[t].is_row() && tensors[t] != nullptr) return tensors[t];
  }
  return nullptr;
}

// The number of values in the rows of tensors; 1 if they have no rows.
int64_t row_size(TensorRefs tensors, OwnSizesOf own) {
  const Tensor* const rows = find_rows(tensors, own);
  return rows != nullptr ? rows->size(-1) : 1;
}

// Some outputs are sums. The elements are divided into parts, whose number depends on the sizes only, so that the
// results do not depend on the number of threads; each part has sums of its own, which are added in order.
void run_sums(TensorRefs tensors, size_t outputs, OwnSizesOf own, unsigned sums, c10::function_ref<CpuLoop> loop) {
  constexpr int64_t max_parts = 64;
  const auto sizes_of_all = leading(tensors[outputs]->sizes(), own, outputs);
  const auto is_sum = [&](size_t t) { return t < outputs && (sums >> t & 1) != 0; };
  // Clearing and adding up the sums should take little time beside the elements.
  const bool has_rows = find_rows(tensors, own) != nullptr;
  int64_t of_part = grain_size;
  for (size_t o = 0; o < outputs; ++o) {
    if (is_sum(o)) of_part = std::max(of_part, (has_rows ? 32 : 8) * tensors[o]->numel());
  }
  of_part = std::max<int64_t>(1, of_part / std::max<int64_t>(1, row_size(tensors, own)));
  const int64_t elements = c10::multiply_integers(sizes_of_all);
  const int64_t parts = std::clamp<int64_t>(elements / of_part, 1, max_parts);
  std::array<Tensor, max_operands> of_parts, expanded;
  std::array<const Tensor*, max_operands> operands;
  std::copy(tensors.begin(), tensors.end(), operands.begin());
  for (size_t o = 0; o < outputs; ++o) {
    if (!is_sum(o)) continue;
    std::vector<int64_t> sizes(tensors[o]->sizes().begin(), tensors[o]->sizes().end());
    sizes.insert(sizes.begin(), parts);
    of_parts[o] = at::zeros(sizes, tensors[o]->options().dtype(at::kDouble));
    expanded[o] = of_parts[o].select(0, 0);
    operands[o] = &expanded[o];
  }
  FirstValues first({operands.data(), tensors.size()}, own);
  for (size_t o = 0; o < outputs; ++o) {
    if (is_sum(o)) first.tensors[o] = &(expanded[o] = first.tensors[o]->expand(sizes_of_all));
  }
  const TensorRefs all = first.tensors;
  auto iterator = iterator_over(all, outputs);
  at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      std::array<int64_t, max_operands> offsets{};
      for (size_t o = 0; o < outputs; ++o) {
        if (is_sum(o)) offsets[o] = part * static_cast<int64_t>(of_parts[o].nbytes()) / parts;
      }
      iterator.serial_for_each(
          [&](char** data, const int64_t* steps, int64_t inner, int64_t outer) {
            run_rows(all, offsets, first.distances, {data, steps, inner, outer},
                     [&](char* const* each, const int64_t* each_step) { loop(each, each_step, inner, false, sums); });
          },
          {elements * part / parts, elements * (part + 1) / parts});
    }
  });
  for (size_t o = 0; o < outputs; ++o) {
    if (is_sum(o)) tensors[o]->copy_(of_parts[o].sum(0));
  }
}

// The checks of each tensor, and of its device and dtype beside the first one's. Returns the first one's number.
size_t check_each(const Checker& check, const ElementwiseNames& names, TensorRefs tensors, OwnSizesOf own = {}) {
  const size_t first =
      std::find_if(tensors.begin(), tensors.end(), [](const Tensor* t) { return t; }) - tensors.begin();
  for (size_t i = first; i < tensors.size(); ++i) {
    if (tensors[i] == nullptr) continue;
    const bool is_index = i < own.size() && own[i].is_index;
    is_index ? check.indices(names.tensors[i], *tensors[i]) : check.floating(names.tensors[i], *tensors[i]);
    if (i == first) continue;
    if (i < own.size() && own[i].is_opmath) {
      check.opmath_dtype(names.tensors[i], *tensors[i], names.tensors[first], *tensors[first]);
    } else if (!is_index) {
      check.same_dtype(names.tensors[i], *tensors[i], names.tensors[first], *tensors[first]);
    }
    check.same_device(names.tensors[i], *tensors[i], names.tensors[first], *tensors[first]);
  }
  return first;
}

// "[..., 3, 3]"
std::string spell(const OwnSizes& own) {
  if (own.is_row()) return std::string("[..., ") + own.letter + "]";
  std::string result = "[...";
  for (int d = 0; d < own.rank; ++d) result += ", " + std::to_string(own.sizes[d]);
  return result + "]";
}

void check_own_sizes(const ElementwiseNames& names, TensorRefs tensors, OwnSizesOf own) {
  const Tensor* first_rows = nullptr;
  for (size_t i = 0; i < tensors.size() && !own.empty(); ++i) {
    if (tensors[i] == nullptr) continue;
    const auto sizes = tensors[i]->sym_sizes();
    const auto rank = static_cast<size_t>(own[i].rank);
    bool has_own = sizes.size() >= rank;
    if (own[i].is_row()) {
      TORCH_CHECK(has_own, names.op, ": ", names.tensors[i], " must be ", spell(own[i]), ", got ", sizes);
      if (first_rows == nullptr) first_rows = tensors[i];
      const c10::SymInt& expected = first_rows->sym_sizes().back();
      TORCH_CHECK(TORCH_GUARD_OR_FALSE(sizes.back().sym_eq(expected)), names.op, ": ", names.tensors[i], " must be ",
                  spell(own[i]), " with ", own[i].letter, " = ", expected, ", got ", sizes);
      continue;
    }
    for (size_t d = 0; has_own && d < rank; ++d) {
      has_own = TORCH_GUARD_OR_FALSE(sizes[sizes.size() - rank + d].sym_eq(own[i].sizes[d]));
    }
    TORCH_CHECK(has_own, names.op, ": ", names.tensors[i], " must be ", spell(own[i]), ", got ", sizes);
  }
}

// The sizes to which `count` tensors broadcast, from number `first` on, without those of a point's values.
c10::SymDimVector broadcast(const Checker& check, std::span<const std::string_view> names, TensorRefs tensors,
                            OwnSizesOf own, size_t first, size_t count) {
  c10::SmallVector<c10::SymIntArrayRef, 4> sizes;
  for (size_t i = first; i < first + count; ++i) sizes.push_back(leading(tensors[i]->sym_sizes(), own, i));
  return check.broadcast(names.subspan(first, count), {sizes.data(), sizes.size()},
                         own.empty() ? "the shape of " : "the dims before the last ones of ");
}

}  // namespace

ElementwiseNames::ElementwiseNames(const c10::FunctionSchema& schema) : op(op_name(schema)) {
  for (const c10::Argument& a : schema.arguments()) {
    if (is_tensor(a)) tensors.emplace_back(a.name());
  }
}

void check_elementwise(const ElementwiseNames& names, TensorRefs tensors) {
  const Checker check(names.op);
  const size_t first = check_each(check, names, tensors);
  for (size_t i = first + 1; i < tensors.size(); ++i) {
    if (tensors[i] != nullptr) check.same_shape(names.tensors[i], *tensors[i], names.tensors[first], *tensors[first]);
  }
}

c10::SymInt sym_row_size(TensorRefs tensors, OwnSizesOf own) {
  const Tensor* const rows = find_rows(tensors, own);
  return rows != nullptr ? rows->sym_size(-1) : c10::SymInt(1);
}

c10::SymDimVector with_own(c10::SymDimVector sizes, const OwnSizes& own, const c10::SymInt& row) {
  if (own.is_row()) {
    sizes.push_back(row);
  } else {
    sizes.append(own.sizes, own.sizes + own.rank);
  }
  return sizes;
}

c10::SymDimVector check_broadcasting(const ElementwiseNames& names, TensorRefs tensors, OwnSizesOf own, size_t first,
                                     size_t count) {
  const Checker check(names.op);
  check_each(check, names, tensors, own);
  const std::span all(names.tensors);
  check_own_sizes(names, tensors, own);
  auto sizes = broadcast(check, all, tensors, own, first, count);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] == nullptr) continue;
    if (i < first) {
      check.same_shape(all[i], *tensors[i], "the output",
                       own.empty() ? sizes : with_own(sizes, own[i], sym_row_size(tensors, own)));
    }
    if (i >= first + count) check.same_shape(all[i], *tensors[i], all[i - count], *tensors[i - count]);
  }
  return sizes;
}

Output output_of_sizes(const c10::SymDimVector& sizes, TensorRefs tensors) {
  const auto same = [](const c10::SymInt& a, const c10::SymInt& b) { return TORCH_GUARD_OR_FALSE(a.sym_eq(b)); };
  for (const Tensor* t : tensors) {
    if (t == nullptr || t->sym_sizes().size() != sizes.size()) continue;
    if (std::equal(sizes.begin(), sizes.end(), t->sym_sizes().begin(), same)) {
      return {sizes, t->options(), /*strides_of=*/*t};
    }
  }
  return {sizes, (*std::find_if(tensors.begin(), tensors.end(), [](const Tensor* t) { return t; }))->options()};
}

void check_indices(const ElementwiseNames& names, TensorRefs tensors, OwnSizesOf own) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!own[i].is_index || !tensors[i]->is_cpu() || tensors[i]->numel() == 0) continue;
    const auto [least, greatest] = at::aminmax(*tensors[i]);
    const int64_t size = row_size(tensors, own), low = least.item<int64_t>(), high = greatest.item<int64_t>();
    TORCH_CHECK_INDEX(low >= -1 && high < size, names.op, ": ", names.tensors[i], " must be in [-1, ", size, "), got ",
                      low < -1 ? low : high);
  }
}

void run_expanded(std::span<const Tensor*> out, std::span<const Tensor*> in, OwnSizesOf own,
                  c10::function_ref<void()> run) {
  const OwnSizesOf own_in = own.empty() ? own : own.subspan(out.size());
  const auto have_sizes = [](std::span<const Tensor*> tensors, OwnSizesOf values, at::IntArrayRef sizes) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t] != nullptr && leading(tensors[t]->sizes(), values, t) != sizes) return false;
    }
    return true;
  };
  const auto first = leading(in[0]->sizes(), own_in, 0);
  if (have_sizes(in, own_in, first) && have_sizes(out, own, first)) return run();
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < in.size(); ++i) sizes = at::infer_size(sizes, leading(in[i]->sizes(), own_in, i));
  const int64_t row = row_size(in, own_in);
  const auto with_values = [&](OwnSizesOf values, size_t t) {
    std::vector<int64_t> result = sizes;
    if (values.empty()) return result;
    if (values[t].is_row()) {
      result.push_back(row);
    } else {
      result.insert(result.end(), values[t].sizes, values[t].sizes + values[t].rank);
    }
    return result;
  };
  std::vector<Tensor> memory;
  memory.reserve(in.size() + out.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = &memory.emplace_back(in[i]->expand(with_values(own_in, i)));
  std::vector<std::pair<Tensor, const Tensor*>> sums;  // each with what it is the sum of
  for (size_t o = 0; o < out.size(); ++o) {
    const auto whole = with_values(own, o);
    if (out[o] == nullptr || out[o]->sizes() == whole) continue;
    Tensor t = *out[o];
    while (t.dim() < static_cast<int64_t>(whole.size())) t = t.unsqueeze(0);
    if (t.sizes() == whole) {
      out[o] = &memory.emplace_back(t);
    } else if (!t.is_cpu()) {
      out[o] = &memory.emplace_back(at::empty(whole, t.options()));
      sums.emplace_back(t, out[o]);
    }
  }
  run();
  for (auto& [sum, each] : sums) {
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < sum.dim(); ++d) {
      if (sum.size(d) != each->size(d)) dims.push_back(d);
    }
    at::sum_out(sum, *each, dims, /*keepdim=*/true);
  }
}

void run_cpu_loop(TensorRefs tensors, size_t outputs, OwnSizesOf own, c10::function_ref<CpuLoop> loop) {
  const size_t count = tensors.size();
  TORCH_INTERNAL_ASSERT(count <= max_operands);
  const Tensor& in = *tensors[outputs];
  const auto sizes = leading(in.sizes(), own, outputs);
  unsigned sums = 0;
  for (size_t o = 0; o < outputs; ++o) {
    if (tensors[o] != nullptr && leading(tensors[o]->sizes(), own, o) != sizes) sums |= 1U << o;
  }
  if (sums != 0) return run_sums(tensors, outputs, own, sums, loop);
  if (own.empty() && are_dense_alike(tensors)) {
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
      loop(data.data(), steps.data(), end - begin, nontemporal, 0);
    });
    return;
  }
  const FirstValues first(tensors, own);
  auto iterator = iterator_over(first.tensors, outputs);
  const int64_t values_of_each =
      std::max<int64_t>(row_size(tensors, own), static_cast<int64_t>(first.distances.size()));
  iterator.for_each(
      [&](char** data, const int64_t* steps, int64_t inner, int64_t outer) {
        run_rows(first.tensors, {}, first.distances, {data, steps, inner, outer},
                 [&](char* const* each, const int64_t* each_step) { loop(each, each_step, inner, false, 0); });
      },
      std::max<int64_t>(1, grain_size / (own.empty() ? 1 : values_of_each)));
}

int set_strides(TensorRefs tensors, size_t outputs, Divisor* sizes, std::span<int64_t* const> strides) {
  const auto iterator = iterator_over(tensors, outputs);  // orders the dims by stride and merges them if possible
  TORCH_CHECK(iterator.ndim() <= elementwise_max_dims, library_name(),
              ": elementwise operators on CUDA take tensors of at most ", elementwise_max_dims,
              " dims that cannot be merged, got ", iterator.ndim());
  for (int d = 0; d < iterator.ndim(); ++d) {
    sizes[d] = iterator.shape()[d];
    for (size_t t = 0, operand = 0; t < tensors.size(); ++t) {
      if (tensors[t] == nullptr) continue;
      strides[t][d] = iterator.strides(static_cast<int>(operand++))[d] / tensors[t]->element_size();
    }
  }
  return iterator.ndim();
}

int set_point_strides(TensorRefs tensors, size_t outputs, OwnSizesOf own, Divisor* sizes,
                      std::span<int64_t* const> strides, int64_t (*own_strides)[2]) {
  const FirstValues first(tensors, own);
  for (size_t t = 0; t < tensors.size(); ++t) std::copy_n(first.own_strides[t].begin(), 2, own_strides[t]);
  return set_strides(first.tensors, outputs, sizes, strides);
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
