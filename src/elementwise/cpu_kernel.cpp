#include "cppcuda/kit/elementwise/cpu_loop.h"
#include "elementwise/family.h"

namespace cppcuda {

template void kit::instantiate_pointwise<kit::Isa>(elementwise::Family);

}  // namespace cppcuda
