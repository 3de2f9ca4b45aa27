#include "cppcuda/kit/elementwise/cpu_loop.h"
#include "elementwise/family.h"

namespace cppcuda {

template void kit::instantiate_elementwise<kit::Isa>(second::Family);

}  // namespace cppcuda
