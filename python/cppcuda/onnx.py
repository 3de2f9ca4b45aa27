"""The operators as ONNX graphs, for ``torch.onnx.export``. Needs the package ``onnxscript``, as the export itself does.

.. code-block:: python

    torch.onnx.export(model, args, "model.onnx", custom_translation_table=cppcuda.onnx.translation_table())
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["translation_table"]


def translation_table() -> dict[Callable[..., Any], Callable[..., Any]]:
    """What each operator is in ONNX, by operator: the ``custom_translation_table`` of :func:`torch.onnx.export`.

    Of opset 18, with operators that every runtime has: the graph needs no custom one. ``upsample_bilinear2d`` becomes
    ``Resize`` with the same ``coordinate_transformation_mode``.
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
        options = {"mode": "linear", "coordinate_transformation_mode": coordinate_transformation_mode}
        batch = op.Shape(input, start=0, end=2)
        if isinstance(output_size, Sequence):
            one_each = (op.Constant(value_ints=[s]) if isinstance(s, int) else s for s in output_size)
            size = op.Concat(*(op.Reshape(s, op.Constant(value_ints=[1])) for s in one_each), axis=0)
        else:
            size = output_size
        sizes = op.Concat(batch, size, axis=0)
        if scale_h is None and scale_w is None:
            return op.Resize(input, None, None, sizes, **options)
        ratio = op.Div(op.Cast(size, to=1), op.Cast(op.Shape(input, start=2, end=4), to=1))
        scales = [op.Constant(value_floats=[1.0, 1.0])]
        for dim, scale in enumerate((scale_h, scale_w)):
            given = scale is not None
            scales.append(
                op.Constant(value_floats=[scale]) if given else op.Gather(ratio, op.Constant(value_ints=[dim]))
            )
        return op.Resize(input, None, op.Concat(*scales, axis=0), **options)

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
