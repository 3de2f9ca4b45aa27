"""Peers for a GPU, written in Triton. Without a GPU they run in Triton's interpreter.

`upsample` enlarges an image by an even factor, and its backward gathers instead of adding atomically: a thread computes
an element of the gradient, or in channels_last images 16 bytes of channels. It sums the gradients of all outputs that
read the pixel, in a fixed order. PyTorch pull request 197714 proposes this for torch.use_deterministic_algorithms.

`rows` measures what bounds an operator that interpolates rows of a table. It reads the rows of the corners, or adds to
them, in the same order as the operator, but computes no weights.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

_THREADS = 128  # of a block, Triton's default


@triton.jit
def _source(o, size, factor: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The position in the input of an output pixel, clamped to it."""
    return tl.minimum(tl.maximum((o + 0.5) / factor - 0.5, 0.0), size - 1.0)


@triton.jit
def _gather(  # type: ignore[no-untyped-def]  # noqa: ANN202
    grad,  # noqa: ANN001 (Triton would evaluate the annotation)
    out,  # noqa: ANN001
    count,  # noqa: ANN001
    channels,  # noqa: ANN001
    height,  # noqa: ANN001
    width,  # noqa: ANN001
    factor: tl.constexpr,
    channels_last: tl.constexpr,
    block: tl.constexpr,
):
    index = tl.program_id(0) * block + tl.arange(0, block)
    if channels_last:
        channel, pixel = index % channels, index // channels
    else:
        channel, pixel = 0, index
    x, y, image = pixel % width, pixel // width % height, pixel // width // height
    total = tl.zeros((block,), tl.float32)
    for i in tl.static_range(2 * factor):
        row = y * factor - factor // 2 + i
        by_row = 1.0 - tl.abs(_source(row, height, factor) - y)
        for j in tl.static_range(2 * factor):
            column = x * factor - factor // 2 + j
            by_column = 1.0 - tl.abs(_source(column, width, factor) - x)
            place = (image * height * factor + row) * (width * factor) + column
            if channels_last:
                place = place * channels + channel
            exists = (index < count) & (row >= 0) & (row < height * factor) & (column >= 0) & (column < width * factor)
            value = tl.load(grad + place, mask=exists, other=0.0).to(tl.float32)
            total += tl.maximum(by_row, 0.0) * tl.maximum(by_column, 0.0) * value
    tl.store(out + index, total.to(out.dtype.element_ty), mask=index < count)


def block_size(itemsize: int, channels_last: bool) -> int:
    """The number of elements that a block computes."""
    return _THREADS * (16 // itemsize if channels_last else 1)


class _Upsample(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, factor: int) -> Tensor:
        context.like, context.factor = x, factor
        return F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None]:
        result = torch.empty_like(context.like)
        channels_last = result.is_contiguous(memory_format=torch.channels_last) and not result.is_contiguous()
        grad = grad.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
        if grad.numel() >= 2**31:
            raise ValueError("the positions have 32 bits")
        _, channels, height, width = result.shape
        block = block_size(result.element_size(), channels_last)
        _gather[(triton.cdiv(result.numel(), block),)](
            grad, result, result.numel(), channels, height, width, context.factor, channels_last, block
        )
        return result, None


def upsample(x: Tensor, factor: int) -> Tensor:
    """x [N, C, H, W], contiguous or channels_last; factor: an even number."""
    return _Upsample.apply(x, factor)  # type: ignore[no-any-return]


@triton.jit
def _rows(  # type: ignore[no-untyped-def]  # noqa: ANN202
    table,  # noqa: ANN001  [rows, features]; the sums if `add`
    points,  # noqa: ANN001  [count, 3], between 0 and 1
    corners,  # noqa: ANN001  [count, 8]; used if `indexed`
    levels,  # noqa: ANN001  [levels, 4]: scale, vertices per axis, first row, the number of rows if hashed or 0
    values,  # noqa: ANN001  [count, levels, features], which the kernel writes, or reads if `add`
    count,  # noqa: ANN001
    features: tl.constexpr,
    indexed: tl.constexpr,
    add: tl.constexpr,
    block: tl.constexpr,
):
    point = tl.program_id(0) * block + tl.arange(0, block)
    level = tl.program_id(1)
    exists = point < count
    scale = tl.load(levels + 4 * level)
    side = tl.load(levels + 4 * level + 1).to(tl.int32)
    first = tl.load(levels + 4 * level + 2).to(tl.int32)
    hashed = tl.load(levels + 4 * level + 3).to(tl.int32)
    x = (tl.load(points + 3 * point, mask=exists, other=0.0) * scale + 0.5).to(tl.int32)
    y = (tl.load(points + 3 * point + 1, mask=exists, other=0.0) * scale + 0.5).to(tl.int32)
    z = (tl.load(points + 3 * point + 2, mask=exists, other=0.0) * scale + 0.5).to(tl.int32)
    feature = tl.arange(0, features)
    place = values + (point.to(tl.int64) * tl.num_programs(1) + level)[:, None] * features + feature[None, :]
    mask = exists[:, None] & (feature >= 0)[None, :]
    total = tl.zeros((block, features), tl.float32)
    if add:
        total = tl.load(place, mask=mask, other=0.0).to(tl.float32)
    for corner in tl.static_range(8):
        if indexed:
            row = tl.load(corners + 8 * point.to(tl.int64) + corner, mask=exists, other=0)
        else:
            i, j, k = x + corner % 2, y + corner // 2 % 2, z + corner // 4
            dense = i + side * (j + side * k)
            # The primes of tiny-cuda-nn; products wrap at 32 bits.
            mixed = i.to(tl.uint32) ^ (j.to(tl.uint32) * 2654435761) ^ (k.to(tl.uint32) * 805459861)
            row = first + tl.where(hashed > 0, (mixed & (hashed - 1).to(tl.uint32)).to(tl.int32), dense)
        address = table + row.to(tl.int64)[:, None] * features + feature[None, :]
        if add:
            tl.atomic_add(address, total, mask=mask, sem="relaxed")
        else:
            total += tl.load(address, mask=mask, other=0.0).to(tl.float32)
    if not add:
        tl.store(place, total.to(values.dtype.element_ty), mask=mask)


@functools.cache
def _levels_on(device: torch.device, levels: tuple[tuple[float, ...], ...]) -> Tensor:
    return torch.tensor(levels, dtype=torch.float32, device=device)


def rows(
    table: Tensor,
    points: Tensor,
    values: Tensor,
    levels: Sequence[Sequence[float]],
    corners: Tensor | None = None,
    add: bool = False,
) -> Tensor:
    """Writes the sums of the rows of all corners to `values`, [N, levels, F]. add: adds `values` to the rows instead.

    table [V, F] with F a power of two; points [N, 3] between 0 and 1; levels: for each level the scale of points, the
    vertices per axis, the first row, and the number of rows if they are hashed (a power of two), otherwise 0; corners
    [N, 8]: the rows, if they do not follow from points. Where a corner lies outside of a dense level, the row is one of
    the next level; hash_grid takes a row of the same level.
    """
    features, count = table.shape[1], len(points)
    block = max(1, 512 // features)
    _rows[(triton.cdiv(count, block), len(levels))](
        table,
        points,
        points if corners is None else corners,
        _levels_on(table.device, tuple(map(tuple, levels))),
        values,
        count,
        features,
        corners is not None,
        add,
        block,
    )
    return values
