"""The declaration of an operator of the kit: the sizes of its tensors, and what its checks say about a call.

The kit makes its checks and their messages from the same text at compile time. Here they are written a second time, so
that the tests do not compare the kit with itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

Letters = dict[str, Any]  # the sizes that letters stand for, and the tuple of those that "..." does
Term = tuple[int, str, int]  # a product of a number and letters, divided by a number

SIXTEEN_BIT = (torch.float16, torch.bfloat16)
FLOATING = (torch.float64, torch.float32, *SIXTEEN_BIT)  # the dtypes of tensors whose declaration names none
DTYPES = (
    *FLOATING,
    *(torch.complex64, torch.complex128),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
)


class RefusedError(Exception):
    """The checks refuse a call, with this message."""


@dataclass(frozen=True)
class Pattern:
    """The sizes of a tensor, such as "[B?, N, 3S]"."""

    text: str
    dims: tuple[tuple[Term, ...], ...]
    optional: str = ""  # the letter of a first dim that may be missing
    any_leading: bool = False  # "...": any dims come before those

    @staticmethod
    def parse(text: str) -> Pattern:
        dims = [dim.strip(" {}") for dim in text[1:-1].replace("...", "").split(",") if dim.strip()]
        optional = dims[0][:-1] if dims and dims[0].endswith("?") else ""
        terms = (tuple(map(_term, re.findall(r"[-+]?[^-+]+", dim.strip("?")))) for dim in dims)
        return Pattern(text, tuple(terms), optional, "..." in text)

    def dims_of(self, batched: bool) -> tuple[tuple[Term, ...], ...]:
        return self.dims[1:] if self.optional and not batched else self.dims

    def spell(self, batched: bool) -> str:
        head = f"[{self.optional}?, "
        return self.text.replace(head, f"[{self.optional}, " if batched else "[") if self.optional else self.text

    def sizes(self, letters: Mapping[str, Any]) -> tuple[int, ...]:
        leading = letters["..."] if self.any_leading else ()
        return (*leading, *(_value(dim, letters) for dim in self.dims_of(self.optional in letters)))


def _term(text: str) -> Term:
    found = re.fullmatch(r"([-+]?)(\d*)([A-Z]*)(?:/(\d+))?|_", text.replace(" ", ""))
    assert found, text
    sign, factor, letters, divisor = found.groups("")
    return int(sign + (factor or "1")), letters, int(divisor or 1)


def _value(dim: Iterable[Term], letters: Mapping[str, int]) -> int:
    total = 0
    for factor, names, divisor in dim:
        for letter in names:
            factor *= letters.get(letter, 0)
        total += factor // divisor
    return total


@dataclass(frozen=True)
class Argument:
    """An argument or an output. The name of an output that is a gradient is that of the input."""

    type: str
    name: str
    pattern: Pattern | None = None
    like: str = ""
    dtypes: tuple[torch.dtype, ...] = ()  # if the declaration names them
    is_opmath: bool = False  # float32 beside 16 bits
    keeps_wide: bool = False  # may be float32 beside 16 bits
    is_gradient: bool = False
    has_default: bool = False

    @property
    def is_tensor(self) -> bool:
        return self.type.startswith("Tensor")

    @property
    def is_optional(self) -> bool:
        return self.type.endswith("?")


_ARGUMENT = re.compile(r"(\S+) (\w+)(\[.*?\])?(?: like (\w+)| (opmath|keep_wide|\w+(?: or \w+)*))?")
_OUTPUT = re.compile(r"Tensor(?: (grad\()?(\w+)\)?)??(\[.*?\])?(?: like (\w+)| (\w+))?")


def _split(text: str) -> Iterator[str]:
    """The parts between commas outside of brackets."""
    yield from filter(None, (part.strip() for part in re.split(r",(?![^\[]*\])", text)))


def _dtypes(text: str) -> tuple[torch.dtype, ...]:
    """The dtypes that a text such as "int32 or int64" names, in the order of DTYPES."""
    names = text.split(" or ")
    return tuple(d for d in DTYPES if text == "any" or spell_dtype(d) in names)


def _argument(text: str) -> Argument:
    text, equals, _ = text.partition("=")
    found = _ARGUMENT.fullmatch(text.strip())
    assert found, text
    kind, name, pattern, like, dtype = found.groups("")
    sizes = Pattern.parse(pattern) if pattern else None
    return Argument(
        kind,
        name,
        sizes,
        like,
        dtypes=_dtypes(dtype),
        is_opmath=dtype == "opmath",
        keeps_wide=dtype == "keep_wide",
        has_default=bool(equals),
    )


def _output(text: str) -> Argument:
    found = _OUTPUT.fullmatch(text)
    assert found, text
    gradient, name, pattern, like, dtype = found.groups("")
    sizes = Pattern.parse(pattern) if pattern else None
    is_opmath = dtype == "opmath"
    return Argument("Tensor", name, sizes, like, _dtypes(dtype), is_opmath, is_gradient=bool(gradient))


def shape_of(argument: Any) -> tuple[int, ...]:
    """The sizes of a tensor, of the `T` of one, of a list of sizes, or of the dim that an integer gives."""
    if hasattr(argument, "shape"):
        return tuple(argument.shape)
    return (argument,) if isinstance(argument, int) else tuple(argument)


def spell_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def spell_dtypes(dtypes: Sequence[torch.dtype]) -> str:
    """ "int8, int16 or int32" """
    names = [*map(spell_dtype, dtypes)]
    return " or ".join([*filter(None, [", ".join(names[:-1])]), names[-1]])


@dataclass(frozen=True)
class Declaration:
    name: str  # without the namespace
    arguments: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    reads: tuple[tuple[str, str], ...] = ()  # (output, optional argument that its gradient reads)
    independent: str = ""  # letters of dims whose parts are computed independently; that of the rows first
    autocast: str = "none"

    @staticmethod
    def parse(text: str) -> Declaration:
        schema, *policies = text.split("\n")
        found = re.fullmatch(r"\w+::([\w.]+)\((.*)\) -> (.*)", schema)
        assert found, schema
        name, arguments, outputs = found.groups()
        arguments = arguments.replace("*, ", "")
        if outputs.startswith("("):
            outputs = outputs[1:-1]
        words = [line.split() for line in policies]
        values = {word: rest[0] for word, *rest in words if word in ("independent", "autocast")}
        return Declaration(
            name,
            tuple(map(_argument, _split(arguments))),
            tuple(map(_output, _split(outputs))),
            reads=tuple((line[1], line[2]) for line in words if line[0] == "reads"),
            **values,
        )

    @staticmethod
    def of(name: str) -> Declaration | None:
        """The declaration of an operator, "my_ops::swish"; None if the kit did not make the operator from one."""
        namespace, _, operator = name.partition("::")
        texts = getattr(getattr(torch.ops, namespace), "_declaration", None)
        overload = operator.replace(".", "_")
        if texts is None or overload not in texts.overloads():
            return None
        return Declaration.parse(getattr(texts, overload)())

    @cached_property
    def names(self) -> list[str]:
        return [a.name for a in self.arguments]

    def by_name(self, args: Sequence[Any]) -> dict[str, Any]:
        """The arguments of a call, of which the last ones may have been left out."""
        return dict(zip(self.names[: len(args)], args, strict=True))

    @cached_property
    def own_dtypes(self) -> frozenset[str]:
        """The arguments whose dtype may differ from that of the first one."""
        return frozenset(a.name for a in self.arguments if a.is_opmath or a.keeps_wide or a.dtypes)

    @cached_property
    def first(self) -> str:
        """The argument that the dtypes and devices of the others are compared with."""
        required = [a for a in self.arguments if a.is_tensor and not a.is_optional]
        given = (a.name for a in required if a.name not in self.own_dtypes and not a.like)
        return next(given, required[0].name)

    @cached_property
    def optional_dim(self) -> str:
        """The letter of a first dim that may be missing."""
        return next((a.pattern.optional for a in self.arguments if a.pattern and a.pattern.optional), "")

    @cached_property
    def shared(self) -> list[str]:
        """The tensors without the dims to which vmap adds its batch: all rows share them."""
        tensors = [a for a in self.arguments if a.is_tensor]
        patterns = [a.pattern for a in tensors if a.pattern]
        if any(p.any_leading for p in patterns):
            return [a.name for a in tensors if not (a.pattern and a.pattern.any_leading)]
        first = next((a.pattern for a in tensors if a.name == self.first), None)
        dims = [p.dims[0] for p in patterns if p.optional] or ([first.dims[0]] if first and first.dims else [])
        return [a.name for a in tensors if patterns and not (a.pattern and a.pattern.dims[:1] == tuple(dims[:1]))]

    def like(self, name: str) -> str:
        """The argument whose dtype an argument has: the first one, or one with a dtype of its own."""
        while name != self.first and name not in self.own_dtypes:
            name = self.arguments[self.names.index(name)].like or self.first
        return name

    def like_of_output(self, output: Argument) -> str:
        return self.like(output.name if output.is_gradient and output.name in self.names else output.like or self.first)

    def dtypes_of(self, name: str) -> tuple[torch.dtype, ...]:
        """The dtypes that a tensor may have, alone."""
        return self.arguments[self.names.index(self.like(name))].dtypes or FLOATING

    def is_differentiable(self, name: str) -> bool:
        return any((d.is_floating_point and d.itemsize > 1) or d.is_complex for d in self.dtypes_of(name))

    def dtype_is_of(self, argument: int) -> Argument:
        return self.arguments[self.names.index(self.like(self.names[argument]))]

    def is_opmath(self, argument: int) -> bool:
        """Whether an argument is float32 if the first one has 16 bits."""
        return self.arguments[argument].is_tensor and self.dtype_is_of(argument).is_opmath

    def may_be_wide(self, argument: int) -> bool:
        """Whether an argument may be float32 while the first one has 16 bits."""
        return self.arguments[argument].is_tensor and self.dtype_is_of(argument).keeps_wide

    def autocast_dtypes(self, args: Sequence[Any], cast: torch.dtype) -> tuple[torch.dtype, ...]:
        """The dtypes of the outputs of a call under autocast, none of whose tensors is float64."""
        floating = [(n, t.dtype) for n, t in self.by_name(args).items() if isinstance(t, Tensor)]
        own = [t for n, t in floating if self.like(n) == self.first and t.is_floating_point]
        promoted = own[0]
        for t in own:
            promoted = torch.promote_types(promoted, t)
        dtype = {"promote": promoted, "lower_precision_fp": cast, "fp32": torch.float32}.get(self.autocast)
        found = dict(floating)
        if dtype is None:
            return tuple(o.dtypes[0] if o.dtypes else found[self.like_of_output(o)] for o in self.outputs)
        return tuple(
            o.dtypes[0] if o.dtypes else dtype if self.like_of_output(o) == self.first else torch.float32
            for o in self.outputs
        )

    # ------------------------------------------------------------ the checks

    @cached_property
    def by_need(self) -> list[int]:
        """The tensors, required ones before optional ones."""
        tensors = [(i, a) for i, a in enumerate(self.arguments) if a.is_tensor]
        return [i for optional in (False, True) for i, a in tensors if a.is_optional == optional]

    @cached_property
    def by_shape(self) -> list[int]:
        """The arguments with a pattern, each after those that bind the letters that it needs."""
        known: set[str] = set()
        order: list[int] = []
        kinds = (r"int", r"SymInt", r"Tensor(!|\(\w+!\))?", r"SymInt\[\d*\]", r"Tensor(!|\(\w+!\))?\?")
        for kind in kinds:
            left = [i for i, a in enumerate(self.arguments) if a.pattern and re.fullmatch(kind, a.type)]
            while left:
                solved = [i for i in left if _solves(self.arguments[i].pattern, known)]
                assert solved, self.name
                order += solved
                left = [i for i in left if i not in solved]
        return order

    def letters(self, args: Sequence[Any]) -> Letters:
        """The sizes of a call whose arguments are valid."""
        letters: Letters = {}
        batched = None
        for i in self.by_shape:
            if i < len(args) and args[i] is not None:
                batched = self._check_shape(i, shape_of(args[i]), letters, batched)
        return letters

    def refusal(self, args: Sequence[Any]) -> str:
        """The error of a call; empty if the checks that follow from the declaration accept it."""
        try:
            self._check(args)
        except RefusedError as error:
            return f"{self.name}: {error}"
        return ""

    def _check(self, args: Sequence[Any]) -> None:
        by_name = self.by_name(args)
        for a in self.arguments:
            if a.name == "output_mask" and a.name in by_name and len(by_name[a.name]) != len(self.outputs):
                raise RefusedError(f"{a.name} must have {len(self.outputs)} entries, got {len(by_name[a.name])}")
        for a in self.arguments:
            t = by_name.get(a.name)
            if a.is_tensor and t is not None and t.dtype not in (allowed := self.dtypes_of(a.name)):
                raise RefusedError(f"{a.name} must be of dtype {spell_dtypes(allowed)}, got {spell_dtype(t.dtype)}")
        for i in self.by_need:
            a, t = self.arguments[i], by_name.get(self.names[i])
            if t is not None and a.name != self.first:
                self._check_kind(a, t, by_name)
        for output, argument in self.reads:
            requested = by_name["output_mask"][[o.name for o in self.outputs].index(output)]
            if requested and by_name[argument] is None:
                raise RefusedError(f"{argument} must be a Tensor if the gradient of {output} is requested, got None")
        self.letters(args)

    def _check_kind(self, a: Argument, t: Tensor, by_name: dict[str, Any]) -> None:
        """The dtype and the device."""
        like = a.like or self.first
        other = by_name.get(like)
        if not a.dtypes and other is not None:
            wide = torch.float32 if other.dtype in SIXTEEN_BIT else other.dtype
            allowed = {wide} if a.is_opmath else {other.dtype, wide} if a.keeps_wide else {other.dtype}
            if t.dtype not in allowed:
                expected = f"{spell_dtype(other.dtype)}, the dtype of {like}{', or float32' * (len(allowed) > 1)}"
                if a.is_opmath:
                    expected = f"{spell_dtype(wide)}, the opmath dtype of {like}"
                raise RefusedError(f"{a.name} must be of dtype {expected}, got {spell_dtype(t.dtype)}")
        first = by_name[self.first]
        if t.device != first.device:
            raise RefusedError(f"{a.name} must be on {first.device}, the device of {self.first}, got {t.device}")

    def _check_shape(self, i: int, sizes: tuple[int, ...], letters: Letters, batched: bool | None) -> bool | None:
        """Binds letters. Returns whether the optional dim is there."""
        pattern = self.arguments[i].pattern
        assert pattern
        if batched is not None or not pattern.optional:
            expected = pattern.spell(bool(batched))
        else:
            expected = f"{pattern.spell(False)} or {pattern.spell(True)}"
        if pattern.optional and batched is None:
            batched = len(sizes) == len(pattern.dims)
        refused = f"{self.names[i]} must be {expected}{{}}, got {list(sizes)}"
        dims = pattern.dims_of(bool(batched))
        if len(sizes) < len(dims) or (len(sizes) > len(dims) and not pattern.any_leading):
            raise RefusedError(refused.format(""))
        leading = sizes[: len(sizes) - len(dims)]
        for dim, size in zip(dims, sizes[len(leading) :], strict=True):
            new = next((t[1] for t in dim if t[::2] == (1, 1) and len(t[1]) == 1 and t[1] not in letters), "")
            known = dict.fromkeys(c for _, names, _ in dim for c in names if c in letters)
            with_letters = f" with {', '.join(f'{c} = {letters[c]}' for c in known)}" if known else ""
            for term in dim:
                if _value([(*term[:2], 1)], letters) % term[2] != 0:
                    message = (
                        f"{self.names[i]} must be {pattern.text}{with_letters}, which is not divisible by {term[2]}"
                    )
                    raise RefusedError(message)
            rest = size - _value(dim, letters)
            if (rest < 0 and len(dim) > 1) if new else rest != 0:
                raise RefusedError(refused.format(with_letters))
            if new:
                letters[new] = rest
        if pattern.any_leading:
            letters["..."] = self._broadcast_leading(i, leading, letters.get("...", leading))
        return batched

    def _broadcast_leading(self, i: int, own: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
        try:
            return tuple(torch.broadcast_shapes(own, others))
        except RuntimeError:
            patterns = ((self.names[j], self.arguments[j].pattern) for j in self.by_shape[: self.by_shape.index(i)])
            before = " and ".join(name for name, pattern in patterns if pattern and pattern.any_leading)
            dims = f"{list(others)}, the dims before the last ones of {before}"
            raise RefusedError(f"{self.names[i]} must broadcast with {dims}, got {list(own)}") from None


def _solves(pattern: Pattern | None, known: set[str]) -> bool:
    """Whether a pattern has at most one new letter in each sum, alone; then these are known."""
    assert pattern
    found = set(known)
    for dim in pattern.dims:
        new = [term for term in dim if any(c not in found for c in term[1])]
        if len(new) > 1 or any(term[::2] != (1, 1) or len(term[1]) != 1 for term in new):
            return False
        found.update(names for _, names, _ in new)
    known |= found
    return True
