// The public C++ functions.

#include "elementwise/quick_gelu.h"

#include <cppcuda/ops/quick_gelu.h>

#include "cppcuda/kit/elementwise/family.h"
#include "types.h"

namespace cppcuda {

Tensor quick_gelu(const Tensor& input) { return kit::call<elementwise::QuickGelu>(input); }
Tensor& quick_gelu_(Tensor& self) { return kit::call_in_place<elementwise::QuickGelu>(self); }
Tensor& quick_gelu_out(Tensor& out, const Tensor& input) { return kit::call_out<elementwise::QuickGelu>(out, input); }

}  // namespace cppcuda
