// Schemas, CPU kernels and derivatives of the elementwise operators.

#include "family.h"

#include "core/pointwise_autograd.h"
#include "core/pointwise_cpu.h"
#include "core/pointwise_define.h"

namespace second {

TORCH_LIBRARY_FRAGMENT(second, m) { core::define_pointwise(m, Family()); }
TORCH_LIBRARY_IMPL(second, CPU, m) { core::implement_pointwise<core::CpuLoop>(m, Family()); }
TORCH_LIBRARY_IMPL(second, Autograd, m) { core::differentiate_pointwise(m, Family()); }

}  // namespace second
