"""What is specific to hash_grid: tiny-cuda-nn's layout and configurations, vertices that wrap around, points far
outside, and sums over points."""

import copy
import io
import itertools
import math
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import cppcuda
import numpy as np
import pytest
import torch
from cppcuda.functional import hash_grid
from cppcuda.nn import HashGrid
from cppcuda.testing.compare import allocated_bytes, assert_close, kernel_calls, raises, scalar, size_of
from hypothesis import given
from hypothesis import strategies as st
from samples.hash_grid import Grid, away_from_kinks, count_parameters, hash_grid_reference, levels_of
from support import over_devices
from torch import Tensor
from torch.export import Dim, export
from torch.func import grad, vmap

ops = torch.ops.cppcuda
F64 = torch.float64
NAN, INF = float("nan"), float("inf")

over_interpolation = pytest.mark.parametrize("interpolation", ["Linear", "Smoothstep"])
over_axes = pytest.mark.parametrize("axes", [2, 3, 4])
# Dense and hashed levels; scales that are no integers.
GRID = Grid(4, 2, 8, 3, 1.6)


def inputs(
    *batch: int, axes: int = 3, grid: Grid = GRID, dtype: torch.dtype = F64, device: str = "cpu"
) -> tuple[Tensor, Tensor]:
    """params, and points in and around [0, 1]."""
    params = torch.randn(*batch[:-1], count_parameters(axes, grid), dtype=F64)
    points = 1.6 * torch.rand(*batch, axes, dtype=F64) - 0.3
    return params.to(device, dtype), points.to(device, dtype)


# ---------------------------------------------------------------- the layout of tiny-cuda-nn


