#include <torch/version.h>

#include "library.h"

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {
namespace {

// Before the operators are registered.
[[gnu::constructor(101)]] void check() { check_torch(TORCH_VERSION, TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR); }

[[maybe_unused]] const bool defined = define_namespace(CPPCUDA_NAMESPACE, TORCH_VERSION);

}  // namespace
}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
