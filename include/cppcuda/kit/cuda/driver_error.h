#pragma once

#include <string>

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION {

// The error message for a driver that is older than the CUDA runtime in the library. Versions are as the runtime
// returns them: 13020 is 13.2. A driver of version 0 is not installed.
inline std::string driver_error(int driver, int runtime) {
  const auto text = [](int version) {
    return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  const std::string found = driver == 0 ? "no CUDA driver is installed" : "the CUDA driver supports " + text(driver);
  return found + ", but the kernels were compiled with " + text(runtime) + ", and need a driver for CUDA " +
         std::to_string(runtime / 1000) + ". Update the driver, or build the library with an older nvcc.";
}

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION
