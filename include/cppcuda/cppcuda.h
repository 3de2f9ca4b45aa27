#pragma once

// Every public function of cppcuda. Programs that include this header and link cppcuda::cppcuda have the operators
// registered (torch.ops.cppcuda.*), also for TorchScript and AOTInductor files that use them.

#include <cppcuda/export.h>
#include <cppcuda/ops/grid_sample3d.h>
#include <cppcuda/ops/hash_grid.h>
#include <cppcuda/ops/lltm.h>
#include <cppcuda/ops/lltm_cell.h>
#include <cppcuda/ops/quick_gelu.h>
#include <cppcuda/ops/sigmoid.h>
#include <cppcuda/ops/spline_prefilter2d.h>
#include <cppcuda/ops/spline_prefilter3d.h>
#include <cppcuda/ops/spline_sample2d.h>
#include <cppcuda/ops/spline_sample3d.h>
#include <cppcuda/ops/spline_splat2d.h>
#include <cppcuda/ops/spline_splat3d.h>
#include <cppcuda/ops/trilinear.h>
#include <cppcuda/ops/trilinear_indexed.h>
#include <cppcuda/ops/trilinear_indexed_with_grad.h>
#include <cppcuda/ops/upsample_bilinear2d.h>
#include <cppcuda/version.h>

namespace cppcuda {

// The torch version that the loaded library was built with.
CPPCUDA_EXPORT const char* torch_version();

// References a symbol of the library, so that the linker keeps the library in programs that reference no other.
[[gnu::used]] inline const auto keep_library = &torch_version;

}  // namespace cppcuda
