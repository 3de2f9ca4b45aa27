"""Tries an installed cppcuda: values and gradients beside plain torch, torch.func, TorchScript, a C++ program.

smoke_test.py [folder]    the folder that the library must be in
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import cppcuda
import torch
from torch.func import hessian, vmap

PROGRAM = """
#include <ATen/ATen.h>
#include <cppcuda/cppcuda.h>
#include <iostream>
int main() {
  const auto feats = at::ones({2, 8, 3});
  std::cout << cppcuda::trilinear(feats, at::zeros({2, 3})).sum().item<double>() << std::endl;
}
"""


def operators() -> None:
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(cppcuda.functional.sigmoid(x), torch.sigmoid(x))
    torch.testing.assert_close(cppcuda.functional.quick_gelu(x), x * torch.sigmoid(1.702 * x))
    image = torch.randn(2, 3, 4, 5)
    expected = torch.nn.functional.interpolate(image, (8, 9), mode="bilinear")
    torch.testing.assert_close(cppcuda.functional.upsample_bilinear2d(image, (8, 9)), expected)
    feats, points = torch.randn(4, 8, 3, dtype=torch.float64), torch.rand(4, 3, dtype=torch.float64) * 1.8 - 0.9
    assert torch.autograd.gradcheck(cppcuda.functional.trilinear, (feats.requires_grad_(), points.requires_grad_()))
    torch.testing.assert_close(
        hessian(lambda v: cppcuda.functional.quick_gelu(v).sum())(x[0]),
        hessian(lambda v: (v * torch.sigmoid(1.702 * v)).sum())(x[0]),
    )
    batched = vmap(cppcuda.functional.trilinear)(feats.detach()[:, None], points.detach()[:, None])
    torch.testing.assert_close(batched[:, 0], cppcuda.functional.trilinear(feats, points).detach())
    cell = cppcuda.nn.LLTMCell(6, 4)
    h, c = cell(torch.randn(2, 6), (torch.zeros(2, 4), torch.zeros(2, 4)))
    (h + c).sum().backward()
    assert cell.weight.grad is not None and cell.weight.grad.abs().sum() > 0
    with tempfile.TemporaryDirectory() as folder:
        scripted = torch.jit.trace(cppcuda.functional.sigmoid, torch.zeros(3))
        torch.jit.save(scripted, f"{folder}/model.pt")
        torch.testing.assert_close(torch.jit.load(f"{folder}/model.pt")(torch.ones(3)), torch.ones(3).sigmoid())


def cpp_program() -> None:
    flags = subprocess.run(
        [sys.executable, "-m", "cppcuda", "--cflags", "--libs"], capture_output=True, text=True, check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "main.cpp").write_text(PROGRAM)
        command = ["c++", "-O0", "main.cpp", *shlex.split(flags.stdout), "-o", "app"]
        subprocess.run(command, cwd=folder, check=True)
        done = subprocess.run([f"{folder}/app"], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "6", done.stdout


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*torch.jit", category=FutureWarning)
    operators()
    if shutil.which("c++"):
        cpp_program()
    path = str(cppcuda.library_path())
    assert path.startswith(sys.argv[1] if len(sys.argv) > 1 else ""), path
    release = ".".join(torch.__version__.split(".")[:2])
    assert cppcuda.config().torch_version.startswith(f"{release}."), cppcuda.config().torch_version
    print(f"smoke test passed: cppcuda {cppcuda.__version__}, torch {torch.__version__}, {path}")
