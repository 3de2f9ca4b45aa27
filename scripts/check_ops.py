"""Prints the parts that each operator has outside its folder.

usage: check_ops.py [--library FILE --namespace NAME] [OPERATOR ...]

Exit status: 1 if a part is missing, 2 if there is no such operator.
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import cppcuda
import cppcuda.onnx
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/python"))
from conftest import register_all  # noqa: E402
from cppcuda.testing.samples import OPS  # noqa: E402

# The parts of a docstring, and the patterns by which they are found.
SECTIONS = {
    "a formula": r"\.\. math::",
    "its arguments": "Args:",
    "its results": "Returns:",
    "its errors": "Raises:",
    "shapes": r"shape|\[\w+, ",
    "dtypes": "dtype",
    "the gradient": "[Gg]radient",
}


class MissingError(Exception):
    """The message says what is missing, and where it belongs."""


class Operator(NamedTuple):
    namespace: str
    name: str


def header(op: Operator) -> str:
    path = f"cppcuda/ops/{op.name}.h"
    include = cppcuda.config().include_path
    if not (include / path).is_file():
        raise MissingError(f"no public header include/{path}")
    if f"<{path}>" not in (include / "cppcuda/cppcuda.h").read_text():
        raise MissingError(f"include/cppcuda/cppcuda.h does not include <{path}>")
    return f"include/{path}"


def function(op: Operator) -> str:
    f = getattr(cppcuda.functional, op.name, None)
    if f is None or op.name not in cppcuda.functional.__all__:
        raise MissingError(f"no function {op.name} in python/cppcuda/functional.py, or it is not in __all__")
    missing = [part for part, pattern in SECTIONS.items() if not re.search(pattern, f.__doc__ or "")]
    if missing:
        raise MissingError(f"the docstring of cppcuda.functional.{op.name} lacks {', '.join(missing)}")
    return f"cppcuda.functional.{op.name}, with its docstring"


def module(op: Operator) -> str:
    for name in cppcuda.nn.__all__:
        if name.lower() == op.name.replace("_", ""):
            return f"cppcuda.nn.{name}"
    raise MissingError(f"no module in python/cppcuda/nn.py (its name in lower case is {op.name} without underscores)")


def samples(op: Operator) -> str:
    for entry in OPS:
        if entry.name == f"{op.namespace}::{op.name}":
            if not entry.backward:
                return f"{len(entry.specs)} for the operator, whose gradient is made of other operators"
            return f"{len(entry.specs)} for the operator, {len(entry.backward.specs)} for {entry.backward.base_name}"
    raise MissingError(f"no entry for {op.name} in tests/python/samples")


def onnx(op: Operator) -> str:
    translated = getattr(getattr(torch.ops, op.namespace), op.name).default in cppcuda.onnx.translation_table()
    return "translated" if translated else "no translation"


def distributed(op: Operator) -> str:
    rules = getattr(getattr(torch.ops, op.namespace), "_sharding_rule", None)
    if rules is None or op.name not in rules.overloads():
        raise MissingError("no sharding rule for DTensor: the declaration has a tensor without a size pattern")
    return str(getattr(rules, op.name)().partition(" ")[2])


def kernels(op: Operator) -> str:
    keys = ["CPU", "CUDA"] if cppcuda.config().cuda_version else ["CPU"]
    keys += ["Meta", "Autograd", "FuncTorchBatched"]
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    missing = [key for key in keys if not has_kernel(f"{op.namespace}::{op.name}", key)]
    if missing:
        raise MissingError(f"no kernel for {', '.join(missing)}")
    return ", ".join(keys)


def support(op: Operator) -> str:
    if f"| `{op.name}` |" not in (ROOT / "docs/support.md").read_text():
        raise MissingError("no column in docs/support.md (scripts/support_matrix.py --write)")
    return "a column of the support matrix"


PARTS: dict[str, Callable[[Operator], str]] = {
    "C++": header,
    "Python": function,
    "module": module,
    "samples": samples,
    "ONNX": onnx,
    "kernels": kernels,
    "DTensor": distributed,
    "support": support,
}


def public_operators(namespace: str) -> list[str]:
    """All operators except internal ones and those that write to an argument."""
    names = (name.split("::") for name in torch._C._dispatch_get_all_op_names())
    return sorted(
        n for space, n in names if space == namespace and not n.startswith("_") and "." not in n and n[-1] != "_"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="shared library of operators to load")
    parser.add_argument("--namespace", default="cppcuda")
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="default: all public operators")
    arguments = parser.parse_args()
    if arguments.library:
        torch.ops.load_library(arguments.library)
    known = public_operators(arguments.namespace)
    unknown = sorted(set(arguments.operators) - set(known))
    if unknown or not known:
        print(f"no operator {', '.join(unknown)} in {arguments.namespace}: {', '.join(known)}", file=sys.stderr)
        return 2
    register_all()
    missing = 0
    names = arguments.operators or known
    for name in names:
        print(name)
        for part, find in PARTS.items():
            try:
                print(f"  {part:9}{find(Operator(arguments.namespace, name))}")
            except MissingError as e:
                print(f"  {part:9}MISSING: {e}")
                missing += 1
    print(f"{len(names)} operators, {missing} parts missing" if missing else f"{len(names)} operators, complete")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
