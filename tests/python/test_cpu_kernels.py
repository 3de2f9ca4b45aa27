"""The CPU kernels, for every CPU capability. Bits depend neither on threads nor on settings for memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cppcuda
import cppcuda.functional as F
import pytest
import torch
from cppcuda.testing.samples import forward_ops, outputs_of
from forked import Forked
from torch import Tensor
from torch.testing import assert_close

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
ANOTHER_PROCESS = """
import sys, torch
sys.path.insert(0, {tests!r})
from conftest import register_all
from test_cpu_kernels import results
register_all()
torch.save(dict(results()), {path!r})
"""

pytestmark = pytest.mark.any_torch


def gradients(outputs: Tensor | tuple[Tensor, ...], inputs: list[Tensor]) -> Iterator[Tensor]:
    outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
    yield from outputs
    yield from torch.autograd.grad(outputs, inputs, [torch.cos(o.detach()) for o in outputs])


def calls(dtype: torch.dtype) -> Iterator[tuple[str, Iterator[Tensor]]]:
    """Every operator's samples; sizes with and without a remainder, off 64-byte boundaries, for several threads."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int, start: int = 0) -> Tensor:
        count = torch.Size(shape).numel()
        memory = torch.randn(start + count, generator=generator, dtype=torch.float64).to(dtype)
        return memory[start:].view(shape).requires_grad_()

    for entry in forward_ops():
        for name in entry.names("shape"):
            sample = entry.sample(name, dtype).requires_grad()
            if all(t.numel() for t in sample.tensors):
                yield f"{entry.base_name} {name}", gradients(outputs_of(entry.op(*sample.args)), list(sample.tensors))
    for name, op in (("sigmoid", F.sigmoid), ("quick_gelu", F.quick_gelu)):
        for size, start in ((7, 1), (1000, 0), (70001, 3)):
            x = random(size, start=start)
            yield f"{name} {size}", gradients(op(x), [x])
        x = random(97, 131)
        yield f"{name} strided", gradients(op(x[::2, ::3].t()), [x])
    for features in (1, 3, 8, 16, 37, 64):
        feats, points = random(3001, 8, features), (random(3001, 3).detach() / 4).requires_grad_()
        yield f"trilinear {features}", gradients(F.trilinear(feats, points), [feats, points])
    for channels_last in (False, True):
        for channels, size in ((5, (21, 83)), (16, (40, 33))):
            image = random(2, channels, 17, 41).detach()
            if channels_last:
                image = image.to(memory_format=torch.channels_last)
            image.requires_grad_()
            for mode in ("half_pixel", "align_corners", "asymmetric"):
                y = F.upsample_bilinear2d(image, size, coordinate_transformation_mode=mode)
                yield f"upsample {channels} {mode} {channels_last}", gradients(y, [image])
    for batch, inputs, size in ((1, 3, 5), (16, 32, 128), (67, 19, 70)):
        shapes = ((batch, inputs), (3 * size, size + inputs), (3 * size,), (batch, size), (batch, size))
        cell = [random(*shape) for shape in shapes]
        yield f"lltm_cell {batch}", gradients(F.lltm_cell(*cell), cell)


def results() -> Iterator[tuple[str, list[Tensor]]]:
    for dtype in DTYPES:
        for name, tensors in calls(dtype):
            yield f"{name} {dtype}", [t.detach() for t in tensors]


def results_under(tmp_path: Path, **environment: str) -> dict[str, list[Tensor]]:
    path = tmp_path / "results.pt"
    code = ANOTHER_PROCESS.format(tests=str(Path(__file__).parent), path=str(path))
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, check=True, timeout=600)
    loaded: dict[str, list[Tensor]] = torch.load(path)
    return loaded


@pytest.fixture(scope="module")
def here() -> dict[str, list[Tensor]]:
    return dict(results())


INVALID = [
    *(("CPPCUDA_STREAM_BYTES", value) for value in ("32M", "yes", " 1", "1.5", "-1", "99999999999999999999")),
    ("CPPCUDA_HUGE_PAGES", "yes"),
]


