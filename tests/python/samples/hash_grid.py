"""hash_grid."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import cppcuda
import torch
from cppcuda.testing.samples import (
    FLOAT_DTYPES,
    LAYOUTS,
    SIXTEEN_BIT,
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
from torch import Tensor, nn

# ---------------------------------------------------------------- references

PRIMES = (1, 2654435761, 805459861, 3674653429)
BITS = 2**32 - 1


class Grid(NamedTuple):
    """The arguments after the tensors."""

    n_levels: int = 16
    n_features_per_level: int = 2
    log2_hashmap_size: int = 19
    base_resolution: int = 16
    per_level_scale: float = 2.0
    interpolation: str = "Linear"


class Level(NamedTuple):
    scale: float
    resolution: int
    first_row: int
    rows: int
    is_hashed: bool


def float32(x: float) -> float:
    return torch.tensor(x, dtype=torch.float32).item()


# The functions that tiny-cuda-nn calls on the host; their last bit is not always that of the exact result.
LIBM = ctypes.CDLL(None)
for f in (LIBM.log2f, LIBM.exp2f):
    f.restype, f.argtypes = ctypes.c_float, [ctypes.c_float]


@functools.cache
def levels_of(axes: int, grid: Grid) -> tuple[Level, ...]:
    """The scale is rounded to float32 after each operation. Nothing else is rounded, as Python's integers do not
    overflow."""
    levels, first_row = [], 0
    log2_growth = LIBM.log2f(grid.per_level_scale)
    for level in range(grid.n_levels):
        growth = LIBM.exp2f(float32(level * log2_growth))
        scale = float32(float32(growth * grid.base_resolution) - 1)
        resolution = math.ceil(scale) + 1
        vertices = resolution**axes
        rows = min(-(-vertices // 8) * 8, 2**grid.log2_hashmap_size)
        levels.append(Level(scale, resolution, first_row, rows, vertices > rows))
        first_row += rows
    return tuple(levels)


def count_parameters(axes: int, grid: Grid) -> int:
    last = levels_of(axes, grid)[-1]
    return (last.first_row + last.rows) * grid.n_features_per_level


def constants_of(axes: int, grid: Grid) -> tuple[Tensor, ...]:
    """Scales [L, 1] and, with the last dims L, corners and axes, strides, first rows, rows and whether levels are
    hashed."""
    levels = levels_of(axes, grid)
    strides = [[[0 if level.is_hashed else level.resolution**d for d in range(axes)]] for level in levels]
    numbers = ([[of_level] for of_level in column] for column in list(zip(*levels, strict=True))[2:])
    return torch.tensor([[level.scale] for level in levels]), torch.tensor(strides), *map(torch.tensor, numbers)


def cells_of(points: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """The near vertices of the cells of points at each level, and the positions in them: [..., L, D]."""
    scale = constants_of(points.shape[-1], grid)[0]
    position = points.unsqueeze(-2) * scale.to(points) + 0.5
    floor = torch.floor(position.detach())
    return torch.where(floor.abs() < 2**31, floor, torch.zeros_like(floor)).long(), position - floor


def rows_of(vertex: Tensor, grid: Grid) -> Tensor:
    """The rows of vertices [..., L, corners, D], whose coordinates have 32 bits, so that no product overflows 64."""
    axes = vertex.shape[-1]
    _, strides, first_rows, rows, is_hashed = (t.to(vertex.device) for t in constants_of(axes, grid))
    dense, hashed = torch.zeros_like(vertex[..., 0]), torch.zeros_like(vertex[..., 0])
    for d in range(axes):
        dense = dense + vertex[..., d] * strides[..., d]
        hashed = hashed ^ (vertex[..., d] * PRIMES[d] & BITS)
    return first_rows + torch.where(is_hashed, hashed, dense & BITS) % rows


def hash_grid_reference(params: Tensor, points: Tensor, *arguments: Any) -> Tensor:
    """All corners of all levels at once."""
    grid, axes = Grid(*arguments), points.shape[-1]
    vertex, far = cells_of(points, grid)
    if grid.interpolation == "Smoothstep":
        far = far * far * (3 - 2 * far)
    corners = torch.tensor(list(itertools.product((0, 1), repeat=axes)), device=points.device)
    rows = rows_of(vertex.unsqueeze(-2) + corners, grid)
    factors = torch.where(corners == 1, far.unsqueeze(-2), 1 - far.unsqueeze(-2))
    weights = math.prod(factors.unbind(-1))
    table = params.unflatten(-1, (params.shape[-1] // grid.n_features_per_level, grid.n_features_per_level))
    flat = rows.flatten(-3).unsqueeze(-1)
    found = table.gather(-2, flat.expand(*flat.shape[:-1], table.shape[-1])).unflatten(-2, rows.shape[-3:])
    return (weights.unsqueeze(-1) * found).sum(-2).flatten(-2)


def hash_grid_backward_reference(
    grad: Tensor, params: Tensor | None, points: Tensor, size: list[int], *arguments: Any
) -> tuple[Tensor, ...]:
    *grid, output_mask = arguments
    if params is None:  # the gradient of params does not read them
        params = grad.new_zeros(*grad.shape[:-2], *size)
    _, vjp = torch.func.vjp(lambda t, p: hash_grid_reference(t, p, *grid), params, points)
    return tuple(g if wanted else grad.new_zeros(0) for g, wanted in zip(vjp(grad), output_mask, strict=True))


def hash_grid_double_backward_reference(
    grad: Tensor,
    params: Tensor | None,
    points: Tensor,
    grad_grad_params: Tensor | None,
    grad_grad_points: Tensor,
    size: list[int],
    *arguments: Any,
) -> tuple[Tensor, ...]:
    *grid, output_mask = arguments
    like_params = grad.new_zeros(*grad.shape[:-2], *size)
    _, vjp = torch.func.vjp(
        lambda g, t, p: hash_grid_backward_reference(g, t, p, size, *grid, [True, True]),
        grad,
        like_params if params is None else params,  # the gradient of params does not read them
        points,
    )
    gradients = vjp((like_params if grad_grad_params is None else grad_grad_params, grad_grad_points))
    return tuple(g if wanted else grad.new_zeros(0) for g, wanted in zip(gradients, output_mask, strict=True))


class OnTensors(nn.Module):
    """The function as a module of params too; cppcuda.nn.HashGrid has its own tests."""

    def __init__(
        self,
        n_levels: int,
        n_features_per_level: int,
        log2_hashmap_size: int,
        base_resolution: int,
        per_level_scale: float,
        interpolation: str,
    ) -> None:
        super().__init__()
        self.n_levels = n_levels
        self.n_features_per_level = n_features_per_level
        self.log2_hashmap_size = log2_hashmap_size
        self.base_resolution = base_resolution
        self.per_level_scale = per_level_scale
        self.interpolation = interpolation

    def forward(self, params: Tensor, points: Tensor) -> Tensor:
        return cppcuda.functional.hash_grid(
            params,
            points,
            self.n_levels,
            self.n_features_per_level,
            self.log2_hashmap_size,
            self.base_resolution,
            self.per_level_scale,
            self.interpolation,
        )


# ---------------------------------------------------------------- samples


def away_from_kinks(*batch: int, axes: int, grid: Grid, seed: int = 0) -> Tensor:
    """Points in and around [0, 1] that are at least 0.06 cells away from every vertex of every level: gradcheck takes
    differences, and at a vertex the derivatives of linear interpolation jump, as do the third ones of Smoothstep."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.empty(0, dtype=torch.float64)
    while len(found) < math.prod(batch) * axes:
        p = torch.rand(1000, generator=generator, dtype=torch.float64) * 1.6 - 0.3
        _, far = cells_of(p.unsqueeze(-1), grid)
        found = torch.cat([found, p[((far - 0.5).abs() < 0.44).flatten(1).all(1)]])
    return found[: math.prod(batch) * axes].reshape(*batch, axes)


