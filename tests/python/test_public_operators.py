"""Operators of public libraries, made with the kit from what their documentation says (tests/second_library/public):
those over segments, boxes and points, and a convolution with a state. Others are in test_functions.py and
test_second_library.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cppcuda._fake import register_fakes
from cppcuda.testing import check
from formulas import LIBRARY, double, second
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.func import vmap

try:
    import torchvision
except ImportError:
    torchvision = None

pytestmark = pytest.mark.any_torch
needs_torchvision = pytest.mark.skipif(torchvision is None, reason="torchvision is not installed")


# ---------------------------------------------------------------- segments


def members(indptr: Tensor, rows: int) -> Tensor:
    """Which of the rows each segment has, [..., S, N]."""
    row = torch.arange(rows)
    return (indptr[..., :-1, None] <= row) & (row < indptr[..., 1:, None])


def segment_csr(src: Tensor, indptr: Tensor, reduce: str = "sum") -> Tensor:
    of_segment = members(indptr, src.shape[-2]).to(src.dtype)
    count = indptr.diff().clamp(min=1)[..., None] if reduce == "mean" else 1
    return of_segment @ src / count


def segment_extreme_csr(src: Tensor, indptr: Tensor, largest: bool = True) -> tuple[Tensor, Tensor]:
    of_segment = members(indptr, src.shape[-2])[..., None]
    lowest = torch.tensor(-torch.inf, dtype=src.dtype)
    values = torch.where(of_segment, src.unsqueeze(-3) * (1 if largest else -1), lowest)
    # A row after the last one, which an empty segment takes.
    last = torch.where((indptr.diff() == 0)[..., None], 0.0, lowest).unsqueeze(-2)
    least, rows = torch.cat((values, last.expand(*values.shape[:-2], 1, values.shape[-1])), -2).max(-2)
    return least * (1 if largest else -1), rows


def gather_csr(src: Tensor, indptr: Tensor, n: int) -> Tensor:
    return members(indptr, n).to(src.dtype).mT @ src


def softmax_csr(src: Tensor, indptr: Tensor) -> Tensor:
    of_segment = members(indptr, src.shape[-2])[..., None]
    values = torch.where(of_segment, src.unsqueeze(-3), -torch.inf)
    highest = torch.where((indptr.diff() > 0)[..., None, None], values.amax(-2, keepdim=True), 0.0).detach()
    shares = torch.where(of_segment, (src.unsqueeze(-3) - highest).exp(), 0.0)
    sums = shares.sum(-2, keepdim=True)
    return (shares / torch.where(sums > 0, sums, 1)).sum(-3)


SRC, GATHERED = torch.linspace(-2, 1, 18).view(6, 3).cos(), torch.linspace(-1, 2, 12).view(4, 3).sin()
INDPTR = torch.tensor([0, 2, 2, 3, 6])
PART = torch.tensor([1, 3, 3, 4, 5])  # the first and the last row are in no segment
SEGMENTS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "segment_csr": (segment_csr, [(SRC, INDPTR), (SRC, PART, "mean")]),
    "segment_extreme_csr": (segment_extreme_csr, [(SRC, INDPTR), (SRC, PART, False)]),
    "gather_csr": (gather_csr, [(GATHERED, INDPTR, 6), (GATHERED, PART, 7)]),
    "softmax_csr": (softmax_csr, [(SRC, INDPTR), (SRC, PART)]),
}


@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.compiles
def test_segments(name: str) -> None:
    report = check(
        f"second::{name}",
        *SEGMENTS[name],
        # Others of the second library are exported and compiled; the compiler sees the same nodes.
        skip=["AOTInductor", *([] if name == "segment_extreme_csr" else ["compile", "export"])],
    )
    assert not report.failed, report


@pytest.mark.parametrize("name", SEGMENTS)
def test_bounds_of_segments(name: str) -> None:
    src, _, *rest = SEGMENTS[name][1][0]
    for bad, got in (([0, 2, 1, 3, 6], "1 at 2"), ([0, 2, 3, 3, 7], "7 at 4"), ([-1, 2, 3, 3, 6], "-1 at 0")):
        message = rf"^{name}: indptr must not decrease and be in \[0, 6\], got {got}"
        with pytest.raises(IndexError, match=message):
            getattr(second, name)(src, torch.tensor(bad), *rest)


def test_segments_with_nan() -> None:
    src = SRC.clone()
    src[4] = torch.nan
    for largest in (True, False):
        values, rows = second.segment_extreme_csr(src, INDPTR, largest)
        assert values[3].isnan().all() and rows[3].eq(4).all()
        torch.testing.assert_close(values[:3], segment_extreme_csr(SRC, INDPTR, largest)[0][:3])


def test_reduce_has_two_values() -> None:
    with pytest.raises(RuntimeError, match=r"^segment_csr: reduce must be 'sum' or 'mean', got 'max'"):
        second.segment_csr(SRC, INDPTR, "max")


# ---------------------------------------------------------------- boxes


def boxes(n: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    corner, size = torch.rand(2, n, 2, generator=generator) * torch.tensor([[[40.0]], [[15.0]]])
    return torch.cat((corner, corner + size), 1).to(dtype), torch.rand(n, generator=generator).to(dtype)


@needs_torchvision
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n", [0, 1, 200])
def test_nms_is_torchvisions(n: int, threshold: float) -> None:
    dets, scores = boxes(n)
    expected = torchvision.ops.nms(dets, scores, threshold)
    assert torch.equal(second.nms(dets, scores, threshold), expected)
    assert torch.equal(second.nms(dets.requires_grad_(), scores, threshold), expected)
    strided = torch.cat((dets, dets), 1)[:, :4].detach()
    assert torch.equal(second.nms(strided, scores, threshold), expected)


@needs_torchvision
def test_nms_of_equal_scores() -> None:
    dets, _ = boxes(100)
    scores = torch.arange(100) % 3 * 0.5
    assert torch.equal(second.nms(dets, scores, 0.2), torchvision.ops.nms(dets, scores, 0.2))


@needs_torchvision
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
def test_roi_align_is_torchvisions(ratio: int, aligned: bool) -> None:
    images = double(2, 3, 16, 20).requires_grad_()
    # The last regions are empty, and outside the image.
    corners = torch.cat((boxes(7, torch.float64)[0] * 2, torch.tensor([[5.0, 5, 5, 5], [-90, -90, -70, -70]]).double()))
    rois = torch.cat((torch.arange(9).double()[:, None] % 2, corners), 1)
    arguments = (0.25, 3, 4, ratio, aligned)
    expected = torchvision.ops.roi_align(images, rois, (3, 4), *(arguments[i] for i in (0, 3, 4)))
    found = second.roi_align(images, rois, *arguments)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    grad = expected.detach().cos()
    (expected_grad,) = torch.autograd.grad(expected, images, grad)
    torch.testing.assert_close(torch.autograd.grad(found, images, grad)[0], expected_grad, rtol=1e-10, atol=1e-10)


def roi_align(
    images: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int = 2, aligned: bool = False
) -> Tensor:
    shift = 0.5 if aligned else 0.0
    sides = rois[..., 1:] * scale - shift
    size = (sides[..., 2:] - sides[..., :2]).clamp(min=0.0 if aligned else 1.0)
    image = images.take_along_dim(rois[..., 0].long()[..., None, None, None], -4)

    def weights(axis: int, cells: int, pixels: int) -> Tensor:
        samples = (torch.arange(cells * ratio, dtype=rois.dtype) + 0.5) / (cells * ratio)
        at = sides[..., axis, None] + samples * size[..., axis, None]
        is_near = (at >= -1) & (at <= pixels)
        inside = at.clamp(0, pixels - 1)[..., None]
        hat = (1 - (inside - torch.arange(pixels, dtype=rois.dtype)).abs()).clamp(min=0) * is_near[..., None]
        return hat.unflatten(-2, (cells, ratio)).mean(-2).unsqueeze(-3)

    rows, columns = weights(1, height, images.shape[-2]), weights(0, width, images.shape[-1])
    return rows.to(images.dtype) @ image @ columns.to(images.dtype).mT


@pytest.mark.compiles
def test_roi_align_has_all_properties() -> None:
    images = torch.linspace(0, 9, 2 * 2 * 6 * 7).sin().view(2, 2, 6, 7)
    rois = torch.tensor([[0, 1.0, 1.5, 4.25, 3.5], [1, 2, 1, 3.5, 4], [0, 0.75, 2, 5, 3.25]])
    report = check(
        "second::roi_align",
        roi_align,
        [(images, rois, 1.0, 2, 3, 2), (images, rois, 0.75, 2, 2, 2, True)],
        differentiable=("input",),
        skip={
            **dict.fromkeys(("float16", "bfloat16"), "rois have the dtype of the images, which rounds their corners"),
            **dict.fromkeys(("vmap", "strides", "compile", "export"), "the first entry of a roi is not any number"),
            "DTensor": "the gradient of rois is missing, not zero",
            "AOTInductor": "others of this library are compiled",
        },
    )
    assert not report.failed, report


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
def test_roi_align_in_other_ways() -> None:
    """What cppcuda.testing cannot try with random regions."""
    images = double(2, 2, 6, 7).mT.contiguous().mT.requires_grad_()
    rois = torch.tensor([[0, 1.0, 1.5, 4.25, 3.5], [1, 2, 1, 3.5, 4]]).double()
    with pytest.raises(IndexError, match=r"^roi_align: rois must name images in \[0, 2\), got 2"):
        second.roi_align(images, rois + 1, 1.0, 2, 3)
    expected = roi_align(images, rois, 1.0, 2, 3)
    batch = torch.stack((images, images.cos()))
    found = vmap(second.roi_align, (0, None, None, None, None, None))(batch, rois, 1.0, 2, 3, 2)
    torch.testing.assert_close(found, torch.stack([roi_align(t, rois, 1.0, 2, 3) for t in batch]))
    compiled = torch.compile(lambda x, r: second.roi_align(x, r, 1.0, 2, 3, 2) * 2, fullgraph=True, dynamic=True)
    (grad,) = torch.autograd.grad(compiled(images, rois).cos().sum(), images)
    (expected_grad,) = torch.autograd.grad((expected * 2).cos().sum(), images)
    torch.testing.assert_close(grad, expected_grad)
    torch.library.opcheck(second.roi_align, (images, rois, 1.0, 2, 3, 2))


# ---------------------------------------------------------------- points


def knn(x: Tensor, y: Tensor, k: int, cosine: bool = False) -> Tensor:
    distances = 1 - torch.cosine_similarity(y[:, None], x[None], dim=-1) if cosine else torch.cdist(y, x)
    columns = distances.argsort(dim=1, stable=True)[:, :k]
    return torch.stack((torch.arange(len(y)).repeat_interleave(columns.shape[1]), columns.flatten()))


@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.parametrize("k", [0, 1, 4, 30])
def test_knn(k: int, cosine: bool) -> None:
    x, y = double(20, 3), double(9, 3)
    assert torch.equal(second.knn(x, y, k, cosine=cosine), knn(x, y, k, cosine))
    ptr_x, ptr_y = torch.tensor([0, 12, 12, 20]), torch.tensor([0, 4, 6, 9])
    groups = []
    for i in range(3):
        pairs = knn(x[ptr_x[i] : ptr_x[i + 1]], y[ptr_y[i] : ptr_y[i + 1]], k, cosine)
        groups.append(pairs + torch.stack((ptr_y[i], ptr_x[i]))[:, None])
    assert torch.equal(second.knn(x, y, k, ptr_x, ptr_y, cosine), torch.cat(groups, 1))


def fps(src: Tensor, ratio: float, first: int = 0) -> Tensor:
    chosen = [first]
    while len(chosen) < -(-len(src) * ratio // 1):
        distances = torch.cdist(src, src[chosen]).amin(1)
        chosen.append(int(distances.argmax()))
    return torch.tensor(chosen)


@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.0])
def test_fps(ratio: float) -> None:
    src = double(23, 3)
    assert torch.equal(second.fps(src, ratio=ratio), fps(src, ratio))
    ptr = torch.tensor([0, 10, 10, 23])
    expected = torch.cat((fps(src[:10], ratio), fps(src[10:], ratio) + 10))
    assert torch.equal(second.fps(src, ptr, ratio), expected)


def test_fps_from_a_random_point() -> None:
    src = double(50, 2)

    def start(seed: int) -> int:
        generator = torch.Generator().manual_seed(seed)
        found = second.fps(src, ratio=0.2, random_start=True, generator=generator)
        assert torch.equal(found, fps(src, 0.2, int(found[0])))
        return int(found[0])

    starts = [start(seed) for seed in range(8)]
    assert len({*starts}) > 3 and starts == [start(seed) for seed in range(8)]


# Operators whose results have a size that the kernel finds, and tensors with a number of rows.
FOUND: dict[str, tuple[Callable[..., Tensor], Callable[[int], tuple[Tensor, ...]]]] = {
    "nms": (lambda dets, scores: second.nms(dets, scores, 0.3), boxes),
    "knn": (lambda x, y: second.knn(x, y, 3), lambda n: (double(n, 3), double(n // 2, 3))),
    "fps": (lambda src: second.fps(src), lambda n: (double(n, 3),)),
}


FOUND_REFERENCES: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]], dict[str, Any]]] = {
    "nms": (
        lambda *args: torchvision.ops.nms(*args),
        [(*boxes(12), 0.3), (*boxes(7), 0.1)],
        {"dtypes": [torch.float64, torch.float32]},
    ),
    "knn": (lambda x, y, k: knn(x, y, k), [(double(6, 3), double(4, 3), 2)], {}),
    "fps": (lambda src, ptr=None, ratio=0.5: fps(src, ratio), [(double(9, 3),)], {}),
}


@pytest.mark.parametrize("name", FOUND_REFERENCES)
@pytest.mark.compiles
def test_found_sizes_have_the_other_properties(name: str) -> None:
    if name == "nms" and torchvision is None:
        pytest.skip("torchvision is not installed")
    register_fakes("second")
    reference, samples, options = FOUND_REFERENCES[name]
    skip = {
        "vmap": "rows of a batch have results of different sizes",
        "DTensor": "the results depend on all rows",
        "AOTInductor": "others of this library are compiled",
    }
    report = check(f"second::{name}", reference, samples, orders=0, skip=skip, **options)
    assert not report.failed, report


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
def test_found_sizes_are_compiled_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    register_fakes("second")
    call, tensors = FOUND[name]
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(lambda *args: call(*args) * 2 + 1, fullgraph=True, dynamic=True, backend=counter)
    for n in (30, 41, 56):
        args = tensors(n)
        assert torch.equal(compiled(*args), call(*args) * 2 + 1)
    assert counter.frame_count == 1


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.compiles
def test_found_sizes_are_exported(name: str) -> None:
    register_fakes("second")
    call, tensors = FOUND[name]

    class Module(torch.nn.Module):
        def forward(self, *args: Tensor) -> Tensor:
            return call(*args) + 1

    example = tensors(30)
    dims = tuple({0: torch.export.Dim.DYNAMIC} for _ in example)
    program = torch.export.export(Module(), example, dynamic_shapes=(dims,)).module()
    for n in (30, 44):
        args = tensors(n)
        assert torch.equal(program(*args), call(*args) + 1)


@pytest.mark.compiles
def test_found_sizes_pass_opcheck() -> None:
    register_fakes("second")
    torch.library.opcheck(second.nms, (*boxes(12), 0.3))
    torch.library.opcheck(second.knn, (double(12, 3), double(5, 3), 2))
    torch.library.opcheck(second.fps, (double(12, 3),))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: second.nms(double(3, 5), double(3), 0.5), "nms: dets must be [N, 4], got [3, 5]"),
        (lambda: second.nms(double(3, 4), double(2), 0.5), "nms: scores must be [N] with N = 3, got [2]"),
        (lambda: second.knn(double(3, 2), double(3, 3), 1), "knn: y must be [M, D] with D = 2, got [3, 3]"),
        (lambda: second.knn(double(3, 2), double(3, 2), -1), "knn: k must be at least 0, got -1"),
        (
            lambda: second.knn(double(3, 2), double(3, 2), 1, torch.tensor([0, 2]), torch.tensor([0, 3])),
            "knn: ptr_x must begin with 0, not decrease, and end with 3, the number of points, got [0, 2]",
        ),
        (
            lambda: second.knn(double(3, 2), double(3, 2), 1, torch.tensor([0, 2, 3])),
            "knn: ptr_x and ptr_y must have groups of the same number, got 2 and 1",
        ),
        (lambda: second.fps(double(3, 2), ratio=0.0), "fps: ratio must be in (0, 1], got 0"),
    ],
)
def test_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((RuntimeError, IndexError)) as caught:
        call()
    assert str(caught.value).splitlines()[0] == message


# ---------------------------------------------------------------- causal_conv1d


def causal_conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, state: Tensor | None = None, silu: bool = False
) -> Tensor:
    width = weight.shape[1]
    before = x.new_zeros(*x.shape[:-1], width - 1) if state is None else state
    all_ = torch.cat((before, x), -1)
    result = torch.nn.functional.conv1d(all_, weight[:, None], bias, groups=len(weight))
    if state is not None:
        state.copy_(all_[..., x.shape[-1] :])
    return torch.nn.functional.silu(result) if silu else result


def conv_inputs(length: int = 9, width: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return double(2, 3, length), double(3, width), double(3), double(2, 3, width - 1)


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize("width", [1, 4])
def test_causal_conv1d(width: int, length: int, silu: bool) -> None:
    x, weight, bias, state = conv_inputs(length, width)
    torch.testing.assert_close(second.causal_conv1d(x, weight), causal_conv1d(x, weight))
    own, strided = state.clone(), state.mT.contiguous().mT
    for written in (own, strided):
        found = second.causal_conv1d(x, weight, bias, written, silu)
        expected_state = state.clone()
        torch.testing.assert_close(found, causal_conv1d(x, weight, bias, expected_state, silu))
        assert torch.equal(written, expected_state)


def test_causal_conv1d_continues() -> None:
    """A call for each entry, with the state of the one before, gives what one call for all of them does."""
    x, weight, bias, state = conv_inputs()
    whole = second.causal_conv1d(x, weight, bias, state.clone())
    parts = [second.causal_conv1d(x[..., i : i + 1].contiguous(), weight, bias, state) for i in range(x.shape[-1])]
    torch.testing.assert_close(torch.cat(parts, -1), whole)


def test_causal_conv1d_under_vmap() -> None:
    x, weight, bias, state = conv_inputs()
    rows = [torch.stack((t, t.cos(), t.sin())) for t in (x, weight, bias, state)]
    expected_states = rows[3].clone()
    expected = [causal_conv1d(*(t[i] for t in rows[:3]), expected_states[i]) for i in range(3)]
    torch.testing.assert_close(vmap(second.causal_conv1d)(*rows), torch.stack(expected))
    assert torch.equal(rows[3], expected_states)


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
def test_causal_conv1d_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

    def step(x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        own = state * 2
        y = second.causal_conv1d(x + 1, weight, bias, own, True)
        return y + own.sum(), own

    inputs = conv_inputs()
    own = inputs[3] * 2
    expected = causal_conv1d(inputs[0] + 1, *inputs[1:3], own, True)
    torch.testing.assert_close(torch.compile(step, fullgraph=True)(*inputs), (expected + own.sum(), own))
    torch.library.opcheck(second.causal_conv1d, inputs)


def test_causal_conv1d_loses_no_gradient() -> None:
    x, weight, bias, state = conv_inputs()
    with pytest.raises(RuntimeError, match=r"^causal_conv1d: weight requires a gradient"):
        second.causal_conv1d(x, weight.requires_grad_(), bias, state)
    with torch.no_grad():
        second.causal_conv1d(x, weight, bias, state)


# ---------------------------------------------------------------- CUDA


@pytest.mark.compiles
def test_cuda_kernels() -> None:
    """The emulator runs the PTX of every kernel of loops.cpp, in all dtypes, and looks for races between threads."""
    emulated = Path(LIBRARY).with_name("libsecond_emulated.so")
    if not emulated.exists():
        pytest.skip("this build has no CUDA kernels to emulate")
    settings = {"CPPCUDA_EMULATOR_RACES": "1", "CPPCUDA_EMULATOR_EVERY_KERNEL": "1", "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("emulated_loops.py")
    environment = {**os.environ, **settings, "CPPCUDA_SECOND_LIBRARY": str(emulated)}
    run = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
