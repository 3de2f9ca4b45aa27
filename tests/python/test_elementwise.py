"""Elementwise ops: in-place and out variants, layouts, both ends of the range of each dtype."""

import os

import cppcuda
import pytest
import torch
from cppcuda.testing.compare import allocated_bytes, assert_close, kernel_calls, profiled
from cppcuda.testing.samples import FLOAT_DTYPES, LAYOUTS, OpEntry, forward_ops
from support import over_devices, over_ops, over_samples, run_python
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

# torch knows operators that return the arguments that they write to.
RETURNS = torch.__version__ >= (2, 13)

ENTRIES = [e for e in forward_ops() if e.writing_names]
over_entries = over_ops(ENTRIES)
over_dtypes = pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)


def in_place(entry: OpEntry):
    return getattr(torch.ops.cppcuda, f"{entry.base_name}_").default


def into(entry: OpEntry):
    return getattr(torch.ops.cppcuda, entry.base_name).out


def error_of(call, *args, **kwargs) -> str:
    with pytest.raises(RuntimeError) as error:
        call(*args, **kwargs)
    return str(error.value).splitlines()[0]


def test_the_table_has_elementwise_ops() -> None:
    assert {e.base_name for e in ENTRIES} >= {"sigmoid", "quick_gelu"}


# ---------------------------------------------------------------- values


@over_devices
@over_dtypes
@over_samples("basic", "shape", entries=ENTRIES)
def test_writing_gives_the_same_bits(entry: OpEntry, name: str, dtype: torch.dtype, device: str) -> None:
    (x,) = entry.sample(name, dtype, device).tensors
    expected = entry.op(x)
    for lay_out in (torch.clone, *(LAYOUTS[n] for n in ("transposed", "sliced", "offset") if x.dim())):
        out = lay_out(torch.full_like(x, torch.nan))
        around = out.untyped_storage().nbytes()
        assert into(entry)(x, out=out) is None
        assert torch.equal(out, expected) and out.untyped_storage().nbytes() == around
        source = lay_out(x.clone())
        assert in_place(entry)(source) is (source if RETURNS else None)
        assert torch.equal(source, expected)
    same = x.clone()
    into(entry)(same, out=same)
    assert torch.equal(same, expected)


@over_entries
def test_writing_touches_nothing_else(entry: OpEntry) -> None:
    whole = torch.full((6, 8), 0.5)
    in_place(entry)(whole[1:3, ::2])
    untouched = torch.ones_like(whole, dtype=torch.bool)
    untouched[1:3, ::2] = False
    assert torch.equal(whole[untouched], torch.full((40,), 0.5))
    assert torch.equal(whole[1:3, ::2], entry.op(torch.full((2, 4), 0.5)))


@over_entries
def test_functions_return_what_they_wrote_to(entry: OpEntry) -> None:
    function, function_ = (getattr(cppcuda.functional, n) for n in (entry.base_name, f"{entry.base_name}_"))
    x = torch.randn(5)
    out = torch.empty(5)
    assert function(x, out=out) is out and torch.equal(out, entry.op(x))
    assert function_(x) is x and torch.equal(x, out)


def test_memory_that_is_not_aligned_to_its_elements() -> None:
    """Such as that of a file after a header. Also with nontemporal stores."""
    code = """
import torch, cppcuda
for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
    for offset in (1, 2, 3, 4, 7):
        memory = bytearray(1000 * dtype.itemsize + 8)
        x = torch.frombuffer(memory, dtype=dtype, offset=offset, count=1000)
        for name in ("sigmoid", "quick_gelu"):
            f, f_ = (getattr(cppcuda.functional, n) for n in (name, name + "_"))
            source = torch.randn(1000, dtype=dtype)
            expected = f(source)
            assert torch.equal(f(source, out=x), expected)
            x.copy_(source)
            assert torch.equal(f(x), expected) and torch.equal(f_(x), expected)
"""
    for limit in (0, 1 << 60):
        run_python(code, env={**os.environ, "CPPCUDA_STREAM_BYTES": str(limit)})


