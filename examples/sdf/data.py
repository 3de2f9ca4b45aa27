"""The mesh, its exact distances, and the points to train on."""

from dataclasses import dataclass

import igl
import igl.embree
import numpy as np
import torch
from nilearn.datasets import load_fsaverage
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


@dataclass
class Mesh:
    """A closed triangle mesh in the unit cube. Distances are positive outside."""

    vertices: Array  # [V, 3]
    faces: NDArray[np.int64]  # [F, 3], counter-clockwise seen from outside
    millimetres: float = 1.0  # the length of the cube's edge

    def distance(self, points: Tensor) -> Tensor:
        return self._closest(points)[0]

    def normal(self, points: Tensor) -> Tensor:
        """The normal of the closest point of the surface."""
        return self._closest(points)[1]

    def _closest(self, points: Tensor) -> tuple[Tensor, Tensor]:
        # The sign of a closed mesh follows from the normal at the closest point, on edges and corners from the
        # angle-weighted mean of the faces' normals.
        distance, _, _, normal = igl.signed_distance(
            points.double().numpy(), self.vertices, self.faces, sign_type=igl.SIGNED_DISTANCE_TYPE_PSEUDONORMAL
        )
        return torch.from_numpy(distance).float(), torch.from_numpy(normal).float()

    def trace(self, rays: Tensor) -> tuple[Tensor, Tensor]:
        """The rays of ``rays [R, 6]``, origins and directions, that hit the mesh ``[M]``, and where ``[M, 3]``."""
        origin, direction = rays.double().numpy().reshape(-1, 2, 3).transpose(1, 0, 2)
        found = igl.embree.line_mesh_intersection(
            np.ascontiguousarray(origin), np.ascontiguousarray(direction), self.vertices, self.faces
        )
        which = np.flatnonzero(found[:, 0] >= 0)
        corners = self.vertices[self.faces[found[which, 0].astype(np.int64)]]  # [M, 3, 3]
        u, v = found[which, 1], found[which, 2]
        points = (np.stack([1 - u - v, u, v], axis=1)[:, :, None] * corners).sum(axis=1)
        return torch.from_numpy(which), torch.from_numpy(points).float()

    def sample(self, count: int, rng: np.random.Generator) -> Tensor:
        """Points of the surface, uniformly by area: ``[count, 3]``."""
        a, b, c = (self.vertices[self.faces[:, i]] for i in range(3))
        area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
        face = rng.choice(len(area), count, p=area / area.sum())
        u, v = np.sqrt(rng.random((count, 1))), rng.random((count, 1))
        return torch.from_numpy((1 - u) * a[face] + u * (1 - v) * b[face] + u * v * c[face]).float()


def load(subdivisions: int = 1) -> Mesh:
    """The left half of the cortex: fsaverage5, the mean of 40 people, which comes with nilearn."""
    surface = load_fsaverage("fsaverage5")["pial"].parts["left"]
    vertices, faces = surface.coordinates.astype(np.float64), surface.faces.astype(np.int64)
    # Loop subdivision makes a smooth surface of the 20480 triangles.
    vertices, faces = map(np.ascontiguousarray, igl.loop(vertices, faces, subdivisions))
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    millimetres = (high - low).max() / 0.9
    return Mesh((vertices - (low + high) / 2) / millimetres + 0.5, faces, millimetres)


def points_near(mesh: Mesh, count: int, deviation: float, rng: np.random.Generator) -> Tensor:
    """Points of the surface with normally distributed offsets."""
    offsets = deviation * torch.from_numpy(rng.standard_normal((count, 3))).float()
    return (mesh.sample(count, rng) + offsets).clamp(0, 1)


def points_in_cube(count: int, rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(rng.random((count, 3))).float()
