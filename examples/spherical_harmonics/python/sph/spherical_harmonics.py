"""The functions spherical_harmonics and solid_harmonics."""

import torch
from torch import Tensor


def spherical_harmonics(xyz: Tensor, degree: int, normalize: bool = True) -> Tensor:
    """The real spherical harmonics of the directions of points, for all degrees up to ``degree``.

    They are orthonormal on the unit sphere and have no Condon-Shortley phase: ``m < 0`` belongs to ``sin(|m| phi)``,
    ``m > 0`` to ``cos(m phi)``, the polar axis is z, and degree 1 is ``sqrt(3 / (4 pi)) * (y, z, x)``. The origin has
    no direction: there, all harmonics but the first, which is constant, and all derivatives are zero.

    Args:
        xyz: ``[N, 3]`` or ``[B, N, 3]`` with any strides, of dtype float64, float32, float16 or bfloat16.
        degree: 0 to 20.
        normalize: if false, the result is that of :func:`solid_harmonics`.

    Returns:
        A new contiguous tensor ``[..., (degree + 1)**2]`` with the dtype of ``xyz``, differentiable any number of
        times. ``Y_l^m`` has index ``l**2 + l + m``. Sums are taken in float32 or wider.
    """
    return torch.ops.sph.spherical_harmonics(xyz, degree, normalize)


def solid_harmonics(xyz: Tensor, degree: int) -> Tensor:
    """The solid harmonics ``r**l Y_l^m`` of points, polynomials in x, y and z: see :func:`spherical_harmonics`."""
    return torch.ops.sph.spherical_harmonics(xyz, degree, False)
