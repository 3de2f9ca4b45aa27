"""Compares the images and prints the results; fails if the images differ or the eikonal loss does not help."""

import argparse
import json
import sys
from pathlib import Path

import torch
from matplotlib.image import imread

MAX_DIFFERING = 1e-3  # of all pixels
LEVELS = 2  # of 255, the difference of pixels that count as equal
MIN_GAIN = 1.05  # how much larger the chamfer distance must be without the eikonal loss


def compare(out: Path) -> bool:
    python = torch.load(out / "render_python.pt").int()
    print(f"\nThe same image drawn three times, pixels that differ from Python's (must be under {MAX_DIFFERING:.1%}):")
    same = True
    for name, label in (("torchscript", "C++, TorchScript"), ("aoti", "C++, AOTInductor")):
        image = torch.from_numpy(imread(out / f"render_{name}.ppm").copy()).int()
        differing = ((image - python).abs().amax(2) > LEVELS).float().mean().item()
        same &= differing < MAX_DIFFERING
        print(f"  {label:<42}{differing:.3%}")
    return same


def scores(report: dict, quick: bool) -> bool:
    print("\n                          chamfer   angle to the   | |gradient| - 1 |")
    print("                         distance         normal   surface    volume")
    for name, row in report["fields"].items():
        print(
            f"  {name:<20}{row['chamfer_mm']:8.3f} mm{row['normal_degrees']:11.1f} deg"
            f"{row['gradient_on_surface']:10.3f}{row['gradient_in_cube']:10.3f}"
        )
    with_loss, without = (report["fields"][name]["chamfer_mm"] for name in ("with eikonal loss", "without"))
    print(f"\nWithout the eikonal loss the error of the surface is {without / with_loss:.2f} times as large.")
    if quick:
        print("This quick run has too few steps to judge it.")
        return True
    return without / with_loss >= MIN_GAIN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/sdf"))
    parser.add_argument("--quick", action="store_true", help="do not judge the eikonal loss")
    args = parser.parse_args()
    report = json.loads((args.out / "report.json").read_text())

    good = scores(report, args.quick)
    same = compare(args.out)
    seconds = ", ".join(f"{name} {value:.0f} s" for name, value in report["seconds"].items())
    print(f"\nOn {report['device']}: {seconds}.")
    print(f"Picture: {args.out / 'picture.png'}")
    if not same:
        sys.exit(f"error: {MAX_DIFFERING:.1%} of the pixels differ, or more")
    if not good:
        sys.exit(f"error: the surface must be {MIN_GAIN:g} times as accurate with the eikonal loss as without")


if __name__ == "__main__":
    main()
