"""Compares spline_sample2d and spline_sample3d with scipy, and tests what the table does not."""

import itertools
import math

import cppcuda
import numpy as np
import pytest
import scipy.ndimage
import torch
from cppcuda.functional import (
    grid_sample3d,
    spline_prefilter2d,
    spline_prefilter3d,
    spline_sample2d,
    spline_sample3d,
    spline_splat2d,
    spline_splat3d,
)
from cppcuda.testing.compare import assert_close, raises
from samples.spline_sample import BORDERS, spline_sample_reference
from torch import Tensor

over_borders = pytest.mark.parametrize("border", BORDERS)
over_axes = pytest.mark.parametrize("axes", [2, 3])
SAMPLE = {2: spline_sample2d, 3: spline_sample3d}
SPLAT = {2: spline_splat2d, 3: spline_splat3d}
PREFILTER = {2: spline_prefilter2d, 3: spline_prefilter3d}


def within(reach: float, size: tuple[int, ...], count: int = 200) -> Tensor:
    """Points up to so many sizes outside: some in the middle between coefficients, some at coefficients."""
    points = (torch.rand(count, len(size), dtype=torch.float64) * (2 * reach + 1) - reach) * torch.tensor(size)
    points[: count // 10] = points[: count // 10].floor() + 0.5
    points[count // 10 : count // 5] = points[count // 10 : count // 5].round()
    return points


@over_borders
@pytest.mark.parametrize("size", [(7, 6, 5), (1, 4, 3), (2, 1, 9), (5, 6), (1, 1), (3, 8)], ids=str)
def test_values_of_scipy(size: tuple[int, ...], border: str) -> None:
    coefficients = torch.randn(size, dtype=torch.float64)
    all_points = within(10, size)
    for order in range(6):
        # Between two coefficients, order 0 takes another one if scipy mirrors the point before it rounds.
        points = all_points[len(all_points) // 10 :] if order == 0 else all_points
        expected = scipy.ndimage.map_coordinates(
            coefficients.numpy(), points.numpy().T, order=order, mode=border, prefilter=False
        )
        out = SAMPLE[len(size)](coefficients.unsqueeze(-1), points, order, border)
        np.testing.assert_allclose(out.squeeze(-1).numpy(), expected, rtol=0, atol=1e-12, err_msg=f"order {order}")


@over_axes
@over_borders
def test_slopes_of_splines(axes: int, border: str) -> None:
    """The slope of a spline is a spline of the order below, of differences of the coefficients."""
    size = (6, 5, 4)[:axes]
    coefficients, points = torch.randn(*size, 1, dtype=torch.float64), within(0.8, size, 60)
    for order in range(1, 6):
        inside = points.clone().requires_grad_()
        out = SAMPLE[axes](coefficients, inside, order, border)
        (slopes,) = torch.autograd.grad(out.sum(), inside)
        exact = points.clone().requires_grad_()
        reference = spline_sample_reference(coefficients, exact, order, border)
        (expected,) = torch.autograd.grad(reference.sum(), exact)
        at_knots = (2 * points == (2 * points).round()).any(-1)
        assert_close(slopes[~at_knots], expected[~at_knots], f"order {order}", rtol=1e-11, atol=1e-11)


@over_axes
def test_hessians(axes: int) -> None:
    size = (6, 5, 4)[:axes]
    coefficients, points = torch.randn(*size, 2, dtype=torch.float64), within(0.4, size, 20)
    for order, border in itertools.product((2, 3, 5), BORDERS):
        hessian = lambda f: torch.func.vmap(  # noqa: E731
            torch.func.hessian(lambda p: f(coefficients, p.unsqueeze(0), order, border).sin().sum())  # noqa: B023
        )(points)
        assert_close(
            hessian(SAMPLE[axes]), hessian(spline_sample_reference), f"{order}, {border}", rtol=1e-9, atol=1e-9
        )


@over_axes
@pytest.mark.parametrize("border", ["mirror", "reflect", "grid-wrap"])
def test_filters_of_scipy(axes: int, border: str) -> None:
    for order in range(2, 6):
        image = torch.randn((40, 33, 37)[:axes], dtype=torch.float64)
        expected = scipy.ndimage.spline_filter(image.numpy(), order, mode=border)
        out = PREFILTER[axes](image.unsqueeze(-1), order, border).squeeze(-1).numpy()
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-11, err_msg=f"order {order}")  # scipy's poles


@over_axes
@pytest.mark.parametrize("border", ["mirror", "reflect", "grid-wrap"])
def test_splines_have_the_values_of_images(axes: int, border: str) -> None:
    for order, size in itertools.product(range(6), ((1, 2, 3), (2, 2, 5), (4, 1, 7), (9, 3, 2))):
        image = torch.randn(*size[:axes], 2, dtype=torch.float64)
        points = torch.cartesian_prod(*[torch.arange(s, dtype=torch.float64) for s in size[:axes]])
        out = SAMPLE[axes](PREFILTER[axes](image, order, border), points, order, border)
        assert_close(out.view_as(image), image, f"{size}, order {order}", rtol=1e-13, atol=1e-12)


@over_axes
@over_borders
def test_splats_are_adjoints(axes: int, border: str) -> None:
    size = (4, 3, 5)[:axes]
    values, points = torch.randn(30, 2, dtype=torch.float64), within(1.5, size, 30)
    coefficients = torch.randn(*size, 2, dtype=torch.float64)
    for order in range(6):
        out = SPLAT[axes](values, points, list(size), order, border)
        sampled = SAMPLE[axes](coefficients, points, order, border)
        assert_close((out * coefficients).sum(), (values * sampled).sum(), f"order {order}", rtol=1e-11, atol=1e-11)


@over_axes
def test_derivatives_of_splats(axes: int) -> None:
    size = (3, 2, 3)[:axes]
    values = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    points = (torch.rand(4, axes, dtype=torch.float64) * 3 - 0.5).requires_grad_()
    splat = lambda v, p: SPLAT[axes](v, p, list(size), 4, "reflect").sin()  # noqa: E731
    assert torch.autograd.gradcheck(splat, (values, points), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(splat, (values, points))


def test_bits_for_any_number_of_threads() -> None:
    values, points = torch.randn(3000, 3), (torch.rand(3000, 3) * 12 - 1)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(spline_splat3d(values, points, [9, 10, 8]))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_one_order_is_trilinear() -> None:
    """Positions are converted as the docstring says."""
    volume, points = torch.randn(5, 6, 7, 3, dtype=torch.float64), 2 * torch.rand(300, 3, dtype=torch.float64) - 1
    positions = (points.flip(-1) + 1) / 2 * (torch.tensor([5, 6, 7]) - 1)
    expected = grid_sample3d(volume, 1.7 * points, "reflection", align_corners=True)
    positions = (1.7 * points.flip(-1) + 1) / 2 * (torch.tensor([5, 6, 7]) - 1)
    assert_close(spline_sample3d(volume, positions, 1), expected, rtol=1e-12, atol=1e-12)


@over_axes
@over_borders
def test_points_that_are_not_numbers(axes: int, border: str) -> None:
    size = (3, 2, 4)[:axes]
    coefficients = torch.ones(*size, 1, dtype=torch.float64)
    points = torch.ones(4, axes, dtype=torch.float64)
    points[0, 0], points[1, -1], points[2, 0], points[3, -1] = math.nan, math.inf, -math.inf, 1e30
    out = SAMPLE[axes](coefficients, points, 3, border).squeeze(-1)
    assert math.isnan(out[0])
    expected = {"nearest": 1.0, "grid-constant": 0.0}.get(border, math.nan)
    torch.testing.assert_close(out[1:], torch.full((3,), expected, dtype=torch.float64), equal_nan=True)
    slopes = torch.autograd.grad(SAMPLE[axes](coefficients, points.requires_grad_(), 3, border).sum(), points)[0]
    assert slopes.shape == points.shape


def test_wrong_types() -> None:
    coefficients, points = torch.zeros(3, 3, 1), torch.zeros(4, 2)
    with raises(TypeError, "spline_sample2d: border must be a string, got 3"):
        spline_sample2d(coefficients, points, 3, 3)  # type: ignore[arg-type]
    with raises(TypeError, "spline_sample2d: points must be a Tensor, got list"):
        spline_sample2d(coefficients, [1.0, 2.0])  # type: ignore[arg-type]
    with raises(RuntimeError, "order must be from 0 to 5, got 6"):
        spline_splat2d(torch.zeros(4, 1), points, [3, 3], 6)


def test_scripted_and_exported() -> None:
    class Warp(torch.nn.Module):
        def forward(self, input: Tensor, points: Tensor) -> Tensor:
            return cppcuda.functional.spline_sample3d(input, points, 3, "reflect")

    args = torch.randn(4, 5, 6, 2), torch.rand(7, 3) * 4
    expected = Warp()(*args)
    assert torch.equal(torch.jit.script(Warp())(*args), expected)
    assert torch.equal(torch.export.export(Warp(), args).module()(*args), expected)


@over_axes
def test_derivatives_of_high_orders(axes: int) -> None:
    """Derivative number 5 of order 5 is piecewise constant, and all after it are 0."""
    coefficients = torch.randn(*(7, 6, 5)[:axes], 1, dtype=torch.float64)
    points = torch.full((1, axes), 2.3, dtype=torch.float64, requires_grad=True)
    reference = points.detach().requires_grad_()
    ours, exact = SAMPLE[axes](coefficients, points, 5), spline_sample_reference(coefficients, reference, 5)
    for number in range(1, 9):
        ours = torch.autograd.grad(ours.sum(), points, create_graph=True)[0][..., -1]
        exact = torch.autograd.grad(exact.sum(), reference, create_graph=True)[0][..., -1]
        assert_close(ours, exact, f"derivative {number}", rtol=1e-10, atol=1e-10)
