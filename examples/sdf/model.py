"""A signed distance field: a multi-resolution hash grid and a small MLP."""

import cppcuda
import torch
from torch import Tensor, nn


class Linear(nn.Module):
    """``nn.Linear`` with a weight that is stored as ``[inputs, outputs]``.

    The gradient of ``nn.Linear`` reads the transposed weight. torch.export loses this tensor, and refuses to export a
    model that computes the gradient.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        layer = nn.Linear(inputs, outputs)  # for its initial values
        self.weight = nn.Parameter(layer.weight.detach().t().contiguous())
        self.bias = nn.Parameter(layer.bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


class DistanceField(nn.Module):
    """Maps points in the unit cube to distances: ``[N, 3] -> [N]``.

    The eikonal loss differentiates the gradient of the field, and pictures show the gradient as normals. So the field
    must have a continuous gradient. With linear interpolation the gradient of a hash grid jumps at the faces of the
    cells, and its second derivative along an axis is zero; "Smoothstep" is continuously differentiable, and so is GELU.

    Args:
        levels: levels of the grid; each has 1.4 times the resolution of the one before.
        log2_hashmap_size: the logarithm of the largest number of rows of a level.
        width: width of the MLP's hidden layers.
    """

    def __init__(self, levels: int, log2_hashmap_size: int, width: int) -> None:
        super().__init__()
        self.grid = cppcuda.nn.HashGrid(
            3,
            n_levels=levels,
            log2_hashmap_size=log2_hashmap_size,
            base_resolution=8,
            per_level_scale=1.4,
            interpolation="Smoothstep",
        )
        self.mlp = nn.Sequential(
            Linear(self.grid.n_output_dims + 3, width), nn.GELU(), Linear(width, width), nn.GELU(), Linear(width, 1)
        )

    def forward(self, points: Tensor) -> Tensor:
        return self.mlp(torch.cat([self.grid(points), 2 * points - 1], dim=1)).squeeze(1)


def gradient(field: nn.Module, points: Tensor, create_graph: bool = False) -> Tensor:
    """The gradient of the field at each point: ``[N, 3]``."""
    with torch.enable_grad():
        points = points.detach().requires_grad_()
        return torch.autograd.grad(field(points).sum(), points, create_graph=create_graph)[0]


class DistanceAndGradient(nn.Module):
    """The field as AOTInductor compiles it, which has no autograd at run time: ``[N, 3] -> [N], [N, 3]``."""

    def __init__(self, field: DistanceField) -> None:
        super().__init__()
        self.field = field

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            points = points.detach().requires_grad_()
            distance = self.field(points)
            (gradient,) = torch.autograd.grad(distance.sum(), points)
        return distance.detach(), gradient
