"""What tests of the second library share, above all those of formulas of points and of rows.

CPPCUDA_SECOND_LIBRARY  the built library, libsecond.so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, jvp

LIBRARY = os.environ.get("CPPCUDA_SECOND_LIBRARY")
if not LIBRARY:
    pytest.skip("CPPCUDA_SECOND_LIBRARY is not set (scripts/test sets it)", allow_module_level=True)
torch.ops.load_library(LIBRARY)
second = torch.ops.second


def double(*sizes: int) -> Tensor:
    return torch.randn(sizes, dtype=torch.float64)


def scalar(out: Tensor) -> Tensor:
    """A function of all entries whose derivatives of every order depend on them."""
    weights = torch.linspace(1, 2, max(out.numel(), 1), dtype=out.dtype)[: out.numel()]
    return (out.sin() * weights.view_as(out)).sum() / max(out.numel(), 1)


def assert_same(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def assert_same_derivatives(
    actual: Callable[..., Tensor], expected: Callable[..., Tensor], inputs: tuple[Tensor, ...]
) -> None:
    """Values and derivatives of three orders, in both modes."""
    every = tuple(range(len(inputs)))
    tangents = tuple(t.cos() for t in inputs)

    def derivatives(function: Callable[..., Tensor]) -> list[Any]:
        def gradients(*t: Tensor) -> tuple[Tensor, ...]:
            return grad(lambda *u: scalar(function(*u)), every)(*t)

        def second_gradients(*t: Tensor) -> tuple[Tensor, ...]:
            return grad(lambda *u: sum(scalar(g) for g in gradients(*u)), every)(*t)

        first = lambda *t: jvp(function, t, tangents)[1]  # noqa: E731
        variables = [t.detach().requires_grad_() for t in inputs]
        found = [function(*variables)]
        for _ in range(3):
            found += torch.autograd.grad(sum(map(scalar, found[-len(inputs) :])), variables, create_graph=True)
        return [
            found,
            first(*inputs),
            jvp(first, inputs, tangents)[1],
            jvp(gradients, inputs, tangents)[1],
            jvp(second_gradients, inputs, tangents)[1],
            grad(lambda *t: scalar(jvp(gradients, t, tangents)[1][0]), every)(*inputs),
        ]

    assert_same(derivatives(actual), derivatives(expected))
