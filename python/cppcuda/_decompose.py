"""What Inductor does with the operators of a library, under ``torch.compile``.

Inductor calls an operator of a library as it is. Alone that is fastest. Between other pointwise operators, reading and
writing memory costs more than the operator itself, so this pass replaces it by its formula, which Inductor fuses. What
stays an operator and has a form that writes to ``out`` gets memory from Inductor, which uses it again. Importing this
module sets the pass in ``torch._inductor.config``.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import dropwhile
from operator import getitem
from typing import Any

import torch
import torch._inductor.config as inductor
import torch.utils._pytree as pytree
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from cppcuda._load import decomposed

Node = torch.fx.Node

# Operators that Inductor fuses through.
_VIEWS = {"alias", "detach", "expand", "permute", "reshape", "squeeze", "t", "transpose", "unsqueeze", "view"}
# What functions cost on the CPU, where Inductor's code takes up to twice the time of the kit's, or more.
_COST = dict.fromkeys(["cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "sigmoid", "sin", "sinh", "tanh"], 1)
_COST |= dict.fromkeys(["acos", "asin", "atan", "atan2", "log", "log1p", "log2", "pow", "tan"], 2)


class Decompose(CustomGraphPass):
    """Replaces elementwise operators that have pointwise neighbours by their formulas. Others write to ``out``."""

    def uuid(self) -> Any:
        return get_hash_for_files((__file__,), str(sorted(decomposed.items())))

    def __call__(self, graph: torch.fx.Graph) -> None:
        namespaces = {op.namespace for op in map(_operator, graph.nodes) if op} & decomposed.keys()
        formulas = {op: formula for namespace in namespaces for op, formula in _formulas(namespace)}
        traced = {node: _trace(formulas[node.target], node) for node in graph.nodes if node.target in formulas}
        replaced = {node: body for node, body in traced.items() if _has_strides_of(body, node)}
        count = -1
        while count != len(replaced):  # what stays a kernel is no neighbour of the others
            count = len(replaced)
            replaced = {node: body for node, body in replaced.items() if _is_faster(body, _count_fused(node, replaced))}
        for node, body in replaced.items():
            _replace(node, body)
        for op in {op for op in map(_operator, graph.nodes) if op and op.namespace in namespaces}:
            _let_write_to_out(op)


def _let_write_to_out(op: torch._ops.OpOverload) -> None:
    """Tells Inductor about the form of an operator that writes to ``out``, if it has one.

    From torch 2.13 on Inductor looks for the tag ``out``, and then in this table. What has the tag must work in all
    programs, but Inductor (2.15) passes tensors before other arguments, lists as their elements, and default values
    twice; its C++, as for AOTInductor, calls functions that do not exist; and calls of operators with several results
    fail if sizes are dynamic.
    """
    try:
        from torch._library._out_variant import _manual_out_variant_registry as forms
    except ImportError:
        return
    out = getattr(getattr(getattr(torch.ops, op.namespace), op._opname), "out", None)
    arguments = op._schema.arguments
    after_tensors = [str(a.type) for a in dropwhile(lambda a: str(a.type) == "Tensor", arguments)]
    is_plain = not any("Tensor" in t or "List" in t for t in after_tensors)
    is_plain &= not any(a.has_default_value() or a.kwarg_only for a in arguments)
    if out and is_plain and len(op._schema.returns) == 1 and not inductor.cpp_wrapper:
        forms[op] = out
    else:
        forms.pop(op, None)


def _formulas(namespace: str) -> Iterator[tuple[Any, Any]]:
    """The operators of a namespace that have a formula, each with it."""
    prefix = f"{namespace}::_decompose_"
    ops = getattr(torch.ops, namespace)
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith(prefix):
            operator = name.removeprefix(prefix)
            yield getattr(ops, operator).default, getattr(ops, f"_decompose_{operator}").default


def _trace(formula: Any, node: Node) -> torch.fx.Graph:
    """The formula as a graph of what Inductor compiles. Its placeholders are the tensors that the node reads."""
    from torch._inductor.pattern_matcher import fwd_only

    def call(*tensors: torch.Tensor) -> Any:
        values = dict(zip(node.all_input_nodes, tensors, strict=True))
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
        return formula(*args, **kwargs)

    tensors = [n.meta["val"] for n in node.all_input_nodes]
    with tensors[0].fake_mode:
        graph = fwd_only(call, tensors, run_functional_passes=False).graph
    graph.eliminate_dead_code()
    return graph


def _operator(node: Node) -> torch._ops.OpOverload | None:
    return node.target if isinstance(node.target, torch._ops.OpOverload) else None


def _name(node: Node) -> str:
    """The name of a node's operator of torch: "mul" for aten.mul.Tensor."""
    op = _operator(node)
    return op._overloadpacket.__name__ if op else ""


def _has_strides_of(body: torch.fx.Graph, node: Node) -> bool:
    """Whether the results have the same strides. torch's operators order memory otherwise if layouts are mixed."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    computed = pytree.tree_leaves(body.find_nodes(op="output")[0].args)
    expected = pytree.tree_leaves(node.meta["val"])
    return all(
        statically_known_true(a == b)
        for new, old in zip(computed, expected, strict=True)
        if new is not None  # an unrequested gradient
        for a, b in zip(new.meta["val"].stride(), old.stride(), strict=True)
    )


def _is_faster(body: torch.fx.Graph, fused: int) -> bool:
    """Whether a formula that is fused with so many neighbours is faster than the kernel (docs/performance.md)."""
    names = [_name(n) for n in body.nodes]
    if fused == 0 or "sum" in names:  # the kernel adds up the gradient of a tensor that broadcasts
        return False
    value = body.find_nodes(op="placeholder")[0].meta["val"]
    if value.device.type != "cpu":
        return True
    return value.dtype.itemsize > 2 and fused >= sum(_COST.get(name, 0) for name in names)


def _count_fused(node: Node, replaced: Container[Node]) -> int:
    """The tensors that a formula would not read from memory, and 1 if the result would not be written for others."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    def nearest(edges: str, start: Node) -> Iterator[Node]:
        for n in getattr(start, edges):
            if _name(n) in _VIEWS or n.target is getitem:
                yield from nearest(edges, n)
            else:
                yield n

    def is_pointwise(other: Node) -> bool:
        op = _operator(other)
        if op is None or torch.Tag.pointwise not in op.tags:
            return False
        return other in replaced or op.namespace in ("aten", "prims")

    def sizes(n: Node) -> list[Any]:
        return [value.numel() for value in pytree.tree_leaves(n.meta["val"])]

    # A tensor that broadcasts, such as a bias, is smaller than the result, so reading it takes little time.
    sources = [
        source
        for source in nearest("all_input_nodes", node)
        if is_pointwise(source) and any(statically_known_true(a == b) for a in sizes(source) for b in sizes(node))
    ]
    users = list(nearest("users", node))
    return len(sources) + (bool(users) and all(map(is_pointwise, users)))


def _replace(node: Node, body: torch.fx.Graph) -> None:
    graph = node.graph
    placeholders = body.find_nodes(op="placeholder")
    copies = dict(zip(placeholders, node.all_input_nodes, strict=True))
    with graph.inserting_before(node):
        result: Any = graph.graph_copy(body, copies)
    for new in set(copies.values()) - set(node.all_input_nodes):
        new.meta = {**node.meta, **new.meta}
    if isinstance(result, Node):
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):  # getitem
            user.replace_all_uses_with(result[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)


if inductor.joint_custom_pre_pass is None:  # the user has set none
    inductor._config["joint_custom_pre_pass"].default = Decompose()  # type: ignore[attr-defined]  # for all threads
