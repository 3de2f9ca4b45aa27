"""The operators on :class:`torch.distributed.tensor.DTensor`.

.. code-block:: python

    cppcuda.distributed.register_sharding()
    feats, points = (distribute_tensor(t, mesh, [Shard(0)]) for t in (feats, points))
    cppcuda.functional.trilinear(feats, points)  # each process computes its rows
"""

import functools
import string
from typing import Any

import torch

__all__ = ["register_sharding"]


def register_sharding(namespace: str = "cppcuda") -> None:
    """Tells DTensor how the operators of a namespace of ``torch.ops`` are sharded. Call it once in each process.

    The rules follow from the declarations of the operators, so this works for every library made with cppcuda's kit.

    An operator is sharded along the dims that it computes independently of each other: an elementwise operator along
    every dim, ``trilinear`` along points and features, ``upsample_bilinear2d`` along images and channels, ``lltm_cell``
    and ``lltm`` along the batch. An output without such a dim is a sum over it, and ``Partial``: the gradient for
    ``points`` where features are sharded, the gradients for ``weight`` and ``bias`` where the batch is.

    Inputs with other placements are redistributed first; DTensor refuses this for operators that write to their input.
    DTensor does not support operators that write to ``out`` or return nothing. An operator over lists of tensors is
    sharded if it returns tensors. Gradients of gradients use torch's own operators; DTensor in torch 2.11 shards some
    of them wrongly, in 2.15 none of those used here. Second derivatives of ``trilinear_indexed_with_grad``, and third
    ones of other operators whose points share a table, need as many points in each process, because DTensor does not
    merge dims of uneven shards. With dynamic sizes in ``torch.compile``, pass ``size`` to ``upsample_bilinear2d``:
    ``torch.compile`` fails on sizes of DTensors that were computed through a float, as those from ``scale_factor`` are.
    """
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo

    propagator = DTensor._op_dispatcher.sharding_propagator
    # torch.distributed.tensor.experimental.register_sharding would cache decisions by the tensors and ints of a call
    # only, not by output_size and output_mask. Here the cache key has all arguments, from number 0 on.
    by_all_arguments = RuntimeSchemaInfo(0, needs_pytree=True)
    ops = getattr(torch.ops, namespace)
    rules = getattr(ops, "_sharding_rule", None)
    if rules is None:
        raise ValueError(f"register_sharding: no operator of torch.ops.{namespace} has a rule; is its library loaded?")
    for rule in rules.overloads():
        # Such as "trilinear ...N_F,...N_->...NF ...FN": an operator, the dims of its tensors as in einsum, and the dims
        # along which it computes its parts independently. Elementwise tensors broadcast, and "...1" is an output with
        # the dims of tensor 1.
        name, dims, independent = getattr(rules, rule)().split(" ")
        packet, _, overload = name.partition(".")
        op = getattr(getattr(ops, packet), overload or "default")
        propagator.register_op_strategy(op, functools.partial(_strategy, dims, independent), by_all_arguments)


def _strategy(dims: str, independent: str, call: Any) -> Any:
    """The shardings of a call among which DTensor chooses; ``call`` is an ``OpSchema``."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor._op_schema import TupleStrategy
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

    schema = call.op._schema
    values = dict(zip((a.name for a in schema.arguments), call.args_schema, strict=False))  # without defaults
    values |= call.kwargs_schema
    tensors = [values.get(a.name) for a in schema.arguments if "Tensor" in str(a.type)]
    inputs, outputs = (side.split(",") if side else [] for side in dims.split("->"))
    lists: list[Any] = [t.children if isinstance(t, TupleStrategy) else [t] for t in tensors]
    given = [(n, t) for n, list_ in enumerate(lists) for t in list_ if t is not None]  # n: the number of the argument
    shapes = [tuple(t.shape[: t.ndim - len(inputs[n].replace("...", ""))]) for n, t in given]
    broadcast = torch.broadcast_shapes(*shapes)
    leading = string.ascii_lowercase[: len(broadcast)]

    def leading_of(shape: tuple[int, ...]) -> str:
        skipped = len(broadcast) - len(shape)
        sizes = zip(leading[skipped:], shape, broadcast[skipped:], strict=True)
        return "".join("." if size != whole else name for name, size, whole in sizes)

    dims_of = [(n, inputs[n].replace("...", leading_of(shape))) for (n, _), shape in zip(given, shapes, strict=True)]
    outputs = [dict(dims_of)[int(o[3:])] if o[3:].isdigit() else o.replace("...", leading) for o in outputs]
    inputs = [own for _, own in dims_of]
    computed = values.get("output_mask", [True] * len(outputs))

    def placements(dim: str) -> list[Any]:
        def sharded(tensor: str, otherwise: Any) -> Any:
            return Shard(tensor.index(dim)) if dim in tensor else otherwise

        of_outputs = [sharded(o, Partial()) if c else Replicate() for o, c in zip(outputs, computed, strict=True)]
        return of_outputs + [sharded(i, Replicate()) for i in inputs]

    nowhere = [Replicate()] * (len(outputs) + len(inputs))
    ways = [nowhere, *map(placements, independent.replace("...", leading))]
    in_place = call.is_inplace_op()
    mesh = given[0][1].mesh
    return expand_to_full_mesh_op_strategy(mesh, call, ways, input_index=len(outputs), inplace_op=in_place)
