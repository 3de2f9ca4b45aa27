"""trilinear_indexed and trilinear_indexed_with_grad."""

from __future__ import annotations

from typing import Any

import cppcuda
import torch
from cppcuda.testing import OpEntry, Spec, T, derivative, register
from torch import Tensor

# ---------------------------------------------------------------- references


def corner_features(table: Tensor, corners: Tensor) -> Tensor:
    """[..., N, 8, F]: the rows of the table, and a row of zeros for each missing vertex."""
    size, features = table.shape[-2], table.shape[-1]
    with_zeros = torch.cat([table, table.new_zeros(*table.shape[:-2], 1, features)], -2)
    rows = torch.where(corners < 0, size, corners.long()).flatten(-2)
    found = with_zeros.gather(-2, rows.unsqueeze(-1).expand(*rows.shape, features))
    return found.unflatten(-2, (rows.shape[-1] // 8, 8))


def _interpolated(table: Tensor, corners: Tensor, points: Tensor, differentiated: int | None = None) -> Tensor:
    """Linear interpolation along one axis after another; along one of them, its derivative."""
    t = (points + 1) / 2
    values = corner_features(table, corners).unflatten(-2, (2, 2, 2))
    for d in range(3):
        s = t.select(-1, d).reshape(*t.shape[:-1], *[1] * (3 - d))  # [..., N], broadcast over the remaining axes
        near, far = values.select(-4 + d, 0), values.select(-4 + d, 1)
        values = (far - near) / 2 if d == differentiated else near * (1 - s) + far * s
    return values


def trilinear_indexed_reference(table: Tensor, corners: Tensor, points: Tensor) -> Tensor:
    return _interpolated(table, corners, points)


def with_grad_reference(table: Tensor, corners: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    derivatives = [_interpolated(table, corners, points, axis) for axis in range(3)]
    return _interpolated(table, corners, points), torch.stack(derivatives, -1)


def embedding_bag(table: Tensor, corners: Tensor, points: Tensor) -> Tensor | None:
    """A bag of eight rows with weights for each point. A missing vertex is the padding."""
    if corners.numel() == 0 or table.numel() == 0:
        return None
    size, features = table.shape[-2], table.shape[-1]
    far = (points + 1) / 2
    x, y, z = torch.stack([1 - far, far], -1).unbind(-2)
    weights = torch.einsum("...i,...j,...k->...ijk", x, y, z).reshape(-1, 8)
    with_padding = torch.cat([table, table.new_ones(*table.shape[:-2], 1, features)], -2)
    batches = 1 if table.dim() == 2 else table.shape[0]
    rows = torch.where(corners < 0, size, corners.long()).reshape(batches, -1, 8)
    outputs = [
        torch.nn.functional.embedding_bag(r, t, mode="sum", per_sample_weights=w, padding_idx=size)
        for r, t, w in zip(
            rows, with_padding.reshape(batches, -1, features), weights.reshape(batches, -1, 8), strict=True
        )
    ]
    return torch.cat(outputs).reshape(*points.shape[:-1], features)


# ---------------------------------------------------------------- samples


def random_corners(*batch: int, size: int, dtype: torch.dtype = torch.int64, seed: int = 0) -> T:
    """Rows of a table of this size and missing vertices: each row has the same probability as -1."""
    generator = torch.Generator().manual_seed(seed)
    value = torch.randint(-1, size, (*batch, 8), generator=generator, dtype=dtype)
    return T(tuple(value.shape), value=value)


def _fixed_corners(*batch: int, row: int) -> T:
    return T((*batch, 8), value=torch.full((*batch, 8), row))


def _args(*batch: int, f: int = 3, v: int = 7, corners: T | None = None) -> tuple[Any, ...]:
    return T((*batch[:-1], v, f)), corners or random_corners(*batch, size=v), T((*batch, 3))


def _fixed_corners(row: int) -> T:
    return T((5, 8), value=torch.full((5, 8), row))


_SHAPES = {
    "one": _args(1, f=1, v=1),
    "one_vertex": _args(9, v=1),
    "no_vertices": _args(5, v=0),
    "all_missing": _args(5, corners=_fixed_corners(-1)),
    "the_last_vertex_only": _args(5, corners=_fixed_corners(6)),
    "many_rows": _args(1031, f=5, v=60),
    "large_table": _args(7, f=5, v=3000),
    "int32": _args(33, f=6, v=20, corners=random_corners(33, size=20, dtype=torch.int32)),
}
_SPECS = tuple(Spec(name, args) for name, args in _SHAPES.items())
_BATCH = _args(2, 2, v=4, corners=random_corners(2, 2, size=4, dtype=torch.int32))

# ---------------------------------------------------------------- entries; V is no number of rows

_COMMON: dict[str, Any] = {
    "mechanism": "indexed row",
    "sizes": {"N": (0, 1)},  # sums over more points of few vertices have larger errors
    "sized": lambda n: _args(n, f=16, v=10),
    "saved_for": {0: {1}, 1: {0, 1}},
    "deterministic_on_cuda": False,
}
TRILINEAR_INDEXED = OpEntry(
    name="cppcuda::trilinear_indexed",
    reference=trilinear_indexed_reference,
    oracles=(embedding_bag,),
    specs=(Spec("basic", _args(3, f=2, v=5), "basic"), Spec("basic_batch", _BATCH, "basic"), *_SPECS),
    function=cppcuda.functional.trilinear_indexed,
    module=cppcuda.nn.TrilinearIndexed,
    backward=derivative("cppcuda::_trilinear_indexed_backward", saved_for={0: {1, 2}, 1: {0, 2}, 2: {0, 1, 2}}),
    **_COMMON,
)
register(TRILINEAR_INDEXED)
register(
    derivative(
        "cppcuda::_trilinear_indexed_double_backward",
        saved_for={0: {1, 2, 3, 4}, 1: {0, 2, 4}, 2: {0, 1, 2, 3, 4}, 3: {0, 2}, 4: {0, 1, 2}},
    ).of(TRILINEAR_INDEXED.backward)
)
register(
    OpEntry(
        name="cppcuda::trilinear_indexed_with_grad",
        reference=with_grad_reference,
        # Second derivatives are composed of torch's operators, with which DTensor needs as many rows in each process.
        specs=(Spec("basic", _args(4, f=2, v=6), "basic"), *_SPECS),
        function=cppcuda.functional.trilinear_indexed_with_grad,
        module=cppcuda.nn.TrilinearIndexedWithGrad,
        **_COMMON,
    )
)
