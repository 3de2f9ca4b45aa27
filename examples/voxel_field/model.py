"""A voxel feature field: learnable features on a coarse grid, trilinear interpolation, a small MLP."""

import cppcuda
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class VoxelField(nn.Module):
    """Maps coordinates in [-1, 1] to values: ``[N, 3] -> [N]``.

    Grid vertices lie at cell centres (half a cell inside the border), as the voxels of an image do. The first
    feature is itself a value; the MLP adds what the interpolation of that value alone cannot express.

    Args:
        resolution: vertices along x, y and z.
        features: features per vertex.
        width: width of the MLP's hidden layers.
        values: the initial values of the first feature, of shape ``resolution``.
    """

    def __init__(self, resolution: tuple[int, int, int], features: int, width: int, values: Tensor) -> None:
        super().__init__()
        _, ny, nz = resolution
        grid = 0.1 * torch.randn(values.numel(), features)
        grid[:, 0] = values.flatten()
        self.grid = nn.Parameter(grid)  # [vertices, F]
        self.mlp = nn.Sequential(
            nn.Linear(features, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
        )
        # The order of corners that the op expects: 4i + 2j + k.
        corners = [(i * ny + j) * nz + k for i in (0, 1) for j in (0, 1) for k in (0, 1)]
        self.register_buffer("resolution", torch.tensor(resolution, dtype=torch.float32))
        self.register_buffer("strides", torch.tensor([ny * nz, nz, 1]))
        self.register_buffer("corners", torch.tensor(corners))

    def forward(self, coordinates: Tensor) -> Tensor:
        position = (coordinates + 1) / 2 * self.resolution - 0.5  # in units of the grid
        cell = torch.minimum(position.floor().clamp(min=0), self.resolution - 2)
        vertices = (cell.long() * self.strides).sum(1, keepdim=True) + self.corners  # [N, 8]
        local = 2 * (position - cell) - 1  # [N, 3], in [-1, 1] except in the outermost half cell
        features = cppcuda.functional.trilinear(F.embedding(vertices, self.grid), local)  # [N, F]
        return features[:, 0] + self.mlp(features).squeeze(1)
