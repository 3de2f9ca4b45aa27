"""The properties, by what they are about. Importing the package fills ``registry.PROPERTIES``."""

from cppcuda.testing.properties import (
    autocast,
    autograd,
    compiled,
    distributed,
    errors,
    exported,
    func,
    meta,
    random_inputs,
    script,
    values,
)

__all__ = [
    "autocast",
    "autograd",
    "compiled",
    "distributed",
    "errors",
    "exported",
    "func",
    "meta",
    "random_inputs",
    "script",
    "values",
]
