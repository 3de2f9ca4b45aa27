"""Operators that write to their arguments: f.out and f_ of every family, and operators that only write."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from cppcuda._declaration import DTYPES, spell_dtype
from cppcuda.testing.compare import kernel_calls
from torch import Tensor
from torch.func import functionalize, vmap
from torch.fx.experimental.proxy_tensor import make_fx

LIBRARY = os.environ.get("CPPCUDA_SECOND_LIBRARY")
if not LIBRARY:
    pytest.skip("CPPCUDA_SECOND_LIBRARY is not set (scripts/test sets it)", allow_module_level=True)
torch.ops.load_library(LIBRARY)
second = torch.ops.second

# torch knows operators that return the arguments that they write to. f.out with one output does not return it, because
# torch 2.15 cannot compile such operators for AOTInductor.
RETURNS = torch.__version__ >= (2, 13)


class Form(NamedTuple):
    """An operator, the arguments of a call, and whether a tensor can be both its first argument and its output."""

    name: str
    arguments: tuple[Any, ...]
    may_be_input: bool = True
    in_place: bool = True


def double(*sizes: int) -> Tensor:
    return torch.randn(sizes, dtype=torch.float64)


def forms() -> list[Form]:
    return [
        Form("swish", (double(4, 6), 0.5)),
        Form("gated", (double(4, 6), double(6))),
        Form("normalize", (double(4, 6, 3),)),
        Form("rotate", (double(4, 4), double(4, 3)), in_place=False),
        Form("softmax", (double(4, 6),)),
        Form("rotary", (double(4, 6), double(6), double(4, 6))),
        Form("rms_norm", (double(4, 6), double(6))),
        Form("exp", (double(4, 6),), may_be_input=False),
        Form("sincos", (double(2, 4, 6),), may_be_input=False, in_place=False),
        Form("crop_or_pad", (double(4, 6), [8], "left"), may_be_input=False, in_place=False),
    ]


over_forms = pytest.mark.parametrize("form", forms(), ids=lambda form: form.name)
over_in_place = pytest.mark.parametrize("form", [f for f in forms() if f.in_place], ids=lambda form: form.name)


def f_of(form: Form) -> Any:
    return getattr(second, form.name).default


def f_in_place(form: Form) -> Any:
    return getattr(second, f"{form.name}_").default


def results_of(form: Form, *arguments: Any) -> tuple[Tensor, ...]:
    result = f_of(form)(*(arguments or form.arguments))
    return result if isinstance(result, tuple) else (result,)


def names(count: int) -> list[str]:
    return ["out"] if count == 1 else [f"out{o}" for o in range(count)]


def write(form: Form, out: tuple[Tensor, ...], *arguments: Any) -> Any:
    into = getattr(second, form.name).out
    return into(*(arguments or form.arguments), **dict(zip(names(len(out)), out, strict=True)))


def error_of(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(RuntimeError) as error:
        call(*args, **kwargs)
    return str(error.value).splitlines()[0]


# ---------------------------------------------------------------- schemas


def test_schemas() -> None:
    one = "Tensor(a!)" if RETURNS else "()"
    schemas = {
        second.exp.out: "exp.out(Tensor input, *, Tensor(a!) out) -> ()",
        second.exp_.default: f"exp_(Tensor(a!) self) -> {one}",
        second.sincos.out: "sincos.out(Tensor input, *, Tensor(a!) out0, Tensor(b!) out1) -> ()",
        second.crop_or_pad.out: 'crop_or_pad.out(Tensor input, SymInt[1] output_size, str side="right", '
        "float? gain=None, *, Tensor(a!) out) -> ()",
        second.swish.out: "swish.out(Tensor x, float beta, *, Tensor(a!) out) -> ()",
        second.swish_.default: f"swish_(Tensor(a!) self, float beta) -> {one}",
        second.gated.out: "gated.out(Tensor x, Tensor gate, *, Tensor(a!) out) -> ()",
        second.gated_.default: f"gated_(Tensor(a!) self, Tensor gate) -> {one}",
        second.normalize_.default: f"normalize_(Tensor(a!) self) -> {one}",
        second.cross_entropy.out: "cross_entropy.out(Tensor logits, Tensor target, *, Tensor(a!) out) -> ()",
        second.rotate.out: "rotate.out(Tensor q, Tensor v, *, Tensor(a!) out) -> ()",
        second.softmax_.default: f"softmax_(Tensor(a!) self) -> {one}",
        second.store.default: "store(Tensor(a!) cache, Tensor(b!)? counts, Tensor values, Tensor rows) -> ()",
    }
    for op, schema in schemas.items():
        assert str(op._schema) == f"second::{schema}"
        tags = {str(tag).removeprefix("torch.") for tag in op.tags} & {"Tag.out", "Tag.inplace"}
        assert tags == ({"Tag.inplace"} if RETURNS and op._schema.returns else set())
    assert not hasattr(second, "sincos_") and not hasattr(second, "crop_or_pad_")


@pytest.mark.skipif(not RETURNS, reason="this torch has no tags for such operators")
@over_in_place
def test_torch_accepts_the_tag(form: Form) -> None:
    from torch.library import _validate_inplace_schema

    _validate_inplace_schema(f_in_place(form)._schema)


# ---------------------------------------------------------------- values


@over_forms
def test_values_and_versions(form: Form) -> None:
    expected = results_of(form)
    out = tuple(torch.full_like(t, torch.nan) for t in expected)
    assert write(form, out) is None
    assert all(torch.equal(a, b) for a, b in zip(out, expected, strict=True))
    assert [t._version for t in out] == [1] * len(out)
    if form.in_place:
        self = form.arguments[0].clone()
        assert f_in_place(form)(self, *form.arguments[1:]) is (self if RETURNS else None)
        assert torch.equal(self, expected[0]) and self._version == 1


@over_in_place
def test_saved_tensors_are_protected(form: Form) -> None:
    x = form.arguments[0].clone()
    y = (x * torch.ones_like(x, requires_grad=True)).sum()
    f_in_place(form)(x, *form.arguments[1:])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@over_forms
def test_meta_and_fake_tensors(form: Form) -> None:
    on_meta = [a.to("meta") if isinstance(a, Tensor) else a for a in form.arguments]
    out = tuple(t.to("meta") for t in results_of(form))
    write(form, out, *on_meta)
    for o in range(len(out)):
        wrong = tuple(t.new_empty(9, 9) if i == o else t for i, t in enumerate(out))
        message = rf"^{form.name}: {names(len(out))[o]} must be \[.*, the shape of the result, got \[9, 9\]"
        with pytest.raises(RuntimeError, match=message):
            write(form, wrong, *on_meta)


@over_in_place
def test_functionalization(form: Form) -> None:
    x, *others = form.arguments
    expected = results_of(form)[0]

    def in_place(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 0
        f_in_place(form)(y, *others)
        return y, y + 1

    def into(x: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.empty_like(x)
        write(form, (out,), x, *others)
        return out, out + 1

    for function in (in_place, into):
        y, z = functionalize(function)(x)
        assert torch.equal(y, expected) and torch.equal(z, expected + 1)
        graph = make_fx(functionalize(function))(x)
        targets = {node.target for node in graph.graph.nodes}
        assert f_of(form) in targets and f_in_place(form) not in targets
        y, z = graph(x)
        assert torch.equal(y, expected) and torch.equal(z, expected + 1)


@over_in_place
def test_vmap(form: Form) -> None:
    x, *others = form.arguments
    batch = torch.stack([x, x.cos(), -x], 1)
    expected = torch.stack([results_of(form, t, *others)[0] for t in batch.unbind(1)])

    def in_place(x: Tensor) -> Tensor:
        f_in_place(form)(x, *others)
        return x

    def into(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        write(form, (out,), x, *others)
        return out

    assert torch.allclose(vmap(in_place, 1)(batch.clone()), expected)
    assert torch.allclose(vmap(into, 1)(batch), expected)
    message = error_of(vmap(lambda t: write(form, (torch.empty_like(x),), t, *others), 1), batch)
    assert message.startswith(f"{form.name}: out must have the batch that vmap gives to ")


# ---------------------------------------------------------------- torch.compile


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
@over_forms
def test_compiled_calls_return_what_they_wrote_and_what_follows(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a kernel for functionalization, Inductor 2.15 returns wrong values as soon as both are used."""
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    x, *others = form.arguments
    expected = results_of(form)

    def into(x: Tensor, w: Tensor) -> list[Tensor]:
        out = tuple(torch.empty_like(t) for t in expected)
        with torch.no_grad():
            write(form, out, x, *others)
        return [t + 1 for t in out] + list(out) + [w * t for t in out]

    def in_place(x: Tensor, w: Tensor) -> list[Tensor]:
        y = x * 1
        with torch.no_grad():
            f_in_place(form)(y, *others)
        return [y + 1, y, w * y]

    for function in (into, in_place) if form.in_place else (into,):
        w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        found = torch.compile(function, fullgraph=True)(x, w)
        count = len(found) // 3
        for o, t in enumerate(expected[:count]):
            torch.testing.assert_close(found[o], t + 1)
            torch.testing.assert_close(found[count + o], t)
            torch.testing.assert_close(found[2 * count + o], 2 * t)
        (gradient,) = torch.autograd.grad(sum(t.sum() for t in found[2 * count :]), w)
        torch.testing.assert_close(gradient, sum(t.sum() for t in expected[:count]))


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
def test_aot_inductor(tmp_path: Path) -> None:
    """With Tag::out on exp.out the C++ code of torch 2.15 would not compile, and with one on sincos.out not even Python
    code for sizes that are not known."""

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sine, cosine = second.sincos(second.exp(x))
            return second.rms_norm(sine, cosine[0])

    x = double(4, 6)
    program = torch.export.export(Model(), (x,))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), Model()(x))


