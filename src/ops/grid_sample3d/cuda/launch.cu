#include "interpolation/cuda/launch.cuh"
#include "ops/grid_sample3d/lookup.h"

namespace cppcuda::ops::grid_sample3d {
namespace {

[[maybe_unused]] const bool added = interpolation::add_to_table<Lookup>();

}  // namespace
}  // namespace cppcuda::ops::grid_sample3d
