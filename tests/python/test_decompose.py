"""Elementwise operators that Inductor compiles together with their neighbours (cppcuda/_decompose.py)."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cppcuda
import pytest
import torch
from cppcuda import _load
from cppcuda.testing.samples import FLOAT_DTYPES, OPS, OpEntry
from support import over_ops, run_python
from torch import Tensor
from torch.torch_version import TorchVersion

LIBRARY = os.environ.get("CPPCUDA_SECOND_LIBRARY")
if LIBRARY:
    torch.ops.load_library(LIBRARY)
    _load.allow_decomposition("second", Path(LIBRARY))
ops, second = torch.ops.cppcuda, torch.ops.second
X, Y, BIAS = torch.randn(3, 4, 5), torch.randn(3, 4, 5), torch.randn(5)


def in_code(call: Callable[[], Any]) -> tuple[Any, list[list[str]]]:
    """What a call returns, and for each graph that it compiles, "fused" for its kernels and the operators it calls."""
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    result, codes = run_and_get_code(call)
    names = [re.findall(r"^ +(?:\w+ = )?(cpp_fused|torch\.ops\.\w+\.\w+)\w*[.(]", c, re.M) for c in codes]
    return result, [["fused" if n == "cpp_fused" else n.split(".")[-1] for n in found] for found in names]


def in_graphs(function: Callable[..., Tensor], *args: Any, **options: Any) -> list[list[str]]:
    """The same for the forward and backward graphs of a function, whose results must be right."""
    compiled = torch.compile(function, fullgraph=True, **options)
    tensors = [t.clone().requires_grad_() for t in args if isinstance(t, Tensor)]

    def both(f: Callable[..., Tensor]) -> list[Tensor]:
        values = iter(tensors)
        result = f(*(next(values) if isinstance(a, Tensor) else a for a in args))
        return [result, *torch.autograd.grad(result, tensors, torch.linspace(-1, 1, result.numel()).view(result.shape))]

    actual, names = in_code(lambda: both(compiled))
    torch.testing.assert_close(actual, both(function), rtol=1e-4, atol=1e-5)
    return names


@pytest.mark.compiles
@pytest.mark.parametrize("dynamic", [False, True])
def test_neighbours_become_one_kernel(dynamic: bool) -> None:
    def function(x: Tensor, b: Tensor, y: Tensor) -> Tensor:
        return ops.quick_gelu(x + b) * y

    assert in_graphs(function, X, Y, Y, dynamic=dynamic) == [["fused"], ["fused"]]


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("function", "args", "names"),
    [
        (lambda x: ops.quick_gelu(x), (X,), [["quick_gelu"], ["_quick_gelu_backward"]]),
        (lambda x: ops.quick_gelu(x).sum(-1), (X,), [["quick_gelu", "fused"], ["_quick_gelu_backward"]]),
        (lambda x: ops.sigmoid(ops.sigmoid(x)), (X,), [["fused"], ["fused"]]),
        (lambda x: ops.sigmoid((x * 2).view(-1, 5)).unsqueeze(1), (X,), [["fused"], ["fused"]]),
        # The scaled bias is smaller than what reads it.
        (
            lambda b: ops.quick_gelu((b * 2).expand(3, 4, 5)),
            (BIAS,),
            [["fused", "quick_gelu"], ["_quick_gelu_backward", "fused"]],
        ),
        # The formula of the gradient calls two functions, and fusing it would save reading one tensor.
        (lambda x: ops.quick_gelu(x + 1), (X,), [["fused"], ["_quick_gelu_backward"]]),
        (
            lambda x: ops.quick_gelu(x + 1) * 2,
            (X.bfloat16(),),
            [["fused", "quick_gelu", "fused"], ["fused", "_quick_gelu_backward"]],
        ),
    ],
    ids=["alone", "sum", "two", "views", "small", "cost", "bfloat16"],
)
def test_only_what_is_next_to_pointwise_operators(
    function: Callable[..., Tensor], args: tuple[Tensor, ...], names: list[list[str]]
) -> None:
    assert in_graphs(function, *args) == names


@pytest.mark.compiles
@pytest.mark.skipif(TorchVersion(torch.__version__) < "2.13", reason="Inductor calls no .out")
@pytest.mark.parametrize("dynamic", [False, True])
def test_operators_write_to_memory_that_is_used_again(dynamic: bool, tmp_path: Path) -> None:
    """Also after another graph of the same operators was compiled for C++, where they do not."""
    from torch._inductor.utils import run_and_get_code

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = ops.quick_gelu(ops.sigmoid(ops.quick_gelu(ops.sigmoid(x))))
        return y, ops.sigmoid(y)

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return function(x)

    x = torch.randn(64, 40, dtype=torch.bfloat16)  # which formulas do not replace
    for _ in range(2):
        torch._dynamo.reset()
        with torch.no_grad():
            result, (code,) = run_and_get_code(torch.compile(function, fullgraph=True, dynamic=dynamic), x)
        torch.testing.assert_close(result, function(x), rtol=0, atol=0)
        calls = re.findall(r"^ +torch\.ops\.cppcuda\.\w+\.out\(\w+, out=\w+\)", code, re.M)
        assert len(calls) == 5 and code.count("ops.cppcuda.") == 5
        assert len(re.findall(r"= empty_strided\w*\(", code)) == 2 and code.count("# reuse") == 3
        aot = torch._inductor.aoti_compile_and_package(
            torch.export.export(Model(), (x,)), package_path=str(tmp_path / "program.pt2")
        )
        torch.testing.assert_close(torch._inductor.aoti_load_package(aot)(x), function(x), rtol=0, atol=0)


@pytest.mark.compiles
@pytest.mark.skipif(not LIBRARY, reason="CPPCUDA_SECOND_LIBRARY is not set (scripts/test sets it)")
def test_several_tensors_and_attributes() -> None:
    def function(x: Tensor, center: Tensor, height: Tensor, width: float) -> Tensor:
        return second.lorentzian(x, center, height, width) * 3

    assert in_graphs(function, X, X, Y, 0.5) == [["fused"], ["fused"]]
    # A neighbour may have several results, as the gradient of `gated` has.
    assert in_graphs(lambda x, y: second.gated(ops.sigmoid(x + y), y), X, Y)[0] == ["fused"]
    # softplus stays a kernel, so no neighbour of sigmoid is fused.
    assert in_graphs(lambda x: ops.sigmoid(second.softplus(x)), X)[0] == ["softplus", "sigmoid"]
    # The kernel adds up the gradient of a tensor that broadcasts.
    assert in_graphs(function, X, BIAS, Y, 0.5)[1] == ["fused", "_lorentzian_backward"]


@over_ops([e for e in OPS if hasattr(ops, f"_decompose_{e.base_name}")])
@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_a_decomposition_computes_what_its_operator_does(entry: OpEntry, dtype: torch.dtype) -> None:
    sample = entry.sample("basic", dtype)
    actual = getattr(ops, f"_decompose_{entry.base_name}")(*sample.args)
    torch.testing.assert_close(actual, entry.op(*sample.args))


@pytest.mark.compiles
@pytest.mark.skipif(not LIBRARY, reason="CPPCUDA_SECOND_LIBRARY is not set (scripts/test sets it)")
def test_results_keep_their_strides() -> None:
    """torch's operators order memory otherwise than the kit's if the layouts of their inputs are mixed."""
    x, y = torch.randn(1, 3, 1, 5), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()

    def function(x: Tensor, y: Tensor) -> Tensor:
        return second.gated(x * 2, y + x)

    assert torch.compile(function)(x, y).stride() == function(x, y).stride() == (60, 1, 15, 3)


@pytest.mark.skipif(not LIBRARY, reason="CPPCUDA_SECOND_LIBRARY is not set (scripts/test sets it)")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("lorentzian", (X, BIAS, Y, 0.3)),
        ("blend", (X, BIAS, 3, True, 0.5, 1.5)),
        ("gated", (X, BIAS)),
        ("softplus", (X,)),
    ],
)
def test_a_decomposition_has_all_arguments(name: str, args: tuple[Any, ...], dtype: torch.dtype) -> None:
    args = tuple(a.to(dtype) if isinstance(a, Tensor) else a for a in args)
    tensors = [a for a in args if isinstance(a, Tensor)]

    def check(operator: str, *args: Any) -> None:
        expected = getattr(second, operator)(*args)
        actual = getattr(second, f"_decompose_{operator}")(*args)
        torch.testing.assert_close(actual, expected)

    check(name, *args)
    backward = f"_{name}_backward"
    if len(tensors) == 1:
        return check(backward, Y.to(dtype), *args)
    check(backward, Y.to(dtype), *args, [True] * len(tensors))
    mask = [False] * (len(tensors) - 1) + [True]
    assert getattr(second, f"_decompose_{backward}")(Y.to(dtype), *args, mask)[0] is None


@pytest.mark.compiles
def test_it_can_be_turned_off_for_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor) -> Tensor:
        return ops.quick_gelu(x + 1) * 2

    kernels = [["fused", "quick_gelu", "fused"], ["fused", "_quick_gelu_backward"]]
    assert in_graphs(function, X, options={"joint_custom_pre_pass": None}) == kernels
    monkeypatch.delitem(_load.decomposed, "cppcuda")
    assert in_graphs(function, X) == kernels  # not what the cache has for the same graph


def test_it_is_never_in_an_exported_program() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return ops.quick_gelu(x + 1) * 2

    program = torch.export.export(Module(), (X,)).run_decompositions()
    assert [n.target for n in program.graph.nodes if "quick_gelu" in n.name] == [ops.quick_gelu.default]


def test_inductor_is_not_imported_for_it() -> None:
    code = """
