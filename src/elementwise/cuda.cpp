#include "core/pointwise_cuda.h"
#include "core/pointwise_family.h"
#include "elementwise/family.h"

namespace cppcuda::elementwise {

TORCH_LIBRARY_IMPL(cppcuda, CUDA, m) { core::implement_pointwise<core::CudaLoop>(m, Family()); }

}  // namespace cppcuda::elementwise
