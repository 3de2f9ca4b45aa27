"""The model as an ASE calculator, its Hessian, and vibrational frequencies."""

import tempfile
from pathlib import Path
from typing import Any, ClassVar

import torch
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes
from ase.optimize import BFGS
from ase.vibrations import Vibrations, VibrationsData
from model import Potential, energy_and_forces
from torch import Tensor
from torch.func import grad, jvp, vmap


class TorchCalculator(Calculator):
    """Gives ASE the energy and forces of a potential in float64."""

    implemented_properties: ClassVar = ["energy", "forces"]

    def __init__(self, potential: Potential) -> None:
        super().__init__()
        self.potential = potential

    def calculate(
        self, atoms: Atoms | None = None, properties: Any = ("energy",), system_changes: Any = all_changes
    ) -> None:
        super().calculate(atoms, properties, system_changes)
        energy, forces = energy_and_forces(self.potential, torch.from_numpy(self.atoms.get_positions())[None])
        self.results = {"energy": energy.item(), "forces": forces[0].numpy()}


def hessian(potential: Potential, positions: Tensor) -> Tensor:
    """The second derivatives of the energy at positions ``[N, 3]``: ``[3 N, 3 N]``.

    The derivative of the gradient along every axis of every atom, all at once: forward mode over reverse mode in vmap.
    """

    def gradient(flat: Tensor) -> Tensor:
        return grad(lambda x: potential(x.view(1, -1, 3)).sum())(flat)

    flat = positions.flatten()
    axes = torch.eye(len(flat), dtype=flat.dtype, device=flat.device)
    return vmap(lambda axis: jvp(gradient, (flat,), (axis,))[1], chunk_size=33)(axes)


def at_minimum(atoms: Atoms, potential: Potential) -> Atoms:
    """The minimum of the model near the given structure."""
    relaxed = atoms.copy()
    relaxed.calc = TorchCalculator(potential)
    BFGS(relaxed, logfile=None).run(fmax=1e-4, steps=500)
    return relaxed


def _without_motions(frequencies: Any) -> Tensor:
    """Without the six translations and rotations of the whole cluster. Imaginary ones become negative."""
    values = torch.as_tensor(frequencies)
    values = values.real - values.imag
    return values[values.abs().argsort()[6:]].sort().values


def frequencies(atoms: Atoms, potential: Potential) -> Tensor:
    """The vibrational frequencies in 1 / cm from the Hessian."""
    matrix = hessian(potential, torch.from_numpy(atoms.get_positions()))
    return _without_motions(VibrationsData.from_2d(atoms, matrix.numpy()).get_frequencies())


def frequencies_of_ase(atoms: Atoms) -> Tensor:
    """The vibrational frequencies in 1 / cm from ASE's finite differences of the forces of the atoms' calculator."""
    with tempfile.TemporaryDirectory() as folder:
        vibrations = Vibrations(atoms, name=str(Path(folder) / "vibrations"))
        vibrations.run()
        return _without_motions(vibrations.get_frequencies())
