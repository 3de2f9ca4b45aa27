"""Draws the picture: the truth, the field and the baseline with their errors, and the loss curve."""

from pathlib import Path

import matplotlib
import numpy as np
from torch import Tensor

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.image import AxesImage


def _crop(slices: dict[str, Tensor], border: int = 4) -> dict[str, Tensor]:
    """Crops the slices to the part that is not empty."""
    spans = []
    for axis in (0, 1):
        filled = (slices["truth"] > 0).any(1 - axis).nonzero()
        spans.append(slice(max(0, int(filled.min()) - border), int(filled.max()) + 1 + border))
    return {name: image[spans[0], spans[1]] for name, image in slices.items()}


def _show(axes: Axes, image: Tensor, title: str, vmax: float, cmap: str = "gray") -> AxesImage:
    axes.set_title(title, fontsize=11)
    axes.set_axis_off()
    return axes.imshow(image.T.numpy(), origin="lower", cmap=cmap, vmin=0, vmax=vmax, interpolation="nearest")


def _loss_curve(axes: Axes, loss: list[float], held_out: dict[int, float], baseline_mse: float) -> None:
    window = max(1, len(loss) // 50)
    mean = np.convolve(loss, np.ones(window) / window, mode="valid")
    axes.semilogy(np.arange(1, len(loss) + 1), loss, color="C0", alpha=0.25, linewidth=0.8)
    axes.semilogy(np.arange(len(mean)) + window, mean, color="C0", label="voxel field, training voxels")
    axes.semilogy(
        list(held_out), list(held_out.values()), "o-", color="C1", markersize=4, label="voxel field, held-out voxels"
    )
    axes.axhline(baseline_mse, color="gray", linestyle="--", label="upsampling, held-out voxels")
    axes.set(xlabel="training step", ylabel="mean squared error", title="Error during training")
    axes.grid(which="both", alpha=0.3)
    axes.legend(fontsize=9)


def save(
    path: Path,
    slices: dict[str, Tensor],
    psnr: dict[str, float],
    loss: list[float],
    held_out: dict[int, float],
) -> None:
    """``slices``: truth, half, ours and baseline, each ``[x, y]``; ``psnr``: of the last two, in dB."""
    slices = _crop(slices)
    figure = plt.figure(figsize=(14, 8), layout="constrained")
    grid = figure.add_gridspec(2, 4, width_ratios=(1, 1, 1, 1.7))
    axes = np.array([[figure.add_subplot(grid[row, column]) for column in range(3)] for row in range(2)])
    white = slices["truth"].max().item()
    errors = {name: (slices[name] - slices["truth"]).abs() for name in ("ours", "baseline")}
    worst = max(error.quantile(0.999).item() for error in errors.values())

    _show(axes[0, 0], slices["truth"], "MRI slice (truth)", white)
    _show(axes[1, 0], slices["half"], "At half resolution", white)
    _show(axes[0, 1], slices["ours"], f"Voxel field: {psnr['ours']:.2f} dB", white)
    _show(axes[1, 1], slices["baseline"], f"Upsampling: {psnr['baseline']:.2f} dB", white)
    _show(axes[0, 2], errors["ours"], "Voxel field: absolute error", worst, "magma")
    bar = _show(axes[1, 2], errors["baseline"], "Upsampling: absolute error", worst, "magma")
    figure.colorbar(bar, ax=axes[:, 2], shrink=0.7, label="absolute error (1 is the volume's maximum)", extend="max")
    _loss_curve(figure.add_subplot(grid[:, 3]), loss, held_out, 10 ** (-psnr["baseline"] / 10))
    gain = psnr["ours"] - psnr["baseline"]
    figure.suptitle(
        f"On held-out voxels, the voxel field is {abs(gain):.2f} dB {'better' if gain >= 0 else 'worse'} "
        "than trilinear upsampling of half resolution",
        fontsize=14,
    )
    note = (
        "One slice is shown; nine in ten of its voxels were trained on. The numbers in dB (PSNR, higher is better) are "
        "for the held-out voxels of the whole volume."
    )
    figure.supxlabel(note, fontsize=9, color="0.35")
    figure.savefig(path, dpi=110)
    plt.close(figure)
