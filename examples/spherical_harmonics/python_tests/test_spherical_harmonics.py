"""Compares spherical_harmonics with scipy, e3nn and sphericart, and tests what cppcuda.testing cannot know of."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import sph
from sph.samples.spherical_harmonics import reference

FOLDER = Path(__file__).parents[1]
DEGREES = (0, 1, 2, 3, 6, 10, 20)


def points(rows: int = 50) -> Tensor:
    return torch.randn(rows, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def assert_close(actual: Tensor, expected: Tensor, relative: float = 1e-13) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=relative * max(1, expected.abs().max().item()))


def orders(degree: int) -> list[tuple[int, int]]:
    return [(ell, m) for ell in range(degree + 1) for m in range(-ell, ell + 1)]


@pytest.mark.parametrize("degree", DEGREES)
def test_scipy(degree: int) -> None:
    """scipy's are complex, with a Condon-Shortley phase of (-1)^m."""
    special = pytest.importorskip("scipy.special")
    xyz = points()
    r = xyz.norm(dim=-1).numpy()
    theta, phi = np.arccos(xyz[:, 2].numpy() / r), np.arctan2(xyz[:, 1].numpy(), xyz[:, 0].numpy())
    expected, solid = [], []
    for ell, m in orders(degree):
        y = special.sph_harm_y(ell, abs(m), theta, phi) * (-1) ** m * (1 if m == 0 else math.sqrt(2))
        expected.append(torch.from_numpy(y.imag if m < 0 else y.real))
        solid.append(expected[-1] * torch.from_numpy(r) ** ell)
    assert_close(sph.spherical_harmonics(xyz, degree), torch.stack(expected, -1), 1e-12)
    assert_close(sph.solid_harmonics(xyz, degree), torch.stack(solid, -1), 1e-12)


@pytest.mark.parametrize("degree", [d for d in DEGREES if d <= 11])  # e3nn has no others
def test_e3nn(degree: int) -> None:
    """e3nn's polar axis is y: its harmonics of (x, y, z) are these of (z, x, y)."""
    o3 = pytest.importorskip("e3nn.o3")
    xyz = points()
    for normalize, ours in ((True, sph.spherical_harmonics), (False, sph.solid_harmonics)):
        theirs = o3.spherical_harmonics(list(range(degree + 1)), xyz, normalize, normalization="integral")
        assert_close(ours(xyz[:, [2, 0, 1]], degree), theirs, 1e-12)


@pytest.mark.parametrize("degree", DEGREES)
def test_sphericart(degree: int) -> None:
    """sphericart has the same axes, signs and order."""
    sphericart = pytest.importorskip("sphericart")
    xyz = points()
    for name, ours in (("SphericalHarmonics", sph.spherical_harmonics), ("SolidHarmonics", sph.solid_harmonics)):
        values, gradients, hessians = getattr(sphericart, name)(degree).compute_with_hessians(xyz.numpy())
        assert_close(ours(xyz, degree), torch.from_numpy(values), 1e-12)
        first = torch.func.vmap(torch.func.jacrev(lambda x, f=ours: f(x[None], degree)[0]))
        second = torch.func.vmap(torch.func.jacfwd(torch.func.jacrev(lambda x, f=ours: f(x[None], degree)[0])))
        assert_close(first(xyz).movedim(-1, 1), torch.from_numpy(gradients), 1e-11)
        if degree <= 6:
            assert_close(second(xyz[:5]).movedim(1, -1), torch.from_numpy(hessians[:5]), 1e-11)


def derivatives(f: object, xyz: Tensor, weights: list[Tensor]) -> list[Tensor]:
    """f, and its first three derivatives, each of the sum of the previous one times its weights."""
    x = xyz.clone().requires_grad_()
    results = [f(x)]  # type: ignore[operator]
    for w in weights:
        results.append(torch.autograd.grad((results[-1] * w.expand_as(results[-1])).sum(), x, create_graph=True)[0])
    return results


