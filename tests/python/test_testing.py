"""cppcuda.testing itself: reports, what follows from samples, vacuous results, and the suite as a command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cppcuda._declaration import Declaration
from cppcuda.testing import ROWS, Spec, T, check, plugin
from cppcuda.testing.check import make_entry
from cppcuda.testing.compare import assert_close
from cppcuda.testing.derived import masks_and_missing, resized
from cppcuda.testing.plugin import import_samples
from cppcuda.testing.registry import PROPERTIES, causes
from torch import Tensor
from torch.torch_version import TorchVersion

X = torch.linspace(-2, 2, 6, dtype=torch.float64).view(3, 2)


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


@pytest.mark.compiles
def test_an_operator_of_torch_passes_whole() -> None:
    report = check("aten::sigmoid", sigmoid, samples=[(X,), (torch.rand(2, 3, 4) - 0.5,)])
    assert not report.failed, report
    assert list(report.not_checked) == ["bad input"]
    assert report.passed == [row for row in ROWS if row != "bad input"]


def discrete_fourier_transform(x: Tensor) -> Tensor:
    size = x.shape[-1]
    angles = torch.outer(torch.arange(size), torch.arange(size // 2 + 1)).double() * (2 * torch.pi / size)
    return torch.complex(x @ angles.cos().to(x.dtype), -x @ angles.sin().to(x.dtype))


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return x * torch.sigmoid((8 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))
    return x * 0.5 * (1 + torch.erf(x / 2**0.5))


A = torch.tensor([[2.0, 0.5, 0.1], [0.3, 3.0, -0.2], [-0.4, 0.2, 1.5]])
V = torch.tensor([[0.3, -1.2, 0.7, 2.1], [-0.4, 0.9, -1.5, 0.2], [1.1, -0.6, 0.4, -0.8]])
FOREIGN: dict[str, tuple[Any, list[tuple[Any, ...]], list[str]]] = {
    # Keyword-only arguments, which may be left out
    "gelu": (gelu, [(V,), (V, {"approximate": "tanh"})], []),
    "cumsum": (lambda x, d: x @ torch.ones(x.shape[d], x.shape[d], dtype=x.dtype).triu(), [(V, 1)], []),
    # It is made of other operators, which vmap calls instead
    "rms_norm": (lambda x, s: x * (x.square().mean(-1, True) + torch.finfo(x.dtype).eps).rsqrt(), [(V, [4])], []),
    # Rows of equal values are singular matrices, and have no order; 16 bits are not implemented
    "linalg_solve": (
        lambda a, b, left=True: torch.linalg.inv(a) @ b if left else b @ torch.linalg.inv(a),
        [(A, V), (A, V.T, {"left": False})],
        ["float16", "bfloat16"],
    ),
    "sort": (lambda x: torch.topk(x, x.shape[-1], largest=False), [(V,)], []),
    # Complex outputs
    "fft_rfft": (discrete_fourier_transform, [(V,)], ["float16", "bfloat16", "kept alive"]),
    # No output is floating point; sizes of outputs that depend on values
    "argmax": (lambda x, d: torch.topk(x, 1, d)[1].squeeze(d), [(V, 1)], []),
    "nonzero": (torch.nonzero, [(V,)], ["vmap"]),
    # No second derivative, no forward mode: each is reported once
    "scaled_dot_product_attention": (
        lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v,
        [(V[None], V.sin()[None], V.cos()[None])],
        ["double backward", "forward AD", "kept alive", "vmap"],
    ),
}


@pytest.mark.skipif(
    TorchVersion(torch.__version__) < "2.15", reason="what torch's operators lack depends on its version"
)
@pytest.mark.parametrize("name", FOREIGN)
def test_other_peoples_operators(name: str) -> None:
    """What fails is what the operator lacks, and nothing that only relies on it."""
    reference, samples, failed = FOREIGN[name]
    slow = ["compile", "compiled autograd", "export", "AOTInductor", "DTensor", "autocast"]
    report = check(f"aten::{name}", reference, samples, skip=slow)
    assert report.failed == failed, report
    if "double backward" in failed:
        assert "torch.func" in report.passed and "except for what needs double backward, forward AD" in str(report)


@pytest.mark.compiles
@pytest.mark.skipif(TorchVersion(torch.__version__) < "2.15", reason="the transforms of torch's operators differ")
def test_keyword_arguments_reach_every_transform() -> None:
    rows = ["compile", "export", "DTensor"]
    report = check("aten::gelu", gelu, [(V, {"approximate": "tanh"})], only=rows)
    assert report.passed == [row for row in ROWS if row in rows], report


def test_keyword_arguments_that_are_tensors_are_refused() -> None:
    reference = lambda x, reduce, lengths: torch.stack([t.sum(0) for t in x.split(lengths.tolist())])  # noqa: E731
    sample = (V, "sum", {"lengths": torch.tensor([1, 2])})
    with pytest.raises(ValueError, match="a keyword argument of a sample cannot be a tensor, but lengths is one"):
        check("aten::segment_reduce", reference, [sample])


def layer_norm(x: Tensor, _: Any, w: Tensor, b: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    mean = x.mean(-1, True)
    rstd = ((x - mean).square().mean(-1, True) + eps).rsqrt()
    return (x - mean) * rstd * w + b, mean.detach(), rstd.detach()


def determinant(a: Tensor) -> Tensor:
    return (a[..., 0, :] * torch.linalg.cross(a[..., 1, :], a[..., 2, :])).sum(-1)


@pytest.mark.skipif(
    TorchVersion(torch.__version__) < "2.15", reason="what torch's operators lack depends on its version"
)
def test_no_false_alarm() -> None:
    """An output that the reference detaches has no gradient, and may be wider; an output without dims has one place for
    a batch; derivatives of high order of a large value are as inexact as those of the reference."""
    rows = ["float64", "float16", "bfloat16", "backward", "saved tensors"]
    samples = [(V, [4], V[0].cos(), V[1], 1e-5)]
    report = check("aten::native_layer_norm", layer_norm, samples, only=rows)
    assert report.passed == rows, report
    rows = ["double backward", "vmap", "torch.func"]
    report = check("aten::linalg_det", determinant, [(A,)], only=rows)
    assert report.passed == rows, report
    wide = {d: {"rtol": 1e-4, "atol": 1e-4} for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}
    doubled = lambda x, s: torch.nn.functional.layer_norm(2 * x, s)  # noqa: E731
    report = check("aten::layer_norm", doubled, [(V, [4])], only=rows, tolerance=wide)
    assert report.failed == ["backward", "vmap"], report  # a cause is in the report, also if it was not selected


def test_what_is_left_out_has_a_reason() -> None:
    rows = ["float64", "float16", "double backward", "torch.func", "TorchScript", "vmap"]
    with pytest.raises(ValueError, match="there is no property 'vmaps'"):
        check("aten::sigmoid", sigmoid, [(X,)], skip={"vmaps": "why"})
    report = check("aten::sigmoid", sigmoid, [(X,)], only=rows, dtypes=[torch.float64], orders=1, skip={"vmap": "why"})
    assert report.passed == ["float64", "torch.func", "TorchScript"], report
    assert report.not_checked == {
        "float16": "not among the dtypes that were given",
        "double backward": "orders=1 was given",
        "vmap": "why",
    }


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_operators_that_take_one_dtype(dtype: torch.dtype) -> None:
    """Other dtypes are not needed for what can be checked without them."""
    rows = [str(dtype)[6:], "strides", "empty", "aliasing", "threads", "backward", "meta"]
    report = check("aten::sigmoid", sigmoid, [(X,)], only=[*rows, "double backward"], dtypes=[dtype])
    wide = dtype == torch.float64
    assert report.passed == [row for row in ROWS if row in rows or (wide and row == "double backward")], report
    assert report.not_checked == ({} if wide else {"double backward": "it needs float64"})
    assert "of the reference in float64" in str(report)
    report = check("aten::bitwise_not", torch.sign, [(X,)], only=["float64", "vmap"])
    assert report.failed == ["float64"] and "nothing could be compared in any dtype" in str(report), report


def test_arguments_without_a_gradient() -> None:
    """The weight of a lerp, say, is treated like indices: it is neither differentiated nor batched."""
    rows = ["float16", "strides", "backward", "double backward", "forward AD", "kept alive", "vmap", "torch.func"]
    samples = [(V, V.sin(), V.cos().square())]
    reference = lambda x, end, weight: x + weight.detach() * (end - x)  # noqa: E731
    assert "backward" in check("aten::lerp.Tensor", reference, samples, only=rows).failed
    report = check("aten::lerp.Tensor", reference, samples, only=rows, differentiable=("self", "end"))
    assert not report.failed, report
    with pytest.raises(ValueError, match=r"OpEntry: aten::lerp\.Tensor has no argument start"):
        check("aten::lerp.Tensor", reference, samples, only=rows, differentiable=("start", "end"))


def test_the_script_that_calls_check_runs_once(tmp_path: Path) -> None:
    """Also without ``if __name__ == "__main__"``, although DTensor is tested in new processes."""
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nfrom cppcuda.testing import check\nprint('once')\n"
        "report = check('aten::sigmoid', torch.sigmoid, [(torch.randn(3, 2),)], only=['DTensor'])\n"
        "assert report.passed == ['DTensor'], report\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "once\n"


CRASH = """
import os, torch
from cppcuda.testing import check

