"""The operators as modules; those without parameters hold no state and pickle as any module does."""

from torch import Tensor, nn

from cppcuda import functional

__all__ = ["QuickGELU", "Sigmoid", "Trilinear"]


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


class Trilinear(nn.Module):
    """Trilinear interpolation of the eight corner features of a voxel; see :func:`cppcuda.functional.trilinear`.

    Shape:
        - feats: ``[N, 8, F]`` (or ``[B, N, 8, F]``)
        - points: ``[N, 3]`` (or ``[B, N, 3]``), in [-1, 1]
        - output: ``[N, F]`` (or ``[B, N, F]``)
    """

    def forward(self, feats: Tensor, points: Tensor) -> Tensor:
        return functional.trilinear(feats, points)
