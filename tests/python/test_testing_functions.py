"""cppcuda.testing on operators that write to arguments, take lists of tensors, or return other values than tensors:
right ones of the second library, and wrong ones that are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from cppcuda.testing import Report, check
from formulas import double
from test_public_operators import causal_conv1d, conv_inputs
from torch import Tensor

pytestmark = pytest.mark.any_torch


# ---------------------------------------------------------------- right operators


def adam_step(
    params: list[Tensor], averages: list[Tensor], squares: list[Tensor], grads: list[Tensor], step: int, *,
    lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
) -> None:  # fmt: skip
    for p, m, v, g in zip(params, averages, squares, grads, strict=True):
        m.mul_(beta1).add_(g, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        p.sub_(lr / (1 - beta1**step) * m / ((v / (1 - beta2**step)).sqrt() + eps))


def rotary_embed(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    first, second = (t.clone() for t in x.chunk(2, -1))
    c, s = cos[..., None, :], sin[..., None, :]
    x.copy_(torch.cat((first * c - second * s, second * c + first * s), -1))


def push(queue: Tensor, values: Tensor) -> Tensor:
    both, count = torch.cat((queue, values), -2), values.shape[-2]
    queue.copy_(both[..., count:, :])
    return both[..., :count, :]


def store(cache: Tensor, counts: Tensor | None, values: Tensor, rows: Tensor) -> None:
    cache.scatter_(-2, rows.long()[..., None].expand_as(values), values)
    if counts is not None:
        counts.scatter_add_(-1, rows.long(), torch.ones_like(rows, dtype=torch.int64))


def weighted_sum(xs: list[Tensor], weights: list[float], shift: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
    parts = [w * x for w, x in zip(weights, xs, strict=True)]
    total = torch.stack(parts).sum(0)
    return total if shift is None else total + shift, parts


def mean_of(xs: list[Tensor], weights: list[Tensor] | None = None) -> Tensor:
    scales = torch.ones(len(xs), 1) if weights is None else torch.stack(weights)
    return (torch.stack(xs) * scales[..., None]).sum(0) / scales.sum(0)[..., None]


def unstack(x: Tensor, *, with_least: bool = False) -> tuple[list[Tensor], Tensor | None]:
    return [row.clone() for row in x.unbind(0)], x.amin(0) if with_least else None


def describe(x: Tensor, weights: list[Tensor | None], *, names: list[str], flags: list[bool]) -> tuple[Any, ...]:
    total = sum((w.sum() for w in weights if w is not None), x.sum())
    text = " ".join(["Double", *names, *("yes" if f else "no" for f in flags)])
    return len(weights), float(total), bool(total.isfinite()), x.shape[1], text, list(x.shape)


PARAMS = [double(3, 4), double(6, 2), double(5)]
LISTS = (PARAMS, [p * 0.5 for p in PARAMS], [p.square() * 0.25 for p in PARAMS], [p.sin() for p in PARAMS])
ANGLES, ROWS = double(5, 3), torch.tensor([1, 4])
CASES: dict[str, tuple[Callable[..., Any], list[Sequence[Any]], dict[str, Any]]] = {
    "adam_step": (adam_step, [(*LISTS, 7), (*LISTS, 3, {"lr": 0.01, "beta1": 0.8})], {}),
    "rotary_embed": (rotary_embed, [(double(5, 2, 6), ANGLES.cos(), ANGLES.sin())], {}),
    "push": (push, [(double(5, 3), double(2, 3))], {}),
    "store": (
        store,
        [
            (double(6, 3), torch.arange(6), double(2, 3), ROWS),
            (torch.arange(12).view(6, 2), None, torch.ones(2, 2, dtype=torch.int64), ROWS.int()),
        ],
        {"bad_inputs": [
            ((double(6, 3), None, double(2, 3), ROWS + 2), "store: rows must be in [0, 6), got 6"),
            ((double(6, 3), None, double(2, 2), ROWS), "store: values must be [N, F] with F = 3, got [2, 2]"),
        ]},
    ),
    "causal_conv1d": (causal_conv1d, [conv_inputs(), (*conv_inputs(2), True)], {}),
    "causal_conv1d without state": (
        causal_conv1d,
        [conv_inputs()[:2]],
        {"skip": {"compile": "Inductor of torch 2.15 takes no such call of an operator that returns tensors"}},
    ),
    "weighted_sum": (weighted_sum, [(PARAMS[:1] * 2, [0.5, -2.0], double(4)), (PARAMS[1:2], [3.0])], {"orders": 2}),
    "mean_of": (mean_of, [([double(4, 3), double(4, 3)],), ([double(4, 3)] * 2, [double(4).exp()] * 2)], {}),
    "unstack": (unstack, [(double(3, 4),), (double(3, 4), {"with_least": True})], {"orders": 0}),
    "describe": (
        describe,
        [(double(2, 3), [double(4), None], {"names": ["a"], "flags": [True, False]})],
        {"orders": 0, "dtypes": [torch.float64], "skip": {row: "no results without values" for row in (
            "compile", "export", "meta", "torch.func")}},
    ),
}  # fmt: skip


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", CASES)
def test_right_operators(name: str) -> None:
    reference, samples, options = CASES[name]
    report = check(f"second::{name.split()[0]}", reference, samples, **options)
    assert not report.failed, report
    assert {"float64", "strides", "aliasing", "saved tensors"} <= {*report.passed}, report


# ---------------------------------------------------------------- wrong operators


@pytest.fixture
def library() -> Any:
    with torch.library._scoped_library("wrong_functions", "FRAGMENT") as library:
        yield library


def make(library: Any, schema: str, function: Callable[..., Any], reference: Callable[..., Any], *args: Any) -> Report:
    library.define(schema)
    name = schema.split("(")[0]
    library.impl(name, function, "CPU")
    return check(
        f"wrong_functions::{name}",
        reference,
        [args],
        only=["float64", "strides", "aliasing", "saved tensors", "backward", "threads"],
    )


ADD = "f(Tensor(a!) x, Tensor y) -> ()"


def add(x: Tensor, y: Tensor) -> None:
    x.add_(y)


def add_unnoticed(x: Tensor, y: Tensor) -> None:
    x.data.add_(y)


def subtract(x: Tensor, y: Tensor) -> None:
    x.sub_(y)


def reason(report: Report, row: str) -> str:
    assert row in report.failed, report
    return report.reasons(row)


def test_wrong_value(library: Any) -> None:
    report = make(library, ADD, subtract, add, double(3), double(3))
    assert "values: sample0: written tensor 0" in reason(report, "float64")


def test_an_argument_that_the_schema_does_not_name(library: Any) -> None:
    def wrong(x: Tensor, y: Tensor) -> None:
        x.add_(y)
        y.zero_()

    report = make(library, ADD, wrong, add, double(3), double(3))
    assert "the operator writes to y, which its schema does not say" in reason(report, "float64")


def test_elements_between_those_of_a_tensor(library: Any) -> None:
    def wrong(x: Tensor, y: Tensor) -> None:
        x.add_(y)
        if x.stride(-1) == 2:  # every second element
            x._base.view(-1)[-1] = 3  # type: ignore[union-attr]

    report = make(library, ADD, wrong, add, double(3, 2), double(3, 2))
    assert "writes between the elements" in reason(report, "strides")


def test_a_result_that_is_an_argument(library: Any) -> None:
    report = make(library, "f(Tensor[] xs) -> Tensor[]", lambda xs: xs, lambda xs: [x.clone() for x in xs], [double(3)])
    assert "a result shares memory with an argument" in reason(report, "aliasing")


def test_overlapping_memory(library: Any) -> None:
    def wrong(x: Tensor, y: Tensor) -> None:
        for i in range(1, len(x)):
            x[i] = y[i - 1]

    def right(x: Tensor, y: Tensor) -> None:
        x[1:] = y[:-1].clone()

    report = make(library, ADD, wrong, right, double(4), double(4))
    assert "tensors 0 and 1 are one, without an error" in reason(report, "aliasing")
    assert "float64" in report.passed


def test_a_version_that_stays(library: Any) -> None:
    """What a C++ operator without a kernel of the ADInplaceOrView key does."""
    report = make(library, ADD, add_unnoticed, add, double(3), double(3))
    assert "tensor 0 was written to, and has no new version" in reason(report, "saved tensors")


def test_a_gradient_that_is_lost(library: Any) -> None:
    report = make(library, ADD, add_unnoticed, add, double(3), double(3))
    assert "a gradient is lost without an error" in reason(report, "backward")


def test_another_count_of_results(library: Any) -> None:
    def right(x: Tensor) -> list[Tensor]:
        return [x * 1, x * 2]

    report = make(library, "f(Tensor x) -> Tensor[]", lambda x: [x * 1], right, double(3))
    assert "1 values, expected 2" in reason(report, "float64")


def test_another_dtype(library: Any) -> None:
    report = make(library, "f(Tensor[] xs) -> Tensor", lambda xs: xs[0].float() * 0, lambda xs: xs[0] * 0, [double(3)])
    assert "results are of [torch.float32], expected [torch.float64]" in reason(report, "float64")


def test_fields_of_an_entry_do_not_apply() -> None:
    with pytest.raises(ValueError, match=r"^check: roundings cannot be given for second::push; it writes to arguments"):
        check("second::push", push, [(double(5, 3), double(2, 3))], roundings=2)
