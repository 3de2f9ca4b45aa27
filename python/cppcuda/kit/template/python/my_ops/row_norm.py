"""The function row_norm. Change: its arguments and the docstring."""

import torch
from torch import Tensor


def row_norm(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Divides each row by the root of its mean square: ``weight * input / sqrt(mean(input**2) + eps)``.

    Args:
        input: ``[..., F]`` with any strides, of dtype float64, float32, float16 or bfloat16. The mean is over the last
            dim.
        weight: ``[F]``, of the same dtype.
        eps: is added to the mean, so that rows of zeros have a result.

    Returns:
        A new contiguous tensor with the shape and dtype of ``input``, differentiable any number of times with respect
        to ``input`` and ``weight``. Sums are taken in float32 or wider.
    """
    return torch.ops.my_ops.row_norm(input, weight, eps)