def level_sizes(axes: int, grid: Grid) -> list[int]:
    """The rows of each level, from the numbers of parameters."""
    ends = [
        ops._hash_grid_parameters(
            axes, n + 1, 1, grid.log2_hashmap_size, grid.base_resolution, float(grid.per_level_scale)
        )
        for n in range(grid.n_levels)
    ]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize(
    ("axes", "grid", "resolutions"),
    [
        (3, Grid(5, 2, 20, 16, math.sqrt(2)), [16, 23, 32, 46, 64]),
        (3, Grid(4, 2, 22, 16, 2.0), [16, 32, 64, 128]),
        (2, Grid(4, 2, 20, 3, 1.5), [3, 5, 7, 11]),
        (4, Grid(3, 2, 20, 4, 1.3), [4, 6, 7]),
        (3, Grid(3, 2, 20, 16, 1.0), [16, 16, 16]),
        (3, Grid(3, 2, 20, 16, 0.5), [16, 8, 4]),
        (2, Grid(1, 8, 4, 1, 2.0), [1]),
    ],
)
def test_sizes_of_levels(axes: int, grid: Grid, resolutions: list[int]) -> None:
    """With a growth of sqrt(2) the third level has the scale 30.999998 in float32, so 32 vertices. In float64 it would
    be 31.000000000000007, with 33."""
    assert level_sizes(axes, grid) == [-(-(r**axes) // 8) * 8 for r in resolutions]


@pytest.mark.parametrize(
    ("axes", "grid", "count"),
    [
        # Shapes of a tinycudann.Encoding's params that users report: issue 2241 of nerfstudio (16 to 2048 vertices)
        # and issue 468 of tiny-cuda-nn, of dense grids
        (3, Grid(16, 2, 19, 16, math.exp((math.log(2048) - math.log(16)) / 15)), 12196240),
        (2, Grid(8, 8, 17, 2, 2.0), 699072),
        (2, Grid(1, 8, 19, 1, 2.0), 64),
        # 16^3, 32^3 and 64^3 vertices, then 13 levels of 2^19 rows
        (3, Grid(), 2 * (16**3 + 32**3 + 64**3 + 13 * 2**19)),
    ],
)
def test_numbers_of_parameters(axes: int, grid: Grid, count: int) -> None:
    *numbers, _ = grid
    assert ops._hash_grid_parameters(axes, *numbers) == count
    assert HashGrid(axes, *grid, device="meta").params.shape == (count,)


def at_vertex(vertex: tuple[int, ...], resolution: int) -> Tensor:
    """The point whose position is a vertex of a level whose scale is resolution - 1."""
    return (torch.tensor([vertex], dtype=F64) - 0.5) / (resolution - 1)


def hashed(vertex: tuple[int, ...], bits: int) -> int:
    """The formula, in Python's integers, which do not overflow."""
    row = 0
    for v, prime in zip(vertex, (1, 2654435761, 805459861, 3674653429), strict=False):
        row ^= (v % 2**32) * prime % 2**32
    return row % 2**bits


@over_interpolation
@pytest.mark.parametrize(
    "vertex", [(5, 9), (63, 0), (-1, -1), (-7, 100), (5, 9, 2), (-1, 4, -3), (64, 64, 64), (5, 9, 2, 60), (0, -1, 7, 3)]
)
def test_rows_of_hashed_vertices(vertex: tuple[int, ...], interpolation: str) -> None:
    """At a vertex the output is its row, exactly."""
    grid = Grid(1, 1, 10, 65, 2.0, interpolation)  # scale 64, so positions are exact
    params = torch.arange(1024.0, dtype=F64)
    point = (torch.tensor([vertex], dtype=F64) - 0.5) / 64
    assert hash_grid(params, point, *grid).item() == hashed(vertex, 10)


@pytest.mark.parametrize(
    ("resolution", "vertex", "row"),
    [
        (5, (3, 2), 3 + 2 * 5),
        (5, (4, 4), 24),
        (5, (5, 0), 5),  # past the last vertex: that of the next line
        (5, (5, 4), 25),  # a row that no vertex inside has
        (5, (0, 7), 35 % 32),  # 25 vertices have 32 rows
        (5, (-1, 0), (2**32 - 1) % 32),
        (9, (-1, 0), (2**32 - 1) % 88),  # 88 does not divide 2^32: in 32 bits, -1 is not the last row
        (9, (3, -2), (2**32 + 3 - 18) % 88),
        (9, (9, 9), 90 % 88),
        (5, (1, 2, 3), 1 + 2 * 5 + 3 * 25),
        (5, (5, 5, 5), 155 % 128),
        (5, (-1, 2, 0), 9),
        (3, (0, 1, -1), (2**32 + 3 - 9) % 32),
        (3, (2, 1, 0, 2), 2 + 3 + 2 * 27),
        (3, (3, 3, 3, 3), 120 % 88),
        (3, (0, 0, 0, -1), (2**32 - 27) % 88),
    ],
)
def test_rows_of_dense_vertices(resolution: int, vertex: tuple[int, ...], row: int) -> None:
    """Vertices past the last one wrap around, in 32 bits and then in the level's rows. Nothing is clamped."""
    grid = Grid(1, 1, 10, resolution)
    params = torch.arange(float(count_parameters(len(vertex), grid)), dtype=F64)
    # At an exact vertex, so that no other row counts, whatever the rounding of the position.
    assert hash_grid(params, at_vertex(vertex, resolution), *grid).item() == pytest.approx(row, abs=1e-9)


def test_levels_are_columns_one_after_another() -> None:
    """A level reads its own parameters only, and writes its own columns."""
    grid = Grid(5, 4, 8, 3, 1.5)
    params, points = inputs(30, grid=grid)
    out = hash_grid(params, points, *grid)
    assert out.shape == (30, 20)
    for number, level in enumerate(levels_of(3, grid)):
        alone = torch.zeros_like(params)
        own = slice(4 * level.first_row, 4 * (level.first_row + level.rows))
        alone[own] = params[own]
        expected = torch.zeros_like(out)
        expected[:, 4 * number : 4 * number + 4] = out[:, 4 * number : 4 * number + 4]
        assert torch.equal(hash_grid(alone, points, *grid), expected)


@over_devices
@pytest.mark.parametrize("axes", [2, 3])
def test_a_dense_level_is_grid_sample(axes: int, device: str) -> None:
    """Inside the grid, a level that fits is an image or a volume whose first axis changes fastest."""
    resolution, features = 7, 4
    grid = Grid(1, features, 19, resolution)
    params = torch.randn(count_parameters(axes, grid), dtype=F64, device=device).requires_grad_()
    limit = (resolution - 1.5) / (resolution - 1)  # beyond it the last cell wraps around
    points = (limit * torch.rand(500, axes, dtype=F64, device=device)).requires_grad_()
    volume = params[: resolution**axes * features].view(*[resolution] * axes, features).movedim(-1, 0)[None]
    positions = points * (resolution - 1) + 0.5
    coordinates = (2 * positions / (resolution - 1) - 1).view(1, 500, *[1] * (axes - 1), axes)
    expected = (
        torch.nn.functional.grid_sample(volume, coordinates, align_corners=True).flatten(1).view(features, 500).t()
    )
    out = hash_grid(params, points, *grid)
    assert_close(out, expected)
    weight = torch.randn_like(out)
    pairs = (torch.autograd.grad(t, (params, points), weight) for t in (out, expected))
    assert_close(*pairs)


def drjit_modules() -> tuple[Any, Any]:
    """drjit.nn, and the module of the arrays of its CPU backend."""
    pytest.importorskip("drjit", reason="drjit is not installed")
    import drjit.llvm.ad
    import drjit.nn

    try:
        drjit.llvm.ad.Float32([1.0]) + 1
    except Exception as error:  # drjit loads LLVM when it first needs it
        pytest.skip(f"drjit has no LLVM: {error}")
    return drjit.nn, drjit.llvm.ad


@pytest.mark.parametrize("growth", [1.5, 1.3819129])
@over_axes
def test_drjit(axes: int, growth: float) -> None:
    """Values and gradients of another implementation of the layout. It has no Smoothstep, rounds scales to float32 only
    at the end, and sizes of levels to multiples of n_features_per_level, which is 8 here for this reason."""
    nn, arrays = drjit_modules()
    import drjit

    grid = Grid(3, 8, 8, 4, growth)
    theirs = nn.HashGridEncoding(
        arrays.Float32,
        axes,
        n_levels=3,
        n_features_per_level=8,
        hashmap_size=2**8,
        base_resolution=4,
        per_level_scale=growth,
        torchngp_compat=True,
    )
    params = torch.randn(count_parameters(axes, grid)).requires_grad_()
    assert theirs.n_params == params.numel()
    points = torch.rand(400, axes).requires_grad_()
    weight = torch.randn(400, 24)

    theirs.set_params(arrays.Float32(params.detach().numpy()))
    columns = [arrays.Float32(points.detach()[:, d].numpy()) for d in range(axes)]
    for leaf in (theirs.data, *columns):
        drjit.enable_grad(leaf)
    expected = theirs(arrays.ArrayXf(*columns))
    drjit.backward(drjit.sum(drjit.sum(expected * arrays.ArrayXf(weight.t().numpy()))))
    values = torch.from_numpy(np.array(expected).T)
    of_points = np.stack([np.array(drjit.grad(column)) for column in columns], -1)
    of_params = np.array(drjit.grad(theirs.data))

    out = hash_grid(params, points, *grid)
    assert_close(out, values, rtol=1e-4, atol=1e-4)
    gradients = torch.autograd.grad(out, (params, points), weight)
    for ours, other in zip(gradients, (of_params, of_points), strict=True):
        assert_close(ours, torch.from_numpy(other), rtol=1e-4, atol=1e-5 * (1 + size_of(ours)))


@given(
    axes=st.integers(2, 4),
    grid=st.builds(
        Grid,
        st.integers(1, 20),
        st.sampled_from((1, 2, 4, 8)),
        st.integers(1, 14),
        st.integers(1, 40),
        st.floats(1.0, 2.0),
        st.sampled_from(("Linear", "Smoothstep")),
    ),
    points=st.integers(1, 40),
)
def test_any_grid(axes: int, grid: Grid, points: int) -> None:
    """Also with fine levels. The tolerance allows for positions of float64, rounded where scales are large."""
    params, p = inputs(points, axes=axes, grid=grid)
    finest = max(level.scale for level in levels_of(axes, grid))
    tolerance = 1e-14 * (1 + finest)
    assert_close(hash_grid(params, p, *grid), hash_grid_reference(params, p, *grid), rtol=tolerance, atol=tolerance)


def test_the_default_grid() -> None:
    """As in practice: 16 levels, up to 2^19 vertices per axis, in float32."""
    params, points = torch.randn(count_parameters(3, Grid())), torch.rand(300, 3)
    levels = levels_of(3, Grid())
    assert [level.is_hashed for level in levels] == [False] * 3 + [True] * 13
    out, expected = hash_grid(params, points), hash_grid_reference(params.double(), points.double())
    # A position of float32 is rounded to a part of a cell.
    tolerance = torch.tensor([max(1e-6, level.scale * 2**-23) * 8 for level in levels]).repeat_interleave(2)
    assert ((out - expected).abs() <= tolerance).all()
    assert (out - expected)[:, -2:].abs().max() < 1


# ---------------------------------------------------------------- points far outside, infinite, or not numbers


@over_devices
@over_axes
@over_interpolation
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_strange_points_leave_others_alone(axes: int, interpolation: str, dtype: torch.dtype, device: str) -> None:
    """The memory around params is NaN, so that a read outside would show. Levels of both kinds, and with rows that are
    no power of two."""
    grid = Grid(4, 2, 8, 3, 1.6, interpolation)
    count = count_parameters(axes, grid)
    values = [NAN, INF, -INF, 1e30, -1e30, 2.0**63, 2.0**32, 2.0**31, -(2.0**31), -(2.0**33), 1e5, -1e5]
    rows = [[value if k in which else 0.3 for k in range(axes)] for value in values for which in ((0,), range(axes))]
    ordinary = away_from_kinks(len(rows), axes=axes, grid=grid)
    points = torch.stack([torch.tensor(rows, dtype=F64), ordinary], 1).flatten(0, 1).to(device, dtype)
    guarded = torch.full((3, count), NAN, dtype=dtype, device=device)
    guarded[1] = torch.randn(count)
    params = guarded[1].requires_grad_()
    p = points.clone().requires_grad_()
    out = hash_grid(params, p, *grid)
    finite = points.isfinite().all(-1)
    assert out[finite].isfinite().all()
    assert finite[1::2].all() and out[~finite].isnan().any(-1).all()

    first = torch.autograd.grad(out[1::2].sin().sum(), (params, p), create_graph=True)
    second = torch.autograd.grad(scalar([first[1][1::2]]), (params, p))
    exact = [t.detach().double().requires_grad_() for t in (params, points[1::2])]
    expected = hash_grid_reference(*exact, *grid)
    expected_first = torch.autograd.grad(expected.sin().sum(), exact, create_graph=True)
    expected_second = torch.autograd.grad(scalar([expected_first[1]]), exact)
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-3}[dtype]
    assert_close(out[1::2].double(), expected, rtol=tolerance, atol=tolerance)
    for (of_params, of_points), wanted in ((first, expected_first), (second, expected_second)):
        for a, e in zip((of_params, of_points[1::2]), wanted, strict=True):
            if a is of_params and a.isnan().any():
                continue  # 0 times NaN, in the rows that points which are not numbers read
            assert_close(a.double(), e, rtol=tolerance, atol=tolerance * (1 + size_of(e)))


@over_devices
def test_points_that_are_not_numbers_read_the_first_vertices(device: str) -> None:
    """So their gradient reaches the rows of that cell only."""
    grid = Grid(2, 1, 8, 4, 2.0)
    params = torch.zeros(count_parameters(3, grid), device=device).requires_grad_()
    (gradient,) = torch.autograd.grad(hash_grid(params, torch.full((5, 3), NAN, device=device), *grid).sum(), params)
    dense = {x + 4 * y + 16 * z for x, y, z in itertools.product((0, 1), repeat=3)}
    others = {64 + hashed(v, 8) for v in itertools.product((0, 1), repeat=3)}
    assert set(gradient.isnan().nonzero().flatten().tolist()) == dense | others
    assert not gradient[~gradient.isnan()].any()


# ---------------------------------------------------------------- derivatives


def test_smoothstep_has_a_continuous_gradient() -> None:
    """The gradient of Linear jumps at a vertex, that of Smoothstep is 0 there."""
    params = torch.randn(count_parameters(2, Grid(1, 1, 8, 5)), dtype=F64)
    beside = at_vertex((2, 1), 5) + torch.tensor([[1e-9, 0.03], [-1e-9, 0.03]], dtype=F64)
    slopes = {
        interpolation: grad(lambda p, i=interpolation: hash_grid(params, p, 1, 1, 8, 5, 2.0, i).sum())(beside)[:, 0]
        for interpolation in ("Linear", "Smoothstep")
    }
    assert slopes["Smoothstep"].abs().max() < 1e-6
    assert (slopes["Linear"][0] - slopes["Linear"][1]).abs() > 0.1


# ---------------------------------------------------------------- sums


@over_devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_many_points_in_one_cell(dtype: torch.dtype, device: str) -> None:
    """A sum of 16-bit numbers would end at 256 (bfloat16) or 2048 (float16), when 1 is less than half a unit."""
    grid = Grid(1, 1, 10, 5)  # scale 4
    params = torch.zeros(count_parameters(3, grid), dtype=dtype, device=device, requires_grad=True)
    points = torch.full((10240, 3), 0.625, dtype=dtype, device=device)  # the vertex 3, 3, 3
    (gradient,) = torch.autograd.grad(hash_grid(params, points, *grid).sum(), params)
    expected = torch.zeros_like(gradient)
    expected[3 + 3 * 5 + 3 * 25] = 10240
    assert torch.equal(gradient, expected)


# ---------------------------------------------------------------- memory and kernels


def test_a_call_allocates_only_its_output() -> None:
    """Not the features of the corners, which are 8 times as large."""
    params, points = inputs(10_000, dtype=torch.float32)
    size = 10_000 * 8 * 4
    assert size <= allocated_bytes(lambda: hash_grid(params, points, *GRID)) <= size + 4096


def test_gradients_that_are_not_requested_cost_nothing() -> None:
    grid = Grid(4, 8, 16, 32, 2.0)
    params, points = inputs(50, grid=grid, dtype=torch.float32)
    out = hash_grid(params, points.requires_grad_(), *grid)
    assert allocated_bytes(lambda: torch.autograd.grad(out.sum(), points)) < params.numel() * 4 / 50


def test_vmap_over_points_gives_one_gradient_of_params() -> None:
    """Not one for each row of the batch, which would then be added: 200 tables here."""
    grid = Grid(3, 2, 12, 8, 2.0)
    params, _ = inputs(1, grid=grid)
    points = torch.rand(200, 5, 3, dtype=F64)
    loss = lambda t, f=hash_grid: scalar([vmap(lambda p: f(t, p, *grid))(points)])  # noqa: E731
    gradient = lambda: grad(loss)(params)  # noqa: E731
    assert_close(gradient(), grad(lambda t: loss(t, hash_grid_reference))(params))
    for name in ("hash_grid", "_hash_grid_backward"):
        assert kernel_calls(f"cppcuda::{name}", gradient) == 1
    assert allocated_bytes(gradient) < 20 * params.numel() * 8


# ---------------------------------------------------------------- the module


def module_grid(module: HashGrid) -> Grid:
    return Grid(*(getattr(module, name) for name in Grid._fields))


def small_module(**options: Any) -> HashGrid:
    """A module whose parameters are not small."""
    module = HashGrid(3, n_levels=4, log2_hashmap_size=8, base_resolution=3, per_level_scale=1.6, **options)
    torch.nn.init.normal_(module.params)
    return module


def test_module() -> None:
    module = HashGrid(2, device="meta")
    assert module_grid(module) == Grid()
    assert (module.n_input_dims, module.n_output_dims) == (2, 32)
    assert [name for name, _ in module.named_parameters()] == ["params"] == list(module.state_dict())
    assert repr(module) == (
        "HashGrid(n_input_dims=2, n_levels=16, n_features_per_level=2, log2_hashmap_size=19, base_resolution=16, "
        "per_level_scale=2.0, interpolation='Linear')"
    )
    for dtype in (torch.float64, torch.float16):
        module = small_module(n_features_per_level=4, interpolation="Smoothstep", dtype=dtype)
        assert module.params.dtype == dtype and module.n_output_dims == 16
        points = torch.rand(9, 3).to(dtype)
        expected = hash_grid_reference(module.params.double(), points.double(), *module_grid(module))
        assert_close(module(points).double(), expected, rtol=2**-9, atol=1e-2 if dtype == torch.float16 else 1e-9)


def test_initialisation() -> None:
    """Uniform in +-1e-4, as in tiny-cuda-nn."""
    torch.manual_seed(1)
    module = HashGrid(3, n_levels=3, log2_hashmap_size=15)
    params = module.params.detach().double()
    assert params.numel() == 2 * (4096 + 2 * 32768)
    assert params.abs().max() <= 1e-4
    counts = torch.histc(params, 10, -1e-4, 1e-4)
    assert (counts / params.numel() - 0.1).abs().max() < 0.005
    before = module.params.detach().clone()
    module.reset_parameters()
    assert not torch.equal(module.params, before) and module.params.abs().max() <= 1e-4


def test_module_is_copied_saved_and_scripted() -> None:
    module = small_module(interpolation="Smoothstep")
    points = torch.rand(20, 3)
    expected = hash_grid_reference(module.params.double(), points.double(), *module_grid(module))
    scripted = torch.jit.script(module)
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    other = small_module(interpolation="Smoothstep")
    other.load_state_dict(module.state_dict())
    copies = (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), scripted, torch.jit.load(file), other)
    for m in copies:
        out = m(points)
        assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
        m.params.grad = None
        out.square().sum().backward()
        assert m.params.grad is not None and m.params.grad.any()
    for m in (module, scripted):
        with pytest.raises((TypeError, RuntimeError)):
            m([[0.1, 0.2, 0.3]])


