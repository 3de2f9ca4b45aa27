"""The operators as functions. They call the registered operators, so exported files need no Python."""

import math
import operator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

__all__ = [
    "grid_sample3d",
    "hash_grid",
    "lltm",
    "lltm_cell",
    "quick_gelu",
    "quick_gelu_",
    "sigmoid",
    "sigmoid_",
    "spline_prefilter2d",
    "spline_prefilter3d",
    "spline_sample2d",
    "spline_sample3d",
    "spline_splat2d",
    "spline_splat3d",
    "trilinear",
    "trilinear_indexed",
    "trilinear_indexed_with_grad",
    "upsample_bilinear2d",
]

# Unlike torch's, `out` is not keyword-only, because TorchScript does not support keyword-only arguments with a default.
# TorchScript knows the types and drops the code under `if not isinstance(...)`. In eager mode the check takes about
# 15 ns.


def _check_tensors(op: str, **arguments: Any) -> None:
    """Raises TypeError for an argument that is neither a tensor nor a stand-in for one, such as a proxy of torch.fx."""
    for name, argument in arguments.items():
        if not isinstance(argument, Tensor) and not has_torch_function_unary(argument):
            raise TypeError(f"{op}: {name} must be a Tensor, got {type(argument).__name__}")


def sigmoid(input: Tensor, out: Tensor | None = None) -> Tensor:
    r"""The logistic function, elementwise.

    .. math::
        \text{out} = \frac{1}{1 + e^{-\text{input}}}

    Args:
        input: any shape, of dtype float64, float32, float16 or bfloat16, with any strides.
        out: the tensor for the result, for inference loops that must not allocate, with the shape, dtype and device
            of ``input`` and any strides. It may be ``input`` itself, but must not overlap it otherwise. The call is not
            differentiable, and raises an error if autograd would lose a gradient.

    Returns:
        ``out`` if it is given, otherwise a new tensor with the shape and dtype of ``input``. A dense input of any
        layout (channels_last, permuted) is processed in memory order, and its strides are kept. 16-bit input is
        computed in float32.

    The gradient is :math:`\text{grad} \cdot \text{out} (1 - \text{out})`. It reads only the output, so
    the input is not kept alive. The operator is differentiable any number of times, in reverse and forward mode.

    NaN and infinities give the same results as in :func:`torch.sigmoid`. Autocast does not change the dtype.

    Raises:
        TypeError: if an argument is not a tensor.
        RuntimeError: for other dtypes or layouts; if ``out`` has another shape, dtype or device, or overlaps ``input``;
            if the call would lose a gradient.
    """
    if not isinstance(input, Tensor):
        _check_tensors("sigmoid", input=input)
    if out is None:
        return torch.ops.cppcuda.sigmoid(input)
    if not isinstance(out, Tensor):
        _check_tensors("sigmoid", out=out)
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        torch.ops.cppcuda.sigmoid(input, out=out)
    else:  # Name the overload: resolution would try `default` first, which takes longer than a small tensor.
        torch.ops.cppcuda.sigmoid.out(input, out=out)
    return out


def sigmoid_(input: Tensor) -> Tensor:
    """:func:`sigmoid` in place, for inference. Raises an error if autograd would lose a gradient."""
    if not isinstance(input, Tensor):
        _check_tensors("sigmoid_", input=input)
    torch.ops.cppcuda.sigmoid_(input)
    return input


def quick_gelu(input: Tensor, out: Tensor | None = None) -> Tensor:
    r"""The activation of CLIP-style models, elementwise.

    .. math::
        \text{out} = \text{input} \cdot \sigma(1.702 \, \text{input})

    Args:
        input: any shape, of dtype float64, float32, float16 or bfloat16, with any strides.
        out: the tensor for the result, for inference loops that must not allocate, with the shape, dtype and device
            of ``input`` and any strides. It may be ``input`` itself, but must not overlap it otherwise. The call is not
            differentiable, and raises an error if autograd would lose a gradient.

    Returns:
        ``out`` if it is given, otherwise a new tensor with the shape and dtype of ``input``. A dense input of any
        layout (channels_last, permuted) is processed in memory order, and its strides are kept. 16-bit input is
        computed in float32.

    With :math:`k = 1.702, s = \sigma(k \, \text{input})` the gradient is
    :math:`\text{grad} (s + k \, \text{input} \, s (1 - s))`, which needs only the input. The
    operator is differentiable any number of times, in reverse and forward mode.

    NaN and infinities give the same results as the formula in plain torch. Autocast does not change the dtype.

    Raises:
        TypeError: if an argument is not a tensor.
        RuntimeError: for other dtypes or layouts; if ``out`` has another shape, dtype or device, or overlaps ``input``;
            if the call would lose a gradient.

    The method is from D. Hendrycks and K. Gimpel, "Gaussian error linear units (GELUs)", 2016, section 2.
    """
    if not isinstance(input, Tensor):
        _check_tensors("quick_gelu", input=input)
    if out is None:
        return torch.ops.cppcuda.quick_gelu(input)
    if not isinstance(out, Tensor):
        _check_tensors("quick_gelu", out=out)
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        torch.ops.cppcuda.quick_gelu(input, out=out)
    else:  # Name the overload: resolution would try `default` first, which takes longer than a small tensor.
        torch.ops.cppcuda.quick_gelu.out(input, out=out)
    return out


def quick_gelu_(input: Tensor) -> Tensor:
    """:func:`quick_gelu` in place, for inference. Raises an error if autograd would lose a gradient."""
    if not isinstance(input, Tensor):
        _check_tensors("quick_gelu_", input=input)
    torch.ops.cppcuda.quick_gelu_(input)
    return input