def _args(*batch: int, axes: int, grid: Grid, points: Tensor | None = None) -> tuple[Any, ...]:
    """batch: (N,) or (B, N)."""
    params = T((*batch[:-1], count_parameters(axes, grid)))
    return params, T((*batch, axes), wide=True, low=-0.5, high=1.5, value=points), *grid


def _backward_args(
    *batch: int,
    axes: int,
    grid: Grid,
    points: Tensor | None = None,
    mask: tuple[bool, bool] = (True, True),
    without_params: bool = False,
) -> tuple[Any, ...]:
    params, p, *_ = _args(*batch, axes=axes, grid=grid, points=points)
    grad = T((*batch, grid.n_levels * grid.n_features_per_level))
    return grad, None if without_params else params, p, [params.shape[-1]], *grid, list(mask)


def _double_backward_args(
    *batch: int,
    axes: int,
    grid: Grid,
    points: Tensor | None = None,
    mask: tuple[bool, bool, bool] = (True, True, True),
    without_params: bool = False,
    of_points_only: bool = False,
) -> tuple[Any, ...]:
    grad, params, p, size, *_ = _backward_args(*batch, axes=axes, grid=grid, points=points)
    directions = T((*batch, axes), wide=True)
    given, second = None if without_params else params, None if of_points_only else params
    return grad, given, p, second, directions, size, *grid, list(mask)


