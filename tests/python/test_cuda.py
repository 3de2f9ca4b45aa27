"""What only a CUDA device can test, for some operators: sizes that only it can hold, memory, errors in kernels.

test_cuda_operators.py tests every operator, and the properties and the C++ tests of tests/cpp/cuda also run on CUDA.
scripts/gpu_check runs all of these tests.

CPPCUDA_REQUIRE_CUDA=1  a missing GPU is an error, not a reason to skip.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import cppcuda
import pytest
import torch
from samples.trilinear import trilinear_reference
from support import require_gpu
from torch import Tensor

require_gpu()

CUDA = torch.device("cuda", 0)
F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
trilinear = torch.ops.cppcuda.trilinear
trilinear_backward = torch.ops.cppcuda._trilinear_backward
Triple = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Fills new memory with NaN, so that values a kernel does not write show. Also requires deterministic kernels."""
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = fill


def make(
    rows: int | tuple[int, ...], features: int, dtype: torch.dtype = F32, points_dtype: torch.dtype = F32
) -> Triple:
    """feats, points, grad"""
    batch = (rows,) if isinstance(rows, int) else rows
    return (
        torch.randn(*batch, 8, features, device=CUDA, dtype=dtype),
        (torch.rand(*batch, 3, device=CUDA) * 2.5 - 1.25).to(points_dtype),
        torch.randn(*batch, features, device=CUDA, dtype=dtype),
    )


def run(feats: Tensor, points: Tensor, grad: Tensor) -> list[Tensor]:
    """out, gradient of feats, gradient of points"""
    feats, points = feats.detach().requires_grad_(), points.detach().requires_grad_()
    out = trilinear(feats, points)
    return [out.detach(), *torch.autograd.grad(out, (feats, points), grad)]


def expected(feats: Tensor, points: Tensor, grad: Tensor) -> list[Tensor]:
    """On the CPU, in float64."""
    feats, points = (t.detach().cpu().double().requires_grad_() for t in (feats, points))
    out = trilinear_reference(feats, points)
    return [out.detach(), *torch.autograd.grad(out, (feats, points), grad.cpu().double())]


def assert_near(actual: Tensor, wanted: Tensor, what: str = "") -> None:
    """Within one rounding to the dtype, and within the error of a sum in float32 (float64) of values around 1."""
    assert actual.shape == wanted.shape, what
    actual = actual.cpu()
    assert torch.isfinite(actual).all(), f"{what}: not finite"
    rounding = torch.finfo(actual.dtype).eps
    summing = 1e-13 if actual.dtype == F64 else 1e-5
    scale = max(1.0, wanted.abs().max().item()) if wanted.numel() else 1.0
    torch.testing.assert_close(
        actual.double(), wanted, rtol=rounding, atol=summing * scale, msg=lambda message: f"{what}: {message}"
    )


# ---------------------------------------------------------------- sizes


def need_memory(gigabytes: float) -> None:
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info(CUDA)[0] / 1e9
    if free < gigabytes + 2:
        pytest.skip(f"needs {gigabytes + 2:.0f} GB of free GPU memory, {free:.0f} GB are free")


def check_some_rows(inputs: Triple, results: list[Tensor | None], rows: list[int]) -> None:
    at = torch.tensor(rows, device=CUDA)
    for actual, wanted in zip(results, expected(*(t[at] for t in inputs)), strict=True):
        if actual is not None:
            assert_near(actual[at], wanted)


