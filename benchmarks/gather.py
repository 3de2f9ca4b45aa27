"""A peer for a GPU: bilinear upsampling by an even factor, whose backward gathers instead of adding atomically.

A thread computes an element of the gradient, or in channels_last images 16 bytes of channels: it sums the gradients of
all outputs that read the pixel, in a fixed order. PyTorch pull request 197714 proposes this for
torch.use_deterministic_algorithms. Without a GPU the kernel runs in Triton's interpreter.
"""

from __future__ import annotations

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
