"""Ops of another library that uses the kit (tests/second_library), together with cppcuda in one process.

Their formulas have the same names as those of cppcuda. They cover arguments and outputs that trilinear does not have: a
float, sizes, a string, an optional number, a derivative that reads outputs, and two outputs of which one may be unused.

CPPCUDA_SECOND_LIBRARY  the built library, libsecond.so.
"""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cppcuda
import pytest
import torch
import torch.distributed.tensor
import torch.utils.flop_counter
from cppcuda import _load
from cppcuda.testing import check
from cppcuda.testing.compare import calls, recorded_compiled_autograd
from torch import Tensor
from torch.func import grad, jvp, vmap

LIBRARY = os.environ.get("CPPCUDA_SECOND_LIBRARY")
if not LIBRARY:
    pytest.skip("CPPCUDA_SECOND_LIBRARY is not set (scripts/test sets it)", allow_module_level=True)
torch.ops.load_library(LIBRARY)
second = torch.ops.second

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def crop_or_pad(x: Tensor, size: list[int], side: str = "right", gain: float | None = None) -> Tensor:
    change = size[0] - x.shape[-1]
    return torch.nn.functional.pad(x, (change, 0) if side == "left" else (0, change)) * (1.0 if gain is None else gain)


def first_times_sum(feats: Tensor, points: Tensor) -> Tensor:
    return points[..., :1] * feats.sum(-2)


def blend(
    x: Tensor, y: Tensor, degree: int = 2, negate: bool = False, limit: float | None = None, scale: float = 1.0
) -> Tensor:
    result = scale * y * x**degree
    result = -result if negate else result
    return result if limit is None else torch.minimum(result, torch.tensor(limit, dtype=result.dtype))


def modrelu(z: Tensor, bias: Tensor) -> Tensor:
    size = torch.where(z == 0, 1, z).abs()
    return torch.where(z == 0, 0, z * (size + bias).relu() / size)


