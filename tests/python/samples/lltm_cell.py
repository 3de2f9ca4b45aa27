"""lltm_cell, and _lltm_cell, which also returns the gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cppcuda
import torch
import torch.nn.functional as F
from cppcuda.testing.samples import FLOAT_DTYPES, BadInput, OpEntry, Spec, T, register, with_layouts, zeros
from hypothesis import strategies as st
from torch import Tensor, nn

Five = tuple[Any, Any, Any, Any, Any]


def lltm_gates(input: Tensor, weight: Tensor, bias: Tensor, hx: Tensor) -> Tensor:
    return torch.cat([hx, input], -1) @ weight.mT + bias.unsqueeze(-2)


def lltm_pointwise(gates: Tensor, cx: Tensor) -> tuple[Tensor, Tensor]:
    i, o, c = gates.chunk(3, -1)
    cy = cx + F.elu(c) * torch.sigmoid(i)
    return torch.tanh(cy) * torch.sigmoid(o), cy


def lltm_cell_reference(input: Tensor, weight: Tensor, bias: Tensor, hx: Tensor, cx: Tensor) -> tuple[Tensor, Tensor]:
    return lltm_pointwise(lltm_gates(input, weight, bias, hx), cx)


def _lltm_cell_reference(input: Tensor, weight: Tensor, bias: Tensor, hx: Tensor, cx: Tensor) -> tuple[Tensor, ...]:
    gates = lltm_gates(input, weight, bias, hx)
    return *lltm_pointwise(gates, cx), gates


def lltm_cell_backward_reference(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    grad_gates: Tensor | None,
    gates: Tensor,
    input: Tensor | None,
    weight: Tensor | None,
    hx: Tensor | None,
    cx: Tensor,
    output_mask: list[bool],
) -> tuple[Tensor, ...]:
    size = cx.shape[-1]
    hy_cy, vjp = torch.func.vjp(lltm_pointwise, gates, cx)
    grads = [torch.zeros_like(t) if g is None else g for g, t in zip((grad_hy, grad_cy), hy_cy, strict=True)]
    d_gates, d_cx = vjp(tuple(grads))
    if grad_gates is not None:
        d_gates = d_gates + grad_gates
    results = (
        lambda: d_gates @ weight[..., size:],
        lambda: d_gates.mT @ torch.cat([hx, input], -1),
        lambda: d_gates.sum(-2),
        lambda: d_gates @ weight[..., :size],
        lambda: d_cx,
    )
    return tuple(f() if wanted else gates.new_zeros(0) for f, wanted in zip(results, output_mask, strict=True))


class OnTensors(nn.Module):
    """The function as a module, without parameters; cppcuda.nn.LLTMCell has its own tests."""

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor, hx: Tensor, cx: Tensor) -> tuple[Tensor, Tensor]:
        return cppcuda.functional.lltm_cell(input, weight, bias, hx, cx)


def _args(*batch: int, i: int, s: int) -> Five:
    """batch: (B,) or (G, B)."""
    group, w = batch[:-1], 0.7
    return (
        T((*batch, i)),
        T((*group, 3 * s, s + i), low=-w, high=w),
        T((*group, 3 * s)),
        T((*batch, s)),
        T((*batch, s), wide=True),
    )


def _backward_args(
    *batch: int,
    i: int,
    s: int,
    grads: str = "hcg",
    mask: tuple[bool, ...] = (True,) * 5,
    all_inputs: bool = False,
) -> tuple[Any, ...]:
    """grads: which of the gradients of hy, cy and gates are given."""
    input, weight, _, hx, cx = _args(*batch, i=i, s=s)
    gates = T((*batch, 3 * s))
    return (
        hx if "h" in grads else None,
        cx if "c" in grads else None,
        gates if "g" in grads else None,
        gates,
        input if mask[1] or all_inputs else None,
        weight if mask[0] or mask[3] or all_inputs else None,
        hx if mask[1] or all_inputs else None,
        cx,
        list(mask),
    )


_SIZES: dict[str, tuple[tuple[int, ...], int, int]] = {
    **{f"state_{s}": ((5,), 3, s) for s in (1, 2, 4, 7, 8, 33)},
    "many_rows": ((67,), 5, 16),
    "one_row": ((1,), 9, 65),
    "wide_input": ((4,), 70, 3),
    "no_rows": ((0,), 3, 4),
    "no_input": ((5,), 0, 4),
    "no_state": ((5,), 3, 0),
    "nothing": ((0,), 0, 0),
    "group": ((2, 5), 3, 4),
    "group_of_one": ((1, 5), 3, 8),
    "no_groups": ((0, 5), 3, 4),
    "group_without_rows": ((2, 0), 3, 4),
}

_MASKS: dict[str, tuple[bool, ...]] = {
    **{n: tuple(i == j for j in range(5)) for i, n in enumerate(("input", "weight", "bias", "hx", "cx"))},
    "state": (False, False, False, True, True),
    "parameters": (False, True, True, False, False),
    "none": (False,) * 5,
}


def _specs() -> Iterator[Spec]:
    yield Spec("basic", _args(2, i=1, s=2), "basic")
    yield Spec("basic_group", _args(2, 1, i=2, s=1), "basic")
    for name, (batch, i, s) in _SIZES.items():
        yield Spec(name, _args(*batch, i=i, s=s))
    yield from with_layouts(_args(3, 4, i=5, s=8))


def _backward_specs() -> Iterator[Spec]:
    yield Spec("basic", _backward_args(2, i=1, s=2), "basic")
    yield Spec("basic_hx", _backward_args(2, i=2, s=1, grads="h", mask=(False, False, True, True, False)), "basic")
    yield Spec(
        "basic_parameters", _backward_args(2, 1, i=1, s=2, grads="cg", mask=(False, True, True, False, True)), "basic"
    )
    for name, (batch, i, s) in _SIZES.items():
        yield Spec(name, _backward_args(*batch, i=i, s=s))
        yield Spec(f"{name}_of_gates", _backward_args(*batch, i=i, s=s, grads="g"))
    for name, mask in _MASKS.items():
        yield Spec(f"mask_{name}", _backward_args(4, i=3, s=5, mask=mask))
        yield Spec(f"mask_{name}_all_inputs", _backward_args(4, i=3, s=5, mask=mask, all_inputs=True))
    for grads in ("h", "c", "hc", "hg", "cg"):
        yield Spec(f"grads_{grads}", _backward_args(2, 4, i=3, s=8, grads=grads))
    yield Spec("grads_none", _backward_args(4, i=3, s=5, grads=""))
    yield from with_layouts(_backward_args(3, 4, i=5, s=8))


_BATCHES = st.tuples(st.sampled_from([(), (), (1,), (2,)]), st.integers(0, 9)).map(lambda t: (*t[0], t[1]))


@st.composite
def _arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    return _args(*draw(_BATCHES), i=draw(st.integers(0, 9)), s=draw(st.integers(0, 17)))


@st.composite
def _backward_arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    return _backward_args(
        *draw(_BATCHES),
        i=draw(st.integers(0, 9)),
        s=draw(st.integers(0, 17)),
        grads=draw(st.sampled_from(["hcg", "hc", "h", "c", "g"])),
        mask=draw(st.tuples(*[st.booleans()] * 5)),
        all_inputs=draw(st.booleans()),
    )


_INPUT, _WEIGHT, _BIAS, _HX, _CX = (5, 3), (12, 7), (12,), (5, 4), (5, 4)


def _bad(op: str) -> Iterator[BadInput]:
    f64, f32, f16, bf16 = FLOAT_DTYPES
    good = {"input": _INPUT, "weight": _WEIGHT, "bias": _BIAS, "hx": _HX, "cx": _CX}

    def shapes(name: str, message: str, **changed: tuple[int, ...]) -> BadInput:
        return BadInput(name, lambda: zeros(*{**good, **changed}.values()), f"{op}: {message}")

    def dtypes(name: str, message: str, *dtypes: torch.dtype) -> BadInput:
        return BadInput(name, lambda: zeros(*good.values(), dtypes=dtypes), f"{op}: {message}")

    yield shapes("input_rank_1", "input must be [B, I] or [G, B, I], got [3]", input=(3,))
    yield shapes("input_rank_4", "input must be [B, I] or [G, B, I], got [1, 1, 5, 3]", input=(1, 1, 5, 3))
    yield shapes("rows_of_hx", "hx must be [B, S] with B = 5, got [6, 4]", hx=(6, 4))
    yield shapes("one_row_is_not_many", "hx must be [B, S] with B = 5, got [1, 4]", hx=(1, 4))
    yield shapes("rows_of_cx", "cx must be [B, S] with B = 5, got [4, 4]", cx=(4, 4))
    yield shapes("size_of_cx", "cx must be [B, S] with S = 4, got [5, 3]", cx=(5, 3))
    yield shapes("hx_rank", "hx must be [B, S], got [4]", hx=(4,))
    yield shapes("hx_grouped", "hx must be [B, S], got [1, 5, 4]", hx=(1, 5, 4))
    yield shapes("input_grouped", "hx must be [G, B, S], got [5, 4]", input=(1, 5, 3))
    yield shapes("four_gates", "weight must be [3S, S + I] with S = 4, got [16, 7]", weight=(16, 7))
    yield shapes("weight_columns", "weight must be [3S, S + I] with S = 4, I = 3, got [12, 6]", weight=(12, 6))
    yield shapes("weight_transposed", "weight must be [3S, S + I] with S = 4, got [7, 12]", weight=(7, 12))
    yield shapes("bias_rank", "bias must be [3S], got [1, 12]", bias=(1, 12))
    yield shapes("bias_size", "bias must be [3S] with S = 4, got [4]", bias=(4,))
    yield dtypes("weight_f64", "weight must be of dtype float32, the dtype of input, got float64", f32, f64, *[f32] * 3)
    yield dtypes("hx_f16", "hx must be of dtype float32, the dtype of input, got float16", f32, f32, f32, f16, f32)
    yield dtypes(
        "cx_f64", "cx must be of dtype bfloat16, the dtype of input, or float32, got float64", *[bf16] * 4, f64
    )
    yield dtypes("cx_narrower", "cx must be of dtype float32, the dtype of input, got bfloat16", *[f32] * 4, bf16)
    yield dtypes("cx_wider", "cx must be of dtype float32, the dtype of input, got float64", *[f32] * 4, f64)


def _bad_backward() -> Iterator[BadInput]:
    good: dict[str, tuple[int, ...] | None] = {
        "grad_hy": (5, 4),
        "grad_cy": (5, 4),
        "grad_gates": (5, 12),
        "gates": (5, 12),
        "input": _INPUT,
        "weight": _WEIGHT,
        "hx": _HX,
        "cx": _CX,
    }

    def bad(
        name: str,
        message: str,
        mask: tuple[bool, ...] = (True,) * 5,
        dtypes: dict[str, torch.dtype] | None = None,
        **changed: tuple[int, ...] | None,
    ) -> BadInput:
        def args() -> tuple[Any, ...]:
            made = (
                None if shape is None else torch.zeros(shape, dtype=(dtypes or {}).get(argument, torch.float32))
                for argument, shape in {**good, **changed}.items()
            )
            return (*made, list(mask))

        return BadInput(name, args, f"_lltm_cell_backward: {message}")

    yield bad("mask_of_four", "output_mask must have 5 entries, got 4", (True,) * 4)
    yield bad("mask_empty", "output_mask must have 5 entries, got 0", ())
    yield bad("cx_rank", "cx must be [B, S] or [G, B, S], got [4]", cx=(4,))
    yield bad("gates_rank", "gates must be [B, 3S], got [12]", gates=(12,))
    yield bad("gates_width", "gates must be [B, 3S] with S = 4, got [5, 4]", gates=(5, 4))
    yield bad("rows", "gates must be [B, 3S] with B = 5, got [6, 12]", gates=(6, 12))
    yield bad("grad_hy_rows", "grad_hy must be [B, S] with B = 5, got [6, 4]", grad_hy=(6, 4))
    yield bad("grad_cy_rows", "grad_cy must be [B, S] with B = 5, got [6, 4]", grad_cy=(6, 4))
    yield bad("grad_gates_width", "grad_gates must be [B, 3S] with S = 4, got [5, 4]", grad_gates=(5, 4))
    yield bad("weight_gates", "weight must be [3S, S + I] with S = 4, got [16, 7]", weight=(16, 7))
    yield bad("weight_columns", "weight must be [3S, S + I] with S = 4, I = 3, got [12, 8]", weight=(12, 8))
    yield bad(
        "weight_columns_alone",
        "weight must be [3S, S + I] with S = 4, got [12, 3]",
        (True, False, True, True, True),
        input=None,
        weight=(12, 3),
    )
    yield bad("hx_size", "hx must be [B, S] with S = 4, got [5, 3]", hx=(5, 3))
    for argument, what, mask in (
        ("weight", "input", (True, False, False, False, False)),
        ("weight", "hx", (False, False, False, True, False)),
        ("input", "weight", (False, True, False, False, False)),
        ("hx", "weight", (False, True, False, False, False)),
    ):
        message = f"{argument} must be a Tensor if the gradient of {what} is requested, got None"
        yield bad(f"{argument}_missing_for_{what}", message, mask, **{argument: None})
    f64 = torch.float64
    yield bad(
        "grad_hy_dtype",
        "grad_hy must be of dtype float32, the dtype of gates, got float64",
        dtypes={"grad_hy": f64},
    )
    yield bad(
        "grad_cy_dtype", "grad_cy must be of dtype float32, the dtype of cx, got float64", dtypes={"grad_cy": f64}
    )
    yield bad("cx_dtype", "cx must be of dtype float32, the dtype of gates, got float64", dtypes={"cx": f64})


_BACKWARD = OpEntry(
    name="cppcuda::_lltm_cell_backward",
    reference=lltm_cell_backward_reference,
    specs=tuple(_backward_specs()),
    sized=lambda n: _backward_args(n, i=3, s=16),
    arguments=_backward_arguments(),
    bad_inputs=tuple(_bad_backward()),
    output_like=("gates", "gates", "gates", "gates", "cx"),
    roundings=32,
    products=True,
    temporaries=4,
    anchor="gates",
    autocast_policy=False,
    compiled=False,  # compiled second derivatives of lltm_cell and _lltm_cell call it
    saved_for={
        2: {3, 4, 5, 6},
        4: {0, 1, 2, 3, 7},
        5: {0, 1, 2, 3, 7},
        6: {0, 1, 2, 3, 7},
        7: {0, 1, 3, 4, 5, 6, 7},
    },
)

_COMMON: dict[str, Any] = {
    "mechanism": "matrix product",
    "specs": tuple(_specs()),
    "sized": lambda n: _args(n, i=3, s=16),
    "arguments": _arguments(),
    "roundings": 16,
    "products": True,
    "temporaries": 4,
    "saved_for": {0: {1, 4}, 1: {0, 3, 4}, 2: {4}, 3: {1, 4}, 4: {4}},
}

register(
    OpEntry(
        name="cppcuda::lltm_cell",
        reference=lltm_cell_reference,
        bad_inputs=tuple(_bad("lltm_cell")),
        output_like=("hx", "cx"),
        function=cppcuda.functional.lltm_cell,
        module=OnTensors,
        autocast_dtype=lambda dtypes, autocast: (autocast, torch.float32),
        differentiated_as="_lltm_cell",
        backward=_BACKWARD,
        **_COMMON,
    )
)

register(
    OpEntry(
        name="cppcuda::_lltm_cell",
        reference=_lltm_cell_reference,
        bad_inputs=tuple(_bad("_lltm_cell")),
        output_like=("hx", "cx", "input"),
        autocast_policy=False,
        **_COMMON,
    )
)
