#include "ops/spline_sample/loops.h"

namespace cppcuda::ops::spline_sample {
namespace {

[[maybe_unused]] const bool added = kit::for_each_dtypes([]<class T, class P>() {
                                      kit::add_loop<GatherLoop<T, P, 0>>();
                                      kit::add_loop<GatherLoop<T, P, 1>>();
                                      kit::add_loop<GatherLoop<T, P, 2>>();
                                      kit::add_loop<ScatterLoop<T, P>>();
                                    }) &&
                                    kit::for_each_dtype([]<class P>() { kit::add_loop<TermsLoop<P>>(); });

}  // namespace
}  // namespace cppcuda::ops::spline_sample