@pytest.mark.compiles
def test_points_with_any_leading_dims() -> None:
    """The dims of points come before the features, in eager mode, TorchScript, exported and compiled models."""
    module = small_module(dtype=F64)
    r, s = Dim("r", min=0, max=1 << 20), Dim("s", min=0, max=1 << 20)
    exported = export(module, (torch.rand(4, 5, 3, dtype=F64),), dynamic_shapes=({0: r, 1: s},)).module()
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
    scripted = torch.jit.script(module)
    for shape in ((), (7,), (4, 5), (0, 5), (6, 1), (2, 3, 4, 5)):
        points = torch.rand(*shape, 3, dtype=F64)
        expected = hash_grid_reference(module.params, points.reshape(-1, 3), *module_grid(module))
        for call in (module, scripted, *[exported] * (len(shape) == 2), *[compiled] * (0 not in shape)):
            assert_close(call(points), expected.view(*shape, module.n_output_dims))
    transposed = torch.rand(5, 4, 3, dtype=F64).transpose(0, 1).requires_grad_()
    actual = torch.autograd.grad(scalar([module(transposed)]), [transposed, module.params])
    flat = hash_grid_reference(module.params, transposed.reshape(-1, 3), *module_grid(module))
    assert_close(actual, torch.autograd.grad(scalar([flat.view(4, 5, -1)]), [transposed, module.params]))