# The first level is dense, in 2 dims with rows that no vertex has, and the second one is hashed. Scales are small,
# because each derivative is multiplied by them: the third ones of a fine grid have few correct digits.
_BASIC: dict[str, dict[str, Any]] = {
    "linear": {"batch": (3,), "axes": 3, "grid": Grid(2, 2, 3, 2, 1.5)},
    "smooth_batch": {"batch": (2, 2), "axes": 2, "grid": Grid(2, 1, 3, 2, 1.3, "Smoothstep")},
}

# In 3 dims: 2^3 and 3^3 vertices, the latter with rows that no vertex has, 4^3, and 6^3, which is hashed.
_GRID = Grid(4, 2, 6, 2, 1.4)
_SHAPES: dict[str, dict[str, Any]] = {
    **{
        f"{axes}_dims_{features}_features{'_smooth' * (interpolation == 'Smoothstep')}": {
            "batch": (7,),
            "axes": axes,
            "grid": Grid(3, features, 5, 2, 1.4, interpolation),
        }
        for axes, features, interpolation in itertools.product((2, 3, 4), (1, 2, 4, 8), ("Linear", "Smoothstep"))
    },
    "all_dense": {"grid": Grid(3, 2, 12, 3, 1.3)},
    "all_hashed": {"grid": Grid(3, 2, 3, 3, 1.2)},
    "one_level": {"grid": Grid(1, 4, 6, 3, 2.0)},
    "many_levels": {"grid": Grid(33, 1, 4, 2, 1.03, "Smoothstep"), "axes": 2},
    "two_rows": {"grid": Grid(2, 2, 1, 2, 1.5)},
    "one_vertex": {"grid": Grid(2, 2, 4, 1, 2.0)},
    "coarser_levels": {"grid": Grid(3, 2, 6, 4, 0.7)},
    "one_point": {"batch": (1,)},
    "many_points": {"batch": (1031,)},
    "no_points": {"batch": (0,)},
    "batch": {"batch": (2, 5)},
    "batch_smooth_4d": {"batch": (2, 9), "axes": 4, "grid": Grid(2, 2, 5, 2, 2.0, "Smoothstep")},
    "batch_of_one": {"batch": (1, 5)},
    "no_batches": {"batch": (0, 5)},
    "batch_without_points": {"batch": (2, 0)},
    "batch_of_one_point_each": {"batch": (3, 1)},
}
_SOME_SHAPES = (
    "2_dims_1_features",
    "3_dims_4_features_smooth",
    "4_dims_8_features",
    "all_dense",
    "many_levels",
    "many_points",
    "no_points",
    "batch",
)


def _shape(name: str) -> tuple[tuple[int, ...], dict[str, Any]]:
    options = {"batch": (5,), "axes": 3, "grid": _GRID, **_SHAPES[name]}
    return options.pop("batch"), options


def _basic(name: str) -> tuple[tuple[int, ...], dict[str, Any]]:
    options = dict(_BASIC[name])
    batch = options.pop("batch")
    return batch, {**options, "points": away_from_kinks(*batch, **options)}


_STRIDED: dict[str, Any] = {"axes": 3, "grid": _GRID}


def _layouts() -> Iterator[tuple[str, tuple[Layout | None, ...]]]:
    """Layouts of params [B, P] and points [B, N, D]."""
    for name in ("transposed", "sliced", "expanded", "offset"):
        yield f"params_{name}", (LAYOUTS[name], None)
    for name in ("transposed", "sliced", "expanded", "expanded_last", "offset"):
        yield f"points_{name}", (None, LAYOUTS[name])
    yield "both_sliced", (LAYOUTS["sliced"],) * 2


