"""Draws the pictures of a benchmark's rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from targets import LSTM, OWN_LSTM, PRODUCTS, ROWS, ROWS_FORMULAS, STREAM

# These share a colour and an entry in the legend, because no row has two of them.
_BUILT_IN = ("built-in", "torch.sigmoid", "F.interpolate", "F.grid_sample", "F.embedding_bag")
# Each contestant's colour, in the order of the bars. Okabe and Ito's palette suits every kind of colour vision.
COLOURS = {
    "cppcuda": "#0072B2",
    "eager": "#D55E00",
    **dict.fromkeys(_BUILT_IN, "#E69F00"),
    "torch.compile": "#009E73",
    "eager bmm": "#CC79A7",
    "eager factored": "#F0E442",
    "channels_last_3d": "#F0E442",
    "trilinear_indexed": "#CC79A7",
    "index_select": "#CC79A7",
    "cppcuda float32": "#56B4E9",
    "cppcuda loop": "#56B4E9",
    "gather": "#56B4E9",
    "warp": "#56B4E9",
    LSTM: "#CC79A7",
    OWN_LSTM: "#F0E442",
    PRODUCTS: "#999999",
    **dict.fromkeys((STREAM, ROWS), "#000000"),
}
MARKERS = {"cppcuda": "o", "torch.compile": "^", STREAM: "_"}
ELEMENTWISE = ("quick_gelu", "sigmoid")
Rows = list[dict[str, Any]]


def _times(axes: Axes, rows: Rows) -> None:
    """Plots time per element over size: medians as lines, quartiles as bands."""
    names = dict.fromkeys(name for row in rows for name in row["contestants"])
    for name in names:
        points = sorted((r["elements"], r["contestants"][name]) for r in rows if name in r["contestants"])
        sizes = [n for n, _ in points]
        per_element = [1e9 * c["median"] / n for n, c in points]
        low, high = ([1e9 * c["quartiles"][i] / n for n, c in points] for i in (0, 1))
        colour = COLOURS[name]
        axes.plot(sizes, per_element, color=colour, marker=MARKERS.get(name, "s"), markersize=5, label=name)
        axes.fill_between(sizes, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.grid(alpha=0.3)


def draw_times(rows: Rows, mode: str, title: str, path: Path) -> None:
    """Draws a panel for each elementwise operator and dtype."""
    usual = (mode, "contiguous", "default", "all")
    panels: dict[tuple[str, str], Rows] = {}
    for row in rows:
        if row["op"] in ELEMENTWISE and (row["mode"], row["layout"], row["regime"], row["threads"]) == usual:
            panels.setdefault((row["op"], row["dtype"]), []).append(row)
    # A line needs more than one size.
    panels = {key: panel for key, panel in panels.items() if len(panel) > 1}
    ops, dtypes = (list(dict.fromkeys(key[i] for key in panels)) for i in (0, 1))
    if not panels:
        return
    figure, grid = plt.subplots(
        len(ops),
        len(dtypes),
        figsize=(1.5 + 3.6 * len(dtypes), 1.2 + 3 * len(ops)),
        squeeze=False,
        sharex=True,
        sharey="row",
        layout="constrained",
    )
    for i, op in enumerate(ops):
        for j, dtype in enumerate(dtypes):
            axes = grid[i][j]
            axes.set_title(f"{op}, {dtype}", fontsize=10)
            if (op, dtype) in panels:
                _times(axes, panels[op, dtype])
                axes.legend(fontsize=8)
        grid[i][0].set_ylabel("ns per element")
    for axes in grid[-1]:
        axes.set_xlabel("elements")
    figure.suptitle(f"{mode}, outputs allocated in the call\n{title}", fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_bars(rows: Rows, peers: list[str], xlabel: str, title: str, path: Path) -> None:
    """Draws a group of bars for each row: its ratios, with quartiles, and a line at 1. Ratios to peers may be above or
    below 1, so their bars start at 1, on a log axis. Fractions of the roofline start at 0."""
    rows = [r for r in rows if any("ratio" in r["contestants"].get(p, {}) for p in peers)]
    if not rows:
        return
    is_bound = peers == [STREAM, ROWS]
    start = 0 if is_bound else 1
    bars = [[(p, r["contestants"][p]) for p in peers if "ratio" in r["contestants"].get(p, {})] for r in rows]
    height = 1.6 + 0.16 * (sum(map(len, bars)) + 0.8 * len(rows))
    figure, axes = plt.subplots(figsize=(11, height), layout="constrained")
    y, ticks = 0.0, []
    handles: dict[str, Artist] = {}
    built_in = ", ".join(name for name in _BUILT_IN if any(name in dict(group) for group in bars))
    for group in bars:
        ticks.append(y + (len(group) - 1) / 2)
        for name, c in group:
            ratio, (low, high) = c["ratio"], c["ratio_quartiles"]
            colour = COLOURS["cppcuda"] if is_bound else COLOURS[name]
            (bar,) = axes.barh(y, ratio - start, 0.9, left=start, color=colour)
            handles.setdefault(built_in if name in _BUILT_IN else name, bar)
            axes.plot([low, high], [y, y], color="#333333", linewidth=1)
            right: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
            axes.annotate(f"{ratio:.2f}", (max(start, ratio, high), y), **right)
            y += 1
        y += 0.8
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(ticks, [r["name"] for r in rows], fontsize=8)
    axes.set_ylim(y - 0.8, -0.8)
    if start:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=5, fontsize=8, frameon=False
        )
    axes.margins(x=0.1)
    axes.set_xlabel(xlabel, fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw(rows: Rows, title: str, folder: Path) -> None:
    rows = sorted(rows, key=lambda r: r["op"])  # a stable sort: within an operator, in the order of measurement
    for mode in ("forward", "backward"):
        draw_times(rows, mode, title, folder / f"time_{mode}.png")
    text = "fraction of the memory roofline (time of a loop that moves the same bytes or rows / cppcuda's)"
    draw_bars(rows, [STREAM, ROWS], text, title, folder / "roofline.png")
    peers = [name for name in COLOURS if name not in ("cppcuda", STREAM, ROWS)]
    # Only the elementwise cases that have a target, because a plot of every size would be too large.
    groups = {"elementwise": [r for r in rows if r["op"] in ELEMENTWISE and r["targeted"]]}
    for op in ("trilinear", "trilinear_indexed", "grid_sample3d", "hash_grid", "upsample", "lltm"):
        groups[op] = [r for r in rows if r["op"].startswith(op)]
    groups["trilinear"] = [r for r in groups["trilinear"] if r not in groups["trilinear_indexed"]]
    for name, ops in {"points": ("rotate", "project", "neo_hookean"), "rows": tuple(ROWS_FORMULAS)}.items():
        groups[name] = [r for r in rows if r["op"].startswith(ops)]
    for name, group in groups.items():
        text = "time of the peer / cppcuda's (right of 1, cppcuda is faster)"
        draw_bars(group, peers, text, title, folder / f"ratio_{name}.png")