# ---------------------------------------------------------------- tiny-cuda-nn's checkpoints

TCNN: dict[str, Any] = {
    "otype": "HashGrid",
    "n_levels": 5,
    "n_features_per_level": 4,
    "log2_hashmap_size": 10,
    "base_resolution": 6,
    "per_level_scale": 1.5,
}
TCNN_GRID = Grid(5, 4, 10, 6, 1.5)


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    """A warning that a test does not expect is an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="HashGrid")
        yield


@over_axes
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_from_tcnn(axes: int, dtype: torch.dtype) -> None:
    params = torch.randn(count_parameters(axes, TCNN_GRID)).to(dtype)
    for n_input_dims in (None, axes):
        module = HashGrid.from_tcnn(params, TCNN, n_input_dims)
        assert type(module) is HashGrid and module.n_input_dims == axes
        assert torch.equal(module.params, params) and module.params.dtype == dtype
        assert module.params.requires_grad and module.params.data_ptr() != params.data_ptr()
        assert module_grid(module) == TCNN_GRID
    points = torch.rand(9, axes)
    expected = hash_grid_reference(params.double(), points.double(), *TCNN_GRID)
    assert_close(module(points).double(), expected, rtol=2**-9, atol=1e-2 if dtype == torch.float16 else 1e-4)


@pytest.mark.parametrize(
    "config",
    [
        {"otype": "HashGrid"},
        {"otype": "Grid"},
        {"otype": "Grid", "type": "Hash", "n_levels": 16, "n_features_per_level": 2},
        {"otype": "hashgrid", "type": "hash", "interpolation": "linear", "hash": "coherentprime"},
        {"otype": "Grid", "stochastic_interpolation": False, "fixed_point_pos": False, "per_level_scale": 2},
    ],
)
def test_configurations_with_the_same_meaning(config: dict[str, Any]) -> None:
    """Missing keys have tiny-cuda-nn's defaults; case does not matter to it."""
    config = {**config, "log2_hashmap_size": 12, "base_resolution": 8}
    given = dict(config)
    expected = Grid(log2_hashmap_size=12, base_resolution=8)
    module = HashGrid.from_tcnn(torch.zeros(count_parameters(3, expected)), config)
    assert module_grid(module) == expected
    assert isinstance(module.per_level_scale, float)  # TorchScript needs one
    assert config == given


