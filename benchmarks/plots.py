"""Pictures of a benchmark's rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from targets import STREAM

# Okabe and Ito's palette, for every kind of colour vision; the colour says which contestant.
COLOURS = {
    "cppcuda": "#0072B2",
    "eager": "#D55E00",
    "torch.sigmoid": "#D55E00",
    "F.interpolate": "#D55E00",
    "torch.compile": "#009E73",
    "eager bmm": "#CC79A7",
    "eager factored": "#F0E442",
    "F.grid_sample": "#E69F00",
    "cppcuda float32": "#56B4E9",
    STREAM: "#000000",
}
MARKERS = {"cppcuda": "o", "torch.compile": "^", STREAM: "_"}
Rows = list[dict[str, Any]]


def _times(axes: Axes, rows: Rows) -> None:
    """Time per element over size: medians, with quartiles behind them."""
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
    """A panel for each activation and dtype."""
    rows = [r for r in rows if r["mode"] == mode and (r["layout"], r["regime"], r["threads"]) == _USUAL]
    rows = [r for r in rows if r["op"] in ("sigmoid", "quick_gelu")]
    panels: dict[tuple[str, str], Rows] = {}
    for row in rows:
        panels.setdefault((row["op"], row["dtype"]), []).append(row)
    # One size is no line.
    panels = {key: of for key, of in panels.items() if len(of) > 1}
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


def draw_bars(rows: Rows, peers: list[str], xlabel: str, title: str, path: Path, log: bool) -> None:
    """A group of bars for each row: its ratios, with quartiles; a line at 1."""
    rows = [r for r in rows if any("ratio" in r["contestants"].get(p, {}) for p in peers)]
    if not rows:
        return
    bars = [[(p, r["contestants"][p]) for p in peers if "ratio" in r["contestants"].get(p, {})] for r in rows]
    count = sum(map(len, bars))
    figure, axes = plt.subplots(figsize=(11, 2 + 0.17 * count + 0.13 * len(rows)), layout="constrained")
    y, ticks, seen = 0.0, [], set()
    for of in bars:
        ticks.append(y + (len(of) - 1) / 2)
        for name, c in of:
            ratio, (low, high) = c["ratio"], c["ratio_quartiles"]
            label = None if name in seen else name
            seen.add(name)
            spread = [[max(0.0, ratio - low)], [max(0.0, high - ratio)]]
            style: dict[str, Any] = {"error_kw": {"elinewidth": 0.8, "ecolor": "#555555"}}
            axes.barh(y, ratio, 0.9, color=COLOURS[name], label=label, xerr=spread, **style)
            axes.annotate(
                f"{ratio:.2f}", (max(ratio, high), y), (4, 0), textcoords="offset points", va="center", fontsize=7
            )
            y += 1
        y += 0.8
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(ticks, [r["name"] for r in rows], fontsize=8)
    axes.set_ylim(y - 0.8, -0.8)
    if log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.margins(x=0.08)
    axes.set_xlabel(xlabel)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    if len(seen) > 1:
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.06), ncols=len(seen), frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)


_USUAL = ("contiguous", "default", "all")


def draw(rows: Rows, title: str, folder: Path) -> None:
    for mode in ("forward", "backward"):
        draw_times(rows, mode, title, folder / f"time_{mode}.png")
    of_roofline = "fraction of the memory roofline: time of a stream loop with the same reads and writes / cppcuda's"
    draw_bars(rows, [STREAM], of_roofline, title, folder / "roofline.png", log=False)
    # The cases of the targets, and what is no activation: every size of those would be a poster.
    large = [r for r in rows if r["targeted"] or r["op"] not in ("sigmoid", "quick_gelu")]
    peers = [name for name in COLOURS if name not in ("cppcuda", STREAM)]
    draw_bars(large, peers, "time of the peer / cppcuda's", title, folder / "ratio.png", log=True)
