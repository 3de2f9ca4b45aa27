#pragma once

namespace cppcuda::core {

struct LaunchShape {
  unsigned blocks;
  unsigned threads;
  unsigned shared_bytes = 0;
};

}  // namespace cppcuda::core
