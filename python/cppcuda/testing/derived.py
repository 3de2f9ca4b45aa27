"""What follows from the declaration of an operator: samples of other sizes, masks and layouts, wrong calls with their
errors, random arguments, and the entry of the operator that computes the gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cppcuda._declaration import DTYPES, FLOATING, Declaration, spell_dtype
from cppcuda.testing.samples import (
    BadInput,
    Layout,
    OpEntry,
    Spec,
    T,
    is_variable,
    make_sample,
    outputs_of,
    with_layouts,
)

# Numbers of rows, and sizes of the other dims whose parts are independent: with and without a remainder for vectors and
# for several threads, of a row that is longer than a block of a GPU has threads, and no elements.
ROWS = (0, 1, 1031)
SIZES = (0, 1, 4, 7, 8, 17, 32, 33, 64, 257)
BATCHES = ((0, 5), (1, 5), (2, 5), (2, 0), (3, 1))  # (batch, rows)


def is_tensor(argument: Any) -> bool:
    return isinstance(argument, T)


def resized(declaration: Declaration, args: Sequence[Any], letters: Mapping[str, int]) -> tuple[Any, ...]:
    """The arguments with other sizes. A tensor that keeps its size keeps its values; the others have random ones."""
    result = []
    for a, value in zip(declaration.arguments[: len(args)], args, strict=True):
        if a.pattern is None or value is None:
            result.append(value)
        elif isinstance(value, T):
            result.append(with_shape(value, a.pattern.sizes(letters)))
        else:
            sizes = a.pattern.sizes(letters)
            result.append(list(sizes) if isinstance(value, (list, tuple)) else sizes[0])
    return tuple(result)


def with_shape(t: T, shape: tuple[int, ...]) -> T:
    if shape == t.shape:
        return t
    if t.value is None or is_variable(t.value):
        return T(shape, t.wide, t.low, t.high)
    low, high = (int(f()) if t.value.numel() else 0 for f in (t.value.min, t.value.max))
    generator = torch.Generator().manual_seed(0)
    value = torch.randint(low, high + 1, shape, generator=generator, dtype=t.value.dtype)
    # A sorted tensor stays sorted, because it may hold the bounds of segments.
    is_sorted = t.value.dim() > 0 and t.value.numel() > 0 and torch.equal(t.value, t.value.sort().values)
    return T(shape, value=value.sort().values if is_sorted and value.dim() else value)


def with_changes(declaration: Declaration, args: Sequence[Any], **changes: Any) -> tuple[Any, ...]:
    return tuple(changes.get(name, value) for name, value in declaration.by_name(args).items())


# ---------------------------------------------------------------- samples


def first_args(entry: OpEntry) -> tuple[Any, ...]:
    """The arguments of the first basic sample, without a batch."""
    args = next(s for s in entry.specs if s.tag == "basic").args
    declaration = declared(entry)
    letters = declaration.letters(args)
    letters.pop(declaration.optional_dim, None)
    return resized(declaration, args, letters)


def declared(entry: OpEntry) -> Declaration:
    assert entry.declaration
    return entry.declaration


def sizes_to_try(entry: OpEntry) -> dict[str, Sequence[int]]:
    """For each letter that may have any size, the sizes to try."""
    independent = declared(entry).independent
    return {**dict.fromkeys(independent, SIZES), **dict.fromkeys(independent[:1], ROWS), **entry.sizes}


def samples(entry: OpEntry) -> Iterator[Spec]:
    """Samples of other sizes, with every mask, without optional tensors, and with every layout."""
    declaration = declared(entry)
    if not declaration.independent:
        return
    args = first_args(entry)
    rows, *others = list(declaration.independent)
    letters = {**declaration.letters(args), rows: 5, **dict.fromkeys(others, 3)}
    make = partial(resized, declaration, args)
    for letter, sizes in sizes_to_try(entry).items():
        for size in sizes:
            yield Spec(f"{letter}_{size}", make({**letters, letter: size}))
    if batch := declaration.optional_dim:
        for size, count in BATCHES:
            yield Spec(f"{batch}_{size}_{rows}_{count}", make({**letters, batch: size, rows: count}))
    for name, masked in masks_and_missing(declaration, args):
        yield Spec(name, masked, "mask")
    for name, masked in masks_and_missing(declaration, make({**letters, rows: 37, **dict.fromkeys(others, 33)})):
        if name.endswith("_alone"):  # kernels that do not read all tensors
            yield Spec(f"{name}_larger", masked)
    # A dim of size 1 has no stride.
    larger = {letter: max(s for s in (*sizes, letters[letter]) if s < 9) for letter, sizes in entry.sizes.items()}
    letters = {**letters, **larger, rows: 4, **dict.fromkeys(others, 8), **({batch: 3} if batch else {})}
    yield from layouts(make(letters))


def layouts(args: tuple[Any, ...]) -> Iterator[Spec]:
    tensors = [a for a in args if isinstance(a, T)]
    for spec in with_layouts(args):
        if spec.name.startswith("expanded_last"):
            # Indices that are equal in a row can hide an error: weights of the corners of a cell, say, add up to 1.
            kept = (None if t.value is not None else s for t, s in zip(tensors, spec.layouts, strict=True))
            spec = Spec(spec.name, spec.args, "stride", tuple(kept))
        if any(not t.is_contiguous() or t.storage_offset() for t in make_sample(spec, torch.float64, "cpu").inputs):
            yield spec


def masks_and_missing(declaration: Declaration, args: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every output_mask, with all tensors and with those alone that it reads; and each choice of one other optional
    tensor that is missing or given."""
    change = partial(with_changes, declaration, args)
    given = declaration.by_name(args)
    optional = [a.name for a in declaration.arguments if a.type == "Tensor?" and is_tensor(given.get(a.name))]
    read = {argument for _, argument in declaration.reads}
    if "output_mask" in declaration.names:
        for mask in itertools.product((True, False), repeat=len(declaration.outputs)):
            needed = {argument for output, argument in declaration.reads if requests(declaration, mask, output)}
            name = "mask_" + "".join(str(int(m)) for m in mask)
            yield name, change(output_mask=list(mask))
            if missing := [n for n in optional if n in read - needed]:
                yield f"{name}_alone", change(output_mask=list(mask), **dict.fromkeys(missing))
    others = [n for n in optional if n not in read]
    for name in others:
        yield f"without_{name}", change(**{name: None})
        if len(others) > 2:
            yield f"only_{name}", change(**dict.fromkeys(n for n in others if n != name))
    if len(others) > 1:
        yield "without_optional", change(**dict.fromkeys(others))


