"""Draws the picture: the cluster, errors of forces, vibrational frequencies, and the energy of the simulations."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from ase import units
from torch import Tensor

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize

RADIUS = 1.32  # of an atom of copper, in angstrom
VIEW = 7.4  # half the width of an image of the cluster
MODEL, TRUE, PAIR = "#c2410c", "#1e3a5f", "#a8a29e"
COLOURS = ListedColormap(colormaps["inferno"](np.linspace(0.3, 0.97, 256)))


@dataclass
class Cluster:
    title: str
    positions: Tensor  # [N, 3]
    energies: Tensor  # [N]
    arrows: list[tuple[Tensor, dict[str, Any]]]  # forces [N, 3], and the style of their arrows


def turned(vectors: Tensor) -> Tensor:
    """Vectors as the camera sees them: to the right, up, towards it."""
    z, x = torch.tensor(0.45), torch.tensor(-1.2)
    about_z = torch.tensor([[z.cos(), -z.sin(), 0], [z.sin(), z.cos(), 0], [0, 0, 1]])
    about_x = torch.tensor([[1, 0, 0], [0, x.cos(), -x.sin()], [0, x.sin(), x.cos()]])
    return vectors.float() @ (about_x @ about_z).T


def spheres(centers: Tensor, colours: Tensor, pixels: int = 640) -> Tensor:
    """An image ``[pixels, pixels, 3]`` of spheres at ``[N, 3]``, seen from the end of the z axis."""
    axis = torch.linspace(-VIEW, VIEW, pixels)
    x, y = torch.meshgrid(axis, -axis, indexing="xy")
    height = torch.full((len(centers), pixels, pixels), -torch.inf)
    inside = RADIUS**2 - (x - centers[:, 0, None, None]) ** 2 - (y - centers[:, 1, None, None]) ** 2
    height = torch.where(inside > 0, centers[:, 2, None, None] + inside.clamp_min(0).sqrt(), height)
    z, atom = height.max(0)
    hit = z > -torch.inf
    points = torch.stack([x, y, z], -1)[hit]
    atom = atom[hit]
    normal = (points - centers[atom]) / RADIUS
    light = torch.tensor([-0.4, 0.6, 0.7])
    light = light / light.norm()
    # A neighbour hides the part of the sky that it covers.
    to_others = centers - points.unsqueeze(1)
    distance = to_others.norm(dim=-1).clamp_min(RADIUS)
    cosine = (to_others * normal.unsqueeze(1)).sum(-1) / distance
    hidden = cosine.clamp_min(0) * (RADIUS / distance) ** 2
    hidden[torch.arange(len(atom)), atom] = 0
    sky = (1 - hidden.sum(1)).clamp(0.08, 1)
    diffuse = (normal @ light).clamp_min(0) * sky.sqrt()
    half = light + torch.tensor([0.0, 0.0, 1.0])
    highlight = (normal @ (half / half.norm())).clamp_min(0) ** 60
    image = torch.ones(pixels, pixels, 3)
    image[hit] = (colours[atom] * (0.38 * sky + 0.72 * diffuse)[:, None] + 0.35 * highlight[:, None]).clamp(0, 1)
    return image


def show_cluster(axes: Axes, cluster: Cluster, norm: Normalize) -> Tensor:
    """Returns where the camera sees the atoms."""
    centers = turned(cluster.positions - cluster.positions.mean(0))
    colours = torch.from_numpy(COLOURS(norm(cluster.energies.numpy()))[:, :3]).float()
    axes.imshow(spheres(centers, colours).numpy(), extent=(-VIEW, VIEW, -VIEW, VIEW), interpolation="antialiased")
    axes.set_title(cluster.title, fontsize=13)
    axes.set_axis_off()
    return centers


def show_arrows(axes: Axes, centers: Tensor, forces: Tensor, **style: Any) -> None:
    """Forces on the atoms in the front half; an arrow of an angstrom is 1 eV / angstrom."""
    front = centers[:, 2] > 0
    start, arrow = centers[front], turned(forces)[front]
    axes.quiver(*start[:, :2].T, *arrow[:, :2].T, angles="xy", scale_units="xy", scale=1, zorder=3, **style)


def show_forces(axes: Axes, true: Tensor, predicted: dict[str, Tensor], errors: dict[str, Any]) -> None:
    for name, colour in (("pair potential", PAIR), ("potential", MODEL)):
        error = 1000 * errors[name]["force_ev_per_angstrom"]
        label = f"{name}: {error:.0f} meV/Å"
        axes.plot(true.flatten(), predicted[name].flatten(), ".", ms=2, alpha=0.4, color=colour, label=label)
    limit = 1.05 * true.abs().max().item()
    axes.plot([-limit, limit], [-limit, limit], color="black", lw=0.8, zorder=0)
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), xlabel="force of EMT, eV/Å", ylabel="predicted force, eV/Å")
    axes.set_title("Forces in held-out structures", fontsize=13)
    axes.legend(title="root mean square error", markerscale=6, frameon=False)


def show_vibrations(axes: Axes, frequencies: dict[str, Tensor]) -> None:
    axes.plot(frequencies["EMT"], color=TRUE, lw=5, alpha=0.35, label="EMT, ASE's finite differences")
    axes.plot(frequencies["potential"], color=MODEL, lw=1.6, label="potential, Hessian by vmap")
    axes.set(xlabel="vibration", ylabel="frequency, 1/cm", ylim=(0, None))
    axes.set_title("Vibrations of the icosahedron", fontsize=13)
    axes.legend(frameon=False)


def show_energies(total: Axes, kinetic: Axes, energies: dict[str, Tensor], atoms: int, time_step: float) -> None:
    styles = {"EMT in ASE": (TRUE, 2.2, 0.45), "potential in C++": (MODEL, 0.8, 1.0)}
    for name, values in energies.items():
        colour, width, alpha = styles[name]
        style = {"color": colour, "lw": width, "alpha": alpha, "label": name}
        time = torch.arange(len(values)) * time_step / (1000 * units.fs)
        change = values.sum(1) - values.sum(1)[0]
        total.plot(time, 1000 * change / atoms, **style)
        kinetic.plot(time, 1000 * values[:, 1] / atoms, **style)
    end = time[-1].item()
    total.set(xlim=(0, end), ylim=(-1, 1), ylabel="change of the\ntotal energy")
    total.set_title("Simulation, meV per atom", fontsize=13)
    total.tick_params(labelbottom=False)
    total.legend(frameon=False, loc="upper left", ncols=2)
    kinetic.set(xlim=(0, end), ylim=(0, None), xlabel="time, ps", ylabel="kinetic energy")


def save(
    path: Path,
    results: dict[str, Any],
    report: dict[str, Any],
    clusters: list[Cluster],
    energies: dict[str, Tensor],
    time_step: float,
) -> None:
    rows = [["0", "1", "2"], ["forces", "vibrations", "total"], ["forces", "vibrations", "kinetic"]]
    figure, axes = plt.subplot_mosaic(rows, figsize=(15, 10.4), layout="constrained", height_ratios=(2.5, 1, 1))
    top = [axes[str(i)] for i in range(3)]
    every = torch.cat([cluster.energies for cluster in clusters])
    norm = Normalize(every.min().item(), every.max().item())
    for image, cluster in zip(top, clusters, strict=True):
        centers = show_cluster(image, cluster, norm)
        for forces, style in cluster.arrows:
            show_arrows(image, centers, forces, **style)
    bar = figure.colorbar(plt.cm.ScalarMappable(norm, COLOURS), ax=top, shrink=0.7, aspect=30, pad=0.01)
    bar.set_label("energy of an atom in the potential, eV")
    show_forces(axes["forces"], results["forces"], results["predicted"], report["errors"])
    show_vibrations(axes["vibrations"], results["frequencies"])
    show_energies(axes["total"], axes["kinetic"], energies, len(clusters[0].positions), time_step)
    figure.suptitle(
        "55 atoms of copper: a potential made of spherical harmonics, trained on energies and forces", fontsize=17
    )
    figure.savefig(path, dpi=100)
    plt.close(figure)
