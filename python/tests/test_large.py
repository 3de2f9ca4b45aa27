"""More than 2^31 elements, where 32-bit indices wrap."""

from pathlib import Path

import cppcuda
import pytest
import torch
from samples.trilinear import trilinear_backward_reference, trilinear_reference
from torch import Tensor

GIB = 1 << 30
ROWS, FEATURES = 3, (1 << 31) // 16 + 40  # feats: 1.5 * 2^31 elements; the last rows of it lie past 2^31
FEATS_BYTES = ROWS * 8 * FEATURES * 2

pytestmark = pytest.mark.slow


def needs_memory(wanted: int) -> None:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    if available < wanted + GIB:
        pytest.skip(f"{available / GIB:.1f} GiB of memory available, {(wanted + GIB) / GIB:.1f} needed")


def some_columns(features: int) -> Tensor:
    edges = torch.tensor([0, 1, features // 2, features - 2, features - 1])
    return torch.cat([edges, torch.randint(features, (1000,))])


def large_feats() -> Tensor:
    """Distinct along rows, corners and a period that no power of two is a multiple of."""
    feats = torch.empty(ROWS, 8, FEATURES, dtype=torch.bfloat16)
    for n in range(ROWS):
        for c in range(8):
            pattern = torch.linspace(-1, 1, 4099).roll(17 * (8 * n + c)).bfloat16()
            row, whole = feats[n, c], FEATURES // 4099 * 4099
            row[:whole].view(-1, 4099).copy_(pattern)
            row[whole:].copy_(pattern[: FEATURES - whole])
    return feats


def test_trilinear_forward() -> None:
    needs_memory(FEATS_BYTES * 9 // 8)
    feats, points = large_feats(), torch.rand(ROWS, 3) * 2 - 1
    assert feats.numel() > 2**31
    out = cppcuda.functional.trilinear(feats, points)
    at = some_columns(FEATURES)
    expected = trilinear_reference(feats[..., at].double(), points.double())
    torch.testing.assert_close(out[..., at].double(), expected, rtol=2**-8, atol=1e-5)


def test_trilinear_backward_for_feats() -> None:
    needs_memory(FEATS_BYTES * 9 // 8)
    points = torch.rand(ROWS, 3) * 2 - 1
    grad = torch.linspace(-1, 1, 4099).bfloat16().repeat(FEATURES // 4099 + 1)[:FEATURES].expand(ROWS, FEATURES)
    grad_feats, _ = torch.ops.cppcuda._trilinear_backward(grad, None, points, [True, False])
    assert grad_feats.numel() > 2**31
    at = some_columns(FEATURES)
    expected, _ = trilinear_backward_reference(grad[:, at].double(), None, points.double(), [True, False])
    torch.testing.assert_close(grad_feats[..., at].double(), expected, rtol=2**-8, atol=1e-5)


def test_trilinear_rows_past_2_31() -> None:
    """Offsets of rows, not of features, that need 64 bits: a few rows of a very tall tensor of bytes."""
    rows = (1 << 31) // 8 + 5
    needs_memory(rows * (8 + 1 + 3) * 2)
    feats = torch.empty(rows, 8, 1, dtype=torch.bfloat16)
    feats.view(-1)[: rows // 4099 * 4099 * 8].view(-1, 4099 * 8).copy_(torch.linspace(-1, 1, 4099 * 8).bfloat16())
    feats[-4099:].uniform_(-1, 1)
    points = torch.full((1, 3), 0.25, dtype=torch.bfloat16).expand(rows, 3)
    out = cppcuda.functional.trilinear(feats, points)
    at = torch.cat([torch.tensor([0, 1, rows // 2]), torch.arange(rows - 4099, rows)])
    expected = trilinear_reference(feats[at].double(), points[at].double())
    torch.testing.assert_close(out[at].double(), expected, rtol=2**-8, atol=1e-5)
