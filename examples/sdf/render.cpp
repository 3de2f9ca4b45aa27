// Draws a trained distance field with no Python in the process, by sphere tracing.
//
//   render MODEL RAYS IMAGE
//
// MODEL is TorchScript (.pt) or an AOTInductor package (.pt2). RAYS is a [H, W, 6] tensor of origins and directions
// that torch.save wrote. The program writes IMAGE as a PPM file. render.py has the same in Python.

#include <cppcuda/cppcuda.h>
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
#include <utility>
#include <vector>

namespace {

using torch::Tensor;

constexpr int kMaxSteps = 100;
constexpr double kHit = 5e-4;                                   // distance at which a ray has arrived
constexpr double kOcclusionSteps[] = {0.01, 0.02, 0.04, 0.08};  // distances from the surface

struct Field {
  std::function<Tensor(const Tensor&)> distance;  // [N, 3] -> [N]
  std::function<Tensor(const Tensor&)> gradient;  // [N, 3] -> [N, 3]
};

// TorchScript has autograd, so the gradient is a call of torch::autograd::grad.
Field load_torchscript(const std::string& path) {
  auto module = std::make_shared<torch::jit::Module>(torch::jit::load(path));
  const auto device = (*module->parameters().begin()).device();
  const auto distance = [module, device](const Tensor& points) {
    return module->forward({points.to(device)}).toTensor().cpu();
  };
  const auto gradient = [distance](const Tensor& points) {
    const c10::AutoGradMode enable_grad(true);
    const auto variable = points.detach().requires_grad_();
    return torch::autograd::grad({distance(variable).sum()}, {variable}).at(0);
  };
  return {distance, gradient};
}

// An AOTInductor package has no autograd. The exported model returns distance and gradient.
Field load_aoti(const std::string& path) {
  auto loader = std::make_shared<torch::inductor::AOTIModelPackageLoader>(path);
  const torch::Device device(loader->get_metadata().at("AOTI_DEVICE_KEY"));
  const auto output = [loader, device](size_t index) {
    return [=](const Tensor& points) { return loader->run({points.to(device)}).at(index).cpu(); };
  };
  return {output(0), output(1)};
}

struct Hits {
  Tensor rays;    // [M], int64
  Tensor points;  // [M, 3]
};

// Follows rays [R, 6] through the unit cube.
Hits trace(const Field& field, const Tensor& rays) {
  const auto origin = rays.slice(1, 0, 3), direction = rays.slice(1, 3, 6);
  const auto enter = -origin / direction, leave = (1 - origin) / direction;
  const auto near = torch::minimum(enter, leave).amax(1), far = torch::maximum(enter, leave).amin(1);
  auto active = (near < far).nonzero().squeeze(1);
  auto t = near.index({active});
  std::vector<Tensor> rays_that_hit, points;
  for (int step = 0; step < kMaxSteps && active.numel() > 0; ++step) {
    const auto at = [&](const Tensor& ray, const Tensor& t) {
      return origin.index({ray}) + t.unsqueeze(1) * direction.index({ray});
    };
    const auto distance = field.distance(at(active, t));
    t = t + distance;
    const auto hit = distance < kHit;
    rays_that_hit.push_back(active.index({hit}));
    points.push_back(at(rays_that_hit.back(), t.index({hit})));
    const auto keep = ~hit & (t < far.index({active}));
    active = active.index({keep});
    t = t.index({keep});
  }
  return {torch::cat(rays_that_hit), torch::cat(points)};
}

Tensor normalize(const Tensor& vectors) { return vectors / vectors.norm(2, 1, /*keepdim=*/true); }

Tensor cosine(const Tensor& a, const Tensor& b) { return (a * b).sum(1); }

// Colours [M, 3] of points of the surface, with a light above the left shoulder of the camera.
Tensor shade(const Field& field, const Tensor& points, const Tensor& directions) {
  const auto normal = normalize(field.gradient(points));
  const auto up = torch::tensor({0.0F, 0.0F, 1.0F}).expand_as(directions);
  const auto left = torch::linalg_cross(up, directions);
  const auto light = normalize(0.7 * up + 0.5 * left - 0.8 * directions);
  // Ambient occlusion: how much closer the surface is than it would be above a plane.
  auto open = torch::ones(points.size(0));
  for (const double step : kOcclusionSteps) {
    const auto clearance = field.distance((points + step * normal).clamp(0, 1)).clamp(0, step);
    open -= (1 - clearance / step) / std::size(kOcclusionSteps);
  }
  const auto ambient = open * (0.375 + 0.075 * normal.select(1, 2));
  const auto diffuse = 0.65 * cosine(normal, light).clamp_min(0) * open.sqrt();
  const auto highlight = 0.12 * cosine(normal, normalize(light - directions)).clamp_min(0).pow(40) * open;
  return (ambient + diffuse).unsqueeze(1) * torch::tensor({0.93F, 0.72F, 0.66F}) + highlight.unsqueeze(1);
}

// An image [H, W, 3], uint8, of rays [H, W, 6].
Tensor draw(const Field& field, const Tensor& rays) {
  const auto flat = rays.view({-1, 6});
  const auto hits = trace(field, flat);
  auto image = torch::ones({flat.size(0), 3});
  image.index_put_({hits.rays}, shade(field, hits.points, flat.slice(1, 3, 6).index({hits.rays})));
  const auto bytes = (image.clamp(0, 1).pow(1 / 1.6) * 255).round().to(torch::kByte);
  return bytes.view({rays.size(0), rays.size(1), 3});
}

Tensor read_tensor(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  return torch::jit::pickle_load(bytes).toTensor();
}

void write_ppm(const std::string& path, const Tensor& image) {
  std::ofstream file(path, std::ios::binary);
  file << "P6\n" << image.size(1) << " " << image.size(0) << "\n255\n";
  file.write(reinterpret_cast<const char*>(image.const_data_ptr<uint8_t>()), image.numel());
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void run(const std::string& model, const std::string& rays_path, const std::string& output) {
  const c10::NoGradGuard no_grad;
  const auto field = model.ends_with(".pt2") ? load_aoti(model) : load_torchscript(model);
  const auto rays = read_tensor(rays_path);
  const auto start = std::chrono::steady_clock::now();
  write_ppm(output, draw(field, rays));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::cout << model << ": " << rays.size(1) << "x" << rays.size(0) << " pixels in " << took.count() << " s\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " MODEL.pt|MODEL.pt2 RAYS IMAGE.ppm\n";
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
