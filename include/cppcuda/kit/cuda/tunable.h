#pragma once

#include <cstdint>

#ifdef CPPCUDA_TUNING
#include <cstdlib>
#include <string>
#endif

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// A number in a launch rule that was not measured. In a build with CPPCUDA_TUNING, the environment variable
// CPPCUDA_TUNE_<name> replaces it at every launch; tools/gpu_tune.py tries other values in this way.
#ifdef CPPCUDA_TUNING
inline int64_t tunable(const char* name, int64_t value) {
  const char* text = std::getenv((std::string("CPPCUDA_TUNE_") + name).c_str());
  return text ? std::atoll(text) : value;
}
#else
constexpr int64_t tunable(const char*, int64_t value) { return value; }
#endif

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
