"""The operators as modules."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from cppcuda import functional

__all__ = ["LLTMCell", "QuickGELU", "Sigmoid", "Trilinear", "UpsampleBilinear2d"]


class Sigmoid(nn.Module):
    """The logistic function, elementwise; see :func:`cppcuda.functional.sigmoid`.

    Shape: any; the output has the shape of the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.sigmoid(input)


class QuickGELU(nn.Module):
    """The activation of CLIP-style models, elementwise; see :func:`cppcuda.functional.quick_gelu`.

    Shape: any; the output has the shape of the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.quick_gelu(input)


class LLTMCell(nn.Module):
    r"""One step of an LLTM; see :func:`cppcuda.functional.lltm_cell`.

    Args:
        input_size: I, the number of features of an input
        hidden_size: S, the number of features of the state

    Shape:
        - input: ``[B, I]``
        - state: ``(hx, cx)``, ``[B, S]`` each; zeros by default
        - output: ``(hy, cy)``, ``[B, S]`` each, the next state

    Attributes:
        weight: ``[3S, S + I]``, drawn uniformly from :math:`\pm 1 / \sqrt{S}`
        bias: ``[3S]``, likewise
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if input_size < 0 or hidden_size < 0:
            raise ValueError(f"LLTMCell: sizes must not be negative, got {input_size} and {hidden_size}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(3 * hidden_size, hidden_size + input_size, **factory))
        self.bias = nn.Parameter(torch.empty(3 * hidden_size, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if state is None:
            if not isinstance(input, Tensor):
                functional._check_tensors("lltm_cell", input=input)
            size = list(input.shape)[:-1]
            size.append(self.hidden_size)
            zeros = input.new_zeros(size)
            state = (zeros, zeros)
        if not torch.jit.is_scripting() and not (isinstance(state, (tuple, list)) and len(state) == 2):  # type: ignore[attr-defined]
            raise TypeError(f"LLTMCell: state must be (hx, cx), got {type(state).__name__}")
        return functional.lltm_cell(input, self.weight, self.bias, state[0], state[1])

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class Trilinear(nn.Module):
    """Trilinear interpolation of the eight corner features of a voxel; see :func:`cppcuda.functional.trilinear`.

    Shape:
        - feats: ``[N, 8, F]`` (or ``[B, N, 8, F]``)
        - points: ``[N, 3]`` (or ``[B, N, 3]``), in [-1, 1]
        - output: ``[N, F]`` (or ``[B, N, F]``)
    """

    def forward(self, feats: Tensor, points: Tensor) -> Tensor:
        return functional.trilinear(feats, points)


class UpsampleBilinear2d(nn.Module):
    """Resizes images with bilinear interpolation; see :func:`cppcuda.functional.upsample_bilinear2d`.

    Args:
        size: the size of the output, ``(H_out, W_out)``, or one number for both.
        scale_factor: alternative to ``size``; one number, or one for each axis.
        coordinate_transformation_mode: ``"half_pixel"`` (torch's ``align_corners=False``, TensorFlow 2, ONNX),
            ``"align_corners"`` or ``"asymmetric"`` (TensorFlow 1, TFLite).

    Shape:
        - input: ``[N, C, H, W]``
        - output: ``[N, C, H_out, W_out]``, contiguous or channels_last like the input

    Raises:
        TypeError, ValueError: for a ``size`` or ``scale_factor`` that the function rejects.
    """

    def __init__(
        self,
        size: int | tuple[int, int] | None = None,
        scale_factor: float | tuple[float, float] | None = None,
        coordinate_transformation_mode: str = "half_pixel",
    ) -> None:
        super().__init__()
        if (size is None) == (scale_factor is None):
            raise ValueError("UpsampleBilinear2d: exactly one of size and scale_factor must be given")
        self.size = None if size is None else functional._two_sizes(size)
        self.scale_factor = None if scale_factor is None else functional._two_scales(scale_factor)
        self.coordinate_transformation_mode = coordinate_transformation_mode

    def forward(self, input: Tensor) -> Tensor:
        return functional.upsample_bilinear2d(input, self.size, self.scale_factor, self.coordinate_transformation_mode)

    def extra_repr(self) -> str:
        given = f"scale_factor={self.scale_factor}" if self.size is None else f"size={self.size}"
        return f"{given}, coordinate_transformation_mode={self.coordinate_transformation_mode!r}"