# ---------------------------------------------------------------- bad input


@over_forms
def test_wrong_outputs(form: Form) -> None:
    """The error names the argument, and nothing is written."""
    good = tuple(torch.full_like(t, 7) for t in results_of(form))
    for o, (name, right) in enumerate(zip(names(len(good)), good, strict=True)):
        sizes = right.shape
        wrong = {
            "must be of dtype float64, the dtype of the result, got float32": right.float(),
            f"must be {list(sizes)}, the shape of the result, got [2, {', '.join(map(str, sizes))}]": torch.full(
                (2, *sizes), 7.0, dtype=torch.float64
            ),
            "must not have elements that share memory, got strides": right[:1].expand(sizes),
        }
        if not form.may_be_input:
            wrong["must be contiguous, got strides"] = right.mT.contiguous().mT
        for message, t in wrong.items():
            out = tuple(t if i == o else other for i, other in enumerate(good))
            assert error_of(write, form, out).startswith(f"{form.name}: {name} {message}")
            assert all((t == 7).all() for t in out)
        on_meta = tuple(right.to("meta") if i == o else other for i, other in enumerate(good))
        assert "meta" in error_of(write, form, on_meta)


@over_forms
def test_overlaps(form: Form) -> None:
    x, *others = form.arguments
    memory = torch.cat([x.flatten(), x.flatten()[:1]])
    before = memory.clone()
    first, shifted = memory[:-1].view_as(x), memory[1:].view_as(x)
    expected = results_of(form)
    fits = [o for o, t in enumerate(expected) if t.shape == x.shape]
    for o in fits:
        out = tuple(shifted if i == o else torch.empty_like(t) for i, t in enumerate(expected))
        message = error_of(write, form, out, first, *others)
        assert message.startswith(f"{form.name}: {names(len(out))[o]} must ") and message.endswith("got an overlap")
        assert torch.equal(memory, before)
        same = tuple(first if i == o else torch.empty_like(t) for i, t in enumerate(expected))
        if form.may_be_input:
            write(form, same, first, *others)
            assert torch.equal(first, expected[o])
            memory.copy_(before)
        else:
            argument = f_of(form)._schema.arguments[0].name
            message = f"{names(len(out))[o]} must share no memory with {argument}, got an overlap"
            assert error_of(write, form, same, first, *others) == f"{form.name}: {message}"
    if len(expected) > 1:
        message = error_of(write, form, (expected[0], expected[0]))
        assert message == f"{form.name}: out0 and out1 must share no memory, got an overlap"


