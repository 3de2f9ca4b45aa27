#include "library.h"

#include "kernel_headers.h"

extern "C" const cppcuda::kit::detail::KernelTable* CPPCUDA_KERNEL_TABLE();

namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail {

constexpr Library library{.name = CPPCUDA_LIBRARY,
                          .cuda_option = CPPCUDA_CUDA_OPTION,
                          .headers = CPPCUDA_KERNEL_HEADERS,
                          .kernels = &CPPCUDA_KERNEL_TABLE};

}  // namespace cppcuda::kit::inline CPPCUDA_KIT_VERSION::detail
