"""The operators in plain torch, which every benchmark compares with and passes to torch.compile."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from cppcuda import _hash_grid
from torch import Tensor


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def sigmoid_into(x: Tensor, out: Tensor) -> Tensor:
    return torch.div(1, 1 + torch.exp(-x), out=out)


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x * 0.5**0.5))


def softplus(x: Tensor) -> Tensor:
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def mish(x: Tensor) -> Tensor:
    return x * torch.tanh(softplus(x))


def rotate(q: Tensor, v: Tensor) -> Tensor:
    axis = q[..., 1:]
    twice = 2 * torch.linalg.cross(axis, v)
    return v + q[..., :1] * twice + torch.linalg.cross(axis, twice)


def project(points: Tensor, camera: Tensor, k: Tensor) -> Tensor:
    x, y = points[..., 0] / points[..., 2], points[..., 1] / points[..., 2]
    square = x * x + y * y
    radial = 1 + square * (k[..., 0] + square * (k[..., 1] + square * k[..., 2]))
    u = x * radial + k[..., 3] * 2 * x * y + k[..., 4] * (square + 2 * x * x)
    v = y * radial + k[..., 4] * 2 * x * y + k[..., 3] * (square + 2 * y * y)
    return torch.stack([camera[..., 0] * u + camera[..., 2], camera[..., 1] * v + camera[..., 3]], -1)


def neo_hookean(f: Tensor, mu: float, lam: float) -> Tensor:
    log_j = torch.log(torch.linalg.det(f))
    return 0.5 * mu * ((f * f).sum((-2, -1)) - 3) - mu * log_j + 0.5 * lam * log_j**2


def quick_gelu_into(x: Tensor, out: Tensor) -> Tensor:
    return torch.mul(x, torch.sigmoid(1.702 * x), out=out)


@functools.cache
def _resizing_grid(shape: tuple[int, ...], factor: int, device: torch.device) -> Tensor:
    """grid_sample's positions of the pixels of an image that is enlarged."""
    y, x = ((2 * torch.arange(factor * n, device=device) + 1) / (factor * n) - 1 for n in shape[2:])
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), -1).expand(shape[0], -1, -1, -1).contiguous()


def grid_sample_upsample(image: Tensor, factor: int) -> Tensor:
    """Bilinear upsampling by F.grid_sample. The grid is made once."""
    grid = _resizing_grid(tuple(image.shape), factor, image.device)
    return F.grid_sample(image, grid, mode="bilinear", padding_mode="border", align_corners=False)


def lltm_cell(input: Tensor, weight: Tensor, bias: Tensor, hx: Tensor, cx: Tensor) -> tuple[Tensor, Tensor]:
    gates = F.linear(torch.cat([hx, input], 1), weight, bias)
    i, o, candidate = gates.chunk(3, 1)
    cy = cx + F.elu(candidate) * torch.sigmoid(i)
    return torch.tanh(cy) * torch.sigmoid(o), cy