def _specs() -> Iterator[Spec]:
    for name in _BASIC:
        batch, options = _basic(name)
        yield Spec(f"basic_{name}", _args(*batch, **options), "basic")
    for name in _SHAPES:
        batch, options = _shape(name)
        yield Spec(name, _args(*batch, **options))
    for name, layouts in _layouts():
        yield Spec(name, _args(2, 5, **_STRIDED), "stride", layouts)
    yield Spec("sliced_without_a_batch", _args(5, **_STRIDED), "stride", (LAYOUTS["sliced"],) * 2)


_MASKS = {"params": (True, False), "points": (False, True), "neither": (False, False)}
_DOUBLE_MASKS = {
    "grad": (True, False, False),
    "params": (False, True, False),
    "points": (False, False, True),
    "none": (False, False, False),
}


def _backward_specs() -> Iterator[Spec]:
    batch, options = _basic("linear")
    yield Spec("basic_both", _backward_args(*batch, **options), "basic")
    for name, mask in _MASKS.items():
        yield Spec(f"only_{name}", _backward_args(*batch, **options, mask=mask))
    alone = {"mask": _MASKS["params"], "without_params": True}
    batch, options = _basic("smooth_batch")
    yield Spec("basic_without_params", _backward_args(*batch, **options, **alone), "basic")
    for name in _SHAPES:
        batch, options = _shape(name)
        yield Spec(name, _backward_args(*batch, **options))
    for name in _SOME_SHAPES:
        batch, options = _shape(name)
        yield Spec(f"{name}_without_params", _backward_args(*batch, **options, **alone))
    strided = _backward_args(2, 5, **_STRIDED)
    for name in ("transposed", "sliced", "expanded", "expanded_last"):
        yield Spec(f"grad_{name}", strided, "stride", (LAYOUTS[name], None, None))
    yield Spec("all_sliced", strided, "stride", (LAYOUTS["sliced"],) * 3)
    yield Spec("all_offset", strided, "stride", (LAYOUTS["offset"],) * 3)


def _double_backward_specs() -> Iterator[Spec]:
    args = _double_backward_args
    batch, options = _basic("smooth_batch")
    yield Spec("basic_all", args(*batch, **options), "basic")
    batch, options = _basic("linear")
    yield Spec("linear", args(*batch, **options))
    yield Spec("of_points", args(*batch, **options, of_points_only=True))
    yield Spec("without_params", args(*batch, **options, without_params=True, mask=_DOUBLE_MASKS["params"]))
    for name, mask in _DOUBLE_MASKS.items():
        yield Spec(f"only_{name}", args(*batch, **options, mask=mask))
    for name in (*_SOME_SHAPES, "4_dims_2_features_smooth", "one_vertex", "batch_smooth_4d", "no_batches"):
        batch, options = _shape(name)
        yield Spec(name, args(*batch, **options))
    strided = args(2, 5, **_STRIDED)
    yield Spec("all_sliced", strided, "stride", (LAYOUTS["sliced"],) * 5)
    yield Spec("all_transposed", strided, "stride", (LAYOUTS["transposed"],) * 5)


_SIZED: dict[str, Any] = {"axes": 3, "grid": Grid(3, 4, 4, 2, 1.2)}
_batches = st.tuples(st.integers(0, 9)) | st.tuples(st.integers(1, 3), st.integers(0, 9))
_grids = st.builds(
    Grid,
    st.integers(1, 3),
    st.sampled_from((1, 2, 4, 8)),
    st.integers(1, 7),
    st.integers(1, 3),
    st.sampled_from((0.8, 1.0, 1.2, math.sqrt(2))),
    st.sampled_from(("Linear", "Smoothstep")),
)
_options = st.fixed_dictionaries({"axes": st.integers(2, 4), "grid": _grids})


@st.composite
def _arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    return _args(*draw(_batches), **draw(_options))


@st.composite
def _backward_arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    mask = draw(st.tuples(st.booleans(), st.booleans()))
    without_params = not mask[1] and draw(st.booleans())
    return _backward_args(*draw(_batches), **draw(_options), mask=mask, without_params=without_params)


