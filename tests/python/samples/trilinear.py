"""trilinear."""

from __future__ import annotations

import cppcuda
import torch
from cppcuda.testing import OpEntry, Spec, T, derivative, register
from torch import Tensor


def trilinear_reference(feats: Tensor, points: Tensor) -> Tensor:
    """Linear interpolation along one axis after another."""
    t = (points + 1) / 2
    corners = feats.unflatten(-2, (2, 2, 2))
    for d in range(3):
        s = t.select(-1, d).reshape(*t.shape[:-1], *[1] * (3 - d))  # [..., N], broadcast over the remaining axes
        corners = corners.select(-4 + d, 0) * (1 - s) + corners.select(-4 + d, 1) * s
    return corners


def trilinear_grid_sample(feats: Tensor, points: Tensor) -> Tensor | None:
    """Uses one 2x2x2 volume per point; grid_sample's x is the last axis. grid_sample does not extrapolate."""
    if feats.numel() == 0:
        return None
    volumes = feats.reshape(-1, 2, 2, 2, feats.shape[-1]).movedim(-1, 1)  # [N, F, 2, 2, 2]
    inside = points.reshape(-1, 1, 1, 1, 3).flip(-1)
    out = torch.nn.functional.grid_sample(volumes, inside, mode="bilinear", align_corners=True)
    out = out.reshape(*feats.shape[:-2], feats.shape[-1])
    outside = (points.abs() > 1).any(-1, keepdim=True)
    return torch.where(outside, trilinear_reference(feats, points), out)


def _args(*batch: int, f: int) -> tuple[T, T]:
    return T((*batch, 8, f)), T((*batch, 3))


TRILINEAR = OpEntry(
    name="cppcuda::trilinear",
    mechanism="row",
    reference=trilinear_reference,
    oracles=(trilinear_grid_sample,),
    specs=(Spec("basic", _args(3, f=2), "basic"), Spec("basic_batch", _args(2, 2, f=3), "basic")),
    function=cppcuda.functional.trilinear,
    module=cppcuda.nn.Trilinear,
    saved_for={0: {1}, 1: {0, 1}},
    backward=derivative("cppcuda::_trilinear_backward", saved_for={0: {1, 2}, 1: {0, 2}, 2: {0, 1, 2}}),
)
register(TRILINEAR)
register(
    derivative(
        "cppcuda::_trilinear_double_backward",
        saved_for={0: {1, 2, 3, 4}, 1: {0, 2, 4}, 2: {0, 1, 2, 3, 4}, 3: {0, 2}, 4: {0, 1, 2}},
    ).of(TRILINEAR.backward)
)