@over_in_place
def test_wrong_self(form: Form) -> None:
    x, *others = form.arguments
    expanded = x[:1].expand(x.shape)
    message = f"{form.name}_: self must not have elements that share memory, got strides"
    assert error_of(f_in_place(form), expanded, *others).startswith(message)
    leaf = x.clone().requires_grad_()
    message = error_of(f_in_place(form), leaf, *others)
    assert message.startswith(f"{form.name}_: self requires a gradient, which a call that writes to self loses; call ")
    assert message.endswith(" instead, or this one under torch.no_grad()")
    before = leaf.detach().clone()
    with torch.no_grad():
        f_in_place(form)(leaf, *others)
    assert torch.equal(leaf, results_of(form, before, *others)[0])


@over_forms
def test_lost_gradients(form: Form) -> None:
    x, *others = form.arguments
    out = tuple(torch.zeros_like(t) for t in results_of(form))
    argument = f_of(form)._schema.arguments[0].name
    message = error_of(write, form, out, x.clone().requires_grad_(), *others)
    loses = f"which a call that writes to {' and '.join(names(len(out)))} loses; call {form.name}({argument}"
    assert message.startswith(f"{form.name}: {argument} requires a gradient, {loses}")
    assert all((t == 0).all() for t in out)
    message = error_of(torch.func.jvp, lambda t: write(form, out, t, *others), (x,), (x,))
    assert message.startswith(f"{form.name}: {argument} has a tangent, {loses}")


