"""grid_sample3d."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cppcuda
import torch
from cppcuda.testing.samples import (
    FLOAT_DTYPES,
    LAYOUTS,
    TOLERANCE,
    BadInput,
    Layout,
    OpEntry,
    Spec,
    T,
    register,
    zeros,
)
from hypothesis import strategies as st
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


def like_input(grad: Tensor, size: list[int]) -> Tensor:
    """Stands for an input that is not read."""
    return grad.new_zeros([*grad.shape[:-2], *size, grad.shape[-1]])


def grid_sample3d_backward_reference(
    grad: Tensor,
    input: Tensor | None,
    points: Tensor,
    size: list[int],
    padding_mode: str,
    align_corners: bool,
    output_mask: list[bool],
) -> tuple[Tensor, ...]:
    _, vjp = torch.func.vjp(
        lambda x, p: grid_sample3d_reference(x, p, padding_mode, align_corners),
        like_input(grad, size) if input is None else input,
        points,
    )
    return tuple(g if wanted else grad.new_zeros(0) for g, wanted in zip(vjp(grad), output_mask, strict=True))


def grid_sample3d_double_backward_reference(
    grad: Tensor,
    input: Tensor | None,
    points: Tensor,
    grad_grad_input: Tensor | None,
    grad_grad_points: Tensor,
    size: list[int],
    padding_mode: str,
    align_corners: bool,
    output_mask: list[bool],
) -> tuple[Tensor, ...]:
    _, vjp = torch.func.vjp(
        lambda g, x, p: grid_sample3d_backward_reference(g, x, p, size, padding_mode, align_corners, [True, True]),
        grad,
        like_input(grad, size) if input is None else input,
        points,
    )
    u = like_input(grad, size) if grad_grad_input is None else grad_grad_input
    gradients = vjp((u, grad_grad_points))
    return tuple(g if wanted else grad.new_zeros(0) for g, wanted in zip(gradients, output_mask, strict=True))


# ---------------------------------------------------------------- samples


def _args(
    *batch: int,
    size: Size,
    f: int,
    points: Tensor | None = None,
    mode: str = "zeros",
    align: bool = False,
    reach: float = 1.5,
) -> tuple[Any, ...]:
    """batch: (N,) or (B, N). reach: how far points are from 0, unless they are given."""
    *outer, n = batch
    coordinates = T((*outer, n, 3), wide=True, low=-reach, high=reach, value=points)
    return T((*outer, *size, f)), coordinates, mode, align


def _backward_args(
    *batch: int,
    size: Size,
    f: int,
    points: Tensor | None = None,
    mode: str = "zeros",
    align: bool = False,
    mask: tuple[bool, bool] = (True, True),
    without_input: bool = False,
    reach: float = 1.5,
) -> tuple[Any, ...]:
    input, coordinates, *_ = _args(*batch, size=size, f=f, points=points, reach=reach)
    given = None if without_input else input
    return T((*batch, f)), given, coordinates, list(size), mode, align, list(mask)


def _double_backward_args(
    *batch: int,
    size: Size,
    f: int,
    points: Tensor | None = None,
    mode: str = "zeros",
    align: bool = False,
    mask: tuple[bool, bool, bool] = (True, True, True),
    without_input: bool = False,
    of_points_only: bool = False,
    reach: float = 1.5,
) -> tuple[Any, ...]:
    input, coordinates, *_ = _args(*batch, size=size, f=f, points=points, reach=reach)
    given, second = None if without_input else input, None if of_points_only else input
    directions = T((*batch, 3), wide=True)
    return T((*batch, f)), given, coordinates, second, directions, list(size), mode, align, list(mask)


# gradcheck takes differences, so these points, inside and outside, are at least 0.05 voxels away from every kink: the
# centres of voxels, and where positions are clamped or reflected.
_BASIC: dict[str, dict[str, Any]] = {
    "zeros": {
        "size": (2, 3, 2),
        "points": torch.tensor([[0.31, -0.17, 0.23], [-0.74, 0.47, -0.32], [1.27, -0.86, 0.61]]),
    },
    "border": {
        "size": (2, 1, 3),
        "mode": "border",
        "align": True,
        "points": torch.tensor([[[0.31, -0.17, 0.23], [-1.4, 0.47, -0.32]], [[-0.55, 1.3, 0.81], [0.62, -0.36, -1.2]]]),
    },
    "reflection": {
        "size": (3, 2, 2),
        "mode": "reflection",
        "points": torch.tensor([[0.31, -0.17, 0.23], [1.63, -1.28, 0.47]]),
    },
}
_BATCHES = {"zeros": (3,), "border": (2, 2), "reflection": (2,)}

_SHAPES: dict[str, dict[str, Any]] = {
    **{f"features_{f}": {"batch": (5,), "size": (3, 2, 4), "f": f} for f in (1, 3, 4, 7, 8, 17, 32, 33, 64)},
    **{f"{m}_{a}": {"batch": (40,), "mode": m, "align": a, "reach": 4.0} for m in PADDING_MODES for a in (False, True)},
    **{f"one_voxel_{m}": {"size": (1, 1, 1), "mode": m, "align": m == "reflection"} for m in PADDING_MODES},
    "one_slice": {"size": (1, 5, 3), "mode": "reflection", "align": True},
    "one_column": {"size": (4, 1, 1), "mode": "border"},
    "one_point": {"batch": (1,), "f": 9},
    "many_points": {"batch": (1031,), "size": (7, 9, 8), "f": 5, "mode": "border"},
    "many_points_in_few_voxels": {"batch": (1031,), "size": (2, 2, 1), "f": 3},
    "more_voxels_than_points": {"batch": (3,), "size": (16, 15, 17), "f": 4},
    "no_points": {"batch": (0,)},
    "no_features": {"f": 0},
    "batch": {"batch": (2, 5), "f": 8, "mode": "reflection"},
    "batch_of_one": {"batch": (1, 5), "align": True},
    "no_batches": {"batch": (0, 5)},
    "batch_without_points": {"batch": (2, 0)},
    "batch_of_one_point_each": {"batch": (3, 1)},
}


def _shape(name: str) -> tuple[tuple[int, ...], dict[str, Any]]:
    options = {"batch": (5,), "size": (3, 4, 2), "f": 3, **_SHAPES[name]}
    return options.pop("batch"), options


def _basic(name: str) -> tuple[tuple[int, ...], dict[str, Any]]:
    return _BATCHES[name], {**_BASIC[name], "f": 2}


def _features_first(t: Tensor) -> Tensor:
    """The view of a contiguous volume [..., F, D, H, W]."""
    return t.movedim(-1, -4).contiguous().movedim(-4, -1)


_POINTS_LAYOUTS = ("transposed", "sliced", "expanded")
_STRIDED: dict[str, Any] = {"size": (3, 2, 4), "f": 8, "mode": "border"}


def _layouts() -> Iterator[tuple[str, tuple[Layout | None, ...]]]:
    """Layouts of the input and the points."""
    for name in ("sliced", "offset", "expanded", "expanded_last"):
        yield f"input_{name}", (LAYOUTS[name], None)
    yield "input_features_first", (_features_first, None)
    for name in _POINTS_LAYOUTS:
        yield f"points_{name}", (None, LAYOUTS[name])
    yield "both_sliced", (LAYOUTS["sliced"], LAYOUTS["sliced"])


def _specs() -> Iterator[Spec]:
    for name in _BASIC:
        batch, options = _basic(name)
        yield Spec(f"basic_{name}", _args(*batch, **options), "basic")
    for name in _SHAPES:
        batch, options = _shape(name)
        yield Spec(name, _args(*batch, **options))
    for name, layouts in _layouts():
        yield Spec(name, _args(2, 5, **_STRIDED), "stride", layouts)


_MASKS = {"input": (True, False), "points": (False, True), "neither": (False, False)}
_DOUBLE_MASKS = {
    "grad": (True, False, False),
    "input": (False, True, False),
    "points": (False, False, True),
    "none": (False, False, False),
}


def _backward_specs() -> Iterator[Spec]:
    batch, options = _basic("zeros")
    yield Spec("basic_both", _backward_args(*batch, **options), "basic")
    for name, mask in _MASKS.items():
        yield Spec(f"only_{name}", _backward_args(*batch, **options, mask=mask))
    batch, options = _basic("border")
    alone = {"mask": _MASKS["input"], "without_input": True}
    yield Spec("basic_without_input", _backward_args(*batch, **options, **alone), "basic")
    for name in _SHAPES:
        batch, options = _shape(name)
        yield Spec(name, _backward_args(*batch, **options))
    for name in ("features_7", "zeros_False", "many_points", "no_points", "no_features", "batch"):
        batch, options = _shape(name)
        yield Spec(f"{name}_without_input", _backward_args(*batch, **options, **alone))
    strided = _backward_args(2, 5, **_STRIDED)
    for name in ("transposed", "sliced", "expanded_last"):
        yield Spec(f"grad_{name}", strided, "stride", (LAYOUTS[name], None, None))
    for name, layouts in (("features_first", (_features_first, None)), ("sliced", (LAYOUTS["sliced"],) * 2)):
        yield Spec(f"input_{name}", strided, "stride", (None, *layouts))
    yield Spec("all_offset", strided, "stride", (LAYOUTS["offset"],) * 3)


def _double_backward_specs() -> Iterator[Spec]:
    args = _double_backward_args
    batch, options = _basic("reflection")
    yield Spec("basic_all", args(*batch, **options), "basic")
    yield Spec("of_points", args(*batch, **options, of_points_only=True))
    yield Spec("without_input", args(*batch, **options, without_input=True, mask=_DOUBLE_MASKS["input"]))
    batch, options = _basic("zeros")
    for name, mask in _DOUBLE_MASKS.items():
        yield Spec(f"only_{name}", args(*batch, **options, mask=mask))
    batch, options = _basic("border")
    yield Spec("border", args(*batch, **options))
    for name in (
        *(f"features_{f}" for f in (1, 7, 8, 33)),
        *(f"{m}_{a}" for m in PADDING_MODES for a in (False, True)),
        "one_voxel_zeros",
        "many_points",
        "many_points_in_few_voxels",
        "no_points",
        "no_features",
        "batch",
        "no_batches",
    ):
        batch, options = _shape(name)
        yield Spec(name, args(*batch, **options))
    sliced, transposed = LAYOUTS["sliced"], LAYOUTS["transposed"]
    strided = args(2, 5, **_STRIDED)
    yield Spec("all_sliced", strided, "stride", (sliced,) * 5)
    yield Spec("all_transposed", strided, "stride", (transposed,) * 5)
    yield Spec("input_features_first", strided, "stride", (None, _features_first, None, None, None))
    yield Spec("second_features_first", strided, "stride", (None, None, None, _features_first, None))


_SIZED: dict[str, Any] = {"size": (2, 5, 4), "f": 16}
_sizes = st.tuples(*[st.integers(1, 5)] * 3)
_batches = st.tuples(st.integers(0, 9)) | st.tuples(st.integers(1, 3), st.integers(0, 9))
_options = st.fixed_dictionaries(
    {"size": _sizes, "f": st.integers(0, 20), "mode": st.sampled_from(PADDING_MODES), "align": st.booleans()}
)


@st.composite
def _arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    return _args(*draw(_batches), **draw(_options))


@st.composite
def _backward_arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    mask = draw(st.tuples(st.booleans(), st.booleans()))
    without_input = not mask[1] and draw(st.booleans())
    return _backward_args(*draw(_batches), **draw(_options), mask=mask, without_input=without_input)


@st.composite
def _double_backward_arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    mask = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    without_input = not (mask[0] or mask[2]) and draw(st.booleans())
    options = {**draw(_options), "of_points_only": draw(st.booleans())}
    return _double_backward_args(*draw(_batches), **options, mask=mask, without_input=without_input)


# ---------------------------------------------------------------- bad inputs

_INPUT, _POINTS, _GRAD = (2, 3, 4, 5), (6, 3), (6, 5)


def _bad() -> Iterator[BadInput]:
    op = "grid_sample3d"
    f64, f32, f16, bf16 = FLOAT_DTYPES

    def bad(
        name: str,
        message: str,
        input: tuple[int, ...] = _INPUT,
        points: tuple[int, ...] = _POINTS,
        dtypes: tuple[torch.dtype, ...] = (f32, f32),
        mode: str = "zeros",
    ) -> BadInput:
        return BadInput(name, lambda: (*zeros(input, points, dtypes=dtypes), mode, False), f"{op}: {message}")

    expected = "input must be [D, H, W, F] or [B, D, H, W, F], got"
    yield bad("input_rank_0", f"{expected} []", ())
    yield bad("input_rank_3", f"{expected} [2, 3, 4]", (2, 3, 4))
    yield bad("input_rank_6", f"{expected} [1, 1, 2, 3, 4, 5]", (1, 1, 2, 3, 4, 5))
    yield bad("points_rank_1", "points must be [N, 3], got [3]", points=(3,))
    yield bad("points_last_dim", "points must be [N, 3], got [6, 2]", points=(6, 2))
    yield bad("points_batched", "points must be [N, 3], got [1, 6, 3]", points=(1, 6, 3))
    yield bad("points_not_batched", "points must be [B, N, 3], got [6, 3]", (1, *_INPUT))
    yield bad("points_as_a_grid", "points must be [B, N, 3], got [1, 6, 1, 1, 3]", (1, *_INPUT), (1, 6, 1, 1, 3))
    yield bad("batch", "points must be [B, N, 3] with B = 2, got [3, 6, 3]", (2, *_INPUT), (3, 6, 3))
    yield bad("one_volume_is_not_many", "points must be [B, N, 3] with B = 1, got [2, 6, 3]", (1, *_INPUT), (2, 6, 3))
    expected = "input must have D, H and W of at least 1, got"
    yield bad("no_depth", f"{expected} [0, 3, 4, 5]", (0, 3, 4, 5))
    yield bad("no_height", f"{expected} [2, 0, 4, 5]", (2, 0, 4, 5))
    yield bad("no_width", f"{expected} [2, 3, 0, 5]", (2, 3, 0, 5))
    yield bad("no_width_and_no_points", f"{expected} [2, 3, 0, 5]", (2, 3, 0, 5), (0, 3))
    yield bad("no_depth_in_a_batch", f"{expected} [1, 0, 3, 4, 5]", (1, 0, 3, 4, 5), (1, 6, 3))
    too_wide = (1, 1, 2**30 + 1, 0)
    yield bad("too_wide", f"input must have D, H and W of at most {2**30}, got {list(too_wide)}", too_wide)
    expected = "padding_mode must be 'zeros', 'border' or 'reflection', got"
    for mode in ("constant", "Border", ""):
        yield bad(f"mode_{mode}", f"{expected} '{mode}'", mode=mode)
    expected = "points must be of dtype"
    yield bad("f32_f64", f"{expected} float32, the dtype of input, got float64", dtypes=(f32, f64))
    yield bad("f64_f32", f"{expected} float64, the dtype of input, got float32", dtypes=(f64, f32))
    yield bad("f32_f16", f"{expected} float32, the dtype of input, got float16", dtypes=(f32, f16))
    yield bad("bf16_f16", f"{expected} bfloat16, the dtype of input, or float32, got float16", dtypes=(bf16, f16))


def _bad_backward() -> Iterator[BadInput]:
    op = "_grid_sample3d_backward"
    f64, f32, _, bf16 = FLOAT_DTYPES

    def bad(
        name: str,
        message: str,
        shapes: tuple[tuple[int, ...] | None, ...] = (_GRAD, _INPUT, _POINTS),
        dtypes: tuple[torch.dtype, ...] = (f32,) * 3,
        size: tuple[int, ...] = _INPUT[:3],
        mode: str = "zeros",
        mask: tuple[bool, ...] = (True, True),
    ) -> BadInput:
        def args() -> tuple[Any, ...]:
            pairs = zip(shapes, dtypes, strict=True)
            tensors = (None if s is None else torch.zeros(s, dtype=d) for s, d in pairs)
            return *tensors, list(size), mode, False, list(mask)

        return BadInput(name, args, f"{op}: {message}")

    yield bad("mask_of_one", "output_mask must have 2 entries, got 1", mask=(True,))
    yield bad("mask_of_three", "output_mask must have 2 entries, got 3", mask=(True, True, True))
    yield bad("grad_rank", "grad must be [N, F] or [B, N, F], got [5]", ((5,), _INPUT, _POINTS))
    yield bad("input_rank", "input must be [D, H, W, F], got [2, 3, 4]", (_GRAD, (2, 3, 4), _POINTS))
    yield bad("features", "input must be [D, H, W, F] with F = 5, got [2, 3, 4, 6]", (_GRAD, (2, 3, 4, 6), _POINTS))
    yield bad("points_last_dim", "points must be [N, 3], got [6, 2]", (_GRAD, _INPUT, (6, 2)))
    yield bad("rows", "points must be [N, 3] with N = 6, got [7, 3]", (_GRAD, _INPUT, (7, 3)))
    yield bad(
        "batch",
        "points must be [B, N, 3] with B = 2, got [1, 6, 3]",
        ((2, *_GRAD), (2, *_INPUT), (1, *_POINTS)),
    )
    yield bad("size_of_two", "size must be [D, H, W], got [2, 3]", size=(2, 3))
    yield bad("size_of_another_volume", "input must be [D, H, W, F] with W = 5, got [2, 3, 4, 5]", size=(2, 3, 5))
    yield bad("mode", "padding_mode must be 'zeros', 'border' or 'reflection', got 'reflect'", mode="reflect")
    yield bad("input_dtype", "input must be of dtype float32, the dtype of grad, got float64", dtypes=(f32, f64, f32))
    yield bad(
        "points_dtype",
        "points must be of dtype bfloat16, the dtype of grad, or float32, got float64",
        dtypes=(bf16, bf16, f64),
    )
    yield bad(
        "input_missing",
        "input must be a Tensor if the gradient of points is requested, got None",
        (_GRAD, None, _POINTS),
        mask=(False, True),
    )
    yield bad(
        "size_0_without_input",
        "size must have D, H and W of at least 1, got [2, 0, 4]",
        (_GRAD, None, _POINTS),
        size=(2, 0, 4),
        mask=(True, False),
    )


def _bad_double_backward() -> Iterator[BadInput]:
    op = "_grid_sample3d_double_backward"
    f64, f32, _, bf16 = FLOAT_DTYPES
    correct = (_GRAD, _INPUT, _POINTS, _INPUT, _POINTS)

    def bad(
        name: str,
        message: str,
        shapes: tuple[tuple[int, ...] | None, ...] = correct,
        dtypes: tuple[torch.dtype, ...] = (f32,) * 5,
        size: tuple[int, ...] = _INPUT[:3],
        mode: str = "zeros",
        mask: tuple[bool, ...] = (True, True, True),
    ) -> BadInput:
        def args() -> tuple[Any, ...]:
            pairs = zip(shapes, dtypes, strict=True)
            tensors = (None if s is None else torch.zeros(s, dtype=d) for s, d in pairs)
            return *tensors, list(size), mode, False, list(mask)

        return BadInput(name, args, f"{op}: {message}")

    yield bad("mask_of_two", "output_mask must have 3 entries, got 2", mask=(True, True))
    yield bad("grad_rank", "grad must be [N, F] or [B, N, F], got [5]", ((5,), *correct[1:]))
    yield bad(
        "grad_grad_input_size",
        "grad_grad_input must be [D, H, W, F] with H = 3, got [2, 2, 4, 5]",
        (*correct[:3], (2, 2, 4, 5), _POINTS),
    )
    yield bad(
        "grad_grad_points_rows",
        "grad_grad_points must be [N, 3] with N = 6, got [7, 3]",
        (*correct[:4], (7, 3)),
    )
    yield bad("size_of_another_volume", "input must be [D, H, W, F] with D = 3, got [2, 3, 4, 5]", size=(3, 3, 4))
    yield bad("mode", "padding_mode must be 'zeros', 'border' or 'reflection', got 'none'", mode="none")
    yield bad(
        "grad_grad_points_dtype",
        "grad_grad_points must be of dtype float32, the dtype of points, got bfloat16",
        dtypes=(bf16, bf16, f32, bf16, bf16),
    )
    yield bad(
        "grad_grad_input_dtype",
        "grad_grad_input must be of dtype float32, the dtype of grad, got float64",
        dtypes=(f32, f32, f32, f64, f32),
    )
    for output in ("grad", "points"):
        yield bad(
            f"input_missing_for_{output}",
            f"input must be a Tensor if the gradient of {output} is requested, got None",
            (_GRAD, None, *correct[2:]),
            mask=_DOUBLE_MASKS[output],
        )


# Gradients of points are multiplied by sizes, and so are the roundings of positions in float32.
_TOLERANCE = {**TOLERANCE, torch.float32: {"rtol": 4e-5, "atol": 4e-5}}

register(
    OpEntry(
        name="cppcuda::grid_sample3d",
        mechanism="lookup",
        reference=grid_sample3d_reference,
        oracles=(grid_sample,),
        specs=tuple(_specs()),
        sized=lambda n: _args(n, **_SIZED),
        arguments=_arguments(),
        bad_inputs=tuple(_bad()),
        output_like=("input",),
        function=cppcuda.functional.grid_sample3d,
        module=cppcuda.nn.GridSample3d,
        autocast_dtype=lambda dtypes, autocast: dtypes[0],
        saved_for={0: {1}, 1: {0, 1}},
        deterministic_on_cuda=False,
        backward=OpEntry(
            name="cppcuda::_grid_sample3d_backward",
            reference=grid_sample3d_backward_reference,
            specs=tuple(_backward_specs()),
            sized=lambda n: _backward_args(n, **_SIZED),
            arguments=_backward_arguments(),
            bad_inputs=tuple(_bad_backward()),
            output_like=("grad", "points"),
            autocast_policy=False,
            tolerance=_TOLERANCE,
            saved_for={0: {1, 2}, 1: {0, 2}, 2: {0, 1, 2}},
            deterministic_on_cuda=False,
        ),
    )
)
register(
    OpEntry(
        name="cppcuda::_grid_sample3d_double_backward",
        reference=grid_sample3d_double_backward_reference,
        specs=tuple(_double_backward_specs()),
        sized=lambda n: _double_backward_args(n, **_SIZED),
        arguments=_double_backward_arguments(),
        bad_inputs=tuple(_bad_double_backward()),
        output_like=("grad", "grad", "points"),
        autocast_policy=False,
        tolerance=_TOLERANCE,
        compiled=False,  # compiled second derivatives of grid_sample3d and _grid_sample3d_backward call it
        saved_for={0: {1, 2, 3, 4}, 1: {0, 2, 4}, 2: {0, 1, 2, 3, 4}, 3: {0, 2}, 4: {0, 1, 2}},
        deterministic_on_cuda=False,
    )
)
