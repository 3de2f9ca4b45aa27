"""An interatomic potential for a cluster of one element, made of spherical harmonics and an MLP."""

import sph
import torch
from torch import Tensor, nn


class Radial(nn.Module):
    """Gaussians of a distance times a cutoff: ``[...] -> [..., count]``. Beyond the cutoff they are zero."""

    def __init__(self, count: int, cutoff: float) -> None:
        super().__init__()
        self.cutoff = cutoff
        self.width = (cutoff - 1.5) / count
        self.register_buffer("centers", torch.linspace(2.0, cutoff - self.width, count))

    def forward(self, distance: Tensor) -> Tensor:
        # Twice continuously differentiable, so that the Hessian is continuous.
        x = (distance / self.cutoff).clamp(max=1)
        cutoff = 1 - x**3 * (10 - 15 * x + 6 * x * x)
        scaled = (distance.unsqueeze(-1) - self.centers) / self.width
        return torch.exp(-0.5 * scaled * scaled) * cutoff.unsqueeze(-1)


class Potential(nn.Module):
    """The energy of clusters: positions ``[B, N, 3]`` in angstrom ``-> [B]`` in eV.

    For each atom, the density of its neighbours is expanded in radial functions times spherical harmonics, and the
    coefficients of one degree are multiplied with each other, which makes them independent of rotations (the power
    spectrum of A. Bartok et al. 2013). An MLP maps these numbers and the densities themselves to the atom's energy. The
    cluster is so small that all pairs of atoms are computed; a larger system needs a list of neighbours.

    Args:
        atoms: the number of atoms, N.
        degree: the largest degree of the harmonics.
        radial: the number of radial functions.
        cutoff: the distance in angstrom from which on atoms do not interact.
        width: width of the MLP's hidden layers.
    """

    def __init__(self, atoms: int, degree: int = 2, radial: int = 16, cutoff: float = 5.2, width: int = 64) -> None:
        super().__init__()
        self.degree = degree
        others = torch.arange(atoms - 1) + (torch.arange(atoms - 1) >= torch.arange(atoms).unsqueeze(1))
        self.register_buffer("others", others)  # [N, N - 1]
        self.register_buffer("upper", torch.triu(torch.ones(radial, radial)).flatten().nonzero().squeeze(1))
        self.radial = Radial(radial, cutoff)
        features = radial + (degree + 1) * len(self.upper)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.register_buffer("offset", torch.zeros(()))
        self.mlp = nn.Sequential(
            nn.Linear(features, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def features(self, positions: Tensor) -> Tensor:
        """``[B, N, 3] -> [B, N, features]``, the same for rotated clusters."""
        vectors = positions[:, self.others] - positions.unsqueeze(2)  # [B, N, N - 1, 3]
        radial = self.radial(vectors.square().sum(-1).sqrt())
        harmonics = sph.spherical_harmonics(vectors.flatten(0, 2), self.degree)
        density = radial.transpose(-1, -2) @ harmonics.unflatten(0, vectors.shape[:3])  # [B, N, radial, harmonics]
        result = [density[..., 0]]
        for degree in range(self.degree + 1):
            of_degree = density[..., degree * degree : (degree + 1) * (degree + 1)]
            result.append((of_degree @ of_degree.transpose(-1, -2)).flatten(-2).index_select(-1, self.upper))
        return torch.cat(result, -1)

    def atomic_energies(self, positions: Tensor) -> Tensor:
        """``[B, N, 3] -> [B, N]``; their sum is the energy."""
        return self.mlp((self.features(positions) - self.mean) * self.scale).squeeze(-1) + self.offset

    def forward(self, positions: Tensor) -> Tensor:
        return self.atomic_energies(positions).sum(-1)

    @torch.jit.ignore
    @torch.no_grad()
    def normalize(self, positions: Tensor, energies: Tensor) -> None:
        """Makes the features of these structures have mean 0 and deviation 1, and the energy of an atom mean 0."""
        features = torch.cat([self.features(some) for some in positions.split(32)]).flatten(0, 1)
        self.mean.copy_(features.mean(0))
        self.scale.copy_(1 / features.std(0).clamp_min(1e-6))
        self.offset.copy_(energies.mean() / positions.shape[1])


def energy_and_forces(potential: nn.Module, positions: Tensor, create_graph: bool = False) -> tuple[Tensor, Tensor]:
    """The energy and its negative gradient: ``[B, N, 3] -> [B], [B, N, 3]``."""
    with torch.enable_grad():
        positions = positions.detach().requires_grad_()
        energy = potential(positions)
        (gradient,) = torch.autograd.grad(energy.sum(), positions, create_graph=create_graph)
    return energy if create_graph else energy.detach(), -gradient