def scale(
    x: Tensor,
    factor: float,
    *,
    power: int | None = None,
    negate: bool | None = None,
    prefix: str | None = None,
    columns: int | None = None,
    factors: Sequence[float] = (),
    ratio: Sequence[int] = (1, 1),
    by: float = 1,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    powers: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    divisors: Sequence[float] | None = None,
    over: float | None = None,
    layout: torch.layout | None = None,
    memory_format: torch.memory_format | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    factor = (factor * by * math.prod(factors)) ** (1 if power is None else power) * ratio[0] / ratio[1]
    factor *= (-1 if negate else 1) * {None: 1, "kilo": 1000}.get(prefix, 0.001) * (1 if columns is None else columns)
    factor *= (5 if dtype == torch.bfloat16 else 1) * (1 if device is None else 7)
    for power in powers or ():
        factor **= power
    factor *= math.prod(sizes or ()) / math.prod(divisors or ()) / (1 if over is None else over)
    factor *= (1 if layout is None else 11) * (13 if memory_format == torch.channels_last else 1)
    return x * factor * (1 if generator is None else generator.initial_seed())


def int8_linear(x: Tensor, weight: Tensor, scale: Tensor, mask: Tensor | None = None) -> Tensor:
    result = x @ weight.to(x.dtype).mT * scale
    return result if mask is None else result * mask.unsqueeze(-1)


X = torch.linspace(-1, 1, 12).view(3, 4)
WEIGHT = torch.tensor([[3, -1, 2, 0], [-2, 1, 0, 1]], dtype=torch.int8)
# A value for each type of argument.
ATTRIBUTES = {
    "power": 3,
    "negate": True,
    "prefix": "milli",
    "columns": 4,
    "factors": [0.5, 3.0],
    "ratio": [2, 3],
    "by": 1.5,
    "dtype": torch.bfloat16,
    "device": torch.device("cpu"),
    "powers": [2, 1],
    "sizes": [1, 2],
    "divisors": [0.5, 0.07],
    "over": 2,
    "layout": torch.strided,
    "memory_format": torch.channels_last,
    "generator": torch.Generator().manual_seed(17),
}
# torch.jit.trace takes no device, layout or generator. Fake tensors take a device for that of the result.
NOT_TRACED = {"device", "layout", "memory_format", "generator"}
FEATS, POINTS = torch.linspace(-1, 2, 48).view(3, 8, 2), torch.linspace(-1, 1, 9).view(3, 3)
OPERATORS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "scale": (scale, [(X, -1.5), (X, 0.75, {n: v for n, v in ATTRIBUTES.items() if n not in NOT_TRACED})]),
    "exp": (torch.exp, [(X,)]),
    "swish": (lambda x, beta: x * torch.sigmoid(beta * x), [(X, 1.5)]),
    "_swish_backward": (
        lambda g, x, beta: g * (torch.sigmoid(beta * x) * (1 + beta * x * (1 - torch.sigmoid(beta * x)))),
        [(X.cos(), X, 1.5)],
    ),
    "tanhshrink": (lambda x: x - x.tanh(), [(X,)]),
    "gated": (lambda x, gate: x * torch.sigmoid(gate), [(X, X.cos()), (X, X[0].cos()), (X[1], X.cos())]),
    "blend": (blend, [(X, X.cos()), (X, X.cos(), 3, True, 0.125, 1.5)]),
    "lorentzian": (
        lambda x, c, h, width: h / (1 + ((x - c) / width) ** 2),
        [(X, X.sin(), X.cos(), 0.75), (X[:, :1], X[1].sin(), X[0, 1].cos(), 0.75)],
    ),
    "softplus": (torch.nn.functional.softplus, [(4 * X,)]),
    "crop_or_pad": (crop_or_pad, [(X, [3]), (X, [6]), (X, [7], "left", 2.5)]),
    "row_sum": (lambda x: x.sum(-1), [(X,)]),
    "sincos": (lambda x: (x.sin(), x.cos()), [(X,)]),
    "modrelu": (modrelu, [(torch.complex(X, X.cos()).to(torch.complex128), X[0] / 2)]),
    "cube": (lambda x: x**3, [(X,)]),
    "trilinear": (first_times_sum, [(FEATS, POINTS)]),
    "int8_linear": (
        int8_linear,
        [
            (X, WEIGHT, X[0, :2], torch.tensor([True, False, True])),  # the first one is tried with other strides
            (X, WEIGHT, X[0, :2]),
            (X[:, None], WEIGHT, X[0, :2], torch.tensor([[True, False], [False, True], [True, True]])),
        ],
    ),
    "weighted_dot": (
        lambda x, y, weight: (x * y * weight).sum(-1),
        [(X, X.cos(), X[0].sin()), (X[:, None], X[:2].cos(), X[0]), (X[0], X.cos(), X[1])],
    ),
}


# The compiler sees one kind of node for every operator: of attributes, of two outputs, and of sizes.
COMPILED = {"scale", "swish", "sincos", "crop_or_pad"}


# The gradients of blend, gated and lorentzian are one operator of all tensors, also of those whose values it does not
# use. trilinear's formula is written by hand and keeps more than it needs.
def strides_of_empty_like(x: Tensor) -> list[tuple[int, ...]]:
    return [torch.empty_like(x).stride()]


