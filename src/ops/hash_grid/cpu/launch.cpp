#include "interpolation/cpu/launch.h"

#include "ops/hash_grid/lookup.h"

namespace cppcuda::ops::hash_grid {
namespace {

[[maybe_unused]] const bool added = []<int... Axes>(std::integer_sequence<int, Axes...>) {
  return (interpolation::add_to_table<Lookup<Axes>>() && ...);
}(std::integer_sequence<int, 2, 3, 4>());

}  // namespace
}  // namespace cppcuda::ops::hash_grid
