// reopen_library (<library of operators> <operator of one tensor>)...: opens each library, runs its operator in
// TorchScript and closes the library, three times, as hosts of plugins do. Without -z nodelete, torch ends the process
// when a library is unloaded for the second time. The loader keeps the first library anyway if g++ made unique symbols
// for it, so the test opens two.

#include <ATen/ops/ones.h>
#include <dlfcn.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <cstdio>
#include <string>

namespace {

void run(const std::string& op) {
  const auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR("graph(%x : Tensor):\n  %y : Tensor = " + op + "(%x)\n  return (%y)", graph.get());
  torch::jit::CompilationUnit unit;
  (*unit.create_function(c10::QualifiedName("f"), graph))({at::ones({2, 3})});
}

}  // namespace

int main(int count, char** arguments) {
  for (int round = 0; round < 3; ++round) {
    for (int i = 1; i + 1 < count; i += 2) {
      void* const library = dlopen(arguments[i], RTLD_NOW);
      if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 1;
      }
      run(arguments[i + 1]);
      dlclose(library);
    }
  }
}
