"""Arguments with which the operators are tested, and what they are compared with: explicit sums of monomials."""

import math
from functools import cache
from typing import Any

import torch
from cppcuda.testing import BadInput, OpEntry, Spec, T, register, with_layouts, zeros
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


def backward_reference(grad: Tensor, xyz: Tensor, degree: int, normalize: bool = True) -> Tensor:
    return torch.func.vjp(lambda x: reference(x, degree, normalize), xyz)[1](grad)[0]


@cache
def matrices(degree: int) -> Tensor:
    """[3, (degree + 1)^2, degree^2]: what expresses the derivatives in harmonics, found by linear least squares."""
    xyz = torch.randn(4 * (degree + 1) ** 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    xyz /= xyz.norm(dim=-1, keepdim=True)
    lower = reference(xyz, degree - 1, False) if degree > 0 else xyz[:, :0]
    axes = torch.eye(3, dtype=torch.float64).unbind()
    derivatives = [torch.func.jvp(lambda x: reference(x, degree, False), (xyz,), (a.expand_as(xyz),))[1] for a in axes]
    return torch.stack([torch.linalg.lstsq(lower, d).solution.T for d in derivatives])


def partials_reference(harmonics: Tensor, degree: int) -> Tensor:
    return (matrices(degree).to(harmonics) * harmonics[..., None, None, :]).sum(-1)


def partials_transposed_reference(grad: Tensor, degree: int) -> Tensor:
    return (matrices(degree).to(grad) * grad[..., None]).sum((-2, -3))


def args(*shape: int, degree: int, normalize: bool = True) -> tuple[Any, ...]:
    return T((*shape, 3)), degree, normalize  # T: a tensor with random values


def backward_args(*shape: int, degree: int, normalize: bool = True) -> tuple[Any, ...]:
    return T((*shape, (degree + 1) ** 2)), T((*shape, 3)), degree, normalize


def partials_args(*shape: int, degree: int) -> tuple[Any, ...]:
    return T((*shape, degree**2)), degree


def partials_transposed_args(*shape: int, degree: int) -> tuple[Any, ...]:
    return T((*shape, 3, (degree + 1) ** 2)), degree


def specs(make: Any, **more: Any) -> tuple[Spec, ...]:
    return (
        Spec("one_point", make(1, degree=4, **more)),
        Spec("batch", make(2, 19, degree=3, **more)),
        Spec("degree_7", make(5, degree=7, **more)),
        Spec("many", make(1031, degree=2, **more)),
        Spec("empty", make(0, degree=2, **more)),
        *with_layouts(make(3, 4, degree=2, **more)),
    )


def linear_entry(name: str, reference: Any, make: Any, bad_shape: tuple[int, ...], message: str) -> OpEntry:
    return OpEntry(
        name=f"sph::{name}",
        reference=reference,
        specs=(Spec("basic", make(2, degree=2), "basic"), *specs(make)),
        sized=lambda rows: make(rows, degree=2),
        bad_inputs=(BadInput("degree", lambda: (torch.ones(bad_shape), 3), message),),
        saved_for={0: set()},
        roundings=8,
        autocast_policy=False,
    )


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
            *specs(args),
        ),
        sized=lambda rows: args(rows, degree=2),
        bad_inputs=(
            BadInput(
                "coordinates",
                lambda: (torch.ones(4, 2), 1),
                "spherical_harmonics: xyz must be [N, 3] or [B, N, 3], got [4, 2]",
            ),
            BadInput(
                "degree",
                lambda: (torch.ones(4, 3), 21),
                "spherical_harmonics: degree must be between 0 and 20, got 21",
            ),
            BadInput(
                "negative_degree",
                lambda: (torch.ones(4, 3), -1),
                "spherical_harmonics: degree must be between 0 and 20, got -1",
            ),
        ),
        saved_for={0: {0}},  # the gradient of xyz keeps xyz alive
        roundings=8,
        autocast_policy=False,
        backward=OpEntry(
            name="sph::_spherical_harmonics_backward",
            reference=backward_reference,
            specs=(
                Spec("basic", backward_args(3, degree=2), "basic"),
                Spec("basic_solid", backward_args(2, degree=3, normalize=False), "basic"),
                Spec("solid", backward_args(70, degree=5, normalize=False)),
                *specs(backward_args),
            ),
            sized=lambda rows: backward_args(rows, degree=2),
            bad_inputs=(
                BadInput(
                    "size",
                    lambda: (*zeros((5, 8), (5, 3)), 2),
                    "_spherical_harmonics_backward: grad must be [N, LL + 2L + 1] or [B, N, LL + 2L + 1] with L = 2, "
                    "got [5, 8]",
                ),
            ),
            saved_for={0: {1}, 1: {0, 1}},
            roundings=8,
            autocast_policy=False,
        ),
    )
)
register(
    linear_entry(
        "_solid_harmonics_partials",
        partials_reference,
        partials_args,
        (2, 4),
        "_solid_harmonics_partials: harmonics must be [N, LL] or [B, N, LL] with L = 3, got [2, 4]",
    )
)
register(
    linear_entry(
        "_solid_harmonics_partials_transposed",
        partials_transposed_reference,
        partials_transposed_args,
        (2, 3, 9),
        "_solid_harmonics_partials_transposed: grad must be [N, 3, LL + 2L + 1] or [B, N, 3, LL + 2L + 1] with L = 3, "
        "got [2, 3, 9]",
    )
)
