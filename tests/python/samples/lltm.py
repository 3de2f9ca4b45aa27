"""lltm, and _lltm, which also returns the cell states and the gates of all steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cppcuda
import torch
from cppcuda.testing.samples import FLOAT_DTYPES, BadInput, OpEntry, Spec, T, register, with_layouts, zeros
from hypothesis import strategies as st
from samples.lltm_cell import lltm_cell_backward_reference, lltm_gates, lltm_pointwise
from torch import Tensor, nn

STEP = -3  # the dim


def _steps_reference(input: Tensor, weight: Tensor, bias: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, ...]:
    h, c = h0, c0
    results: tuple[list[Tensor], ...] = ([], [], [])
    for x in input.unbind(STEP):
        gates = lltm_gates(x, weight, bias, h)
        h, c = lltm_pointwise(gates, c)
        for all_steps, t in zip(results, (h, c, gates), strict=True):
            all_steps.append(t)
    if results[0]:
        output, cells, gates = (torch.stack(r, STEP) for r in results)
    else:
        output, cells, gates = (h0.unsqueeze(STEP).narrow(STEP, 0, 0).repeat_interleave(n, -1) for n in (1, 1, 3))
    # The states of the last step, as results of their own.
    return output, h.clone(), c.clone(), cells, gates


def lltm_reference(input: Tensor, weight: Tensor, bias: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, ...]:
    return _steps_reference(input, weight, bias, h0, c0)[:3]


def lltm_backward_reference(
    grad_output: Tensor | None,
    grad_hn: Tensor | None,
    grad_cn: Tensor | None,
    grad_cells: Tensor | None,
    grad_gates: Tensor | None,
    gates: Tensor,
    cells: Tensor,
    output: Tensor | None,
    input: Tensor | None,
    weight: Tensor,
    h0: Tensor | None,
    c0: Tensor,
    output_mask: list[bool],
) -> tuple[Tensor, ...]:
    def at(t: Tensor | None, step: int) -> Any:
        return 0 if t is None else t.select(STEP, step)

    # All of these depend on an argument, without steps, too.
    h = 0 * c0 if grad_hn is None else grad_hn
    c = 0 * c0 if grad_cn is None else grad_cn
    w, b = 0 * weight, 0 * weight.sum(-1)
    inputs = []
    for step in reversed(range(gates.shape[STEP])):
        first = step == 0
        needs_weight = output_mask[1]
        x, d_weight, d_bias, h, c = lltm_cell_backward_reference(
            h + at(grad_output, step),
            c + at(grad_cells, step),
            None if grad_gates is None else at(grad_gates, step),
            at(gates, step),
            at(input, step) if needs_weight else None,
            weight,
            (h0 if first else at(output, step - 1)) if needs_weight else None,
            c0 if first else at(cells, step - 1),
            [True, needs_weight, True, True, True],
        )
        inputs.append(x)
        if needs_weight:
            w = w + d_weight
        b = b + d_bias
    size = weight.shape[-1] - c0.shape[-1]
    d_input = torch.stack(inputs[::-1], STEP) if inputs else gates[..., :1].repeat_interleave(size, -1)
    grads = (d_input, w, b, h, c)
    return tuple(g.clone() if wanted else gates.new_zeros(0) for g, wanted in zip(grads, output_mask, strict=True))


class OnTensors(nn.Module):
    """The function as a module, without parameters; cppcuda.nn.LLTM has its own tests."""

    def forward(
        self, input: Tensor, weight: Tensor, bias: Tensor, h0: Tensor, c0: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return cppcuda.functional.lltm(input, weight, bias, h0, c0)


Five = tuple[Any, Any, Any, Any, Any]


def _args(t: int, *batch: int, i: int, s: int) -> Five:
    """batch: (B,) or (G, B)."""
    group, rows, w = batch[:-1], batch[-1], 0.7
    return (
        T((*group, t, rows, i)),
        T((*group, 3 * s, s + i), low=-w, high=w),
        T((*group, 3 * s)),
        T((*batch, s)),
        T((*batch, s), wide=True),
    )


def _backward_args(
    t: int, *batch: int, i: int, s: int, grads: str = "ohcsg", mask: tuple[bool, ...] = (True,) * 5
) -> tuple[Any, ...]:
    """grads: which of the gradients of output, hn, cn, the cell states and the gates are given."""
    input, weight, _, h0, c0 = _args(t, *batch, i=i, s=s)
    group, rows = batch[:-1], batch[-1]
    steps = T((*group, t, rows, s))
    states = T((*group, t, rows, s), wide=True)
    gates = T((*group, t, rows, 3 * s))
    return (
        steps if "o" in grads else None,
        h0 if "h" in grads else None,
        c0 if "c" in grads else None,
        states if "s" in grads else None,
        gates if "g" in grads else None,
        gates,
        states,
        steps if mask[1] else None,
        input if mask[0] or mask[1] else None,
        weight,
        h0 if mask[1] else None,
        c0,
        list(mask),
    )


_SIZES: dict[str, tuple[int, tuple[int, ...], int, int]] = {
    **{f"state_{s}": (3, (5,), 3, s) for s in (1, 4, 7, 33)},
    "many_rows": (2, (19,), 5, 16),
    "many_steps": (17, (2,), 2, 3),
    "one_step": (1, (3,), 2, 4),
    "larger_than_the_cache": (2, (3,), 4, 520),
    "no_steps": (0, (3,), 2, 4),
    "no_rows": (2, (0,), 3, 4),
    "no_input": (2, (5,), 0, 4),
    "no_state": (2, (5,), 3, 0),
    "group": (2, (2, 3), 3, 4),
    "no_groups": (2, (0, 3), 3, 4),
}

_MASKS: dict[str, tuple[bool, ...]] = {
    **{n: tuple(i == j for j in range(5)) for i, n in enumerate(("input", "weight", "bias", "h0", "c0"))},
    "none": (False,) * 5,
}


def _specs() -> Iterator[Spec]:
    yield Spec("basic", _args(2, 2, i=1, s=2), "basic")
    yield Spec("basic_group", _args(2, 2, 1, i=2, s=1), "basic")
    for name, (t, batch, i, s) in _SIZES.items():
        yield Spec(name, _args(t, *batch, i=i, s=s))
    yield from with_layouts(_args(2, 2, 3, i=3, s=4))


def _backward_specs() -> Iterator[Spec]:
    yield Spec("basic", _backward_args(2, 2, i=1, s=2), "basic")
    yield Spec("basic_h0", _backward_args(2, 2, i=2, s=1, grads="o", mask=(False, False, True, True, False)), "basic")
    for name, (t, batch, i, s) in _SIZES.items():
        yield Spec(name, _backward_args(t, *batch, i=i, s=s))
    for name, mask in _MASKS.items():
        yield Spec(f"mask_{name}", _backward_args(2, 3, i=3, s=5, mask=mask))
    for grads in ("o", "h", "c", "s", "g"):
        yield Spec(f"grads_{grads}", _backward_args(3, 2, i=3, s=4, grads=grads))
    yield from with_layouts(_backward_args(2, 2, 3, i=3, s=4))


_BATCHES = st.tuples(st.sampled_from([(), (), (1,), (2,)]), st.integers(0, 9)).map(lambda t: (*t[0], t[1]))


@st.composite
def _arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    return _args(draw(st.integers(0, 4)), *draw(_BATCHES), i=draw(st.integers(0, 9)), s=draw(st.integers(0, 17)))


@st.composite
def _backward_arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    return _backward_args(
        draw(st.integers(0, 4)),
        *draw(_BATCHES),
        i=draw(st.integers(0, 9)),
        s=draw(st.integers(0, 17)),
        grads=draw(st.sampled_from(["ohcsg", "ohc", "o", "h", "g"])),
        mask=draw(st.tuples(*[st.booleans()] * 5)),
    )


def _bad(op: str) -> Iterator[BadInput]:
    f64, f32, f16, bf16 = FLOAT_DTYPES
    good = {"input": (2, 5, 3), "weight": (12, 7), "bias": (12,), "h0": (5, 4), "c0": (5, 4)}

    def shapes(name: str, message: str, **changed: tuple[int, ...]) -> BadInput:
        return BadInput(name, lambda: zeros(*{**good, **changed}.values()), f"{op}: {message}")

    def dtypes(name: str, message: str, *dtypes: torch.dtype) -> BadInput:
        return BadInput(name, lambda: zeros(*good.values(), dtypes=dtypes), f"{op}: {message}")

    yield shapes("input_rank", "input must be [T, B, I] or [G, T, B, I], got [5, 3]", input=(5, 3))
    yield shapes("rows_of_h0", "h0 must be [B, S] with B = 5, got [6, 4]", h0=(6, 4))
    yield shapes("size_of_c0", "c0 must be [B, S] with S = 4, got [5, 3]", c0=(5, 3))
    yield shapes("h0_has_layers", "h0 must be [B, S], got [1, 5, 4]", h0=(1, 5, 4))
    yield shapes("input_grouped", "h0 must be [G, B, S], got [5, 4]", input=(1, 2, 5, 3))
    yield shapes("four_gates", "weight must be [3S, S + I] with S = 4, got [16, 7]", weight=(16, 7))
    yield shapes("weight_columns", "weight must be [3S, S + I] with S = 4, I = 3, got [12, 6]", weight=(12, 6))
    yield shapes("bias_size", "bias must be [3S] with S = 4, got [4]", bias=(4,))
    yield dtypes("h0_f16", "h0 must be of dtype float32, the dtype of input, got float16", f32, f32, f32, f16, f32)
    yield dtypes(
        "c0_f64", "c0 must be of dtype bfloat16, the dtype of input, or float32, got float64", *[bf16] * 4, f64
    )


_BACKWARD = OpEntry(
    name="cppcuda::_lltm_backward",
    reference=lltm_backward_reference,
    specs=tuple(_backward_specs()),
    sized=lambda n: _backward_args(2, n, i=3, s=4),
    arguments=_backward_arguments(),
    output_like=("gates", "gates", "gates", "gates", "c0"),
    roundings=64,
    products=True,
    temporaries=8,
    anchor="gates",
    autocast_policy=False,
    compiled=False,  # compiled second derivatives of lltm and _lltm call it
    # With two steps some of these read no cell state but c0, with three they do.
    saved_for={grad: {5, 6, 7, 8, 9, 10, 11} for grad in (2, 3, 4)},
)

_COMMON: dict[str, Any] = {
    "mechanism": "recurrence",
    "specs": tuple(_specs()),
    "sized": lambda n: _args(2, n, i=3, s=4),
    "arguments": _arguments(),
    "roundings": 32,
    "products": True,
    "temporaries": 8,
}

register(
    OpEntry(
        name="cppcuda::lltm",
        reference=lltm_reference,
        bad_inputs=tuple(_bad("lltm")),
        output_like=("h0", "h0", "c0"),
        function=cppcuda.functional.lltm,
        module=OnTensors,
        autocast_dtype=lambda dtypes, autocast: (autocast, autocast, torch.float32),
        differentiated_as="_lltm",
        backward=_BACKWARD,
        **_COMMON,
    )
)

register(
    OpEntry(
        name="cppcuda::_lltm",
        reference=_steps_reference,
        output_like=("h0", "h0", "c0", "c0", "input"),
        autocast_policy=False,
        **_COMMON,
    )
)
