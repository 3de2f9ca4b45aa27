// Measures the greatest error of each function of kit/math/functions.h on vectors, and exits with 1 if one is greater
// than that file says.
//
//   cppcuda_function_errors [STEP]    every STEP-th float32 value (default: 4099), as many pairs of values,
//                                     and an eighth as many float64 values, up to ten million
//
// float32 is compared with the vectors of float64, and these with the C library's functions of quadruple precision.
// Errors are in units in the last place of the exact result.

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "cppcuda/kit/cpu/functions.h"
#include "cppcuda/kit/math/functions.h"

namespace {

namespace kit = cppcuda::kit;

_Float128 absf128(_Float128 x) { return x < 0 ? -x : x; }

uint64_t step = 4099;
bool failed = false;

// splitmix64
uint64_t hash(uint64_t i) {
  i += 0x9e3779b97f4a7c15;
  i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9;
  i = (i ^ i >> 27) * 0x94d049bb133111eb;
  return i ^ i >> 31;
}

// A number with any sign, exponent and mantissa; every second one is between 2^-8 and 2^8 in size.
float number(uint64_t i, float) {
  const auto bits = static_cast<uint32_t>(hash(i));
  return std::bit_cast<float>(i % 2 == 0 ? bits : (bits & 0x807fffff) | (119 + (bits >> 24 & 15)) << 23);
}
double number(uint64_t i, double) {
  const uint64_t bits = hash(i);
  const uint64_t exponent = 1015 + (bits >> 52 & 15);
  return std::bit_cast<double>(i % 2 == 0 ? bits : (bits & 0x800fffffffffffff) | exponent << 52);
}

// In units in the last place; infinity if only one is NaN or infinite.
double error(float actual, double exact) {
  const auto rounded = static_cast<float>(exact);
  if (!(std::abs(actual) <= FLT_MAX && std::abs(rounded) <= FLT_MAX)) {
    return actual == rounded || (std::isnan(actual) && std::isnan(rounded)) ? 0 : INFINITY;
  }
  const uint64_t exponent = std::max(std::bit_cast<uint32_t>(rounded) >> 23 & 255, 1U);
  return std::abs(actual - exact) * std::bit_cast<double>((1023 + 150 - exponent) << 52);
}
double error(double actual, _Float128 exact) {
  const auto rounded = static_cast<double>(exact);
  if (!(std::abs(actual) <= DBL_MAX && std::abs(rounded) <= DBL_MAX)) {
    return actual == rounded || (std::isnan(actual) && std::isnan(rounded)) ? 0 : INFINITY;
  }
  int exponent;
  std::frexp(rounded, &exponent);
  const auto difference = static_cast<double>(actual - exact);
  return std::ldexp(std::abs(difference), DBL_MANT_DIG - std::max(exponent, DBL_MIN_EXP));
}

template <class A>
using Vec = kit::Vec<A, /*Fast=*/false>;

// f of numbers x and y, and its exact results.
template <class F>
struct Float32 {
  static constexpr int lanes = Vec<float>::lanes;
  F f;

  void operator()(const float* x, const float* y, float* result, double* exact) const {
    f(Vec<float>::load(x), Vec<float>::load(y)).store(result);
    constexpr int half = Vec<double>::lanes;
    double wide_x[lanes], wide_y[lanes];
    std::copy_n(x, lanes, wide_x);
    std::copy_n(y, lanes, wide_y);
    for (int k = 0; k < lanes; k += half) {
      f(Vec<double>::load(wide_x + k), Vec<double>::load(wide_y + k)).store(exact + k);
    }
  }
};
template <class F, class G>
struct Float64 {
  static constexpr int lanes = Vec<double>::lanes;
  F f;
  G g;

  void operator()(const double* x, const double* y, double* result, _Float128* exact) const {
    f(Vec<double>::load(x), Vec<double>::load(y)).store(result);
    for (int k = 0; k < lanes; ++k) exact[k] = g(_Float128{x[k]}, _Float128{y[k]});
  }
};

template <class A, class Exact, class Both, class Argument>
void measure(const char* name, double limit, uint64_t count, Both both, Argument argument) {
  constexpr int lanes = Both::lanes;
  double worst = 0;
  A worst_x = 0, worst_y = 0;
  for (uint64_t first = 0; first < count; first += lanes) {
    A x[lanes], y[lanes], result[lanes];
    Exact exact[lanes];
    for (int k = 0; k < lanes; ++k) {
      x[k] = argument(first + k);
      y[k] = number(~(first + k), A());
    }
    both(x, y, result, exact);
    for (int k = 0; k < lanes; ++k) {
      const double e = error(result[k], exact[k]);
      if (e <= worst) continue;
      worst = e;
      worst_x = x[k];
      worst_y = y[k];
    }
  }
  const bool is_wrong = !(worst <= limit);
  failed = failed || is_wrong;
  std::printf("%-9s %-8s %8.2f at %a %a%s\n", name, sizeof(A) == 4 ? "float32" : "float64", worst, worst_x, worst_y,
              is_wrong ? "  more than the limit" : "");
  std::fflush(stdout);
}

// The function `name` of one or two arguments, and its limits. every: all float32 values, not pairs.
template <class F, class G>
void measure(const char* name, double limit32, double limit64, F f, G exact, bool every) {
  const uint64_t count = (uint64_t{1} << 32) / step;
  const auto value = [every](uint64_t i) {
    return every ? std::bit_cast<float>(static_cast<uint32_t>(i * step)) : number(i, float());
  };
  measure<float, double>(name, limit32, count, Float32<F>{f}, value);
  measure<double, _Float128>(name, limit64, std::min<uint64_t>(count / 8, 10'000'000), Float64<F, G>{f, exact},
                             [](uint64_t i) { return number(i, double()); });
}

}  // namespace

#define MEASURE_ONE(name, limit32, limit64)                               \
  measure(                                                                \
      #name, limit32, limit64, [](auto x, auto) { return kit::name(x); }, \
      [](_Float128 x, _Float128) { return name##f128(x); }, /*every=*/true);
#define MEASURE_TWO(name, limit32, limit64)                                    \
  measure(                                                                     \
      #name, limit32, limit64, [](auto x, auto y) { return kit::name(x, y); }, \
      [](_Float128 x, _Float128 y) { return name##f128(x, y); }, /*every=*/false);

int main(int argc, char** argv) {
#if defined(__AVX512F__)
  if (!__builtin_cpu_supports("avx512dq")) return 77;  // skipped
#elif defined(__AVX2__)
  if (!__builtin_cpu_supports("avx2")) return 77;
#endif
  if (argc > 1) step = std::strtoull(argv[1], nullptr, 10);
  CPPCUDA_UNARY_FUNCTIONS(MEASURE_ONE)
  CPPCUDA_OTHER_UNARY_FUNCTIONS(MEASURE_ONE)
  CPPCUDA_BINARY_FUNCTIONS(MEASURE_TWO)
  MEASURE_ONE(rint, 0, 0)
  return failed ? 1 : 0;
}
