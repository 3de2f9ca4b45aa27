"""lltm, and _lltm, which also returns the cell states and the gates of all steps."""

from __future__ import annotations

from typing import Any

import cppcuda
import torch
from cppcuda.testing import OpEntry, Spec, T, derivative, register
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
    output: Tensor | None,
    cells: Tensor,
    gates: Tensor,
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


def _args(t: int, *batch: int, i: int, s: int) -> tuple[Any, ...]:
    """batch: (B,) or (G, B)."""
    group, rows, w = batch[:-1], batch[-1], 0.7
    weight, bias = T((*group, 3 * s, s + i), low=-w, high=w), T((*group, 3 * s))
    return T((*group, t, rows, i)), weight, bias, T((*batch, s)), T((*batch, s))


_COMMON: dict[str, Any] = {
    "mechanism": "recurrence",
    "specs": (
        Spec("basic", _args(2, 2, i=1, s=2), "basic"),
        Spec("basic_group", _args(2, 2, 1, i=2, s=1), "basic"),
        Spec("many_rows", _args(2, 19, i=5, s=16)),
        Spec("many_steps", _args(17, 2, i=2, s=3)),
        Spec("larger_than_the_cache", _args(2, 3, i=4, s=520)),
    ),
    "sizes": {"T": (0, 1, 4), "B": (0, 1, 19), "I": (0, 3), "S": (0, 1, 4, 7, 33)},
    "sized": lambda n: _args(2, n, i=3, s=4),
    "roundings": 32,
    "products": True,
    "temporaries": 8,
}

register(
    OpEntry(
        name="cppcuda::lltm",
        reference=lltm_reference,
        function=cppcuda.functional.lltm,
        module=OnTensors,
        backward=derivative(
            "cppcuda::_lltm_backward",
            reference=lltm_backward_reference,
            roundings=64,
            temporaries=8,
            # With two steps some of these read no cell state but c0, with three they do.
            saved_for={grad: {5, 6, 7, 8, 9, 10, 11} for grad in (2, 3, 4)},
        ),
        **_COMMON,
    )
)
register(OpEntry(name="cppcuda::_lltm", reference=_steps_reference, **_COMMON))