@pytest.mark.parametrize(
    "convert", [np.asarray, torch.tensor, lambda v: np.asarray(v)[()]], ids=["array", "tensor", "number"]
)
def test_configurations_read_from_a_checkpoint(convert: Callable[[Any], Any]) -> None:
    """Numbers of numpy and tensors without dims become Python's, which TorchScript needs."""
    params = torch.randn(count_parameters(3, TCNN_GRID))
    numbers = {key: convert(value) for key, value in TCNN.items() if key != "otype"}
    config = {"otype": "HashGrid", **numbers, "stochastic_interpolation": convert(False)}
    module = HashGrid.from_tcnn(params, config, convert(3))
    assert module.to_tcnn()[1] == {**TCNN, "interpolation": "Linear"}
    assert {type(value) for value in module._config().values()} == {int, float, str}
    points = torch.rand(5, 3)
    assert torch.equal(torch.jit.script(module)(points), HashGrid.from_tcnn(params, TCNN)(points))
    for key, wrong, got in (("n_levels", 5.0, "an integer, got 5.0"), ("per_level_scale", True, "a number, got True")):
        with raises(ValueError) as caught:
            HashGrid.from_tcnn(params, {**config, key: convert(wrong)})
        assert caught.first_line == f"HashGrid.from_tcnn: config['{key}'] must be {got}"
    with raises(ValueError, "must be an integer, got "):
        HashGrid.from_tcnn(params, {**config, "n_levels": torch.tensor([5])})


