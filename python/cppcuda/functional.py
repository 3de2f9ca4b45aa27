"""The operators as functions. Each calls the operator itself, so scripts, graphs and exported files hold no Python."""

import torch
from torch import Tensor

__all__ = ["quick_gelu", "quick_gelu_", "sigmoid", "sigmoid_", "trilinear"]


def sigmoid(input: Tensor, out: Tensor | None = None) -> Tensor:
    r"""The logistic function, elementwise.

    .. math::
        \text{out} = \frac{1}{1 + e^{-\text{input}}}

    Args:
        input: any shape, of dtype float64, float32, float16 or bfloat16, with any strides.
        out: for inference loops that may not allocate: a tensor of the same shape, dtype and device, with any
            strides, that the result is written to. It may be ``input``, but not overlap it otherwise. Such a call
            takes part in no gradient; one that would lose a gradient is an error.

    Returns:
        The shape and dtype of ``input``; ``out`` if that is given. A dense input of any layout (channels_last,
        permuted) is processed in memory order, and its strides are kept. Computed in float32 for 16-bit input.

    The gradient is :math:`\text{grad} \cdot \text{out} (1 - \text{out})`: it reads the output alone, so that the
    input is not kept alive. Differentiable again, any number of times, in reverse and forward mode.

    NaN and infinities go through as in :func:`torch.sigmoid`. Autocast leaves the dtype as it is.

    Raises:
        RuntimeError: for other dtypes or layouts; for an ``out`` of another shape, dtype or device, one that
            overlaps ``input``, or one that a gradient would be lost by.
    """
    if out is None:
        return torch.ops.cppcuda.sigmoid(input)
    torch.ops.cppcuda.sigmoid(input, out=out)
    return out


def sigmoid_(input: Tensor) -> Tensor:
    """:func:`sigmoid` in place, for inference: a call that would lose a gradient is an error."""
    torch.ops.cppcuda.sigmoid_(input)
    return input


def quick_gelu(input: Tensor, out: Tensor | None = None) -> Tensor:
    r"""The activation of CLIP-style models, elementwise.

    .. math::
        \text{out} = \text{input} \cdot \sigma(1.702 \, \text{input})

    Args:
        input: any shape, of dtype float64, float32, float16 or bfloat16, with any strides.
        out: for inference loops that may not allocate: a tensor of the same shape, dtype and device, with any
            strides, that the result is written to. It may be ``input``, but not overlap it otherwise. Such a call
            takes part in no gradient; one that would lose a gradient is an error.

    Returns:
        The shape and dtype of ``input``; ``out`` if that is given. A dense input of any layout (channels_last,
        permuted) is processed in memory order, and its strides are kept. Computed in float32 for 16-bit input.

    With :math:`k = 1.702, s = \sigma(k \, \text{input})` the gradient is
    :math:`\text{grad} (s + k \, \text{input} \, s (1 - s))`; only the input is saved for it. Differentiable again, any
    number of times, in reverse and forward mode.

    NaN and infinities go through as in the formula in plain torch. Autocast leaves the dtype as it is.

    Raises:
        RuntimeError: for other dtypes or layouts; for an ``out`` of another shape, dtype or device, one that
            overlaps ``input``, or one that a gradient would be lost by.

    The method is from D. Hendrycks and K. Gimpel, "Gaussian error linear units (GELUs)", 2016, section 2.
    """
    if out is None:
        return torch.ops.cppcuda.quick_gelu(input)
    torch.ops.cppcuda.quick_gelu(input, out=out)
    return out


def quick_gelu_(input: Tensor) -> Tensor:
    """:func:`quick_gelu` in place, for inference: a call that would lose a gradient is an error."""
    torch.ops.cppcuda.quick_gelu_(input)
    return input


def trilinear(feats: Tensor, points: Tensor) -> Tensor:
    r"""Trilinear interpolation of the eight corner features of a voxel, at one point per voxel.

    With :math:`(u, v, w) = (\text{points}_n + 1) / 2`,

    .. math::
        \text{out}_{nf} = \sum_{i,j,k \in \{0,1\}} u_i v_j w_k \, \text{feats}_{n,\,4i+2j+k,\,f},
        \qquad t_0 = 1 - t, \; t_1 = t

    that is, corner ``c`` of voxel ``n`` is ``feats.view(N, 2, 2, 2, F)[n, i, j, k]``. Outside [-1, 1] the
    interpolant continues, linear in each coordinate.

    Other corner orders need no option: swapping two axes of the corners is swapping two columns of ``points``.

    Args:
        feats: ``[N, 8, F]``, of dtype float64, float32, float16 or bfloat16, with any strides.
        points: ``[N, 3]``, coordinates in [-1, 1], with any strides. Of the dtype of ``feats``, or float32 beside
            16-bit ``feats``: positions lose too much in bfloat16.

    Returns:
        ``[N, F]``, contiguous, in the dtype of ``feats``. Sums are taken in float32 for 16-bit ``feats``.

    A batch ``[B, N, 8, F]`` with ``[B, N, 3]`` gives ``[B, N, F]``. N, B and F may be 0.

    Gradients, for :math:`w_c` the weight of corner c: :math:`w_c \, \text{grad}_{nf}` for ``feats``, and
    :math:`\sum_{cf} \partial_k w_c \, \text{feats}_{ncf} \, \text{grad}_{nf}` for coordinate k of ``points``;
    differentiable again, any number of times, in reverse and forward mode. The same bits on every run.

    Under autocast ``feats`` keep their dtype and 16-bit ``points`` become float32.

    Raises:
        RuntimeError: for other ranks, sizes, dtypes or layouts, and when the devices differ.

    The method is the trilinear interpolation of textbooks (P. Bourke, "Interpolation methods", 1999), in the
    product form, whose weights do not cancel near the corners.
    """
    return torch.ops.cppcuda.trilinear(feats, points)