import sys, threading, cppcuda
assert "torch._inductor.config" not in sys.modules
import torch._inductor.config as config
found = []
def look():
    found.append(type(config.joint_custom_pre_pass).__name__)
thread = threading.Thread(target=look)
look()
thread.start()
thread.join()
assert found == ["Decompose"] * 2, found
"""
    run_python(code)
    own = "import torch._inductor.config as config\nmine = config.joint_custom_pre_pass = lambda graph: None\n"
    run_python(own + "import cppcuda, cppcuda._decompose\nassert config.joint_custom_pre_pass is mine")


def test_the_cache_of_compiled_graphs_knows_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    from cppcuda._decompose import Decompose

    first = Decompose().uuid()
    assert first == Decompose().uuid()
    monkeypatch.setitem(_load.decomposed, "cppcuda", "another build")
    assert Decompose().uuid() != first


def test_it_can_be_turned_off_for_a_library_and_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(_load.decomposed, "cppcuda")
    package = cppcuda.cmake_prefix_path()
    cppcuda.load_library("cppcuda", package, decompose=False)
    assert "cppcuda" not in _load.decomposed
    monkeypatch.setenv("CPPCUDA_DECOMPOSE", "0")
    cppcuda.load_library("cppcuda", package)
    assert "cppcuda" not in _load.decomposed
    monkeypatch.delenv("CPPCUDA_DECOMPOSE")
    cppcuda.load_library("cppcuda", package)
    assert "cppcuda" in _load.decomposed
