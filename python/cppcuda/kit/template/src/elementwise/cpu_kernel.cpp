// The CPU kernels, compiled once per instruction set. Change: nothing.
#include "cppcuda/kit/elementwise/cpu_loop.h"
#include "elementwise/family.h"

namespace cppcuda {

template void kit::instantiate_elementwise<kit::Isa>(my_ops::Family);

}  // namespace cppcuda
