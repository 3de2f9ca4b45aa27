#pragma once

// Runs PTX on the CPU. docs/kernels.md says what is checked and what is not modelled.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "emulator.h"

namespace cppcuda::emulator {

struct Launch {
  unsigned grid[3], block[3];
  size_t dynamic_shared;
  bool cooperative;
};

class Kernel;

// Parses the declarations of a module. Bodies are parsed at the first launch.
class Module {
 public:
  explicit Module(std::string text);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Kernel* find(const std::string& name);
  const std::map<std::string, std::unique_ptr<Kernel>>& kernels() const { return kernels_; }
  // The path of a file of .loc directives; empty for 0 and unknown ones.
  std::string file(unsigned number) const;

 private:
  friend class Kernel;
  friend struct Parser;
  std::string text_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
  std::map<std::string, std::pair<uint64_t, char>> symbols_;  // address, space
  std::vector<std::string> shared_;                           // declarations of variables of device functions
  std::map<unsigned, std::string> files_;                     // of .loc directives
};

struct KernelInfo {
  unsigned max_threads = 1024;
  size_t static_shared = 0, local = 0, param_bytes = 0;
};

const KernelInfo& info(Kernel& kernel);  // parses it
Counts& counts(Kernel& kernel);
// The name in C++, without parameters and without the inline namespace of the kit's version.
std::string readable_name(const std::string& mangled);

// Runs a kernel. Throws Error.
void run(Kernel& kernel, const Launch& launch, void** arguments);

// Adds the lines of the sources to `lines`, each with whether one of its instructions ran.
void add_lines(const Kernel& kernel, std::map<std::string, bool>& lines);

}  // namespace cppcuda::emulator