EXPECTATIONS: dict[str, dict[str, Any]] = {
    "cube": {"strides": strides_of_empty_like},
    "modrelu": {"dtypes": [torch.float64]},  # of the bias, which is that of the parts of z
}
EXCEPTIONS = {
    # The gradient of the bias reads where the result is 0. cppcuda.testing makes no batches of complex tensors.
    "modrelu": ["kept alive", "vmap"],
    "blend": ["kept alive"],
    "gated": ["kept alive"],
    "lorentzian": ["kept alive"],
    "trilinear": ["kept alive"],
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.compiles
def test_every_property(name: str) -> None:
    """cppcuda.testing takes the operators of any namespace; those of the kit have more properties to check."""
    slow = ["AOTInductor"] if name in COMPILED else ["AOTInductor", "compile", "export"]
    if name not in COMPILED | {
        "gated",
        "weighted_dot",
        "int8_linear",
    }:  # tensors that broadcast have a rule of their own
        slow.append("DTensor")
    left_out = [*slow, *EXCEPTIONS.get(name, ())]
    report = check(f"second::{name}", *OPERATORS[name], skip=left_out, **EXPECTATIONS.get(name, {}))
    assert not report.failed, report


def as_tuple(out: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (out,) if isinstance(out, Tensor) else tuple(out)


def scalar(out: Tensor | tuple[Tensor, ...]) -> Tensor:
    """A function of all entries whose derivatives of every order depend on them."""
    return sum((t.cos() * torch.arange(1, t.numel() + 1).view_as(t)).sum() for t in as_tuple(out))


def assert_same(actual: object, expected: object) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def compile_graph(graph: torch.fx.GraphModule) -> Callable[..., object]:
    return torch.compile(graph, fullgraph=True, dynamic=True, backend="aot_eager")


@pytest.mark.compiles
def test_compiled_autograd_of_sizes() -> None:
    """The sizes that a node owns are symbols in the graph, so one graph is enough for all of them."""
    sizes = [(4, 6), (6, 4), (5, 9), (9, 5), (7, 3)]

    def run(size: tuple[int, int]) -> Tensor:
        x = torch.linspace(0, 1, 3 * size[0], dtype=torch.float64).view(3, -1).requires_grad_()
        return torch.autograd.grad(scalar(second.crop_or_pad(x, [size[1]])), x)[0]

    expected = [run(s) for s in sizes]
    with recorded_compiled_autograd(compile_graph) as graphs:
        assert_same([run(s) for s in sizes], expected)
    assert len(graphs) == 1


@pytest.mark.compiles
def test_compiled_autograd_tells_attributes_apart() -> None:
    x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)

    def gradients() -> list[Tensor]:
        outputs = [second.scale(x, f) for f in (2.0, 3.0, 2.0)]
        # compiled autograd takes no generator
        outputs += [second.scale(x, 2.0, **{n: value}) for n, value in ATTRIBUTES.items() if n != "generator"]
        outputs += [second.swish(x, beta) for beta in (2.0, 3.0, 2.0)]
        outputs += [second.crop_or_pad(x, [6], side) for side in ("left", "right")]
        outputs += [second.crop_or_pad(x, [6], "left", gain) for gain in (None, 1.5, 2.5)]
        return [torch.autograd.grad(scalar(out), x)[0] for out in outputs]

    expected = gradients()
    with recorded_compiled_autograd(compile_graph):
        assert_same(gradients(), expected)


@pytest.mark.compiles
def test_compiled_autograd_of_both_libraries() -> None:
    """Nodes and formulas with the same names, in one graph and one after the other."""
    feats, points = FEATS.double().requires_grad_(), POINTS.double().requires_grad_()
    inputs = (feats, points)
    ours, theirs = torch.ops.cppcuda.trilinear, second.trilinear
    values = []
    for function in (ours, theirs, lambda *t: (ours(*t), theirs(*t)), lambda *t: ours(*t) * theirs(*t)):
        value = scalar(function(*inputs))
        values += [value, scalar(torch.autograd.grad(value, inputs, create_graph=True))]

    def gradients() -> list[tuple[Tensor, ...]]:
        return [torch.autograd.grad(value, inputs, retain_graph=True) for value in values]

    expected = gradients()
    assert not torch.allclose(expected[0][0], expected[2][0])
    with recorded_compiled_autograd(compile_graph):
        assert_same(gradients(), expected)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_of_every_type(name: str) -> None:
    """Each reaches the kernel and the derivatives, which have a copy, also under vmap."""
    x, given = X.double(), {name: ATTRIBUTES[name]}
    expected = scale(x, 1.25, **given)
    assert not torch.equal(expected, 1.25 * x)
    f = lambda t: second.scale(t, 1.25, **given)  # noqa: E731
    assert_same(f(x), expected)
    assert_same(grad(lambda t: f(t).sum())(x), expected / x)
    assert_same(jvp(f, (x,), (x,)), (expected, expected))
    assert_same(vmap(f, 1, 1)(x[None].transpose(0, 1)), expected[None].transpose(0, 1))


def scaled_with_all_attributes(x: Tensor) -> Tensor:
    return torch.ops.second.scale(
        x,
        0.75,
        power=3,
        negate=True,
        prefix="milli",
        columns=4,
        factors=[0.5, 3.0],
        ratio=[2, 3],
        by=1.5,
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
        powers=[2, 1],
        sizes=[1, 2],
        divisors=[0.5, 0.07],
        over=2,
        layout=torch.strided,
        memory_format=torch.channels_last,
    )


def test_attributes_in_torchscript() -> None:
    expected = scale(X.double(), 0.75, **{n: v for n, v in ATTRIBUTES.items() if n != "generator"})
    assert_same(torch.jit.script(scaled_with_all_attributes)(X.double()), expected)


def test_modrelu() -> None:
    """A complex operator with a real parameter. Its gradients are those of torch's convention."""
    torch.manual_seed(0)
    z = torch.randn(5, 3, dtype=torch.complex128)
    z[0, 0], bias = 0, torch.tensor([-0.5, 0.25, 0], dtype=torch.float64)
    reference = modrelu
    assert_same(second.modrelu(z, bias), reference(z, bias))
    assert_same(second.modrelu(z.conj(), bias), reference(z.conj(), bias))
    narrow = z.to(torch.complex64), bias.float()
    torch.testing.assert_close(second.modrelu(*narrow), reference(*narrow))
    variables = z[1:].clone().requires_grad_(), bias.clone().requires_grad_()
    assert torch.autograd.gradcheck(second.modrelu, variables, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(second.modrelu, variables)
    for f in (second.modrelu, torch.compile(second.modrelu, fullgraph=True, backend="aot_eager")):
        loss = f(*variables).abs().square().sum()
        assert_same(torch.autograd.grad(loss, variables), grads_of(reference, variables))
    assert_same(vmap(second.modrelu, (0, None))(z, bias), reference(z, bias))
    biases = torch.stack((bias, bias.cos()))
    assert_same(vmap(second.modrelu, (None, 0))(z, biases), torch.stack([reference(z, b) for b in biases]))
    whole = z.view(1, 5, 1, 3).expand(2, 5, 1, 3)
    assert_same(second.modrelu(whole, bias), reference(whole, bias))
    torch.library.opcheck(second.modrelu, variables)


def grads_of(f: Callable[..., Tensor], variables: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(f(*variables).abs().square().sum(), variables)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: second.modrelu(X, X[0]), "modrelu: z must be of dtype complex64 or complex128, got float32"),
        (
            lambda: second.modrelu(X + 0j, X[0].double()),
            "modrelu: bias must be of dtype float32, the dtype of the parts of z, got float64",
        ),
        (
            lambda: second.int8_linear(X, WEIGHT.short(), X[0, :2]),
            "int8_linear: weight must be of dtype int8, got int16",
        ),
        (
            lambda: second.int8_linear(X[:, None], WEIGHT, X[0, :2], torch.ones(2, 2, dtype=torch.bool)),
            r"int8_linear: mask must broadcast with \[3, 1\], the dims before the last ones of x, got \[2, 2\]",
        ),
        (
            lambda: second.int8_linear(X[0, 0], WEIGHT, X[0, :2]),
            r"int8_linear: x must be \[..., K\], got \[\]",
        ),
        (
            lambda: second.int8_linear(X, WEIGHT, X[0, :2], torch.ones(3)),
            "int8_linear: mask must be of dtype bool, got float32",
        ),
    ],
)
def test_dtypes_that_a_declaration_does_not_name(call: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(RuntimeError, match=f"^{message}"):
        call()


def test_elementwise_schemas() -> None:
    schemas = {
        second.swish.default: "(Tensor x, float beta) -> Tensor",
        second._swish_backward.default: "(Tensor grad, Tensor x, float beta) -> Tensor",
        second.gated.default: "(Tensor x, Tensor gate) -> Tensor",
        second._swish_double_backward.default: "(Tensor? grad, Tensor x, Tensor grad_grad_x, float beta, "
        "bool[2] output_mask) -> (Tensor, Tensor)",
        second.blend.default: "(Tensor x, Tensor y, int degree=2, bool negate=False, float? limit=None, "
        "float scale=1.) -> Tensor",
        second._gated_backward.default: "(Tensor grad, Tensor x, Tensor gate, bool[2] output_mask) -> (Tensor, Tensor)",
    }
    for op, schema in schemas.items():
        assert str(op._schema).split("(", 1)[1] == schema[1:]


def test_elementwise_in_place_and_out() -> None:
    x, gate = torch.randn(6, 5, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64).t()
    for function, function_, into, inputs in (
        (second.gated, second.gated_, second.gated.out, (gate,)),
        (second.swish, second.swish_, second.swish.out, (0.5,)),
    ):
        expected, out, self = function(x, *inputs), torch.empty(5, 6, dtype=torch.float64).t(), x.clone()
        into(x, *inputs, out=out)
        function_(self, *inputs)
        assert torch.equal(out, expected) and torch.equal(self, expected) and self._version == 1
    with pytest.raises(RuntimeError, match=r"^gated: gate requires a gradient, .* call gated\(x, gate\) instead"):
        second.gated.out(x, gate.clone().requires_grad_(), out=torch.empty_like(x))
    with pytest.raises(RuntimeError, match=r"^gated: out must be gate itself or share no memory with it"):
        memory = torch.randn(31, dtype=torch.float64)
        second.gated.out(x, memory[1:].view(6, 5), out=memory[:-1].view(6, 5))
    with pytest.raises(RuntimeError, match=r"^gated: gate must broadcast with \[6, 5\], the shape of x, got \[6\]"):
        second.gated(x, gate[:, 0])


def double(*sizes: int) -> Tensor:
    return torch.randn(sizes, dtype=torch.float64)


BROADCAST = [
    ((6, 5), (5,)),
    ((5,), (6, 5)),
    ((6, 1), (1, 5)),
    ((6, 5), (6, 1)),
    ((6, 5), ()),
    ((4, 1, 5), (3, 1)),
    ((1,), ()),
    ((0, 5), (5,)),
    ((6, 1), (0,)),
    ((1, 6), (6,)),
]


@pytest.mark.parametrize(("of_x", "of_gate"), BROADCAST)
def test_broadcasting(of_x: tuple[int, ...], of_gate: tuple[int, ...]) -> None:
    """Values and derivatives of three orders, in both modes, are those of torch's operators."""
    x, gate = double(*of_x).requires_grad_(), double(*of_gate).requires_grad_()
    reference = OPERATORS["gated"][0]

    def derivatives(function: Callable[..., Tensor]) -> list[Tensor]:
        found = [function(x, gate)]
        for _ in range(3):
            found += torch.autograd.grad(scalar(tuple(found[-2:])), (x, gate), create_graph=True)
        tangents = (x.detach().cos(), gate.detach().sin())
        first = lambda *t: jvp(function, t, tangents)[1]  # noqa: E731
        found += [first(x, gate), jvp(first, (x, gate), tangents)[1]]
        found += jvp(lambda *t: grad(lambda *u: scalar(function(*u)), (0, 1))(*t), (x, gate), tangents)[1]
        return found

    assert_same(derivatives(second.gated), derivatives(reference))
    if x.numel() and gate.numel():
        assert torch.autograd.gradgradcheck(second.gated, (x, gate), check_fwd_over_rev=True, check_rev_over_rev=True)


@pytest.mark.parametrize("dims", [(0, None), (None, 0), (0, 0), (1, 0)])
def test_broadcasting_under_vmap(dims: tuple[int | None, ...]) -> None:
    def batched(t: Tensor, dim: int | None) -> Tensor:
        return t if dim is None else torch.stack([t, t.cos(), -t], dim)

    x, gate = batched(double(6, 5), dims[0]), batched(double(5), dims[1])
    reference = OPERATORS["gated"][0]

    def both_ways(function: Callable[..., Tensor]) -> Callable[..., Any]:
        return grad(lambda *t: scalar(grad(lambda *u: scalar(function(*u)), (0, 1))(*t)), (0, 1))

    for function, expected in ((second.gated, reference), (both_ways(second.gated), both_ways(reference))):
        assert_same(vmap(function, dims)(x, gate), vmap(expected, dims)(x, gate))

    def in_place(x: Tensor, gate: Tensor) -> Tensor:
        second.gated_(x, gate)
        return x

    if dims[0] is not None:
        assert_same(vmap(in_place, dims)(x.clone(), gate), vmap(reference, dims)(x, gate))


def test_broadcasting_has_the_strides_of_torch() -> None:
    x, gate = double(6, 5), double(5)
    for a, b in (
        (x.t().contiguous().t(), gate),
        (gate, x),
        (x[:, :1], gate),
        (double(2, 3, 4).permute(1, 0, 2), gate[:1]),
    ):
        expected = a * b
        assert second.gated(a, b).stride() == expected.stride()
        assert second.gated(a.to("meta"), b.to("meta")).stride() == expected.stride()
        gradients = torch.ops.second._gated_backward(expected, a, b, [True, True])
        assert [g.shape for g in gradients] == [a.shape, b.shape]


def test_broadcasting_into_memory() -> None:
    x, gate = double(6, 5), double(5)
    expected, out = second.gated(x, gate), torch.empty(5, 6, dtype=torch.float64).t()
    second.gated.out(x, gate, out=out)
    self = x.clone()
    second.gated_(self, gate)
    assert torch.equal(out, expected) and torch.equal(self, expected)
    with pytest.raises(RuntimeError, match=r"^gated_: self must be \[6, 5\], the shape of the result, got \[5\]"):
        second.gated_(gate.clone(), x)
    with pytest.raises(RuntimeError, match=r"^gated: out must be \[6, 5\], the shape of the result, got \[1, 5\]"):
        second.gated.out(x, gate, out=torch.empty(1, 5, dtype=torch.float64))
    memory = double(6, 5)
    with pytest.raises(RuntimeError, match=r"^gated: out must be gate itself or share no memory with it"):
        second.gated.out(x, memory[:1], out=memory)
    with pytest.raises(RuntimeError, match=r"^gated: out must be gate itself or share no memory with it"):
        second.gated.out(x, memory[3:4], out=memory)
    with pytest.raises(
        RuntimeError, match=r"^lorentzian: h.* must broadcast with \[6, 5\], the shape of x and c.*, got \[7\]"
    ):
        second.lorentzian(x, gate, double(7), 0.5)
    with pytest.raises(
        RuntimeError, match=r"^_gated_backward: grad must be \[6, 5\], the shape of the output, got \[5\]"
    ):
        second._gated_backward(gate, x, gate, [True, True])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("of_x", "of_gate"), [((3000, 70), (70,)), ((300, 700), (300, 1)), ((70000,), ()), ((90, 40, 50), (40, 1))]
)
def test_sums_of_broadcast_gradients(of_x: tuple[int, ...], of_gate: tuple[int, ...], dtype: torch.dtype) -> None:
    """They are rounded once, and their bits depend neither on the number of threads nor on the strides."""
    x, gate, direction = (double(*s).to(dtype) for s in (of_x, of_gate, of_x))
    wide = [t.double().requires_grad_() for t in (x, gate)]
    expected = torch.autograd.grad(OPERATORS["gated"][0](*wide), wide, direction.double())
    threads, found = torch.get_num_threads(), []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        found.append(second._gated_backward(direction, x, gate, [True, True]))
    torch.set_num_threads(threads)
    for gradients in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(gradients, found[0], strict=True))
    rounding = torch.finfo(dtype).eps
    for actual, correct in zip(found[0], expected, strict=True):
        scale = correct.abs().max().item()
        torch.testing.assert_close(
            actual.double(), correct, rtol=rounding, atol=2e-5 * scale if dtype != torch.float64 else 1e-12
        )
    only = second._gated_backward(direction, x, gate, [False, True])[1]
    assert torch.equal(only, found[0][1])