@over_entries
def test_negative_bit(entry: OpEntry) -> None:
    x = torch.randn(2, 5, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    expected, out = entry.op(x.clone()), torch.empty(2, 5)
    assert torch.equal(entry.op(x), expected)
    into(entry)(x, out=out)
    assert torch.equal(out, expected)
    into(entry)(x.clone(), out=x)
    assert torch.equal(x, expected) and x.is_neg()
    x.copy_(torch.randn(2, 5))
    expected = entry.op(x.clone())
    in_place(entry)(x)
    assert torch.equal(x, expected)


@over_entries
def test_nothing_is_allocated(entry: OpEntry) -> None:
    x, out = torch.randn(1000), torch.empty(1000)
    assert allocated_bytes(lambda: into(entry)(x, out=out)) == 0
    assert allocated_bytes(lambda: in_place(entry)(x)) == 0
    assert allocated_bytes(lambda: entry.op(x)) >= 4000, "allocated_bytes misses allocations"


@over_devices
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@over_entries
def test_second_derivatives_of_16_bits_do_not_overflow(entry: OpEntry, dtype: torch.dtype, device: str) -> None:
    """Gradient times direction overflows float16, but times the second derivative, which is small, it does not."""
    assert entry.backward
    saved = torch.cat([torch.linspace(-12, 12, 97), torch.linspace(0.48, 0.52, 33)]).to(device, dtype)
    factor = torch.full_like(saved, 300)

    def second_derivative(backward, saved: Tensor, factor: Tensor) -> Tensor:
        saved = saved.clone().requires_grad_()
        return torch.autograd.grad(backward(factor, saved), saved, factor)[0]

    expected = second_derivative(entry.backward.reference, saved.double(), factor.double())
    representable = expected.abs() < 60000
    assert representable.sum() > 10
    eps = torch.finfo(dtype).eps
    result = second_derivative(entry.backward.op, saved, factor).double()
    assert_close(result[representable], expected[representable], rtol=2 * eps, atol=1e-6 * 300 * 300)


@over_devices
@over_dtypes
@over_entries
def test_ends_of_the_range(entry: OpEntry, dtype: torch.dtype, device: str) -> None:
    """NaN and infinities are as in the formula of plain torch. No intermediate of a finite result overflows."""
    info = torch.finfo(dtype)
    sizes = [0.0, info.tiny, info.smallest_normal, info.eps, 1, 10, 17, 50, 88, 89, 104, 710, 746, 1e4, info.max / 2]
    finite = torch.tensor([*sizes, info.max, *(-s for s in sizes), info.min], dtype=torch.float64)
    finite = finite[finite.abs() <= info.max].to(dtype).to(device)
    x = torch.cat([finite, finite.new_tensor([torch.inf, -torch.inf, torch.nan])]).requires_grad_()
    y = entry.op(x)
    expected = entry.reference(x.detach().double())
    # The relative error of exp(z) is that of z times |z|; exp underflows to 0 where a double is still subnormal.
    assert_close(y.double(), expected, rtol=64 * info.eps, atol=float(info.tiny), equal_nan=True)
    assert torch.isfinite(y[: len(finite)]).all()
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.isfinite(gradient[: len(finite)]).all()
    (second,) = torch.autograd.grad(gradient[: len(finite)].sum(), x)
    assert torch.isfinite(second[: len(finite)]).all()


@over_dtypes
def test_sigmoid_equals_torch_at_its_ends(dtype: torch.dtype) -> None:
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 1e4, -1e4, 0.0, -0.0], dtype=dtype)
    torch.testing.assert_close(cppcuda.functional.sigmoid(x), x.sigmoid(), rtol=0, atol=0, equal_nan=True)


# ---------------------------------------------------------------- layouts


