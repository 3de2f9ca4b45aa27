"""The volume, its split into training and held-out voxels, and the baselines."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import nibabel
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Volume:
    values: Tensor  # [X, Y, Z], in [0, 1]
    train: Tensor  # indices of voxels in values.flatten()
    held_out: Tensor

    def coordinates(self) -> Tensor:
        """Centres of all voxels, ``[X * Y * Z, 3]`` in [-1, 1]."""
        axes = [(torch.arange(n) + 0.5) / n * 2 - 1 for n in self.values.shape]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).view(-1, 3)

    def psnr(self, image: Tensor) -> dict[str, float]:
        """PSNR in dB on the held-out voxels. The peak is the volume's maximum."""
        truth = self.values.flatten()[self.held_out]
        error = (image.flatten()[self.held_out] - truth).square()
        head = truth > 0.02  # about half of the volume is empty
        return {"all": -10 * error.mean().log10().item(), "head": -10 * error[head].mean().log10().item()}


def load(held_out: float, seed: int) -> Volume:
    """The first time point of the MRI that comes with nibabel."""
    path = Path(str(files("nibabel"))) / "tests" / "data" / "example4d.nii.gz"
    values = torch.from_numpy(np.asarray(nibabel.load(path).dataobj[..., 0], dtype=np.float32).copy())
    values /= values.max()
    order = torch.randperm(values.numel(), generator=torch.Generator().manual_seed(seed))
    count = int(held_out * values.numel())
    return Volume(values, order[count:], order[:count])


def upsample(half: Tensor, shape: torch.Size, align_corners: bool = False) -> Tensor:
    return F.interpolate(half[None, None], size=shape, mode="trilinear", align_corners=align_corners)[0, 0]


def pool_training_voxels(volume: Volume) -> Tensor:
    """Half resolution: the mean of the training voxels in each block of 2x2x2."""
    known = torch.zeros(volume.values.numel()).index_fill_(0, volume.train, 1).view(volume.values.shape)
    total, count = (F.avg_pool3d(t[None], 2)[0] for t in (volume.values * known, known))
    return total / count.clamp(min=1e-6)


def least_squares_half(volume: Volume, iterations: int = 30) -> Tensor:
    """The half-resolution volume whose trilinear upsampling fits the training voxels best."""
    half = pool_training_voxels(volume).requires_grad_()
    truth = volume.values.flatten()[volume.train]
    optimizer = torch.optim.LBFGS([half], max_iter=iterations, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (upsample(half, volume.values.shape).flatten()[volume.train] - truth).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return half.detach()


def baselines(volume: Volume) -> dict[str, Tensor]:
    """Plain trilinear upsampling of a half-resolution volume, made in three ways.

    The first two use the held-out voxels as well, which is in their favour.
    """
    shape, full = volume.values.shape, volume.values[None, None]
    resampled = F.interpolate(full, scale_factor=0.5, mode="trilinear", align_corners=True)[0, 0]
    return {
        "mean of 2x2x2 voxels": upsample(F.avg_pool3d(full, 2)[0, 0], shape),
        "resampled (corners aligned)": upsample(resampled, shape, align_corners=True),
        "least squares on training voxels": upsample(least_squares_half(volume), shape),
    }


def neighbour_mean(volume: Volume) -> Tensor:
    """Each voxel is the mean of its neighbours among the training voxels, up to six, at full resolution."""
    known = torch.zeros(volume.values.numel()).index_fill_(0, volume.train, 1).view(volume.values.shape)
    kernel = torch.zeros(1, 1, 3, 3, 3)
    for d in (0, 2):
        kernel[0, 0, d, 1, 1] = kernel[0, 0, 1, d, 1] = kernel[0, 0, 1, 1, d] = 1
    total, count = (F.conv3d(t[None, None], kernel, padding=1)[0, 0] for t in (volume.values * known, known))
    return total / count.clamp(min=1)
