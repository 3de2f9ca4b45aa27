"""What is specific to trilinear_indexed and trilinear_indexed_with_grad: indices that are out of range or missing, sums
over many points, rows that share a table under vmap."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cppcuda
import pytest
import torch
from cppcuda.functional import trilinear_indexed, trilinear_indexed_with_grad
from cppcuda.testing.compare import allocated_bytes, assert_close, scalar
from samples.trilinear_indexed import trilinear_indexed_reference, with_grad_reference
from support import over_devices
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

F64 = torch.float64
INDEX_DTYPES = [torch.int32, torch.int64]
over_index_dtypes = pytest.mark.parametrize("dtype", INDEX_DTYPES, ids=str)
Function = Callable[..., Any]


def inputs(*batch: int, v: int, f: int, dtype: torch.dtype = F64, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """A table, corners of which some are missing, and points."""
    table = torch.randn(*batch[:-1], v, f, dtype=F64).to(device, dtype)
    corners = torch.randint(-1, v, (*batch, 8)).to(device)
    points = (2 * torch.rand(*batch, 3, dtype=F64) - 1).to(device, dtype)
    return table, corners, points


def gradients(f: Function, table: Tensor, corners: Tensor, points: Tensor, order: int = 1) -> list[Tensor]:
    """Outputs, and gradients of up to that order."""
    leaves = table.detach().requires_grad_(), points.detach().requires_grad_()
    out = f(leaves[0], corners, leaves[1])
    out = (out,) if isinstance(out, Tensor) else out
    found = [*out]
    for _ in range(order):
        out = torch.autograd.grad(scalar(out), leaves, create_graph=True)
        found += out
    return found


# ---------------------------------------------------------------- indices out of range


@contextmanager
def refused(message: str) -> Iterator[None]:
    with pytest.raises(IndexError) as raised:
        yield
    assert str(raised.value).splitlines()[0] == message


def message(op: str, size: int, index: int, *at: int) -> str:
    return f"{op}: corners must be in [-1, V) with V = {size}, got {index} at {list(at)}"


def calls(table: Tensor, corners: Tensor, points: Tensor) -> dict[str, Callable[[], Any]]:
    """A call of each of the operators."""
    grad = table.new_ones(*points.shape[:-1], table.shape[-1])
    size = [table.shape[-2]]
    ops = torch.ops.cppcuda
    return {
        "trilinear_indexed": lambda: ops.trilinear_indexed(table, corners, points),
        "trilinear_indexed_with_grad": lambda: ops.trilinear_indexed_with_grad(table, corners, points),
        "_trilinear_indexed_backward": lambda: ops._trilinear_indexed_backward(
            grad, table, corners, points, size, [True, True]
        ),
        "_trilinear_indexed_double_backward": lambda: ops._trilinear_indexed_double_backward(
            grad, table, corners, points, table, points, size, [True] * 3
        ),
    }


OPS = list(calls(torch.ones(1, 1), torch.zeros(1, 8), torch.zeros(1, 3)))


@over_index_dtypes
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("index", ["V", "-2", "max", "min"])
def test_index_out_of_range(op: str, dtype: torch.dtype, index: str) -> None:
    table, corners, points = inputs(4, v=5, f=3)
    corners = corners.to(dtype)
    wrong = {"V": 5, "-2": -2, "max": torch.iinfo(dtype).max, "min": torch.iinfo(dtype).min}[index]
    corners[1, 3] = wrong
    arguments = (table, corners, points)
    before = [t.clone() for t in arguments]
    with refused(message(op, 5, wrong, 1, 3)):
        calls(*arguments)[op]()
    assert all(torch.equal(t, b) for t, b in zip(arguments, before, strict=True))
    corners[1, 3] = 4
    calls(*arguments)[op]()  # an error leaves the next call alone


@pytest.mark.parametrize("op", OPS)
def test_index_out_of_range_in_a_batch(op: str) -> None:
    table, corners, points = inputs(3, 4, v=5, f=3)
    corners[2, 1, 6] = 7
    with refused(message(op, 5, 7, 2, 1, 6)):
        calls(table, corners, points)[op]()


@pytest.mark.parametrize("op", OPS)
def test_each_gradient_refuses_an_index(op: str) -> None:
    """Also if the requested gradient needs only part of the kernel's work."""
    table, corners, points = inputs(4, v=5, f=3)
    corners[3, 7] = 5
    grad, ops = torch.ones(4, 3, dtype=F64), torch.ops.cppcuda
    for mask in ([True, False], [False, True]):
        with refused(message("_trilinear_indexed_backward", 5, 5, 3, 7)):
            ops._trilinear_indexed_backward(grad, table, corners, points, [5], mask)
    for wanted in range(3):
        with refused(message("_trilinear_indexed_double_backward", 5, 5, 3, 7)):
            ops._trilinear_indexed_double_backward(
                grad, table, corners, points, None, points, [5], [i == wanted for i in range(3)]
            )