@pytest.mark.parametrize("degree", [0, 1, 4])
@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("limit", [None, 0.0, 0.25])
def test_attributes_of_elementwise_operators(degree: int, negate: bool, limit: float | None) -> None:
    """Integers, flags and optional numbers reach all orders of derivatives; 0.0 is not None."""
    x, y = (double(3, 2).tanh().requires_grad_() for _ in range(2))
    attributes = {"degree": degree, "negate": negate, "limit": limit, "scale": 0.75}

    def derivatives(function: Callable[..., Tensor]) -> list[Tensor]:
        found = [function(x, y, **attributes)]
        for _ in range(3):
            found += torch.autograd.grad(scalar(tuple(found[-2:])), (x, y), create_graph=True, materialize_grads=True)
        return found

    assert_same(derivatives(second.blend), derivatives(blend))
    expected, out, self = second.blend(x, y, **attributes).detach(), torch.empty_like(x), x.detach().clone()
    second.blend.out(x.detach(), y.detach(), **attributes, out=out)
    second.blend_(self, y.detach(), **attributes)
    assert torch.equal(out, expected) and torch.equal(self, expected)


def test_elementwise_in_place_and_out_under_vmap() -> None:
    x = torch.randn(3, 6, 5, dtype=torch.float64)

    def write(x: Tensor, out: Tensor) -> Tensor:
        second.swish.out(x, 0.5, out=out)
        return out

    def overwrite(x: Tensor) -> Tensor:
        second.swish_(x, 0.5)
        return x

    expected, out, self = second.swish(x, 0.5), torch.empty_like(x), x.clone()
    assert torch.equal(vmap(write)(x, out), expected) and torch.equal(out, expected)
    assert torch.equal(vmap(overwrite, in_dims=2, out_dims=2)(self), expected) and torch.equal(self, expected)
    with pytest.raises(RuntimeError, match=r"^swish: out must have the batch that vmap gives to x"):
        vmap(write, in_dims=(0, None))(x, out[0])


