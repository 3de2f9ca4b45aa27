#!/usr/bin/env python3
"""A segmentation network that gives the same numbers after its deployment as in training.

    python examples/onnx_segmentation/export.py --out out/onnx_segmentation

Runtimes differ in where they sample an image that they resize. TensorFlow 1.x (resize_bilinear) and TFLite's legacy
kernels use asymmetric coordinates, F.interpolate has none of that kind. The network here ends in
cppcuda.nn.UpsampleBilinear2d(asymmetric). It is trained on drawn shapes, exported to ONNX and run by ONNX Runtime; the
same network with F.interpolate in that place stands beside it. Writes picture.png, model.onnx and report.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import warnings
from pathlib import Path

import cppcuda
import matplotlib
import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

matplotlib.use("Agg")
import matplotlib.pyplot as plt

CLASSES = ("background", "disc", "square")
SIZE, SEED = 96, 0


class Head(nn.Module):
    """Images [N, 3, H, W] -> logits [N, classes, H, W], computed at an eighth of the resolution and upsampled."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs in (3, width, width):
            layers += [nn.Conv2d(inputs, width, 3, stride=2, padding=1), cppcuda.nn.QuickGELU()]
        self.features = nn.Sequential(*layers, nn.Conv2d(width, width, 3, padding=1), cppcuda.nn.QuickGELU())
        self.classify = nn.Conv2d(width, len(CLASSES), 1)
        self.upsample: nn.Module = cppcuda.nn.UpsampleBilinear2d(
            scale_factor=8, coordinate_transformation_mode="asymmetric"
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.upsample(self.classify(self.features(images)))


class Interpolate(nn.Module):
    """What a network has without cppcuda."""

    def forward(self, logits: Tensor) -> Tensor:
        return F.interpolate(logits, scale_factor=8, mode="bilinear", align_corners=False)


def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images of a disc and a square each, with noise, and the class of each pixel."""
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    labels = torch.zeros(count, SIZE, SIZE, dtype=torch.long)
    images = torch.randn(count, 3, SIZE, SIZE, generator=generator) * 0.3
    for n in range(count):
        for label in (1, 2):
            center = torch.randint(16, SIZE - 16, (2,), generator=generator)
            radius = int(torch.randint(8, 16, (1,), generator=generator))
            dy, dx = (y - center[0]).abs(), (x - center[1]).abs()
            inside = dy**2 + dx**2 < radius**2 if label == 1 else torch.maximum(dy, dx) < radius
            labels[n][inside] = label
            color = torch.rand(3, 1, generator=generator) + torch.tensor([[0.5], [0.0], [0.0]]) * (label == 1)
            images[n, :, inside] += color
    return images, labels


def fit(model: nn.Module, steps: int, generator: torch.Generator) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    weight = torch.tensor([0.2, 1.0, 1.0])
    images, labels = draw(256, generator)
    for _ in (progress := tqdm(range(steps), unit="step", mininterval=0.5)):
        some = torch.randint(len(images), (16,), generator=generator)
        loss = F.cross_entropy(model(images[some]), labels[some], weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress.set_postfix_str(f"loss {loss.item():.3f}", refresh=False)


def export(model: nn.Module, images: Tensor, path: Path) -> None:
    """For any number of images."""
    count = torch.export.Dim("count", min=2)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says of its own plans
        program = torch.onnx.export(
            model,
            (images,),
            dynamo=True,
            verbose=False,
            dynamic_shapes=({0: count},),
            custom_translation_table=cppcuda.onnx.translation_table(),
        )
    path.write_bytes(program.model_proto.SerializeToString())


def picture(
    path: Path, image: Tensor, deployed: Tensor, plain: Tensor, difference: Tensor, largest: dict[str, float]
) -> None:
    figure, axes = plt.subplots(1, 4, figsize=(14, 4.2), layout="constrained")
    shown = ((image - image.min()) / (image.max() - image.min())).permute(1, 2, 0)
    axes[0].imshow(shown.numpy())
    axes[0].set_title("Image")
    titles = ("ONNX Runtime, and cppcuda", "F.interpolate in its place")
    for ax, logits, title in zip(axes[1:3], (deployed, plain), titles, strict=True):
        ax.imshow(logits.argmax(0).numpy(), cmap="viridis", vmin=0, vmax=2, interpolation="nearest")
        ax.set_title(title)
    shown_difference = axes[3].imshow(difference.numpy(), cmap="magma", interpolation="nearest")
    axes[3].set_title("|difference| of the logits,\nF.interpolate to ONNX Runtime", fontsize=11)
    figure.colorbar(shown_difference, ax=axes[3], shrink=0.7)
    for ax in axes:
        ax.set_axis_off()
    by = ", ".join(f"{name} {value:.1e}" for name, value in largest.items())
    figure.suptitle(f"Deployed with asymmetric coordinates. Largest difference of a logit to ONNX Runtime: {by}")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the picture, the model and the report")
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    start = time.perf_counter()

    model = Head()
    fit(model, args.steps, generator)
    model.eval().requires_grad_(False)
    images, labels = draw(16, generator)
    export(model, images, args.out / "model.onnx")

    runtime = onnxruntime.InferenceSession(args.out / "model.onnx", providers=["CPUExecutionProvider"])
    (deployed,) = runtime.run(None, {runtime.get_inputs()[0].name: images.numpy()})
    deployed = torch.from_numpy(np.asarray(deployed))
    ours = model(images)
    model.upsample = Interpolate()
    plain = model(images)

    differences = {"cppcuda": (ours - deployed).abs(), "F.interpolate": (plain - deployed).abs()}
    wrong = {"cppcuda": ours, "F.interpolate": plain}
    print(
        f"Logits of {len(images)} images, up to {deployed.abs().max():.1f}; pixels of the right class in ONNX Runtime:",
        end=" ",
    )
    print(f"{(deployed.argmax(1) == labels).double().mean():.1%}")
    print("Difference to ONNX Runtime:")
    for name, difference in differences.items():
        changed = (wrong[name].argmax(1) != deployed.argmax(1)).double().mean()
        print(f"  {name:14} {difference.max():.2e} at most, {changed:.2%} of the pixels in another class")
    worst = differences["cppcuda"].max().item()
    shown = (deployed.argmax(1) == labels).flatten(1).sum(1).argmax()  # the best one
    picture(
        args.out / "picture.png",
        images[shown],
        deployed[shown],
        plain[shown],
        differences["F.interpolate"][shown].amax(0),
        {name: difference.max().item() for name, difference in differences.items()},
    )
    report = {name: difference.max().item() for name, difference in differences.items()}
    (args.out / "report.json").write_text(json.dumps({"largest_difference": report}, indent=2) + "\n")
    print(f"{args.out / 'picture.png'}, {time.perf_counter() - start:.0f} s")
    # Relative to the logits, as far as float32 carries.
    if worst > 1e-5 * max(1, deployed.abs().max().item()):
        raise SystemExit("error: the deployed network gives other numbers")
    if differences["F.interpolate"].max() < 1e-3:
        raise SystemExit("error: F.interpolate agrees as well: the comparison shows nothing")


if __name__ == "__main__":
    main()