def loop_of(cell: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """A cell over a sequence, step by step."""

    def loop(input: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs = []
        for x in input:
            h, c = cell(x, weight, bias, h, c)
            outputs.append(h)
        return torch.stack(outputs), h, c

    return loop


def upsample_asymmetric(image: Tensor) -> Tensor:
    """Bilinear upsampling by 2 with the coordinates of TensorFlow 1.x, which F.interpolate does not support."""
    for dim in (2, 3):
        after = torch.cat([image.narrow(dim, 1, image.shape[dim] - 1), image.narrow(dim, -1, 1)], dim)
        image = torch.stack([image, (image + after) / 2], dim + 1).flatten(dim, dim + 1)
    return image


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered * torch.rsqrt((centered * centered).mean(-1, keepdim=True) + 1e-5) * weight + bias


def softmax(x: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def trilinear(feats: Tensor, points: Tensor) -> Tensor:
    """Corner by corner, each with its weight, as one would write it first."""
    near, far = ((1 - points) / 2).unsqueeze(-1), ((1 + points) / 2).unsqueeze(-1)
    weight = [
        (near, far)[i][:, 0] * (near, far)[j][:, 1] * (near, far)[k][:, 2]
        for i in (0, 1)
        for j in (0, 1)
        for k in (0, 1)
    ]
    return sum((w * feats[:, c] for c, w in enumerate(weight)), start=torch.zeros((), device=feats.device))


def _factors(points: Tensor, dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor], ...]:
    """The factors of the near and the far side of each axis, [N, 1] each."""
    far = (points + 1) / 2
    return tuple((1 - t.to(dtype), t.to(dtype)) for t in far.unsqueeze(-1).unbind(1))


def trilinear_corners(feats: Tensor, points: Tensor) -> Tensor:
    """Corner by corner with factored weights: the fewest operations, and no tensor is larger than the output."""
    (u0, u1), (v0, v1), (w0, w1) = _factors(points, feats.dtype)
    a, b, c, d = v0 * w0, v0 * w1, v1 * w0, v1 * w1
    x = feats.unbind(1)
    return u0 * (a * x[0] + b * x[1] + c * x[2] + d * x[3]) + u1 * (a * x[4] + b * x[5] + c * x[6] + d * x[7])


def _weights(points: Tensor, dtype: torch.dtype) -> Tensor:
    """The weights of the corners, [N, 8]."""
    far = (points + 1) / 2
    x, y, z = torch.stack([1 - far, far], -1).unbind(1)
    return (x[:, :, None, None] * y[:, None, :, None] * z[:, None, None, :]).flatten(1).to(dtype)


def trilinear_bmm(feats: Tensor, points: Tensor) -> Tensor:
    return torch.bmm(_weights(points, feats.dtype).unsqueeze(1), feats).squeeze(1)


def trilinear_indexed(table: Tensor, corners: Tensor, points: Tensor) -> Tensor:
    """The features of the corners, then their weighted sum. Without missing vertices, which would need another row."""
    feats = table.index_select(0, corners.flatten()).view(*corners.shape, table.shape[-1])
    return (_weights(points, table.dtype).unsqueeze(-1) * feats).sum(1)


def embedding_bag(table: Tensor, corners: Tensor, points: Tensor) -> Tensor:
    """A bag of eight rows for each point, with the weights of the corners."""
    return F.embedding_bag(corners, table, mode="sum", per_sample_weights=_weights(points, table.dtype))


def grid_sample(volume: Tensor, points: Tensor) -> Tensor:
    """volume [N, F, 2, 2, 2]; points [N, 3] in grid_sample's order: the volume's last axis comes first."""
    return F.grid_sample(volume, points[:, None, None, None], mode="bilinear", align_corners=True).flatten(1)


def volume_of(feats: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Converts the inputs of trilinear to those of grid_sample."""
    return feats.transpose(1, 2).contiguous().unflatten(2, (2, 2, 2)), points.flip(1)


def feats_of(volume: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of volume_of."""
    return volume.flatten(2).transpose(1, 2), points.flip(1)


def grid_sample3d(input: Tensor, points: Tensor) -> Tensor:
    """input [D, H, W, F], of any strides; points [N, 3]."""
    volume, grid = input.permute(3, 0, 1, 2).unsqueeze(0), points[None, :, None, None]
    return F.grid_sample(volume, grid, mode="bilinear", align_corners=False).flatten(1).view(-1, len(points)).t()


class HashGrid:
    """hash_grid in 3 dims with 2 features per level: all levels at once, corner by corner."""

    def __init__(self, n_levels: int, log2_hashmap_size: int, base_resolution: int, per_level_scale: float) -> None:
        self.levels = levels = _hash_grid.levels_of(3, n_levels, log2_hashmap_size, base_resolution, per_level_scale)
        self.scale = torch.tensor([[level.scale] for level in levels], dtype=torch.float64)
        columns = [torch.tensor(c) for c in zip(*(level[1:] for level in levels), strict=True)]
        self.resolution, self.first_row, self.rows, self.is_hashed = columns

    def corners(self, points: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows and weights, [N, L] each."""
        if self.scale.device != points.device:
            for name in ("scale", "resolution", "first_row", "rows", "is_hashed"):
                setattr(self, name, getattr(self, name).to(points.device))
        # In float64, because a position that is rounded twice may be in another cell, with another gradient.
        position = (points.double().unsqueeze(1) * self.scale + 0.5).float()
        floor = position.floor()
        x, y, z = ((v, v + 1) for v in floor.long().unbind(-1))
        u, v, w = ((1 - t, t) for t in (position - floor).unbind(-1))
        for i, j, k in itertools.product((0, 1), repeat=3):
            dense = x[i] + (y[j] + z[k] * self.resolution) * self.resolution
            hashed = x[i] ^ (y[j] * 2654435761) ^ (z[k] * 805459861)
            yield torch.where(self.is_hashed, hashed, dense) % self.rows + self.first_row, u[i] * v[j] * w[k]

    def __call__(self, params: Tensor, points: Tensor) -> Tensor:
        table = params.view(-1, 2)
        out = torch.zeros(())
        for row, weight in self.corners(points):
            out = out + weight.unsqueeze(-1) * table[row]
        return out.flatten(1).to(params.dtype)

    def by_index_select(self, params: Tensor, points: Tensor) -> Tensor:
        """The same with another function that reads rows; its gradient is faster."""
        table = params.view(-1, 2)
        out = torch.zeros(())
        for row, weight in self.corners(points):
            out = out + weight.unsqueeze(-1) * table.index_select(0, row.flatten()).view(*row.shape, 2)
        return out.flatten(1).to(params.dtype)


def features_first(input: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """The same values in the memory format of a contiguous volume [1, F, D, H, W]."""
    return input.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0), points
