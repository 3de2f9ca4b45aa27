#include "cppcuda/kit/cpu/function_table.h"

#include <dlfcn.h>

#include <string>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

FunctionTable float_functions, double_functions;

namespace {

FunctionTable::Pointer find(void* library, const std::string& symbol) {
  return reinterpret_cast<FunctionTable::Pointer>(dlsym(library, symbol.c_str()));
}

// glibc's functions for vectors, in its library libmvec, have names such as _ZGVdN8v_sinf: d is AVX2, 8 the number of
// lanes, and v an argument. Most of them exist since glibc 2.35. All functions are looked up at run time, because a
// library that is linked with a new glibc does not run with an older one.
void add(void* libmvec, Function function, const char* arguments, const std::string& name) {
  const auto index = static_cast<size_t>(function);
  const auto fill = [&](FunctionTable& table, size_t bytes, const std::string& symbol) {
    table.of_number[index] = find(RTLD_DEFAULT, symbol);
    for (size_t isa = 0; isa < 3; ++isa) {
      const std::string lanes = std::to_string((size_t{16} << isa) / bytes);
      const std::string of_vector = std::string("_ZGV") + "bde"[isa] + "N" + lanes + arguments + "_" + symbol;
      table.of_vector[isa][index] = libmvec == nullptr ? nullptr : find(libmvec, of_vector);
    }
  };
  fill(float_functions, sizeof(float), name + "f");
  fill(double_functions, sizeof(double), name);
}

[[maybe_unused]] const bool filled = [] {
  void* const libmvec = dlopen("libmvec.so.1", RTLD_NOW | RTLD_LOCAL);
#define CPPCUDA_FUNCTION(name, ...) add(libmvec, Function::name, "v", #name);
  CPPCUDA_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
#undef CPPCUDA_FUNCTION
#define CPPCUDA_FUNCTION(name, ...) add(libmvec, Function::name, "vv", #name);
  CPPCUDA_BINARY_FUNCTIONS(CPPCUDA_FUNCTION)
#undef CPPCUDA_FUNCTION
  return true;
}();

}  // namespace
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