def test_unneeded_elementwise_gradients_are_not_computed() -> None:
    """All are one call, whose output_mask leaves out those that are not requested."""
    x, gate = (torch.rand(3, 4, requires_grad=True) for _ in range(2))
    for inputs, mask in (((x,), [True, False]), ((gate,), [False, True]), ((x, gate), [True, True])):
        out = second.gated(*(t if any(t is i for i in inputs) else t.detach() for t in (x, gate))).sum()
        made = [
            args
            for op, args in calls(functools.partial(torch.autograd.grad, out, inputs))
            if op._opname == "_gated_backward"
        ]
        assert [args[-1] for args in made] == [mask]


def test_second_derivatives_by_one_tensor() -> None:
    """Forward mode through a backward operator that leaves out the gradients of the other tensors."""
    reference, (arguments, _) = OPERATORS["lorentzian"]
    x, center, height, width = (a.double() if isinstance(a, Tensor) else a for a in arguments)
    for i in range(3):
        hessian = torch.func.hessian(lambda *a: second.lorentzian(*a, width).sum(), argnums=i)(x, center, height)
        expected = torch.func.hessian(lambda *a: reference(*a, width).sum(), argnums=i)(x, center, height)
        assert torch.allclose(hessian, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("gated", lambda dtypes, autocast: functools.reduce(torch.promote_types, dtypes)),
        ("tanhshrink", lambda dtypes, autocast: torch.float32),
        ("swish", lambda dtypes, autocast: dtypes[0]),
    ],
)
def test_autocast_of_elementwise_operators(name: str, dtype: Callable[..., torch.dtype]) -> None:
    """By default several tensors are cast to the widest dtype among them; tanhshrink names another policy."""
    report = check(f"second::{name}", *OPERATORS[name], only=["autocast"], autocast_dtype=dtype)
    assert report.passed == ["autocast"], report
    keys = ("AutocastCPU", "AutocastCUDA")
    has_policy = [torch._C._dispatch_has_kernel_for_dispatch_key(f"second::{name}", key) for key in keys]
    assert has_policy == [name != "swish"] * 2


