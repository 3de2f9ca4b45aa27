"""Clusters of copper from molecular dynamics with ASE's EMT calculator, which is the true potential of this example."""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from ase import Atoms, units
from ase.calculators.emt import EMT
from ase.cluster import Icosahedron
from ase.md.langevin import Langevin
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution, Stationary, ZeroRotation
from ase.md.verlet import VelocityVerlet
from ase.optimize import BFGS
from torch import Tensor
from tqdm import tqdm

TEMPERATURES = (200, 400, 600, 800, 1000, 1200)  # in kelvin
TIME_STEP = 4 * units.fs
SIMULATION_TEMPERATURE = 500


@dataclass
class Structures:
    positions: Tensor  # [S, N, 3], angstrom
    energies: Tensor  # [S], eV
    forces: Tensor  # [S, N, 3], eV / angstrom


@functools.cache
def _minimum() -> Atoms:
    atoms = Icosahedron("Cu", 3)
    atoms.calc = EMT()
    BFGS(atoms, logfile=None).run(fmax=1e-4)
    return atoms


def cluster() -> Atoms:
    """55 atoms of copper, an icosahedron, at the minimum of the true potential."""
    atoms = _minimum().copy()
    atoms.calc = EMT()
    return atoms


def heated(temperature: float, seed: int) -> Atoms:
    """The cluster with the velocities of twice the temperature, half of which becomes potential energy."""
    atoms = cluster()
    rng = np.random.default_rng(seed)
    MaxwellBoltzmannDistribution(atoms, temperature_K=2 * temperature, rng=rng)
    Stationary(atoms)
    ZeroRotation(atoms)
    return atoms


def sample(name: str, count: int, interval: int, seed: int) -> Structures:
    """Structures of one trajectory per temperature, ``interval`` steps apart."""
    positions, energies, forces = [], [], []
    each = -(-count // len(TEMPERATURES))
    with tqdm(total=each * len(TEMPERATURES), desc=f"EMT, {name} structures", unit="structure") as progress:
        for i, temperature in enumerate(TEMPERATURES):
            atoms = heated(temperature, seed + i)
            rng = np.random.default_rng(seed + i)
            dynamics = Langevin(
                atoms, TIME_STEP, temperature_K=temperature, friction=0.01 / units.fs, fixcm=False, rng=rng
            )
            dynamics.run(10 * interval)
            for _ in range(each):
                dynamics.run(interval)
                positions.append(atoms.get_positions())
                energies.append(atoms.get_potential_energy())
                forces.append(atoms.get_forces())
                progress.update()
    return Structures(*(torch.from_numpy(np.array(values)) for values in (positions, energies, forces)))


def simulate(atoms: Atoms, steps: int) -> Tensor:
    """Molecular dynamics at constant energy; the potential and kinetic energies of each step: ``[steps + 1, 2]``."""
    energies = []
    dynamics = VelocityVerlet(atoms, TIME_STEP)
    dynamics.attach(lambda: energies.append((atoms.get_potential_energy(), atoms.get_kinetic_energy())))
    dynamics.run(steps)
    return torch.tensor(energies, dtype=torch.float64)
