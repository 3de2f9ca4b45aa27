"""Arguments with which the operators are tested, and what they are compared with: explicit sums of monomials."""

import math
from typing import Any

import torch
from cppcuda.testing import BadInput, OpEntry, Spec, T, derivative, register
from torch import Tensor

import sph


def power(x: Tensor, n: int) -> Tensor:
    return math.prod([x] * n, start=torch.ones_like(x))  # differentiable at 0, which x**n is not


def reference(xyz: Tensor, degree: int, normalize: bool = True) -> Tensor:
    if normalize:
        xyz = xyz / (xyz * xyz).sum(-1, keepdim=True).sqrt()
    x, y, z = xyz.unbind(-1)
    square = x * x + y * y + z * z
    result = []
    for ell in range(degree + 1):
        for m in range(-ell, ell + 1):
            a, zero = abs(m), 0 * x
            # The coefficients of an associated Legendre polynomial, from Rodrigues' formula.
            legendre = sum(
                (
                    (-1) ** k * math.comb(ell, k) * math.comb(2 * (ell - k), ell) * math.perm(ell - 2 * k, a) / 2**ell
                    * power(square, k) * power(z, ell - 2 * k - a)
                    for k in range((ell - a) // 2 + 1)
                ),
                zero,
            )  # fmt: skip
            # The real or the imaginary part of (x + i y)^a. Their terms have even and odd powers of i y.
            around = sum(
                (
                    (-1) ** (p // 2) * math.comb(a, p) * power(x, a - p) * power(y, p)
                    for p in range(0 if m >= 0 else 1, a + 1, 2)
                ),
                zero,
            )
            norm = (
                (2 * ell + 1) / (4 * math.pi) * math.factorial(ell - a) / math.factorial(ell + a) * (1 if m == 0 else 2)
            )
            result.append(math.sqrt(norm) * legendre * around)
    return torch.stack(result, -1)


def matrices(degree: int) -> Tensor:
    """[3, (degree + 1)^2, degree^2]: what expresses the derivatives in harmonics, found by linear least squares."""
    xyz = torch.randn(4 * (degree + 1) ** 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    xyz /= xyz.norm(dim=-1, keepdim=True)
    lower = reference(xyz, degree - 1, False) if degree > 0 else xyz[:, :0]
    axes = torch.eye(3, dtype=torch.float64).unbind()
    derivatives = [torch.func.jvp(lambda x: reference(x, degree, False), (xyz,), (a.expand_as(xyz),))[1] for a in axes]
    return torch.stack([torch.linalg.lstsq(lower, d).solution.T for d in derivatives])


MATRICES = {degree: matrices(degree) for degree in (2, 4, 7)}  # of the samples; here, because vmap allows no randn


def partials_reference(harmonics: Tensor, degree: int) -> Tensor:
    return (MATRICES[degree].to(harmonics) * harmonics[..., None, None, :]).sum(-1)


def partials_transposed_reference(grad: Tensor, degree: int) -> Tensor:
    return (MATRICES[degree].to(grad) * grad[..., None]).sum((-2, -3))


def specs(*shape: int) -> tuple[Spec, ...]:
    """Samples of an operator of one tensor [N, *shape]; 1 and 2 in `shape` stand for degree**2 and (degree + 1)**2."""

    def make(name: str, degree: int, *batch: int, tag: str = "shape") -> Spec:
        sizes = {1: degree**2, 2: (degree + 1) ** 2}
        return Spec(name, (T((*batch, *(sizes.get(s, s) for s in shape))), degree), tag)

    return make("basic", 2, 2, tag="basic"), make("degree_4", 4, 1), make("degree_7", 7, 5)


def bad_degree(degree: int) -> BadInput:
    message = f"spherical_harmonics: degree must be between 0 and 20, got {degree}"
    return BadInput(f"degree_{degree}", lambda: (torch.ones(4, 3), degree), message)


def args(*batch: int, degree: int, normalize: bool = True) -> tuple[Any, ...]:
    return T((*batch, 3)), degree, normalize  # T: a tensor with random values


# Other sizes, layouts, dtypes and wrong calls follow from the declarations in op.h.
register(
    OpEntry(
        name="sph::spherical_harmonics",
        reference=reference,
        function=sph.spherical_harmonics,
        specs=(
            Spec("basic", args(3, degree=2), "basic"),
            Spec("basic_solid", args(2, degree=3, normalize=False), "basic"),
            Spec("basic_batch", args(2, 1, degree=1), "basic"),
            Spec("constant", args(4, degree=0)),
            Spec("solid", args(70, degree=5, normalize=False)),
            Spec("degree_4", args(1, degree=4)),
            Spec("degree_7", args(5, degree=7)),
        ),
        bad_inputs=(bad_degree(21), bad_degree(-1)),
        saved_for={0: {0}},  # the gradient of xyz keeps xyz alive
        roundings=8,
        backward=derivative("sph::_spherical_harmonics_backward", saved_for={0: {1}, 1: {0, 1}}),
    )
)
for name, linear, shape in (
    ("_solid_harmonics_partials", partials_reference, (1,)),
    ("_solid_harmonics_partials_transposed", partials_transposed_reference, (3, 2)),
):
    register(OpEntry(f"sph::{name}", linear, specs(*shape), saved_for={0: set()}, roundings=8))
