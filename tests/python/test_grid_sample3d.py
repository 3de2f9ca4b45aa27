"""Compares grid_sample3d with F.grid_sample, and tests what the table does not."""

import itertools
from collections.abc import Callable
from typing import Any

import cppcuda
import pytest
import torch
from cppcuda.functional import grid_sample3d
from cppcuda.nn import GridSample3d
from cppcuda.testing.compare import allocated_bytes, assert_close, kernel_calls, raises, scalar
from hypothesis import given
from hypothesis import strategies as st
from samples.grid_sample3d import PADDING_MODES, grid_sample, grid_sample3d_reference
from support import over_devices
from torch import Tensor
from torch.export import Dim, export
from torch.func import grad, vmap

backward = torch.ops.cppcuda._grid_sample3d_backward
over_modes = pytest.mark.parametrize("mode", PADDING_MODES)
over_align = pytest.mark.parametrize("align", [False, True])
Function = Callable[..., Tensor]


def volume(*shape: int, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Tensor:
    return torch.randn(shape, dtype=torch.float64).to(device=device, dtype=dtype)


def coordinates(*shape: int, reach: float = 1.2, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Tensor:
    values = reach * (2 * torch.rand(*shape, 3, dtype=torch.float64) - 1)
    return values.to(device=device, dtype=dtype)


def results(f: Function, input: Tensor, points: Tensor, *options: Any) -> list[Tensor]:
    """The output and the gradients of a nonlinear function of it."""
    leaves = [input.detach().requires_grad_(), points.detach().requires_grad_()]
    out = f(*leaves, *options)
    return [out.detach(), *torch.autograd.grad(scalar([out]), leaves)]


# ---------------------------------------------------------------- F.grid_sample


@over_devices
@over_modes
@over_align
def test_values_and_gradients(mode: str, align: bool, device: str) -> None:
    for size, reach in itertools.product(((1, 1, 1), (3, 4, 5), (8, 1, 2), (5, 7, 1)), (1.0, 2.5, 40.0)):
        args = volume(2, *size, 6, device=device), coordinates(2, 300, reach=reach, device=device), mode, align
        # Positions far outside are rounded.
        tolerance = 1e-12 * (1 + reach) ** 2
        actual, expected = results(grid_sample3d, *args), results(grid_sample, *args)
        assert_close(actual, expected, f"{size} up to {reach}", rtol=tolerance, atol=tolerance)


def exact_sizes(align: bool) -> tuple[int, ...]:
    """Sizes for which the coordinates of voxels' centres are exact."""
    return (1, 2, 3, 5) if align else (1, 2, 4)


@over_devices
@over_modes
@over_align
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_at_kinks(mode: str, align: bool, dtype: torch.dtype, device: str) -> None:
    """At the centres and the faces of voxels, inside and outside: where the gradient of points jumps, it is that of
    F.grid_sample, which takes the slope of the cell that starts there."""
    sizes = list(itertools.product(exact_sizes(align), repeat=3))
    for size in (*sizes[::7], sizes[-1]):
        along = [
            torch.arange(-4, 2 * s + 5, dtype=torch.float64) / max(s - 1, 1) - 1
            if align
            else torch.arange(-5, 2 * s + 6, dtype=torch.float64) / s - 1
            for s in reversed(size)
        ]
        points = torch.stack(torch.meshgrid(*along, indexing="ij"), -1).flatten(0, 2)
        assert torch.equal(points.to(dtype).double(), points)
        input, grad_out = volume(*size, 2).to(dtype), torch.rand(len(points), 2).to(dtype)
        leaves = [t.to(device).requires_grad_() for t in (input, points.to(dtype))]
        exact = [t.detach().double().requires_grad_() for t in leaves]
        out, expected = grid_sample3d(*leaves, mode, align), grid_sample(*exact, mode, align)
        tolerance = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 2**-7}[dtype]
        assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
        grads = torch.autograd.grad(out, leaves, grad_out.to(device))
        expected_grads = torch.autograd.grad(expected, exact, grad_out.to(device).double())
        for a, e in zip(grads, expected_grads, strict=True):
            assert_close(a.double(), e, f"{size}", rtol=tolerance, atol=tolerance * (1 + float(e.abs().max())))


@over_devices
@over_modes
def test_voxels_are_returned_as_they_are(mode: str, device: str) -> None:
    """At its centre a voxel has the weight 1 and the others 0."""
    for dtype, align in itertools.product((torch.float64, torch.float32, torch.float16), (False, True)):
        size = (5, 3, 2) if align else (4, 1, 2)
        input = volume(*size, 7, dtype=dtype, device=device)
        along = [torch.arange(s) * 2 / max(s - 1, 1) - 1 if align else (2 * torch.arange(s) + 1) / s - 1 for s in size]
        z, y, x = torch.meshgrid(*along, indexing="ij")
        points = torch.stack([x, y, z], -1).flatten(0, 2).to(device=device, dtype=dtype)
        assert torch.equal(grid_sample3d(input, points, mode, align), input.flatten(0, 2))


@given(
    size=st.tuples(*[st.integers(1, 9)] * 3),
    batch=st.integers(1, 3),
    points=st.integers(1, 40),
    features=st.integers(1, 20),
    mode=st.sampled_from(PADDING_MODES),
    align=st.booleans(),
    reach=st.sampled_from([0.3, 1.0, 3.0]),
)
def test_any_sizes(
    size: tuple[int, ...], batch: int, points: int, features: int, mode: str, align: bool, reach: float
) -> None:
    args = volume(batch, *size, features), coordinates(batch, points, reach=reach), mode, align
    assert_close(results(grid_sample3d, *args), results(grid_sample, *args), rtol=1e-11, atol=1e-11)


# ---------------------------------------------------------------- points that are no numbers, infinite or very far

NAN, INF = float("nan"), float("inf")


def strange_points(values: tuple[float, ...], dtype: torch.dtype) -> Tensor:
    """Each value in each coordinate, and in all of them; ordinary points are between them."""
    rows = []
    for value in values:
        for which in ((0,), (1,), (2,), (0, 1, 2)):
            rows += [[value if k in which else 0.3 - 0.2 * k for k in range(3)], [0.1, -0.2, 0.3]]
    return torch.tensor(rows, dtype=dtype)


@over_devices
@over_align
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_strange_points_with_zeros(align: bool, dtype: torch.dtype, device: str) -> None:
    """They are outside: outputs and gradients are 0, and those of other points are as usual."""
    points = strange_points((NAN, INF, -INF, 6e4, -6e4), dtype).to(device)
    assert_strange(points, "zeros", align, dtype)
    outside = grid_sample3d(volume(3, 4, 5, 2, dtype=dtype, device=device), points, "zeros", align)[::2]
    assert not outside.any()


@over_devices
@over_align
def test_infinite_points_with_border(align: bool, device: str) -> None:
    """They are on the border, with the gradient 0 along the axis."""
    for dtype in (torch.float64, torch.float32):
        assert_strange(strange_points((INF, -INF, 1e30, -1e30), dtype).to(device), "border", align, dtype)


def assert_strange(points: Tensor, mode: str, align: bool, dtype: torch.dtype) -> None:
    input = volume(3, 4, 5, 2, dtype=dtype, device=points.device.type)
    ours, theirs = ([t.clone().requires_grad_() for t in (input, points)] for _ in range(2))
    theirs = [t.detach().double().requires_grad_() for t in theirs]
    out, expected = grid_sample3d(*ours, mode, align), grid_sample(*theirs, mode, align)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2**-9}[dtype]
    assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    expected_grads = torch.autograd.grad(expected.sum(), theirs)
    for a, e in zip(torch.autograd.grad(out.sum(), ours), expected_grads, strict=True):
        assert_close(a.double(), e, rtol=4 * tolerance, atol=4 * tolerance)