@over_axes
@over_interpolation
def test_round_trip(axes: int, interpolation: str) -> None:
    module = HashGrid(axes, 5, 4, 10, 6, 1.5, interpolation)
    params, config = module.to_tcnn()
    assert config == {**TCNN, "interpolation": interpolation}
    assert torch.equal(params, module.params) and not params.requires_grad
    assert params.data_ptr() != module.params.data_ptr()
    other = HashGrid.from_tcnn(params, config)
    points = torch.rand(9, axes)
    assert torch.equal(other(points), module(points))
    assert other.to_tcnn()[1] == config


def test_what_tiny_cuda_nn_reports_about_a_grid() -> None:
    """``hyperparams()`` of its modules has more keys than the configuration that was given."""
    reported = {
        **TCNN,
        "otype": "Grid",
        "type": "Hash",
        "hash": "CoherentPrime",
        "interpolation": "Smoothstep",
    }
    module = HashGrid.from_tcnn(torch.zeros(count_parameters(2, TCNN_GRID)), reported)
    assert module_grid(module) == TCNN_GRID._replace(interpolation="Smoothstep")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"otype": "DenseGrid"}, "config['otype'] must be 'HashGrid' or 'Grid', got 'DenseGrid'"),
        ({"otype": "Frequency"}, "config['otype'] must be 'HashGrid' or 'Grid', got 'Frequency'"),
        ({"otype": None}, "config['otype'] must be 'HashGrid' or 'Grid', got None"),
        ({"type": "Dense"}, "config['type'] must be 'Hash', got 'Dense'"),
        ({"type": "Tiled"}, "config['type'] must be 'Hash', got 'Tiled'"),
        ({"hash": "Prime"}, "config['hash'] must be 'CoherentPrime', got 'Prime'"),
        ({"interpolation": "Nearest"}, "config['interpolation'] must be 'Linear' or 'Smoothstep', got 'Nearest'"),
        ({"stochastic_interpolation": True}, "config['stochastic_interpolation'] must be False, got True"),
        ({"n_levels": 5.0}, "config['n_levels'] must be an integer, got 5.0"),
        ({"n_levels": True}, "config['n_levels'] must be an integer, got True"),
        ({"base_resolution": "6"}, "config['base_resolution'] must be an integer, got '6'"),
        ({"per_level_scale": "1.5"}, "config['per_level_scale'] must be a number, got '1.5'"),
        (
            {"n_features": 8},
            "config may have the keys 'otype', 'type', 'hash', 'interpolation', 'stochastic_interpolation', "
            "'fixed_point_pos', 'n_levels', 'n_features_per_level', 'log2_hashmap_size', 'base_resolution', "
            "'per_level_scale', got 'n_features'",
        ),
    ],
)
def test_configurations_that_are_refused(changed: dict[str, Any], message: str) -> None:
    params = torch.zeros(count_parameters(3, TCNN_GRID))
    with raises(ValueError) as caught:
        HashGrid.from_tcnn(params, {**TCNN, **changed})
    assert caught.first_line == f"HashGrid.from_tcnn: {message}"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_levels": 0}, "n_levels must be from 1 to 128, got 0"),
        ({"n_features_per_level": 3}, "n_features_per_level must be 1, 2, 4 or 8, got 3"),
        ({"log2_hashmap_size": 40}, "log2_hashmap_size must be from 1 to 30, got 40"),
        ({"base_resolution": 0}, f"base_resolution must be from 1 to {2**30}, got 0"),
        ({"per_level_scale": -2.0}, "per_level_scale must be positive and finite, got -2"),
        ({"per_level_scale": NAN}, "per_level_scale must be positive and finite, got nan"),
        ({"per_level_scale": 1e9}, f"level 1 must have at most {2**30} vertices per axis, got 6e+09"),
    ],
)
def test_numbers_that_are_refused(changed: dict[str, Any], message: str) -> None:
    """By from_tcnn, the module and, with its own name, the function."""
    options = {"n_input_dims": 3, **{k: v for k, v in TCNN.items() if k != "otype"}, **changed}
    for call in (
        lambda: HashGrid.from_tcnn(torch.zeros(1), {**TCNN, **changed}),
        lambda: HashGrid(**options),
    ):
        with raises(ValueError) as caught:
            call()
        assert caught.first_line == f"HashGrid: {message}"
    del options["n_input_dims"]
    with raises(RuntimeError) as caught:
        hash_grid(torch.zeros(1), torch.zeros(1, 3), **options)
    assert caught.first_line == f"hash_grid: {message}"