def requests(declaration: Declaration, mask: Sequence[bool], output: str) -> bool:
    return mask[[o.name for o in declaration.outputs].index(output)]


def rows_args(entry: OpEntry, count: int) -> tuple[Any, ...]:
    """Arguments with this number of rows, for tests with dynamic sizes."""
    declaration, args = declared(entry), first_args(entry)
    rows, *others = list(declaration.independent)
    return resized(declaration, args, {**declaration.letters(args), **dict.fromkeys(others, 16), rows: count})


def strategy(entry: OpEntry) -> Any:
    """A strategy of hypothesis for arguments: those of a sample with other sizes and another mask. Values are in the
    range of the first sample's."""
    from hypothesis import strategies as st

    declaration = declared(entry)
    first = first_args(entry)
    templates = [tuple(map(in_range, first, s.args)) for s in entry.specs if s.tag in ("basic", "shape")]
    ranges = {letter: (min(sizes), min(max(sizes), 20)) for letter, sizes in sizes_to_try(entry).items()}
    ranges.update(dict.fromkeys(declaration.independent[:1], (0, 9)))

    @st.composite  # type: ignore[untyped-decorator]
    def arguments(draw: Any) -> tuple[Any, ...]:
        args = draw(st.sampled_from(templates))
        letters = declaration.letters(args)
        letters.update({letter: draw(st.integers(*sizes)) for letter, sizes in ranges.items()})
        if batch := declaration.optional_dim:
            letters.pop(batch, None)
            if draw(st.booleans()):
                letters[batch] = draw(st.integers(1, 3))
        args = resized(declaration, args, letters)
        return draw(st.sampled_from([args, *(masked for _, masked in masks_and_missing(declaration, args))]))

    return arguments()


def in_range(first: Any, argument: Any) -> Any:
    """A tensor with random values in the range of another one's."""
    if not isinstance(argument, T) or not isinstance(first, T):
        return argument
    if argument.value is not None and not is_variable(argument.value):
        return argument
    return T(argument.shape, argument.wide, first.low, first.high)