def test_autocast_of_two_dtypes() -> None:
    """What a layer returns under autocast, and another tensor in float32."""
    layer, x, other = torch.nn.Linear(4, 4), torch.rand(3, 4), torch.rand(3, 4)

    def run(x: Tensor, other: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return second.gated(layer(x), other)

    with torch.autocast("cpu", torch.bfloat16):
        expected = layer(x).float() * torch.sigmoid(other)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for function in (run, compiled, vmap(run), lambda *t: jvp(run, t, t)[0]):
        out = function(x, other)
        assert out.dtype == torch.float32
        torch.testing.assert_close(out, expected, rtol=0.02, atol=0.02)
    inputs = tuple(t.clone().requires_grad_() for t in (x, other))
    gradients = torch.autograd.grad(run(*inputs).sum(), inputs)
    for found in (
        torch.autograd.grad(compiled(*inputs).sum(), inputs),
        grad(lambda *t: run(*t).sum(), (0, 1))(x, other),
    ):
        assert [t.dtype for t in found] == [torch.float32] * 2
        torch.testing.assert_close(found, gradients, rtol=0.02, atol=0.02)
    with pytest.raises(RuntimeError, match=r"^gated: gate must be of dtype bfloat16, the dtype of x, got float32"):
        with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False):
            second.gated(x.bfloat16(), other)


