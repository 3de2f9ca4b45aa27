"""The levels of hash_grid, and the configurations of tiny-cuda-nn that describe them."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

# The arguments of hash_grid, which have the names and defaults of tiny-cuda-nn.
DEFAULTS: dict[str, Any] = {
    "n_levels": 16,
    "n_features_per_level": 2,
    "log2_hashmap_size": 19,
    "base_resolution": 16,
    "per_level_scale": 2.0,
    "interpolation": "Linear",
}

# The factors of coordinates in a hash.
PRIMES = (1, 2654435761, 805459861, 3674653429)

# The values that a configuration may have under other keys, and those of interpolation.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "otype": ("HashGrid", "Grid"),
    "type": ("Hash",),
    "hash": ("CoherentPrime",),
    "interpolation": ("Linear", "Smoothstep"),
    "stochastic_interpolation": (False,),
    "fixed_point_pos": (False,),
}


class Level(NamedTuple):
    scale: float
    resolution: int  # vertices per axis
    first_row: int
    rows: int
    is_hashed: bool


def levels_of(
    n_input_dims: int, n_levels: int, log2_hashmap_size: int, base_resolution: int, per_level_scale: float
) -> list[Level]:
    """The levels that the operator has for these arguments, which must be valid."""
    ops = torch.ops.cppcuda
    grid = (log2_hashmap_size, base_resolution, per_level_scale)
    levels, first_row = [], 0
    for level, scale in enumerate(ops._hash_grid_scales(n_levels, base_resolution, per_level_scale)):
        resolution = math.ceil(scale) + 1
        end = ops._hash_grid_parameters(n_input_dims, level + 1, 1, *grid)
        rows = end - first_row
        levels.append(Level(scale, resolution, first_row, rows, resolution**n_input_dims > rows))
        first_row = end
    return levels


def count_parameters(n_input_dims: int, grid: Mapping[str, Any]) -> int:
    """The number of parameters of a grid for points of so many coordinates."""
    try:
        numbers = (grid[key] for key in DEFAULTS if key != "interpolation")
        return int(torch.ops.cppcuda._hash_grid_parameters(n_input_dims, *numbers))
    except RuntimeError as error:
        op, _, message = str(error).splitlines()[0].partition(":")
        if op == "hash_grid_parameters":
            raise ValueError(f"HashGrid:{message}") from None
        raise TypeError(str(error)) from None  # of the dispatcher: an argument has another type


def plain(value: Any) -> Any:
    """The Python number of a tensor without dims or of a number or array without dims of numpy; other values as they
    are."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def from_tcnn_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of hash_grid in a configuration of tiny-cuda-nn, which ignores the case of its values. Raises
    ValueError if hash_grid has no such grid."""
    start = "HashGrid.from_tcnn: config"
    for key in config:
        if key not in DEFAULTS and key not in _SUPPORTED:
            known = ", ".join(map(repr, {**_SUPPORTED, **DEFAULTS}))
            raise ValueError(f"{start} may have the keys {known}, got {key!r}")
    config = {key: plain(value) for key, value in config.items()}
    grid = {key: config.get(key, default) for key, default in DEFAULTS.items()}
    for key, supported in _SUPPORTED.items():
        value = config.get(key, None if key == "otype" else supported[0])
        same = [s for s in supported if value is s or (isinstance(value, str) and value.lower() == str(s).lower())]
        if not same:
            raise ValueError(f"{start}[{key!r}] must be {' or '.join(map(repr, supported))}, got {value!r}")
        if key in grid:
            grid[key] = same[0]
    for key, default in DEFAULTS.items():
        value, kind = grid[key], type(default)
        if kind is int and not (isinstance(value, int) and not isinstance(value, bool)):
            raise ValueError(f"{start}[{key!r}] must be an integer, got {value!r}")
        if kind is float and not (isinstance(value, (int, float)) and not isinstance(value, bool)):
            raise ValueError(f"{start}[{key!r}] must be a number, got {value!r}")
    return grid


def overflowing_levels(levels: list[Level], n_input_dims: int) -> list[int]:
    """The hashed levels that versions of tiny-cuda-nn before 2.0 take for dense ones. They multiply the strides of the
    axes in 32 bits until the product exceeds the number of rows."""

    def overflows(level: Level) -> bool:
        stride = 1
        for _ in range(n_input_dims):
            if stride <= level.rows:
                stride = stride * level.resolution % 2**32
        return level.is_hashed and stride <= level.rows

    return [i for i, level in enumerate(levels) if overflows(level)]