def test_invalid_environment_variables() -> None:
    """The library reads its variables on first use, so each value gets a fork of a process that has not used it."""
    code = f"""
import os, torch, cppcuda
for name, value in {INVALID}:
    if os.fork() == 0:
        os.environ[name] = value
        try:
            cppcuda.functional.sigmoid(torch.zeros(1 << 24))
        except RuntimeError as error:
            print(str(error).splitlines()[0], flush=True)
        os._exit(0)
    os.wait()
"""
    done = Forked(code).wait()
    assert done.out.splitlines() == [
        f"cppcuda: the environment variable {name} must be a non-negative integer, got '{value}'"
        for name, value in INVALID
    ], done.err


@pytest.mark.parametrize(
    "environment",
    [
        {"OMP_NUM_THREADS": "3"},
        {"OMP_NUM_THREADS": "1", "CPPCUDA_STREAM_BYTES": str(1 << 60)},
        {"CPPCUDA_STREAM_BYTES": "0", "CPPCUDA_HUGE_PAGES": "0"},
    ],
    ids=lambda e: ",".join(map("=".join, e.items())),
)
def test_bits_are_the_same(tmp_path: Path, here: dict[str, list[Tensor]], environment: dict[str, str]) -> None:
    there = results_under(tmp_path, **environment)
    assert there.keys() == here.keys()
    for name, tensors in here.items():
        if name.startswith(("lltm ", "lltm_cell group")) or re.fullmatch(r"lltm_cell 67 .*float16", name):
            continue  # matrix products of at::bmm and at::mm, which do not promise the same bits; see test_lltm.py
        for result, expected in zip(there[name], tensors, strict=True):
            assert torch.equal(result, expected), name