@pytest.mark.parametrize("batch", [(4,), (2, 4)], ids=str)
def test_an_empty_table_has_only_missing_vertices(batch: tuple[int, ...]) -> None:
    table, points = torch.ones(*batch[:-1], 0, 3, dtype=F64), torch.rand(*batch, 3, dtype=F64)
    corners = torch.full((*batch, 8), -1)
    assert not any(t.any() for t in gradients(trilinear_indexed, table, corners, points, order=2))
    corners[..., 0, 0] = 0
    with refused(message("trilinear_indexed", 0, 0, *[0] * (len(batch) + 1))):
        trilinear_indexed(table, corners, points)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.mT.contiguous().mT,
    "sliced": lambda t: torch.stack([t, torch.full_like(t, 10**9)], -1)[..., 0],
}


@over_index_dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_first_offender(layout: str, dtype: torch.dtype) -> None:
    """In the order of the indices, whatever the strides and however many threads found one."""
    n = 30_011
    table, corners, points = inputs(n, v=50, f=2)
    threads = torch.get_num_threads()
    for first in ((0, 0), (0, 7), (123, 5), (n - 2, 4)):
        wrong = corners.clone()
        wrong.view(-1)[first[0] * 8 + first[1] :: 1001] = 50
        wrong[first] = 77
        wrong[n - 1, 0] = -2
        wrong = LAYOUTS[layout](wrong.to(dtype))
        for count in (1, 2, 7):
            torch.set_num_threads(count)
            try:
                with refused(message("trilinear_indexed", 50, 77, *first)):
                    trilinear_indexed(table, wrong, points)
            finally:
                torch.set_num_threads(threads)


def test_index_out_of_range_with_a_gradient() -> None:
    table, corners, points = inputs(4, v=5, f=3)
    corners[1, 3] = 5
    for f in (trilinear_indexed, trilinear_indexed_with_grad):
        with refused(message(f.__name__, 5, 5, 1, 3)):
            f(table.requires_grad_(), corners, points.requires_grad_())


def test_index_out_of_range_under_vmap() -> None:
    tables, corners, points = inputs(3, 4, v=5, f=3)
    wrong = corners.clone()
    wrong[1, 2, 3] = 7
    for arguments, in_dims in (
        ((tables, wrong, points), (0, 0, 0)),
        ((tables[0], wrong, points), (None, 0, 0)),
        ((tables, wrong[1], points), (0, None, 0)),
        ((tables[0], wrong[1], points), (None, None, 0)),
    ):
        with pytest.raises(IndexError, match=r"^trilinear_indexed: corners must be in \[-1, V\) with V = 5, got 7 at "):
            torch.vmap(trilinear_indexed, in_dims=in_dims)(*arguments)


@pytest.mark.compiles
def test_index_out_of_range_in_a_compiled_function(fresh_compiler: None) -> None:
    """Values are not known during compilation; the call raises the error."""
    table, corners, points = inputs(4, v=5, f=3)
    compiled = torch.compile(trilinear_indexed, fullgraph=True, backend="aot_eager")
    assert_close(compiled(table, corners, points), trilinear_indexed_reference(table, corners, points))
    corners[1, 3] = 6
    with refused(message("trilinear_indexed", 5, 6, 1, 3)):
        compiled(table, corners, points)


