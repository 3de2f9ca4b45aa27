"""Tests of lltm and nn.LLTM beyond those that every operator has."""

import copy
import re
import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from cppcuda.functional import lltm, lltm_cell
from cppcuda.nn import LLTM
from cppcuda.testing.compare import allocated_bytes, assert_close, dims_of_calls, scalar
from samples.lltm import lltm_reference
from torch import Tensor, nn
from torch.export import Dim, export

STEPS, BATCH, INPUT, SIZE = 7, 5, 3, 8


def arguments(
    steps: int = STEPS, batch: int = BATCH, inputs: int = INPUT, size: int = SIZE, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    bound = size**-0.5
    shapes = ((steps, batch, inputs), (3 * size, size + inputs), (3 * size,), (batch, size), (batch, size))
    scales = (1.0, bound, bound, 1.0, 1.0)
    return tuple((scale * torch.randn(*shape)).to(dtype) for shape, scale in zip(shapes, scales, strict=True))


def cells(input: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    outputs = []
    for x in input:
        h, c = lltm_cell(x, weight, bias, h, c)
        outputs.append(h)
    return torch.stack(outputs), h, c


def gradients(f, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    args = tuple(t.detach().requires_grad_() for t in args)
    return torch.autograd.grad(scalar(f(*args)), args)


# ---------------------------------------------------------------- steps


@pytest.mark.parametrize("size", [1, 8, 33, 128, 600])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_equals_the_cell_step_by_step(size: int, dtype: torch.dtype) -> None:
    args = arguments(4, 9, 5, size, dtype)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 0.1}[dtype]
    assert_close(lltm(*args), cells(*args), rtol=tolerance, atol=tolerance)
    assert_close(gradients(lltm, args), gradients(cells, args), rtol=tolerance, atol=tolerance * 10)


def test_error_over_many_steps_is_that_of_plain_torch() -> None:
    args = arguments(64, 4, 16, 64)
    exact = lltm_reference(*(t.double() for t in args))
    ours, plain = (
        [(a.double() - e).abs().max() for a, e in zip(f(*args), exact, strict=True)] for f in (lltm, lltm_reference)
    )
    assert all(a <= 4 * b for a, b in zip(ours, plain, strict=True))


def test_many_steps() -> None:
    """A backward pass that called itself for each step would run out of stack."""
    steps = 20_000
    args = arguments(steps, 1, 1, 2, torch.float64)
    out, hn, cn = lltm(*args)
    assert torch.equal(out[-1], hn) and torch.isfinite(cn).all()
    half = lltm(args[0][: steps // 2], *args[1:])
    assert_close(lltm(args[0][steps // 2 :], *args[1:3], *half[1:]), (out[steps // 2 :], hn, cn))
    assert all(torch.isfinite(g).all() for g in gradients(lltm, args))


def test_no_steps() -> None:
    x, weight, bias, h0, c0 = arguments(0)
    out, hn, cn = lltm(x, weight, bias, h0, c0)
    assert out.shape == (0, BATCH, SIZE) and torch.equal(hn, h0) and torch.equal(cn, c0)
    assert hn.data_ptr() != h0.data_ptr()
    grads = gradients(lambda *a: lltm(*a)[1:], (x, weight, bias, h0, c0))
    expected = gradients(
        lambda *a: (a[3] + 0 * a[0].sum() + 0 * a[1].sum() + 0 * a[2].sum(), a[4].clone()), (x, weight, bias, h0, c0)
    )
    assert_close(grads, expected)


def test_higher_orders_equal_plain_torch() -> None:
    args = arguments(3, 2, 2, 2, torch.float64)

    def third_order(f) -> tuple[Tensor, ...]:
        tensors = tuple(t.detach().requires_grad_() for t in args)
        grads = torch.autograd.grad(scalar(f(*tensors)), tensors, create_graph=True)
        grads = torch.autograd.grad(scalar(grads), tensors, create_graph=True)
        return torch.autograd.grad(scalar(grads), tensors)

    assert_close(third_order(lltm), third_order(lltm_reference), rtol=1e-8, atol=1e-8)
    hessians = [
        torch.func.hessian(lambda h, f=f: scalar(f(*args[:3], h, args[4])))(args[3]) for f in (lltm, lltm_reference)
    ]
    assert_close(*hessians, rtol=1e-8, atol=1e-8)


def test_vmap_with_a_shared_weight() -> None:
    """Sequences that vmap adds join those of the batch, and the gradient of the weight is one and not one per group."""
    x, weight, bias, h, c = arguments()
    x, h, c = (torch.stack([t, t.sin(), t.cos()]) for t in (x, h, c))

    def loss(weight: Tensor, f: Callable[..., tuple[Tensor, ...]] = lltm) -> Tensor:
        outputs = torch.vmap(lambda x, h, c: f(x, weight, bias, h, c))(x, h, c)
        return scalar(outputs)

    gradient = torch.func.grad(loss)
    forward, backward = dims_of_calls("cppcuda", lambda: gradient(weight))
    assert forward == ("_lltm", (3, 2, 1, 2, 2))
    assert backward[0] == "_lltm_backward" and all(d <= 3 for d in backward[1])
    assert_close(gradient(weight), torch.func.grad(partial(loss, f=lltm_reference))(weight))
    outputs = torch.vmap(lambda x, c: lltm(x, weight, bias, h[0], c), in_dims=(2, 1), out_dims=1)(
        x.movedim(0, 2), c.movedim(0, 1)
    )
    one_by_one = [lltm(x[i], weight, bias, h[0], c[i]) for i in range(len(x))]
    assert_close(outputs, tuple(torch.stack(of_all, 1) for of_all in zip(*one_by_one, strict=True)))


# ---------------------------------------------------------------- memory


def test_what_is_saved() -> None:
    """Per step and row, 3S gates and S cell states, and the output for the gradient of weight."""
    for wanted, read in ((0, {1, 4}), (1, {0, 1, 3, 4}), (2, {1, 4}), (3, {1, 4}), (4, {1, 4})):
        args = tuple(t.requires_grad_(wanted == i) for i, t in enumerate(arguments()))
        saved: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=saved: s.append(t) or t, lambda t: t):
            lltm(*args)
        pointers = {a.data_ptr() for a in args}
        assert {t.data_ptr() for t in saved} & pointers == {args[i].data_ptr() for i in read}
        others = sorted(tuple(t.shape) for t in saved if t.data_ptr() not in pointers)
        outputs = [(STEPS, BATCH, SIZE)] * (2 if wanted == 1 else 1)
        assert others == sorted([*outputs, (STEPS, BATCH, 3 * SIZE)])


def test_memory_of_a_call_is_linear_in_steps() -> None:
    def allocated(steps: int) -> int:
        args = arguments(steps, 4, 8, 64)
        with torch.no_grad():
            return allocated_bytes(lambda: lltm(*args))

    assert allocated(100) <= 2 * allocated(50)


# ---------------------------------------------------------------- nn.LLTM


def by_hand(module: LLTM, x: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x [T, B, I], without dropout."""
    hn, cn = [], []
    for k in range(module.num_layers):
        weight = module.weights[k]
        bias = module.biases[k] if module.bias else weight.new_zeros(3 * module.hidden_size)
        x, h, c = cells(x, weight, bias, h0[k], c0[k])
        hn.append(h)
        cn.append(c)
    return x, torch.stack(hn), torch.stack(cn)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("layout", ["steps_first", "batch_first", "unbatched"])
def test_conventions_of_nn_lstm(layout: str, layers: int, bias: bool) -> None:
    torch.manual_seed(0)
    module = LLTM(INPUT, SIZE, layers, bias=bias, batch_first=layout == "batch_first").double()
    lstm = nn.LSTM(INPUT, SIZE, layers, bias=bias, batch_first=layout == "batch_first").double()
    batch = 1 if layout == "unbatched" else BATCH
    x, h0, c0 = (torch.randn(n, batch, i).double() for n, i in ((STEPS, INPUT), (layers, SIZE), (layers, SIZE)))

    def given(t: Tensor, is_state: bool) -> Tensor:
        if layout == "unbatched":
            return t.squeeze(1)
        return t.transpose(0, 1) if layout == "batch_first" and not is_state else t

    for state in (None, (given(h0, True), given(c0, True))):
        out, (hn, cn) = module(given(x, False), state)
        theirs, (their_hn, their_cn) = lstm(given(x, False), state)
        assert [t.shape for t in (out, hn, cn)] == [t.shape for t in (theirs, their_hn, their_cn)]
        first = (torch.zeros_like(h0),) * 2 if state is None else (h0, c0)
        expected = by_hand(module, x, *first)
        assert_close((out, hn, cn), (given(expected[0], False), given(expected[1], True), given(expected[2], True)))


def test_dropout_is_between_layers_in_training() -> None:
    torch.manual_seed(0)
    module, x = LLTM(INPUT, SIZE, 2, dropout=0.5), torch.randn(STEPS, BATCH, INPUT)
    assert not torch.equal(module(x)[0], module(x)[0])
    assert torch.equal(module(x)[1][0][0], module(x)[1][0][0])  # the first layer
    module.eval()
    assert torch.equal(module(x)[0], module(x)[0])
    module = LLTM(INPUT, SIZE, 2, dropout=1.0)
    zeros = torch.zeros(STEPS, BATCH, SIZE)
    expected, *_ = lltm(zeros, module.weights[1], module.biases[1], zeros[0], zeros[0])
    assert_close(module(x)[0], expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LLTM(INPUT, SIZE, 2, dropout=0.5)
        with pytest.raises(UserWarning, match="LLTM: dropout is between layers, and there is only one"):
            LLTM(INPUT, SIZE, dropout=0.5)


def test_errors() -> None:
    module, x = LLTM(INPUT, SIZE, 2), torch.randn(STEPS, BATCH, INPUT)
    packed = nn.utils.rnn.pack_padded_sequence(x, [STEPS] * BATCH)
    with pytest.raises(TypeError, match=r"^LLTM: packed sequences are not supported; pass a padded tensor$"):
        module(packed)
    with pytest.raises(TypeError, match=r"^LLTM: input must be a Tensor, got list$"):
        module([1.0])
    with pytest.raises(TypeError, match=r"^LLTM: state must be \(h0, c0\), got Tensor$"):
        module(x, x)
    input_must_be = r"^LLTM: input must be \[T, B, I\], or \[T, I\] without a batch, with I = 3, got"
    for wrong, got in ((x[0, 0], "[3]"), (x[..., :2], f"[{STEPS}, {BATCH}, 2]"), (x[0, :, :2], f"[{BATCH}, 2]")):
        with pytest.raises(RuntimeError, match=f"{input_must_be} {re.escape(got)}$"):
            module(wrong)
    h = torch.zeros(2, BATCH, SIZE)
    must_be = rf"^LLTM: h0 and c0 must be \[num_layers, B, S\] with num_layers = 2, S = {SIZE}, got"
    for wrong in (torch.zeros(1, BATCH, SIZE), torch.zeros(2, SIZE), torch.zeros(2, BATCH, SIZE + 1)):
        with pytest.raises(RuntimeError, match=f"{must_be} {re.escape(str(list(wrong.shape)))}$"):
            module(x, (h, wrong))
    with pytest.raises(TypeError, match=r"^LLTM: c0 must be a Tensor, got NoneType$"):
        module(x, (h, None))
    with pytest.raises(NotImplementedError, match=r"^LLTM: proj_size is not supported; put a Linear behind the output"):
        LLTM(INPUT, SIZE, proj_size=2)
    for kwargs, message in (
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"dropout": 1.5, "num_layers": 2}, r"dropout must be in \[0, 1\], got 1.5"),
    ):
        with pytest.raises(ValueError, match=f"^LLTM: {message}$"):
            LLTM(INPUT, SIZE, **kwargs)
    with pytest.raises(ValueError, match=r"^LLTM: sizes must not be negative, got -1 and 8$"):
        LLTM(-1, SIZE)
    with pytest.raises(TypeError, match=r"^lltm: weight must be a Tensor, got NoneType$"):
        lltm(x, None, None, h, h)


def test_parameters() -> None:
    torch.manual_seed(0)
    module = LLTM(INPUT, 100, 2, bias=False, batch_first=True)
    assert repr(module).startswith("LLTM(\n  3, 100, num_layers=2, bias=False, batch_first=True")
    assert [tuple(t.shape) for t in module.parameters()] == [(300, 103), (300, 200)]
    assert all(0.09 < t.abs().max() <= 0.1 for t in module.parameters())
    assert all(
        t.is_meta and t.dtype == torch.float64 for t in LLTM(2, 3, device="meta", dtype=torch.float64).parameters()
    )
    other = LLTM(INPUT, 100, 2, bias=False, batch_first=True)
    other.load_state_dict(module.state_dict())
    x = torch.randn(2, 4, INPUT)
    assert torch.equal(other(x)[0], module(x)[0])
    assert torch.equal(copy.deepcopy(module)(x)[0], module(x)[0])


@pytest.mark.compiles
def test_export_for_any_number_of_steps() -> None:
    module, x = LLTM(INPUT, SIZE, 2), torch.randn(STEPS, BATCH, INPUT)
    steps, batch = Dim("steps", min=2, max=1 << 16), Dim("batch", min=2, max=1 << 16)
    program = export(module, (x,), dynamic_shapes=({0: steps, 1: batch},))
    targets = [n.target for n in program.graph.nodes]
    assert targets.count(torch.ops.cppcuda.lltm.default) == 2
    other = torch.randn(11, 3, INPUT)
    assert_close(program.module()(other), module(other))
