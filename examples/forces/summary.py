"""Prints the results and draws the picture; fails if C++ computes something else than Python, or if a result is bad."""

import argparse
import json
import sys
import warnings
from pathlib import Path

import data
import picture
import sph  # noqa: F401  (defines the operator that TorchScript calls)
import torch
from torch import Tensor

SHOWN = -1  # the held-out structure in the picture, of the highest temperature
SAME = 1e-8  # relative difference of energies in the first steps, before rounding errors grow
SAME_FREQUENCY = 0.5  # in 1 / cm, between the Hessian and finite differences
MAX_DRIFT = 3.0  # how much larger the change of the total energy may be than with the true potential
MIN_GAIN = 3.0  # how much larger the errors of the forces must be with a pair potential


def drift(energies: Tensor, atoms: int) -> float:
    """The largest change of the total energy in meV per atom."""
    total = energies.sum(1)
    return 1000 * (total - total[0]).abs().max().item() / atoms


def scores(report: dict) -> float:
    print(f"\n{report['structures']} structures, {report['parameters']:,} parameters. Errors on held-out structures:")
    print("                      energy           force")
    for name, row in report["errors"].items():
        energy, force = row["energy_mev_per_atom"], 1000 * row["force_ev_per_angstrom"]
        print(f"  {name:<16}{energy:6.2f} meV/atom{force:8.1f} meV/A")
    pair, potential = (report["errors"][name]["force_ev_per_angstrom"] for name in ("pair potential", "potential"))
    return pair / potential


def vibrations(frequencies: dict[str, Tensor]) -> float:
    true, own, differences = (frequencies[n] for n in ("EMT", "potential", "potential, finite differences"))
    print(f"\nVibrations, {true.min():.0f} to {true.max():.0f} 1/cm with EMT; root mean square differences in 1/cm:")
    for name, other in (("ASE's finite differences of the potential", differences), ("EMT", true)):
        print(f"  Hessian by vmap and {name:<44}{(own - other).square().mean().sqrt():8.4f}")
    return (own - differences).abs().max().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/forces"))
    parser.add_argument("--quick", action="store_true", help="do not judge how well the potential fits")
    args = parser.parse_args()
    report = json.loads((args.out / "report.json").read_text())
    results = torch.load(args.out / "results.pt")
    runs = {name: torch.load(args.out / f"simulation_{name}.pt") for name in ("torchscript", "aoti")}
    problems = []

    gain = scores(report)
    if gain < MIN_GAIN and not args.quick:
        problems.append(f"a pair potential is only {gain:.1f} times worse, not {MIN_GAIN:g} times")
    difference = vibrations(results["frequencies"])
    if difference > SAME_FREQUENCY:
        problems.append(f"a frequency from the Hessian differs by {difference:.2f} 1/cm from finite differences")

    python = results["python_energies"]
    print(f"\nC++ programs without Python, relative difference of energies from Python's in {len(python) - 1} steps:")
    for name, run in runs.items():
        worst = ((run[0][: len(python)] - python).abs().max() / python.abs().max()).item()
        print(f"  {name:<14}{worst:.1e}")
        if worst > SAME:
            problems.append(f"{name} and Python differ by {worst:.1e}")

    true_energies = results["true_energies"]
    steps = len(true_energies) - 1
    picoseconds = steps * data.TIME_STEP / (1000 * data.units.fs)
    print(f"\nTotal energy of {steps} steps, {picoseconds:g} ps: largest change")
    simulated, end = runs["torchscript"]
    true_drift, own_drift = (drift(energies, len(end)) for energies in (true_energies, simulated))
    print(f"  EMT in ASE         {true_drift:.3f} meV/atom\n  potential in C++   {own_drift:.3f} meV/atom")
    if own_drift > MAX_DRIFT * true_drift:
        problems.append("the simulation in C++ does not conserve the energy")

    warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated", FutureWarning)
    potential = torch.jit.load(args.out / "potential.pt")
    arrows = [
        (results["forces"][SHOWN], {"color": "black", "width": 0.016}),
        (results["predicted"]["potential"][SHOWN], {"color": "white", "width": 0.006}),
    ]
    temperature = data.TEMPERATURES[SHOWN]
    structures = [
        ("The minimum of the potential", results["minimum"], []),
        (f"Held out, {temperature} K; forces of EMT and, in white, predicted", results["positions"][SHOWN], arrows),
        (f"After {picoseconds:g} ps in C++", end, []),
    ]
    clusters = [
        picture.Cluster(title, x, potential.atomic_energies(x[None])[0], forces) for title, x, forces in structures
    ]
    energies = {"EMT in ASE": true_energies, "potential in C++": simulated}
    picture.save(args.out / "picture.png", results, report, clusters, energies, data.TIME_STEP)

    seconds = ", ".join(f"{name} {value:.0f} s" for name, value in report["seconds"].items())
    print(f"\n{seconds}.\nPicture: {args.out / 'picture.png'}")
    if args.quick:
        print("This quick run has too few structures and steps to judge the potential.")
    if problems:
        sys.exit("error: " + "; ".join(problems))


if __name__ == "__main__":
    main()