def test_corners_changed_after_the_call() -> None:
    for f in (trilinear_indexed, trilinear_indexed_with_grad):
        table, corners, points = inputs(4, v=5, f=3)
        out = f(table.requires_grad_(), corners, points.requires_grad_())
        corners[0, 0] = 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            scalar((out,) if isinstance(out, Tensor) else out).backward()


# ---------------------------------------------------------------- missing vertices


@over_devices
@pytest.mark.parametrize("f", [1, 2, 3, 8, 16, 33])
@pytest.mark.parametrize("n", [1, 3, 8, 37])
def test_a_missing_vertex_reads_no_row(n: int, f: int, device: str) -> None:
    """Neither the first row, nor the last one, as -1 would in Python. A NaN would spread even with a weight of 0."""
    table, _, points = inputs(n, v=9, f=f, device=device)
    corners = torch.randint(1, 8, (n, 8), device=device)
    corners[torch.rand(n, 8, device=device) < 0.5] = -1
    corners[0, ::2] = -1
    expected = [
        [*gradients(reference, table, corners, points, order=2)]
        for reference in (trilinear_indexed_reference, with_grad_reference)
    ]
    table[0] = table[8] = torch.nan
    for function, values in zip((trilinear_indexed, trilinear_indexed_with_grad), expected, strict=True):
        actual = gradients(function, table, corners, points, order=2)
        assert_close(actual, values, rtol=1e-10, atol=1e-10)


def test_voxels_without_vertices() -> None:
    table, _, points = inputs(5, v=4, f=3)
    corners = torch.full((5, 8), -1, dtype=torch.int32)
    for f in (trilinear_indexed, trilinear_indexed_with_grad):
        for t in gradients(f, table, corners, points, order=2):
            assert not t.any() and not t.isnan().any()


# ---------------------------------------------------------------- values


def test_a_corner_is_its_vertex() -> None:
    """At the corners of a voxel the results are rows of the table, exactly, so neighbouring voxels agree there."""
    table = torch.randn(20, 5)
    points = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3)
    corners = torch.randint(0, 20, (8, 8))
    assert torch.equal(trilinear_indexed(table, corners, points), table[corners.diagonal()])


def test_a_field_is_continuous_and_linear() -> None:
    """In a grid of voxels with shared vertices, a linear function of the position is interpolated exactly, and points
    on a face have the same value in both voxels."""
    side = 4
    vertices = torch.cartesian_prod(*[torch.arange(side)] * 3).double()
    field = vertices @ torch.tensor([[1.0, -2.0], [0.5, 3.0], [-0.25, 1.0]], dtype=F64) + 1
    voxels = torch.cartesian_prod(*[torch.arange(side - 1)] * 3)
    offsets = torch.cartesian_prod(*[torch.arange(2)] * 3)
    corners = (voxels[:, None] + offsets) @ torch.tensor([side**2, side, 1])
    points = 2 * torch.rand(len(voxels), 3, dtype=F64) - 1
    positions = voxels + (points + 1) / 2
    expected = positions @ torch.tensor([[1.0, -2.0], [0.5, 3.0], [-0.25, 1.0]], dtype=F64) + 1
    value, gradient = trilinear_indexed_with_grad(field, corners, points)
    assert_close(value, expected)
    slopes = torch.tensor([[1.0, 0.5, -0.25], [-2.0, 3.0, 1.0]], dtype=F64) / 2
    assert_close(gradient, slopes.expand_as(gradient))

    noise = torch.randn_like(field)
    below = voxels[:, 0] < side - 2
    here, there = points[below].clone(), points[below].clone()
    here[:, 0], there[:, 0] = 1, -1
    above = corners[torch.nonzero(below).flatten() + (side - 1) ** 2]
    assert_close(trilinear_indexed(noise, corners[below], here), trilinear_indexed(noise, above, there))


