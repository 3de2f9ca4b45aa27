"""grid_sample3d."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cppcuda
import torch
from cppcuda.testing import TOLERANCE, BadInput, OpEntry, Spec, T, derivative, register, zeros
from torch import Tensor

PADDING_MODES = ("zeros", "border", "reflection")
Size = tuple[int, int, int]


def located(p: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """The positions of coordinates along an axis. torch.where chooses the slope that F.grid_sample has at a kink."""
    x = (p + 1) / 2 * (size - 1) if align_corners else ((p + 1) * size - 1) / 2
    low, span = (0.0, size - 1) if align_corners else (-0.5, size)
    if padding_mode == "reflection" and span > 0:
        distance = torch.where(x < low, low - x, x - low)
        flips = torch.floor(distance.detach() / span)
        rest = torch.fmod(distance, span)
        x = torch.where(flips % 2 == 0, low + rest, low + span - rest)
    if padding_mode != "zeros":
        x = torch.where(x <= 0, torch.zeros_like(x), x)
        x = torch.where(x >= size - 1, torch.full_like(x, size - 1), x)
    return x


def axis_weights(p: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """The weights of the voxels along an axis, [..., N] -> [..., N, size]: those of two neighbours are not zero."""
    x = located(p, size, padding_mode, align_corners)
    lower = torch.floor(x.detach())
    t = (x - lower).unsqueeze(-1)
    steps = torch.arange(size, dtype=x.dtype, device=x.device) - lower.unsqueeze(-1)
    nothing = torch.zeros_like(t)
    return torch.where(steps == 0, 1 - t, torch.where(steps == 1, t, nothing))


def grid_sample3d_reference(
    input: Tensor, points: Tensor, padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    # The sizes are in the order of points: W, H, D.
    sizes = [input.shape[-2], input.shape[-3], input.shape[-4]]
    x, y, z = (axis_weights(points.select(-1, k), s, padding_mode, align_corners) for k, s in enumerate(sizes))
    weights = z[..., :, None, None] * y[..., None, :, None] * x[..., None, None, :]  # [..., N, D, H, W]
    return weights.flatten(-3) @ input.flatten(-4, -2)


def grid_sample(input: Tensor, points: Tensor, padding_mode: str, align_corners: bool) -> Tensor | None:
    """torch's own function, which takes neither empty tensors nor volumes without a batch."""
    if input.numel() == 0 or points.numel() == 0:
        return None
    batched = input.dim() == 5
    volumes, grid = (input, points) if batched else (input[None], points[None])
    out = torch.nn.functional.grid_sample(
        volumes.permute(0, 4, 1, 2, 3),
        grid[:, :, None, None],
        mode="bilinear",
        padding_mode=padding_mode,
        align_corners=align_corners,
    )
    out = out.flatten(2).transpose(1, 2)
    return out if batched else out[0]


# ---------------------------------------------------------------- samples


def _args(
    *batch: int,
    size: Size = (3, 4, 2),
    f: int = 3,
    points: Tensor | None = None,
    mode: str = "zeros",
    align: bool = False,
    reach: float = 1.5,
) -> tuple[Any, ...]:
    """batch: (N,) or (B, N). reach: how far points are from 0, unless they are given."""
    *outer, n = batch
    return T((*outer, *size, f)), T((*outer, n, 3), low=-reach, high=reach, value=points), mode, align


# gradcheck takes differences, so these points, inside and outside, are at least 0.05 voxels away from every kink: the
# centres of voxels, and where positions are clamped or reflected.
_ZEROS = [[0.31, -0.17, 0.23], [-0.74, 0.47, -0.32], [1.27, -0.86, 0.61]]
_BORDER = [[[0.31, -0.17, 0.23], [-1.4, 0.47, -0.32]], [[-0.55, 1.3, 0.81], [0.62, -0.36, -1.2]]]
_REFLECTION = [[0.31, -0.17, 0.23], [1.63, -1.28, 0.47]]
_BASIC = {
    "zeros": _args(3, size=(2, 3, 2), f=2, points=torch.tensor(_ZEROS)),
    "border": _args(2, 2, size=(2, 1, 3), f=2, mode="border", align=True, points=torch.tensor(_BORDER)),
    "reflection": _args(2, size=(3, 2, 2), f=2, mode="reflection", points=torch.tensor(_REFLECTION)),
}
_SHAPES = {
    **{f"{m}_{a}": _args(40, mode=m, align=a, reach=4.0) for m in PADDING_MODES for a in (False, True)},
    **{f"one_voxel_{m}": _args(5, size=(1, 1, 1), mode=m, align=m == "reflection") for m in PADDING_MODES},
    "one_slice": _args(5, size=(1, 5, 3), mode="reflection", align=True),
    "one_column": _args(5, size=(4, 1, 1), mode="border"),
    "many_points": _args(1031, size=(7, 9, 8), f=5, mode="border"),
    "more_voxels_than_points": _args(3, size=(16, 15, 17), f=4),
    "batch": _args(2, 5, f=8, mode="reflection"),
}


