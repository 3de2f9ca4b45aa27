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
from cppcuda.testing import TOLERANCE, BadInput, OpEntry, Spec, T, derivative, register, zeros
from cppcuda.testing.samples import SIXTEEN_BIT
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


class OnTensors(nn.Module):
    """The function as a module of params too; cppcuda.nn.HashGrid has its own tests."""

    def __init__(self, *grid: Any) -> None:
        super().__init__()
        self.n_levels, self.n_features_per_level, self.log2_hashmap_size = map(int, grid[:3])
        self.base_resolution, self.per_level_scale, self.interpolation = int(grid[3]), float(grid[4]), str(grid[5])

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


# In 3 dims: 2^3 and 3^3 vertices, the latter with rows that no vertex has, 4^3, and 6^3, which is hashed.
_GRID = Grid(4, 2, 6, 2, 1.4)


def _args(*batch: int, axes: int = 3, grid: Grid = _GRID, points: Tensor | None = None) -> tuple[Any, ...]:
    """batch: (N,) or (B, N)."""
    params = T((*batch[:-1], count_parameters(axes, grid)))
    return params, T((*batch, axes), low=-0.5, high=1.5, value=points), *grid


def _basic(*batch: int, axes: int, grid: Grid) -> tuple[Any, ...]:
    return _args(*batch, axes=axes, grid=grid, points=away_from_kinks(*batch, axes=axes, grid=grid))


# The first level is dense, in 2 dims with rows that no vertex has, and the second one is hashed. Scales are small,
# because each derivative is multiplied by them: the third ones of a fine grid have few correct digits.
_BASIC = {
    "linear": _basic(3, axes=3, grid=Grid(2, 2, 3, 2, 1.5)),
    "smooth_batch": _basic(2, 2, axes=2, grid=Grid(2, 1, 3, 2, 1.3, "Smoothstep")),
}
_SHAPES = {
    **{
        f"{axes}_dims_{features}_features_{interpolation}": _args(
            7, axes=axes, grid=Grid(3, features, 5, 2, 1.4, interpolation)
        )
        for axes, features, interpolation in itertools.product((2, 3, 4), (1, 2, 4, 8), ("Linear", "Smoothstep"))
    },
    "all_dense": _args(5, grid=Grid(3, 2, 12, 3, 1.3)),
    "all_hashed": _args(5, grid=Grid(3, 2, 3, 3, 1.2)),
    "one_level": _args(5, grid=Grid(1, 4, 6, 3, 2.0)),
    "many_levels": _args(5, axes=2, grid=Grid(33, 1, 4, 2, 1.03, "Smoothstep")),
    "two_rows": _args(5, grid=Grid(2, 2, 1, 2, 1.5)),
    "one_vertex": _args(5, grid=Grid(2, 2, 4, 1, 2.0)),
    "coarser_levels": _args(5, grid=Grid(3, 2, 6, 4, 0.7)),
    "many_points": _args(1031),
    "batch_smooth_4d": _args(2, 9, axes=4, grid=Grid(2, 2, 5, 2, 2.0, "Smoothstep")),
}

# ---------------------------------------------------------------- bad inputs

_VALID = Grid(2, 2, 5, 2, 2.0)
_COUNT = count_parameters(3, _VALID)  # 80


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
    def bad(name: str, message: str, count: int = _COUNT, rows: int = 6, axes: int = 3, **grid: Any) -> BadInput:
        arguments = _VALID._replace(**grid)
        return BadInput(name, lambda: (*zeros((count,), (rows, axes)), *arguments), f"hash_grid: {message}")

    for axes in (0, 1, 5):
        yield bad(f"{axes}_coordinates", f"points must have 2, 3 or 4 coordinates, got [6, {axes}]", axes=axes)
    expected = f"params must have {_COUNT} entries for this grid, got"
    for count in (_COUNT - 1, _COUNT + 2, 0):
        yield bad(f"{count}_parameters", f"{expected} {count}", count)
    yield bad("parameters_without_points", f"{expected} 5", 5, rows=0)
    in_2d = count_parameters(2, _VALID)
    yield bad("of_3_dims", f"params must have {in_2d} entries for this grid, got {_COUNT}", axes=2)
    for name, message, grid in _bad_grids():
        yield bad(name, message, **grid)


def _bad_derivative(op: str, count: int) -> Iterator[BadInput]:
    """Wrong calls of the operator `op`, which computes `count` gradients."""

    def bad(name: str, message: str, size: int = _COUNT, axes: int = 3, **grid: Any) -> BadInput:
        arguments = _VALID._replace(**grid)
        tensors = zeros((6, arguments.n_levels * arguments.n_features_per_level), (size,), (6, axes))
        more = (None, torch.zeros(6, axes)) if count == 3 else ()
        return BadInput(name, lambda: (*tensors, *more, [size], *arguments, [True] * count), f"{op}: {message}")

    yield bad("five_coordinates", "points must have 2, 3 or 4 coordinates, got [6, 5]", axes=5)
    yield bad("size", f"size must have {_COUNT} entries for this grid, got 50", 50)
    for name, message, grid in _bad_grids():
        if grid.get("n_features_per_level", 1) > 0:
            yield bad(name, message, **grid)


# Gradients of points are multiplied by the levels' scales, and so are the roundings of positions. Results of 16 bits
# are rounded to these once.
_ROUNDINGS = 4
_TOLERANCE = {
    dtype: {k: v / _ROUNDINGS if dtype in SIXTEEN_BIT and k == "rtol" else v for k, v in tolerance.items()}
    for dtype, tolerance in TOLERANCE.items()
}
_GRADIENTS: dict[str, Any] = {"tolerance": _TOLERANCE, "roundings": _ROUNDINGS}

HASH_GRID = OpEntry(
    name="cppcuda::hash_grid",
    mechanism="lookup",
    reference=hash_grid_reference,
    specs=(
        *(Spec(f"basic_{name}", args, "basic") for name, args in _BASIC.items()),
        *(Spec(name, args) for name, args in _SHAPES.items()),
    ),
    sizes={"N": (0, 1)},  # sums over more points of few vertices have larger errors
    sized=lambda n: _args(n, grid=Grid(3, 4, 4, 2, 1.2)),
    bad_inputs=tuple(_bad()),
    function=cppcuda.functional.hash_grid,
    module=OnTensors,
    saved_for={0: {1}, 1: {0, 1}},
    deterministic_on_cuda=False,
    backward=derivative(
        "cppcuda::_hash_grid_backward",
        bad_inputs=tuple(_bad_derivative("_hash_grid_backward", 2)),
        saved_for={0: {1, 2}, 1: {0, 2}, 2: {0, 1, 2}},
        **_GRADIENTS,
    ),
)
register(HASH_GRID)
register(
    derivative(
        "cppcuda::_hash_grid_double_backward",
        bad_inputs=tuple(_bad_derivative("_hash_grid_double_backward", 3)),
        saved_for={0: {1, 2, 3, 4}, 1: {0, 2, 4}, 2: {0, 1, 2, 3, 4}, 3: {0, 2}, 4: {0, 1, 2}},
        **_GRADIENTS,
    ).of(HASH_GRID.backward)
)