CAPABILITIES = ["default", "avx2", "avx512"]


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_capability(tmp_path: Path, here: dict[str, list[Tensor]], capability: str) -> None:
    of_machine = torch.backends.cpu.get_cpu_capability().lower()
    if of_machine in CAPABILITIES and CAPABILITIES.index(capability) > CAPABILITIES.index(of_machine):
        pytest.skip(f"the processor has {of_machine} only")  # torch does not check the variable
    if {"default": "base"}.get(capability, capability) not in cppcuda.config().cpu_instruction_sets:
        pytest.skip("not compiled (CPPCUDA_ISAS)")
    there = results_under(tmp_path, ATEN_CPU_CAPABILITY=capability)
    if capability == "default" and torch.backends.cpu.get_cpu_capability() != "DEFAULT":
        # Sums with other vector lengths round differently, which shows that the variable has an effect.
        assert not all(torch.equal(a, b) for name in here for a, b in zip(there[name], here[name], strict=True))
    for name, tensors in here.items():
        # A gradient is a sum of many terms; 16-bit results may be rounded to either side.
        for result, expected in zip(there[name], tensors, strict=True):
            tolerance = {torch.float64: 1e-12, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
            atol = tolerance[result.dtype] * max(1.0, float(expected.abs().max()))
            torch.testing.assert_close(result, expected, rtol=tolerance[result.dtype], atol=atol, msg=name)


@pytest.mark.parametrize("special", [1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("features", [1, 2, 3, 5, 7, 8, 13])
def test_few_features_together_and_apart(features: int, special: float) -> None:
    """The kernel reads a contiguous row as a whole, and any other row corner by corner."""
    torch.manual_seed(features)
    together, points = torch.randn(33, 8, features), torch.rand(33, 3) * 2 - 1
    together[5, 3, -1] = special
    points[7, 1] = special
    apart = torch.randn(33, 8, features + 1)[..., :features].copy_(together)
    grad = torch.randn(33, features)
    grad[9, 0] = special

    def of(feats: Tensor) -> list[Tensor]:
        inputs = [feats.requires_grad_(), points.clone().requires_grad_()]
        out = F.trilinear(*inputs)
        return [out, *torch.autograd.grad(out, inputs, grad)]

    for result, expected in zip(of(together), of(apart), strict=True):
        torch.testing.assert_close(result, expected, equal_nan=True)


@pytest.mark.parametrize("features", [1, 4, 5])
def test_an_infinite_position_may_have_a_value(features: int) -> None:
    feats = torch.tensor([-1.0, 1.0]).repeat_interleave(4)[None, :, None].expand(1, 8, features).contiguous()
    assert torch.equal(
        F.trilinear(feats, torch.tensor([[float("inf"), 0.5, -0.5]])), torch.full((1, features), torch.inf)
    )


@pytest.mark.parametrize("features", [1, 2, 4, 5])
def test_an_infinite_gradient_reaches_the_axes_that_it_must(features: int) -> None:
    """Along axis 0, all terms have the same sign. Along the others, infinities of both signs cancel to NaN."""
    feats = torch.tensor([-1.0, 1.0]).repeat_interleave(4)[None, :, None].repeat(1, 1, features).requires_grad_()
    points = torch.full((1, 3), 0.5, requires_grad=True)
    grad = torch.full((1, features), torch.inf)
    grad_feats, grad_points = torch.autograd.grad(F.trilinear(feats, points), (feats, points), grad)
    assert grad_feats.eq(torch.inf).all()
    assert_close(grad_points, torch.tensor([[torch.inf, torch.nan, torch.nan]]), equal_nan=True)
    (alone,) = torch.autograd.grad(F.trilinear(feats.detach(), points), points, grad)
    assert_close(alone, grad_points, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_16_bit_value(dtype: torch.dtype) -> None:
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(dtype)
    expected = torch.sigmoid(x.double()).to(dtype)
    result = F.sigmoid(x)
    # Rounded to nearest, unless the float32 in between is next to a tie. Below the normal numbers, exp overflows.
    normal = expected >= torch.finfo(dtype).tiny if dtype == torch.bfloat16 else ~expected.isnan()
    wrong = (result.view(torch.int16) - expected.view(torch.int16)).abs()[normal]
    assert wrong.max() <= 1
    assert (wrong > 0).sum() < 20
    assert torch.equal(result.isnan(), x.isnan())


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_the_place(dtype: torch.dtype) -> None:
    x = torch.randn(1000, dtype=torch.float64).mul_(8).to(dtype)
    for op in (F.sigmoid, F.quick_gelu):
        expected = op(x)
        for start in range(70):
            assert torch.equal(op(x[start : start + 97]), expected[start : start + 97])
        assert torch.equal(op(x[::3]), expected[::3])  # more than one block of the strided loop


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_sigmoid_is_close_everywhere(dtype: torch.dtype) -> None:
    x = torch.cat([torch.linspace(-800, 800, 100001, dtype=torch.float64), torch.tensor([float("inf"), -float("inf")])])
    x = x.to(dtype)
    expected = torch.sigmoid(x.double())
    # Below this, the result is subnormal or exp is infinite.
    normal = expected > 2 * torch.finfo(dtype).tiny
    error = ((F.sigmoid(x).double() - expected) / expected).abs()[normal]
    assert error.max() < 3 * torch.finfo(dtype).eps
    assert F.sigmoid(x)[~normal].max() <= 2 * torch.finfo(dtype).tiny
    assert F.sigmoid(torch.tensor(float("nan"), dtype=dtype)).isnan()


def huge_page_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHugePages"))


@pytest.mark.parametrize("wanted", [True, False])
def test_huge_pages(wanted: bool) -> None:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[madvise]" not in setting.read_text():
        pytest.skip("the operating system alone decides about huge pages")
    code = (
        f"import sys, torch; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import cppcuda.functional as F; from test_cpu_kernels import huge_page_bytes\n"
        "x = torch.zeros(1 << 24); before = huge_page_bytes(); y = F.sigmoid(x)\n"
        "print(huge_page_bytes() - before, y.nbytes)"
    )
    process = Forked(code, environment={**os.environ, "CPPCUDA_HUGE_PAGES": str(int(wanted))}).wait()
    huge, size = map(int, process.out.split())
    assert huge > size / 2 if wanted else huge == 0
