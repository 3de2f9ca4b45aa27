#pragma once

// What loads and stores take of an SM's L1, which shared memory is a part of, from the addresses that the threads of a
// warp access together. What is counted is compiled with -fsanitize=thread: for each access the compiler then calls a
// function, which traffic.cpp has instead of that sanitizer.

#include <functional>

namespace cppcuda::simt {

struct Traffic {
  double lines = 0;       // of 128 bytes of global memory, of each load or store of a warp
  double wavefronts = 0;  // of shared memory: how often a bank has to give another word
};

// Of all that f launches.
Traffic traffic_of(const std::function<void()>& f);

}  // namespace cppcuda::simt