@pytest.mark.large
@pytest.mark.slow
def test_more_than_2_to_31_elements(poisoned: None) -> None:
    features = 256
    rows = 2**31 // (8 * features) + 3
    need_memory(2.6 * 2 * rows * 8 * features / 1e9)
    feats = torch.empty(rows, 8, features, device=CUDA, dtype=BF16).normal_()
    points = torch.rand(rows, 3, device=CUDA) * 2 - 1
    grad = torch.empty(rows, features, device=CUDA, dtype=BF16).normal_()
    assert feats.numel() > 2**31
    inputs, some = (feats, points, grad), [0, 1, rows // 2, rows - 4, rows - 3, rows - 2, rows - 1]
    check_some_rows(inputs, [*run(*inputs)], some)


@pytest.mark.large
@pytest.mark.slow
@pytest.mark.parametrize("features", [256, 100])
def test_more_rows_than_one_grid_holds(poisoned: None, features: int) -> None:
    """All rows share features and gradient, so that many rows fit in memory. 256 features: 16-byte accesses."""
    rows = 2**23 + 5  # 8 rows per block, 2^20 blocks
    need_memory(1.2 * 2 * rows * 8 * features / 1e9)
    feats = torch.randn(1, 8, features, device=CUDA, dtype=BF16).expand(rows, -1, -1)
    points = torch.rand(rows, 3, device=CUDA) * 2 - 1
    grad = torch.randn(1, features, device=CUDA, dtype=BF16).expand(rows, -1)
    inputs, some = (feats, points, grad), [0, 1, 2**22, 2**23 - 1, 2**23, 2**23 + 1, rows - 1]
    out = trilinear(feats, points)
    if features == 256:
        assert out.numel() > 2**31
    assert not torch.isnan(out).any()
    check_some_rows(inputs, [out, None, None], some)
    del out
    grad_feats, grad_points = trilinear_backward(grad, feats, points, [True, True])
    assert not torch.isnan(grad_points).any()
    check_some_rows(inputs, [None, grad_feats, grad_points], some)


@pytest.mark.large
@pytest.mark.slow
def test_one_row_of_more_than_2_to_31_elements() -> None:
    features = 2**28 + 24
    need_memory(3 * 2 * 8 * features / 1e9)
    feats = torch.empty(1, 8, features, device=CUDA, dtype=BF16).normal_()
    points = torch.tensor([[0.5, -0.25, 0.125]], device=CUDA)
    grad = torch.zeros(1, features, device=CUDA, dtype=BF16)
    # The gradient of points is a sum of few terms, which must be the last ones.
    grad[:, -40:] = torch.randn(40, device=CUDA)
    out, grad_feats, grad_points = run(feats, points, grad)
    wanted = expected(feats[..., -40:], points, grad[:, -40:])
    for actual, want in zip((out[:, -40:], grad_feats[..., -40:], grad_points), wanted, strict=True):
        assert_near(actual, want)
    head = expected(feats[..., :40], points, grad[:, :40])
    assert_near(out[:, :40], head[0])
    assert not grad_feats[..., :-40].any()


# ---------------------------------------------------------------- streams, graphs, devices


def test_graphed_module() -> None:
    feats, points, grad = make(200, 16)
    sample = (feats.clone().requires_grad_(), points.clone().requires_grad_())
    graphed = torch.cuda.make_graphed_callables(cppcuda.nn.Trilinear(), sample)
    for _ in range(2):
        a = [t.clone().requires_grad_() for t in (feats, points)]
        out = graphed(*a)
        gradients = torch.autograd.grad(out, a, grad)
        for actual, wanted in zip((out.detach(), *gradients), run(feats, points, grad), strict=True):
            assert torch.equal(actual, wanted)


def test_cpu_and_gpu_in_one_call() -> None:
    feats, points, grad = make(5, 4)
    with pytest.raises(RuntimeError, match=r"^trilinear: points must be on cuda:0, the device of feats, got cpu"):
        trilinear(feats, points.cpu())
    with pytest.raises(RuntimeError, match=r"^trilinear: points must be on cpu, the device of feats, got cuda:0"):
        trilinear(feats.cpu(), points)
    with pytest.raises(
        RuntimeError, match=r"^_trilinear_backward: feats must be on cuda:0, the device of grad, got cpu"
    ):
        trilinear_backward(grad, feats.cpu(), points, [True, True])


# ---------------------------------------------------------------- memory


def allocated(f: Callable[[], Any]) -> tuple[int, int]:
    """The number of blocks that f requests from the caching allocator, and their bytes."""
    f()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats(CUDA)
    kept = f()
    after = torch.cuda.memory_stats(CUDA)
    del kept
    blocks, size = "allocation.all.allocated", "requested_bytes.all.allocated"
    return after[blocks] - before[blocks], after[size] - before[size]


needs_statistics = pytest.mark.skipif(
    torch.cuda.get_allocator_backend() != "native" or os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1",
    reason="the allocator has no statistics",
)


@needs_statistics
@pytest.mark.parametrize("features", [3, 64])
def test_allocates_its_outputs_only(features: int) -> None:
    feats, points, grad = make(300, features)
    f, p, g = (t.nbytes for t in (feats, points, grad))
    assert allocated(lambda: trilinear(feats, points)) == (1, g)
    assert allocated(lambda: trilinear_backward(grad, feats, points, [True, True])) == (2, f + p)
    assert allocated(lambda: trilinear_backward(grad, None, points, [True, False])) == (1, f)
    assert allocated(lambda: trilinear_backward(grad, feats, points, [False, True])) == (1, p)
    feats.requires_grad_()
    points.requires_grad_()
    out = trilinear(feats, points)
    assert allocated(lambda: torch.autograd.grad(out, (feats, points), grad, retain_graph=True)) == (2, f + p)
    # Strided inputs are read in place, not copied.
    strided = feats.detach().transpose(0, 2).contiguous().transpose(0, 2)
    assert allocated(lambda: trilinear(strided, points.detach())) == (1, g)


@needs_statistics
def test_vmap_copies_nothing_that_is_shared() -> None:
    feats, points, _ = make(300, 16)
    many = points.expand(20, -1, -1).contiguous()
    blocks, size = allocated(lambda: torch.func.vmap(trilinear, in_dims=(None, 0))(feats, many))
    assert (blocks, size) == (1, 20 * 300 * 16 * 4)


# ---------------------------------------------------------------- transforms


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.compiles
def test_compile(fresh_compiler: None, mode: str | None) -> None:
    def f(feats: Tensor, points: Tensor) -> Tensor:
        return torch.relu(trilinear(feats * 2, points)) + 1

    compiled = torch.compile(f, fullgraph=True, dynamic=mode is None, mode=mode)
    for rows in (33, 65, 129) if mode is None else (64, 64, 64, 64):
        feats, points, grad = make(rows, 16)
        results = []
        for function in (compiled, f):
            a = [t.clone().requires_grad_() for t in (feats, points)]
            out = function(*a)
            results.append([t.clone() for t in (out.detach(), *torch.autograd.grad(out, a, grad))])
        for actual, wanted in zip(*results, strict=True):
            torch.testing.assert_close(actual, wanted)


# ---------------------------------------------------------------- operators that interpolate between rows of a table

OUT_OF_RANGE = """
import cppcuda, torch
table, points = torch.ones(5, 3, device="cuda"), torch.zeros(4, 3, device="cuda")
corners = torch.zeros(4, 8, dtype=torch.int64, device="cuda")
cppcuda.functional.trilinear_indexed(table, corners, points)
torch.cuda.synchronize()
corners[2, 7] = {index}
cppcuda.functional.trilinear_indexed(table, corners, points)
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("index", [5, -2, 2**40])
def test_index_out_of_range_stops_the_kernel(index: int) -> None:
    """As with torch's own operators, the process can then use the GPU no more."""
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_RANGE.format(index=index)], capture_output=True, text=True, timeout=300
    )
    assert "device-side assert triggered" in done.stdout, done.stdout + done.stderr
    assert "trilinear_indexed" in done.stderr and "corners must be in [-1, V)" in done.stderr, done.stderr