# ---------------------------------------------------------------- wrong calls


def wrong_calls(entry: OpEntry) -> Iterator[BadInput]:
    """Calls with a wrong rank, size, dtype, list or missing tensor, each with the error of the declaration's checks."""
    declaration = declared(entry)
    seen = set()
    for args in templates_of_wrong_calls(entry):
        for what, dtypes, wrong in changed_calls(declaration, args):
            make = partial(tensors_of, declaration, wrong, dtypes)
            message = declaration.refusal(make("meta"))
            if message and (what, message) not in seen:
                seen.add((what, message))
                yield BadInput(what, make, message)


def templates_of_wrong_calls(entry: OpEntry) -> Iterator[tuple[Any, ...]]:
    declaration, args = declared(entry), first_args(entry)
    letters = declaration.letters(args)
    if declaration.independent:
        letters[declaration.independent[0]] = 6
    yield resized(declaration, args, letters)
    if declaration.optional_dim:
        yield resized(declaration, args, {**letters, declaration.optional_dim: 2})
    for name, masked in masks_and_missing(declaration, args):
        if name.endswith("_alone"):
            yield masked


def tensors_of(
    declaration: Declaration, args: Sequence[Any], dtypes: Mapping[str, torch.dtype], device: str = "cpu"
) -> tuple[Any, ...]:
    def make(name: str, t: T) -> Tensor:
        own = torch.float32 if t.value is None or is_variable(t.value) else t.value.dtype
        return torch.zeros(t.shape, dtype=dtypes.get(name, own), device=device)

    return tuple(make(n, a) if isinstance(a, T) else a for n, a in declaration.by_name(args).items())


def changed_calls(
    declaration: Declaration, args: tuple[Any, ...]
) -> Iterator[tuple[str, dict[str, torch.dtype], tuple[Any, ...]]]:
    """A name, dtypes and arguments, each with one change; not every change is an error."""
    given = list(zip(declaration.arguments[: len(args)], args, strict=True))
    plain = [a.name for a, v in given if is_tensor(v) and declaration.dtypes_of(a.name) == FLOATING]
    for a, value in given:
        if isinstance(value, T):
            for shape in wrong_shapes(value.shape):
                wrong = T(shape, value=None if value.value is None else value.value.new_zeros(shape))
                yield f"{a.name}_{list(shape)}", {}, with_changes(declaration, args, **{a.name: wrong})
            if a.name not in plain:
                for dtype in DTYPES:
                    yield f"{a.name}_{spell_dtype(dtype)}", {a.name: dtype}, args
                continue
            for others, dtype in itertools.permutations(FLOATING, 2):
                name = f"{a.name}_{spell_dtype(dtype)}_beside_{spell_dtype(others)}"
                yield name, {**dict.fromkeys(plain, others), a.name: dtype}, args
        elif a.type.startswith(("bool[", "SymInt[")):
            longer = [*value, *value[-1:]]
            lists = [[], value[:-1], longer]
            if a.pattern:
                lists += [[*value[:i], value[i] + 1, *value[i + 1 :]] for i in range(len(value))]
            for wrong_list in lists:
                yield f"{a.name}_{wrong_list}", {}, with_changes(declaration, args, **{a.name: wrong_list})
        elif a.type == "int" and a.pattern:
            twice = 2 * value or 1
            yield f"{a.name}_{twice}", {}, with_changes(declaration, args, **{a.name: twice})
    for output, argument in declaration.reads:
        mask = [o.name == output for o in declaration.outputs]
        changes = {argument: None, "output_mask": mask}
        yield f"{output}_without_{argument}", {}, with_changes(declaration, args, **changes)