def test_parameters_that_are_refused() -> None:
    counts = [count_parameters(axes, TCNN_GRID) for axes in (2, 3, 4)]
    expected = "{} for 2 dimensions or {} for 3 dimensions or {} for 4 dimensions".format(*counts)
    for wrong in (0, counts[1] - 1, counts[1] + 1, counts[1] + 64 * 32):  # the last one has a network before it
        with raises(ValueError) as caught:
            HashGrid.from_tcnn(torch.zeros(wrong), TCNN)
        assert caught.first_line == f"HashGrid.from_tcnn: params must have {expected}, got {wrong}"
    with raises(ValueError) as caught:
        HashGrid.from_tcnn(torch.zeros(counts[1]), TCNN, n_input_dims=2)
    assert caught.first_line == f"HashGrid.from_tcnn: params must have {counts[0]} for 2 dimensions, got {counts[1]}"
    with raises(ValueError) as caught:
        HashGrid.from_tcnn(torch.zeros(counts[1]), TCNN, n_input_dims=5)
    assert caught.first_line == "HashGrid: n_input_dims must be 2, 3 or 4, got 5"
    for params, got in (
        (torch.zeros(2, counts[1]), f"[2, {counts[1]}] of torch.float32"),
        (torch.zeros(counts[1], dtype=torch.int64), f"[{counts[1]}] of torch.int64"),
    ):
        with raises(ValueError) as caught:
            HashGrid.from_tcnn(params, TCNN)
        assert caught.first_line == f"HashGrid.from_tcnn: params must be [P] and floating point, got {got}"
    with raises(TypeError, "HashGrid.from_tcnn: params must be a Tensor, got list"):
        HashGrid.from_tcnn([0.0], TCNN)  # type: ignore[arg-type]
    with raises(TypeError, "HashGrid.from_tcnn: config must be a dict, got str"):
        HashGrid.from_tcnn(torch.zeros(1), "{}")  # type: ignore[arg-type]


def test_the_number_of_dims_must_be_given_if_several_fit() -> None:
    config = {**TCNN, "base_resolution": 64}  # every level is full in 2, 3 and 4 dimensions
    params = torch.zeros(5 * 1024 * 4)
    with raises(ValueError) as caught:
        HashGrid.from_tcnn(params, config)
    assert caught.first_line == (
        "HashGrid.from_tcnn: n_input_dims must be given, because the number of parameters is the same for "
        "2 and 3 and 4 dimensions"
    )
    for axes in (2, 3, 4):
        assert HashGrid.from_tcnn(params, config, axes).n_input_dims == axes


def index_of_version_1(vertex: tuple[int, ...], resolution: int, rows: int) -> int:
    """The index in tiny-cuda-nn 1.x, in unsigned 32 bits."""
    stride, index = 1, 0
    for v in vertex:
        if stride > rows:
            break
        index = (index + v * stride) % 2**32
        stride = stride * resolution % 2**32
    if rows < stride:
        for d, v in enumerate(vertex):
            index = v if d == 0 else index ^ (v * (1, 2654435761, 805459861, 3674653429)[d] % 2**32)
    return index % rows


def differs_in_version_1(axes: int, grid: Grid) -> list[int]:
    """The levels that have another vertex in some row."""
    found = []
    for number, level in enumerate(levels_of(axes, grid)):
        vertices = torch.randint(0, level.resolution, (50, axes)).tolist()
        rows = [
            hashed(tuple(v), grid.log2_hashmap_size)
            if level.is_hashed
            else sum(x * level.resolution**d for d, x in enumerate(v)) % level.rows
            for v in vertices
        ]
        if rows != [index_of_version_1(tuple(v), level.resolution, level.rows) for v in vertices]:
            found.append(number)
    return found


