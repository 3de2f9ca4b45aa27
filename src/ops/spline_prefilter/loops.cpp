#include "ops/spline_prefilter/loops.h"

namespace cppcuda::ops::spline_prefilter {
namespace {

[[maybe_unused]] const bool added = [] {
  kit::add_loop<FilterLoop<float>>();
  kit::add_loop<FilterLoop<double>>();
  return kit::for_each_dtype([]<class T>() { kit::add_loop<CopyLoop<T>>(); });
}();

}  // namespace
}  // namespace cppcuda::ops::spline_prefilter
