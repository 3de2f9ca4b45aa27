// CUDA's runtime library for programs that nvcc compiled: the emulator runs what they register and launch. Also the
// memory of the "cuda" device.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <utility>
#include <vector>

#include "emulator.h"
#include "interpreter.h"

// ---- memory, with a page of other bytes on both sides

namespace cppcuda::emulator {
namespace {

size_t allocations_made = 0;

}  // namespace

void* allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  auto* const memory = static_cast<unsigned char*>(std::aligned_alloc(512, (bytes + 1023) / 512 * 512));
  if (!memory) throw std::bad_alloc();
  std::memset(memory, 0xFF, bytes);
  add_range(memory, bytes, "allocation " + std::to_string(allocations_made++));
  return memory;
}

void release(void* memory) {
  if (!memory) return;
  remove_range(memory);
  std::free(memory);
}

size_t allocation_count() { return allocations_made; }

}  // namespace cppcuda::emulator

// ---- fat binaries

namespace {

using namespace cppcuda::emulator;

struct State {
  std::vector<std::unique_ptr<Module>> modules;
  std::map<const void*, std::pair<Module*, std::string>> functions;
  std::map<const void*, size_t> dynamic_shared;  // cudaFuncSetAttribute
  cudaError_t error = cudaSuccess;
  cudaError_t failed = cudaSuccess;  // the last error, with its message
  std::string message;
  int device = 0;
  unsigned architecture = 0;
  size_t replaced = 0;  // by $CPPCUDA_EMULATOR_REPLACE
};

State& state() {
  static State* const s = new State;  // never destroyed, because the report is written at exit
  return *s;
}

template <class T>
T at(const unsigned char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

void replace(std::string& text) {
  const char* both = std::getenv("CPPCUDA_EMULATOR_REPLACE");
  if (!both) return;
  const std::string from(both, std::strstr(both, "=>")), to = both + from.size() + 2;
  for (size_t k = text.find(from); k != std::string::npos; k = text.find(from, k + to.size())) {
    text.replace(k, from.size(), to);
    ++state().replaced;
  }
}

// The PTX for $CPPCUDA_EMULATOR_ARCH, or for the newest architecture. A container has a header of 16 bytes and entries,
// each with a header.
std::string find_ptx(const unsigned char* fat) {
  if (at<uint32_t>(fat) != 0xBA55ED50) throw Error("not a fat binary");
  const char* wanted = std::getenv("CPPCUDA_EMULATOR_ARCH");
  const unsigned char* entry = fat + at<uint16_t>(fat + 6);
  const unsigned char* const end = entry + at<uint64_t>(fat + 8);
  std::string text;
  unsigned newest = 0;
  while (entry < end) {
    const auto kind = at<uint16_t>(entry);
    const auto header = at<uint32_t>(entry + 4);
    const auto size = at<uint64_t>(entry + 8);
    const auto architecture = at<uint32_t>(entry + 28);
    if (kind == 1 && (wanted ? architecture == static_cast<unsigned>(std::atoi(wanted)) : architecture > newest)) {
      newest = architecture;
      text.assign(reinterpret_cast<const char*>(entry + header), size);
      text.resize(std::strlen(text.c_str()));
    }
    entry += header + size;
  }
  if (text.empty()) throw Error(std::string("no PTX") + (wanted ? std::string(" for compute_") + wanted : ""));
  if (text.find(".version") == std::string::npos) throw Error("the PTX is compressed: compile with --no-compress");
  state().architecture = newest;
  replace(text);
  return text;
}

// Kernels of CUDA's libraries are not in the report. They run with all of their blocks, because they need not have a
// loop over the grid, and races are not found in them, because blocks that wait for values of others in memory look
// like one.
bool is_of_cuda(const std::string& mangled) {
  return mangled.starts_with("_ZN3cub") || mangled.starts_with("_ZN6thrust");
}

void at_end() {
  const State& s = state();
  std::map<std::string, bool> lines;
  std::map<std::string, Counts> kernels;  // an instance may be in several modules
  for (const auto& module : s.modules) {
    for (const auto& [mangled, kernel] : module->kernels()) {
      if (is_of_cuda(mangled)) continue;
      const std::string name = readable_name(mangled);
      kernels[name] += counts(*kernel);
      add_lines(*kernel, lines);
    }
  }
  if (const char* file = std::getenv("CPPCUDA_EMULATOR_REPORT")) {
    std::ofstream to(file);
    for (const auto& [member, name] : counted) to << name << '\t';
    to << "kernel\n";
    for (const auto& [kernel, c] : kernels) {
      for (const auto& [member, name] : counted) to << c.*member << '\t';
      to << kernel << '\n';
    }
    for (const auto& [line, has_run] : lines) {
      if (!has_run) to << "did not run: " << line << '\n';
    }
  }
  if (std::getenv("CPPCUDA_EMULATOR_REPLACE") && !s.replaced) {
    std::cerr << "the PTX does not contain the text of CPPCUDA_EMULATOR_REPLACE\n";
    std::_Exit(1);
  }
  if (!std::getenv("CPPCUDA_EMULATOR_EVERY_KERNEL")) return;
  size_t launched = 0;
  for (const auto& [name, c] : kernels) {
    launched += c.launches > 0;
    if (c.launches == 0) std::cerr << "no test launched the kernel " << name << '\n';
  }
  std::cerr << launched << " of " << kernels.size() << " kernels were launched, PTX of compute_" << s.architecture
            << '\n';
  if (launched < kernels.size()) std::_Exit(1);
}

cudaError_t fail(cudaError_t error, const std::string& message) {
  state().error = state().failed = error;
  state().message = message;
  return error;
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared, bool cooperative) {
  State& s = state();
  const auto it = s.functions.find(function);
  if (it == s.functions.end()) return fail(cudaErrorInvalidDeviceFunction, "the kernel is not registered");
  const bool races = options().races;
  cudaError_t result = cudaSuccess;
  try {
    Kernel* const kernel = it->second.first->find(it->second.second);
    if (!kernel) throw Error("no PTX of " + it->second.second);
    const size_t allowed = s.dynamic_shared.count(function) ? s.dynamic_shared[function] : size_t{48} << 10;
    if (shared + info(*kernel).static_shared > size_t{48} << 10 && shared > allowed) {
      return fail(cudaErrorInvalidValue, readable_name(it->second.second) + ": " + std::to_string(shared) +
                                             " bytes of shared memory, without cudaFuncSetAttribute");
    }
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) {
      return fail(cudaErrorInvalidConfiguration, "a grid of (" + std::to_string(grid.x) + ", " +
                                                     std::to_string(grid.y) + ", " + std::to_string(grid.z) +
                                                     ") blocks");
    }
    const bool of_cuda = is_of_cuda(it->second.second);
    const unsigned share = cooperative || of_cuda ? 1 : options().grid_stride;
    grid.x = (grid.x + share - 1) / share;
    options().races = races && !of_cuda;
    run(*kernel, {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, cooperative}, arguments);
  } catch (const Error& e) {
    result = fail(cudaErrorLaunchFailure, e.what());
  }
  options().races = races;
  return result;
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
thread_local std::vector<Configuration> configurations;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  // {magic, version, data, ...}
  const auto* const data = at<const unsigned char*>(static_cast<const unsigned char*>(wrapper) + 8);
  State& s = state();
  if (s.modules.empty()) std::atexit(at_end);
  try {
    s.modules.push_back(std::make_unique<Module>(find_ptx(data)));
  } catch (const Error& e) {
    std::cerr << "the emulator: " << e.what() << '\n';
    std::_Exit(1);
  }
  return reinterpret_cast<void**>(s.modules.back().get());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
  state().functions[host] = {reinterpret_cast<Module*>(handle), name};
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const Configuration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *static_cast<void**>(stream) = c.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t) {
  return launch(kernel, grid, block, arguments, shared, false);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t) {
  return launch(function, grid, block, arguments, shared, false);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                                        cudaStream_t) {
  return launch(function, grid, block, arguments, shared, true);
}

cudaError_t cudaGetDevice(int* device) {
  *device = state().device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  state().device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(state().error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return state().error; }
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaSuccess) return "no error";
  if (error == state().failed) return state().message.c_str();
  thread_local std::string other;  // of a library that uses CUDA
  other = "CUDA error " + std::to_string(error);
  return other.c_str();
}
const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

