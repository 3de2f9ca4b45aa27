// Models that make_models.py saved: TorchScript and AOTInductor. The program has no Python.
//
//   models <folder with model.pt, model.pt2, examples.pt>

#include <cppcuda/cppcuda.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/script.h>

#include <fstream>
#include <iterator>

int main(int argc, char** argv) {
  TORCH_CHECK(argc == 2);
  const std::string folder = argv[1];
  auto script = torch::jit::load(folder + "/model.pt");
  torch::inductor::AOTIModelPackageLoader package(folder + "/model.pt2");

  // A list of (feats, points, expected, expected gradient of feats).
  std::ifstream file(folder + "/examples.pt", std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  const auto loaded = torch::jit::pickle_load(bytes);
  const auto examples = loaded.toListRef();
  TORCH_CHECK(examples.size() > 1);
  for (const auto& example : examples) {
    const auto& tuple = example.toTupleRef().elements();
    const auto feats = tuple[0].toTensor(), points = tuple[1].toTensor(), expected = tuple[2].toTensor();
    const auto traced = feats.clone().requires_grad_();
    const auto out = script.forward({traced, points}).toTensor();
    TORCH_CHECK(torch::allclose(out, expected));
    out.sum().backward();
    TORCH_CHECK(torch::allclose(traced.grad(), tuple[3].toTensor()));
    TORCH_CHECK(torch::allclose(package.run({feats, points}).at(0), expected));
  }
  std::printf("models: %zu examples\n", examples.size());
}
