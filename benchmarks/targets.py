"""The targets as data, for two cores of a CPU and for an H100 or H200.

If a target has several cases, the worst one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

STREAM = "stream"
# Moves the rows of a table that points choose, and computes nothing (gather.py).
ROWS = "rows"
# Copies as many bytes as the case reads and writes.
COPY = "copy"
# These compute something else, at the same sizes, and are compared with by time only.
LSTM, OWN_LSTM = "nn.LSTM", "nn.LSTM without oneDNN"
# The numbers of elements of the elementwise cases.
SIZES = tuple(2**e for e in (6, 10, 14, 17, 20, 22, 24, 26))
ACTIVATIONS = ("quick_gelu", "sigmoid")
FORMULAS = ("gelu", "mish", "sin", "softplus")
# Formulas of rows, with the number of their weights.
ROWS_FORMULAS = {"rms_norm": 1, "layer_norm": 2, "softmax": 0}
_LARGE = (2**20, 2**22, 2**24, 2**26)


@dataclass(frozen=True)
class Target:
    text: str
    against: str
    at_least: float  # time of `against` over ours; for "stream" the fraction of the roofline
    where: dict[str, Any] = field(default_factory=dict)

    def selects(self, row: dict[str, Any]) -> bool:
        """Whether the case belongs to this target: by default contiguous float32 with all threads."""
        where = {"layout": "contiguous", "threads": "all", "dtype": "float32", "regime": "default", **self.where}
        return all(row[k] in v if isinstance(v, tuple) else row[k] == v for k, v in where.items())


def _targets() -> Iterator[Target]:
    def target(text: str, against: str, at_least: float, **where: Any) -> Target:
        return Target(text, against, at_least, where)

    gelu: dict[str, Any] = {"op": "quick_gelu", "mode": "forward"}
    sigmoid: dict[str, Any] = {"op": "sigmoid", "mode": "forward"}
    for regime, eager, compiled, builtin in (("default", 8, 3, 3.5), ("thp", 3, 1.1, 1)):
        large = {"elements": 2**26, "regime": regime}
        yield target(f"quick_gelu 2^26, {regime}", "eager", eager, **gelu, **large)
        yield target(f"quick_gelu 2^26, {regime}", "torch.compile", compiled, **gelu, **large)
        yield target(f"sigmoid 2^26, {regime}", "torch.sigmoid", builtin, **sigmoid, **large)
    yield target("sigmoid, any smaller size", "torch.sigmoid", 1, **sigmoid, elements=SIZES[:-1])
    yield target("quick_gelu 2^20", "eager", 2.5, **gelu, elements=2**20)
    yield target("quick_gelu 2^20", "torch.compile", 1.5, **gelu, elements=2**20)
    for op in ACTIVATIONS:
        into = {"op": op, "mode": "forward", "regime": "out"}
        yield target(f"{op} into an existing output, >= 64 MiB", STREAM, 0.9, **into, elements=(2**24, 2**26))
        for dtype in ("bfloat16", "float16"):
            text = f"{op} {dtype} 2^26, existing output"
            yield target(text, "cppcuda float32", 1, **into, elements=2**26, dtype=dtype)
        yield target(f"{op} backward, >= 2^20", "eager", 3, op=op, mode="backward", elements=_LARGE)

    for op, mode, peer in product(FORMULAS, ("forward", "both"), ("built-in", "torch.compile")):
        where = {"op": op, "mode": mode, "regime": "reused"}
        yield target(f"{op} {mode}", peer, 1, **where, dtype=("float32", "bfloat16"), threads=("all", "one"))
    for op, mode in product(ACTIVATIONS, ("forward", "both")):
        where = {"op": f"fused_{op}", "mode": mode, "regime": "reused"}
        yield target(f"{op}(x + b) * y {mode}, compiled", "kernel", 1, **where, threads=("all", "one"))
    several: dict[str, Any] = {"regime": "reused", "threads": ("all", "one")}
    for op in ("rotate", "project"):
        yield target(f"{op} of 2^20 points", COPY, 0.8, op=op, mode="forward", **several)
        yield target(f"{op} of 2^20 points, both ways", "torch.compile", 1, op=op, mode="both", **several)
    for mode in ("forward", "both"):
        yield target(f"energy of 2^20 matrices, {mode}", "torch.compile", 3, op="neo_hookean", mode=mode, **several)
    for op, mode, peer in product(ROWS_FORMULAS, ("forward", "both"), ("built-in", "torch.compile")):
        yield target(f"{op} of 2^24 values, {mode}", peer, 1, op=op, mode=mode, **several)
    where = {"op": "neo_hookean_hessian", "mode": "forward", "regime": "reused"}
    yield target("Hessian of the energy of 2^17 matrices", "eager", 20, **where)
    for mode, bounds in (("forward", (7, 2.5, 6, 1.5)), ("backward", (20, 4, 6, 3))):
        where: dict[str, Any] = {"op": "trilinear", "mode": mode, "size": tuple(f"65536x{f}" for f in (8, 32, 256))}
        bmm = where if mode == "backward" else {**where, "size": "65536x256"}
        peers = zip(("eager", "eager bmm", "F.grid_sample", "torch.compile"), bounds, strict=True)
        for peer, bound in peers:
            yield target(f"trilinear {mode}", peer, bound, **(bmm if peer == "eager bmm" else where))
    large = {"op": "trilinear", "size": "65536x256"}
    yield target("trilinear F=256, memory that is reused", STREAM, 0.9, **large, mode="forward", regime="reused")
    yield target("trilinear F=256 backward", STREAM, 0.45, **large, mode="backward")

    where = {"op": "trilinear_eikonal", "mode": "both", "regime": "reused"}
    yield target("trilinear, a step with an eikonal loss", "eager", 3.5, **where)

    indexed: dict[str, Any] = {"op": "trilinear_indexed", "mode": "both", "regime": "reused"}
    for peer, bound in (("eager", 3.5), ("torch.compile", 1)):
        yield target("trilinear_indexed, both ways", peer, bound, **indexed)
    few = tuple(f"65536x{f} of 46^3" for f in (1, 2))
    yield target("trilinear_indexed, one and two features", "torch.compile", 1.3, **indexed, size=few)
    for mode in ("forward", "backward"):
        where = {"op": "trilinear", "mode": mode, "size": "65536x1"}
        yield target(f"trilinear {mode}, one feature", "torch.compile", 1.3, **where)

    grid: dict[str, Any] = {"op": "grid_sample3d", "regime": "reused"}
    for peer in ("F.grid_sample", "channels_last_3d"):
        for mode, bound in (("forward", 4), ("backward", 2)):
            sizes = tuple(f"65536x{f} of 64^3" for f in (32, 128))
            yield target(f"grid_sample3d {mode}, F=32 and 128", peer, 8, **grid, mode=mode, size=sizes)
            text = f"grid_sample3d {mode}, F=4 in 128^3"
            yield target(text, peer, bound, **grid, mode=mode, size="65536x4 of 128^3")
            sizes = tuple(f"65536x1 of {side}^3" for side in (64, 256))
            yield target(f"grid_sample3d {mode}, one channel", peer, 1.3, **grid, mode=mode, size=sizes)

    for mode, bounds in (("forward", (10, 1.2)), ("backward", (50, 50))):
        where = {"op": "hash_grid", "mode": mode, "regime": "reused"}
        for peer, bound in zip(("eager", "torch.compile"), bounds, strict=True):
            yield target(f"hash_grid {mode}", peer, bound, **where)

    for layout, regime, forward, backward in (
        ("contiguous", "default", 6, 6),
        ("channels_last", "default", 3, 2.5),
        ("channels_last", "thp", 1, 1.5),
    ):
        for mode, bound in (("forward", forward), ("backward", backward)):
            text = f"upsample_bilinear2d {layout} {mode}, {regime}"
            size = {"op": "upsample_bilinear2d", "size": "8x64x128x128"}
            yield target(text, "F.interpolate", bound, **size, mode=mode, layout=layout, regime=regime)

    cell = {"op": "lltm_cell", "size": "16/32/128", "mode": "both"}
    yield target("lltm_cell 16/32/128 forward + backward", "eager", 2, **cell)
    yield target("lltm_cell 16/32/128 forward + backward", "torch.compile", 1.2, **cell)
    for peer, bound in (("cppcuda loop", 3), ("eager", 3), (LSTM, 1), (OWN_LSTM, 1)):
        yield target("lltm 128x16/32/128 forward + backward", peer, bound, op="lltm", mode="both", regime="reused")
    # At most 0.6 of the peer's time.
    yield target(
        "quick_gelu 64 elements, both from Python", "eager", 1 / 0.6, op="quick_gelu", mode="both", elements=64
    )


# The time of lltm_cell's matrix products plus that of a stream kernel that moves the bytes of its pointwise part.
PRODUCTS = "products + stream"
# The contestants that measure a bound.
BOUNDS = frozenset((STREAM, ROWS, PRODUCTS, COPY))
# Regimes of a GPU: the time that the GPU takes, and the time of a caller, whose launches may take longer than that.
GPU_TIME, HOST_TIME = "gpu", "host"


def trilinear_size(features: int, values: int = 2**24) -> str:
    """The size of a case with `values` numbers in the output."""
    return f"{values // features}x{features}"


def _gpu_targets() -> Iterator[Target]:
    def target(text: str, against: str, at_least: float, **where: Any) -> Target:
        return Target(text, against, at_least, {"regime": GPU_TIME, **where})

    any_dtype = ("float32", "float16", "bfloat16")
    for op in ACTIVATIONS:
        yield target(f"{op}, both ways", STREAM, 0.97, op=op, dtype=any_dtype)
    for mode, bound in (("forward", 3.3), ("backward", 4.3)):
        yield target(f"quick_gelu {mode}", "eager", bound, op="quick_gelu", mode=mode, dtype=any_dtype)
    for mode, bound, eager, compiled in (("forward", 0.97, 3, 1), ("backward", 0.93, 5, 1.3)):
        where: dict[str, Any] = {"op": "trilinear", "mode": mode}
        for text, features, fraction in (("F >= 8", (8, 32, 256), bound), ("F < 8 or odd", (1, 3, 4, 33), 0.85)):
            sizes = tuple(trilinear_size(f) for f in features)
            yield target(f"trilinear {mode}, {text}", STREAM, fraction, **where, size=sizes, dtype=any_dtype)
        yield target(f"trilinear {mode}", "eager", eager, **where)
        sizes = tuple(trilinear_size(f) for f in (1, 3, 8, 32, 256))  # the other sizes are not compiled
        yield target(f"trilinear {mode}", "torch.compile", compiled, **where, size=sizes)
    for mode, bound, builtin, in_16_bits in (("forward", 0.93, 1.2, 1.2), ("backward", 0.9, 2, 4)):
        where = {"op": "upsample_bilinear2d", "mode": mode, "layout": ("contiguous", "channels_last")}
        yield target(f"upsample_bilinear2d {mode}", STREAM, bound, **where, dtype=any_dtype)
        yield target(f"upsample_bilinear2d {mode}", "F.interpolate", builtin, **where)
        where["dtype"] = any_dtype[1:]
        yield target(f"upsample_bilinear2d {mode}, 16 bits", "F.interpolate", in_16_bits, **where)
    for op, size in (("grid_sample3d", "32 of 128^3"), ("trilinear_indexed", "32 of 128^3")):
        for mode in ("forward", "backward"):
            yield target(f"{op} {mode}, F = 32", ROWS, 0.85, op=op, mode=mode, size=f"{2**20}x{size}")
    two_dtypes = ("float32", "float16")
    for mode, bound in (("forward", 0.85), ("backward", 0.9)):
        size = f"{2**20}x32{', params only' * (mode == 'backward')}"
        yield target(f"hash_grid {mode}", ROWS, bound, op="hash_grid", mode=mode, size=size, dtype=two_dtypes)
    for features, bound in ((32, 5), (2, 1.5)):
        where = {"op": "grid_sample3d", "size": f"{2**20}x{features} of 128^3"}
        for mode in ("forward", "backward"):
            yield target(f"grid_sample3d {mode}, F = {features}", "F.grid_sample", bound, **where, mode=mode)
    for mode in ("forward", "backward"):
        # At most 1.08 of the peer's time.
        yield target(f"lltm_cell {mode}, large", PRODUCTS, 1 / 1.08, op="lltm_cell", mode=mode)
    for regime in (GPU_TIME, HOST_TIME):
        cell = {"op": "lltm_cell", "mode": "both", "regime": regime}
        yield target(f"lltm_cell 16/32/128, both ways, {regime} time", "eager", 5, **cell)
    for peer, bound in (("cppcuda loop", 3), (LSTM, 1)):
        yield target("lltm 128x16/32/128, both ways", peer, bound, op="lltm", mode="both", size="128x16/32/128")


TARGETS = {"cpu": tuple(_targets()), "cuda": tuple(_gpu_targets())}


def targeted_peers(row: dict[str, Any], device: str) -> set[str]:
    """The contestants that a target compares with cppcuda in this case."""
    return {t.against for t in TARGETS[device] if t.selects(row)}


def evaluate(rows: list[dict[str, Any]], chosen: list[dict[str, Any]], device: str) -> list[dict[str, Any]]:
    """An entry for each target with chosen cases. A target holds if all of these were measured and reach it."""
    result = []
    for target in TARGETS[device]:
        expected_cases = sum(map(target.selects, chosen))
        if not expected_cases:
            continue
        contestants = {row["name"]: row["contestants"] for row in rows if target.selects(row)}
        against = {name: c[target.against] for name, c in contestants.items() if target.against in c}
        ratios = {name: a["ratio"] for name, a in against.items()}
        entry: dict[str, Any] = {
            "target": target.text,
            "against": target.against,
            "at_least": target.at_least,
            "cases": len(ratios),
            "cases_wanted": expected_cases,
            "holds": False,
            "missed": [
                {"case": name, "ratio": a["ratio"], "ratio_quartiles": a["ratio_quartiles"]}
                for name, a in against.items()
                if a["ratio"] < target.at_least
            ],
        }
        if ratios:
            worst = min(ratios, key=lambda name: ratios[name])
            entry |= {
                "measured": ratios[worst],
                "case": worst,
                # If so, other work on the machine affected the ratio.
                "preempted": any(contestants[worst][n]["kept_though_preempted"] for n in ("cppcuda", target.against)),
                "holds": ratios[worst] >= target.at_least and len(ratios) == expected_cases,
            }
        result.append(entry)
    return result
