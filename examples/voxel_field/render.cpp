// Renders a trained voxel field with no Python in the process.
//
//   render MODEL COORDINATES OUTPUT
//
// MODEL is TorchScript (.pt) or an AOTInductor package (.pt2). COORDINATES is a [N, 3] tensor that torch.save wrote.
// The program writes [N] values to OUTPUT, for torch.load.

#include <cppcuda/cppcuda.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/script.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Field {
  std::optional<torch::Device> device;  // unknown for a frozen module, which has no parameters
  std::function<torch::Tensor(const torch::Tensor&)> values;
};

Field load_torchscript(const std::string& path) {
  auto module = std::make_shared<torch::jit::Module>(torch::jit::load(path));
  std::optional<torch::Device> device;
  for (const torch::Tensor& parameter : module->parameters()) device = parameter.device();
  return {device, [module](const torch::Tensor& points) { return module->forward({points}).toTensor(); }};
}

Field load_aoti(const std::string& path) {
  auto loader = std::make_shared<torch::inductor::AOTIModelPackageLoader>(path);
  return {torch::Device(loader->get_metadata().at("AOTI_DEVICE_KEY")),
          [loader](const torch::Tensor& points) { return loader->run({points}).at(0); }};
}

torch::Tensor read_tensor(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  return torch::jit::pickle_load(bytes).toTensor();
}

void write_tensor(const std::string& path, const torch::Tensor& tensor) {
  auto bytes = torch::jit::pickle_save(tensor);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void render(const std::string& model, const std::string& coordinates, const std::string& output) {
  torch::InferenceMode inference;
  const auto field = model.ends_with(".pt2") ? load_aoti(model) : load_torchscript(model);
  auto points = read_tensor(coordinates);
  if (field.device) points = points.to(*field.device);
  const auto start = std::chrono::steady_clock::now();
  const auto values = field.values(points).cpu();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  write_tensor(output, values);
  std::cout << model << ": " << values.numel() << " points on " << points.device() << " in " << took.count()
            << " ms (first run)\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " MODEL.pt|MODEL.pt2 COORDINATES OUTPUT\n";
    return 2;
  }
  try {
    render(argv[1], argv[2], argv[3]);
  } catch (const c10::Error& error) {
    std::cerr << "error: " << error.what_without_backtrace() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
