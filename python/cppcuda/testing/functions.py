"""The properties of operators that write to arguments, take lists of tensors, or return other values than tensors.

A check is a function of a ``Call``. It compares copies of the arguments after a call of the operator with those after a
call of the reference, which writes to the same arguments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import patch

import torch
import torch.autograd.forward_ad as fwAD
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize, vmap
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only, tree_unflatten

from cppcuda.testing.compare import ERRORS, assert_close, raises, scalar
from cppcuda.testing.registry import NotCheckedError
from cppcuda.testing.samples import DEVICES, LAYOUTS, TOLERANCE, apply, is_variable, split_keywords


def is_function(op: Any) -> bool:
    """Whether an operator is checked here: it writes to an argument, has a list of tensors among its arguments or
    results, or a result that is no tensor."""
    schema = op._schema
    return (
        any(a.alias_info and a.alias_info.is_write for a in schema.arguments)
        or any("Tensor" in str(a.type) and "List" in str(a.type) for a in (*schema.arguments, *schema.returns))
        or any("Tensor" not in str(r.type) for r in schema.returns)
    )


def tensors_in(value: Any) -> list[Tensor]:
    return [t for t in tree_flatten(value)[0] if isinstance(t, Tensor)]


def copy(value: Any) -> Any:
    """A copy with other memory and the same strides."""
    return tree_map_only(Tensor, lambda t: t.detach().clone(memory_format=torch.preserve_format), value)


def cast(value: Any, dtype: torch.dtype) -> Any:
    return tree_map_only(Tensor, lambda t: t.to(dtype) if is_variable(t) else t, value)


def to(device: str, value: Any) -> Any:
    return tree_map_only(Tensor, lambda t: t.to(device), value)


def as_batch(t: Tensor, size: int) -> Tensor:
    """Different values, or the same indices."""
    return torch.stack([t * (1 - i / 4) if is_variable(t) or t.is_complex() else t for i in range(size)])


@dataclass(frozen=True)
class Call:
    op: Any
    reference: Callable[..., Any]
    args: tuple[Any, ...]  # may end in a dict of keyword arguments
    orders: int
    dtypes: tuple[torch.dtype, ...]
    bad_inputs: tuple[tuple[Sequence[Any], str | None], ...] = ()

    @property
    def names(self) -> list[str]:
        positional, named = split_keywords(self.args)
        return [a.name for a in self.op._schema.arguments[: len(positional)]] + [*named]

    @property
    def written(self) -> list[str]:
        return [a.name for a in self.op._schema.arguments if a.alias_info and a.alias_info.is_write]

    def by_name(self, args: Sequence[Any]) -> dict[str, Any]:
        positional, named = split_keywords(args)
        return dict(zip(self.names, [*positional, *named.values()], strict=True))

    def written_in(self, args: Sequence[Any]) -> list[Tensor]:
        by_name = self.by_name(args)
        return tensors_in([by_name.get(name) for name in self.written])

    def run(self, f: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[Tensor]]:
        """The results, and the arguments that were written to."""
        with torch.no_grad():
            return apply(f, args), self.written_in(args)


# ---------------------------------------------------------------- checks


def assert_same(actual: Any, expected: Any, what: str, **tolerance: float) -> None:
    """Tensors are close, and other values equal. A list and a tuple are the same."""
    (found, _), (wanted, _) = tree_flatten(actual), tree_flatten(expected)
    found, wanted = ([v for v in values if v is not None] for values in (found, wanted))
    assert len(found) == len(wanted), f"{what}: {len(found)} values, expected {len(wanted)}"
    for i, (a, e) in enumerate(zip(found, wanted, strict=True)):
        if isinstance(e, Tensor):
            assert a.shape == e.shape, f"{what} {i}: shape {tuple(a.shape)}, expected {tuple(e.shape)}"
            exact = {} if is_variable(a) else {"rtol": 0.0, "atol": 0.0}
            assert_close(a.double() if is_variable(a) else a, e.double() if is_variable(e) else e, f"{what} {i}",
                         **{**tolerance, **exact})  # fmt: skip
        elif isinstance(e, float):
            assert_close(torch.tensor(a), torch.tensor(e), f"{what} {i}", **tolerance)
        else:
            assert a == e, f"{what} {i}: {a!r}, expected {e!r}"


def values(call: Call, dtype: torch.dtype) -> None:
    given, exact = copy(call.args), to("cpu", cast(copy(call.args), torch.float64))
    results, written = to("cpu", call.run(call.op, given))
    expected, expected_written = call.run(call.reference, exact)
    tolerance = TOLERANCE[dtype]
    assert_same(results, expected, "result", **tolerance)
    assert_same(written, expected_written, "written tensor", **tolerance)
    if dtype == torch.float64:
        found, wanted = ([t.dtype for t in tensors_in(r)] for r in (results, expected))
        assert found == wanted, f"results are of {found}, expected {wanted}"
    for name, value in call.by_name(given).items():
        if name not in call.written:
            same = all(map(torch.equal, tensors_in(value), tensors_in(call.by_name(call.args)[name])))
            assert same, f"the operator writes to {name}, which its schema does not say"


def strides(call: Call) -> None:
    """Any strides of every tensor. What lies between the elements of a tensor stays as it is."""
    plain = copy(call.args)
    expected = call.run(call.op, plain)
    for name in ("transposed", "sliced", "offset"):
        lay_out = LAYOUTS[name]
        args = tree_map_only(Tensor, lambda t: lay_out(t.clone()) if t.dim() and t.numel() else t.clone(), call.args)  # noqa: B023
        memory = [t._base if t._base is not None else t for t in call.written_in(args)]
        outside = [m.clone() for m in memory]
        found = call.run(call.op, args)
        assert_same(found, expected, f"{name}: value", rtol=0, atol=0)
        for before, after, t in zip(outside, memory, call.written_in(args), strict=True):
            if t._base is not None:
                before.as_strided(t.shape, t.stride(), t.storage_offset()).copy_(t)
                same = torch.equal(before.nan_to_num(7.0), after.nan_to_num(7.0))
                assert same, f"{name}: the operator writes between the elements of a tensor"


def aliasing(call: Call) -> None:
    """Results have memory of their own. A call whose arguments share memory that is written to is an error, before
    anything is written, or computes what a call with copies does."""
    args = copy(call.args)
    results, _ = call.run(call.op, args)
    memory = {t.untyped_storage().data_ptr() for t in tensors_in(args) if t.numel()}
    if not any(r.alias_info for r in call.op._schema.returns):
        shared = [t for t in tensors_in(results) if t.numel() and t.untyped_storage().data_ptr() in memory]
        assert not shared, "a result shares memory with an argument"
    for overlapping, what in overlaps(call):
        before, separate = [t.clone() for t in tensors_in(overlapping)], copy(overlapping)
        try:
            found = call.run(call.op, overlapping)
        except RuntimeError:
            same = all(map(torch.equal, before, tensors_in(overlapping)))
            assert same, f"{what}: the operator wrote to it before the error"
            continue
        expected = call.run(call.reference, separate)
        assert_same(found, expected, f"{what}, without an error: value", rtol=1e-9, atol=1e-9)


def overlaps(call: Call) -> Iterator[tuple[Any, str]]:
    """Calls in which a tensor that is written to shares memory with another one, or with itself."""
    count = len(tensors_in(call.args))
    for i in range(count):
        args = copy(call.args)
        tensors = tensors_in(args)
        if not any(tensors[i] is t for t in call.written_in(args)):
            continue
        twins = (j for j, t in enumerate(tensors) if j != i and like(t) == like(tensors[i]) and t.numel())
        if (j := next(twins, None)) is not None:
            yield replaced(args, j, tensors[i]), f"tensors {i} and {j} are one"
        if tensors[i].dim() and tensors[i].shape[0] > 1 and tensors[i].numel():
            yield replaced(args, i, tensors[i][:1].clone().expand_as(tensors[i])), f"the elements of tensor {i} are one"


def like(t: Tensor) -> tuple[Any, ...]:
    return t.shape, t.dtype, t.device


def replaced(args: Any, which: int, by: Tensor) -> Any:
    """The arguments with another tensor in place of number `which`."""
    leaves, spec = tree_flatten(args)
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    leaves[positions[which]] = by
    return tree_unflatten(leaves, spec)


def versions(call: Call) -> None:
    """A graph that saved a tensor notices that it was written to, and no other tensor has a new version."""
    args = copy(call.args)
    written = {id(t) for t in call.written_in(args)}
    before = [t._version for t in tensors_in(args)]
    call.run(call.op, args)
    for i, (t, version) in enumerate(zip(tensors_in(args), before, strict=True)):
        if id(t) in written:
            assert t._version > version, f"tensor {i} was written to, and has no new version"
        else:
            assert t._version == version, f"tensor {i} was not written to, and has a new version"


def variables_of(call: Call) -> tuple[Any, list[Tensor]]:
    """Arguments that require gradients, and the tensors among them that do."""
    args = tree_map_only(Tensor, lambda t: t.detach().clone().requires_grad_(is_variable(t)), call.args)
    variables = [t for t in tensors_in(args) if t.requires_grad]
    has_results = any("Tensor" in str(r.type) for r in call.op._schema.returns)
    if not variables or not (has_results or call.written):
        raise NotCheckedError("nothing has a gradient")
    return args, variables


def refuses_gradients(call: Call) -> bool:
    return bool(call.written) or call.orders == 0


def gradients(call: Call) -> None:
    """An operator that writes refuses tensors that require a gradient. The others have the reference's gradients, or
    refuse such tensors, too, if orders=0 is given."""
    args, _ = variables_of(call)
    if not refuses_gradients(call):
        return compare_gradients(call, range(1))
    with raises(RuntimeError, what="a gradient is lost without an error"):
        apply(call.op, args)


def further_gradients(call: Call) -> None:
    if refuses_gradients(call) or call.orders < 2:
        raise NotCheckedError("the operator refuses tensors that require a gradient, or orders=1 is given")
    compare_gradients(call, range(1, call.orders))


def compare_gradients(call: Call, orders: range) -> None:
    found, expected = (gradients_of(f, call, orders.stop) for f in (call.op, call.reference))
    for order in orders:
        assert_same(found[order], expected[order], f"derivative {order + 1} of input", rtol=1e-9, atol=1e-9)


def gradients_of(f: Callable[..., Any], call: Call, orders: int) -> list[Any]:
    args, variables = variables_of(call)
    result = []
    outputs = [t for t in tensors_in(apply(f, args)) if is_variable(t)]
    for order in range(orders):
        if not any(t.requires_grad for t in outputs):
            raise AssertionError("a result has no grad_fn" if order == 0 else "a gradient has no grad_fn")
        options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
        outputs = list(torch.autograd.grad(scalar(outputs), variables, create_graph=True, **options))
        result.append([t.detach() for t in outputs])
    return result


def forward_mode(call: Call) -> None:
    """The tangents of the results, or an error."""

    def tangents(f: Callable[..., Any]) -> list[Tensor]:
        with fwAD.dual_level():
            args = tree_map_only(
                Tensor, lambda t: fwAD.make_dual(t.clone(), t.cos()) if is_variable(t) else t.clone(), call.args
            )
            results = [fwAD.unpack_dual(t) for t in tensors_in(apply(f, args)) if is_variable(t)]
            return [torch.zeros_like(r.primal) if r.tangent is None else r.tangent for r in results]

    variables_of(call)
    if refuses_gradients(call):
        with raises(RuntimeError, what="a tangent is lost without an error"):
            tangents(call.op)
        return
    assert_same(tangents(call.op), tangents(call.reference), "tangent", rtol=1e-9, atol=1e-9)


def under_autocast(call: Call) -> None:
    """Nothing is cast."""
    call = replace(call, args=cast(call.args, torch.float32))
    expected = call.run(call.op, copy(call.args))
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(call.run(call.op, copy(call.args)), expected, "value", rtol=0, atol=0)


def batches(call: Call) -> None:
    args = tree_map_only(Tensor, partial(as_batch, size=3), call.args)
    rows = [tree_map_only(Tensor, lambda t: t[i].clone(), args) for i in range(3)]  # noqa: B023
    expected = [call.run(call.op, row) for row in rows]
    positional, named = split_keywords(args)
    dims = tree_map(lambda a: 0 if isinstance(a, Tensor) else None, list(positional))
    if tensors_in(named):
        raise NotCheckedError("a keyword argument is a tensor")
    if any("Tensor" not in str(r.type) for r in call.op._schema.returns):
        raise NotCheckedError("a result is no tensor, so it has no batch")
    has_results = bool(call.op._schema.returns)
    positional = copy(list(positional))
    with torch.no_grad():
        # vmap takes no results that are None.
        f = vmap(lambda *all_: tensors_in(call.op(*all_, **named)) if has_results else call.op(*all_, **named),
                 tuple(dims), 0 if has_results else None)  # fmt: skip
        results = f(*positional)
    found = list(zip(*(tensors_in(r) for r, _ in expected), strict=True))
    assert_same(results, [torch.stack(t) for t in found], "result", rtol=0, atol=0)
    stacked = [torch.stack(t) for t in zip(*(w for _, w in expected), strict=True)]
    assert_same(call.written_in((*positional, *([named] if named else []))), stacked, "written tensor", rtol=0, atol=0)


def own_copy(value: Any) -> Any:
    """A copy that a compiler follows."""
    if isinstance(value, Tensor):
        return value * 1 if is_variable(value) else value.clone()
    if isinstance(value, (list, tuple)):
        return [own_copy(v) for v in value]
    return {k: own_copy(v) for k, v in value.items()} if isinstance(value, dict) else value


def floating_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    return [t for v in value for t in floating_in(v)] if isinstance(value, (list, tuple)) else []


def with_value_after(call: Call) -> Callable[..., Any]:
    """A function that writes to copies, and returns results and written tensors together with values computed from
    them: a compiler that reorders writes changes these."""
    op, names, written = call.op, call.names, call.written
    is_written = [name in written for name in names]

    def f(*args: Any) -> Any:
        own = [own_copy(a) for a in args]
        positional, named = (own[:-1], own[-1]) if isinstance(own[-1], dict) else (own, {})
        values = [v for v, w in zip([*positional, *named.values()], is_written, strict=True) if w]
        before = [t + 1 for t in floating_in(values)]
        results = op(*positional, **named)
        after = [t * 2 for t in (*floating_in(results), *floating_in(values))]
        return before, results, values, after

    return f


def functionalized(call: Call) -> None:
    f = with_value_after(call)
    with torch.no_grad():
        try:
            found = functionalize(f)(*copy(call.args))
        except RuntimeError as error:
            if "custom (non-ATen) operator whose output has alias annotations" in str(error):
                raise NotCheckedError("torch.func.functionalize takes no custom operator that writes") from None
            raise
        assert_same(found, f(*copy(call.args)), "value", rtol=0, atol=0)


def fake(call: Call) -> None:
    """Fake tensors predict shapes and dtypes, and nothing is written."""
    results, _ = call.run(call.op, copy(call.args))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        predicted = apply(call.op, tree_map_only(Tensor, mode.from_tensor, call.args))
    found = [(tuple(t.shape), t.dtype) for t in tensors_in(predicted)]
    expected = [(tuple(t.shape), t.dtype) for t in tensors_in(results)]
    assert found == expected, f"the fake kernel returns {found}, the operator {expected}"
    positional, named = split_keywords(copy(call.args))
    torch.library.opcheck(call.op, tuple(positional), named)


def compiled(call: Call) -> None:
    f = with_value_after(call)
    with torch.no_grad():
        expected = f(*copy(call.args))
    for dynamic in (False, True):
        torch._dynamo.reset()
        with torch.no_grad(), patch.dict(os.environ, {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}):
            found = torch.compile(f, fullgraph=True, dynamic=dynamic)(*copy(call.args))
        assert_same(found, expected, f"dynamic={dynamic}: value", rtol=1e-9, atol=1e-9)
    torch._dynamo.reset()


def exported(call: Call) -> None:
    f = with_value_after(call)

    class Module(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return f(*args)

    with torch.no_grad():
        program = torch.export.export(Module(), tuple(copy(call.args))).run_decompositions().module()
        found = program(*copy(call.args))
        assert_same(found, Module()(*copy(call.args)), "value", rtol=1e-9, atol=1e-9)


def threads(call: Call) -> None:
    before = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(call.run(call.op, copy(call.args)))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert_same(other, found[0], "value", rtol=0, atol=0)


def bad_input(call: Call) -> None:
    if not call.bad_inputs:
        raise NotCheckedError("no bad_inputs are given")
    for given, message in call.bad_inputs:
        args = copy(tuple(given))
        with raises(ERRORS, what=str(message)) as caught:
            call.run(call.op, args)
        if message is not None:
            assert caught.first_line == message, f"expected {message!r}, got {caught.first_line!r}"
        same = all(map(torch.equal, tensors_in(args), tensors_in(given)))
        assert same, f"the operator wrote to an argument before the error {message!r}"


def dtensors(call: Call) -> None:
    """Two processes, with inputs sharded along every dim."""
    from cppcuda.testing.properties.distributed import on_cluster
    from cppcuda.testing.samples import OpEntry, Sample

    namespace, name = call.op._name.split("::")
    if not torch.distributed.is_available():
        raise NotCheckedError("torch was built without distributed")
    rules = getattr(getattr(torch.ops, namespace), "_sharding_rule", None)
    if rules is None or name not in rules.overloads():
        raise NotCheckedError(NOT_SHARDED)
    args = to("cpu", call.args)
    expected = call.run(call.reference, copy(args))[0]
    derivatives = None if refuses_gradients(call) else gradients_of(call.reference, call, 1)[0]
    on_cluster(on_every_placement, OpEntry(call.op._name, call.reference, ()), Sample("", args), expected, derivatives)


NOT_SHARDED = (
    "DTensor takes operators that write to nothing and return tensors, each tensor of whose declaration has sizes"
)


def on_every_placement(op: Any, sample: Any, expected: Any, derivatives: Any) -> None:
    from torch.distributed.tensor import distribute_tensor

    from cppcuda.testing.properties.distributed import mesh, some_placements, whole

    tensors = tensors_in(sample.args)
    for placements in some_placements(replace(sample, args=tuple(tensors)), 12):
        sharded = [distribute_tensor(t, mesh(), [p]) for t, p in zip(tensors, placements, strict=True)]
        variables = [t.requires_grad_() for t in sharded if is_variable(t) and derivatives is not None]
        rest = iter(sharded)
        results = tensors_in(apply(op, tree_map_only(Tensor, lambda _: next(rest), sample.args)))  # noqa: B023
        assert_same(whole(tuple(results)), expected, f"{placements}: result", rtol=1e-10, atol=1e-10)
        if variables:
            gradients = torch.autograd.grad(scalar(results), variables)
            assert_same(whole(tuple(gradients)), derivatives, f"{placements}: gradient", rtol=1e-10, atol=1e-10)


CHECKS: tuple[tuple[str, Callable[[Call], None]], ...] = (
    ("strides", strides),
    ("bad input", bad_input),
    ("aliasing", aliasing),
    ("threads", threads),
    ("backward", gradients),
    ("double backward", further_gradients),
    ("forward AD", forward_mode),
    ("saved tensors", versions),
    ("vmap", batches),
    ("torch.func", functionalized),
    ("compile", compiled),
    ("export", exported),
    ("autocast", under_autocast),
    ("meta", fake),
    ("DTensor", dtensors),
)


def checks_of(call: Call, samples: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, str, Callable[[], None]]]:
    """For each check its row, its name, and a function that runs it for every sample."""

    def for_each(check: Callable[[Call], None], dtype: torch.dtype, devices: Sequence[str]) -> None:
        for (i, args), device in product(enumerate(samples), devices):
            try:
                check(replace(call, args=to(device, cast(args, dtype))))
            except NotCheckedError:
                raise
            except Exception as error:
                kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
                where = "" if device == "cpu" else f" on {device}"
                raise AssertionError(f"sample{i}{where}: {kind}{error}") from error

    for dtype in call.dtypes:
        yield str(dtype)[6:], "values", partial(for_each, partial(values, dtype=dtype), dtype, DEVICES)
    for row, check in CHECKS:
        devices = DEVICES if check in (strides, threads) else ["cpu"]
        yield row, check.__name__, partial(for_each, check, call.dtypes[0], devices)
