"""More than 2^31 elements, where 32-bit indices wrap."""

import math
import mmap
from pathlib import Path

import cppcuda
import pytest
import torch
from samples.elementwise import quick_gelu_reference
from samples.trilinear import TRILINEAR, trilinear_reference
from torch import Tensor

GIB = 1 << 30
ROWS, FEATURES = 3, (1 << 31) // 16 + 40  # feats: 1.5 * 2^31 elements; its last rows are past 2^31
FEATS_BYTES = ROWS * 8 * FEATURES * 2

pytestmark = [pytest.mark.slow, pytest.mark.any_torch]


def needs_memory(required: int) -> None:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    if available < required + GIB:
        pytest.skip(f"{available / GIB:.1f} GiB of memory available, {(required + GIB) / GIB:.1f} needed")


def some_columns(features: int) -> Tensor:
    edges = torch.tensor([0, 1, features // 2, features - 2, features - 1])
    return torch.cat([edges, torch.randint(features, (1000,))])


def zeros(*sizes: int) -> Tensor:
    """16-bit zeros. The system gives memory to the pages that are written only, so this is fast."""
    return torch.frombuffer(mmap.mmap(-1, 2 * math.prod(sizes)), dtype=torch.bfloat16).view(sizes)


def test_trilinear_forward() -> None:
    needs_memory(FEATS_BYTES * 9 // 8)
    feats, points, at = zeros(ROWS, 8, FEATURES), torch.rand(ROWS, 3) * 2 - 1, some_columns(FEATURES)
    feats[..., at] = torch.randn(ROWS, 8, len(at), dtype=torch.bfloat16)
    assert feats.numel() > 2**31
    out = cppcuda.functional.trilinear(feats, points)
    expected = trilinear_reference(feats[..., at].double(), points.double())
    torch.testing.assert_close(out[..., at].double(), expected, rtol=2**-8, atol=1e-5)


def test_trilinear_backward_for_feats() -> None:
    needs_memory(FEATS_BYTES * 9 // 8)
    points = torch.rand(ROWS, 3) * 2 - 1
    grad = torch.linspace(-1, 1, 4099).bfloat16().repeat(FEATURES // 4099 + 1)[:FEATURES].expand(ROWS, FEATURES)
    grad_feats, _ = torch.ops.cppcuda._trilinear_backward(grad, None, points, [True, False])
    assert grad_feats.numel() > 2**31
    at = some_columns(FEATURES)
    expected, _ = TRILINEAR.backward.reference(grad[:, at].double(), None, points.double(), [True, False])
    torch.testing.assert_close(grad_feats[..., at].double(), expected, rtol=2**-8, atol=1e-5)


def test_volume_of_one_channel() -> None:
    """More voxels than 32 bits number, sampled at their centres."""
    needs_memory(GIB)
    size = (4, 1 << 15, (1 << 15) + 64)
    input = zeros(*size, 1)
    assert input.numel() > 2**32
    at = torch.stack([torch.randint(s, (200,)) for s in size])
    input[tuple(at)] = torch.randn(200, 1).bfloat16()
    points = torch.stack([2 * i / (s - 1) - 1 for i, s in zip(at, size, strict=True)][::-1], -1)
    out = cppcuda.functional.grid_sample3d(input, points, align_corners=True)
    torch.testing.assert_close(out.float(), input[tuple(at)].float(), rtol=2**-6, atol=2**-6)


def test_trilinear_rows_past_2_31() -> None:
    """The offsets of rows, not of features, need 64 bits: checks a few rows of a very tall tensor."""
    features = 8  # with one, there are eight times as many rows, which take as much longer
    rows = (1 << 31) // (8 * features) + 5
    needs_memory(rows * (9 * features + 3) * 2)
    feats = zeros(rows, 8, features)
    at = torch.cat([torch.tensor([0, 1, rows // 2]), torch.arange(rows - 4099, rows)])
    feats[at] = torch.randn(len(at), 8, features, dtype=torch.bfloat16)
    points = torch.full((1, 3), 0.25, dtype=torch.bfloat16).expand(rows, 3)
    out = cppcuda.functional.trilinear(feats, points)
    expected = trilinear_reference(feats[at].double(), points[at].double())
    torch.testing.assert_close(out[at].double(), expected, rtol=2**-8, atol=1e-5)


def test_elementwise() -> None:
    count = (1 << 31) + 5
    needs_memory(count * 2)
    pattern = torch.linspace(-4, 4, 4099).bfloat16()
    x = torch.empty(count, dtype=torch.bfloat16)
    whole = count // 4099 * 4099
    x[:whole].view(-1, 4099).copy_(pattern)
    x[whole:].copy_(pattern[: count - whole])
    cppcuda.functional.quick_gelu_(x)
    at = some_columns(count)
    expected = quick_gelu_reference(pattern[at % 4099].double())
    torch.testing.assert_close(x[at].double(), expected, rtol=2**-8, atol=1e-5)


def test_upsample() -> None:
    height, width = 40_000, 27_000
    needs_memory(2 * height * width * 2)
    image = torch.randn(1, 2, 3, 5, dtype=torch.bfloat16)
    out = cppcuda.functional.upsample_bilinear2d(image, (height, width))
    assert out.numel() > 2**31
    at = [some_columns(size)[:200] for size in (height, width)]
    # One matrix of weights per axis, from the distances to each input pixel.
    weights = []
    for pixels, in_size, out_size in zip(at, (3, 5), (height, width), strict=True):
        position = ((pixels.double() + 0.5) * in_size / out_size - 0.5).clamp(0, in_size - 1)
        weights.append((1 - (position[:, None] - torch.arange(in_size)).abs()).clamp(min=0))
    expected = weights[0] @ image.double() @ weights[1].T
    actual = out[:, :, at[0]][..., at[1]]
    torch.testing.assert_close(actual.double(), expected, rtol=2**-8, atol=1e-3)
