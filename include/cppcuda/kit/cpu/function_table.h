#pragma once

// The functions of the C library for CPU kernels, whose files may not call it (isa.h).

#include <cstddef>

#include "cppcuda/kit/cpu/isa.h"
#include "cppcuda/kit/math/functions.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

enum class Function {
#define CPPCUDA_FUNCTION(name, ...) name,
  CPPCUDA_UNARY_FUNCTIONS(CPPCUDA_FUNCTION) CPPCUDA_BINARY_FUNCTIONS(CPPCUDA_FUNCTION)
#undef CPPCUDA_FUNCTION
      count
};

// Pointers to functions of float or of double. They have the arguments and results that the user of this table knows.
struct FunctionTable {
  using Pointer = void (*)();
  static constexpr size_t count = static_cast<size_t>(Function::count);

  Pointer of_number[count];
  Pointer of_vector[3][count];  // for each Capability; null if the C library does not have it
};

// A base, AVX2 or AVX-512 vector has 16, 32 or 64 bytes. Filled in when the library is loaded.
extern FunctionTable float_functions, double_functions;

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
