"""sigmoid and quick_gelu: one input of any shape, and ops that write to an existing tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cppcuda
import torch
from cppcuda.testing.samples import FLOAT_DTYPES, LAYOUTS, BadInput, OpEntry, Spec, T, register, with_layouts, zeros
from hypothesis import strategies as st
from torch import Tensor

_SHAPES: dict[str, tuple[int, ...]] = {
    "scalar": (),
    **{f"length_{n}": (n,) for n in (1, 3, 4, 7, 8, 15, 16, 17, 1023)},
    "image": (2, 3, 4, 5),
    "many_dims": (2, 1, 3, 1, 2, 2),
    "several_tasks": (3, 40001),
    "empty_rows": (0, 5),
    "empty_dim": (3, 0, 2),
}


def _specs(count: int, *others: Any) -> Iterator[Spec]:
    tensors = lambda shape: (T(shape, low=-4, high=4),) * count + others  # noqa: E731
    yield Spec("basic", tensors((3, 2)), "basic")
    yield Spec("basic_transposed", tensors((2, 3)), "basic", (LAYOUTS["transposed"],) * count)
    for name, shape in _SHAPES.items():
        yield Spec(name, tensors(shape))
    yield from with_layouts(tensors((3, 4, 5)))


@st.composite
def _arguments(draw: st.DrawFn, count: int, *others: Any) -> tuple[Any, ...]:
    shape = draw(st.lists(st.integers(0, 6), max_size=5).filter([0].__ne__))  # [0] is the shape of an excluded output
    return (T(tuple(shape)),) * count + others


def _bad_backward(op: str, saved: str) -> Iterator[BadInput]:
    f64, f32, _, bf16 = FLOAT_DTYPES

    def shapes(name: str, grad: tuple[int, ...], other: tuple[int, ...]) -> BadInput:
        message = f"{op}: {saved} must be {list(grad)}, the shape of grad, got {list(other)}"
        return BadInput(name, lambda: zeros(grad, other), message)

    yield shapes("rows", (5, 4), (6, 4))
    yield shapes("one_row_is_not_many", (5, 4), (1, 4))
    yield shapes("rank", (5, 4), (4,))
    message = f"{op}: {saved} must be of dtype float32, the dtype of grad, got float64"
    yield BadInput("wider", lambda: zeros((5, 4), (5, 4), dtypes=(f32, f64)), message)
    message = f"{op}: {saved} must be of dtype bfloat16, the dtype of grad, got float32"
    yield BadInput("mixed", lambda: zeros((5, 4), (5, 4), dtypes=(bf16, f32)), message)


def _double_backward(backward: OpEntry) -> OpEntry:
    op = backward.base_name.replace("_backward", "_double_backward")

    def reference(grad: Tensor | None, saved: Tensor, direction: Tensor, mask: list[bool]) -> tuple[Tensor, ...]:
        grad = torch.zeros_like(direction) if grad is None else grad
        found = torch.func.vjp(backward.reference, grad, saved)[1](direction)
        return tuple(g if wanted else saved.new_zeros(0) for g, wanted in zip(found, mask, strict=True))

    def masked(name: str, grad: T | None, mask: list[bool]) -> Spec:
        return Spec(name, (grad, T((3, 2)), T((3, 2)), mask), "mask")

    saved = backward.op._schema.arguments[1].name
    bad_inputs = (
        BadInput(
            "without_grad",
            lambda: (None, *zeros((5, 4), (5, 4)), [True, True]),
            f"{op}: grad must be a Tensor if the gradient of {saved} is requested, got None",
        ),
        BadInput(
            "rows",
            lambda: (*zeros((5, 4), (6, 4), (5, 4)), [True, True]),
            f"{op}: {saved} must be [5, 4], the shape of grad, got [6, 4]",
        ),
    )
    return OpEntry(
        name=f"cppcuda::{op}",
        reference=reference,
        specs=(
            *_specs(3, [True, True]),
            masked("mask_10", T((3, 2)), [True, False]),
            masked("mask_10_alone", None, [True, False]),
            masked("mask_01", T((3, 2)), [False, True]),
        ),
        sized=lambda n: (*(T((n, 16)),) * 3, [True, True]),
        arguments=_arguments(3, [True, True]),
        bad_inputs=bad_inputs,
        strides=lambda grad, x, *_: [torch.sigmoid(t).stride() for t in (x if grad is None else grad, x)],
        roundings=2,  # the terms of its derivatives cancel
        saved_for={0: {1, 2}, 1: {0, 1, 2}, 2: {0, 1}},
    )


def _entry(
    name: str,
    reference: Callable[[Tensor], Tensor],
    backward_reference: Callable[[Tensor, Tensor], Tensor],
    saved: str,
    module: type[torch.nn.Module],
    oracles: tuple[Callable[[Tensor], Tensor], ...] = (),
) -> OpEntry:
    return OpEntry(
        name=f"cppcuda::{name}",
        mechanism="elementwise",
        reference=reference,
        oracles=oracles,
        specs=tuple(_specs(1)),
        sized=lambda n: (T((n, 16)),),
        arguments=_arguments(1),
        bad_inputs=(),
        strides=lambda x: [torch.sigmoid(x).stride()],  # as torch's own elementwise ops
        function=getattr(cppcuda.functional, name),
        module=module,
        writing_names=(f"{name}_", f"{name}.out"),
        autocast_dtype=lambda dtypes, autocast: dtypes[0],
        saved_for={0: {0} if saved == "input" else set()},
        backward=OpEntry(
            name=f"cppcuda::_{name}_backward",
            reference=backward_reference,
            specs=tuple(_specs(2)),
            sized=lambda n: (T((n, 16)), T((n, 16))),
            arguments=_arguments(2),
            bad_inputs=tuple(_bad_backward(f"_{name}_backward", saved)),
            strides=lambda grad, x: [torch.sigmoid(x).stride()],
            saved_for={0: {1}, 1: {0, 1}},
        ),
    )


def quick_gelu_reference(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def quick_gelu_backward_reference(grad: Tensor, x: Tensor) -> Tensor:
    s = torch.sigmoid(1.702 * x)
    return grad * (s + 1.702 * x * s * (1 - s))


for _operator in (
    _entry(
        "sigmoid",
        lambda x: 1 / (1 + torch.exp(-x)),
        lambda grad, y: grad * y * (1 - y),
        "output",
        cppcuda.nn.Sigmoid,
        oracles=(torch.sigmoid,),
    ),
    _entry("quick_gelu", quick_gelu_reference, quick_gelu_backward_reference, "input", cppcuda.nn.QuickGELU),
):
    register(_operator)
    register(_double_backward(_operator.backward))
