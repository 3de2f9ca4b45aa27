"""The function rotate. Change: its arguments and the docstring."""

import torch
from torch import Tensor


def rotate(q: Tensor, v: Tensor) -> Tensor:
    """Rotates vectors by quaternions of length 1.

    Args:
        q: ``[..., 4]``, with the real part first, of dtype float64, float32, float16 or bfloat16 and any strides.
        v: ``[..., 3]``, of the same dtype. The other dims of both broadcast.

    Returns:
        The rotated vectors, ``[..., 3]``, differentiable any number of times with respect to ``q`` and ``v``.
    """
    return torch.ops.my_ops.rotate(q, v)