def _features_first(t: Tensor) -> Tensor:
    """The view of a contiguous volume [..., F, D, H, W]."""
    return t.movedim(-1, -4).contiguous().movedim(-4, -1)


def _bad() -> Iterator[BadInput]:
    def bad(name: str, message: str, input: tuple[int, ...], mode: str = "zeros", rows: int = 6) -> BadInput:
        points = (*input[:-4], rows, 3)
        return BadInput(name, lambda: (*zeros(input, points), mode, False), f"grid_sample3d: {message}")

    expected = "input must have D, H and W of at least 1, got"
    for size in ((0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (1, 0, 3, 4, 5)):
        yield bad(f"size_{size}", f"{expected} {list(size)}", size)
    yield bad("no_width_and_no_points", f"{expected} [2, 3, 0, 5]", (2, 3, 0, 5), rows=0)
    too_wide = (1, 1, 2**30 + 1, 0)
    yield bad("too_wide", f"input must have D, H and W of at most {2**30}, got {list(too_wide)}", too_wide)
    expected = "padding_mode must be 'zeros', 'border' or 'reflection', got"
    for mode in ("constant", "Border", ""):
        yield bad(f"mode_{mode}", f"{expected} '{mode}'", (2, 3, 4, 5), mode)


def _bad_derivative(op: str, count: int) -> tuple[BadInput, ...]:
    """Wrong calls of the operator `op`, which computes `count` gradients."""
    second = (None, torch.zeros(6, 3)) if count == 3 else ()

    def bad(name: str, message: str, size: list[int], mode: str) -> BadInput:
        mask = {2: [True, False], 3: [False, True, False]}[count]  # only the gradient that does not read input
        make = lambda: (torch.zeros(6, 5), None, torch.zeros(6, 3), *second, size, mode, False, mask)  # noqa: E731
        return BadInput(name, make, f"{op}: {message}")

    expected = "padding_mode must be 'zeros', 'border' or 'reflection', got"
    return (
        bad("size_0", "size must have D, H and W of at least 1, got [2, 0, 4]", [2, 0, 4], "zeros"),
        bad("mode", f"{expected} 'none'", [2, 3, 4], "none"),
    )


# Gradients of points are multiplied by sizes, and so are the roundings of positions in float32.
_TOLERANCE = {**TOLERANCE, torch.float32: {"rtol": 4e-5, "atol": 4e-5}}
_STRIDED = _args(2, 5, size=(3, 2, 4), f=8, mode="border")

GRID_SAMPLE3D = OpEntry(
    name="cppcuda::grid_sample3d",
    mechanism="lookup",
    reference=grid_sample3d_reference,
    oracles=(grid_sample,),
    specs=(
        *(Spec(f"basic_{name}", args, "basic") for name, args in _BASIC.items()),
        *(Spec(name, args) for name, args in _SHAPES.items()),
        Spec("input_features_first", _STRIDED, "stride", (_features_first, None)),
    ),
    sizes={"D": (1, 3), "H": (1, 2), "W": (1, 4)},
    bad_inputs=tuple(_bad()),
    function=cppcuda.functional.grid_sample3d,
    module=cppcuda.nn.GridSample3d,
    saved_for={0: {1}, 1: {0, 1}},
    deterministic_on_cuda=False,
    backward=derivative(
        "cppcuda::_grid_sample3d_backward",
        bad_inputs=_bad_derivative("_grid_sample3d_backward", 2),
        tolerance=_TOLERANCE,
        saved_for={0: {1, 2}, 1: {0, 2}, 2: {0, 1, 2}},
    ),
)
register(GRID_SAMPLE3D)
register(
    derivative(
        "cppcuda::_grid_sample3d_double_backward",
        bad_inputs=_bad_derivative("_grid_sample3d_double_backward", 3),
        tolerance=_TOLERANCE,
        saved_for={0: {1, 2, 3, 4}, 1: {0, 2, 4}, 2: {0, 1, 2, 3, 4}, 3: {0, 2}, 4: {0, 1, 2}},
    ).of(GRID_SAMPLE3D.backward)
)