@torch.library.custom_op("testing::crash", mutates_args=())
def crash(x: torch.Tensor) -> torch.Tensor:
    if torch.get_num_threads() == 3:
        os.abort()
    return x + 1

check("testing::crash", lambda x: x + 2, [(torch.randn(3, 2),)], only=["float64", "threads"])
"""


def test_a_crash_is_reported() -> None:
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True, timeout=300)
    assert done.returncode < 0 and not done.stdout
    # torch prints warnings, too.
    failed, *_, ended = (s for s in done.stderr.splitlines() if s.startswith(("fails: ", "cppcuda.testing: ")))
    assert failed.startswith("fails: float64 of testing::crash: sample0: output 0: 6 of 6 elements differ; greatest")
    assert ended == "cppcuda.testing: the process ended in same_bits_every_time of testing::crash (float32-cpu)"


def test_report() -> None:
    """What fails comes first, then what was not checked, each with the reason."""
    report = check("aten::sigmoid", torch.tanh, [(X,)], only=["float64", "bad input", "backward", "aliasing"])
    assert report.failed == ["float64"] and report.passed == ["aliasing"]
    assert report.not_checked == {"bad input": "no bad_inputs are given", "backward": "it needs float64"}
    assert re.fullmatch(
        r"aten::sigmoid +1 of 4 fail +float64\n"
        r"float64 +fails +sample0: output 0: 6 of 6 elements differ; greatest absolute difference: [^\n]+\n"
        r"bad input +not checked +no bad_inputs are given\n"
        r"backward +not checked +it needs float64, which fails\n"
        r"aliasing +yes +except for what needs float64\n"
        r"20 others +not checked +not among those of only=",
        str(report),
    ), report
    lines = report.markdown().splitlines()
    assert lines[0] == "| `aten::sigmoid` | 1 of 4 fail | float64 |"
    assert set(lines[1]) <= set("| -")
    assert any(line.startswith("| bad input | not checked | no bad_inputs are given") for line in lines)


def test_expectations() -> None:
    """Expectations of bad input and accuracy are checked if the caller gives them."""
    two, three = torch.ones(2), torch.ones(3)
    bad = [((two, three), None), ((two, two, "?"), "no message of torch's")]
    report = check("aten::mul.Tensor", torch.mul, [(X, X + 1)], only=["bad input"], bad_inputs=bad[:1])
    assert report.passed == ["bad input"], report
    report = check("aten::mul.Tensor", torch.mul, [(X, X + 1)], only=["bad input"], bad_inputs=bad)
    assert report.failed == ["bad input"], report
    worse = {d: {"rtol": 0.1, "atol": 0.1} for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}
    inaccurate = lambda x: torch.sigmoid(x) + 0.01  # noqa: E731
    assert check("aten::sigmoid", inaccurate, [(X,)], only=["float32"]).failed == ["float32"]
    assert check("aten::sigmoid", inaccurate, [(X,)], only=["float32"], tolerance=worse).passed == ["float32"]
    report = check("aten::sign", torch.sign, [(X,)], only=["float32", "backward"], differentiable=False)
    assert report.passed == ["float32"] and "differentiable=False" in report.not_checked["backward"]


def test_tensors_of_indices_stay_as_they_are() -> None:
    index = torch.tensor([2, 0])
    rows = ["float16", "strides", "backward", "forward AD", "vmap", "meta", "export"]
    if not torch.__version__.startswith("2.11."):  # there, the backward of index_select fails for DTensors
        rows.append("DTensor")
    report = check("aten::index_select", torch.index_select, [(X, 0, index)], only=rows)
    assert report.failed == [], report


@pytest.mark.compiles
def test_indices_of_rows_do_not_fit_a_part_of_the_rows() -> None:
    rows = ["compile", "export"]
    sample = (X, 0, torch.tensor([1, 0]))
    skip = {"vmap": "torch's rule fixes the size of the batch"}
    report = check("aten::index_select", torch.index_select, [sample], only=rows, skip=skip)
    assert report.passed == rows, report
    left_out = {r.property for r in report.results if r.reason == "the arguments do not fit a part of the rows"}
    assert left_out == {"unbacked_sizes", "unbacked_rows"}


def test_samples_that_say_nothing_are_an_error() -> None:
    zeros = torch.zeros(3, 2)
    report = check("aten::sin", torch.sin, [(zeros,)], only=["float64", "backward"])
    assert report.failed == ["float64"] and "the samples say nothing" in report.reasons("float64")
    report = check("aten::square", torch.square, [(zeros,)], only=["backward"])
    assert report.failed == ["backward"] and "every gradient of the reference is zero" in report.reasons("backward")


def test_vacuous_results_are_refused_within_any_tolerance() -> None:
    expected = torch.full((3,), 1e-6, dtype=torch.float64)
    for actual, what in ((torch.zeros(3), "all zero"), (torch.full((3,), torch.nan), "all NaN|not close")):
        with pytest.raises(AssertionError, match=what):
            assert_close(actual.double(), expected, atol=1.0, rtol=1.0)
    assert_close(torch.zeros(3), torch.zeros(3))
    assert_close(torch.zeros(3), torch.full((3,), 1e-17))  # rounding errors of the reference


def test_what_follows_from_samples() -> None:
    entry = make_entry("aten::sigmoid", sigmoid, [(X,), (torch.rand(10, 30),)])
    assert entry.names("basic") == ["sample0"]
    assert "sample0_empty" in entry.names("shape") and "sample1" in entry.names("shape")
    assert "sample0_transposed_all" in entry.names("stride")
    assert entry.of_size(7).tensors[0].shape == (7, 2)
    large = make_entry("aten::sigmoid", sigmoid, [(torch.rand(100, 3),)])
    assert large.sample("sample0_rows").tensors[0].shape == (2, 3)
    scalar = make_entry("aten::sigmoid", sigmoid, [(torch.tensor(1.0),)])
    assert scalar.sized is None


DECLARATION = """my_ops::_f_backward(Tensor grad[B?, N, F], Tensor? x[B?, N, 3S], Tensor p[B?, N, 2] keep_wide, \
Tensor i[N] int32 or int64, SymInt[1] size[S], bool[2] output_mask) -> (Tensor grad(x), Tensor grad(p)[B?, N, 2])
reads p x
independent NF
autocast promote"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, ""),
        ({"x": None, "output_mask": [True, False]}, ""),
        ({"x": None}, "x must be a Tensor if the gradient of p is requested, got None"),
        ({"output_mask": [True]}, "output_mask must have 2 entries, got 1"),
        ({"grad": torch.ones(3)}, "grad must be [N, F] or [B, N, F], got [3]"),
        ({"p": torch.ones(1, 5, 2)}, "p must be [N, 2], got [1, 5, 2]"),
        ({"grad": torch.ones(2, 5, 4)}, "p must be [B, N, 2], got [5, 2]"),
        ({"p": torch.ones(6, 2)}, "p must be [N, 2] with N = 5, got [6, 2]"),
        ({"x": torch.ones(5, 5)}, "x must be [N, 3S] with S = 2, got [5, 5]"),
        ({"size": [3]}, "x must be [N, 3S] with S = 3, got [5, 6]"),
        ({"size": [2, 2]}, "size must be [S], got [2, 2]"),
        ({"p": torch.ones(5, 2).half()}, "p must be of dtype float32, the dtype of grad, got float16"),
        ({"x": torch.ones(5, 6, device="meta")}, "x must be on cpu, the device of grad, got meta"),
    ],
)
def test_errors_that_a_declaration_implies(change: dict[str, Any], message: str) -> None:
    declaration = Declaration.parse(DECLARATION)
    index = torch.zeros(5, dtype=torch.int32)
    args = (torch.ones(5, 4), torch.ones(5, 6), torch.ones(5, 2), index, [2], [True, True])
    changed = [change.get(name, value) for name, value in zip(declaration.names, args, strict=True)]
    assert declaration.refusal(changed) == (f"_f_backward: {message}" if message else "")


