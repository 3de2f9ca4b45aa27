"""Draws the picture: the mesh beside the surfaces of both fields, and their distances in a plane."""

from dataclasses import dataclass
from pathlib import Path

import matplotlib
from torch import Tensor

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.image import AxesImage

LINES = 2  # mm between lines of equal distance
COLOURS = TwoSlopeNorm(0, vmin=-16, vmax=40)  # mm


@dataclass
class Column:
    title: str
    views: list[Tensor]  # [H, W, 3] each, uint8
    plane: Tensor  # [y, z], distances in mm


def _show(axes: Axes, image: Tensor) -> None:
    axes.imshow(image.numpy())
    axes.set_axis_off()


def _contours(axes: Axes, plane: Tensor, millimetres: float) -> AxesImage:
    """``millimetres`` is the length of the plane's edge."""
    extent = (0.0, millimetres, 0.0, millimetres)
    values = plane.T.numpy()
    image = axes.imshow(values, origin="lower", extent=extent, cmap="RdBu_r", norm=COLOURS, interpolation="bilinear")
    levels = [level for level in range(-16, 41, LINES) if level != 0]
    style = {"origin": "lower", "extent": extent, "colors": "black", "linestyles": "solid"}
    axes.contour(values, levels=levels, linewidths=0.4, alpha=0.5, **style)
    axes.contour(values, levels=[0], linewidths=1.6, **style)
    axes.set(xlim=(0.03 * millimetres, 0.97 * millimetres), ylim=(0.13 * millimetres, 0.85 * millimetres))
    axes.set_axis_off()
    return image


def save(path: Path, title: str, note: str, columns: list[Column], millimetres: float) -> None:
    figure, axes = plt.subplots(3, len(columns), figsize=(15, 12.2), layout="constrained")
    for column, (top, middle, bottom) in zip(columns, axes.T, strict=True):
        top.set_title(column.title, fontsize=14)
        _show(top, column.views[0])
        _show(middle, column.views[1])
        image = _contours(bottom, column.plane, millimetres)
    label = f"Signed distance in a plane from front to back, in mm. There is a line every {LINES} mm."
    figure.colorbar(image, ax=axes, location="bottom", shrink=0.4, aspect=50, pad=0.01, extend="both", label=label)
    figure.suptitle(title, fontsize=17)
    figure.supxlabel(note, fontsize=10, color="0.35")
    figure.savefig(path, dpi=100)
    plt.close(figure)
