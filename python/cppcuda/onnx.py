"""The operators as ONNX graphs, for ``torch.onnx.export``. Needs the package ``onnxscript``, like the export itself.

.. code-block:: python

    torch.onnx.export(model, args, "model.onnx", custom_translation_table=cppcuda.onnx.translation_table())
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["register", "translation_table"]

_registered: dict[Callable[..., Any], Callable[..., Any]] = {}


def register(op: Callable[..., Any], translation: Callable[..., Any]) -> None:
    """Adds the translation of an operator of another namespace, such as ``torch.ops.my_ops.swish.default``.

    A translation is a function of ``onnxscript`` values, as ``torch.onnx.export`` takes it.
    """
    _registered[op] = translation


def _resize_scale(scale: float) -> float:
    """The scale to pass to Resize. Runtimes multiply sizes by it and round the result differently. If the product is
    not exact, the returned scale is slightly larger, so that no runtime's size is less than torch's; excess rows and
    columns must be cut off.
    """
    bits = 8  # 8 bits times the 16 bits of a size fit in the 24 of a float32
    return scale if math.ldexp(math.frexp(scale)[0], bits).is_integer() else scale * (1 + 2**-22)


def translation_table() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The ONNX translation of each operator: the ``custom_translation_table`` of :func:`torch.onnx.export`. It includes
    those that :func:`register` added.

    The graphs use standard operators of opset 18. ``upsample_bilinear2d`` becomes ``Resize`` with the same
    ``coordinate_transformation_mode``.

    torch's exporter computes a dynamic size that is derived from a scale in float32: with the scale 0.29 and 100
    pixels, the graph gives 29 where torch gives 28. If a call of the operator itself passes a scale and a dynamic size
    that does not follow from it, the size is not checked.
    """
    from onnxscript import opset18

    op: Any = opset18  # its type annotations accept values, not graph nodes

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
            length, expected = input.shape[2 + dim], given[dim]
            max_size = math.floor(length * scales[dim]) if isinstance(length, int) else None
            fixed = isinstance(expected, int)
            if fixed and max_size is not None and expected > max_size:
                raise ValueError(
                    f"upsample_bilinear2d: output_size must be at most {max_size} in ONNX if {length} pixels are "
                    f"scaled by {scale}, got {expected}"
                )
            if scales[dim] != scale or (fixed and expected != max_size):
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
        **_registered,
    }