def lltm(input: Tensor, weight: Tensor, bias: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""An LLTM over a sequence: :func:`lltm_cell` for each step, with its weights.

    .. math::
        h_t, c_t = \operatorname{lltm\_cell}(\text{input}_t, \text{weight}, \text{bias}, h_{t - 1}, c_{t - 1})

    Args:
        input: ``[T, B, I]``, of dtype float64, float32, float16 or bfloat16. All arguments may have any strides.
        weight: ``[3S, S + I]``, whose first S columns multiply the state, in the dtype of ``input``.
        bias: ``[3S]``, in the dtype of ``input``.
        h0: ``[B, S]``, the state before the first step, in the dtype of ``input``.
        c0: ``[B, S]``, in the dtype of ``input``. It may be float32 if the others have 16 bits, because a sum over a
            whole sequence loses too much precision in bfloat16.

    Returns:
        ``(output, hn, cn)``: ``output`` is ``[T, B, S]``, :math:`h_t` of every step; ``hn`` and ``cn`` are ``[B, S]``,
        the state after the last step, or ``h0`` and ``c0`` if T is 0. All are contiguous, in the dtypes of ``h0`` and
        ``c0``. They are those of the cell, step by step, but for rounding: the products of all inputs are one matrix
        product, and those of the state are added to it.

    If every argument has one more dim G in front, one call computes a group of G sequences, each with weights of its
    own. T, G, B, I and S may be 0.

    The first derivative in reverse mode is one pass over the steps, with one matrix product for the gradient of
    ``weight``. The operator is differentiable any number of times, in reverse and forward mode; forward mode and higher
    orders go through the cell step by step. For a gradient the call saves its arguments and, per step and row, 3S gates
    and S cell states; also ``output``, for the gradient of ``weight``.

    States of up to 512 features on the CPU, and of up to 128 on a GPU (64 in float64), take one kernel per direction,
    whose threads or blocks take rows: it has the same bits for any number of threads. Larger states take a matrix
    product and a kernel per step. The products of ``input`` and, on a GPU, the gradient of ``weight`` are torch's own
    matmul.

    Under autocast ``c0`` and ``cn`` are float32 and the other tensors have the autocast dtype; float64 is not changed.

    Raises:
        TypeError: if an argument is not a tensor.
        RuntimeError: for other ranks, sizes, dtypes or layouts, or if the devices differ.

    The cell comes from PyTorch's tutorial on C++ extensions (P. Goldsborough, 2018).
    """
    if not (
        isinstance(input, Tensor)
        and isinstance(weight, Tensor)
        and isinstance(bias, Tensor)
        and isinstance(h0, Tensor)
        and isinstance(c0, Tensor)
    ):
        _check_tensors("lltm", input=input, weight=weight, bias=bias, h0=h0, c0=c0)
    return torch.ops.cppcuda.lltm(input, weight, bias, h0, c0)


def lltm_cell(input: Tensor, weight: Tensor, bias: Tensor, hx: Tensor, cx: Tensor) -> tuple[Tensor, Tensor]:
    r"""One step of an LLTM: a recurrent cell without a forget gate, whose candidate uses elu.

    With :math:`(g_0, g_1, g_2) = [\text{hx}, \text{input}] \, \text{weight}^T + \text{bias}`, each with S columns,

    .. math::
        i = \sigma(g_0), \quad o = \sigma(g_1), \quad c = \operatorname{elu}(g_2), \qquad
        \text{cy} = \text{cx} + c \, i, \quad \text{hy} = \tanh(\text{cy}) \, o

    Args:
        input: ``[B, I]``, of dtype float64, float32, float16 or bfloat16. All arguments may have any strides.
        weight: ``[3S, S + I]``, whose first S columns multiply ``hx``, in the dtype of ``input``.
        bias: ``[3S]``, in the dtype of ``input``.
        hx: ``[B, S]``, in the dtype of ``input``.
        cx: ``[B, S]``, in the dtype of ``input``. It may be float32 if the others have 16 bits, because a sum over a
            whole sequence loses too much precision in bfloat16.

    Returns:
        ``(hy, cy)``, ``[B, S]`` each, contiguous, in the dtypes of ``hx`` and ``cx``. The gates are rounded to the
        dtype of ``input``, like the result of a linear layer; for 16 bits everything else is computed in float32. The
        matrix products are torch's own matmul, with its settings (``torch.backends.cuda.matmul``), except in small
        cells.

    If every argument has one more dim G in front, one call computes a group of G cells. G, B, I and S may be 0.

    Gradients, with :math:`a = \text{grad}_\text{cy} + \text{grad}_\text{hy} \, o \, (1 - \tanh^2 \text{cy})` for
    ``cx``: :math:`d = (a \, c \, i (1 - i), \; \text{grad}_\text{hy} \tanh(\text{cy}) \, o (1 - o), \;
    a \, i \operatorname{elu}'(g_2))` for the gates, :math:`d \, \text{weight}` for ``hx`` and ``input``,
    :math:`d^T [\text{hx}, \text{input}]` for ``weight`` and the sum of d over rows for ``bias``. The operator is
    differentiable any number of times, in reverse and forward mode. The derivative of elu is 1 at 0, as in torch, and
    no exponential overflows. The call saves the gates and ``cx``; also ``weight`` for the gradients of ``hx`` and
    ``input``, and ``hx`` and ``input`` for the gradient of ``weight``.

    Under autocast ``cx`` and ``cy`` are float32 and the other tensors have the autocast dtype; float64 is not changed.

    Raises:
        TypeError: if an argument is not a tensor.
        RuntimeError: for other ranks, sizes, dtypes or layouts, or if the devices differ.

    The cell comes from PyTorch's tutorial on C++ extensions (P. Goldsborough, 2018), which introduces it as an LSTM
    without a forget gate and with an elu for the candidate.
    """
    if not (
        isinstance(input, Tensor)
        and isinstance(weight, Tensor)
        and isinstance(bias, Tensor)
        and isinstance(hx, Tensor)
        and isinstance(cx, Tensor)
    ):
        _check_tensors("lltm_cell", input=input, weight=weight, bias=bias, hx=hx, cx=cx)
    return torch.ops.cppcuda.lltm_cell(input, weight, bias, hx, cx)


def trilinear(feats: Tensor, points: Tensor) -> Tensor:
    r"""Trilinear interpolation of the eight corner features of a voxel, at one point per voxel.

    With :math:`(u, v, w) = (\text{points}_n + 1) / 2`,

    .. math::
        \text{out}_{nf} = \sum_{i,j,k \in \{0,1\}} u_i v_j w_k \, \text{feats}_{n,\,4i+2j+k,\,f},
        \qquad t_0 = 1 - t, \; t_1 = t

    that is, corner ``c`` of voxel ``n`` is ``feats.view(N, 2, 2, 2, F)[n, i, j, k]``. Outside [-1, 1] the
    interpolant continues, linear in each coordinate.

    Other corner orders need no option: swap two columns of ``points`` to swap two axes of the corners.

    Args:
        feats: ``[N, 8, F]``, of dtype float64, float32, float16 or bfloat16, with any strides.
        points: ``[N, 3]``, coordinates in [-1, 1], in the dtype of ``feats``, with any strides. They may be float32 if
            ``feats`` have 16 bits, because positions lose too much precision in bfloat16.

    Returns:
        ``[N, F]``, contiguous, in the dtype of ``feats``. For 16-bit ``feats`` sums are taken in float32.

    A batch ``[B, N, 8, F]`` with ``[B, N, 3]`` gives ``[B, N, F]``. N, B and F may be 0.

    Gradients, for :math:`w_c` the weight of corner c: :math:`w_c \, \text{grad}_{nf}` for ``feats``, and
    :math:`\sum_{cf} \partial_k w_c \, \text{feats}_{ncf} \, \text{grad}_{nf}` for coordinate k of ``points``.
    The operator is differentiable any number of times, in reverse and forward mode. First and second derivatives, such
    as those of an eikonal loss, are computed in one pass each. Results have the same bits on every run.

    Under autocast ``feats`` keep their dtype and 16-bit ``points`` become float32.

    Raises:
        TypeError: if an argument is not a tensor.
        RuntimeError: for other ranks, sizes, dtypes or layouts, or if the devices differ.

    The method is textbook trilinear interpolation (P. Bourke, "Interpolation methods", 1999) in the product form, whose
    weights do not suffer from cancellation near the corners.
    """
    if not (isinstance(feats, Tensor) and isinstance(points, Tensor)):
        _check_tensors("trilinear", feats=feats, points=points)
    return torch.ops.cppcuda.trilinear(feats, points)


def grid_sample3d(input: Tensor, points: Tensor, padding_mode: str = "zeros", align_corners: bool = False) -> Tensor:
    r"""Samples a volume of feature vectors at points, by trilinear interpolation, with the conventions of
    :func:`torch.nn.functional.grid_sample`.

    .. math::
        \text{out}_{nf} = \sum_{i_z,i_y,i_x} \max(0, 1 - |z - i_z|) \, \max(0, 1 - |y - i_y|) \,
        \max(0, 1 - |x - i_x|) \, \text{input}_{i_z,i_y,i_x,f}

    where :math:`x, y, z` are the positions of point :math:`n` along W, H and D. For a coordinate :math:`p` along an
    axis of :math:`S` voxels, the position is :math:`((p + 1) S - 1) / 2`, so that -1 and 1 are the outer faces of the
    first and the last voxel, or with ``align_corners`` :math:`(p + 1) (S - 1) / 2`, so that they are their centres.

    Args:
        input: ``[D, H, W, F]``, of dtype float64, float32, float16 or bfloat16, with any strides. D, H and W are 1 to
            2**30. For the volume ``[B, F, D, H, W]`` of ``F.grid_sample`` pass ``volume.movedim(1, -1)``, a view that
            is not copied; the call is fastest if the memory format of the volume is ``torch.channels_last_3d``. The
            volume itself would be accepted, and F taken for D.
        points: ``[N, 3]``, coordinates (x, y, z), x along W, y along H and z along D, in the dtype of ``input``, with
            any strides. They may be float32 if ``input`` has 16 bits, because positions lose too much precision in
            bfloat16.
        padding_mode: what positions outside mean: ``"zeros"``, voxels outside are 0; ``"border"``, positions are
            clamped to 0 to S - 1; ``"reflection"``, positions are reflected at the coordinates -1 and 1 until they are
            inside, and then clamped.
        align_corners: whether the coordinates -1 and 1 are the centres of the first and the last voxel.

    Returns:
        ``[N, F]``, contiguous, in the dtype of ``input``. Positions and sums are computed in float32, or in float64 for
        float64.

    A batch ``[B, D, H, W, F]`` with ``[B, N, 3]`` gives ``[B, N, F]``. N, B and F may be 0. The values of
    ``F.grid_sample(volume, grid)`` are those of ``grid_sample3d(volume.movedim(1, -1), grid.flatten(1, 3))``, to which
    ``.unflatten(1, grid.shape[1:4]).movedim(-1, 1)`` gives its shape ``[B, F, D_out, H_out, W_out]``.

    Gradients, for :math:`w_{nc}` the weight of corner c of the cell of point n: the sum of
    :math:`w_{nc} \, \text{grad}_{nf}` over the corners that are a voxel for ``input``, and
    :math:`\sum_{cf} \partial_k w_{nc} \, \text{input}_{cf} \, \text{grad}_{nf}` for coordinate k of ``points``. Where
    the slope jumps, at the centres of voxels and where padding begins, the gradient is that of ``F.grid_sample``. The
    operator is differentiable any number of times, in reverse and forward mode. First and second derivatives, such as
    those of an eikonal loss, are computed in one pass each. Under ``vmap`` over ``points`` alone, ``input`` gets one
    gradient and not one for each row of the batch.

    Results have the same bits on every run and for any number of threads. On a GPU this holds for the gradient of
    ``input`` only under ``torch.use_deterministic_algorithms(True)``, which selects a slower way without float atomics.

    Under autocast ``input`` keeps its dtype and 16-bit ``points`` become float32.

    Raises:
        TypeError: if ``input`` or ``points`` is not a tensor, or ``padding_mode`` is not a string.
        RuntimeError: for other modes, ranks, sizes, dtypes or layouts, or if the devices differ.

    The method is the bilinear sampler of M. Jaderberg et al., "Spatial transformer networks", 2015, section 3.3, in
    three dimensions.
    """
    if not (isinstance(input, Tensor) and isinstance(points, Tensor) and isinstance(padding_mode, str)):
        _check_tensors("grid_sample3d", input=input, points=points)
        _check_padding_mode(padding_mode)
    return torch.ops.cppcuda.grid_sample3d(input, points, padding_mode, align_corners)


def _check_padding_mode(mode: Any) -> None:
    """Raises TypeError if `mode` is not a string; the operator checks the strings."""
    if not isinstance(mode, str):
        raise TypeError(f"grid_sample3d: padding_mode must be 'zeros', 'border' or 'reflection', got {mode!r}")


def spline_prefilter2d(input: Tensor, order: int = 3, border: str = "mirror") -> Tensor:
    r"""Computes the coefficients of the B-spline that has the values of an image; see :func:`spline_prefilter3d`.

    .. math::
        \text{input}_{y,x,f} = \sum_{i_y,i_x} b(y - i_y) \, b(x - i_x) \, \text{out}_{i_y,i_x,f}

    Args:
        input: ``[H, W, F]`` or ``[B, H, W, F]``, with any strides.
        order: 0 to 5.
        border: ``"mirror"``, ``"reflect"`` or ``"grid-wrap"``.

    Returns:
        The shape and dtype of ``input``, contiguous.

    Linear in ``input``: the gradient is the adjoint.

    Raises:
        TypeError: if ``input`` is not a tensor, or ``border`` is not a string.
        RuntimeError: for other orders, borders, ranks, sizes, dtypes or layouts.
    """
    if not (isinstance(input, Tensor) and isinstance(border, str)):
        _check_spline("spline_prefilter2d", border, input=input)
    return torch.ops.cppcuda.spline_prefilter2d(input, order, border)


def spline_prefilter3d(input: Tensor, order: int = 3, border: str = "mirror") -> Tensor:
    r"""Computes the coefficients of the B-spline that has the values of a volume, as ``scipy.ndimage.spline_filter``:
    :func:`spline_sample3d` of the result at voxel (z, y, x) is ``input[z, y, x]``.

    .. math::
        \text{input}_{z,y,x,f} = \sum_{i_z,i_y,i_x} b(z - i_z) \, b(y - i_y) \, b(x - i_x) \, \text{out}_{i_z,i_y,i_x,f}

    Args:
        input: ``[D, H, W, F]`` or ``[B, D, H, W, F]``, of dtype float64, float32, float16 or bfloat16, with any
            strides. D, H and W are 1 to 2**30.
        order: 0 to 5. Orders 0 and 1 copy ``input``.
        border: ``"mirror"``, ``"reflect"`` or ``"grid-wrap"``, as in :func:`spline_sample3d`. The coefficients are
            exact for all sizes; those of scipy are not with ``"reflect"`` along short axes. ``"nearest"`` and
            ``"grid-constant"`` have no exact filter: pad the volume by 12 values on each side, filter it with
            ``"mirror"``, and add 12 to the points, as ``scipy.ndimage.map_coordinates`` does.

    Returns:
        The shape and dtype of ``input``, contiguous. It is computed in float32, or in float64 for float64.

    The operator is linear, so its gradient is its adjoint. It is differentiable any number of times, in reverse and
    forward mode. Results have the same bits on every run and for any number of threads.

    Raises:
        TypeError: if ``input`` is not a tensor, or ``border`` is not a string.
        RuntimeError: for other orders, borders, ranks, sizes, dtypes or layouts.

    The filter is that of M. Unser, A. Aldroubi and M. Eden, "B-spline signal processing", 1993.
    """
    if not (isinstance(input, Tensor) and isinstance(border, str)):
        _check_spline("spline_prefilter3d", border, input=input)
    return torch.ops.cppcuda.spline_prefilter3d(input, order, border)


def spline_sample2d(input: Tensor, points: Tensor, order: int = 3, border: str = "mirror") -> Tensor:
    r"""Samples an image of B-spline coefficients at points; see :func:`spline_sample3d`.

    .. math::
        \text{out}_{nf} = \sum_{i_y,i_x} b(y - i_y) \, b(x - i_x) \, \text{input}_{i_y,i_x,f}

    Args:
        input: ``[H, W, F]`` or ``[B, H, W, F]``, with any strides.
        points: ``[N, 2]`` or ``[B, N, 2]``, coordinates (y, x) in pixels.
        order: 0 to 5.
        border: ``"mirror"``, ``"reflect"``, ``"grid-wrap"``, ``"nearest"`` or ``"grid-constant"``.

    Returns:
        ``[N, F]`` or ``[B, N, F]``, contiguous, in the dtype of ``input``.

    Gradients of ``input`` and ``points``, any number of times.

    Raises:
        TypeError: if ``input`` or ``points`` is not a tensor, or ``border`` is not a string.
        RuntimeError: for other orders, borders, ranks, sizes, dtypes or layouts, or if the devices differ.
    """
    if not (isinstance(input, Tensor) and isinstance(points, Tensor) and isinstance(border, str)):
        _check_spline("spline_sample2d", border, input=input, points=points)
    return torch.ops.cppcuda.spline_sample2d(input, points, order, border)


def spline_sample3d(input: Tensor, points: Tensor, order: int = 3, border: str = "mirror") -> Tensor:
    r"""Samples a volume of B-spline coefficients at points, as ``scipy.ndimage.map_coordinates`` with
    ``prefilter=False``.

    .. math::
        \text{out}_{nf} = \sum_{i_z,i_y,i_x} b(z - i_z) \, b(y - i_y) \, b(x - i_x) \, \text{input}_{i_z,i_y,i_x,f}

    where :math:`z, y, x` are the coordinates of point :math:`n` and :math:`b` is the B-spline of ``order``. Order 0 is
    the nearest coefficient, and order 1 linear interpolation. From order 2 on the coefficients are not the values of
    the volume: :func:`spline_prefilter3d` computes them.

    Args:
        input: ``[D, H, W, F]``, of dtype float64, float32, float16 or bfloat16, with any strides. D, H and W are 1 to
            2**30.
        points: ``[N, 3]``, coordinates (z, y, x) in voxels, in the order of the axes of ``input``: 0 is the centre of
            the first coefficient along an axis. In the dtype of ``input``, with any strides; they may be float32 if
            ``input`` has 16 bits.
        order: 0 to 5.
        border: what coefficients outside are, with the names of scipy: ``"mirror"``, those inside, mirrored at the
            centres of the first and the last one; ``"reflect"``, mirrored at the outer borders of these;
            ``"grid-wrap"``, periodic; ``"nearest"``, the first or the last one; ``"grid-constant"``, 0.

    Returns:
        ``[N, F]``, contiguous, in the dtype of ``input``. Weights and sums are computed in float32, or in float64 for
        float64. A point with a NaN has NaN, and so has an infinite one if the border repeats the coefficients.

    A batch ``[B, D, H, W, F]`` with ``[B, N, 3]`` gives ``[B, N, F]``. N, B and F may be 0. The positions of
    :func:`grid_sample3d` with ``align_corners=True`` are ``(points.flip(-1) + 1) / 2 * (size - 1)``, where ``size`` is
    the tensor of D, H and W, and ``"mirror"`` is its ``"reflection"``. For an affine matrix that takes voxels to
    millimetres, such as nibabel's, positions are ``(millimetres - affine[:3, 3]) @ affine[:3, :3].inverse().T``.

    Gradients, for the weight :math:`w_{nc}` of coefficient c at point n: the sum of :math:`w_{nc} \, \text{grad}_{nf}`
    over the points for ``input``, and :math:`\sum_{cf} \partial_k w_{nc} \, \text{input}_{cf} \, \text{grad}_{nf}` for
    coordinate k of ``points``. The operator is differentiable any number of times, in reverse and forward mode. First
    and second derivatives are computed in one pass each. Derivative number ``order`` jumps at the knots, which are at
    the coefficients if ``order`` is odd and in the middle between them if it is even; there it is the one of the side
    of the greater coordinates.

    Results have the same bits on every run and for any number of threads. On a GPU this holds for the gradient of
    ``input`` only under ``torch.use_deterministic_algorithms(True)``, which selects a slower way without float atomics.

    Under autocast ``input`` keeps its dtype and 16-bit ``points`` become float32.

    Raises:
        TypeError: if ``input`` or ``points`` is not a tensor, or ``border`` is not a string.
        RuntimeError: for other orders, borders, ranks, sizes, dtypes or layouts, or if the devices differ.

    The weights follow from the recursion of C. de Boor, "On calculating with B-splines", 1972; their use for images is
    that of M. Unser, A. Aldroubi and M. Eden, "B-spline signal processing", 1993.
    """
    if not (isinstance(input, Tensor) and isinstance(points, Tensor) and isinstance(border, str)):
        _check_spline("spline_sample3d", border, input=input, points=points)
    return torch.ops.cppcuda.spline_sample3d(input, points, order, border)


def spline_splat2d(values: Tensor, points: Tensor, size: list[int], order: int = 3, border: str = "mirror") -> Tensor:
    r"""Adds values to an image of B-spline coefficients; see :func:`spline_splat3d`.

    .. math::
        \text{out}_{i_y,i_x,f} = \sum_n b(y - i_y) \, b(x - i_x) \, \text{values}_{nf}

    Args:
        values: ``[N, F]`` or ``[B, N, F]``.
        points: ``[N, 2]`` or ``[B, N, 2]``, coordinates (y, x) in pixels.
        size: H and W.
        order: 0 to 5.
        border: as in :func:`spline_sample3d`.

    Returns:
        ``[H, W, F]`` or ``[B, H, W, F]``, contiguous, in the dtype of ``values``.

    Gradients of ``values`` and ``points``, any number of times.

    Raises:
        TypeError: if ``values`` or ``points`` is not a tensor, or ``border`` is not a string.
        RuntimeError: for other orders, borders, ranks, sizes, dtypes or layouts, or if the devices differ.
    """
    if not (isinstance(values, Tensor) and isinstance(points, Tensor) and isinstance(border, str)):
        _check_spline("spline_splat2d", border, values=values, points=points)
    return torch.ops.cppcuda.spline_splat2d(values, points, size, order, border)


def spline_splat3d(values: Tensor, points: Tensor, size: list[int], order: int = 3, border: str = "mirror") -> Tensor:
    r"""The adjoint of :func:`spline_sample3d`, and the gradient of its ``input``: adds the values of points to the
    coefficients that they depend on.

    .. math::
        \text{out}_{i_z,i_y,i_x,f} = \sum_n b(z - i_z) \, b(y - i_y) \, b(x - i_x) \, \text{values}_{nf}

    Args:
        values: ``[N, F]`` or ``[B, N, F]``, of dtype float64, float32, float16 or bfloat16.
        points: ``[N, 3]`` or ``[B, N, 3]``, coordinates (z, y, x) in voxels.
        size: D, H and W.
        order: 0 to 5.
        border: as in :func:`spline_sample3d`. Values outside are added to the coefficients that have their place.

    Returns:
        ``[D, H, W, F]`` or ``[B, D, H, W, F]``, contiguous, in the dtype of ``values``. Sums are computed in float32,
        or in float64 for float64, in the order of the points; on a GPU that holds only under
        ``torch.use_deterministic_algorithms(True)``.

    Gradients: :func:`spline_sample3d` of ``grad`` for ``values``, and
    :math:`\sum_{cf} \partial_k w_{nc} \, \text{grad}_{cf} \, \text{values}_{nf}` for coordinate k of ``points``; any
    number of times.

    Raises:
        TypeError: if ``values`` or ``points`` is not a tensor, or ``border`` is not a string.
        RuntimeError: for other orders, borders, ranks, sizes, dtypes or layouts, or if the devices differ.
    """
    if not (isinstance(values, Tensor) and isinstance(points, Tensor) and isinstance(border, str)):
        _check_spline("spline_splat3d", border, values=values, points=points)
    return torch.ops.cppcuda.spline_splat3d(values, points, size, order, border)


def _check_spline(op: str, border: Any, **tensors: Any) -> None:
    """Raises TypeError for another argument than a tensor, or if `border` is not a string; the operator checks it."""
    _check_tensors(op, **tensors)
    if not isinstance(border, str):
        raise TypeError(f"{op}: border must be a string, got {border!r}")


def trilinear_indexed(table: Tensor, corners: Tensor, points: Tensor) -> Tensor:
    r"""Trilinear interpolation in voxels whose corners are rows of a shared table, as in a sparse voxel grid.

    With :math:`(u, v, w) = (\text{points}_n + 1) / 2`,

    .. math::
        \text{out}_{nf} = \sum_{i,j,k \in \{0,1\}} u_i v_j w_k \, \text{table}_{\text{corners}_{n,\,4i+2j+k},\,f},
        \qquad t_0 = 1 - t, \; t_1 = t

    that is, :func:`trilinear` of ``table[corners]``, without the memory for these ``[N, 8, F]`` features. A corner of
    -1 is a missing vertex, whose features are zeros. Outside [-1, 1] the interpolant continues, linear in each
    coordinate.

    Args:
        table: ``[V, F]``, the features of the vertices, of dtype float64, float32, float16 or bfloat16, with any
            strides.
        corners: ``[N, 8]``, rows of ``table`` or -1, of dtype int32 or int64, with any strides. Several points may
            have the same voxel.
        points: ``[N, 3]``, coordinates in [-1, 1] of a voxel, in the dtype of ``table``, with any strides. They may be
            float32 if ``table`` has 16 bits, because positions lose too much precision in bfloat16.

    Returns:
        ``[N, F]``, contiguous, in the dtype of ``table``. For a 16-bit ``table`` sums are taken in float32.

    A batch ``[B, V, F]`` with ``[B, N, 8]`` and ``[B, N, 3]`` gives ``[B, N, F]``. V, N, B and F may be 0.

    Gradients, for :math:`w_{nc}` the weight of corner c of point n: for row r of ``table`` the sum of
    :math:`w_{nc} \, \text{grad}_{nf}` over all n and c with :math:`\text{corners}_{nc} = r`, and
    :math:`\sum_{cf} \partial_k w_{nc} \, \text{table}_{\text{corners}_{nc},\,f} \, \text{grad}_{nf}` for coordinate k
    of ``points``. A missing vertex receives none. The operator is differentiable any number of times, in reverse and
    forward mode. First and second derivatives are computed in one pass each.

    On the CPU results have the same bits on every run, for any number of threads. On CUDA the gradient of ``table`` is
    summed with atomic additions in any order, so its last bits vary, unless
    ``torch.use_deterministic_algorithms(True)`` selects a sort, which takes longer.

    Under autocast ``table`` keeps its dtype and 16-bit ``points`` become float32.

    Raises:
        TypeError: if an argument is not a tensor.
        IndexError: if a corner is outside [-1, V). On CUDA this fails a device assert instead, after which CUDA does
            not work any more in the process.
        RuntimeError: for other ranks, sizes, dtypes or layouts, or if the devices differ.

    The method is textbook trilinear interpolation with shared vertices, as in S. Fridovich-Keil et al., "Plenoxels:
    radiance fields without neural networks", 2022, section 3.1. The weights are those of :func:`trilinear`.
    """
    if not (isinstance(table, Tensor) and isinstance(corners, Tensor) and isinstance(points, Tensor)):
        _check_tensors("trilinear_indexed", table=table, corners=corners, points=points)
    return torch.ops.cppcuda.trilinear_indexed(table, corners, points)


def trilinear_indexed_with_grad(table: Tensor, corners: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    r""":func:`trilinear_indexed` and its derivatives by the points in one pass, for the normals of a distance field or
    an eikonal loss.

    With :math:`w_{nc}` the weight of corner c at ``points[n]``,

    .. math::
        \text{value}_{nf} = \sum_c w_{nc} \, \text{table}_{\text{corners}_{nc},\,f}, \qquad
        \text{gradient}_{nfk} = \frac{\partial \, \text{value}_{nf}}{\partial \, \text{points}_{nk}}
        = \sum_c \partial_k w_{nc} \, \text{table}_{\text{corners}_{nc},\,f}

    Args:
        table: ``[V, F]``, the features of the vertices, of dtype float64, float32, float16 or bfloat16, with any
            strides.
        corners: ``[N, 8]``, rows of ``table`` or -1, a missing vertex, of dtype int32 or int64, with any strides.
        points: ``[N, 3]``, coordinates in [-1, 1] of a voxel, in the dtype of ``table``, or float32 if ``table`` has
            16 bits, with any strides.

    Returns:
        ``(value, gradient)``, ``[N, F]`` and ``[N, F, 3]``, contiguous, in the dtype of ``table``. ``gradient`` is by
        the coordinates in [-1, 1]; divide it by half the side of a voxel for the derivative by a position in space.

    A batch ``[B, V, F]`` with ``[B, N, 8]`` and ``[B, N, 3]`` gives ``[B, N, F]`` and ``[B, N, F, 3]``. V, N, B and F
    may be 0.

    Both outputs are differentiable any number of times, in reverse and forward mode: the gradient of a loss of
    ``gradient`` is the one that ``torch.autograd.grad(..., create_graph=True)`` of :func:`trilinear_indexed` would
    give, without that graph. What :func:`trilinear_indexed` says of missing vertices, of the bits of results and of
    autocast holds here too.

    Raises:
        TypeError: if an argument is not a tensor.
        IndexError: if a corner is outside [-1, V). On CUDA this fails a device assert instead.
        RuntimeError: for other ranks, sizes, dtypes or layouts, or if the devices differ.

    The eikonal loss, for which training needs these derivatives, is from A. Gropp et al., "Implicit geometric
    regularization for learning shapes", 2020.
    """
    if not (isinstance(table, Tensor) and isinstance(corners, Tensor) and isinstance(points, Tensor)):
        _check_tensors("trilinear_indexed_with_grad", table=table, corners=corners, points=points)
    return torch.ops.cppcuda.trilinear_indexed_with_grad(table, corners, points)


def hash_grid(
    params: Tensor,
    points: Tensor,
    n_levels: int = 16,
    n_features_per_level: int = 2,
    log2_hashmap_size: int = 19,
    base_resolution: int = 16,
    per_level_scale: float = 2.0,
    interpolation: str = "Linear",
) -> Tensor:
    r"""Multi-resolution hash encoding, with the layout of tiny-cuda-nn.

    Level :math:`l` is a grid of :math:`R_l = \lceil s_l \rceil + 1` vertices per axis, where
    :math:`s_l = \text{per_level_scale}^l \, \text{base_resolution} - 1`. With :math:`x = s_l \, \text{points}_n + 0.5`,
    :math:`v = \lfloor x \rfloor` and :math:`t = \text{interpolation}(x - v)`,

    .. math::
        \text{out}_{n,\,lC+c} = \sum_{o \in \{0,1\}^D} \prod_d \big(o_d \, t_d + (1 - o_d)(1 - t_d)\big) \,
        \text{table}^l_{\text{row}(v + o),\,c}

    A level has :math:`V_l = \min(8 \lceil R_l^D / 8 \rceil, 2^\text{log2_hashmap_size})` rows, which follow those of
    the level before: ``params.view(-1, C)`` is the tables of all levels. If the vertices fit,
    :math:`\text{row}(v) = v_0 + v_1 R_l + v_2 R_l^2 + \dots`, otherwise
    :math:`v_0 \oplus 2654435761 \, v_1 \oplus 805459861 \, v_2 \oplus 3674653429 \, v_3`; both in unsigned 32 bits,
    modulo :math:`V_l`. So points outside [0, 1], and the neighbours of points close to 1, wrap around and read other
    vertices.

    Args:
        params: ``[P]``, of dtype float64, float32, float16 or bfloat16, with any strides. :class:`cppcuda.nn.HashGrid`
            makes them.
        points: ``[N, D]``, 2 to 4 coordinates from 0 to 1, in the dtype of ``params``, with any strides. They may be
            float32 if ``params`` have 16 bits, because positions lose too much precision in bfloat16.
        n_levels: L, the number of levels, from 1 to 128.
        n_features_per_level: C, 1, 2, 4 or 8.
        log2_hashmap_size: the logarithm of the largest number of rows of a level, from 1 to 30.
        base_resolution: the number of vertices per axis of the coarsest level.
        per_level_scale: how much finer each level is than the one before.
        interpolation: ``"Linear"``, or ``"Smoothstep"``, :math:`t = f^2 (3 - 2 f)` of :math:`f = x - v`, whose first
            derivative is continuous.

    Returns:
        ``[N, L * C]``, level by level, contiguous, in the dtype of ``params``. Positions and sums are computed in
        float32, or in float64 for float64; :math:`s_l` is computed in float32 for every dtype, as in tiny-cuda-nn.

    A batch ``[B, P]`` with ``[B, N, D]`` gives ``[B, N, L * C]``. N and B may be 0.

    Gradients, for :math:`w_{no}` the weight of corner o at a level: the sum of :math:`w_{no} \, \text{grad}_{n,\,lC+c}`
    over all n and o that read a row for ``params``, and
    :math:`\sum_{l,o,c} \partial_k w_{no} \, \text{table}^l_{\text{row}(v + o),\,c} \, \text{grad}_{n,\,lC+c}` for
    coordinate k of ``points``. The operator is differentiable any number of times, in reverse and forward mode, also
    through the gradient of ``params``. First and second derivatives, such as those of an eikonal loss, are computed in
    one pass each. Under ``vmap`` over ``points`` alone, ``params`` get one gradient and not one for each row of the
    batch.

    On the CPU results have the same bits on every run, for any number of threads. On CUDA the gradient of ``params`` is
    summed with atomic additions in any order, so its last bits vary, unless
    ``torch.use_deterministic_algorithms(True)`` selects a sort, which takes longer.

    Under autocast ``params`` keep their dtype and 16-bit ``points`` become float32.

    Raises:
        TypeError: if ``params`` or ``points`` is not a tensor, or ``interpolation`` is not a string.
        RuntimeError: for other ranks, sizes, dtypes, layouts or configurations, or if the devices differ.

    The method is from T. Müller, A. Evans, C. Schied and A. Keller, "Instant neural graphics primitives with a
    multiresolution hash encoding", 2022.
    """
    if not (isinstance(params, Tensor) and isinstance(points, Tensor) and isinstance(interpolation, str)):
        _check_tensors("hash_grid", params=params, points=points)
        _check_interpolation(interpolation)
    return torch.ops.cppcuda.hash_grid(
        params,
        points,
        n_levels,
        n_features_per_level,
        log2_hashmap_size,
        base_resolution,
        per_level_scale,
        interpolation,
    )


def _check_interpolation(interpolation: Any) -> None:
    """Raises TypeError if `interpolation` is not a string; the operator checks the strings."""
    if not isinstance(interpolation, str):
        raise TypeError(f"hash_grid: interpolation must be 'Linear' or 'Smoothstep', got {interpolation!r}")


# torch.jit.trace keeps sizes dynamic only in functions that it scripts.


@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _upsample_to(input: Tensor, height: Tensor, width: Tensor, mode: str) -> Tensor:
    return torch.ops.cppcuda.upsample_bilinear2d(input, [int(height), int(width)], mode, None, None)


@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _upsample_by(input: Tensor, scale_h: float, scale_w: float, mode: str) -> Tensor:
    if input.dim() != 4:
        raise RuntimeError(f"upsample_bilinear2d: input must be [N, C, H, W], got {list(input.shape)}")
    height, width = input.size(2) * scale_h, input.size(3) * scale_w
    # Do not compare symbolic sizes: that would add a guard, which restricts them.
    if torch.jit.is_scripting() or (isinstance(height, float) and not torch.compiler.is_dynamo_compiling()):  # type: ignore[attr-defined]
        if not (height < 2.0**63 and width < 2.0**63):
            raise ValueError(
                "upsample_bilinear2d: scale_factor must give fewer than 2**63 rows and columns, "
                f"got {(scale_h, scale_w)} for {input.size(2)} rows and {input.size(3)} columns"
            )
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        size = [int(height), int(width)]
    else:
        size = [math.trunc(height), math.trunc(width)]  # torch.export can save math.trunc
    return torch.ops.cppcuda.upsample_bilinear2d(input, size, mode, scale_h, scale_w)


def upsample_bilinear2d(
    input: Tensor,
    size: int | tuple[int, int] | list[int] | None = None,
    scale_factor: float | tuple[float, float] | list[float] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
) -> Tensor:
    r"""Resizes images with bilinear interpolation, on the pixel grid of the framework a network is deployed with.

    .. math::
        \text{out}_{nc,o_y,o_x} = \sum_{i_y,i_x} \max(0, 1 - |y - i_y|) \, \max(0, 1 - |x - i_x|) \,
        \text{input}_{nc,i_y,i_x}

    where :math:`y` is the position of row :math:`o_y` in the input, clamped to 0 to H - 1, and :math:`x` is that of
    column :math:`o_x`. With :math:`s = H / H_\text{out}`, or ``1 / scale_factor`` if given:

    ================== =================================== ===================================================
    mode               position                            the same as
    ================== =================================== ===================================================
    ``half_pixel``     :math:`(o + 0.5) \, s - 0.5`        torch's ``align_corners=False``, TensorFlow 2,
                                                           ONNX Resize by default
    ``align_corners``  :math:`o (H - 1) / (H_\text{out} -   torch's and TensorFlow 1's ``align_corners=True``
                       1)`
    ``asymmetric``     :math:`o \, s`                      TensorFlow 1's ``resize_bilinear`` and TFLite's
                                                           by default
    ================== =================================== ===================================================

    Args:
        input: ``[N, C, H, W]``, of dtype float64, float32, float16 or bfloat16, with any strides. N and C may be 0.
        size: the size of the output, ``(H_out, W_out)``, or one number for both.
        scale_factor: alternative to ``size``; one number, or one for each axis. The output has
            ``floor(H * scale_factor)`` rows, and positions are computed from ``scale_factor`` itself, as in
            :func:`torch.nn.functional.interpolate`. ``align_corners`` uses it only for the size. Images whose size does
            not change are copied. (If only one side keeps its size, eager ``interpolate`` copies along that side on the
            CPU; compiled ``interpolate`` and this function do not.) In TorchScript it must be a float, not an int.
        coordinate_transformation_mode: ``"half_pixel"``, ``"align_corners"`` or ``"asymmetric"``, the names of ONNX.

    Returns:
        ``[N, C, H_out, W_out]``, in the dtype of ``input`` and in its memory format, contiguous or channels_last.
        Positions and sums are computed in float32, or in float64 for float64.

    The gradient of a pixel is gathered from the outputs that read it, with the same weights, so results have the same
    bits on every run. The operator is differentiable any number of times, in reverse and forward mode. Autocast does
    not change the dtype.

    Raises:
        TypeError: if ``input`` is not a tensor, ``size`` contains anything but integers, ``scale_factor`` contains
            anything but numbers, or ``coordinate_transformation_mode`` is not a string.
        ValueError: if not exactly one of ``size`` and ``scale_factor`` is given, if a tuple or list does not have two
            elements, if scales are not positive and finite, or if the output would have 2**63 rows or columns or more.
        RuntimeError: for other ranks, dtypes or layouts, sizes below 1, and unknown modes.

    The method is bilinear interpolation as defined by the operator "Resize" of the ONNX specification (mode "linear").
    Backward gathers with the transposed interpolation matrices, which have two entries per row.
    """
    if has_torch_function_unary(input):  # proxies, such as torch.fx's, have no sizes to check
        return handle_torch_function(
            upsample_bilinear2d,
            (input,),
            input,
            size=size,
            scale_factor=scale_factor,
            coordinate_transformation_mode=coordinate_transformation_mode,
        )
    if not (isinstance(input, Tensor) and isinstance(coordinate_transformation_mode, str)):
        _check_tensors("upsample_bilinear2d", input=input)
        _check_mode(coordinate_transformation_mode)
    if (size is None) == (scale_factor is None):
        raise ValueError("upsample_bilinear2d: exactly one of size and scale_factor must be given")
    if size is not None:
        height, width = _two_sizes(size)
        # While torch.jit.trace runs, sizes of tensors are tensors.
        if not (isinstance(height, int) and isinstance(width, int)):
            if isinstance(height, Tensor) or isinstance(width, Tensor):
                # as_tensor of a tensor returns it unchanged, but warns that it becomes a constant.
                height, width = (s if isinstance(s, Tensor) else torch.as_tensor(s) for s in (height, width))
                return _upsample_to(input, height, width, coordinate_transformation_mode)
        return torch.ops.cppcuda.upsample_bilinear2d(input, [height, width], coordinate_transformation_mode, None, None)
    assert scale_factor is not None
    scale_h, scale_w = _two_scales(scale_factor)
    return _upsample_by(input, scale_h, scale_w, coordinate_transformation_mode)


def _check_mode(mode: Any) -> None:
    """Raises TypeError if `mode` is not a string; the operator checks the strings."""
    if not isinstance(mode, str):
        raise TypeError(
            "upsample_bilinear2d: coordinate_transformation_mode must be 'half_pixel', 'align_corners' or "
            f"'asymmetric', got {mode!r}"
        )


# TorchScript refines a union one type at a time.


def _two_sizes(size: int | tuple[int, int] | list[int]) -> tuple[int, int]:
    if isinstance(size, list):
        if len(size) != 2:
            raise ValueError(f"upsample_bilinear2d: size must be an integer or a pair of integers, got {size}")
        height, width = size[0], size[1]
    elif isinstance(size, tuple):
        if len(size) != 2:
            raise ValueError(f"upsample_bilinear2d: size must be an integer or a pair of integers, got {size}")
        height, width = size[0], size[1]
    else:
        height, width = size, size
    # Do not compare symbolic sizes: that would add a guard, which restricts them.
    if not torch.jit.is_scripting() and not torch.compiler.is_dynamo_compiling():  # type: ignore[attr-defined]
        if not (isinstance(height, int) and isinstance(width, int) and abs(height) < 2**63 and abs(width) < 2**63):
            height, width = _as_ints(size, height, width)
    return height, width


def _as_ints(size: Any, *sizes: Any) -> tuple[Any, ...]:
    """Converts integers of other types, such as numpy's, to int. Symbolic integers of a trace or a graph are kept."""
    try:
        found = tuple(s if _stands_for_int(s) else operator.index(s) for s in sizes)
    except TypeError:
        raise TypeError(f"upsample_bilinear2d: size must be an integer or a pair of integers, got {size!r}") from None
    if any(isinstance(s, int) and abs(s) >= 2**63 for s in found):
        raise ValueError(f"upsample_bilinear2d: size must be at least 1 and below 2**63, got {size!r}")
    return found


def _stands_for_int(size: Any) -> bool:
    if isinstance(size, Tensor):
        return size.dim() == 0 and not (size.dtype.is_floating_point or size.dtype.is_complex)
    return isinstance(size, torch.SymInt) or has_torch_function_unary(size)


def _two_scales(scale: float | tuple[float, float] | list[float]) -> tuple[float, float]:
    if isinstance(scale, list):
        if len(scale) != 2:
            raise ValueError(f"upsample_bilinear2d: scale_factor must be a number or a pair of numbers, got {scale}")
        scale_h, scale_w = scale[0], scale[1]
    elif isinstance(scale, tuple):
        if len(scale) != 2:
            raise ValueError(f"upsample_bilinear2d: scale_factor must be a number or a pair of numbers, got {scale}")
        scale_h, scale_w = scale[0], scale[1]
    else:
        scale_h, scale_w = scale, scale
    if not (isinstance(scale_h, float) and isinstance(scale_w, float)):
        scale_h, scale_w = _as_floats(scale, scale_h, scale_w)
    if not (0 < scale_h < math.inf and 0 < scale_w < math.inf):
        raise ValueError(f"upsample_bilinear2d: scale_factor must be positive and finite, got {(scale_h, scale_w)}")
    return float(scale_h), float(scale_w)  # numpy's float64 is a float too, but TorchScript rejects it


def _as_floats(scale: Any, scale_h: Any, scale_w: Any) -> tuple[float, float]:
    try:
        if not (isinstance(scale_h, (int, float)) and isinstance(scale_w, (int, float))):
            for s in (scale_h, scale_w):
                # float() would parse a string; for several elements it raises another error.
                if isinstance(s, (str, bytes, bytearray)) or (isinstance(s, Tensor) and s.numel() != 1):
                    raise TypeError
        return float(scale_h), float(scale_w)
    except TypeError:
        raise TypeError(
            f"upsample_bilinear2d: scale_factor must be a number or a pair of numbers, got {scale!r}"
        ) from None
    except OverflowError:  # from a large int
        raise ValueError(f"upsample_bilinear2d: scale_factor must be positive and finite, got {scale!r}") from None
