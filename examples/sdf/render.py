"""Sphere tracing with torch. render.cpp has the same in C++."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[[Tensor], Tensor]

MAX_STEPS = 100
HIT = 5e-4  # distance at which a ray has arrived
OCCLUSION_STEPS = (0.01, 0.02, 0.04, 0.08)  # distances from the surface
COLOUR = (0.93, 0.72, 0.66)


def camera(direction: tuple[float, float, float], height: int, width: int) -> Tensor:
    """Rays from a camera that looks at the centre of the unit cube: ``[height, width, 6]``, origins and directions."""
    back = F.normalize(torch.tensor(direction), dim=0)
    right = F.normalize(torch.linalg.cross(torch.tensor([0.0, 0.0, 1.0]), back), dim=0)
    up = torch.linalg.cross(back, right)
    pixel = 0.98 / width  # the size of a pixel in the plane through the centre
    y = (height / 2 - 0.5 - torch.arange(height)) * pixel
    x = (torch.arange(width) + 0.5 - width / 2) * pixel
    distance = 3.0
    directions = F.normalize(x[None, :, None] * right + y[:, None, None] * up - distance * back, dim=2)
    return torch.cat([(0.5 + distance * back).expand_as(directions), directions], dim=2)


def trace(distance: Function, rays: Tensor) -> tuple[Tensor, Tensor]:
    """Follows ``rays [R, 6]`` through the unit cube; returns the rays that hit the surface ``[M]``, and where."""
    origin, direction = rays.split(3, dim=1)
    enter, leave = -origin / direction, (1 - origin) / direction
    near, far = torch.minimum(enter, leave).amax(1), torch.maximum(enter, leave).amin(1)
    active = (near < far).nonzero().squeeze(1)
    t = near[active]
    rays_that_hit, hits = [], []
    for _ in range(MAX_STEPS):
        d = distance(origin[active] + t[:, None] * direction[active])
        t = t + d
        hit = d < HIT
        rays_that_hit.append(active[hit])
        hits.append(origin[active[hit]] + t[hit, None] * direction[active[hit]])
        keep = ~hit & (t < far[active])
        active, t = active[keep], t[keep]
        if len(active) == 0:
            break
    return torch.cat(rays_that_hit), torch.cat(hits)


def shade(distance: Function, gradient: Function, points: Tensor, directions: Tensor) -> Tensor:
    """Colours ``[M, 3]`` of points of the surface, with a light above the left shoulder of the camera."""
    normal = F.normalize(gradient(points), dim=1)
    up = torch.tensor([0.0, 0.0, 1.0]).expand_as(directions)
    left = torch.linalg.cross(up, directions)
    light = F.normalize(0.7 * up + 0.5 * left - 0.8 * directions, dim=1)
    # Ambient occlusion: how much closer the surface is than it would be above a plane.
    occlusion = torch.zeros(len(points))
    for step in OCCLUSION_STEPS:
        clearance = distance((points + step * normal).clamp(0, 1)).clamp(0, step)
        occlusion += (1 - clearance / step) / len(OCCLUSION_STEPS)
    open_ = 1 - occlusion
    ambient = open_ * (0.375 + 0.075 * normal[:, 2])
    diffuse = 0.65 * (normal * light).sum(1).clamp(min=0) * open_.sqrt()
    half = F.normalize(light - directions, dim=1)
    highlight = 0.12 * (normal * half).sum(1).clamp(min=0).pow(40) * open_
    return (ambient + diffuse)[:, None] * torch.tensor(COLOUR) + highlight[:, None]


@torch.no_grad()
def draw(distance: Function, gradient: Function, rays: Tensor, hits: tuple[Tensor, Tensor]) -> Tensor:
    """An image ``[H, W, 3]``, uint8, of ``rays [H, W, 6]``, where ``hits`` says which of them hit the surface where."""
    flat = rays.view(-1, 6)
    which, points = hits
    image = torch.ones(len(flat), 3)
    image[which] = shade(distance, gradient, points, flat[which, 3:])
    return (image.clamp(0, 1).pow(1 / 1.6) * 255).round().byte().view(*rays.shape[:2], 3)


@torch.no_grad()
def render(distance: Function, gradient: Function, rays: Tensor) -> Tensor:
    return draw(distance, gradient, rays, trace(distance, rays.view(-1, 6)))
