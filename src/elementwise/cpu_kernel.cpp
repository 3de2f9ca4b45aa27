#include "cppcuda/kit/elementwise/cpu_loop.h"
#include "elementwise/family.h"

namespace cppcuda {

template void kit::instantiate_elementwise<kit::Isa>(elementwise::Family);

}  // namespace cppcuda
