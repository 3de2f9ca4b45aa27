#pragma once

// Calls that write to tensors of the caller. Of an operator f that returns new tensors they are f.out, which writes to
// `out` (`out0`, `out1`, ... if f returns several tensors), and f_, which writes to the first argument. They run the
// kernels of f, which take the tensors in place of new memory.
//
// From torch 2.13 on f_ returns this argument and has Tag::inplace. f.out returns nothing and has no Tag::out. With it,
// Inductor of torch 2.15 would call f.out on memory that it uses again, but compiles no call with sizes that are not
// known if f has several outputs, and if it has one, no program for AOTInductor; it also passes arguments that have a
// default twice, and optional tensors in the wrong places.

#include <ATen/core/boxing/KernelFunction.h>
#include <torch/library.h>
#include <torch/version.h>

#include <memory>
#include <span>

#include "cppcuda/kit/output.h"
#include "cppcuda/kit/schema.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

// The memory that the kernels of an operator can write to.
enum class OutMemory {
  as_allocated,           // with the strides of new memory, which is never an input
  any,                    // with any strides; it may be an input
  any_but_inputs_on_gpu,  // there, a thread may read a value after another one has written it
};

// Throws if a tensor that an operator writes to shares memory with another argument, or has elements that do. Tensors
// on the Meta device have no memory. `arguments` are all of the schema's.
void check_written(const c10::FunctionSchema& schema, std::span<const c10::IValue> arguments, bool has_memory);

// What computes an operator with torch's operators where a gradient or a tangent is needed. If it is not valid, such a
// call is an error.
using OnTensors = std::shared_ptr<c10::KernelFunction>;

// Registers the kernels of an operator whose function returns what the operator returns, except those that compute.
// Returns null if it writes to arguments or if its results have no gradients.
OnTensors implement_function(torch::Library& library, const Declaration& declaration, const char* name);

// Defines f.out and, if `in_place`, f_. The operator f with this declaration and rule for DTensor is defined already.
void define_variants(torch::Library& library, const Declaration& f, const std::string& sharding_rule, OutMemory memory,
                     bool in_place);

#if TORCH_VERSION_MINOR >= 13
using WrittenSelf = Tensor;  // what f_ returns in C++
#else
using WrittenSelf = void;
#endif

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
