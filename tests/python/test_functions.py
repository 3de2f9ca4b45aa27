"""Operators whose functions return what the operators return: they write to lists of tensors, return other values than
tensors, or have no tensor among their arguments (tests/second_library/functions.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from cppcuda._fake import register_fakes
from cppcuda.testing.compare import kernel_calls
from formulas import second
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, jacrev, jvp, vmap

Lists = tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]


def double(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


# ---------------------------------------------------------------- lists that are written to


def adam_lists(*batch: int) -> Lists:
    params = [double(*batch, 3, 4), double(*batch, 2, 6).transpose(-1, -2), double(*batch, 0), double(*batch, 5)]
    return (
        params,
        [p * 0.5 for p in params],
        [p.square() * 0.25 for p in params],
        [p.sin() for p in params],
    )


def copies(lists: Lists) -> Lists:
    params, averages, squares, grads = ([t.clone() for t in tensors] for tensors in lists)
    return params, averages, squares, grads


def adam_step(params: list[Tensor], averages: list[Tensor], squares: list[Tensor], grads: list[Tensor]) -> None:
    """One step of torch.optim.Adam, from this state."""
    for p, m, v, g in zip(params, averages, squares, grads, strict=True):
        variable = torch.nn.Parameter(p.clone())
        optimizer = torch.optim.Adam([variable], lr=0.01, betas=(0.8, 0.95), eps=1e-6)
        optimizer.state[variable] = {"step": torch.tensor(6.0), "exp_avg": m, "exp_avg_sq": v}
        variable.grad = g
        optimizer.step()
        p.copy_(variable.detach())


def step(lists: Lists) -> None:
    assert second.adam_step(*lists, 7, lr=0.01, beta1=0.8, beta2=0.95, eps=1e-6) is None


def test_adam_step_is_torchs() -> None:
    found, expected = adam_lists(), copies(adam_lists())
    versions = [[t._version for t in tensors] for tensors in found]
    with torch.no_grad():
        step(found)
        adam_step(*expected)
    torch.testing.assert_close(found, expected)
    assert [[t._version - v for t, v in zip(*each, strict=True)] for each in zip(found, versions, strict=True)] == [
        [1] * 4,
        [1] * 4,
        [1] * 4,
        [0] * 4,
    ]
    assert not torch.equal(found[0][0], adam_lists()[0][0])


def test_adam_step_of_dtypes_that_differ_between_parameters() -> None:
    lists = [
        [t.to(d) for t, d in zip(tensors, (torch.float32, torch.bfloat16), strict=False)] for tensors in adam_lists()
    ]
    found, expected = copies(tuple(lists)), copies(tuple(lists))  # type: ignore[arg-type]
    step(found)
    adam_step(*expected)
    torch.testing.assert_close(found, expected)


def test_adam_step_writes_to_leaves_under_no_grad_only() -> None:
    found, expected = adam_lists(), copies(adam_lists())
    found[0][0].requires_grad_()
    message = (
        "adam_step: params requires a gradient, which a call that writes to params and exp_avgs and exp_avg_sqs loses; "
        "call it under torch.no_grad()"
    )
    with pytest.raises(RuntimeError) as caught:
        step(found)
    assert str(caught.value).splitlines()[0] == message
    torch.testing.assert_close([t.detach() for t in found[0]], expected[0])
    with torch.no_grad():
        step(found)
    adam_step(*expected)
    torch.testing.assert_close([t.detach() for t in found[0]], expected[0])


def test_adam_step_under_vmap() -> None:
    """Parameters of three models: a call for each."""
    found, expected = adam_lists(3), copies(adam_lists(3))
    vmap(lambda *lists: step(lists), out_dims=None)(*found)
    for row in range(3):
        adam_step(*([t[row] for t in tensors] for tensors in expected))
    torch.testing.assert_close(found, expected)


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_adam_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

    def train(lists: Lists) -> tuple[Tensor, Tensor]:
        own = [p * 2 for p in lists[0]]
        step((own, lists[1], lists[2], [g + 1 for g in lists[3]]))
        return own[0], own[0] + lists[1][0]

    found, expected = adam_lists(), copies(adam_lists())
    y, z = torch.compile(train, fullgraph=True)(found)
    own = [p * 2 for p in expected[0]]
    adam_step(own, expected[1], expected[2], [g + 1 for g in expected[3]])
    torch.testing.assert_close((y, z), (own[0], own[0] + expected[1][0]))
    torch.testing.assert_close(found, expected)


def changed(which: int, change: Callable[[list[Tensor]], list[Tensor]]) -> Lists:
    lists = list(adam_lists())
    lists[which] = change(lists[which])
    return tuple(lists)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (lambda: changed(0, lambda p: [p[0], p[0], *p[2:]]), "params must share no memory with params, got an overlap"),
        (
            lambda: changed(1, lambda m: [m[0][:1].expand(3, 4), *m[1:]]),
            r"exp_avgs must not have elements that share memory, got strides \[0, 1\]",
        ),
        (lambda: changed(3, lambda g: g[:2]), "grads must have 4 tensors, got 2"),
        (
            lambda: changed(3, lambda g: [g[0][:2], *g[1:]]),
            r"grads\[0\] must be \[3, 4\], the shape of params\[0\], got",
        ),
        (
            lambda: changed(3, lambda g: [*g[:3], g[3].float()]),
            r"grads\[3\] must be of dtype float64, the dtype of params",
        ),
        (
            lambda: changed(2, lambda v: [*v[:3], v[3].int()]),
            r"exp_avg_sqs\[3\] must be of dtype float64, float32, float16",
        ),
        (
            lambda: changed(3, lambda g: [*g[:3], g[3].to("meta")]),
            r"grads\[3\] must be on cpu, the device of params\[0\], got",
        ),
        (lambda: changed(0, lambda p: [p[0].to_sparse(), *p[1:]]), r"params\[0\] must be a dense \(strided\) tensor"),
    ],
)
def test_bad_input_of_adam_step(lists: Callable[[], Lists], message: str) -> None:
    given = lists()
    before = copies(given)
    with pytest.raises(RuntimeError, match=f"^adam_step: {message}"):
        step(given)
    for tensors, expected in zip(given, before, strict=True):
        assert all(t.is_meta or torch.equal(t.to_dense(), e.to_dense()) for t, e in zip(tensors, expected, strict=True))


# ---------------------------------------------------------------- sizes that are quotients


@pytest.mark.parametrize("batch", [(), (2,)])
def test_rotary_embedding(batch: tuple[int, ...]) -> None:
    x, angles = double(*batch, 5, 2, 6), double(*batch, 5, 3)
    turned = (
        torch.view_as_complex(torch.stack(x.chunk(2, -1), -1))
        * torch.polar(torch.ones_like(angles), angles)[..., None, :]
    )
    assert second.rotary_embed(x, angles.cos(), angles.sin()) is None
    torch.testing.assert_close(x, torch.cat([turned.real, turned.imag], -1))


def test_rotary_embedding_under_vmap() -> None:
    x, angles = double(3, 5, 2, 6), double(3, 5, 3)
    expected = x.clone()
    second.rotary_embed(expected, angles.cos(), angles.sin())
    vmap(second.rotary_embed, out_dims=None)(x, angles.cos(), angles.sin())
    assert torch.equal(x, expected)


def test_bad_input_of_rotary_embedding() -> None:
    with pytest.raises(RuntimeError, match=r"^rotary_embed: cos must be \[N, D/2\] with D = 6, got \[5, 2\]"):
        second.rotary_embed(double(5, 2, 6), double(5, 2), double(5, 2))
    with pytest.raises(
        RuntimeError, match=r"^rotary_embed: cos must be \[B\?, N, D/2\] with D = 5, which is not divisible by 2"
    ):
        second.rotary_embed(double(5, 2, 5), double(5, 2), double(5, 2))


# ---------------------------------------------------------------- operators that write and return tensors


def pushed(queue: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """What leaves the queue, and the queue."""
    both = torch.cat([queue, values], -2)
    count = values.shape[-2]
    return both[..., :count, :], both[..., count:, :]


QUEUE, VALUES = double(5, 3), double(2, 3)


def test_push() -> None:
    queue = QUEUE.clone()
    left, expected = pushed(QUEUE, VALUES)
    assert torch.equal(second.push(queue, VALUES), left) and torch.equal(queue, expected) and queue._version == 1
    assert second.push(queue.to("meta"), VALUES.to("meta")).shape == (2, 3)
    with pytest.raises(RuntimeError, match=r"^push: values must have at most 5 rows, those of queue, got 6"):
        second.push(queue, double(6, 3))
    with pytest.raises(
        RuntimeError, match=r"^push: values requires a gradient, which a call that writes to queue loses"
    ):
        second.push(queue, VALUES.clone().requires_grad_())
    assert torch.equal(queue, expected)


def test_push_under_vmap() -> None:
    queue, values = torch.stack([QUEUE, QUEUE * 2], 1), torch.stack([VALUES, VALUES * 3])
    left, expected = pushed(queue.movedim(1, 0), values)
    dims = (1, 0)
    found = []
    assert kernel_calls("second::push", lambda: found.append(vmap(second.push, dims)(queue, values))) == 1
    assert torch.equal(found[0], left) and torch.equal(queue.movedim(1, 0), expected)
    again = vmap(vmap(second.push, dims), dims)(queue[None].movedim(0, 1), values[None])
    assert torch.equal(again[0], pushed(expected, values)[0])


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_push(monkeypatch: pytest.MonkeyPatch, dynamic: bool) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

    def f(queue: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        own = queue * 2
        left = second.push(own, values)
        return left + 1, own, second.push(queue, left)

    queue = QUEUE.clone()
    found = torch.compile(f, fullgraph=True, dynamic=dynamic)(queue, VALUES)
    left, own = pushed(2 * QUEUE, VALUES)
    torch.testing.assert_close(found, (left + 1, own, pushed(QUEUE, left)[0]))
    torch.testing.assert_close(queue, pushed(QUEUE, left)[1])


# ---------------------------------------------------------------- other results than tensors


def test_a_list_and_a_tensor_that_may_be_missing() -> None:
    x = double(3, 4)
    rows, least = second.unstack(x)
    assert least is None and torch.equal(torch.stack(rows), x)
    rows, least = second.unstack(x, with_least=True)
    assert torch.equal(torch.stack(rows), x) and torch.equal(least, x.amin(0))
    rows, least = second.unstack(x.to("meta"), with_least=True)
    assert [t.shape for t in rows] == [(4,)] * 3 and least.shape == (4,) and least.is_meta
    assert second.unstack(double(0, 4)) == ([], None)
    torch.library.opcheck(second.unstack, (x,), {"with_least": True})


LISTS: dict[str, Any] = {"names": ["a", "b"], "flags": [True, False]}


def test_values_of_other_types() -> None:
    x = torch.ones(2, 3)
    assert second.describe(x, [x, None], **LISTS) == (2, 12.0, True, 3, "Float a b yes no", [2, 3])
    assert second.describe(x, [], [x, torch.zeros(5, 3)], **LISTS) == (0, 12.0, True, 3, "Float a b yes no", [2, 3])
    assert second.describe(x / 0, [], **LISTS)[1:3] == (torch.inf, False)
    with pytest.raises(RuntimeError, match=r"^describe: shifts\[1\] must be \[_, F\] with F = 3, got \[5, 2\]"):
        second.describe(x, [], [x, torch.zeros(5, 2)], **LISTS)
    with pytest.raises(
        RuntimeError, match=r"^describe: weights\[1\] must be of dtype float32, the dtype of x, got float64"
    ):
        second.describe(x, [None, x.double()], **LISTS)
    with pytest.raises(
        NotImplementedError, match=r"^describe: what it returns for tensors without values does not follow"
    ):
        second.describe(x.to("meta"), [], **LISTS)


def test_other_results_under_vmap() -> None:
    x = double(5, 3, 4)
    rows, least = vmap(lambda t: second.unstack(t, with_least=True), 1, 1)(x)
    assert torch.equal(torch.stack(rows), x.mT) and torch.equal(least, x.amin(0).T)
    with pytest.raises(RuntimeError, match=r"^describe: result 0 is no tensor, so it has no batch under vmap"):
        vmap(lambda t: second.describe(t, [], **LISTS)[1], 0)(x)


def test_a_gradient_that_would_be_lost_is_an_error() -> None:
    x = double(3, 4).requires_grad_()
    with pytest.raises(RuntimeError) as caught:
        second.unstack(x)
    expected = "unstack: x requires a gradient, which this operator loses; call it under torch.no_grad()"
    assert str(caught.value).splitlines()[0] == expected
    assert second.describe(x, [], **LISTS)[3] == 4  # what it returns has no gradient


# ---------------------------------------------------------------- derivatives of lists

WEIGHTS = [0.5, -2.0, 1.5]


def weighted_sum(xs: Sequence[Tensor], shift: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
    parts = [w * x for w, x in zip(WEIGHTS, xs, strict=True)]
    return sum(parts, shift if shift is not None else torch.zeros(())), parts


def of_lists(f: Callable[..., tuple[Tensor, list[Tensor]]]) -> Callable[..., tuple[Tensor, ...]]:
    """As a function of tensors, whose derivatives of all orders depend on all results."""

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        *xs, shift = tensors
        total, parts = f([x.sin() for x in xs], shift.cos())
        return (total.cos(), *(p * total for p in parts))

    return function


def found_sum(xs: Sequence[Tensor], shift: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
    return second.weighted_sum(list(xs), WEIGHTS, shift)


def test_derivatives_of_lists() -> None:
    tensors = tuple(double(*sizes).requires_grad_() for sizes in ((2, 3), (2, 3), (2, 3), (3,)))
    found, expected = of_lists(found_sum), of_lists(weighted_sum)
    with torch.no_grad():
        calls = kernel_calls(
            "second::weighted_sum", lambda: torch.testing.assert_close(found(*tensors), expected(*tensors))
        )
    assert calls == 1
    assert torch.autograd.gradcheck(found, tensors, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(found, tensors, check_fwd_over_rev=True)
    assert_close = torch.testing.assert_close
    assert_close(jacrev(found, (0, 3))(*tensors), jacrev(expected, (0, 3))(*tensors))
    assert_close(jvp(found, tensors, tensors), jvp(expected, tensors, tensors))
    rows = tuple(torch.stack((t, t.cos())).detach() for t in tensors)
    assert_close(vmap(found)(*rows), vmap(expected)(*rows))

    def scalar(f: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Tensor]:
        return lambda *all_: sum(t.sum() for t in f(*all_))  # type: ignore[return-value]

    assert_close(vmap(grad(scalar(found), (0, 3)))(*rows), vmap(grad(scalar(expected), (0, 3)))(*rows))
    assert_close(grad(scalar(vmap(found)), (1, 3))(*rows), grad(scalar(vmap(expected)), (1, 3))(*rows))
    for other in (torch.float32, torch.bfloat16):
        narrow = [t.detach().to(other) for t in tensors]
        total, parts = weighted_sum([t.double() for t in narrow[:3]], narrow[3].double())
        assert_close(found_sum(narrow[:3], narrow[3]), (total.to(other), [p.to(other) for p in parts]))
    torch.library.opcheck(second.weighted_sum, (list(tensors[:3]), WEIGHTS, tensors[3]))


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_derivatives_of_lists() -> None:
    compiled = torch.compile(of_lists(found_sum), fullgraph=True, dynamic=True)
    for rows in (2, 5):
        tensors = tuple(double(*sizes).requires_grad_() for sizes in ((rows, 3), (rows, 3), (rows, 3), (3,)))
        grads = [
            torch.autograd.grad(sum(t.sum() for t in f(*tensors)), tensors) for f in (compiled, of_lists(weighted_sum))
        ]
        torch.testing.assert_close(*grads)


def test_derivatives_of_a_size_that_the_kernel_finds() -> None:
    x = double(6, 3).requires_grad_()
    assert 0 < (x.sum(1) > 0).sum() < 6
    assert torch.autograd.gradcheck(lambda t: second.rows_above(t)[0].sin(), (x,), check_forward_ad=True)


def test_bad_lists() -> None:
    x = double(2, 3)
    message = "weighted_sum: xs must have as many tensors as weights, 3, and at least one, got 2"
    for variable in (x, x.clone().requires_grad_()):
        with pytest.raises(RuntimeError, match=f"^{message}"):
            second.weighted_sum([variable, x], WEIGHTS)
        with pytest.raises(RuntimeError, match=r"^weighted_sum: xs\[1\] must be \[N, F\] with N = 2, got \[3, 3\]"):
            second.weighted_sum([variable, double(3, 3), x], WEIGHTS)
        with pytest.raises(
            RuntimeError, match=r"^weighted_sum: xs\[1\] must be of dtype float64, the dtype of xs\[0\], got float32"
        ):
            second.weighted_sum([variable, x.float(), x], WEIGHTS)
        with pytest.raises(RuntimeError, match=r"^weighted_sum: shift must be of dtype float64, the dtype of xs"):
            second.weighted_sum([variable, x, x], WEIGHTS, torch.zeros(3))
    with pytest.raises(RuntimeError, match=r"^mean_of: there is no tensor among the arguments, whose device would"):
        second.mean_of([])


def rows_of(x: Tensor) -> tuple[list[Tensor], Tensor | None]:
    return torch.ops.second.unstack(x, with_least=True)


def test_other_results_in_torchscript() -> None:
    x = double(3, 4)
    rows, least = torch.jit.script(rows_of)(x)
    assert torch.equal(torch.stack(rows), x) and torch.equal(least, x.amin(0))


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_list(dynamic: bool) -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        rows, least = second.unstack(x * 2, with_least=True)
        return rows[0] + rows[2], least + 1

    compiled = torch.compile(f, fullgraph=True)
    for features in (4, 6) if dynamic else (4,):
        x = double(3, features)
        torch.testing.assert_close(compiled(x), (2 * (x[0] + x[2]), 2 * x.amin(0) + 1))


@pytest.mark.compiles
def test_exported_list() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return rows_of(x)

    x = double(3, 4)
    rows, least = torch.export.export(Model(), (x,)).module()(x)
    assert torch.equal(torch.stack(rows), x) and torch.equal(least, x.amin(0))


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_size_that_the_kernel_finds(backend: str) -> None:
    """One graph serves all sizes."""
    register_fakes("second")
    graphs = CompileCounterWithBackend(backend)

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        rows, numbers = second.rows_above(x * 2, 1.0)
        return rows + 1, numbers * 2

    compiled = torch.compile(f, fullgraph=True, backend=graphs, dynamic=True)
    for count in (5, 8, 6):
        x = double(count, 3)
        is_above = (x * 2).sum(1) > 1
        assert 0 < is_above.sum() < count
        torch.testing.assert_close(compiled(x), (x[is_above] * 2 + 1, 2 * is_above.nonzero()[:, 0]))
    assert graphs.frame_count == 1


@pytest.mark.compiles
def test_exported_size_that_the_kernel_finds() -> None:
    register_fakes("second")

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return second.rows_above(x)

    dims = {"x": {0: torch.export.Dim("rows", min=2)}}
    program = torch.export.export(Model(), (double(5, 3),), dynamic_shapes=dims).module()
    for count in (5, 8):
        x = double(count, 3)
        rows, numbers = program(x)
        assert torch.equal(rows, x[x.sum(1) > 0]) and torch.equal(numbers, (x.sum(1) > 0).nonzero()[:, 0])


def test_fake_tensors_are_checked() -> None:
    register_fakes("second")
    with FakeTensorMode(), pytest.raises(RuntimeError, match=r"^rows_above: x must be \[N, F\], got \[3\]"):
        second.rows_above(torch.zeros(3))


# ---------------------------------------------------------------- no tensor among the arguments


def test_no_tensor_among_the_arguments() -> None:
    points = second.sphere_points(100)
    assert points.shape == (100, 3) and points.dtype == torch.float32
    torch.testing.assert_close(points.norm(dim=1), torch.ones(100))
    assert points.mean(0).abs().max() < 0.02  # they cover it evenly
    assert second.sphere_points(2, dtype=torch.float64, device="meta").dtype == torch.float64