def test_samples_that_follow_from_a_declaration() -> None:
    declaration = Declaration.parse(DECLARATION)
    args = (T((5, 4)), T((5, 6)), T((5, 2)), T((5,), value=torch.arange(5)), [2], [True, True])
    letters = declaration.letters(args)
    assert letters == {"N": 5, "F": 4, "S": 2}
    grad, x, p, i, size, _ = resized(declaration, args, {**letters, "N": 0, "S": 3, "B": 7})
    assert [t.shape for t in (grad, x, p, i)] == [(7, 0, 4), (7, 0, 9), (7, 0, 2), (0,)] and size == [3]
    assert {name for name, _ in masks_and_missing(declaration, args)} == {
        *("mask_11", "mask_10", "mask_01", "mask_00", "mask_10_alone", "mask_00_alone")
    }
    wide = [n for i, n in enumerate(declaration.names) if declaration.may_be_wide(i)]
    assert wide == ["p"] and [declaration.like_of_output(o) for o in declaration.outputs] == ["grad", "p"]


@pytest.mark.parametrize("name", ["gradcheck_of_reverse_mode", pytest.param("compiled", marks=pytest.mark.compiles)])
def test_an_error_names_the_sample(name: str) -> None:
    """Also if all samples are compiled together."""
    prop = next(p for p in PROPERTIES if p.name == name)
    entry = make_entry("aten::sigmoid", sigmoid, [(X,)], (), {"specs": (Spec("bad", (T((3, 2)), 1), "basic"),)})
    with pytest.raises(AssertionError, match=r"^bad: \w+: "):
        prop.run(entry, next(prop.cases(entry)))


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="there is no operator 'aten::no_such_operator'"):
        check("aten::no_such_operator", sigmoid, [(X,)])
    with pytest.raises(ValueError, match="samples must be the arguments of at least one call"):
        check("aten::sigmoid", sigmoid, [])
    with pytest.raises(ValueError, match="there is no property 'vmop'; there are float64, "):
        check("aten::sigmoid", sigmoid, [(X,)], only=["vmop"])


