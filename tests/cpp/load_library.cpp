// load_library <libcppcuda.so>: fails unless the library loads together with its kernels and loads none of torch's CUDA
// libraries. (The CUDA runtime is not checked, because libtorch_cpu.so of a CUDA build loads it.)

#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <string>

int main(int, char** arguments) {
  if (dlopen(arguments[1], RTLD_NOW) == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  std::ifstream maps("/proc/self/maps");
  bool has_kernels = false, has_cuda = false;
  for (std::string line; std::getline(maps, line);) {
    has_kernels |= line.find("/libcppcuda_kernels.so") != std::string::npos;
    for (const char* name : {"/libc10_cuda.so", "/libtorch_cuda.so"}) {
      if (line.find(name) == std::string::npos) continue;
      std::fprintf(stderr, "loaded: %s\n", line.c_str());
      has_cuda = true;
    }
  }
  return has_kernels && !has_cuda ? 0 : 1;
}