@over_devices
@over_modes
@over_align
def test_strange_points_leave_others_alone(mode: str, align: bool, device: str) -> None:
    """The memory around the volume is NaN, so that a read outside would show."""
    for dtype in (torch.float64, torch.float32):
        points = strange_points((NAN, INF, -INF, 1e30, -1e30, 2.0**63, 2.0**31, -(2.0**31)), dtype).to(device)
        guarded = torch.full((3, 3, 4, 5, 2), NAN, dtype=dtype, device=device)
        guarded[1] = volume(3, 4, 5, 2, dtype=dtype)
        ordinary = torch.arange(len(points), device=device) % 2 == 1
        input, p = guarded[1].requires_grad_(), points.clone().requires_grad_()
        out = grid_sample3d(input, p, mode, align)
        assert out.isfinite().all()
        first = torch.autograd.grad(out[ordinary].sum(), (input, p), create_graph=True)
        second = torch.autograd.grad(scalar([first[1][ordinary]]), (input, p))
        expected = [t.detach().double().requires_grad_() for t in (input, p[ordinary])]
        expected_out = grid_sample3d_reference(*expected, mode, align)
        expected_first = torch.autograd.grad(expected_out.sum(), expected, create_graph=True)
        expected_second = torch.autograd.grad(scalar([expected_first[1]]), expected)
        actual = [out[ordinary], first[0], first[1][ordinary], second[0], second[1][ordinary]]
        exact = [expected_out, *expected_first, *expected_second]
        assert_close([t.double() for t in actual], exact, rtol=1e-4, atol=1e-4)


