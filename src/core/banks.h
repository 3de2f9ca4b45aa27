#pragma once

#include "core/host_device.h"

namespace cppcuda::core {

// Where number i of pieces of so many bytes is in shared memory, whose banks hold 128 bytes. Threads that take every second
// piece, or every fourth or eighth, would find all of theirs in a few of the banks: so after each 128 bytes a place is left out.
CPPCUDA_HOST_DEVICE constexpr int padded(int i, int bytes) { return i + i / (128 / bytes); }

}  // namespace cppcuda::core