@st.composite
def _double_backward_arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    mask = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    without_params = not (mask[0] or mask[2]) and draw(st.booleans())
    options = {**draw(_options), "of_points_only": draw(st.booleans())}
    return _double_backward_args(*draw(_batches), **options, mask=mask, without_params=without_params)


# ---------------------------------------------------------------- bad inputs

_VALID = Grid(2, 2, 5, 2, 2.0)
_COUNT = count_parameters(3, _VALID)  # 80
_GRAD, _PARAMS, _POINTS = (6, 4), (_COUNT,), (6, 3)
F64, F32, F16, BF16 = FLOAT_DTYPES


def _bad_grids() -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield "no_levels", "n_levels must be from 1 to 128, got 0", {"n_levels": 0}
    yield "129_levels", "n_levels must be from 1 to 128, got 129", {"n_levels": 129}
    for count in (0, 3, 16, -2):
        text = f"n_features_per_level must be 1, 2, 4 or 8, got {count}"
        yield f"{count}_features", text, {"n_features_per_level": count}
    for value in (0, 31, -1):
        text = f"log2_hashmap_size must be from 1 to 30, got {value}"
        yield f"log2_hashmap_size_{value}", text, {"log2_hashmap_size": value}
    for value in (0, -3, 2**30 + 1):
        text = f"base_resolution must be from 1 to {2**30}, got {value}"
        yield f"base_resolution_{value}", text, {"base_resolution": value}
    for value, printed in ((0.0, "0"), (-1.5, "-1.5"), (math.inf, "inf")):
        text = f"per_level_scale must be positive and finite, got {printed}"
        yield f"per_level_scale_{printed}", text, {"per_level_scale": value}
    text = f"level 1 must have at most {2**30} vertices per axis, got 2e+10"
    yield "too_fine", text, {"per_level_scale": 1e10}
    for mode in ("Nearest", "linear", ""):
        text = f"interpolation must be 'Linear' or 'Smoothstep', got '{mode}'"
        yield f"interpolation_{mode}", text, {"interpolation": mode}


def _bad() -> Iterator[BadInput]:
    def bad(
        name: str,
        message: str,
        params: tuple[int, ...] = _PARAMS,
        points: tuple[int, ...] = _POINTS,
        dtypes: tuple[torch.dtype, ...] = (F32, F32),
        **grid: Any,
    ) -> BadInput:
        arguments = _VALID._replace(**grid)
        return BadInput(name, lambda: (*zeros(params, points, dtypes=dtypes), *arguments), f"hash_grid: {message}")

    expected = "params must be [P] or [B, P], got"
    yield bad("params_rank_0", f"{expected} []", ())
    yield bad("params_rank_3", f"{expected} [1, 1, {_COUNT}]", (1, 1, _COUNT))
    yield bad("points_rank_1", "points must be [N, D], got [3]", points=(3,))
    yield bad("points_batched", "points must be [N, D], got [1, 6, 3]", points=(1, 6, 3))
    yield bad("points_not_batched", "points must be [B, N, D], got [6, 3]", (1, _COUNT))
    yield bad("batch", "points must be [B, N, D] with B = 2, got [3, 6, 3]", (2, _COUNT), (3, 6, 3))
    yield bad("one_grid_is_not_many", "points must be [B, N, D] with B = 1, got [2, 6, 3]", (1, _COUNT), (2, 6, 3))
    expected = "points must have 2, 3 or 4 coordinates, got"
    for axes in (0, 1, 5):
        yield bad(f"{axes}_coordinates", f"{expected} [6, {axes}]", points=(6, axes))
    expected = f"params must have {_COUNT} entries for this grid, got"
    yield bad("one_parameter_too_few", f"{expected} {_COUNT - 1}", (_COUNT - 1,))
    yield bad("one_row_too_many", f"{expected} {_COUNT + 2}", (_COUNT + 2,))
    yield bad("no_parameters", f"{expected} 0", (0,))
    yield bad("parameters_without_points", f"{expected} 5", (5,), (0, 3))
    in_2d = count_parameters(2, _VALID)
    yield bad("of_3_dims", f"params must have {in_2d} entries for this grid, got {_COUNT}", points=(6, 2))
    for name, message, grid in _bad_grids():
        yield bad(name, message, **grid)
    expected = "points must be of dtype"
    yield bad("f32_f64", f"{expected} float32, the dtype of params, got float64", dtypes=(F32, F64))
    yield bad("f64_f32", f"{expected} float64, the dtype of params, got float32", dtypes=(F64, F32))
    yield bad("f32_f16", f"{expected} float32, the dtype of params, got float16", dtypes=(F32, F16))
    yield bad("bf16_f16", f"{expected} bfloat16, the dtype of params, or float32, got float16", dtypes=(BF16, F16))


