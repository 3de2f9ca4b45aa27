"""cppcuda.testing finds each mistake of wrong_operators.py, by the property that is about it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import wrong_operators as wrong
from cppcuda.testing import ROWS, Report, T, check

X = torch.linspace(-1.5, 1.4, 6, dtype=torch.float64).view(3, 2)
WIDE = torch.rand(3, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TALL = torch.rand(13, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@dataclass(frozen=True)
class Mistake:
    row: str  # the property that is about it
    wrong: str
    right: str
    reference: Callable[..., Any]
    sample: tuple[Any, ...] = (X,)
    right_reference: Callable[..., Any] | None = None

    def reports(self) -> tuple[Report, Report]:
        """About the wrong and the right operator."""
        wrong = check(self.wrong, self.reference, [self.sample], only=[self.row])
        return wrong, check(self.right, self.right_reference or self.reference, [self.sample], only=[self.row])


MISTAKES = {
    "register_autograd has no forward mode": Mistake(
        "forward AD", "wrong::no_forward_mode", "cppcuda::sigmoid", wrong.cube, right_reference=torch.sigmoid
    ),
    "Meta with other strides": Mistake("meta", "wrong::other_strides", "wrong::right", wrong.cube),
    "backward without derivative": Mistake(
        "double backward", "wrong::backward_without_derivative", "wrong::right", wrong.cube
    ),
    "saved tensor changed unnoticed": Mistake("saved tensors", "wrong::saved_unnoticed", "wrong::saved", wrong.cube),
    "output is input": Mistake("aliasing", "wrong::output_is_input", "wrong::output_is_new", wrong.identity),
    "keeps too much alive": Mistake("kept alive", "wrong::keeps_too_much", "wrong::keeps_nothing", wrong.double),
    "no batching rule": Mistake("vmap", "wrong::no_batching_rule", "wrong::right", wrong.cube),
    "batching rule for the wrong level": Mistake(
        "vmap", "wrong::batched_at_wrong_level", "wrong::batched_at_current_level", wrong.product, (X, X + 1)
    ),
    "sums in bfloat16": Mistake("bfloat16", "wrong::sum_in_16_bits", "wrong::sum_in_32_bits", wrong.row_sum, (WIDE,)),
    "sums in float16": Mistake("float16", "wrong::sum_in_16_bits", "wrong::sum_in_32_bits", wrong.row_sum, (WIDE,)),
    "gradient depends on threads": Mistake(
        "threads", "wrong::depends_on_threads", "wrong::depends_on_nothing", wrong.scale_columns, (TALL, TALL[0])
    ),
    "swallowed dtype under autocast": Mistake(
        "autocast", "wrong::swallowed_dtype", "wrong::autocast_dtype", wrong.cube
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_found(mistake: str) -> None:
    m = MISTAKES[mistake]
    found, right = m.reports()
    assert found.failed == [m.row], found
    assert right.passed == [m.row], right


# The row that fails, how its reason begins, rows that are not checked for that reason, and rows that hold.
CONSEQUENCES = {
    "wrong_factor": (
        "backward", "the gradient of input 0 is wrong: 6 of 6 elements differ; greatest absolute difference:",
        ["double backward", "saved tensors", "torch.func"], ["threads", "TorchScript", "meta"],
    ),
    "no_fake_kernel": (
        "meta", "wrong::no_fake_kernel has no fake kernel: register one with torch.library.register_fake",
        ["compile", "export"], ["strides"],
    ),
    "no_forward_mode": (
        "forward AD", "sample0: every tangent is zero, and those of the reference are not: forward mode (jvp) is",
        [], ["autocast", "backward"],
    ),
    "ignores_strides": (
        "strides", "sample0_transposed_all: output 0: 4 of 6 elements differ; greatest absolute difference:",
        [], ["float64", "float32", "meta"],
    ),
    "output_is_input": ("aliasing", "output 0 is an input", ["saved tensors", "compile"], ["strides"]),
    "only_float32": (
        "float64", "TypeError: expected float32 (dtypes= can say which dtypes the operator takes)",
        ["TorchScript"], ["float32", "strides", "empty", "threads", "meta"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSEQUENCES)
def test_what_follows_from_a_mistake_does_not_fail(name: str) -> None:
    row, reason, not_checked, held = CONSEQUENCES[name]
    reference = wrong.identity if name == "output_is_input" else wrong.cube
    differentiable = name in ("wrong_factor", "no_forward_mode")
    report = check(f"wrong::{name}", reference, [(X,)], only=[row, *not_checked, *held], differentiable=differentiable)
    assert report.failed == [row] and report.passed == [r for r in ROWS if r in held], report
    assert report.reasons(row).startswith(reason), report
    assert report.not_checked == {r: f"it needs {row}" for r in ROWS if r in not_checked}


@pytest.mark.compiles
def test_a_size_that_follows_from_the_rows() -> None:
    """Offsets have one element more than there are rows, so a mask cannot select the same rows of both."""
    rows = ["export", "AOTInductor"]
    offsets = torch.tensor([0, 2, 3, 5, 9, 12, 13, 15])
    sized = lambda count: (T((count, 2)), T((count + 1,), value=offsets.repeat(20)[: count + 1].cumsum(0)))  # noqa: E731
    found, right = (
        check(f"wrong::{name}", wrong.scale_by_counts, [(X, offsets[:4])], only=rows, sized=sized)
        for name in ("fixed_offsets", "dynamic_offsets")
    )
    assert found.failed == rows, found
    assert right.passed == rows, right
    left_out = {r.property for r in right.results if r.reason == "the arguments do not fit a part of the rows"}
    assert left_out == {"unbacked_rows"}


def test_autograd_function_in_cpp_is_found() -> None:
    """torch.func refuses it."""
    library = os.environ.get("CPPCUDA_SECOND_LIBRARY")
    if not library:
        pytest.skip("CPPCUDA_SECOND_LIBRARY is not set (scripts/test sets it)")
    torch.ops.load_library(library)
    rows = ["backward", "forward AD", "torch.func"]
    found = check("second::cube_by_function", wrong.cube, [(X,)], only=rows)
    assert "torch.func" in found.failed and "forward AD" in found.failed and "backward" not in found.failed, found
    right = check("second::swish", lambda x, beta: x * torch.sigmoid(beta * x), [(X, 1.5)], only=rows)
    assert right.passed == rows, right
