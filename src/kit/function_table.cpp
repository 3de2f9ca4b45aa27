#include "cppcuda/kit/cpu/function_table.h"

#include <dlfcn.h>

#include <string>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

FunctionTable float_functions, double_functions;

namespace {

// glibc's functions for vectors, in its library libmvec, have names such as _ZGVdN8v_sinf: d is AVX2, 8 the number of
// lanes, and v an argument. Most of them exist since glibc 2.35.
void fill(void* libmvec, FunctionTable& table, Function function, FunctionTable::Pointer of_number, size_t bytes,
          const char* arguments, const std::string& name) {
  const auto index = static_cast<size_t>(function);
  table.of_number[index] = of_number;
  for (size_t isa = 0; libmvec != nullptr && isa < 3; ++isa) {
    const std::string lanes = std::to_string((size_t{16} << isa) / bytes);
    const std::string symbol = std::string("_ZGV") + "bde"[isa] + "N" + lanes + arguments + "_" + name;
    table.of_vector[isa][index] = reinterpret_cast<FunctionTable::Pointer>(dlsym(libmvec, symbol.c_str()));
  }
}

[[maybe_unused]] const bool filled = [] {
  void* const libmvec = dlopen("libmvec.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto add = [&](Function function, auto* of_float, auto* of_double, const char* arguments,
                       const std::string& name) {
    fill(libmvec, float_functions, function, reinterpret_cast<FunctionTable::Pointer>(of_float), 4, arguments,
         name + "f");
    fill(libmvec, double_functions, function, reinterpret_cast<FunctionTable::Pointer>(of_double), 8, arguments, name);
  };
#define CPPCUDA_FUNCTION(name) add(Function::name, &::name##f, static_cast<double (*)(double)>(&::name), "v", #name);
  CPPCUDA_UNARY_FUNCTIONS(CPPCUDA_FUNCTION)
#undef CPPCUDA_FUNCTION
#define CPPCUDA_FUNCTION(name) \
  add(Function::name, &::name##f, static_cast<double (*)(double, double)>(&::name), "vv", #name);
  CPPCUDA_BINARY_FUNCTIONS(CPPCUDA_FUNCTION)
#undef CPPCUDA_FUNCTION
  return true;
}();

}  // namespace
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
