// Molecular dynamics at constant energy, with no Python in the process.
//
//   simulate MODEL START RESULT
//
// MODEL is TorchScript (.pt) or an AOTInductor package (.pt2). START is a dict that torch.save wrote, of positions and
// velocities [N, 3], mass, time_step and steps; all units follow from eV, angstrom and the atomic mass unit. RESULT is
// a pair: the potential and kinetic energies before the first and after each step [steps + 1, 2], and the positions at
// the end [N, 3].

#include <sph/spherical_harmonics.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/script.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace {

using torch::Tensor;

struct EnergyAndForces {
  Tensor energy;  // [1]
  Tensor forces;  // [1, N, 3]
};

using Potential = std::function<EnergyAndForces(const Tensor&)>;  // positions [1, N, 3]

// TorchScript has autograd, so the forces are a call of torch::autograd::grad.
Potential load_torchscript(const std::string& path) {
  auto module = std::make_shared<torch::jit::Module>(torch::jit::load(path));
  return [module](const Tensor& positions) {
    const c10::AutoGradMode enable_grad(true);
    const auto variable = positions.detach().requires_grad_();
    const auto energy = module->forward({variable}).toTensor();
    return EnergyAndForces{energy.detach(), -torch::autograd::grad({energy.sum()}, {variable}).at(0)};
  };
}

// An AOTInductor package has no autograd. The exported model returns energy and forces.
Potential load_aoti(const std::string& path) {
  auto loader = std::make_shared<torch::inductor::AOTIModelPackageLoader>(path);
  return [loader](const Tensor& positions) {
    const auto outputs = loader->run({positions});
    return EnergyAndForces{outputs.at(0), outputs.at(1)};
  };
}

c10::Dict<std::string, Tensor> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  c10::Dict<std::string, Tensor> result;
  for (const auto& entry : torch::jit::pickle_load(bytes).toGenericDict()) {
    result.insert(entry.key().toStringRef(), entry.value().toTensor());
  }
  return result;
}

void write(const std::string& path, const c10::IValue& result) {
  const auto bytes = torch::jit::pickle_save(result);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void run(const std::string& model, const std::string& start, const std::string& result) {
  const c10::NoGradGuard no_grad;
  const auto potential = model.ends_with(".pt2") ? load_aoti(model) : load_torchscript(model);
  const auto state = read(start);
  auto positions = state.at("positions").unsqueeze(0), velocities = state.at("velocities").unsqueeze(0);
  const auto mass = state.at("mass").item<double>(), time_step = state.at("time_step").item<double>();
  const auto steps = state.at("steps").item<int64_t>();
  const auto energies = torch::empty({steps + 1, 2}, torch::kDouble);

  const auto begin = std::chrono::steady_clock::now();
  auto now = potential(positions);
  for (int64_t step = 0;; ++step) {
    energies[step][0] = now.energy[0];
    energies[step][1] = 0.5 * mass * velocities.square().sum();
    if (step == steps) break;
    // Velocity Verlet.
    velocities = velocities + 0.5 * time_step / mass * now.forces;
    positions = positions + time_step * velocities;
    now = potential(positions);
    velocities = velocities + 0.5 * time_step / mass * now.forces;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;

  write(result, std::make_tuple(energies, positions[0]));
  std::cout << model << ": " << steps << " steps of " << positions.size(1) << " atoms in " << took.count() << " s\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " MODEL.pt|MODEL.pt2 START.pt RESULT.pt\n";
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3]);
  } catch (const c10::Error& error) {
    std::cerr << "error: " << error.what_without_backtrace() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
