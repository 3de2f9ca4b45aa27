// The public C++ functions.

#include "elementwise/sigmoid.h"

#include <cppcuda/ops/sigmoid.h>

#include "cppcuda/kit/elementwise/family.h"
#include "types.h"

namespace cppcuda {

Tensor sigmoid(const Tensor& input) { return kit::call<elementwise::Sigmoid>(input); }
Tensor& sigmoid_(Tensor& self) { return kit::call_in_place<elementwise::Sigmoid>(self); }
Tensor& sigmoid_out(Tensor& out, const Tensor& input) { return kit::call_out<elementwise::Sigmoid>(out, input); }

}  // namespace cppcuda
