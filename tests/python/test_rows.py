"""Formulas of rows: operators that compute with the last dim of their tensors (tests/second_library)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cppcuda.testing import check
from formulas import assert_same, assert_same_derivatives, double, second
from torch import Tensor
from torch.func import grad, vmap

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def rms_norm(input: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    return input * torch.rsqrt((input * input).mean(-1, keepdim=True) + eps) * weight


def layer_norm(input: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    # Not F.layer_norm, whose third derivatives are wrong in torch 2.15.
    centered = input - input.mean(-1, keepdim=True)
    return centered * torch.rsqrt((centered * centered).mean(-1, keepdim=True) + eps) * weight + bias


def softmax(input: Tensor) -> Tensor:
    return input.softmax(-1)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    is_target = torch.arange(logits.shape[-1]) == target[..., None]
    return -(logits.log_softmax(-1) * is_target).sum(-1)


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, last = x.chunk(2, -1)
    return x * cos + torch.cat((-last, first), -1) * sin


REFERENCES: dict[str, Callable[..., Tensor]] = {
    f.__name__: f for f in (rms_norm, layer_norm, softmax, cross_entropy, rotary)
}
TARGET = torch.tensor([[0, 5, -1], [2, 2, 3]])


def of_target(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda logits: function(logits, TARGET.to(logits.device))


SAMPLES: list[tuple[str, Callable[[], tuple[Tensor, ...]]]] = [
    ("rms_norm", lambda: (double(3, 6), double(6))),
    ("rms_norm", lambda: (double(6), double(6))),
    ("rms_norm", lambda: (double(2, 3, 1), double(1))),
    ("rms_norm", lambda: (double(19, 4).t(), double(38)[::2])),
    ("rms_norm", lambda: (double(2, 1, 6), double(3, 6))),  # a weight for each row of the second dim
    ("layer_norm", lambda: (double(3, 6), double(6), double(6))),
    ("softmax", lambda: (double(2, 3, 6),)),
    ("softmax", lambda: (double(0, 6),)),
    ("cross_entropy", lambda: (double(2, 3, 6),)),
    ("rotary", lambda: (double(2, 3, 6), double(3, 6), double(6))),
]


@pytest.mark.parametrize(("name", "sample"), SAMPLES)
def test_derivatives(name: str, sample: Callable[[], tuple[Tensor, ...]]) -> None:
    functions = getattr(second, name), REFERENCES[name]
    actual, expected = map(of_target, functions) if name == "cross_entropy" else functions
    assert_same_derivatives(actual, expected, sample())


@pytest.mark.parametrize(("name", "sample"), [SAMPLES[i] for i in (0, 4, 5, 6, 8, 9)])
def test_against_finite_differences(name: str, sample: Callable[[], tuple[Tensor, ...]]) -> None:
    inputs = tuple(t.requires_grad_() for t in sample())
    function = of_target(second.cross_entropy) if name == "cross_entropy" else getattr(second, name)
    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, inputs, check_fwd_over_rev=True, check_rev_over_rev=True)


def test_derivatives_of_the_internal_operators() -> None:
    """The hidden statistic and the backward operator have derivatives of their own."""
    x, w, grad_output, rstd = (t.requires_grad_() for t in (double(3, 2, 6), double(6), double(3, 2, 6), double(3, 2)))
    hidden = lambda x, w: second._rms_norm(x, w, 1e-6)  # noqa: E731
    backward = lambda *t: second._rms_norm_backward(*t, 1e-6, [True, True])  # noqa: E731
    assert torch.autograd.gradcheck(hidden, (x, w), check_forward_ad=True)
    assert torch.autograd.gradcheck(backward, (grad_output, rstd, x, w), check_forward_ad=True)


# Rows of one register, of several, with a rest, and longer than what is added up at a time.
SIZES = [3, 8, 16, 31, 64, 70, 130, 1000]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients(size: int, dtype: torch.dtype) -> None:
    """Rows of any length have the values and gradients of the reference, rounded once."""
    x, w, b, g = (t.to(dtype) for t in (double(70, 3, size), double(size), double(size), double(70, 3, size)))
    target = torch.randint(-1, size, (70, 3), dtype=torch.int32)
    calls: dict[str, tuple[Any, ...]] = {
        "rms_norm": (x, w),
        "layer_norm": (x, w, b),
        "softmax": (x,),
        "cross_entropy": (x, target),
    }
    if size % 2 == 0:
        calls["rotary"] = (x, x[:, :1].cos(), x[0].sin())
    eps = torch.finfo(dtype).eps
    for name, arguments in calls.items():

        def results(function: Callable[..., Tensor], wide: torch.dtype, given: tuple[Any, ...] = arguments) -> Any:
            leaves = [t.to(wide).detach().requires_grad_() if t.is_floating_point() else t for t in given]
            out = function(*leaves)
            variables = [t for t in leaves if t.is_floating_point()]
            of_out = g.to(wide) if out.dim() == 3 else g[..., 0].to(wide)
            return [out, *torch.autograd.grad(out, variables, of_out)]

        for actual, expected in zip(
            results(getattr(second, name), dtype), results(REFERENCES[name], torch.float64), strict=True
        ):
            assert actual.dtype == dtype and actual.is_contiguous()
            scale = 1 + expected.abs().max().item()
            torch.testing.assert_close(actual.double(), expected, rtol=eps, atol=16 * eps * scale, msg=name)


def test_gradients_do_not_depend_on_threads() -> None:
    x, w = torch.randn(3000, 50, requires_grad=True), torch.randn(50, requires_grad=True)
    before = torch.get_num_threads()

    def gradients(threads: int) -> tuple[Tensor, ...]:
        torch.set_num_threads(threads)
        return torch.autograd.grad(second.rms_norm(x, w).sin().sum(), (x, w))

    try:
        one, several = gradients(1), gradients(max(2, before))
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, one, several))


def test_layouts() -> None:
    """Strides of any size, and of 0."""
    x, w = double(5, 7, 6), double(6)
    expected = rms_norm(x, w)
    views = [
        (x.permute(2, 1, 0).contiguous().permute(2, 1, 0), w),
        (x.repeat_interleave(2, -1)[..., ::2], w.repeat_interleave(3)[::3]),
        (x.flip(0).flip(0), w.expand(5, 1, 6)),
    ]
    for view in views:
        assert_same(second.rms_norm(*view), expected)
        grads = torch.autograd.grad(second.rms_norm(*(t.requires_grad_() for t in view)).sum(), view)
        assert_same(grads[0], grad(lambda t: rms_norm(t, w).sum())(x))
    row = double(1, 1).expand(4, 6).requires_grad_()
    assert_same(second.softmax(row), row.softmax(-1))
    assert_same(torch.autograd.grad(second.rms_norm(row, w).sum(), row)[0], grad(lambda t: rms_norm(t, w).sum())(row))


@pytest.mark.parametrize("dims", [(0, None), (None, 0), (0, 0), (1, 1), (-1, 0)])
def test_vmap(dims: tuple[int | None, ...]) -> None:
    def batched(t: Tensor, dim: int | None) -> Tensor:
        return t if dim is None else torch.stack([t, t.cos(), -t], dim)

    inputs = batched(double(4, 6), dims[0]), batched(double(6), dims[1])
    for order in (lambda f: f, lambda f: grad(lambda *t: f(*t).sin().sum(), (0, 1))):
        assert_same(vmap(order(second.rms_norm), dims)(*inputs), vmap(order(rms_norm), dims)(*inputs))
    targets = torch.tensor([[1, 2], [0, -1], [5, 5]])
    logits = double(3, 2, 6)
    assert_same(vmap(second.cross_entropy)(logits, targets), cross_entropy(logits, targets))
    assert_same(vmap(second.cross_entropy, (None, 0))(logits[0], targets), cross_entropy(logits[:1], targets))


PROPERTIES: dict[str, list[tuple[Any, ...]]] = {
    "rms_norm": [(torch.randn(4, 6), torch.randn(6)), (torch.randn(2, 3, 5), torch.randn(5), 0.5)],
    "layer_norm": [(torch.randn(4, 6), torch.randn(6), torch.randn(6))],
    "softmax": [(torch.randn(4, 6),), (torch.randn(2, 3, 5),)],
    "rotary": [(torch.randn(2, 3, 6), torch.randn(3, 6), torch.randn(6))],
}


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.compiles
def test_every_property(name: str) -> None:
    slow = ["AOTInductor"] if name == "rms_norm" else ["AOTInductor", "compile", "export", "DTensor"]
    report = check(f"second::{name}", REFERENCES[name], PROPERTIES[name], skip=[*slow, "kept alive"])
    assert not report.failed, report


def test_schemas() -> None:
    schemas = {
        second.rms_norm.default: "rms_norm(Tensor input, Tensor weight, float eps=9.9999999999999995e-07) -> "
        "Tensor output",
        second._rms_norm.default: "_rms_norm(Tensor input, Tensor weight, float eps=9.9999999999999995e-07) -> "
        "(Tensor output, Tensor rstd)",
        second._rms_norm_backward.default: "_rms_norm_backward(Tensor grad, Tensor rstd, Tensor input, Tensor weight, "
        "float eps, bool[2] output_mask) -> (Tensor, Tensor)",
        second._softmax_backward.default: "_softmax_backward(Tensor grad, Tensor output) -> Tensor",
    }
    for op, schema in schemas.items():
        assert str(op._schema) == f"second::{schema}"
    assert not hasattr(second, "_rotary_backward")  # it has no backward
    assert not hasattr(second, "cross_entropy_")  # logits have other sizes than the result


def test_in_place_and_out() -> None:
    x, cos, sin = double(5, 6), double(6), double(5, 6)
    expected, self = second.rotary(x, cos, sin), x.clone()
    second.rotary_(self, cos, sin)  # reads values of the row that it has written
    assert torch.equal(self, expected)
    out = torch.empty(6, 5, dtype=torch.float64).t()
    second.rotary.out(x, cos, sin, out=out)
    assert torch.equal(out, expected)
    loss, target = torch.empty(2, 3, dtype=torch.float64), TARGET
    second.cross_entropy.out(double(2, 3, 6), target, out=loss)
    with pytest.raises(RuntimeError, match=r"^rotary: out must be \[5, 6\], the shape of the result, got \[5, 5\]"):
        second.rotary.out(x, cos, sin, out=double(5, 5))
    with pytest.raises(RuntimeError, match=r"^rotary: out must be x itself or share no memory with it"):
        memory = double(6, 6)
        second.rotary.out(memory[1:], cos, sin, out=memory[:-1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: second.rms_norm(d(double(3, 6)), d(double(5))), r"weight must be \[..., F\] with F = 6, got \[5\]"),
        (lambda d: second.rms_norm(d(double(3, 6)), d(double(1))), r"weight must be \[..., F\] with F = 6, got \[1\]"),
        (lambda d: second.softmax(d(double(1)[0])), r"input must be \[..., F\], got \[\]"),
        (
            lambda d: second.rms_norm(d(double(3, 6)), d(double(2, 6))),
            r"weight must broadcast with \[3\], the dims before the last ones of input, got \[2\]",
        ),
        (
            lambda d: second.rms_norm(d(double(3, 6)), d(double(6).float())),
            "weight must be of dtype float64, the dtype of input, got float32",
        ),
        (
            lambda d: second.cross_entropy(d(double(3, 6)), d(double(3))),
            "target must be of dtype int32 or int64, got float64",
        ),
        (
            lambda d: second._rms_norm_backward(
                d(double(3, 6)), d(double(2)), d(double(3, 6)), d(double(6)), 1e-6, [True, True]
            ),
            r"rstd must be \[3\], the shape of the output, got \[2\]",
        ),
        (
            lambda d: second._rms_norm_backward(
                *(d(t.bfloat16()) for t in (double(3, 6), double(3), double(3, 6), double(6))), 1e-6, [True, True]
            ),
            "rstd must be of dtype float32, the opmath dtype of grad, got bfloat16",
        ),
    ],
)
def test_bad_arguments(call: Callable[..., Tensor], message: str) -> None:
    for device in ("cpu", "meta"):
        with pytest.raises(RuntimeError, match=rf"^_?\w+: {message}"):
            call(lambda t, device=device: t.to(device))


@pytest.mark.parametrize(("target", "wrong"), [([0, 6, 1], "6"), ([-2, 0, 0], "-2")])
def test_index_out_of_range(target: list[int], wrong: str) -> None:
    with pytest.raises(IndexError, match=rf"^cross_entropy: target must be in \[-1, 6\), got {wrong}"):
        second.cross_entropy(double(3, 6), torch.tensor(target))


def test_no_values_and_no_rows() -> None:
    empty, none = double(3, 0), double(0, 6)
    assert second.softmax(empty).shape == (3, 0) and second.rms_norm(none, double(6)).shape == (0, 6)
    w = double(6).requires_grad_()
    assert torch.equal(torch.autograd.grad(second.rms_norm(none, w).sum(), w)[0], torch.zeros_like(w))
    loss = second.cross_entropy(empty, torch.full((3,), -1))
    assert loss.shape == (3,)
    x = empty.clone().requires_grad_()
    assert torch.autograd.grad(second.rms_norm(x, double(0)).sum(), x)[0].shape == (3, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_infinity_and_nan(dtype: torch.dtype) -> None:
    x = double(9, 40).to(dtype)
    x[0, 3], x[1, 39], x[2, 0], x[3, 5] = float("inf"), float("nan"), float("nan"), float("-inf")
    x[4], x[5] = float("-inf"), 1e4
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(second.softmax(x), x.softmax(-1), equal_nan=True, rtol=tolerance, atol=tolerance)
    x[5] = 1
    weight = torch.ones(40, dtype=dtype)
    torch.testing.assert_close(
        second.rms_norm(x, weight), rms_norm(x.double(), weight.double()).to(dtype), equal_nan=True, rtol=tolerance,
        atol=tolerance,
    )  # fmt: skip


def test_autocast() -> None:
    x, w = torch.randn(3, 6), torch.randn(6, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert second.rms_norm(x, w).dtype == torch.float32  # promoted
        assert second.cross_entropy(x, torch.tensor([0, 1, -1])).dtype == torch.float32


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("(Tensor x[..., F], Tensor w[G]) -> Tensor[..., F]", "with the same letter in all"),
        ("(Tensor x[..., F], Tensor w[2, F]) -> Tensor[..., F]", "has its sizes, [..., F], [F], [...] or [...] int32"),
        (
            "(Tensor x[..., F], Tensor scale) -> Tensor[..., F]",
            "each tensor and output of a formula of rows has its sizes",
        ),
        ("(Tensor x[..., F]) -> Tensor", "each tensor and output of a formula of rows has its sizes"),
        ("(Tensor x[..., F])", "has the sizes of its outputs, as in -> Tensor[..., F]"),
        ("(Tensor x[F]) -> Tensor[F]", "the first tensor of a formula of rows is [..., F]"),
        ("(Tensor x[..., F], str s) -> Tensor[..., F]", "takes tensors, then attributes of type float, float?, int"),
        (
            "(Tensor x[..., F]) -> (Tensor y[..., F], hidden Tensor r[...] opmath)",
            "a hidden output is for backward(), which this formula lacks",
        ),
    ],
)
def test_wrong_schemas(tmp_path: Path, schema: str, message: str) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text(
        f"""#include "cppcuda/kit/rows/formula.h"
        struct Wrong {{ static constexpr char schema[] = "my_ops::wrong{schema}"; }};
        template struct cppcuda::kit::detail::RowSchema<Wrong>;"""
    )
    includes = f"-I{Path(__file__).parents[2] / 'include'}"
    command = ["g++", "-std=c++20", "-fsyntax-only", "-DCPPCUDA_KIT_VERSION=v0", includes, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0 and message in done.stderr, done.stderr
