"""The operators as ONNX graphs, for ``torch.onnx.export``. Needs the package ``onnxscript``, like the export itself.

.. code-block:: python

    torch.onnx.export(model, args, "model.onnx", custom_translation_table=cppcuda.onnx.translation_table())
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cppcuda import _hash_grid

__all__ = ["register", "translation_table"]

# TensorProto's numbers of types
FLOAT, INT64, BOOL, DOUBLE = 1, 7, 9, 11

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
    ``coordinate_transformation_mode``. ``grid_sample3d`` becomes ``GridSample``, which takes volumes since opset 20; if
    torch's default is older, pass ``opset_version=20``. It was tested with onnxruntime only.

    ``lltm`` becomes ``Scan``, for any number of steps. Splines of order 1 become ``GridSample``, except with the border
    ``"grid-wrap"``; ONNX has no operator for other orders, which are refused.

    ``trilinear_indexed`` becomes ``Gather``, or ``GatherND`` for a batch. The index -1 gathers a row of zeros that the
    graph adds to the table. What happens with other corners out of range is left to the runtime.

    torch's exporter computes a dynamic size that is derived from a scale in float32: with the scale 0.29 and 100
    pixels, the graph gives 29 where torch gives 28. If a call of the operator itself passes a scale and a dynamic size
    that does not follow from it, the size is not checked.
    """
    from onnxscript import evaluator, opset18, opset20

    op: Any = opset18  # its type annotations accept values, not graph nodes
    op20: Any = opset20

    def constant(value: float, like: Any) -> Any:
        return op.CastLike(op.Constant(value_float=value), like)

    def sigmoid(input: Any) -> Any:
        return op.Sigmoid(input)

    def quick_gelu(input: Any) -> Any:
        return op.Mul(input, op.Sigmoid(op.Mul(input, constant(1.702, input))))

    def trilinear(feats: Any, points: Any, differentiated: int | None = None) -> Any:
        """The interpolated features, or their derivative along an axis."""
        one, half = constant(1.0, points), constant(0.5, points)
        sides = op.Mul(op.Sub(one, points), half), op.Mul(op.Add(one, points), half)
        weights = None
        # Corner 4i + 2j + k has side i of the first axis, j of the second, k of the third.
        for axis, sides_of_corners in enumerate(([0] * 4 + [1] * 4, [0, 0, 1, 1] * 2, [0, 1] * 4)):
            if axis == differentiated:
                factors = op.CastLike(op.Constant(value_floats=[side - 0.5 for side in sides_of_corners]), points)
            else:
                columns = [op.Gather(side, op.Constant(value_ints=[axis]), axis=-1) for side in sides]
                factors = op.Gather(op.Concat(*columns, axis=-1), op.Constant(value_ints=sides_of_corners), axis=-1)
            weights = factors if weights is None else op.Mul(weights, factors)
        terms = op.Mul(op.Unsqueeze(op.CastLike(weights, feats), op.Constant(value_ints=[-1])), feats)
        return op.ReduceSum(terms, op.Constant(value_ints=[-2]), keepdims=0)

    def rows_of_corners(table: Any, corners: Any) -> Any:
        # The index -1 means the last row, which is the added row of zeros.
        one, batched = op.Constant(value_ints=[1]), len(table.shape) == 3
        leading = [op.Shape(table, start=0, end=1)] if batched else []
        row = op.Expand(constant(0.0, table), op.Concat(*leading, one, op.Shape(table, start=-1), axis=0))
        with_zeros = op.Concat(table, row, axis=-2)
        if not batched:
            return op.Gather(with_zeros, corners, axis=0)
        indices = op.Unsqueeze(op.Cast(corners, to=INT64), op.Constant(value_ints=[-1]))
        return op.GatherND(with_zeros, indices, batch_dims=1)

    def trilinear_indexed(table: Any, corners: Any, points: Any) -> Any:
        return trilinear(rows_of_corners(table, corners), points)

    def trilinear_indexed_with_grad(table: Any, corners: Any, points: Any) -> tuple[Any, Any]:
        feats = rows_of_corners(table, corners)
        last = op.Constant(value_ints=[-1])
        derivatives = (op.Unsqueeze(trilinear(feats, points, axis), last) for axis in range(3))
        return trilinear(feats, points), op.Concat(*derivatives, axis=-1)

    def sample_volume(name: str, input: Any, points: Any, axes: int, padding_mode: str, align_corners: bool) -> Any:
        """GridSample of a volume or, with two axes, of an image; `input` has the shape of the operator's argument."""
        opset = getattr(evaluator.default(), "opset", op20)
        if opset.version < 20:
            raise ValueError(f"{name}: opset_version must be at least 20 for volumes, got {opset.version}")
        batched, same_dtype = len(input.shape) == axes + 2, input.dtype == points[0].dtype
        values, grid = input if same_dtype else op.CastLike(input, points[0]), points[-1]
        own = list(range(1, axes + 1))
        if batched:
            volume = op.Transpose(values, perm=[0, axes + 1, *own])
            added, channels_last = own[1:], [0, 2, 1]
        else:
            volume = op.Unsqueeze(op.Transpose(values, perm=[axes, *(d - 1 for d in own)]), op.Constant(value_ints=[0]))
            added, channels_last = [0, *own[1:]], [1, 0]
        grid = op.Unsqueeze(grid, op.Constant(value_ints=added))
        options = {"mode": "linear", "padding_mode": padding_mode, "align_corners": int(align_corners)}
        sampled = op20.GridSample(volume, grid, **options)  # [B, F, N, 1, 1]
        removed = [*range(3, axes + 2)] if batched else [0, *range(3, axes + 2)]
        out = op.Transpose(op.Squeeze(sampled, op.Constant(value_ints=removed)), perm=channels_last)
        return out if same_dtype else op.CastLike(out, input)

    def grid_sample3d(input: Any, points: Any, padding_mode: str = "zeros", align_corners: bool = False) -> Any:
        return sample_volume("grid_sample3d", input, (points,), 3, padding_mode, align_corners)

    def spline_splat(name: str) -> Any:
        def translate(*_: Any) -> Any:
            raise ValueError(f"{name}: ONNX has no operator for splats")

        return translate

    def spline_sample(name: str) -> Any:
        # The padding of GridSample and whether its coordinates -1 and 1 are the centres of voxels
        padding = {"mirror": ("reflection", True), "reflect": ("reflection", False), "nearest": ("border", False)}
        padding["grid-constant"] = ("zeros", False)

        def translate(input: Any, points: Any, order: int = 3, border: str = "mirror") -> Any:
            if order != 1 or border not in padding:
                raise ValueError(f"{name}: ONNX has no operator for order {order} with the border '{border}'")
            axes = points.shape[-1]
            sizes = [float(size) for size in input.shape[-1 - axes : -1]]
            mode, at_centres = padding[border]
            if at_centres:  # 2 p / (size - 1) - 1
                factor, offset = [2 / max(size - 1, 1) for size in sizes], [-1.0] * axes
            else:  # (2 p + 1) / size - 1
                factor, offset = [2 / size for size in sizes], [1 / size - 1 for size in sizes]
            scaled = op.Add(
                op.Mul(points, op.CastLike(op.Constant(value_floats=factor), points)),
                op.CastLike(op.Constant(value_floats=offset), points),
            )
            grid = op.Gather(scaled, op.Constant(value_ints=list(range(axes))[::-1]), axis=-1)  # (x, y, z)
            return sample_volume(name, input, (points, grid), axes, mode, at_centres)

        return translate

    def spline_prefilter(name: str) -> Any:
        def translate(input: Any, order: int = 3, border: str = "mirror") -> Any:
            if order > 1:
                raise ValueError(f"{name}: ONNX has no operator for the filter of order {order}")
            return op.Identity(input)

        return translate

    def hash_grid(
        params: Any,
        points: Any,
        n_levels: int = 16,
        n_features_per_level: int = 2,
        log2_hashmap_size: int = 19,
        base_resolution: int = 16,
        per_level_scale: float = 2.0,
        interpolation: str = "Linear",
    ) -> Any:
        axes, batched = points.shape[-1], len(points.shape) == 3
        levels = _hash_grid.levels_of(axes, n_levels, log2_hashmap_size, base_resolution, per_level_scale)

        def of_levels(numbers: list[Any], *dims: int, to: int = INT64) -> Any:
            """A constant of dims that begin with the levels."""
            values = {"value_floats" if to == DOUBLE else "value_ints": numbers}
            return op.Reshape(op.Cast(op.Constant(**values), to=to), op.Constant(value_ints=[n_levels, *dims]))

        def integer(value: int) -> Any:
            return op.Constant(value_int=value)

        def unsqueeze(x: Any) -> Any:
            return op.Unsqueeze(x, op.Constant(value_ints=[-1]))

        # In double precision, in which the product of float32 numbers is exact; then rounded as by the kernels' fma.
        scaled = op.Mul(
            op.Cast(op.Unsqueeze(points, op.Constant(value_ints=[-2])), to=DOUBLE),
            of_levels([level.scale for level in levels], 1, to=DOUBLE),
        )
        position = op.Add(scaled, op.Cast(op.Constant(value_float=0.5), to=DOUBLE))
        if points.dtype != DOUBLE:
            position = op.Cast(position, to=FLOAT)
        floor = op.Floor(position)  # [B?, N, L, D]
        far = op.Sub(position, floor)
        if interpolation == "Smoothstep":
            far = op.Mul(op.Mul(far, far), op.Sub(constant(3.0, far), op.Mul(constant(2.0, far), far)))
        fits = op.Less(op.Abs(floor), constant(2.0**31, floor))
        vertex = op.Cast(op.Where(fits, floor, constant(0.0, floor)), to=INT64)

        # What follows has the last dims L, 1 or 2, 1 or 2, ...: the two sides of each axis.
        size = of_levels([level.rows for level in levels], *[1] * axes)
        mask, weights, dense, hashed = integer(2**log2_hashmap_size), None, None, None
        for axis in range(axes):
            last = op.Constant(value_ints=[axis])
            shape = [0] * (3 if batched else 2) + [1] * axis + [2] + [1] * (axes - axis - 1)

            def both(near: Any, far: Any, shape: list[int] = shape) -> Any:
                return op.Reshape(op.Concat(near, far, axis=-1), op.Constant(value_ints=shape))

            t = op.Gather(far, last, axis=-1)
            factors = both(op.Sub(constant(1.0, t), t), t)
            weights = factors if weights is None else op.Mul(weights, factors)
            v = op.Gather(vertex, last, axis=-1)
            sides = both(v, op.Add(v, integer(1)))
            strides = [0 if level.is_hashed else level.resolution**axis for level in levels]
            part = op.Mul(sides, of_levels(strides, *[1] * axes))
            dense = part if dense is None else op.Add(dense, part)
            # A hashed level has 2^log2_hashmap_size rows, so only the lowest bits count, whose product fits.
            part = op.Mul(op.Mod(sides, mask), integer(_hash_grid.PRIMES[axis] % 2**log2_hashmap_size))
            hashed = part if hashed is None else op.BitwiseXor(hashed, part)
        is_hashed = op.Cast(of_levels([int(level.is_hashed) for level in levels], *[1] * axes), to=BOOL)
        row = op.Where(is_hashed, op.Mod(hashed, mask), op.Mod(op.Mod(dense, integer(2**32)), size))
        row = op.Add(row, of_levels([level.first_row for level in levels], *[1] * axes))

        merged = op.Constant(value_ints=[0] * (3 if batched else 2) + [2**axes])  # all corners of a point at a level
        row, weights = op.Reshape(row, merged), op.Reshape(weights, merged)
        rows = levels[-1].first_row + levels[-1].rows
        table = op.Reshape(params, op.Constant(value_ints=[*[0] * batched, rows, n_features_per_level]))
        feats = op.GatherND(table, unsqueeze(row), batch_dims=1) if batched else op.Gather(table, row, axis=0)
        wide = params.dtype in (FLOAT, DOUBLE)
        terms = op.Mul(unsqueeze(weights), feats if wide else op.Cast(feats, to=FLOAT))
        sums = op.ReduceSum(terms, op.Constant(value_ints=[-2]), keepdims=0)  # [B?, N, L, C]
        columns = op.Constant(value_ints=[0] * (2 if batched else 1) + [n_levels * n_features_per_level])
        out = op.Reshape(sums, columns)
        return out if wide else op.CastLike(out, params)

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

    def lltm_and_steps(input: Any, weight: Any, bias: Any, h0: Any, c0: Any) -> tuple[Any, Any, Any, Any, Any]:
        from cppcuda._onnx_lltm import lltm_steps

        grouped = len(input.shape) == 4
        size = c0.shape[-1]
        transposed = op.Transpose(weight, perm=[0, 2, 1] if grouped else [1, 0])
        rows = [-2]
        of_state = op.Slice(transposed, [0], [size], rows)
        of_input = op.Slice(transposed, [size], [2**31 - 1], rows)
        if grouped:  # the steps come first
            input = op.Transpose(input, perm=[1, 0, 2, 3])
            bias = op.Unsqueeze(bias, op.Constant(value_ints=rows))
        gates = op.Add(op.MatMul(input, of_input), bias)
        output, hn, cn, cells, all_gates = lltm_steps(gates, of_state, h0, c0)
        if grouped:
            output, cells, all_gates = (op.Transpose(t, perm=[1, 0, 2, 3]) for t in (output, cells, all_gates))
        return output, hn, cn, cells, all_gates

    def lltm(input: Any, weight: Any, bias: Any, h0: Any, c0: Any) -> tuple[Any, Any, Any]:
        return lltm_and_steps(input, weight, bias, h0, c0)[:3]

    ops = torch.ops.cppcuda
    return {
        ops.sigmoid.default: sigmoid,
        ops.quick_gelu.default: quick_gelu,
        ops.trilinear.default: trilinear,
        ops.trilinear_indexed.default: trilinear_indexed,
        ops.trilinear_indexed_with_grad.default: trilinear_indexed_with_grad,
        ops.grid_sample3d.default: grid_sample3d,
        ops.spline_sample2d.default: spline_sample("spline_sample2d"),
        ops.spline_sample3d.default: spline_sample("spline_sample3d"),
        ops.spline_prefilter2d.default: spline_prefilter("spline_prefilter2d"),
        ops.spline_prefilter3d.default: spline_prefilter("spline_prefilter3d"),
        ops.spline_splat2d.default: spline_splat("spline_splat2d"),
        ops.spline_splat3d.default: spline_splat("spline_splat3d"),
        ops.hash_grid.default: hash_grid,
        ops.upsample_bilinear2d.default: upsample_bilinear2d,
        ops.lltm_cell.default: lltm_cell,
        ops._lltm_cell.default: lltm_cell_and_gates,
        ops.lltm.default: lltm,
        ops._lltm.default: lltm_and_steps,
        **_registered,
    }