@pytest.mark.parametrize(("degree", "normalize"), [(1, True), (2, True), (2, False), (3, True), (6, True), (6, False)])
def test_three_derivatives(degree: int, normalize: bool) -> None:
    xyz = points(7)
    weights = [torch.randn(1, n, dtype=torch.float64) for n in ((degree + 1) ** 2, 3, 3)]
    actual = derivatives(lambda x: sph.spherical_harmonics(x, degree, normalize), xyz, weights)
    expected = derivatives(lambda x: reference(x, degree, normalize), xyz, weights)
    for a, e in zip(actual, expected, strict=True):
        assert_close(a, e, 1e-10)


@pytest.mark.parametrize("degree", [0, 4])
def test_laplace(degree: int) -> None:
    """Solid harmonics solve Laplace's equation."""
    hessian = torch.func.vmap(torch.func.hessian(lambda x: sph.solid_harmonics(x[None], degree)[0]))(points(9))
    assert_close(hessian.diagonal(dim1=-2, dim2=-1).sum(-1), torch.zeros(9, (degree + 1) ** 2, dtype=torch.float64))


def test_rotation() -> None:
    """The sum of the squares of a degree's harmonics is (2 l + 1) / (4 pi) in every direction."""
    values = sph.spherical_harmonics(points(), 20)
    for ell in range(21):
        power = (values[:, ell**2 : (ell + 1) ** 2] ** 2).sum(-1)
        assert_close(power, torch.full_like(power, (2 * ell + 1) / (4 * math.pi)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_origin(dtype: torch.dtype) -> None:
    """The origin has no direction: harmonics and derivatives are zero there, but for the constant one."""
    xyz = torch.zeros(2, 3, dtype=dtype)
    xyz[1] = torch.tensor([1.0, 2.0, 3.0])
    constant = torch.zeros(16, dtype=dtype)
    constant[0] = math.sqrt(1 / (4 * math.pi))
    values, *gradients = derivatives(lambda x: sph.spherical_harmonics(x, 3), xyz, [torch.ones((), dtype=dtype)] * 3)
    torch.testing.assert_close(values[0], constant)
    for gradient in gradients:
        assert (gradient[0] == 0).all() and gradient[1].isfinite().all() and (gradient[1] != 0).any()


def test_any_number_of_rows() -> None:
    """The last block of the CPU kernels has fewer points than a register has lanes."""
    xyz = points(37)
    expected, gradient = (
        sph.spherical_harmonics(xyz, 5),
        derivatives(lambda x: sph.spherical_harmonics(x, 5), xyz, [torch.ones(())])[1],
    )
    for rows in range(37):
        actual, grad = derivatives(lambda x: sph.spherical_harmonics(x, 5), xyz[:rows], [torch.ones(())])
        assert torch.equal(actual, expected[:rows]) and torch.equal(grad, gradient[:rows])


CHECK_EVERY_DTYPE = """
import torch, sph
from sph.samples.spherical_harmonics import reference
for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
    tolerance = 50 * torch.finfo(dtype).eps
    for rows, degree, normalize in ((1, 2, True), (37, 5, False), (64, 7, True)):
        xyz = torch.randn(rows, 3).to(dtype).requires_grad_()
        exact = xyz.detach().double().requires_grad_()
        actual, expected = sph.spherical_harmonics(xyz, degree, normalize), reference(exact, degree, normalize)
        grad = torch.randn_like(actual)
        pairs = (actual, expected), (
            torch.autograd.grad(actual, xyz, grad)[0], torch.autograd.grad(expected, exact, grad.double())[0]
        )
        for a, e in pairs:
            torch.testing.assert_close(a.double(), e, rtol=tolerance, atol=tolerance * e.abs().max().item())
print(torch.backends.cpu.get_cpu_capability())
"""


@pytest.mark.parametrize(("capability", "name"), [("default", "DEFAULT"), ("avx2", "AVX2")])
def test_instruction_sets(capability: str, name: str) -> None:
    """Processors with less than this one has."""
    env = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
    done = subprocess.run([sys.executable, "-c", CHECK_EVERY_DTYPE], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if done.stdout.strip() != name:
        pytest.skip(f"the processor has no {name}")


def test_line_counts() -> None:
    """README.md has what scripts/count_lines prints."""
    counts = subprocess.run([FOLDER / "scripts/count_lines"], check=True, capture_output=True, text=True).stdout
    assert counts.strip() in (FOLDER / "README.md").read_text()
