"""The operators in plain torch, which every benchmark compares with and passes to torch.compile."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def sigmoid_into(x: Tensor, out: Tensor) -> Tensor:
    return torch.div(1, 1 + torch.exp(-x), out=out)


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


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


def upsample_asymmetric(image: Tensor) -> Tensor:
    """Bilinear upsampling by 2 with the coordinates of TensorFlow 1.x, which F.interpolate does not support."""
    for dim in (2, 3):
        after = torch.cat([image.narrow(dim, 1, image.shape[dim] - 1), image.narrow(dim, -1, 1)], dim)
        image = torch.stack([image, (image + after) / 2], dim + 1).flatten(dim, dim + 1)
    return image


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


def grid_sample(volume: Tensor, points: Tensor) -> Tensor:
    """volume [N, F, 2, 2, 2]; points [N, 3] in grid_sample's order: the volume's last axis comes first."""
    return F.grid_sample(volume, points[:, None, None, None], mode="bilinear", align_corners=True).flatten(1)


def volume_of(feats: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Converts the inputs of trilinear to those of grid_sample."""
    return feats.transpose(1, 2).contiguous().unflatten(2, (2, 2, 2)), points.flip(1)


def feats_of(volume: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of volume_of."""
    return volume.flatten(2).transpose(1, 2), points.flip(1)