def channels_last(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


DENSE = {
    "contiguous": lambda: torch.randn(2, 3, 4, 5),
    "channels_last": lambda: channels_last(2, 3, 4, 5),
    "channels_last_3d": lambda: torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d),
    "permuted": lambda: torch.randn(4, 2, 5, 3).permute(2, 0, 3, 1),
    "transposed": lambda: torch.randn(7, 9).t(),
    "one_channel": lambda: channels_last(2, 1, 4, 5),
    "part_of_a_batch": lambda: channels_last(4, 3, 4, 5)[1:3],
}


@over_entries
@pytest.mark.parametrize("layout", DENSE)
def test_dense_input_keeps_its_strides_without_a_copy(entry: OpEntry, layout: str) -> None:
    x = DENSE[layout]().requires_grad_()
    copies = {"aten::copy_", "aten::clone", "aten::contiguous"}

    def names(call) -> set[str]:
        return {event.name for event in profiled(call).events()}

    y = entry.op(x)
    assert y.stride() == x.stride()
    assert not names(lambda: entry.op(x.detach())) & copies
    assert allocated_bytes(lambda: entry.op(x.detach())) <= x.numel() * 4 + 64
    grad = torch.randn_like(x)
    assert grad.stride() == x.stride()
    (gradient,) = torch.autograd.grad(y, x, grad)
    assert gradient.stride() == x.stride()
    # A gradient in another layout is read without a copy, and the result has the input's layout.
    (other,) = torch.autograd.grad(entry.op(x), x, grad.contiguous())
    assert other.stride() == x.stride() and torch.equal(other, gradient)
    assert_close(entry.op(x.contiguous()), y, rtol=0, atol=0)


@over_entries
@pytest.mark.compiles
def test_layout_through_compile(entry: OpEntry) -> None:
    torch._dynamo.reset()
    conv = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    model = torch.nn.Sequential(conv, entry.module(), torch.nn.Conv2d(4, 2, 1).to(memory_format=torch.channels_last))
    x = channels_last(2, 3, 8, 8)
    expected = model(x)
    actual = torch.compile(model, fullgraph=True)(x)
    assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert actual.stride() == expected.stride()


