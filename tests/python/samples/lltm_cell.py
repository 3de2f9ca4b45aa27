"""lltm_cell, and _lltm_cell, which also returns the gates."""

from __future__ import annotations

from typing import Any

import cppcuda
import torch
import torch.nn.functional as F
from cppcuda.testing import OpEntry, Spec, T, derivative, register
from torch import Tensor, nn


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


def _args(*batch: int, i: int, s: int) -> tuple[Any, ...]:
    """batch: (B,) or (G, B)."""
    group, w = batch[:-1], 0.7
    weight, bias = T((*group, 3 * s, s + i), low=-w, high=w), T((*group, 3 * s))
    return T((*batch, i)), weight, bias, T((*batch, s)), T((*batch, s))


_COMMON: dict[str, Any] = {
    "mechanism": "matrix product",
    "specs": (
        Spec("basic", _args(2, i=1, s=2), "basic"),
        Spec("basic_group", _args(2, 1, i=2, s=1), "basic"),
        Spec("many_rows", _args(67, i=5, s=16)),
        Spec("one_row", _args(1, i=9, s=65)),
        Spec("nothing", _args(0, i=0, s=0)),
    ),
    "sizes": {"S": (0, 1, 4, 7, 8, 33), "I": (0, 1, 5, 70)},
    "sized": lambda n: _args(n, i=3, s=16),
    "roundings": 16,
    "products": True,
    "temporaries": 4,
    "saved_for": {0: {1, 4}, 1: {0, 3, 4}, 2: {4}, 3: {1, 4}, 4: {4}},
}

register(
    OpEntry(
        name="cppcuda::lltm_cell",
        reference=lltm_cell_reference,
        function=cppcuda.functional.lltm_cell,
        module=OnTensors,
        backward=derivative(
            "cppcuda::_lltm_cell_backward",
            reference=lltm_cell_backward_reference,
            roundings=32,
            temporaries=4,
            saved_for={
                2: {3, 4, 5, 6},
                4: {0, 1, 2, 3, 7},
                5: {0, 1, 2, 3, 7},
                6: {0, 1, 2, 3, 7},
                7: {0, 1, 3, 4, 5, 6, 7},
            },
        ),
        **_COMMON,
    )
)
register(OpEntry(name="cppcuda::_lltm_cell", reference=_lltm_cell_reference, **_COMMON))
