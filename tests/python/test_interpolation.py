"""The attribute `order` of the operators that compute second derivatives, with which derivatives of any order are
calls of them: their weights are differentiated order[k] times by coordinate k."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from cppcuda.testing.compare import assert_close, raises
from samples.grid_sample3d import grid_sample3d_reference
from samples.hash_grid import Grid, away_from_kinks, count_parameters, hash_grid_reference
from samples.trilinear_indexed import trilinear_indexed_reference
from torch import Tensor
from torch.func import jvp, vjp

ops = torch.ops.cppcuda
F64 = torch.float64


class Case(NamedTuple):
    name: str
    reference: Callable[[Tensor, Tensor], Tensor]
    double_backward: Callable[..., tuple[Tensor, ...]]  # of grad, features, points, both second gradients, and the rest
    features: Tensor
    points: Tensor


def grid_sample3d() -> Case:
    size = [2, 3, 2]
    points = torch.tensor([[0.31, -0.17, 0.23], [-0.74, 0.47, -0.32], [1.27, -0.86, 0.61]], dtype=F64)
    call = lambda *args: ops._grid_sample3d_double_backward(*args[:5], size, "zeros", False, *args[5:])  # noqa: E731
    return Case("_grid_sample3d", grid_sample3d_reference, call, torch.randn(*size, 2, dtype=F64), points)


def hash_grid(interpolation: str) -> Case:
    grid = Grid(2, 2, 3, 2, 1.5, interpolation)
    count = count_parameters(3, grid)

    def call(*args: Any) -> tuple[Tensor, ...]:
        return ops._hash_grid_double_backward(*args[:5], [count], *grid, *args[5:])

    points = away_from_kinks(3, axes=3, grid=grid).to(F64)
    return Case(
        "_hash_grid", lambda x, p: hash_grid_reference(x, p, *grid), call, torch.randn(count, dtype=F64), points
    )


def trilinear_indexed() -> Case:
    corners = torch.randint(-1, 9, (3, 8))

    def call(*args: Any) -> tuple[Tensor, ...]:
        return ops._trilinear_indexed_double_backward(*args[:2], corners, *args[2:5], [9], *args[5:])

    reference = lambda x, p: trilinear_indexed_reference(x, corners, p)  # noqa: E731
    return Case("_trilinear_indexed", reference, call, torch.randn(9, 2, dtype=F64), torch.rand(3, 3, dtype=F64))


CASES = {
    "grid_sample3d": grid_sample3d,
    "hash_grid_linear": lambda: hash_grid("Linear"),
    "hash_grid_smooth": lambda: hash_grid("Smoothstep"),
    "trilinear_indexed": trilinear_indexed,
}
over_cases = pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())


def differentiated(f: Callable[[Tensor, Tensor], Tensor], d: int) -> Callable[[Tensor, Tensor], Tensor]:
    """The derivative of f by coordinate d."""

    def derivative(x: Tensor, p: Tensor) -> Tensor:
        direction = torch.zeros_like(p)
        direction[..., d] = 1
        return jvp(lambda q: f(x, q), (p,), (direction,))[1]

    return derivative


@over_cases
@pytest.mark.parametrize(
    "order", [(0, 0, 0), (1, 0, 0), (0, 0, 2), (1, 1, 0), (1, 1, 1), (0, 3, 0), (0, 4, 1)], ids=str
)
def test_values(make: Callable[[], Case], order: tuple[int, ...]) -> None:
    """The outputs equal torch's derivatives of the reference in float64."""
    case = make()
    f = functools.reduce(differentiated, [d for d in range(3) for _ in range(order[d])], case.reference)
    x, p = case.features, case.points
    u, v = torch.randn_like(x), torch.randn_like(p)
    g = torch.randn_like(case.reference(x, p))
    first = lambda g, x, p: vjp(f, x, p)[1](g)  # noqa: E731
    expected = vjp(first, g, x, p)[1]((u, v))
    actual = case.double_backward(g, x, p, u, v, [True, True, True], order)
    assert_close(list(actual), list(expected), rtol=1e-9, atol=1e-9)
    if order == (0, 0, 0):
        assert_close(
            list(case.double_backward(g, x, p, u, v, [True, True, True])), list(expected), rtol=1e-9, atol=1e-9
        )


@over_cases
def test_orders_that_are_refused(make: Callable[[], Case]) -> None:
    case = make()
    x, p = case.features, case.points
    g = torch.randn_like(case.reference(x, p))
    op = f"{case.name}_double_backward"
    for order, message in (
        ([1, 0], "order must have a number for each of 3 coordinates, got [1, 0]"),
        ([0, -1, 0], "order must not be negative, got [0, -1, 0]"),
    ):
        with raises(RuntimeError) as caught:
            case.double_backward(g, x, p, x, p, [True, True, True], order)
        assert caught.first_line == f"{op}: {message}"