@over_devices
@pytest.mark.parametrize(
    ("n", "v"), [(5000, 8), (5000, 1), (4001, 300), (10, 100_000), (0, 1000)], ids=lambda size: str(size)
)
def test_many_points_per_voxel_and_large_tables(n: int, v: int, device: str) -> None:
    table, corners, points = inputs(n, v=v, f=4, device=device)
    if v == 8:
        corners = torch.arange(8, device=device).expand(n, 8)  # all points are in one voxel
    for function, reference in (
        (trilinear_indexed, trilinear_indexed_reference),
        (trilinear_indexed_with_grad, with_grad_reference),
    ):
        actual = gradients(function, table, corners, points)
        assert_close(actual, gradients(reference, table, corners, points), rtol=1e-10, atol=1e-9)
        unused = torch.ones(v, dtype=torch.bool, device=device)
        unused[corners[corners >= 0]] = False
        assert not actual[-2][unused].any(), "rows of no corner have a gradient"


@over_devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_the_gradient_of_a_table_is_a_sum_in_float32(dtype: torch.dtype, device: str) -> None:
    """In bfloat16 a sum of 4096 equal terms would stop growing after 256 of them."""
    n = 4096
    table = torch.zeros(8, 3, dtype=dtype, device=device).requires_grad_()
    corners = torch.arange(8, device=device).expand(n, 8)
    points = torch.zeros(n, 3, dtype=dtype, device=device)
    (gradient,) = torch.autograd.grad(trilinear_indexed(table, corners, points).sum(), table)
    assert_close(gradient.double(), torch.full_like(gradient, n / 8, dtype=F64), rtol=torch.finfo(dtype).eps, atol=0)


@over_devices
def test_indices_of_both_dtypes_give_the_same_bits(device: str) -> None:
    table, corners, points = inputs(500, v=70, f=5, dtype=torch.float32, device=device)
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        for f in (trilinear_indexed, trilinear_indexed_with_grad):
            results = [gradients(f, table, corners.to(dtype), points) for dtype in INDEX_DTYPES]
            assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    finally:
        torch.use_deterministic_algorithms(was)


def test_a_call_allocates_only_its_outputs() -> None:
    """Not the features of the corners, which are 8 times as large as the output."""
    table, corners, points = inputs(10_000, v=500, f=16, dtype=torch.float32)
    for f, values in ((trilinear_indexed, 1), (trilinear_indexed_with_grad, 4)):
        size = values * 10_000 * 16 * 4
        assert size <= allocated_bytes(lambda f=f: f(table, corners, points)) <= size + 4096


# ---------------------------------------------------------------- transforms


class Calls(TorchDispatchMode):
    """Records the shapes of the tensors of each call of cppcuda's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: dict[str, list[tuple[tuple[int, ...], ...]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "cppcuda":
            shapes = tuple(tuple(a.shape) for a in args if isinstance(a, Tensor))
            self.shapes.setdefault(func._schema.name.split("::")[1], []).append(shapes)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("indices", ["shared", "batched"])
def test_vmap_over_points_is_one_call_with_one_gradient(indices: str) -> None:
    """Rows that vmap adds become more rows of the same table."""
    table, corners, points = inputs(6, v=5, f=3)
    points = torch.stack([points, points.sin(), points.cos(), points / 3])
    if indices == "batched":
        corners = torch.stack([corners, corners.flip(0), corners.flip(1), corners.roll(1)])
    in_dims = (None, 0 if indices == "batched" else None, 0)

    def loss(f: Function, table: Tensor, points: Tensor) -> Tensor:
        return scalar((torch.vmap(f, in_dims=in_dims)(table, corners, points),))

    gradient = torch.func.grad(loss, argnums=(1, 2))
    with Calls() as calls:
        actual = gradient(trilinear_indexed, table, points)
    assert calls.shapes == {
        "trilinear_indexed": [((5, 3), (24, 8), (24, 3))],
        "_trilinear_indexed_backward": [((24, 3), (5, 3), (24, 8), (24, 3))],
    }
    assert_close(actual, gradient(trilinear_indexed_reference, table, points))


# ---------------------------------------------------------------- with_grad


def test_modules_have_no_parameters() -> None:
    table, corners, points = inputs(4, v=5, f=3)
    for module, f in (
        (cppcuda.nn.TrilinearIndexed(), trilinear_indexed),
        (cppcuda.nn.TrilinearIndexedWithGrad(), trilinear_indexed_with_grad),
    ):
        assert not list(module.parameters())
        assert_close(module(table, corners, points), f(table, corners, points))
