"""The operators as modules; those without parameters hold no state and pickle as any module does."""

from torch import Tensor, nn

from cppcuda import functional

__all__ = ["Trilinear"]


class Trilinear(nn.Module):
    """Trilinear interpolation of the eight corner features of a voxel; see :func:`cppcuda.functional.trilinear`.

    Shape:
        - feats: ``[N, 8, F]`` (or ``[B, N, 8, F]``)
        - points: ``[N, 3]`` (or ``[B, N, 3]``), in [-1, 1]
        - output: ``[N, F]`` (or ``[B, N, F]``)
    """

    def forward(self, feats: Tensor, points: Tensor) -> Tensor:
        return functional.trilinear(feats, points)
