#pragma once

// CPU kernels are compiled once per capability of the processor, as torch's own are, and selected at run time.
// A file named cpu_kernel.cpp is compiled for each: it holds loops over raw pointers, as explicit instantiations of
// templates over Isa. It calls no inline function of torch, because the linker may keep the AVX-512 copy of it for the
// whole program.

#include <type_traits>

#ifndef CPPCUDA_ISA
#define CPPCUDA_ISA base
#define CPPCUDA_COMPILED_ONCE  // this file is not compiled for each instruction set
#endif
#ifndef CPPCUDA_COMPILED_ISAS
#define CPPCUDA_COMPILED_ISAS base, avx2, avx512  // for files without kernels
#endif

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

inline namespace CPPCUDA_ISA {}  // namespace CPPCUDA_ISA

namespace base {
struct Isa;
}
namespace avx2 {
struct Isa;
}
namespace avx512 {
struct Isa;
}

enum class Capability { base, avx2, avx512 };

// The instruction sets that CMake's option CPPCUDA_ISAS selects, the oldest one first.
namespace compiled {
using enum Capability;
inline constexpr Capability capabilities[] = {CPPCUDA_COMPILED_ISAS};
inline constexpr Capability oldest = capabilities[0];
}  // namespace compiled

constexpr bool is_compiled(Capability capability) {
  for (const Capability c : compiled::capabilities) {
    if (c == capability) return true;
  }
  return false;
}

// Calls f(std::type_identity<Isa>()) with the newest compiled Isa that the processor has. cpu_context() ensures that it
// has the oldest one.
template <class F>
void with_isa([[maybe_unused]] Capability capability, F f) {
  using enum Capability;
  if constexpr (is_compiled(avx512)) {
    if (capability == avx512 || compiled::oldest == avx512) return f(std::type_identity<avx512::Isa>());
  }
  if constexpr (is_compiled(avx2)) {
    if (capability >= avx2 || compiled::oldest == avx2) return f(std::type_identity<avx2::Isa>());
  }
  if constexpr (is_compiled(base)) f(std::type_identity<base::Isa>());
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
