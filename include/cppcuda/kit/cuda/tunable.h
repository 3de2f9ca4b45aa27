#pragma once

#include <cstdint>

#include "cppcuda/kit/math/host_device.h"
#ifdef CPPCUDA_TUNING
#include <cstdlib>
#include <string>
#endif

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// A number in a launch rule that was not measured. In a build with CPPCUDA_TUNING, the environment variable
// CPPCUDA_TUNE_<name> replaces it at every launch; scripts/gpu_tune.py tries other values in this way.
#ifdef CPPCUDA_TUNING
inline int64_t tunable(const char* name, int64_t value) {
  const char* text = std::getenv((std::string("CPPCUDA_TUNE_") + name).c_str());
  return text ? std::atoll(text) : value;
}
#else
constexpr int64_t tunable(const char*, int64_t value) { return value; }
#endif

// A tunable that a kernel reads, as a member of its parameters.
template <int Value>
class KernelTunable {
 public:
#ifdef CPPCUDA_TUNING
  explicit KernelTunable(const char* name) : value_(static_cast<int>(tunable(name, Value))) {}
  CPPCUDA_HOST_DEVICE operator int() const { return value_; }

 private:
  int value_;
#else
  constexpr explicit KernelTunable(const char*) {}
  CPPCUDA_HOST_DEVICE constexpr operator int() const { return Value; }
#endif
};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