# ---------------------------------------------------------------- deployment


def test_torchscript() -> None:
    """Also a model that was saved when the operators returned nothing."""

    def script(x: Tensor, out: Tensor) -> Tensor:
        torch.ops.second.swish_(x, 0.5)
        torch.ops.second.swish(x, 0.5, out=out)
        return out

    scripted = torch.jit.script(script)
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    older = io.BytesIO()
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(older, "w", zipfile.ZIP_STORED) as changed:
        for name in archive.namelist():
            content = archive.read(name)
            changed.writestr(name, content.replace(b"_0 = ops.second.swish_(", b"ops.second.swish_("))
    file.seek(0)
    older.seek(0)
    x = double(5)
    expected = second.swish(second.swish(x, 0.5), 0.5)
    for function in (scripted, torch.jit.load(file), torch.jit.load(older)):
        out, self = torch.empty_like(x), x.clone()
        assert torch.equal(function(self, out), expected)
        assert torch.equal(self, second.swish(x, 0.5))


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
@over_in_place
def test_export(form: Form) -> None:
    x, *others = form.arguments

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = x * 1
            f_in_place(form)(y, *others)
            out = torch.empty_like(y)
            write(form, (out,), y, *others)
            return y, out

    expected = results_of(form)[0]
    program = torch.export.export(Model(), (x,)).run_decompositions()
    targets = [node.target for node in program.graph.nodes]
    assert targets.count(f_of(form)) == 2
    y, out = program.module()(x)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(out, results_of(form, expected, *others)[0])


# ---------------------------------------------------------------- operators that only write


def store_of(cache: Tensor, counts: Tensor | None, values: Tensor, rows: Tensor) -> None:
    """The reference, for rows that differ from each other."""
    cache.index_copy_(0, rows.long(), values)
    if counts is not None:
        counts.index_add_(0, rows.long(), torch.ones_like(rows.long()))


VALUES, ROWS = double(3, 4), torch.tensor([4, 0, 2])


@pytest.mark.parametrize("rows", [ROWS, ROWS.int()])
def test_store(rows: Tensor) -> None:
    for counts in (torch.zeros(5, dtype=torch.int64), None):
        for cache in (double(5, 4), double(4, 5).t(), double(10, 4)[::2]):
            expected, expected_counts = cache.clone(), None if counts is None else counts.clone()
            store_of(expected, expected_counts, VALUES, rows)
            version = cache._version
            assert second.store(cache, counts, VALUES, rows) is None
            assert torch.equal(cache, expected) and cache._version == version + 1
            if counts is not None:
                assert torch.equal(counts, expected_counts)


@pytest.mark.parametrize("dtype", DTYPES, ids=spell_dtype)
def test_store_in_a_cache_of_any_dtype(dtype: torch.dtype) -> None:
    cache, values = (t.to(dtype) for t in (double(5, 4).mul(10), VALUES.mul(10)))
    expected = cache.clone()
    expected[ROWS] = values
    second.store(cache, None, values, ROWS)
    assert torch.equal(cache.view(torch.uint8), expected.view(torch.uint8))