def test_second_derivative_that_is_written_by_hand() -> None:
    """The derivative of the slope would be 0 here, because 1 - tanh(x)^2 is 0 in float32."""
    x = torch.tensor([-12.0, 10.0, 12.0, 40.0])
    actual = vmap(grad(grad(second.tanhshrink)))(x)
    expected = 2 * x.double().tanh() / x.double().cosh() ** 2
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=0)


def test_output_that_is_read_is_protected() -> None:
    x = torch.rand(3, 4, requires_grad=True)
    out = second.exp(x)
    out.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_errors_name_the_op_of_this_library() -> None:
    with pytest.raises(RuntimeError, match=r"^scale: input must be \[N, F\] or \[B, N, F\], got \[3\]"):
        second.scale(torch.rand(3), 1.0)
    with pytest.raises(RuntimeError, match=r"^crop_or_pad: side must be 'left' or 'right', got 'up'"):
        second.crop_or_pad(torch.rand(3, 4), [2], "up")
    # Also if the formula reads an attribute from the invalid input.
    with pytest.raises(RuntimeError, match=r"^row_sum: input must be \[N, F\] or \[B, N, F\], got \[\]"):
        second.row_sum(torch.rand((), requires_grad=True))


def test_load_library(tmp_path: Path) -> None:
    """Other libraries are loaded as cppcuda is: here one that is loaded already."""
    library = tmp_path / f"lib/torch-{_load.torch_release()}/libsecond.so"
    library.parent.mkdir(parents=True)
    library.symlink_to(LIBRARY)
    assert cppcuda.load_library("second", tmp_path).samefile(LIBRARY)