@pytest.mark.large
@pytest.mark.slow
def test_volume_of_more_than_2_to_31_voxels() -> None:
    side, sub = 1300, 4  # the points are between the last voxels
    assert side**3 > 2**31
    need_memory(4 * 2 * side**3 / 1e9)
    volume = torch.zeros(side, side, side, 1, device=CUDA, dtype=BF16)
    volume[-sub:, -sub:, -sub:] = torch.randn(sub, sub, sub, 1, device=CUDA)
    inner = volume[-sub:, -sub:, -sub:].clone()
    points = torch.rand(200, 3, device=CUDA) * 2 - 1
    outer = (((points + 1) / 2 * (sub - 1) + side - sub) / (side - 1)) * 2 - 1
    grad = torch.randn(200, 1, device=CUDA, dtype=BF16)
    sample = cppcuda.functional.grid_sample3d
    torch.testing.assert_close(
        sample(volume, outer, align_corners=True), sample(inner, points, align_corners=True), rtol=0.05, atol=0.05
    )
    backward = torch.ops.cppcuda._grid_sample3d_backward
    of_inner = backward(grad, None, points, inner.shape[:3], "zeros", True, [True, False])[0]
    for deterministic in (False, True):
        torch.use_deterministic_algorithms(deterministic)
        try:
            of_volume = backward(grad, None, outer, volume.shape[:3], "zeros", True, [True, False])[0]
        finally:
            torch.use_deterministic_algorithms(False)
        torch.testing.assert_close(of_volume[-sub:, -sub:, -sub:], of_inner, rtol=0.05, atol=0.05)
        assert not of_volume[:-sub].any()
        del of_volume


@pytest.mark.parametrize("points", [1, 100, 70000])
@pytest.mark.parametrize("features", [1, 2, 32, 100])
def test_both_orders_of_additions(points: int, features: int) -> None:
    """A sum of atomics and one in a fixed order, with many terms per row and with few."""
    grad = torch.randn(points, features, device=CUDA, dtype=F64)
    where = torch.rand(points, 3, device=CUDA, dtype=F64) * 2.2 - 1.1
    for side in (2, 40):
        arguments = (grad, None, where, [side] * 3, "zeros", False, [True, False])
        wanted = torch.ops.cppcuda._grid_sample3d_backward(*arguments)[0]
        torch.use_deterministic_algorithms(True)
        try:
            first, second = (torch.ops.cppcuda._grid_sample3d_backward(*arguments)[0] for _ in range(2))
        finally:
            torch.use_deterministic_algorithms(False)
        assert torch.equal(first, second)
        torch.testing.assert_close(first, wanted, rtol=1e-10, atol=1e-10)