def test_infinite_features_go_to_their_readers_only() -> None:
    input = volume(4, 4, 4, 2)
    input[1, 2, 1, 0], input[3, 3, 0, 1] = INF, NAN
    points = coordinates(500, reach=1.5)
    out, expected = grid_sample3d(input, points), grid_sample(input, points, "zeros", False)
    assert 0 < int((~expected.isfinite()).sum()) < expected.numel() / 2
    assert torch.equal(out.isnan(), expected.isnan()) and torch.equal(out.isinf(), expected.isinf())


# ---------------------------------------------------------------- sums


@over_devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_many_points_in_one_voxel(dtype: torch.dtype, device: str) -> None:
    """A sum of 16-bit numbers would end at 256 (bfloat16) or 2048 (float16), when 1 is less than half a unit."""
    input = torch.zeros(2, 2, 2, 1, dtype=dtype, device=device, requires_grad=True)
    points = torch.full((10240, 3), -0.5, dtype=dtype, device=device)
    (gradient,) = torch.autograd.grad(grid_sample3d(input, points).sum(), input)
    expected = torch.zeros_like(gradient)
    expected[0, 0, 0] = 10240
    assert torch.equal(gradient, expected)


# ---------------------------------------------------------------- memory


def result_bytes(*tensors: Tensor) -> int:
    return sum(t.numel() * t.itemsize for t in tensors)


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last_3d], ids=str)
def test_views_of_volumes_are_not_copied(format: torch.memory_format) -> None:
    """Volumes [B, F, D, H, W] of either memory format, seen as [B, D, H, W, F]."""
    volumes = volume(2, 16, 20, 21, 22, dtype=torch.float32).contiguous(memory_format=format)
    points = coordinates(2, 50, dtype=torch.float32)
    call = lambda: grid_sample3d(volumes.permute(0, 2, 3, 4, 1), points)  # noqa: E731
    out = call()
    assert allocated_bytes(call) <= result_bytes(out) + 4096 < result_bytes(volumes) / 50
    assert_close(out, grid_sample(volumes.permute(0, 2, 3, 4, 1), points, "zeros", False), rtol=1e-5, atol=1e-5)


def test_gradient_of_channels_last_3d() -> None:
    volumes = volume(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d).requires_grad_()
    points = coordinates(2, 50)
    out = grid_sample3d(volumes.permute(0, 2, 3, 4, 1), points)
    expected = torch.nn.functional.grid_sample(volumes, points[:, :, None, None], align_corners=False)
    actual, other = (torch.autograd.grad(t.square().sum(), volumes)[0] for t in (out, expected))
    assert actual.is_contiguous(memory_format=torch.channels_last_3d)
    assert_close(actual, other)


def test_gradients_that_are_not_requested_cost_nothing() -> None:
    input, points = volume(20, 21, 22, 16, dtype=torch.float32), coordinates(50, dtype=torch.float32)
    out = grid_sample3d(input, points.requires_grad_())
    assert allocated_bytes(lambda: torch.autograd.grad(out.sum(), points)) < result_bytes(input) / 50


