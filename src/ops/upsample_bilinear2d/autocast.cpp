#include <torch/library.h>

#include "ops/upsample_bilinear2d/schema.h"

namespace cppcuda::ops::upsample_bilinear2d {
namespace {

// The op moves memory and sums in float32: the input's dtype stays as it is.
TORCH_LIBRARY_IMPL(cppcuda, AutocastCPU, m) { m.impl(Forward::name, torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(cppcuda, AutocastCUDA, m) { m.impl(Forward::name, torch::CppFunction::makeFallthrough()); }

}  // namespace
}  // namespace cppcuda::ops::upsample_bilinear2d
