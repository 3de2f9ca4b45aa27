"""Fake implementations of operators of the kit whose kernels find sizes, from their declarations: torch.compile and
export take such a size as unknown. A kernel in C++ for the Meta device cannot make one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from cppcuda._declaration import Declaration

_registered: set[str] = set()


def register_fakes(namespace: str) -> None:
    """For the operators of a library that has been loaded."""
    texts = getattr(torch.ops, namespace)._found_sizes
    for overload in texts.overloads():
        text = getattr(texts, overload)()
        name = text.partition("(")[0]
        if name not in _registered:
            _registered.add(name)
            torch.library.register_fake(name, partial(_fake, name, Declaration.parse(text)))


def _fake(name: str, declaration: Declaration, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
    namespace, _, operator = name.partition("::")
    schema = getattr(getattr(torch.ops, namespace), operator).default._schema
    given = [*args, *(kwargs.get(a.name, a.default_value) for a in schema.arguments[len(args) :])]
    refusal = declaration.refusal(given)
    if refusal:
        raise RuntimeError(refusal)
    letters: dict[str, Any] = {**declaration.letters(given)}
    by_name = declaration.by_name(given)
    outputs = []
    for o in declaration.outputs:
        assert o.pattern, f"{name}: an output has no pattern"
        for letter in (names for dim in o.pattern.dims for _, names, _ in dim):
            if letter and letter not in letters:
                letters[letter] = torch.library.get_ctx().new_dynamic_size()
        like = by_name[declaration.like_of_output(o)]
        dtype = o.dtypes[0] if o.dtypes else torch.float32 if o.is_opmath and like.dtype.itemsize == 2 else like.dtype
        outputs.append(like.new_empty(o.pattern.sizes(letters), dtype=dtype))
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


__all__ = ["register_fakes"]