def _bad_backward() -> Iterator[BadInput]:
    def bad(
        name: str,
        message: str,
        shapes: tuple[tuple[int, ...] | None, ...] = (_GRAD, _PARAMS, _POINTS),
        dtypes: tuple[torch.dtype, ...] = (F32,) * 3,
        size: tuple[int, ...] = _PARAMS,
        mask: tuple[bool, ...] = (True, True),
        **grid: Any,
    ) -> BadInput:
        arguments = _VALID._replace(**grid)

        def args() -> tuple[Any, ...]:
            pairs = zip(shapes, dtypes, strict=True)
            tensors = (None if s is None else torch.zeros(s, dtype=d) for s, d in pairs)
            return *tensors, list(size), *arguments, list(mask)

        return BadInput(name, args, f"_hash_grid_backward: {message}")

    yield bad("mask_of_one", "output_mask must have 2 entries, got 1", mask=(True,))
    yield bad("mask_of_three", "output_mask must have 2 entries, got 3", mask=(True, True, True))
    yield bad("grad_rank", "grad must be [N, LC] or [B, N, LC], got [4]", ((4,), _PARAMS, _POINTS))
    yield bad("columns", "grad must be [N, LC] or [B, N, LC] with L = 2, C = 2, got [6, 5]", ((6, 5), _PARAMS, _POINTS))
    yield bad("params_rank", f"params must be [P], got [1, {_COUNT}]", (_GRAD, (1, _COUNT), _POINTS))
    yield bad("params_size", f"params must be [P] with P = {_COUNT}, got [50]", (_GRAD, (50,), _POINTS))
    yield bad("rows", "points must be [N, D] with N = 6, got [7, 3]", (_GRAD, _PARAMS, (7, 3)))
    yield bad(
        "batch",
        "points must be [B, N, D] with B = 2, got [1, 6, 3]",
        ((2, *_GRAD), (2, *_PARAMS), (1, *_POINTS)),
    )
    yield bad("five_coordinates", "points must have 2, 3 or 4 coordinates, got [6, 5]", (_GRAD, _PARAMS, (6, 5)))
    yield bad("two_sizes", f"size must be [P], got [{_COUNT}, 1]", size=(_COUNT, 1))
    yield bad("size", f"size must have {_COUNT} entries for this grid, got 50", (_GRAD, (50,), _POINTS), size=(50,))
    yield bad("params_dtype", "params must be of dtype float32, the dtype of grad, got float64", dtypes=(F32, F64, F32))
    yield bad(
        "points_dtype",
        "points must be of dtype bfloat16, the dtype of grad, or float32, got float64",
        dtypes=(BF16, BF16, F64),
    )
    yield bad(
        "params_missing",
        "params must be a Tensor if the gradient of points is requested, got None",
        (_GRAD, None, _POINTS),
        mask=(False, True),
    )
    for name, message, grid in _bad_grids():
        yield bad(name, message, **grid)