def wrong_shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Other ranks, the dims in the opposite order, and another size of each dim."""
    shapes: dict[tuple[int, ...], None] = dict.fromkeys([(), shape[1:], shape[:-1], (1, *shape), (*shape, 1)])
    shapes.update(dict.fromkeys([(1, 1, *shape), shape[::-1]]))
    for d, size in enumerate(shape):
        shapes.update(dict.fromkeys((*shape[:d], other, *shape[d + 1 :]) for other in (0, 1, size - 1, size + 1)))
    return [s for s in shapes if s != shape and all(size >= 0 for size in s)]


# ---------------------------------------------------------------- gradients


@dataclass(frozen=True)
class Derivative:
    """See `derivative`."""

    name: str
    fields: dict[str, Any]

    def of(self, entry: OpEntry) -> OpEntry:
        declaration, forward, sized = Declaration.of(self.name), declared(entry), entry.sized
        assert declaration, f"{self.name} has no declaration"
        arguments = partial(arguments_of_derivative, declaration, forward)
        fields = {
            "reference": gradients_of(entry.reference, declaration, forward)
            if "reference" not in self.fields
            else None,
            "specs": tuple(
                Spec(s.name, arguments(s.args), s.tag, layouts_of_derivative(declaration, forward, s))
                for s in entry.specs
                if s.tag != "large"
            ),
            "sized": (lambda rows: arguments(sized(rows))) if sized else None,
            **{f: getattr(entry, f) for f in ("sizes", "roundings", "products", "deterministic_on_cuda", "modules")},
        }
        return OpEntry(self.name, **{**fields, **self.fields})


def derivative(name: str, **fields: Any) -> Derivative:
    """The operator that computes the gradients of another one, for `OpEntry.backward`; ``.of(entry)`` is its entry. It
    has the samples of the other one. Its reference are the gradients of that one's, unless another is given."""
    return Derivative(name, fields)


def arguments_of_derivative(declaration: Declaration, forward: Declaration, args: Sequence[Any]) -> tuple[Any, ...]:
    by_name = forward.by_name(args)
    letters = forward.letters(args)
    result: list[Any] = []
    for a in declaration.arguments:
        if a.type.startswith("bool["):
            result.append([True] * len(declaration.outputs))
        elif a.name in by_name:
            result.append(by_name[a.name])
        elif a.has_default:
            break
        else:
            assert a.pattern, f"{declaration.name}: the sizes of {a.name} do not follow from its declaration"
            sizes = a.pattern.sizes(letters)
            result.append(T(sizes) if a.is_tensor else list(sizes) if "[" in a.type else sizes[0])
    return tuple(result)


def layouts_of_derivative(declaration: Declaration, forward: Declaration, spec: Spec) -> tuple[Layout | None, ...]:
    """The layouts of the tensors that both operators take."""
    if not spec.layouts:
        return ()
    tensors = (name for name, value in forward.by_name(spec.args).items() if isinstance(value, T))
    by_name = dict(zip(tensors, spec.layouts, strict=True))
    return tuple(by_name.get(a.name) for a in declaration.arguments if a.is_tensor)


def gradients_of(reference: Callable[..., Any], declaration: Declaration, forward: Declaration) -> Callable[..., Any]:
    """The gradients of a reference, as a function of the arguments of the operator that computes them. The arguments
    that are not those of `forward` are the gradients of its outputs, in order; a missing tensor is zeros."""
    cotangents = [a.name for a in declaration.arguments if a.is_tensor and a.name not in forward.names]
    assert len(cotangents) == len(forward.outputs), f"{declaration.name}: {cotangents} are not those of the outputs"

    def gradients(*args: Any) -> Any:
        given = declaration.by_name(args)
        letters = declaration.letters(args)
        first = given[declaration.first]
        variables = {
            a.name: first.new_zeros(a.pattern.sizes(letters)) if given[a.name] is None and a.pattern else given[a.name]
            for a in forward.arguments
            if a.is_tensor and forward.is_differentiable(a.name)
        }

        def call(*tensors: Tensor) -> tuple[Tensor, ...]:
            values = {
                **given,
                "output_mask": [True] * len(forward.outputs),
                **dict(zip(variables, tensors, strict=True)),
            }
            return outputs_of(reference(*(values[n] for n in forward.names)))

        outputs, vjp = torch.func.vjp(call, *variables.values())[:2]
        directions = (given[n] for n in cotangents)
        found = vjp(tuple(torch.zeros_like(o) if c is None else c for o, c in zip(outputs, directions, strict=True)))
        by_name = dict(zip(variables, found, strict=True))
        mask = given.get("output_mask", [True] * len(declaration.outputs))
        result = tuple(
            by_name[o.name] if wanted else first.new_zeros(0)
            for o, wanted in zip(declaration.outputs, mask, strict=True)
        )
        return result if len(result) > 1 else result[0]

    return gradients