@pytest.mark.parametrize(
    ("axes", "grid", "levels"),
    [
        (3, Grid(), [12, 13, 14, 15]),  # 2^16 vertices and more, and a square of 2^32 that overflows to 0
        (3, Grid(12), []),
        (2, Grid(), [12, 13, 14, 15]),
        (4, Grid(), [12, 13, 14, 15]),
        (4, Grid(1, 2, 24, 2**8), [0]),  # the fourth power overflows
        (3, Grid(16, 2, 19, 16, math.exp((math.log(2048) - math.log(16)) / 15)), []),
        (3, Grid(1, 2, 24, 2**11), [0]),  # the cube overflows
        (3, Grid(1, 2, 15, 2**16), []),  # the first stride exceeds the rows
    ],
)
def test_levels_that_overflow_in_version_1(axes: int, grid: Grid, levels: list[int]) -> None:
    assert differs_in_version_1(axes, grid) == levels  # the list above is right
    module = HashGrid(axes, *grid, device="meta")
    for method in ("to_tcnn", "from_tcnn"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if method == "to_tcnn":
                module.to_tcnn()
            else:
                params = torch.empty(module.params.shape, device="meta")
                HashGrid.from_tcnn(params, {"otype": "HashGrid", **grid._asdict()}, axes)
        messages = [str(w.message) for w in caught if "HashGrid" in str(w.message)]
        if not levels:
            assert not messages
            continue
        first = levels_of(axes, grid)[levels[0]].resolution
        assert messages == [
            f"HashGrid.{method}: versions of tiny-cuda-nn before 2.0 look up the vertices of the levels {levels} "
            f"elsewhere, because {first}^{axes} vertices and more overflow 32 bits, so these levels have other values "
            "there. Version 2.0 looks them up as cppcuda does."
        ]
        assert caught[-1].filename == __file__


# ---------------------------------------------------------------- errors


def test_arguments_of_other_types() -> None:
    params, points = inputs(3)
    for wrong in (None, 0, b"Linear", ["Linear"]):
        with raises(TypeError) as caught:
            hash_grid(params, points, *GRID[:-1], wrong)  # type: ignore[arg-type]
        assert caught.first_line == f"hash_grid: interpolation must be 'Linear' or 'Smoothstep', got {wrong!r}"
        with raises(ValueError) as caught:
            HashGrid(3, interpolation=wrong)  # type: ignore[arg-type]
        assert caught.first_line == f"HashGrid: interpolation must be 'Linear' or 'Smoothstep', got {wrong!r}"
    with raises(TypeError, r"hash_grid: params must be a Tensor, got list"):
        hash_grid([0.0], points)  # type: ignore[arg-type]
    with raises(TypeError, r"hash_grid: points must be a Tensor, got NoneType"):
        hash_grid(params, None)  # type: ignore[arg-type]
    for name, wrong in (("n_levels", 1.5), ("base_resolution", "16"), ("log2_hashmap_size", None)):
        with raises(TypeError, name):
            HashGrid(3, **{name: wrong})
    for axes in (1, 5, 0, -2):
        with raises(ValueError) as caught:
            HashGrid(axes)
        assert caught.first_line == f"HashGrid: n_input_dims must be 2, 3 or 4, got {axes}"


@pytest.mark.parametrize("base_resolution", [3, 128], ids=["some_levels_are_dense", "every_level_is_hashed"])
@pytest.mark.compiles
def test_points_of_other_dims_than_the_module(base_resolution: int) -> None:
    """If every level is hashed, the number of parameters is the same for every number of dims."""
    module = HashGrid(3, n_levels=4, log2_hashmap_size=8, base_resolution=base_resolution)
    for shape in ((5, 4), (5, 2), (3, 4, 6), (2,), (3, 0), ()):
        message = f"HashGrid: points must be [..., D] with D = 3, got {list(shape)}"
        with raises(RuntimeError) as caught:
            module(torch.rand(shape))
        assert caught.first_line == message
        for call in (torch.jit.script(module), torch.jit.trace(module, torch.rand(*shape[:-1], 3))):
            with pytest.raises((RuntimeError, torch.jit.Error), match=re.escape(message)):
                call(torch.rand(shape))
        with pytest.raises(RuntimeError, match=re.escape(message)):
            export(module, (torch.rand(shape),))
    exported = export(module, (torch.rand(5, 3),), dynamic_shapes=({0: Dim("n")},)).module()
    with pytest.raises(AssertionError, match=r"points.* == 3"):
        exported(torch.rand(5, 4))


def test_options_have_the_defaults_of_tiny_cuda_nn() -> None:
    params, points = inputs(20, grid=Grid(), dtype=torch.float32)
    explicit = hash_grid(params, points, *Grid())
    for call in (hash_grid, ops.hash_grid, cppcuda.functional.hash_grid):
        assert torch.equal(call(params, points), explicit)
    named = hash_grid(params, points, interpolation="Smoothstep")
    exact = hash_grid_reference(params.double(), points.double(), *Grid(interpolation="Smoothstep"))
    assert_close(named[:, :8].double(), exact[:, :8], rtol=1e-3, atol=1e-3)
