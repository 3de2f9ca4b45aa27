"""How well a field fits the mesh."""

import numpy as np
import torch
import torch.nn.functional as F
from data import Mesh, points_in_cube
from igl import point_mesh_squared_distance
from render import Function
from skimage.measure import marching_cubes


@torch.no_grad()
def extract(distance: Function, resolution: int) -> Mesh:
    """The surface at distance 0, by marching cubes on a grid of ``resolution`` points per axis."""
    axis = (torch.arange(resolution) + 0.5) / resolution
    slabs = [distance(torch.cartesian_prod(part, axis, axis)) for part in axis.split(4)]
    volume = torch.cat(slabs).view(resolution, resolution, resolution)
    vertices, faces, _, _ = marching_cubes(volume.numpy(), 0.0)
    return Mesh((vertices.astype(np.float64) + 0.5) / resolution, faces.astype(np.int64))


def chamfer(surface: Mesh, mesh: Mesh, count: int = 100_000) -> float:
    """The mean distance in mm from points of each surface to the other surface, which is exact, and not to points."""
    rng = np.random.default_rng(1)
    means = []
    for source, target in ((surface, mesh), (mesh, surface)):
        points = source.sample(count, rng).double().numpy()
        squared = point_mesh_squared_distance(points, target.vertices, target.faces)[0]
        means.append(np.sqrt(squared).mean())
    return float(np.mean(means)) * mesh.millimetres


def errors(gradient: Function, mesh: Mesh, count: int = 50_000) -> dict[str, float]:
    """How far the length of the gradient is from 1, and the angle between gradient and normal on the surface."""
    rng = np.random.default_rng(2)
    on_surface = mesh.sample(count, rng)
    slopes = gradient(on_surface)
    cosine = F.cosine_similarity(slopes, mesh.normal(on_surface))
    in_cube = gradient(points_in_cube(count, rng))
    return {
        "gradient_on_surface": (slopes.norm(dim=1) - 1).abs().mean().item(),
        "gradient_in_cube": (in_cube.norm(dim=1) - 1).abs().mean().item(),
        "normal_degrees": cosine.clamp(-1, 1).acos().rad2deg().mean().item(),
    }