def test_vmap_over_points_gives_one_gradient_of_the_volume() -> None:
    """Not one per row of the batch, which would then be added: 200 volumes here."""
    input, points = volume(18, 19, 20, 4), coordinates(200, 5)
    loss = lambda x, f=grid_sample3d: scalar([vmap(f, in_dims=(None, 0))(x, points)])  # noqa: E731
    gradient = lambda: grad(loss)(input)  # noqa: E731
    assert_close(gradient(), grad(lambda x: loss(x, grid_sample3d_reference))(input))
    for name in ("grid_sample3d", "_grid_sample3d_backward"):
        assert kernel_calls(f"cppcuda::{name}", gradient) == 1
    assert allocated_bytes(gradient) < 5 * result_bytes(input)


# ---------------------------------------------------------------- graphs


@pytest.mark.compiles
def test_volumes_of_any_size_are_one_graph() -> None:
    sizes = [Dim(name, min=1, max=1 << 20) for name in ("d", "h", "w", "f", "n")]
    d, h, w, f, n = sizes
    shapes = ({0: d, 1: h, 2: w, 3: f}, {0: n})
    loaded = export(GridSample3d(), (volume(4, 6, 5, 7), coordinates(9)), dynamic_shapes=shapes).module()
    for shape, count in (((4, 6, 5, 7), 9), ((1, 2, 3, 1), 1), ((9, 1, 12, 8), 40)):
        input, points = volume(*shape), coordinates(count)
        assert_close(loaded(input, points), grid_sample3d_reference(input, points))


# ---------------------------------------------------------------- errors


def test_padding_modes_that_are_no_strings() -> None:
    input, points = volume(2, 2, 2, 1), coordinates(1)
    for mode in (None, 0, b"zeros", ["zeros"]):
        with raises(TypeError) as caught:
            grid_sample3d(input, points, mode)  # type: ignore[arg-type]
        expected = f"grid_sample3d: padding_mode must be 'zeros', 'border' or 'reflection', got {mode!r}"
        assert caught.first_line == expected
    # The attributes of the backward operators have no defaults, so none can be forgotten.
    with raises(RuntimeError, "padding_mode"):
        backward(torch.rand(1, 1), input, points, [2, 2, 2], output_mask=[True, True])


def test_module_checks_its_mode() -> None:
    for mode in ("bilinear", "", None):
        with raises(ValueError) as caught:
            GridSample3d(mode)  # type: ignore[arg-type]
        expected = f"GridSample3d: padding_mode must be 'zeros', 'border' or 'reflection', got {mode!r}"
        assert caught.first_line == expected
    module = GridSample3d("reflection", align_corners=True)
    assert repr(module) == "GridSample3d(padding_mode='reflection', align_corners=True)"


def test_options_have_the_defaults_of_torch() -> None:
    input, points = volume(3, 4, 5, 2), coordinates(50, reach=1.5)
    expected = grid_sample(input, points, "zeros", False)
    for call in (grid_sample3d, GridSample3d(), torch.ops.cppcuda.grid_sample3d, torch.jit.script(GridSample3d())):
        assert_close(call(input, points), expected)
    named = cppcuda.functional.grid_sample3d(input, points, align_corners=True, padding_mode="border")
    assert_close(named, grid_sample(input, points, "border", True))


def test_axes_are_not_mixed_up() -> None:
    """x goes along W, the last of the three axes, as in F.grid_sample."""
    input = torch.zeros(2, 3, 4, 1)
    input[1, 2, 3] = 1
    corner = torch.tensor([[1.0, 1, 1], [1, 1, -1], [1, -1, 1], [-1, 1, 1]])
    assert grid_sample3d(input, corner, align_corners=True).flatten().tolist() == [1, 0, 0, 0]
    input = torch.arange(4.0).expand(2, 3, 4)[..., None].contiguous()  # its values are x
    points = coordinates(20, reach=1, dtype=torch.float32)
    expected = (points[:, :1] + 1) * 1.5
    assert_close(grid_sample3d(input, points, align_corners=True), expected, rtol=1e-5, atol=1e-5)
