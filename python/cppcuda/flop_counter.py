"""The FLOPs of the operators, for :class:`torch.utils.flop_counter.FlopCounterMode`.

.. code-block:: python

    with FlopCounterMode(custom_mapping=cppcuda.flop_counter.custom_mapping()):
        model(input).sum().backward()
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["custom_mapping", "register"]

Shape = Sequence[int]

_registered: dict[Any, Callable[..., int]] = {}


def register(op: Any, formula: Callable[..., int]) -> None:
    """Adds the FLOP formula of an operator of another namespace, such as ``torch.ops.my_ops.attention``.

    The formula gets the shapes of the tensors in their place, and ``out_shape`` by name.
    """
    _registered[op] = formula


def custom_mapping() -> dict[Any, Callable[..., int]]:
    """The FLOP formulas by operator. Like torch's own they count only matrix products, two operations for each
    multiplication and addition. Of cppcuda's operators only ``lltm_cell`` and ``lltm`` have matrix products.
    """
    # input [..., B, I], weight [..., 3S, S + I], hx, cx [..., B, S], gates [..., B, 3S]

    def forward(input: Shape, weight: Shape, bias: Shape, hx: Shape, cx: Shape, **kwargs: object) -> int:
        return 2 * math.prod(input[:-1]) * weight[-2] * weight[-1]

    def backward(
        grad_hy: Shape | None,
        grad_cy: Shape | None,
        grad_gates: Shape | None,
        gates: Shape,
        input: Shape,  # None if the gradient of weight is not requested
        weight: Shape,  # None if the gradients of input and hx are not requested
        hx: Shape | None,
        cx: Shape,
        output_mask: Sequence[bool],
        **kwargs: object,
    ) -> int:
        needs_input, needs_weight, _, needs_hx, _ = output_mask
        columns = needs_hx * cx[-1]
        if needs_input:
            columns += weight[-1] - cx[-1]
        if needs_weight:
            columns += input[-1] + cx[-1]
        return 2 * math.prod(gates) * columns

    # The same with [..., T, B, ...] in place of [..., B, ...], but h0 and c0
    def steps_backward(
        grad_output: Shape | None,
        grad_hn: Shape | None,
        grad_cn: Shape | None,
        grad_cells: Shape | None,
        grad_gates: Shape | None,
        output: Shape | None,
        cells: Shape,
        gates: Shape,
        input: Shape | None,
        weight: Shape,
        h0: Shape | None,
        c0: Shape,
        output_mask: Sequence[bool],
        **kwargs: object,
    ) -> int:
        needs_input, needs_weight, *_ = output_mask
        columns = c0[-1] + needs_input * (weight[-1] - c0[-1]) + needs_weight * weight[-1]
        return 2 * math.prod(gates) * columns

    ops = torch.ops.cppcuda
    return {
        ops.lltm_cell: forward,
        ops._lltm_cell: forward,
        ops._lltm_cell_backward: backward,
        ops.lltm: forward,
        ops._lltm: forward,
        ops._lltm_backward: steps_backward,
        **_registered,
    }
