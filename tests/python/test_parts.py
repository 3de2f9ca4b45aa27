"""The parts that each operator has outside its folder (CONTRIBUTING.md, "Add an operator")."""

import re
from pathlib import Path

import cppcuda
import pytest
import torch
from cppcuda.testing.samples import OPS

pytestmark = pytest.mark.any_torch

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


def public_operators() -> list[str]:
    """All operators except internal ones and those that write to an argument."""
    names = (name.partition("::") for name in torch._C._dispatch_get_all_op_names())
    return sorted(n for space, _, n in names if space == "cppcuda" and re.fullmatch(r"[a-z]\w*[a-z0-9]", n))


over_operators = pytest.mark.parametrize("op", public_operators())


def test_there_are_operators() -> None:
    assert {"sigmoid", "trilinear", "lltm_cell", "hash_grid"} <= set(public_operators())


@over_operators
def test_public_header(op: str) -> None:
    include = cppcuda.config().include_path / "cppcuda"
    assert (include / f"ops/{op}.h").is_file()
    assert f"<cppcuda/ops/{op}.h>" in (include / "cppcuda.h").read_text()


@over_operators
def test_function(op: str) -> None:
    assert op in cppcuda.functional.__all__
    docstring = getattr(cppcuda.functional, op).__doc__ or ""
    assert [part for part, pattern in SECTIONS.items() if not re.search(pattern, docstring)] == []


@over_operators
def test_module(op: str) -> None:
    assert op.replace("_", "") in [name.lower() for name in cppcuda.nn.__all__]


@over_operators
def test_samples(op: str) -> None:
    assert any(entry.name == f"cppcuda::{op}" and entry.specs for entry in OPS), "no entry in tests/python/samples"


@over_operators
def test_calls_from_cpp(op: str) -> None:
    cases = (Path(__file__).parents[1] / "cpp/test_operators.cpp").read_text()
    assert f"cppcuda::{op}(" in cases, "tests/cpp/test_operators.cpp does not call it"


@over_operators
def test_kernels(op: str) -> None:
    keys = ["CPU", "CUDA"] if cppcuda.config().cuda_version else ["CPU"]
    keys += ["Meta", "Autograd", "FuncTorchBatched"]
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    assert [key for key in keys if not has_kernel(f"cppcuda::{op}", key)] == []


@over_operators
def test_sharding_rule(op: str) -> None:
    assert op in torch.ops.cppcuda._sharding_rule.overloads(), "the declaration has a tensor without a size pattern"


@over_operators
def test_column_of_the_support_matrix(op: str) -> None:
    page = Path(__file__).parents[2] / "docs/support.md"
    assert f"| `{op}` |" in page.read_text(), "tools/run support_matrix --write adds one"
