#pragma once

// An elementwise op's loop over raw pointers, as pointwise_cpu.h calls it and pointwise_cpu_loop.h defines it.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <type_traits>

#include "core/isa.h"

namespace cppcuda::core {

template <class Isa, class Math, int inputs>
struct PointwiseKernel {
  // data and steps (in bytes): of the output, then of the inputs. stream: past the caches, where memory is dense.
  static void run(std::type_identity<double>, char* const* data, const int64_t* steps, int64_t n, bool stream);
  static void run(std::type_identity<float>, char* const* data, const int64_t* steps, int64_t n, bool stream);
  static void run(std::type_identity<c10::Half>, char* const* data, const int64_t* steps, int64_t n, bool stream);
  static void run(std::type_identity<c10::BFloat16>, char* const* data, const int64_t* steps, int64_t n, bool stream);
};

// What the kernel for Math and T gets: see PointwiseKernel.
template <class T, int inputs>
struct LoopParams {
  char* const* data;
  const int64_t* steps;
  int64_t n;
  bool stream;
};

}  // namespace cppcuda::core
