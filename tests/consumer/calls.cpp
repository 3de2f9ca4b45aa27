// The public C++ function, with its gradients.

#include <cppcuda/cppcuda.h>
#include <torch/torch.h>

int main() {
  const auto options = torch::dtype(torch::kFloat64).requires_grad(true);
  const auto feats = torch::rand({5, 8, 16}, options);
  const auto points = torch::zeros({5, 3}, options);
  const auto out = cppcuda::trilinear(feats, points);
  TORCH_CHECK(torch::allclose(out, feats.mean(1)));  // in the middle of a voxel

  // There every corner weighs 1/8, and the slope along an axis is half of what its two faces differ by.
  out.sum().backward();
  TORCH_CHECK(torch::allclose(feats.grad(), torch::full_like(feats, 0.125)));
  const auto faces = feats.detach().unflatten(1, {2, 2, 2}).sum(-1);  // [N, 2, 2, 2]
  const auto slope = [&](int64_t axis) { return (faces.select(axis, 1) - faces.select(axis, 0)).mean({1, 2}) / 2; };
  TORCH_CHECK(torch::allclose(points.grad(), torch::stack({slope(1), slope(2), slope(3)}, 1)));

  try {
    cppcuda::trilinear(feats, {});
    std::abort();
  } catch (const c10::Error& e) {
    TORCH_CHECK(std::string(e.what()).find("trilinear: points must be a Tensor, got an undefined Tensor") == 0);
  }
  std::printf("calls: cppcuda %s, torch %s\n", CPPCUDA_VERSION, cppcuda::torch_version());
}