// With 16 multiprocessors of three blocks small tests have launches of many blocks.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = options().resident;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* f, int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared, 0);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 16;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = static_cast<int>(state().architecture / 10);
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = static_cast<int>(state().architecture % 10);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 * 1024;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 64 * 1024;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrCooperativeLaunch:
      *value = 1;
      break;
    default:
      return fail(cudaErrorInvalidValue, "the attribute " + std::to_string(attribute) + " is not known");
  }
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
    state().dynamic_shared[function] = static_cast<size_t>(value);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* function) {
  *a = {};
  const auto it = state().functions.find(function);
  if (it == state().functions.end()) return fail(cudaErrorInvalidDeviceFunction, "the kernel is not registered");
  const KernelInfo& k = info(*it->second.first->find(it->second.second));
  a->sharedSizeBytes = k.static_shared;
  a->localSizeBytes = k.local;
  a->maxThreadsPerBlock = static_cast<int>(k.max_threads);
  a->numRegs = 64;
  a->ptxVersion = a->binaryVersion = static_cast<int>(state().architecture);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = cppcuda::emulator::allocate(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  cppcuda::emulator::release(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) { return cudaMemset(to, value, bytes); }
cudaError_t cudaDeviceSynchronize() { return state().error; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return state().error; }

}  // extern "C"

namespace cppcuda::emulator {

Counts counts_of(const std::function<void()>& f) {
  const auto sum = [] {
    Counts all;
    for (const auto& module : state().modules) {
      for (const auto& [name, kernel] : module->kernels()) all += counts(*kernel);
    }
    return all;
  };
  const Counts before = sum();
  f();
  Counts after = sum();
  return after -= before;
}

}  // namespace cppcuda::emulator