def test_store_in_inference_mode_and_on_meta() -> None:
    with torch.inference_mode():
        cache = torch.zeros(5, 4, dtype=torch.float64)
        second.store(cache, None, VALUES, ROWS)
        assert torch.equal(cache[ROWS], VALUES)
    second.store(cache.to("meta"), None, VALUES.to("meta"), ROWS.to("meta"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda c: (c, None, VALUES[:, :3], ROWS), r"values must be \[N, F\] with F = 4, got \[3, 3\]"),
        (lambda c: (c, None, VALUES.float(), ROWS), "values must be of dtype float64, the dtype of cache, got float32"),
        (lambda c: (c, None, VALUES, ROWS.double()), "rows must be of dtype int32 or int64, got float64"),
        (lambda c: (c, ROWS.new_zeros(4), VALUES, ROWS), r"counts must be \[V\] with V = 5, got \[4\]"),
        (lambda c: (c[:1].expand(5, 4), None, VALUES, ROWS), "cache must not have elements that share memory"),
        (lambda c: (c, c.new_zeros(5), VALUES, ROWS), "counts must be of dtype int64, got float64"),
        (lambda c: (c, ROWS.new_zeros(1).expand(5), VALUES, ROWS), "counts must not have elements that share memory"),
        (lambda c: (c, None, c[1:4], ROWS), "cache must share no memory with values, got an overlap"),
        (
            lambda c: (c, c[:, 0].view(torch.int64), VALUES, ROWS),
            "cache must share no memory with counts, got an overlap",
        ),
        (
            lambda c: (c, None, VALUES.clone().requires_grad_(), ROWS),
            "values requires a gradient, which a call that writes to cache and counts loses; call it under "
            r"torch.no_grad\(\)",
        ),
        (lambda c: (c.to_sparse(), None, VALUES, ROWS), "cache must be a dense"),
        (lambda c: (c, None, VALUES, ROWS + 1), r"rows must be in \[0, 5\), got 5"),
    ],
)
def test_bad_input_of_store(arguments: Callable[[Tensor], tuple[Any, ...]], message: str) -> None:
    cache = torch.full((5, 4), 7.0, dtype=torch.float64)
    with pytest.raises((RuntimeError, IndexError), match=f"^store: {message}"):
        second.store(*arguments(cache))
    assert (cache == 7).all()


@pytest.mark.parametrize("dims", [(0, 0, 0, 0), (1, 0, None, 0), (0, 1, 1, None), (0, None, 0, 0)])
def test_store_under_vmap(dims: tuple[int | None, ...]) -> None:
    def batched(t: Tensor, dim: int | None) -> Tensor:
        return t if dim is None else torch.stack([t, t * 2, t * 3], dim)

    cache, values = (batched(t, d) for t, d in zip((double(5, 4), VALUES), (dims[0], dims[2]), strict=True))
    counts = None if dims[1] is None else batched(torch.zeros(5, dtype=torch.int64), dims[1])
    rows = batched(ROWS, None) if dims[3] is None else torch.stack([ROWS, ROWS.flip(0), (ROWS + 1) % 5])
    expected = cache.clone(), None if counts is None else counts.clone(), values, rows
    split = [[t] * 3 if d is None else t.unbind(d) for t, d in zip(expected, dims, strict=True)]
    for each in zip(*split, strict=True):
        store_of(*each)
    assert kernel_calls("second::store", lambda: vmap(second.store, dims, None)(cache, counts, values, rows)) == 1
    assert torch.equal(cache, expected[0])
    assert counts is None or torch.equal(counts, expected[1])
    with pytest.raises(RuntimeError, match=r"^store: cache must have the batch that vmap gives to values"):
        vmap(second.store, (None, None, 0, None), None)(double(5, 4), None, torch.stack([VALUES] * 2), ROWS)


def test_store_under_two_vmaps() -> None:
    """The second batch has no dim of the kernel, so there is a call for each row of it."""
    cache, values = double(2, 3, 5, 4), double(2, 3, 3, 4)
    expected = cache.clone()
    for c, v in zip(expected.flatten(0, 1), values.flatten(0, 1), strict=True):
        store_of(c, None, v, ROWS)
    dims = (0, None, 0, None)
    vmap(vmap(second.store, dims, None), dims, None)(cache, None, values, ROWS)
    assert torch.equal(cache, expected)


@pytest.mark.compiles
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

    def function(cache: Tensor, counts: Tensor | None, values: Tensor) -> tuple[Tensor, Tensor]:
        own = cache * 2
        second.store(own, None, values, ROWS)
        second.store(cache, counts, values + 1, ROWS)
        return own, own + cache

    for counts in (torch.zeros(5, dtype=torch.int64), None):
        cache = double(5, 4)
        expected, expected_counts = cache.clone(), None if counts is None else counts.clone()
        own = expected * 2
        store_of(own, None, VALUES, ROWS)
        store_of(expected, expected_counts, VALUES + 1, ROWS)
        found = torch.compile(function, fullgraph=True)(cache, counts, VALUES)
        torch.testing.assert_close(found, (own, own + expected))
        torch.testing.assert_close(cache, expected)
        assert counts is None or torch.equal(counts, expected_counts)
