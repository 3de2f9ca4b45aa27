"""Fits an interatomic potential to energies and forces, computes vibrations, and exports it."""

import argparse
import json
import logging
import time
import warnings
from pathlib import Path

import data
import torch
import vibrations
from baseline import PairPotential
from model import Potential, energy_and_forces
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from tqdm import tqdm

SEED = 0
ENERGY_WEIGHT = (
    2.0  # of the error of the energy in eV per square root of an atom, beside that of forces in eV / angstrom
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/forces"), help="output folder (default: %(default)s)")
    parser.add_argument("--structures", type=int, default=300, help="to train on (default: %(default)s)")
    parser.add_argument("--interval", type=int, default=10, help="steps between them (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1200, help="training steps (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="structures per step (default: %(default)s)")
    parser.add_argument("--degree", type=int, default=2, help="of the harmonics (default: %(default)s)")
    parser.add_argument("--simulate", type=int, default=5000, help="steps of the simulation (default: %(default)s)")
    return parser.parse_args()


def fit(train: data.Structures, args: argparse.Namespace) -> Potential:
    torch.manual_seed(SEED)
    positions, energies, forces = (t.float() for t in (train.positions, train.energies, train.forces))
    atoms = positions.shape[1]
    potential = Potential(atoms, args.degree)
    potential.normalize(positions, energies)
    optimizer = torch.optim.Adam(potential.parameters(), lr=4e-3, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    progress = tqdm(range(1, args.steps + 1), desc="training", unit="step")
    for step in progress:
        batch = torch.randint(len(positions), (args.batch,))
        # The loss has a derivative of the energy, so backward needs second derivatives of the harmonics.
        energy, force = energy_and_forces(potential, positions[batch], create_graph=True)
        force_loss = (force - forces[batch]).square().mean()
        energy_loss = (energy - energies[batch]).square().mean() / atoms
        optimizer.zero_grad()
        (force_loss + ENERGY_WEIGHT * energy_loss).backward()
        optimizer.step()
        schedule.step()
        if step % max(1, args.steps // 50) == 0:
            per_atom = 1000 * (energy_loss / atoms).sqrt().item()
            progress.set_postfix_str(f"forces {force_loss.sqrt().item():.3f} eV/A, energy {per_atom:.1f} meV/atom")
    return potential.eval().requires_grad_(False).double()


def errors(energies: Tensor, forces: Tensor, true: data.Structures) -> dict[str, float]:
    """Root mean square errors."""
    per_atom = (energies - true.energies) / forces.shape[1]
    return {
        "energy_mev_per_atom": 1000 * per_atom.square().mean().sqrt().item(),
        "force_ev_per_angstrom": (forces - true.forces).square().mean().sqrt().item(),
    }


def export(potential: Potential, positions: Tensor, out: Path) -> None:
    """Writes the model as TorchScript and, with its forces, as an AOTInductor package."""
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns if there is no GPU
    print("Exporting to TorchScript", flush=True)
    torch.jit.script(potential).save(str(out / "potential.pt"))
    print("Compiling with AOTInductor, which runs a C++ compiler", flush=True)
    # A package has no autograd at run time, so the gradient is traced, too.
    traced = make_fx(lambda x: energy_and_forces(potential, x))(positions)
    program = torch.export.export(traced, (positions,))
    torch._inductor.aoti_compile_and_package(program, package_path=str(out / "potential.pt2"))


def main() -> None:
    args = arguments()
    # C++ programs still load TorchScript, and torch's own forward mode uses it.
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
    args.out.mkdir(parents=True, exist_ok=True)
    seconds = {}
    start = began = time.perf_counter()

    def finish(stage: str) -> None:
        nonlocal began
        seconds[stage] = time.perf_counter() - began
        began = time.perf_counter()

    train = data.sample("training", args.structures, args.interval, seed=100)
    test = data.sample("held-out", args.structures // 4, args.interval, seed=200)
    finish("data")
    potential = fit(train, args)
    finish("training")

    print("Measuring the errors", flush=True)
    pair = PairPotential(train, potential.radial.cutoff, ENERGY_WEIGHT)
    predicted = {"potential": energy_and_forces(potential, test.positions), "pair potential": pair(test.positions)}
    results = {name: errors(*values, test) for name, values in predicted.items()}
    finish("errors")

    print("Computing the Hessian, and ASE's finite differences", flush=True)
    minimum = data.cluster()
    own_minimum = vibrations.at_minimum(minimum, potential)
    frequencies = {
        "EMT": vibrations.frequencies_of_ase(minimum),
        "potential": vibrations.frequencies(own_minimum, potential),
        "potential, finite differences": vibrations.frequencies_of_ase(own_minimum),
    }
    finish("vibrations")

    print("Simulating with EMT in ASE", flush=True)
    atoms = data.heated(data.SIMULATION_TEMPERATURE, seed=300)
    state = {
        "positions": torch.from_numpy(atoms.get_positions()),
        "velocities": torch.from_numpy(atoms.get_velocities()),
        "mass": torch.tensor(atoms.get_masses()[0], dtype=torch.float64),
        "time_step": torch.tensor(data.TIME_STEP, dtype=torch.float64),
        "steps": torch.tensor(args.simulate),
    }
    torch.save(state, args.out / "start.pt")
    same_start = atoms.copy()
    true_energies = data.simulate(atoms, args.simulate)
    finish("simulation with EMT")
    same_start.calc = vibrations.TorchCalculator(potential)
    python_energies = data.simulate(same_start, min(args.simulate, 100))
    export(potential, state["positions"][None], args.out)
    finish("export")

    torch.save(
        {
            "positions": test.positions,
            "forces": test.forces,
            "predicted": {name: forces for name, (_, forces) in predicted.items()},
            "frequencies": frequencies,
            "true_energies": true_energies,
            "python_energies": python_energies,
            "minimum": torch.from_numpy(own_minimum.get_positions()),
        },
        args.out / "results.pt",
    )
    seconds["all"] = time.perf_counter() - start
    report = {
        "errors": results,
        "structures": len(train.energies),
        "parameters": sum(p.numel() for p in potential.parameters()),
        "steps": args.steps,
        "seconds": seconds,
    }
    (args.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
