"""Compares the renders and prints the results; fails if the renders differ or the field is not good enough."""

import argparse
import json
import sys
from pathlib import Path

import torch

TOLERANCE = 1e-5
MIN_GAIN = 1.0  # dB over the best baseline


def compare(out: Path) -> bool:
    python = torch.load(out / "render_python.pt")
    print(f"\nThe same slice rendered three times, largest difference from Python (must be under {TOLERANCE:g}):")
    same = True
    for name, label in (("torchscript", "C++, TorchScript"), ("aoti", "C++, AOTInductor")):
        difference = (torch.load(out / f"render_{name}.pt") - python).abs().max().item()
        same &= difference < TOLERANCE  # false for NaN
        print(f"  {label:<42}{difference:.1e}")
    return same


def scores(report: dict, quick: bool) -> bool:
    print("\nPSNR on held-out voxels, in dB (higher is better) all  in the head")

    def row(name: str, psnr: dict[str, float]) -> None:
        print(f"  {name:<42}{psnr['all']:8.2f}{psnr['head']:14.2f}")

    row(f"voxel field, {report['steps']} steps", report["ours"])
    print("  trilinear upsampling of half resolution:")
    for name, psnr in report["baselines"].items():
        row(f"  {name}", psnr)
    row("full resolution, mean of 6 neighbours", report["neighbour_mean"])
    gain = report["ours"]["all"] - report["baselines"][report["best_baseline"]]["all"]
    better = f"{abs(gain):.2f} dB {'better' if gain >= 0 else 'worse'}"
    print(f"\nThe field is {better} than the best trilinear upsampling ({report['best_baseline']}).")
    ratio = report["parameters"] / report["voxels"]
    print(
        f"It holds {report['parameters']:,} parameters for {report['voxels']:,} voxels ({ratio:.1f} times as many): "
        "it interpolates well, but does not compress."
    )
    if quick:
        print("This quick run has too few steps to judge the PSNR.")
        return True
    return gain >= MIN_GAIN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/voxel_field"))
    parser.add_argument("--quick", action="store_true", help="do not judge the PSNR")
    args = parser.parse_args()
    report = json.loads((args.out / "report.json").read_text())

    good = scores(report, args.quick)
    same = compare(args.out)
    seconds = report["seconds"]
    print(f"\nTraining {seconds['training']:.0f} s, export {seconds['export']:.0f} s on {report['device']}.")
    print(f"Picture: {args.out / 'picture.png'}")
    if not same:
        sys.exit(f"error: the renders differ by {TOLERANCE:g} or more")
    if not good:
        sys.exit(f"error: the field must be {MIN_GAIN:g} dB better than trilinear upsampling")


if __name__ == "__main__":
    main()
