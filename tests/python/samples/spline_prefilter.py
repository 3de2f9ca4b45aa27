"""spline_prefilter2d and spline_prefilter3d."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cppcuda
import torch
from cppcuda.testing import TOLERANCE, BadInput, OpEntry, Spec, T, register, zeros
from samples.spline_sample import axis_weights
from torch import Tensor

BORDERS = ("mirror", "reflect", "grid-wrap")


def filtered(input: Tensor, axes: int, order: int, border: str, is_adjoint: bool = False) -> Tensor:
    """The solution of the linear equations that the values at all coefficients are, or its adjoint."""
    for d in range(-1 - axes, -1):
        places = torch.arange(input.shape[d], dtype=torch.float64)
        inverse = torch.linalg.inv(axis_weights(places, input.shape[d], order, border))
        matrix = inverse.to(input) if is_adjoint else inverse.to(input).mT
        input = (input.movedim(d, -1) @ matrix).movedim(-1, d)
    return input


def _args(axes: int, *batch: int, size: tuple[int, ...], f: int = 3, order: int = 3, border: str = "mirror") -> Any:
    return T((*batch, *size[:axes], f)), order, border


def _specs(axes: int) -> Iterator[Spec]:
    for k, border in enumerate(BORDERS):
        yield Spec(f"basic_{border}", _args(axes, size=(3, 2, 4), f=2, order=2 + k % 2, border=border), "basic")
        yield Spec(border, _args(axes, size=(9, 7, 4), order=5 - k, border=border))
        yield Spec(f"one_value_{border}", _args(axes, size=(1, 1, 1), border=border))
    yield Spec("linear", _args(axes, size=(3, 4, 2), order=1))
    yield Spec("batch", _args(axes, 2, size=(4, 3, 5), f=20, border="reflect"))
    first = lambda t: t.movedim(-1, 0).contiguous().movedim(0, -1)  # noqa: E731
    yield Spec("features_first", _args(axes, size=(4, 3, 5), f=4), "stride", (first,))


def _bad(op: str, axes: int) -> Iterator[BadInput]:
    size = (4, 3, 5)[:axes]

    def bad(name: str, message: str, size: tuple[int, ...], order: int = 3, border: str = "mirror") -> BadInput:
        return BadInput(name, lambda: (*zeros((*size, 2)), order, border), f"{op}: {message}")

    empty = (0, *size[1:])
    first = "grad" if op.endswith("_backward") else "input"
    yield bad("size_0", f"{first} must have at least one coefficient along each axis, got {[*empty, 2]}", empty)
    yield bad("order", "order must be from 0 to 5, got 6", size, 6)
    yield bad(
        "border", "border must be 'mirror', 'reflect', 'grid-wrap', 'nearest' or 'grid-constant', got 'x'", size, 3, "x"
    )
    for border in ("nearest", "grid-constant"):
        message = (
            f"the border '{border}' has no exact filter. Pad the image by 12 values on each side, filter it with "
            "'mirror', and add 12 to the points, as scipy.ndimage.map_coordinates does"
        )
        yield bad(border, message, size, 3, border)


def _entry(name: str, axes: int, **fields: Any) -> OpEntry:
    is_adjoint = name.endswith("_backward")
    return OpEntry(
        name=f"cppcuda::{name}",
        reference=lambda input, order=3, border="mirror": filtered(input, axes, order, border, is_adjoint),
        specs=tuple(_specs(axes)),
        bad_inputs=tuple(_bad(name, axes)),
        tolerance={**TOLERANCE, torch.float32: {"rtol": 4e-5, "atol": 4e-5}},
        roundings=16,
        **fields,
    )


for axes, function in ((2, cppcuda.functional.spline_prefilter2d), (3, cppcuda.functional.spline_prefilter3d)):
    name = f"spline_prefilter{axes}d"
    backward = _entry(f"_{name}_backward", axes)
    register(_entry(name, axes, mechanism="linear map", function=function, backward=backward))
