#include "core/isa.h"

#include <ATen/Version.h>

namespace cppcuda::core {

Capability capability() {
  static const Capability result = [] {
    const auto name = at::get_cpu_capability();
    return name == "AVX512" ? Capability::avx512 : name == "AVX2" ? Capability::avx2 : Capability::base;
  }();
  return result;
}

}  // namespace cppcuda::core