@over_entries
def test_nested_tensors(entry: OpEntry) -> None:
    """Nested tensors support ops that have Tag::pointwise."""
    parts = [torch.randn(n, 4) for n in (3, 2, 5)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    for out, part in zip(entry.op(nested).unbind(), parts, strict=True):
        assert torch.equal(out, entry.op(part))


@over_entries
def test_expanded_gradient_is_not_spread_out(entry: OpEntry) -> None:
    x = torch.randn(300, 400, requires_grad=True)
    y = entry.op(x)
    grad = torch.ones(()).expand_as(y)
    assert allocated_bytes(lambda: torch.autograd.grad(y, x, grad, retain_graph=True)) <= x.numel() * 4 + 4096


# ---------------------------------------------------------------- errors


@over_entries
def test_a_lost_gradient_is_an_error(entry: OpEntry) -> None:
    op = entry.base_name
    x, leaf = torch.randn(3), torch.randn(3, requires_grad=True)

    def message(name: str, argument: str, written: str, source: str) -> str:
        return (
            f"{name}: {argument} requires a gradient, which a call that writes to {written} loses; "
            f"call {op}({source}) instead, or this one under torch.no_grad()"
        )

    own = message(f"{op}_", "self", "self", "self")
    assert error_of(in_place(entry), leaf) == own
    assert error_of(in_place(entry), leaf * 2) == own
    assert error_of(into(entry), leaf, out=x.clone()) == message(op, "input", "out", "input")
    assert error_of(into(entry), x, out=leaf) == message(op, "out", "out", "input")
    assert error_of(torch.func.grad(lambda t: in_place(entry)(t.clone())), x) == own
    own = f"{op}_: self has a tangent, which a call that writes to self loses; call {op}(self) instead"
    assert error_of(lambda t: torch.func.jvp(lambda t: in_place(entry)(t.clone()), (t,), (t,)), x) == own
    with torch.autograd.forward_ad.dual_level():
        assert error_of(in_place(entry), torch.autograd.forward_ad.make_dual(x, x)) == own
    assert leaf._version == 0 and x._version == 0


@over_entries
def test_without_grad_mode_nothing_is_lost(entry: OpEntry) -> None:
    leaf = torch.randn(3, requires_grad=True)
    expected = entry.op(leaf.detach())
    with torch.no_grad():
        out = torch.empty(3)
        into(entry)(leaf, out=out)
        assert torch.equal(out, expected)
        in_place(entry)(leaf)
    assert torch.equal(leaf, expected) and leaf.requires_grad
    with torch.inference_mode():
        x = torch.randn(3)
        expected = entry.op(x)
        in_place(entry)(x)
        assert torch.equal(x, expected)


@over_entries
def test_versions(entry: OpEntry) -> None:
    """Without a new version, another op's gradient would be silently wrong."""
    x = torch.randn(4)
    for write in (in_place(entry), lambda t: into(entry)(torch.zeros(4), out=t), lambda t: into(entry)(t, out=t)):
        before = x._version
        write(x)
        assert x._version == before + 1
        w = torch.randn(4, requires_grad=True)
        loss = (w * x).sum()  # saves x
        with torch.no_grad():
            write(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@over_entries
def test_out_that_does_not_fit(entry: OpEntry) -> None:
    op, call = entry.base_name, into(entry)
    x = torch.randn(2, 3)
    for shape in ((), (3,), (3, 2), (2, 4), (1, 3), (2, 3, 1), (0,)):
        out = torch.full(shape, 7.0)
        assert error_of(call, x, out=out) == f"{op}: out must be [2, 3], the shape of the result, got {list(shape)}"
        assert (out == 7).all() and out.shape == shape
    for dtype in (torch.float64, torch.bfloat16, torch.int64):
        spelled = str(dtype).removeprefix("torch.")
        expected = f"{op}: out must be of dtype float32, the dtype of the result, got {spelled}"
        assert error_of(call, x, out=torch.empty(2, 3, dtype=dtype)) == expected
    assert error_of(call, x, out=x.to("meta")) == f"{op}: out must be on cpu, the device of the result, got meta"
    floating = "must be of dtype float64, float32, float16 or bfloat16, got int64"
    assert error_of(in_place(entry), torch.arange(3)) == f"{op}_: self {floating}"
    assert error_of(call, x.long(), out=x) == f"{op}: input {floating}"
    assert (
        error_of(in_place(entry), x.to_sparse()) == f"{op}_: self must be a dense (strided) tensor, got layout Sparse"
    )
    assert error_of(call, x.to_sparse(), out=x) == f"{op}: input must be a dense (strided) tensor, got layout Sparse"


@over_entries
def test_overlaps(entry: OpEntry) -> None:
    op, call = entry.base_name, into(entry)
    shared = f"{op}: out must be input itself or share no memory with it, got an overlap"
    flat, square = torch.randn(20), torch.randn(6, 6)
    before = flat.clone(), square.clone()
    overlapping = [
        (flat[1:], flat[:-1]),
        (flat[:-1], flat[1:]),
        (flat[:10], flat[9:19]),
        (flat[9:19], flat[:10]),
        (flat[:9:2], flat[8:17:2]),
        (flat[8:17:2], flat[:9:2]),
        (flat[:10:2], flat[2:12:2]),
        (square, square.t()),
        (square[:, 1:], square[:, :-1]),
        (square[1:], square[:-1]),
        (square[:5, :5], square[1:, 1:]),
        (square[0], square[:, 0]),
        (flat[:6], flat[:12:2]),
    ]
    for x, out in overlapping:
        assert error_of(call, x, out=out) == shared
    expanded = torch.zeros(3).expand(2, 3)
    message = "must not have elements that share memory, got strides [0, 1]"
    assert error_of(call, torch.randn(2, 3), out=expanded) == f"{op}: out {message}"
    assert error_of(in_place(entry), expanded) == f"{op}_: self {message}"
    assert error_of(in_place(entry), torch.zeros(3, device="meta").expand(2, 3)) == f"{op}_: self {message}"
    assert torch.equal(flat, before[0]) and torch.equal(square, before[1])

    disjoint = [
        (flat[:10], flat[10:]),
        (flat[::2], flat[1::2]),
        (square[:, :3], square[:, 3:]),
        (square[::2, ::2], square[1::2, ::2]),
        (square[::2, ::2], square[::2, 1::2]),
        (square[:3, :3], square[3:, :3]),
    ]
    for x, out in disjoint:
        expected = entry.op(x)
        call(x, out=out)
        assert torch.equal(out, expected)


@over_entries
def test_overlap_of_views_of_many_dims_is_found_quickly(entry: OpEntry) -> None:
    """Also if elements of one view share memory, or sizes are large. Trying all positions would take hours."""
    memory = torch.randn(1 << 22)
    for sizes, strides in [
        ([2] * 24, [2] * 24),
        ([2] * 20, [3**k % 1009 + 1 for k in range(20)]),
        ([1000] * 2, [7, 3]),
    ]:
        first, second = (memory.as_strided(sizes, strides, offset) for offset in (0, 6))
        assert "share no memory" in error_of(into(entry), first, out=second)
    apart = [memory.as_strided([2] * 20, [2 << k for k in range(20)], offset) for offset in (0, 1)]
    expected = entry.op(apart[0])
    into(entry)(apart[0], out=apart[1])
    assert torch.equal(apart[1], expected)


@over_entries
def test_no_elements(entry: OpEntry) -> None:
    for shape in ((0,), (0, 3), (3, 0)):
        x = torch.empty(shape)
        in_place(entry)(x)
        into(entry)(x, out=torch.empty(shape))
        assert entry.op(x).shape == shape


# ---------------------------------------------------------------- transforms


def writes(entry: OpEntry, x: Tensor) -> Tensor:
    """Writes in place to one intermediate tensor, and with out= to another."""
    y = x * 2
    in_place(entry)(y)
    z = torch.empty_like(y)
    into(entry)(y + 1, out=z)
    return y + z


def writes_nothing(entry: OpEntry, x: Tensor) -> Tensor:
    y = entry.op(x * 2)
    return y + entry.op(y + 1)


@over_entries
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.compiles
def test_compiled(entry: OpEntry, backend: str) -> None:
    torch._dynamo.reset()
    x = torch.randn(5, 4)
    compiled = torch.compile(lambda t: writes(entry, t), fullgraph=True, dynamic=True, backend=backend)
    for t in (x, torch.randn(9, 4)):
        assert_close(compiled(t), writes_nothing(entry, t), rtol=1e-5, atol=1e-6)

    def on_arguments(t: Tensor, out: Tensor) -> Tensor:
        into(entry)(t, out=out)
        in_place(entry)(t)
        return t * 3

    t, out = x.clone(), torch.empty_like(x)
    result = torch.compile(on_arguments, fullgraph=True, backend=backend)(t, out)
    expected = entry.op(x)
    assert_close([t, out, result], [expected, expected, expected * 3], rtol=1e-6, atol=1e-6)


@over_entries
def test_functionalized(entry: OpEntry) -> None:
    x = torch.randn(5, 4)
    graph = make_fx(torch.func.functionalize(lambda t: writes(entry, t)))(x)
    called = {n.target for n in graph.graph.nodes if n.op == "call_function"}
    assert entry.op in called and not {in_place(entry), into(entry)} & called
    assert_close(graph(x), writes_nothing(entry, x))

    def on_view(t: Tensor) -> Tensor:
        in_place(entry)(t[1:3])
        return t + 0

    t = x.clone()
    assert_close(torch.func.functionalize(on_view)(t), on_view(x.clone()))
    assert_close(t, on_view(x.clone()))


@over_entries
@pytest.mark.compiles
def test_exported(entry: OpEntry) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return writes(entry, x)

    x = torch.randn(5, 4)
    program = torch.export.export(Model(), (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    for t in (x, torch.randn(7, 4)):
        assert_close(program.module()(t), writes_nothing(entry, t))
        assert_close(program.run_decompositions().module()(t), writes_nothing(entry, t))


@over_entries
def test_vmapped(entry: OpEntry) -> None:
    vmap = torch.func.vmap
    x = torch.randn(3, 5, 4)
    for dim in (0, 1, -1):
        assert_close(vmap(lambda t: writes(entry, t), in_dims=dim)(x), vmap(lambda t: writes_nothing(entry, t), dim)(x))
    t = x.clone()
    vmap(lambda row: (in_place(entry)(row), row)[1], in_dims=1)(t)
    assert_close(t, entry.op(x))
    assert kernel_calls(f"cppcuda::{entry.base_name}_", lambda: vmap(lambda r: (in_place(entry)(r), r)[1])(t)) == 1
    shared = torch.empty(5, 4)
    message = "out must have the batch that vmap gives to input, which one tensor cannot hold; use the functional form"
    call = vmap(lambda row: (into(entry)(row, out=shared), row)[1])
    assert error_of(call, x) == f"{entry.base_name}: {message}"
    out = torch.empty(3, 5, 4)
    vmap(lambda row, o: (into(entry)(row, out=o), row)[1], in_dims=(None, 0))(x[0], out)
    assert_close(out, entry.op(x[0]).expand(3, 5, 4))


@over_entries
def test_torchscript(entry: OpEntry) -> None:
    unit = torch.jit.CompilationUnit(
        f"def call(x: Tensor, out: Tensor) -> Tensor:\n"
        f"    torch.ops.cppcuda.{entry.base_name}(x, out=out)\n"
        f"    y = out + 0\n"
        f"    torch.ops.cppcuda.{entry.base_name}_(y)\n"
        f"    return y\n"
    )
    x, out = torch.randn(4), torch.empty(4)
    for _ in range(3):
        assert_close(unit.call(x, out), entry.op(entry.op(x)))
        assert_close(out, entry.op(x))
    scripted = torch.jit.script(getattr(cppcuda.functional, f"{entry.base_name}_"))
    assert_close(scripted(x.clone()), entry.op(x))
    assert_close(torch.jit.script(entry.function)(x, out), entry.op(x))


@over_entries
def test_meta_and_fake(entry: OpEntry) -> None:
    x = torch.empty(2, 3, device="meta")
    assert in_place(entry)(x) is (x if RETURNS else None)
    assert into(entry)(x, out=torch.empty_like(x)) is None
    message = f"{entry.base_name}: out must be [2, 3], the shape of the result, got [3]"
    assert error_of(into(entry), x, out=torch.empty(3, device="meta")) == message


@over_entries
@pytest.mark.compiles
def test_opcheck(entry: OpEntry) -> None:
    for layout in ("transposed", "sliced"):
        x = LAYOUTS[layout](torch.randn(3, 4))
        torch.library.opcheck(in_place(entry), (x,))
        torch.library.opcheck(into(entry), (torch.randn(3, 4),), {"out": x})


@over_entries
def test_every_key_of_the_writing_ops(entry: OpEntry) -> None:
    for name in entry.writing_names:
        keys = {"CPU", "Meta", "Autograd", "FuncTorchBatched", "ADInplaceOrView", "Functionalize"}
        keys |= {"CUDA"} if cppcuda._build.CUDA else set()
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        assert not {k for k in keys if not has(f"cppcuda::{name}", k)}
