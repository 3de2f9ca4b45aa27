#include "interpolation/cpu/launch.h"

#include "ops/trilinear_indexed/lookup.h"

namespace cppcuda::ops::trilinear_indexed {
namespace {

[[maybe_unused]] const bool added =
    interpolation::add_to_table<Lookup<int32_t>>() && interpolation::add_to_table<Lookup<int64_t>>();

}  // namespace
}  // namespace cppcuda::ops::trilinear_indexed
