#!/usr/bin/env python3
"""A segmentation network that gives the same numbers after deployment as in training.

    python examples/onnx_segmentation/export.py --out out/onnx_segmentation

Runtimes differ in the coordinates at which they sample an image to resize it. TensorFlow 1.x (resize_bilinear) and
TFLite's legacy kernels use asymmetric coordinates, which F.interpolate does not support. The network here ends in
cppcuda.nn.UpsampleBilinear2d with asymmetric coordinates. It is trained on drawn shapes, exported to ONNX and run by
ONNX Runtime, and compared with the same network that ends in F.interpolate. Writes picture.png, model.onnx and
report.json.
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
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

CLASSES = ("background", "disc", "square")
COLORS = ("#e6e6e6", "#4c9be0", "#f2a03d")
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
    """The last layer of a network without cppcuda."""

    def forward(self, logits: Tensor) -> Tensor:
        return F.interpolate(logits, scale_factor=8, mode="bilinear", align_corners=False)


def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns noisy images with a disc and a square each, and the class of each pixel."""
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
    for _ in (progress := tqdm(range(steps), desc="training", unit="step", mininterval=0.5)):
        batch = torch.randint(len(images), (16,), generator=generator)
        loss = F.cross_entropy(model(images[batch]), labels[batch], weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress.set_postfix_str(f"loss {loss.item():.3f}", refresh=False)


def export(model: nn.Module, images: Tensor, path: Path) -> None:
    """Exports the model for any number of images."""
    count = torch.export.Dim("count", min=2)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecation warnings from within torch
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
    path: Path, images: Tensor, labels: Tensor, classes: dict[str, Tensor], notes: dict[str, str], caption: str
) -> None:
    """Draws a row for each image. ``classes``: the pixels' classes by column; ``notes``: additions to column titles."""
    columns = {"True classes": labels, **classes}
    figure, axes = plt.subplots(len(images), 1 + len(columns), figsize=(15, 7.2), layout="constrained")
    colors = ListedColormap(COLORS)
    for row, image in enumerate(images):
        axes[row, 0].imshow(((image + 0.5) / 2).clamp(0, 1).permute(1, 2, 0).numpy())
        for ax, shown in zip(axes[row, 1:], columns.values(), strict=True):
            ax.imshow(shown[row].numpy(), cmap=colors, vmin=0, vmax=len(COLORS) - 1, interpolation="nearest")
            for label in (1, 2):
                ax.contour((labels[row] == label).numpy(), levels=[0.5], colors="black", linewidths=1)
    for ax, title in zip(axes[0], ("Image", *columns), strict=True):
        ax.set_title(title + notes.get(title, ""), fontsize=11)
    for ax in axes.flat:
        ax.set_axis_off()
    legend = [Patch(color=color, label=name) for color, name in zip(COLORS, CLASSES, strict=True)]
    legend.append(Line2D([], [], color="black", linewidth=1, label="outline of a true shape"))
    figure.legend(handles=legend, title=caption, loc="outside lower center", ncols=len(legend), frameon=False)
    figure.suptitle("Does PyTorch give each pixel the class that the deployed network gives it?", fontsize=14)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the picture, the model and the report")
    parser.add_argument("--steps", type=int, default=300, help="training steps (default: %(default)s)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    start = time.perf_counter()

    model = Head()
    print("Training the network on drawn images of a disc and a square", flush=True)
    fit(model, args.steps, generator)
    model.eval().requires_grad_(False)
    images, labels = draw(16, generator)
    print("Exporting it to ONNX", flush=True)
    export(model, images, args.out / "model.onnx")

    print(f"Running it on {len(images)} new images, in ONNX Runtime and in PyTorch\n", flush=True)
    runtime = onnxruntime.InferenceSession(args.out / "model.onnx", providers=["CPUExecutionProvider"])
    (output,) = runtime.run(None, {runtime.get_inputs()[0].name: images.numpy()})
    deployed = torch.from_numpy(np.asarray(output))
    logits = {"PyTorch with cppcuda": model(images)}
    model.upsample = Interpolate()
    logits["PyTorch with F.interpolate"] = model(images)

    classes = {name: values.argmax(1) for name, values in {"ONNX Runtime": deployed, **logits}.items()}
    differing = {name: (classes[name] != classes["ONNX Runtime"]).double().mean().item() for name in logits}
    largest = {name: (values - deployed).abs().max().item() for name, values in logits.items()}
    print(f"{'':28}{'correct pixels':>16}{'pixels that differ':>20}{'largest difference':>20}")
    print(f"{'':28}{'':16}{'from ONNX Runtime':>20}{'of a logit':>20}")
    for name, predicted in classes.items():
        row = f"{name:28}{(predicted == labels).double().mean():16.1%}"
        print(row + (f"{differing[name]:20.2%}{largest[name]:20.2g}" if name in logits else ""))

    ours, plain = largest.values()
    shown = slice(2)
    picture(
        args.out / "picture.png",
        images[shown],
        labels[shown],
        {name: predicted[shown] for name, predicted in classes.items()},
        {
            "ONNX Runtime": "\nthe deployed network",
            **{name: f"\n{share:.2%} of all pixels differ" for name, share in differing.items()},
        },
        f"Two of {len(images)} images. The largest difference of a logit from ONNX Runtime over all of them is "
        f"{ours:.2g} with cppcuda and {plain:.2g} with F.interpolate.",
    )
    report = {"cppcuda": ours, "F.interpolate": plain}
    (args.out / "report.json").write_text(json.dumps({"largest_difference": report}, indent=2) + "\n")
    print(f"\nPicture: {args.out / 'picture.png'} ({time.perf_counter() - start:.0f} s in all)")
    # Relative to the largest logit, within the accuracy of float32. NaN fails, too.
    if not ours <= 1e-5 * max(1, deployed.abs().max().item()):
        raise SystemExit("error: the deployed network gives different numbers")
    if plain < 1e-3:
        raise SystemExit("error: F.interpolate agrees as well, so the comparison shows nothing")


if __name__ == "__main__":
    main()