@pytest.mark.compiles
def test_tables_for_onnx_and_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cppcuda.flop_counter, "_registered", {})
    cppcuda.flop_counter.register(second.exp, lambda x, **kwargs: 7 * x[0])
    with torch.utils.flop_counter.FlopCounterMode(
        display=False, custom_mapping=cppcuda.flop_counter.custom_mapping()
    ) as counter:
        second.exp(torch.rand(3, 4))
    assert counter.get_total_flops() == 21
    pytest.importorskip("onnxscript")
    from onnxscript import opset18

    monkeypatch.setattr(cppcuda.onnx, "_registered", {})
    cppcuda.onnx.register(second.exp.default, lambda x: opset18.Exp(x))

    class Exp(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return second.exp(x)

    program = torch.onnx.export(
        Exp(),
        (torch.rand(3, 4),),
        dynamo=True,
        verbose=False,
        custom_translation_table=cppcuda.onnx.translation_table(),
    )
    assert [node.op_type for node in program.model.graph] == ["Exp"]


def test_distributed() -> None:
    """DTensor gets the rules of any library that uses the kit."""
    rules = second._sharding_rule
    assert rules.swish() == "swish ...->... ..." and rules.row_sum() == "row_sum ...NF->...N ...N"
    assert rules._gated_backward() == "_gated_backward ...,...,...->...1,...2 ..."
    cppcuda.distributed.register_sharding("second")
    registered = torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
    assert {second.swish.default, second.row_sum.default, second._gated_backward.default} <= set(registered)


@pytest.mark.any_torch
def test_environment_variables_begin_with_the_name_of_the_library() -> None:
    code = f"import torch; torch.ops.load_library({LIBRARY!r}); torch.ops.second.swish(torch.zeros(1 << 24), 2.0)"

    def run(name: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, name: "yes"}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, timeout=300, capture_output=True, text=True
        )

    for name in ("SECOND_HUGE_PAGES", "SECOND_STREAM_BYTES"):
        message = f"second: the environment variable {name} must be a non-negative integer, got 'yes'"
        assert message in run(name).stderr
    assert run("CPPCUDA_HUGE_PAGES").returncode == 0


def test_sums_of_many_numbers_keep_their_digits() -> None:
    """One of two sums has as many elements as rows, so there is one part for all of them."""
    x, gate = torch.full((2_000_000, 1), 0.1), torch.linspace(-0.5, 0.5, 2)
    for tensors in ((x, gate), (gate, x)):
        inputs = tuple(t.clone().requires_grad_() for t in tensors)
        wide = tuple(t.double().requires_grad_() for t in tensors)
        found = torch.autograd.grad(second.gated(*inputs).sum(), inputs)
        expected = torch.autograd.grad(OPERATORS["gated"][0](*wide).sum(), wide)
        for actual, correct in zip(found, expected, strict=True):
            torch.testing.assert_close(actual.double(), correct, rtol=1e-6, atol=0)
