#pragma once

// CPU kernels are compiled once per capability of the processor, as torch's own are, and selected at run time.
// A file named cpu_kernel.cpp is compiled for each: it holds loops over raw pointers, as explicit instantiations of
// templates over Isa. It calls no inline function of torch, because the linker may keep the AVX-512 copy of it for the
// whole program.

#include <type_traits>

#ifndef CPPCUDA_ISA
#define CPPCUDA_ISA base  // for files that are compiled once
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

// Calls f(std::type_identity<Isa>()).
template <class F>
decltype(auto) with_isa([[maybe_unused]] Capability capability, F f) {
#if defined(__x86_64__)
  switch (capability) {
    case Capability::avx512:
      return f(std::type_identity<avx512::Isa>());
    case Capability::avx2:
      return f(std::type_identity<avx2::Isa>());
    case Capability::base:
      break;
  }
#endif
  return f(std::type_identity<base::Isa>());
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
