"""Tests of lltm_cell and nn.LLTMCell beyond those that every operator has."""

import copy
import math
import pickle
import re
from collections.abc import Callable, Iterable, Iterator

import cppcuda
import pytest
import torch
from cppcuda.functional import lltm_cell
from cppcuda.nn import LLTMCell
from cppcuda.testing.compare import allocated_bytes, assert_close, scalar
from samples.lltm_cell import lltm_cell_reference
from torch import Tensor, nn
from torch.export import Dim, export
from torch.utils.flop_counter import FlopCounterMode

STEPS, BATCH, INPUT, SIZE = 50, 4, 5, 6


def arguments(batch: int = BATCH, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    shapes = ((batch, INPUT), (3 * SIZE, SIZE + INPUT), (3 * SIZE,), (batch, SIZE), (batch, SIZE))
    return tuple(torch.randn(s, dtype=torch.float64).mul_(0.5).to(dtype) for s in shapes)


def leaves(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(t.detach().clone().requires_grad_() for t in tensors)


# ---------------------------------------------------------------- values at the ends of the range

SPECIAL = (0.0, -0.0, 1e-30, -1e-30, 1.0, -1.0, 80.0, -80.0, 100.0, -100.0, 800.0, -800.0, 1e4, -1e4)
NOT_FINITE = (math.inf, -math.inf, math.nan)


def of_gates(dtype: torch.dtype, values: tuple[float, ...]) -> Iterator[tuple[Tensor, ...]]:
    """Arguments with an empty input and hx = 0, so that the gates are the bias: all triples of the values."""
    grid = torch.cartesian_prod(*[torch.tensor(values, dtype=dtype)] * 3).T.contiguous()  # [3, S]
    size = grid.shape[1]
    for cx in (-0.5, 0.0, 2.0):
        empty = torch.zeros(1, 0, dtype=dtype)
        # hx is 0, so its part of the gates is 0 too.
        weight = torch.zeros(3 * size, 1, dtype=dtype).expand(3 * size, size)
        yield empty, weight, grid.flatten(), torch.zeros(1, size, dtype=dtype), torch.full((1, size), cx, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_large_arguments(dtype: torch.dtype) -> None:
    """The textbook formula of elu computes exp(x) for large x, which gives a gradient of 0 times infinity."""
    for args in of_gates(dtype, SPECIAL):
        results = []
        for f, inputs in ((lltm_cell, args), (lltm_cell_reference, tuple(t.double() for t in args))):
            bias, cx = inputs[2].clone().requires_grad_(), inputs[4].clone().requires_grad_()
            outputs = f(*inputs[:2], bias, inputs[3], cx)
            first = torch.autograd.grad([o.sum() for o in outputs], (bias, cx), create_graph=True)
            second = torch.autograd.grad([g.sum() for g in first], (bias, cx))
            results.append([*outputs, *first, *second])
        assert all(t.isfinite().all() for t in results[0])
        assert_close([t.double() for t in results[0]], results[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_infinities_and_nan_as_in_torch(dtype: torch.dtype) -> None:
    for args in of_gates(dtype, (*NOT_FINITE, 0.0, 3.0)):
        gates, cx = args[2].view(1, -1), args[4]
        for used in (slice(0, 1), slice(1, 2), slice(0, 2)):
            bias, state = args[2].clone().requires_grad_(), cx.clone().requires_grad_()
            i, o, c = bias.view(1, -1).chunk(3, -1)
            # One element at a time: the derivative at NaN is 1 in torch's scalar loop and on CUDA, and NaN in its
            # vector loop.
            candidate = torch.stack([torch.nn.functional.elu(x) for x in c.flatten()]).view(1, -1)
            plain_cy = state + candidate * torch.sigmoid(i)
            plain = (torch.tanh(plain_cy) * torch.sigmoid(o), plain_cy)
            expected = torch.autograd.grad([t.sum() for t in plain[used]], (bias, state))
            grads = [torch.ones_like(cx) if k in range(2)[used] else None for k in range(2)]
            _, _, d_bias, _, d_cx = torch.ops.cppcuda._lltm_cell_backward(
                *grads, None, gates, None, None, None, cx, [False, False, True, False, True]
            )
            assert_close([d_bias, d_cx], list(expected), equal_nan=True)


def test_derivative_of_elu_at_zero() -> None:
    """It is 1 from both sides; the second derivative is that from the right, as in torch."""
    for order in (1, 2, 3):
        results = []
        for f in (lltm_cell, lltm_cell_reference):
            args = leaves(tuple(torch.zeros_like(t) for t in arguments()))
            value = scalar(f(*args))
            for _ in range(order):
                grads = torch.autograd.grad(value, args, create_graph=True, materialize_grads=True)
                value = scalar(grads)
            results.append(grads)
        assert_close(*results)
    args = leaves(tuple(t * 1e-3 for t in arguments()))
    assert torch.autograd.gradcheck(lltm_cell, args, check_forward_ad=True)


# ---------------------------------------------------------------- memory


def test_what_is_saved() -> None:
    """The gates, cx, and for each gradient the matrices that it reads; nothing of the size of [hx, input]."""
    for wanted, read in ((0, {1}), (1, {0, 3}), (2, set()), (3, {1}), (4, set()), (None, {0, 1, 3})):
        args = arguments()
        args = tuple(t.requires_grad_() if wanted in (i, None) else t for i, t in enumerate(args))
        saved: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=saved: s.append(t) or t, lambda t: t):
            lltm_cell(*args)
        pointers = {t.data_ptr() for t in saved}
        assert pointers.issuperset(args[i].data_ptr() for i in (*read, 4))
        others = [t for t in saved if t.data_ptr() not in {a.data_ptr() for a in args}]
        assert [t.shape for t in others] == [(BATCH, 3 * SIZE)]
        assert len(saved) == len(read) + 2


def test_inference_keeps_its_outputs_only() -> None:
    """The gates of a small cell, which only a gradient reads, are freed within the call."""
    args = arguments()
    with torch.no_grad():
        assert allocated_bytes(lambda: lltm_cell(*args)) == sum(t.nbytes for t in lltm_cell(*args))


# ---------------------------------------------------------------- sequences


def unrolled(f, inputs: Tensor, weight: Tensor, bias: Tensor, hx: Tensor, cx: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    outputs = []
    for x in inputs:
        hx, cx = f(x, weight, bias, hx, cx)
        outputs.append(hx)
    return torch.stack(outputs), hx, cx


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_through_a_sequence(dtype: torch.dtype) -> None:
    """The matrix product has 16 bits; the cell state, from the first step on, and the gradients have float32."""
    torch._dynamo.reset()
    _, *rest = arguments(dtype=torch.float32)
    args = (torch.randn(6, BATCH, INPUT), *rest)
    exact = unrolled(lltm_cell_reference, *(t.double() for t in args))
    found = []

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast("cpu", dtype):
            return unrolled(lltm_cell, *tensors)

    for call in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
        tensors = leaves(args)
        outputs = call(*tensors)
        assert [t.dtype for t in outputs] == [dtype, dtype, torch.float32]
        grads = torch.autograd.grad([t.float().sum() for t in outputs], tensors)
        assert all(g.dtype == torch.float32 for g in grads)
        found.append([*outputs, *grads])
    assert_close([t.double() for t in found[0][:3]], list(exact), rtol=0.05, atol=0.05)
    assert_close(found[0][:3], found[1][:3])
    # Eager autocast casts a parameter once and so sums its gradient over the steps in 16 bits; compiled, in float32.
    for a, b in zip(found[0][3:], found[1][3:], strict=True):
        assert (a - b).abs().max() <= 0.02 * b.abs().max()


def test_long_sums_in_a_wide_state() -> None:
    """A float32 state with 16-bit inputs keeps small terms that a bfloat16 state loses."""
    size, steps = 8, 400
    empty = torch.zeros(1, 0, dtype=torch.bfloat16)
    weight = torch.zeros(3 * size, size, dtype=torch.bfloat16)
    bias = torch.zeros(3 * size, dtype=torch.bfloat16)
    bias[2 * size :] = 0.25  # every step adds 1/8
    ends = []
    for dtype in (torch.bfloat16, torch.float32):
        hx, cx = torch.zeros(1, size, dtype=torch.bfloat16), torch.zeros(1, size, dtype=dtype)
        for _ in range(steps):
            hx, cx = lltm_cell(empty, weight, bias, hx, cx)
        ends.append(cx.float())
    assert torch.equal(ends[1], torch.full((1, size), steps / 8))
    assert (ends[0] < steps / 8).all()


# ---------------------------------------------------------------- the module


def test_parameters() -> None:
    cell = LLTMCell(INPUT, 100)
    assert [(n, tuple(p.shape)) for n, p in cell.named_parameters()] == [("weight", (300, 105)), ("bias", (300,))]
    for p in cell.parameters():
        assert p.dtype == torch.float32 and p.requires_grad
        assert p.abs().max() <= 0.1
        assert p.abs().max() > 0.095 and abs(float(p.detach().mean())) < 0.02
        assert abs(float(p.detach().std()) - 0.1 / math.sqrt(3)) < 0.01
    before = cell.weight.clone()
    cell.reset_parameters()
    assert not torch.equal(before, cell.weight)
    assert repr(cell) == f"LLTMCell({INPUT}, 100)"
    assert all(t.dtype == torch.float64 for t in LLTMCell(2, 3, dtype=torch.float64).parameters())
    assert all(t.is_meta for t in LLTMCell(2, 3, device="meta").parameters())
    assert LLTMCell(2, 0)(torch.ones(4, 2))[0].shape == (4, 0)


@pytest.mark.parametrize("batch", [BATCH, 0])
def test_state_is_optional(batch: int) -> None:
    cell = LLTMCell(INPUT, SIZE)
    x, zeros = torch.randn(batch, INPUT), torch.zeros(batch, SIZE)
    expected = lltm_cell_reference(x.double(), cell.weight.double(), cell.bias.double(), zeros, zeros)
    assert_close([t.double() for t in cell(x)], list(expected))
    assert all(torch.equal(a, b) for a, b in zip(cell(x), cell(x, (zeros, zeros)), strict=True))
    assert cell(x)[0].shape == (batch, SIZE)
    with torch.autocast("cpu", torch.bfloat16):
        hy, cy = cell(x)
        assert (hy.dtype, cy.dtype) == (torch.bfloat16, torch.float32)
        assert cell(x, (hy, cy))[1].dtype == torch.float32


def test_copies() -> None:
    cell, x = LLTMCell(INPUT, SIZE), torch.randn(BATCH, INPUT)
    for other in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell))):
        assert all(torch.equal(a, b) for a, b in zip(other(x), cell(x), strict=True))
    other = LLTMCell(INPUT, SIZE)
    other.load_state_dict(cell.state_dict())
    assert torch.equal(other(x)[0], cell(x)[0])


class Loop(nn.Module):
    """Inputs [T, B, I] -> outputs [T, B, S]."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = LLTMCell(INPUT, SIZE)

    def forward(self, inputs: Tensor) -> Tensor:
        state = self.cell(inputs[0])
        outputs = [state[0]]
        for t in range(1, inputs.shape[0]):
            state = self.cell(inputs[t], state)
            outputs.append(state[0])
        return torch.stack(outputs)


@pytest.mark.compiles
def test_export_of_a_cell_and_of_a_loop() -> None:
    cell, batch = LLTMCell(INPUT, SIZE), Dim("batch", min=2, max=1 << 20)
    x = torch.randn(BATCH, INPUT)
    program = export(cell, (x,), dynamic_shapes=({0: batch},))
    assert torch.ops.cppcuda.lltm_cell.default in [n.target for n in program.graph.nodes]
    for rows in (3, 9):
        other = torch.randn(rows, INPUT)
        assert_close(program.module()(other), cell(other))
    loop, inputs = Loop(), torch.randn(5, BATCH, INPUT)
    program = export(loop, (inputs,), dynamic_shapes=({1: batch},))
    assert_close(program.module()(inputs[:, :3]), loop(inputs[:, :3]))


@pytest.mark.compiles
def test_compiled_loop_is_one_graph() -> None:
    torch._dynamo.reset()
    loop, inputs = Loop(), torch.randn(5, BATCH, INPUT)
    compiled = torch.compile(loop, fullgraph=True, backend="aot_eager")
    results = []
    for module in (compiled, loop):
        out = module(inputs)
        results.append([out, *torch.autograd.grad(scalar((out,)), list(loop.parameters()))])
    assert_close(*results)


@pytest.mark.parametrize("sizes", [(-3, 4), (3, -4)])
def test_negative_sizes_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"sizes must not be negative, got {sizes[0]} and {sizes[1]}"):
        LLTMCell(*sizes)


@pytest.mark.parametrize("wanted", [range(5), (1,), (2, 4), (0, 3)], ids=["all", "weight", "none", "state"])
@pytest.mark.parametrize("group", [(), (3,)], ids=["", "group"])
def test_flops_are_those_of_plain_torch(wanted: Iterable[int], group: tuple[int, ...]) -> None:
    def count(op: Callable[..., tuple[Tensor, ...]]) -> int:
        tensors = tuple(t.expand(*group, *t.shape).contiguous() for t in arguments())
        inputs = tuple(t.requires_grad_(i in wanted) for i, t in enumerate(tensors))
        with FlopCounterMode(display=False, custom_mapping=cppcuda.flop_counter.custom_mapping()) as counter:
            scalar(op(*inputs)).backward()
        return counter.get_total_flops()

    assert count(lltm_cell) == count(lltm_cell_reference) > 0


def test_invalid_states() -> None:
    cell, x, h = LLTMCell(3, 4), torch.randn(2, 3), torch.zeros(2, 4)
    for state, name in ((h, "Tensor"), (torch.stack([h, h]), "Tensor"), ((h, h, h), "tuple")):
        with pytest.raises(TypeError, match=rf"^LLTMCell: state must be \(hx, cx\), got {name}"):
            cell(x, state)
    assert_close(cell(x, [h, h]), cell(x))
    for shape in ((), (2, 2), (3, 4)):
        got = re.escape(str(list(shape)))
        with pytest.raises(RuntimeError, match=rf"^LLTMCell: input must be \[B, I\] with I = 3, got {got}$"):
            cell(torch.zeros(shape), (h, h))
    with pytest.raises(RuntimeError, match=r"^LLTMCell: hx must be \[B, S\] with S = 4, got \[2, 5\]$"):
        cell(x, (torch.zeros(2, 5), torch.zeros(2, 5)))
    with pytest.raises(TypeError, match=r"^lltm_cell: hx must be a Tensor, got NoneType$"):
        cell(x, (None, None))
    with pytest.raises(TypeError, match=r"^LLTMCell: input must be a Tensor, got list$"):
        cell([1.0, 2.0, 3.0])