def _bad_double_backward() -> Iterator[BadInput]:
    correct = (_GRAD, _PARAMS, _POINTS, _PARAMS, _POINTS)

    def bad(
        name: str,
        message: str,
        shapes: tuple[tuple[int, ...] | None, ...] = correct,
        dtypes: tuple[torch.dtype, ...] = (F32,) * 5,
        size: tuple[int, ...] = _PARAMS,
        mask: tuple[bool, ...] = (True, True, True),
        **grid: Any,
    ) -> BadInput:
        arguments = _VALID._replace(**grid)

        def args() -> tuple[Any, ...]:
            pairs = zip(shapes, dtypes, strict=True)
            tensors = (None if s is None else torch.zeros(s, dtype=d) for s, d in pairs)
            return *tensors, list(size), *arguments, list(mask)

        return BadInput(name, args, f"_hash_grid_double_backward: {message}")

    yield bad("mask_of_two", "output_mask must have 3 entries, got 2", mask=(True, True))
    yield bad("grad_rank", "grad must be [N, LC] or [B, N, LC], got [4]", ((4,), *correct[1:]))
    yield bad(
        "grad_grad_params_size",
        f"grad_grad_params must be [P] with P = {_COUNT}, got [46]",
        (*correct[:3], (46,), _POINTS),
    )
    yield bad(
        "grad_grad_points_rows",
        "grad_grad_points must be [N, D] with N = 6, got [7, 3]",
        (*correct[:4], (7, 3)),
    )
    yield bad(
        "grad_grad_points_coordinates",
        "grad_grad_points must be [N, D] with D = 3, got [6, 2]",
        (*correct[:4], (6, 2)),
    )
    yield bad("size", f"params must be [P] with P = 50, got [{_COUNT}]", size=(50,))
    yield bad("interpolation", "interpolation must be 'Linear' or 'Smoothstep', got 'None'", interpolation="None")
    yield bad("no_levels", "n_levels must be from 1 to 128, got 0", n_levels=0)
    yield bad(
        "grad_grad_points_dtype",
        "grad_grad_points must be of dtype float32, the dtype of points, got bfloat16",
        dtypes=(BF16, BF16, F32, BF16, BF16),
    )
    yield bad(
        "grad_grad_params_dtype",
        "grad_grad_params must be of dtype float32, the dtype of grad, got float64",
        dtypes=(F32, F32, F32, F64, F32),
    )
    for output in ("grad", "points"):
        yield bad(
            f"params_missing_for_{output}",
            f"params must be a Tensor if the gradient of {output} is requested, got None",
            (_GRAD, None, *correct[2:]),
            mask=_DOUBLE_MASKS[output],
        )


# Gradients of points are multiplied by the levels' scales, and so are the roundings of positions. Results of 16 bits
# are rounded to these once.
_ROUNDINGS = 4
_TOLERANCE = {
    dtype: {k: v / _ROUNDINGS if dtype in SIXTEEN_BIT and k == "rtol" else v for k, v in tolerance.items()}
    for dtype, tolerance in TOLERANCE.items()
}

register(
    OpEntry(
        name="cppcuda::hash_grid",
        mechanism="lookup",
        reference=hash_grid_reference,
        specs=tuple(_specs()),
        sized=lambda n: _args(n, **_SIZED),
        arguments=_arguments(),
        bad_inputs=tuple(_bad()),
        output_like=("params",),
        function=cppcuda.functional.hash_grid,
        module=OnTensors,
        autocast_dtype=lambda dtypes, autocast: dtypes[0],
        saved_for={0: {1}, 1: {0, 1}},
        deterministic_on_cuda=False,
        backward=OpEntry(
            name="cppcuda::_hash_grid_backward",
            reference=hash_grid_backward_reference,
            specs=tuple(_backward_specs()),
            sized=lambda n: _backward_args(n, **_SIZED),
            arguments=_backward_arguments(),
            bad_inputs=tuple(_bad_backward()),
            output_like=("grad", "points"),
            autocast_policy=False,
            tolerance=_TOLERANCE,
            roundings=_ROUNDINGS,
            saved_for={0: {1, 2}, 1: {0, 2}, 2: {0, 1, 2}},
            deterministic_on_cuda=False,
        ),
    )
)
register(
    OpEntry(
        name="cppcuda::_hash_grid_double_backward",
        reference=hash_grid_double_backward_reference,
        specs=tuple(_double_backward_specs()),
        sized=lambda n: _double_backward_args(n, **_SIZED),
        arguments=_double_backward_arguments(),
        bad_inputs=tuple(_bad_double_backward()),
        output_like=("grad", "grad", "points"),
        autocast_policy=False,
        tolerance=_TOLERANCE,
        roundings=_ROUNDINGS,
        compiled=False,  # compiled second derivatives of hash_grid and _hash_grid_backward call it
        saved_for={0: {1, 2, 3, 4}, 1: {0, 2, 4}, 2: {0, 1, 2, 3, 4}, 3: {0, 2}, 4: {0, 1, 2}},
        deterministic_on_cuda=False,
    )
)