# ---------------------------------------------------------------- the command

SAMPLES = """
import torch
from cppcuda.testing import OpEntry, Spec, T, register

specs = (Spec("basic", (T((3, 2)),), "basic"), Spec("no_rows", (T((0, 2)),)))
register(
    OpEntry("aten::sigmoid", lambda x: 1 / (1 + torch.exp(-x)), specs=specs, strides=None, skip={"export": "later"})
)
files = ("src/a.h", "src/b.h")
register(OpEntry("aten::tanh", lambda x: 2 * torch.sigmoid(2 * x) - 1, specs=specs, strides=None, template_files=files))
"""


def suite(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "cppcuda_pytest", "--pyargs", "cppcuda.testing", *options]
    command += ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {k: v for k, v in os.environ.items() if k != "CPPCUDA_SUPPORT_MATRIX"}  # the file of this session
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.any_torch
def test_suite(tmp_path: Path) -> None:
    """All tests of a new operator of the kit pass, because it computes what the template's operator does; so the suite
    says which files are still the template's."""
    matrix = tmp_path / "matrix.md"
    (tmp_path / "my_samples.py").write_text(SAMPLES)
    options = ("-k", "float64 or forward_AD or export", "--support-matrix", str(matrix))  # rows of the table
    done = suite(tmp_path, "--operators", "my_samples", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ +sigmoid +tanh\nfloat64 +yes +yes$", done.stdout, re.M), done.stdout
    assert "aten::sigmoid: export is not checked: later" in done.stdout.splitlines()
    assert "| forward AD | yes | yes |" in matrix.read_text()
    assert "| float64 | yes | yes |" in matrix.read_text() and "| AOTInductor |  |  |" in matrix.read_text()
    line = "aten::tanh still has the code of the kit's template in src/a.h, src/b.h"
    assert [text for text in done.stdout.splitlines() if "template" in text] == [line]


def test_suite_of_a_module_without_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty_samples.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(pytest.UsageError, match="--operators: the module 'empty_samples' registers no operator"):
        import_samples("empty_samples")


def test_suite_of_a_module_that_does_not_exist() -> None:
    with pytest.raises(pytest.UsageError, match=r"there is no module 'no_such\.samples'"):
        import_samples("no_such.samples")


def test_suite_without_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "OPS", [])
    definition = SimpleNamespace(originalname="test_operator")
    with pytest.raises(pytest.UsageError, match="no operators to test; --operators names the module"):
        plugin.pytest_generate_tests(SimpleNamespace(definition=definition))


def test_causes_of_failures() -> None:
    assert causes(["backward", "double backward", "vmap"]) == {"backward": ["double backward", "vmap"]}
    assert causes(["meta", "compile"]) == {"meta": ["compile"]}
    assert causes(["vmap"]) == {}
