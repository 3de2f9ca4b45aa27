"""spline_sample2d and spline_sample3d, and their adjoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import cppcuda
import torch
from cppcuda.testing import TOLERANCE, BadInput, OpEntry, Spec, T, derivative, register, zeros
from torch import Tensor

BORDERS = ("mirror", "reflect", "grid-wrap", "nearest", "grid-constant")


def b_spline(x: Tensor, order: int) -> Tensor:
    """The B-spline around 0, from two of the order below."""
    if order == 0:
        return ((x >= -0.5) & (x < 0.5)).to(x.dtype) + 0 * x
    half = (order + 1) / 2
    return ((x + half) * b_spline(x + 0.5, order - 1) + (half - x) * b_spline(x - 0.5, order - 1)) / order


def place(i: int, size: int, border: str) -> int | None:
    """Where the coefficient i is taken from."""
    if 0 <= i < size:
        return i
    if border == "nearest":
        return min(max(i, 0), size - 1)
    if border == "grid-constant":
        return None
    if border == "grid-wrap":
        return i % size
    period = 2 * size if border == "reflect" else max(2 * size - 2, 1)
    i %= period
    return i if i < size else period - i - (border == "reflect")


def axis_weights(p: Tensor, size: int, order: int, border: str) -> Tensor:
    """The weights of coefficients along an axis, [..., N] -> [..., N, size], of points up to three sizes outside."""
    outside = range(-3 * size - 14, 4 * size + 14)
    places = [place(i, size, border) for i in outside]
    to = torch.tensor([[float(j == k) for k in range(size)] for j in places], dtype=p.dtype, device=p.device)
    steps = p.unsqueeze(-1) - torch.tensor(list(outside), dtype=p.dtype, device=p.device)
    return b_spline(steps, order) @ to


def all_weights(points: Tensor, size: Sequence[int], order: int, border: str) -> Tensor:
    """The weights of all coefficients, [..., N, D * H * W]."""
    weights = axis_weights(points.select(-1, 0), size[0], order, border)
    for k in range(1, len(size)):
        own = axis_weights(points.select(-1, k), size[k], order, border)
        weights = (weights.unsqueeze(-1) * own.unsqueeze(-2)).flatten(-2)
    return weights


def spline_sample_reference(input: Tensor, points: Tensor, order: int = 3, border: str = "mirror") -> Tensor:
    axes = points.shape[-1]
    return all_weights(points, input.shape[-1 - axes : -1], order, border) @ input.flatten(-1 - axes, -2)


def spline_splat_reference(
    values: Tensor, points: Tensor, size: Sequence[int], order: int = 3, border: str = "mirror"
) -> Tensor:
    return (all_weights(points, size, order, border).mT @ values).unflatten(-2, list(size))


# ---------------------------------------------------------------- samples


def _args(
    axes: int,
    *batch: int,
    size: tuple[int, ...] | None = None,
    f: int = 3,
    order: int = 3,
    border: str = "mirror",
    points: Tensor | None = None,
) -> tuple[Any, ...]:
    """batch: (N,) or (B, N). The points are up to two sizes outside, unless they are given."""
    size = size or ((4, 3, 5) if axes == 3 else (5, 4))
    *outer, n = batch
    reach = T((*outer, n, axes), low=-2.0 * min(size), high=3.0 * min(size), value=points)
    return T((*outer, *size, f)), reach, order, border


# gradcheck takes differences, so these points are at least 0.05 away from every knot, at whole numbers for odd orders
# and in the middle between them for even ones.
_POINTS = torch.tensor([[0.31, 1.27, 2.23], [-0.74, 3.37, 0.68], [2.67, -1.36, 4.61]])


def _specs(axes: int) -> Iterator[Spec]:
    points = _POINTS[:, :axes]
    yield Spec("basic", _args(axes, 3, size=(2, 3, 2)[:axes], f=2, points=points), "basic")
    for k, border in enumerate(BORDERS):
        order = (2, 4, 1, 5, 3)[k]
        batch = torch.stack([points[:2], points[1:]])
        yield Spec(
            f"basic_{border}",
            _args(axes, 2, 2, size=(3, 1, 2)[:axes], f=2, order=order, border=border, points=batch),
            "basic",
        )
        yield Spec(border, _args(axes, 40, order=5 - k, border=border))
        yield Spec(f"one_coefficient_{border}", _args(axes, 5, size=(1,) * axes, order=k, border=border))
    yield Spec("many_points", _args(axes, 700, f=9))
    yield Spec("more_coefficients_than_points", _args(axes, 3, size=(9, 8, 11)[:axes]))
    yield Spec("batch", _args(axes, 2, 5, f=8, border="reflect"))
    yield Spec("input_features_first", _args(axes, 2, 5, f=4), "stride", (_features_first(axes), None))


def _features_first(axes: int) -> Any:
    return lambda t: t.movedim(-1, -1 - axes).contiguous().movedim(-1 - axes, -1)


_BORDER = "border must be 'mirror', 'reflect', 'grid-wrap', 'nearest' or 'grid-constant', got"


def _bad(op: str, axes: int) -> Iterator[BadInput]:
    def bad(name: str, message: str, size: tuple[int, ...], order: int = 3, border: str = "mirror") -> BadInput:
        return BadInput(name, lambda: (*zeros((*size, 2), (6, axes)), order, border), f"{op}: {message}")

    size = (4, 3, 5)[:axes]
    for d in range(axes):
        empty = (*size[:d], 0, *size[d + 1 :])
        message = f"input must have at least one coefficient along each axis, got {[*empty, 2]}"
        yield bad(f"size_0_of_axis_{d}", message, empty)
    for order in (-1, 6):
        yield bad(f"order_{order}", f"order must be from 0 to 5, got {order}", size, order)
    for border in ("constant", "Mirror", ""):
        yield bad(f"border_{border}", f"{_BORDER} '{border}'", size, 3, border)


def _bad_derivative(op: str, axes: int, count: int) -> tuple[BadInput, ...]:
    """Wrong calls of the operator `op`, which computes `count` gradients."""
    second = (None, torch.zeros(6, axes)) if count == 3 else ()
    mask = {2: [True, False], 3: [False, True, False]}[count]  # only the gradient that does not read input

    def bad(name: str, message: str, size: list[int], order: int, border: str) -> BadInput:
        make = lambda: (torch.zeros(6, 5), None, torch.zeros(6, axes), *second, size, order, border, mask)  # noqa: E731
        return BadInput(name, make, f"{op}: {message}")

    size = [4, 3, 5][:axes]
    empty = [0, *size[1:]]
    return (
        bad("size_0", f"size must have at least one coefficient along each axis, got {empty}", empty, 3, "mirror"),
        bad("order", "order must be from 0 to 5, got 7", size, 7, "mirror"),
        bad("border", f"{_BORDER} 'none'", size, 3, "none"),
    )


# Weights of order 5 lose digits where they are small.
_TOLERANCE = {**TOLERANCE, torch.float32: {"rtol": 4e-5, "atol": 4e-5}}


def _register(axes: int, function: Any) -> None:
    name = f"spline_sample{axes}d"
    backward = f"_{name}_backward"
    entry = OpEntry(
        name=f"cppcuda::{name}",
        mechanism="lookup",
        reference=spline_sample_reference,
        specs=tuple(_specs(axes)),
        sizes={"D": (1, 3), "H": (1, 2), "W": (1, 4)} if axes == 3 else {"H": (1, 2), "W": (1, 4)},
        bad_inputs=tuple(_bad(name, axes)),
        function=function,
        saved_for={0: {1}, 1: {0, 1}},
        deterministic_on_cuda=False,
        tolerance=_TOLERANCE,
        roundings=4,
        backward=derivative(
            f"cppcuda::{backward}",
            bad_inputs=_bad_derivative(backward, axes, 2),
            tolerance=_TOLERANCE,
            saved_for={0: {1, 2}, 1: {0, 2}, 2: {0, 1, 2}},
        ),
    )
    register(entry)
    second = f"_{name}_double_backward"
    register(
        derivative(
            f"cppcuda::{second}",
            bad_inputs=_bad_derivative(second, axes, 3),
            tolerance=_TOLERANCE,
            saved_for={0: {1, 2, 3, 4}, 1: {0, 2, 4}, 2: {0, 1, 2, 3, 4}, 3: {0, 2}, 4: {0, 1, 2}},
        ).of(entry.backward)
    )


def _splat_specs(axes: int) -> Iterator[Spec]:
    """The samples of spline_sample, with values in place of coefficients."""
    for spec in _specs(axes):
        input, points, order, border = spec.args
        # A basic sample may get other points, whose values may all be outside, or too small for float16.
        if spec.tag != "stride" and (spec.tag, border) != ("basic", "grid-constant"):
            values = T((*points.shape[:-1], input.shape[-1]))
            yield Spec(spec.name, (values, points, list(input.shape[-1 - axes : -1]), order, border), spec.tag)


def _register_splat(axes: int, function: Any) -> None:
    name = f"spline_splat{axes}d"
    size = [4, 3, 5][:axes]

    def bad(what: str, message: str, size: list[int], order: int = 3, border: str = "mirror") -> BadInput:
        return BadInput(what, lambda: (*zeros((6, 2), (6, axes)), size, order, border), f"{name}: {message}")

    register(
        OpEntry(
            name=f"cppcuda::{name}",
            mechanism="lookup",
            reference=spline_splat_reference,
            specs=tuple(_splat_specs(axes)),
            sizes={"N": (1, 5)},
            bad_inputs=(
                bad(
                    "size_0",
                    f"size must have at least one coefficient along each axis, got {[0, *size[1:]]}",
                    [0, *size[1:]],
                ),
                bad("order", "order must be from 0 to 5, got 6", size, 6),
                bad("border", f"{_BORDER} 'none'", size, 3, "none"),
            ),
            function=function,
            deterministic_on_cuda=False,
            tolerance=_TOLERANCE,
            roundings=4,
        )
    )


_register(2, cppcuda.functional.spline_sample2d)
_register(3, cppcuda.functional.spline_sample3d)
_register_splat(2, cppcuda.functional.spline_splat2d)
_register_splat(3, cppcuda.functional.spline_splat3d)
