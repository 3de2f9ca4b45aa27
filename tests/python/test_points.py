"""Formulas of points: elementwise operators whose tensors have a few values for each element (tests/second_library)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cppcuda.testing import check
from formulas import assert_same, assert_same_derivatives, double, second
from torch import Tensor
from torch.func import hessian, jacfwd, vmap

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def rotate(q: Tensor, v: Tensor) -> Tensor:
    axis, v = torch.broadcast_tensors(q[..., 1:], v)
    twice = 2 * torch.linalg.cross(axis, v)
    return v + q[..., :1] * twice + torch.linalg.cross(axis, twice)


def project(points: Tensor, camera: Tensor, k: Tensor) -> Tensor:
    xy = points[..., :2] / points[..., 2:]
    square = (xy**2).sum(-1, keepdim=True)
    radial = 1 + square * (k[..., :1] + square * (k[..., 1:2] + square * k[..., 2:3]))
    both, tangential = 2 * xy.prod(-1, keepdim=True), k[..., 3:]
    uv = xy * radial + tangential * both + tangential.flip(-1) * (square + 2 * xy**2)
    return camera[..., :2] * uv + camera[..., 2:]


def normalize(v: Tensor) -> Tensor:
    return v / (v * v).sum(-1, keepdim=True).sqrt()


def points(*sizes: int) -> Tensor:
    """In front of the camera, near its axis."""
    return double(*sizes) / 8 + torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64)


REFERENCES: dict[str, Callable[..., Tensor]] = {"rotate": rotate, "project": project, "normalize": normalize}
SAMPLES: list[tuple[str, Callable[[], tuple[Tensor, ...]]]] = [
    ("rotate", lambda: (double(7, 4), double(7, 3))),
    ("rotate", lambda: (double(4), double(70, 3))),
    ("rotate", lambda: (double(5, 1, 4), double(6, 3))),
    ("rotate", lambda: (double(4), double(3))),
    ("rotate", lambda: (double(0, 4), double(3))),
    ("rotate", lambda: (double(4, 7).t(), double(3, 7, 2).permute(2, 1, 0)[:1])),
    ("rotate", lambda: (double(7, 8)[:, ::2], double(7, 3, 2)[..., 1])),
    ("project", lambda: (points(9, 3), double(4), double(5) / 9)),
    ("project", lambda: (points(2, 3, 3), double(2, 1, 4), double(3, 5) / 9)),
    ("normalize", lambda: (double(9, 3),)),
    ("normalize", lambda: (double(3),)),
]


@pytest.mark.parametrize(("name", "sample"), SAMPLES)
def test_derivatives(name: str, sample: Callable[[], tuple[Tensor, ...]]) -> None:
    assert_same_derivatives(getattr(second, name), REFERENCES[name], sample())


@pytest.mark.parametrize(("name", "sample"), [(n, s) for n, s in SAMPLES if s()[0].numel()][::3])
def test_against_finite_differences(name: str, sample: Callable[[], tuple[Tensor, ...]]) -> None:
    inputs = tuple(t.clone().requires_grad_() for t in sample())
    function = getattr(second, name)
    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, inputs, check_fwd_over_rev=True, check_rev_over_rev=True)


@pytest.mark.parametrize("dims", [(0, None), (None, 0), (0, 0), (1, 1), (-1, 0)])
def test_vmap(dims: tuple[int | None, ...]) -> None:
    def batched(t: Tensor, dim: int | None) -> Tensor:
        return t if dim is None else torch.stack([t, t.cos(), -t], dim)

    inputs = batched(double(6, 4), dims[0]), batched(double(3), dims[1])
    for order in (lambda f: f, jacfwd, hessian):
        assert_same(vmap(order(second.rotate), dims)(*inputs), vmap(order(rotate), dims)(*inputs))


@pytest.mark.parametrize("name", ["rotate", "normalize"])  # the values of samples may be behind the camera of project
@pytest.mark.compiles
def test_every_property(name: str) -> None:
    samples = [tuple(t.float() for t in sample()) for n, sample in SAMPLES if n == name and sample()[0].numel()]
    slow = ["AOTInductor"] if name == "rotate" else ["AOTInductor", "compile", "export", "DTensor"]
    report = check(f"second::{name}", REFERENCES[name], samples[:3], skip=[*slow, "kept alive"])
    assert not report.failed, report


def test_schemas() -> None:
    schemas = {
        second.rotate.default: "rotate(Tensor q, Tensor v) -> Tensor",
        second._rotate_backward.default: "_rotate_backward(Tensor grad, Tensor q, Tensor v, bool[2] output_mask) -> "
        "(Tensor, Tensor)",
    }
    for op, schema in schemas.items():
        assert str(op._schema) == f"second::{schema}"
    assert not hasattr(second, "rotate_")  # q has other sizes than the result


def test_in_place_and_out() -> None:
    v, q = double(6, 3), double(4)
    expected, out, self = second.rotate(q, v), torch.empty(3, 6, dtype=torch.float64).t(), v.clone()
    second.rotate.out(q, v, out=out)
    assert torch.equal(out, expected)
    second.rotate.out(q, self, out=self)
    assert torch.equal(self, expected)
    second.normalize_(self)
    assert torch.equal(self, second.normalize(expected))
    with pytest.raises(RuntimeError, match=r"^rotate: out must be \[6, 3\], the shape of the result, got \[6, 4\]"):
        second.rotate.out(q, v, out=double(6, 4))
    with pytest.raises(RuntimeError, match=r"^rotate: out must be v itself or share no memory with it"):
        memory = double(7, 3)
        second.rotate.out(q, memory[1:], out=memory[:-1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((double(7, 3), double(7, 3)), r"rotate: q must be \[..., 4\], got \[7, 3\]"),
        ((double(4), torch.tensor(1.0).double()), r"rotate: v must be \[..., 3\], got \[\]"),
        (
            (double(7, 4), double(6, 3)),
            r"rotate: v must broadcast with \[7\], the dims before the last ones of q, got \[6\]",
        ),
        ((double(4), double(3).float()), "rotate: v must be of dtype float64, the dtype of q, got float32"),
        ((double(4).long(), double(3)), "rotate: q must be of dtype float64, float32, float16 or bfloat16, got int64"),
    ],
)
def test_bad_arguments(arguments: tuple[Tensor, ...], message: str) -> None:
    for device in ("cpu", "meta"):
        with pytest.raises(RuntimeError, match="^" + message):
            second.rotate(*(t.to(device) for t in arguments))


def test_infinity_and_nan() -> None:
    v = double(40, 3)
    v[3], v[5, 1], v[7] = float("inf"), float("nan"), 0
    torch.testing.assert_close(second.normalize(v), normalize(v), equal_nan=True)
    q = double(40, 4)
    torch.testing.assert_close(second.rotate(q, v), rotate(q, v), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding(dtype: torch.dtype) -> None:
    """Results are rounded once; float32 formulas have a few roundings."""
    q, v, direction = (t.to(dtype) for t in (double(900, 4), double(900, 3), double(900, 3)))
    wide = [t.double().requires_grad_() for t in (q, v)]
    expected = [rotate(*wide), *torch.autograd.grad(rotate(*wide), wide, direction.double())]
    actual = [second.rotate(q, v), *second._rotate_backward(direction, q, v, [True, True])]
    eps = torch.finfo(dtype).eps
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), e, rtol=0.501 * eps, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sums_of_broadcast_gradients(dtype: torch.dtype) -> None:
    """They are rounded once, and their bits depend neither on the number of threads nor on the strides."""
    q, v, direction = (t.to(dtype) for t in (double(300, 1, 4), double(700, 3), double(300, 700, 3)))
    wide = [t.double().requires_grad_() for t in (q, v)]
    expected = torch.autograd.grad(rotate(*wide), wide, direction.double())
    threads, found = torch.get_num_threads(), []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        found.append(second._rotate_backward(direction, q, v, [True, True]))
    torch.set_num_threads(threads)
    strided = second._rotate_backward(direction.mT.contiguous().mT, q, v.t().contiguous().t(), [True, True])
    for gradients in (*found[1:], strided):
        assert all(torch.equal(a, b) for a, b in zip(gradients, found[0], strict=True))
    for actual, correct in zip(found[0], expected, strict=True):
        scale = correct.abs().max().item()
        tolerance = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {}
        torch.testing.assert_close(
            actual.double(), correct, **(tolerance or {"rtol": torch.finfo(dtype).eps, "atol": 2e-5 * scale})
        )


def test_only_requested_gradients_are_computed() -> None:
    q, v = double(5, 4), double(5, 3)
    both = second._rotate_backward(v, q, v, [True, True])
    for mask in ([True, False], [False, True]):
        one = second._rotate_backward(v, q, v, mask)
        for requested, gradient, expected in zip(mask, one, both, strict=True):
            assert torch.equal(gradient, expected) if requested else gradient.numel() == 0
