#include "cppcuda/kit/memory.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "cppcuda/kit/check.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {
namespace {

// The value of the environment variable <LIBRARY>_<name>.
int64_t from_environment(const char* name_in_library, int64_t default_value) {
  const std::string name = library_name_in_capitals() + "_" + name_in_library;
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return default_value;
  const std::string_view text = value;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  TORCH_CHECK(error == std::errc() && end == text.data() + text.size() && number >= 0, library_name(),
              ": the environment variable ", name, " must be a non-negative integer, got '", text, "'");
  return number;
}

// The size of one processor's last-level cache. (sysconf may return the sum over all processors of the machine.)
int64_t last_level_cache_bytes() {
  int64_t kibibytes = 0;
  for (int level = 0; level < 5; ++level) {
    std::ifstream size("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(level) + "/size");
    if (!(size >> kibibytes)) break;
  }
  return kibibytes > 0 ? kibibytes << 10 : int64_t{32} << 20;
}

}  // namespace

void advise_huge_pages([[maybe_unused]] const Tensor& t) {
#if defined(__linux__)
  // glibc always maps new pages for blocks of this size.
  constexpr size_t min_bytes = size_t{32} << 20;
  static const bool enabled = from_environment("HUGE_PAGES", 1) != 0;
  // Meta kernels allocate too, with symbolic sizes.
  if (!enabled || !t.key_set().has(c10::DispatchKey::CPU) || t.nbytes() < min_bytes) return;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  char* const data = static_cast<char*>(t.mutable_data_ptr());
  const uintptr_t into_page = reinterpret_cast<uintptr_t>(data) % page;
  // Best effort: on failure the pages are small.
  madvise(data - into_page, t.nbytes() + into_page, MADV_HUGEPAGE);
#endif
}

int64_t cache_bytes() { return from_environment("STREAM_BYTES", last_level_cache_bytes()); }

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
