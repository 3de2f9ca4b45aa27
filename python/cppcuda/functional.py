"""The operators as functions. Each calls the operator itself, so scripts, graphs and exported files hold no Python."""

import torch
from torch import Tensor

__all__ = ["trilinear"]


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
