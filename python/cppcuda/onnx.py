"""The operators as ONNX graphs, for ``torch.onnx.export``. Needs the package ``onnxscript``, as the export itself does.

.. code-block:: python

    torch.onnx.export(model, args, "model.onnx", custom_translation_table=cppcuda.onnx.translation_table())
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["translation_table"]


def _resize_scale(scale: float) -> float:
    """What Resize gets for it. Sizes are products with it, which runtimes round in ways of their own. Where they are
    not exact it is a little more, so that no runtime's size is less than torch's; what is more has to be cut off.
    """
    bits = 8  # times 16 bits of a size are the 24 of a float32
    return scale if math.ldexp(math.frexp(scale)[0], bits).is_integer() else scale * (1 + 2**-22)


def translation_table() -> dict[Callable[..., Any], Callable[..., Any]]:
    """What each operator is in ONNX, by operator: the ``custom_translation_table`` of :func:`torch.onnx.export`.

    Of opset 18, with operators that every runtime has: the graph needs no custom one. ``upsample_bilinear2d`` becomes
    ``Resize`` with the same ``coordinate_transformation_mode``. (A dynamic size that follows from a scale
    like 0.29 torch's exporter computes in float32: of 100 pixels 29 in the graph, and 28 in torch. One that stands
    beside a scale in a call of the operator itself, and does not follow from it, is not looked at.)
    """
    from onnxscript import opset18

    op: Any = opset18  # its types know values, not the nodes that translations pass on

    def constant(value: float, like: Any) -> Any:
        return op.CastLike(op.Constant(value_float=value), like)

    def sigmoid(input: Any) -> Any:
        return op.Sigmoid(input)

    def quick_gelu(input: Any) -> Any:
        return op.Mul(input, op.Sigmoid(op.Mul(input, constant(1.702, input))))

    def trilinear(feats: Any, points: Any) -> Any:
        one, half = constant(1.0, points), constant(0.5, points)
        sides = op.Mul(op.Sub(one, points), half), op.Mul(op.Add(one, points), half)
        weights = None
        # Corner 4i + 2j + k has side i of the first axis, j of the second, k of the third.
        for axis, sides_of_corners in enumerate(([0] * 4 + [1] * 4, [0, 0, 1, 1] * 2, [0, 1] * 4)):
            columns = [op.Gather(side, op.Constant(value_ints=[axis]), axis=-1) for side in sides]
            factors = op.Gather(op.Concat(*columns, axis=-1), op.Constant(value_ints=sides_of_corners), axis=-1)
            weights = factors if weights is None else op.Mul(weights, factors)
        terms = op.Mul(op.Unsqueeze(op.CastLike(weights, feats), op.Constant(value_ints=[-1])), feats)
        return op.ReduceSum(terms, op.Constant(value_ints=[-2]), keepdims=0)

    def upsample_bilinear2d(
        input: Any,
        output_size: Sequence[Any],
        coordinate_transformation_mode: str = "half_pixel",
        scale_h: float | None = None,
        scale_w: float | None = None,
    ) -> Any:
        given = list(output_size) if isinstance(output_size, Sequence) else [None, None]
        if all(isinstance(s, int) for s in given) and given == list(input.shape)[2:]:
            return op.Identity(input)  # whatever the scales
        options = {"mode": "linear", "coordinate_transformation_mode": coordinate_transformation_mode}
        batch = op.Shape(input, start=0, end=2)
        if isinstance(output_size, Sequence):
            one_each = (op.Constant(value_ints=[s]) if isinstance(s, int) else s for s in output_size)
            size = op.Concat(*(op.Reshape(s, op.Constant(value_ints=[1])) for s in one_each), axis=0)
        else:
            size = output_size
        sizes = op.Concat(batch, size, axis=0)
        scales = {dim: s for dim, s in enumerate((scale_h, scale_w)) if s is not None}
        if not scales or coordinate_transformation_mode == "align_corners":
            return op.Resize(input, None, None, sizes, **options)
        cut = []
        for dim, scale in scales.items():
            scales[dim] = _resize_scale(scale)
            length, wanted = input.shape[2 + dim], given[dim]
            most = math.floor(length * scales[dim]) if isinstance(length, int) else None
            fixed = isinstance(wanted, int)
            if fixed and most is not None and wanted > most:
                raise ValueError(
                    f"upsample_bilinear2d: output_size must be {most} at most in ONNX, where {length} pixels are "
                    f"scaled by {scale}, got {wanted}"
                )
            if scales[dim] != scale or (fixed and wanted != most):
                cut.append(dim)
        both = op.Constant(value_floats=[1.0, 1.0, scales.get(0, 1.0), scales.get(1, 1.0)])
        result = op.Resize(input, None, both, **options)
        if cut:
            ends = op.Gather(size, op.Constant(value_ints=cut))
            axes = op.Constant(value_ints=[2 + dim for dim in cut])
            result = op.Slice(result, op.Constant(value_ints=[0] * len(cut)), ends, axes)
        # Resize takes scales or sizes.
        return result if len(scales) == 2 else op.Resize(result, None, None, sizes, **options)

    def lltm_cell_and_gates(input: Any, weight: Any, bias: Any, hx: Any, cx: Any) -> tuple[Any, Any, Any]:
        transposed = op.Transpose(weight, perm=[1, 0] if len(weight.shape) == 2 else [0, 2, 1])
        product = op.MatMul(op.Concat(hx, input, axis=-1), transposed)
        gates = op.Add(product, op.Unsqueeze(bias, op.Constant(value_ints=[-2])))
        input_gate, output_gate, candidate = op.Split(gates, axis=-1, num_outputs=3)
        change = op.Mul(op.Elu(candidate), op.Sigmoid(input_gate))
        cy = op.Add(cx, op.CastLike(change, cx))
        hy = op.Mul(op.CastLike(op.Tanh(cy), output_gate), op.Sigmoid(output_gate))
        return hy, cy, gates

    def lltm_cell(input: Any, weight: Any, bias: Any, hx: Any, cx: Any) -> tuple[Any, Any]:
        hy, cy, _ = lltm_cell_and_gates(input, weight, bias, hx, cx)
        return hy, cy

    ops = torch.ops.cppcuda
    return {
        ops.sigmoid.default: sigmoid,
        ops.quick_gelu.default: quick_gelu,
        ops.trilinear.default: trilinear,
        ops.upsample_bilinear2d.default: upsample_bilinear2d,
        ops.lltm_cell.default: lltm_cell,
        ops._lltm_cell.default: lltm_cell_and_gates,
    }
