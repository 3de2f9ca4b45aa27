"""What the CPU is to reach with two cores, as data. A target that several cases have counts by the worst of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

STREAM = "stream"
# Elements of the elementwise cases.
SIZES = tuple(2**e for e in (6, 10, 14, 17, 20, 22, 24, 26))
_ACTIVATIONS = ("quick_gelu", "sigmoid")
_LARGE = (2**20, 2**22, 2**24, 2**26)


@dataclass(frozen=True)
class Target:
    text: str
    against: str
    at_least: float  # time of `against` over ours; of the roofline for "stream"
    where: dict[str, Any] = field(default_factory=dict)

    def selects(self, row: dict[str, Any]) -> bool:
        """Whether the case is one of this target's: all threads and contiguous float32, unless said otherwise."""
        where = {"layout": "contiguous", "threads": "all", "dtype": "float32", "regime": "default", **self.where}
        return all(row[k] in v if isinstance(v, tuple) else row[k] == v for k, v in where.items())


def _targets() -> Iterator[Target]:
    def of(text: str, against: str, at_least: float, **where: Any) -> Target:
        return Target(text, against, at_least, where)

    gelu: dict[str, Any] = {"op": "quick_gelu", "mode": "forward"}
    sigmoid: dict[str, Any] = {"op": "sigmoid", "mode": "forward"}
    for regime, eager, compiled, builtin in (("default", 8, 3, 3.5), ("thp", 3, 1.1, 1)):
        large = {"elements": 2**26, "regime": regime}
        yield of(f"quick_gelu 2^26, {regime}", "eager", eager, **gelu, **large)
        yield of(f"quick_gelu 2^26, {regime}", "torch.compile", compiled, **gelu, **large)
        yield of(f"sigmoid 2^26, {regime}", "torch.sigmoid", builtin, **sigmoid, **large)
    yield of("sigmoid, any smaller size", "torch.sigmoid", 1, **sigmoid, elements=SIZES[:-1])
    yield of("quick_gelu 2^20", "eager", 2.5, **gelu, elements=2**20)
    yield of("quick_gelu 2^20", "torch.compile", 1.5, **gelu, elements=2**20)
    for op in _ACTIVATIONS:
        into = {"op": op, "mode": "forward", "regime": "out"}
        yield of(f"{op} into an existing output, >= 64 MiB", STREAM, 0.9, **into, elements=(2**24, 2**26))
        for dtype in ("bfloat16", "float16"):
            text = f"{op} {dtype} 2^26, existing output"
            yield of(text, "cppcuda float32", 1, **into, elements=2**26, dtype=dtype)
        yield of(f"{op} backward, >= 2^20", "eager", 3, op=op, mode="backward", elements=_LARGE)

    for mode, bounds in (("forward", (7, 2.5, 6, 1.5)), ("backward", (20, 4, 6, 3))):
        where: dict[str, Any] = {"op": "trilinear", "mode": mode, "size": tuple(f"65536x{f}" for f in (8, 32, 256))}
        bmm = where if mode == "backward" else {**where, "size": "65536x256"}
        peers = zip(("eager", "eager bmm", "F.grid_sample", "torch.compile"), bounds, strict=True)
        for peer, bound in peers:
            yield of(f"trilinear {mode}", peer, bound, **(bmm if peer == "eager bmm" else where))
    large = {"op": "trilinear", "size": "65536x256"}
    yield of("trilinear F=256, memory that is reused", STREAM, 0.9, **large, mode="forward", regime="reused")
    yield of("trilinear F=256 backward", STREAM, 0.45, **large, mode="backward")

    for layout, regime, forward, backward in (
        ("contiguous", "default", 6, 6),
        ("channels_last", "default", 3, 2.5),
        ("channels_last", "thp", 1, 1.5),
    ):
        for mode, bound in (("forward", forward), ("backward", backward)):
            text = f"upsample_bilinear2d {layout} {mode}, {regime}"
            size = {"op": "upsample_bilinear2d", "size": "8x64x128x128"}
            yield of(text, "F.interpolate", bound, **size, mode=mode, layout=layout, regime=regime)

    cell = {"op": "lltm_cell", "size": "16/32/128", "mode": "both"}
    yield of("lltm_cell 16/32/128 forward + backward", "eager", 2, **cell)
    yield of("lltm_cell 16/32/128 forward + backward", "torch.compile", 1.2, **cell)
    # At most 0.6 of its time.
    yield of("quick_gelu 64 elements, both from Python", "eager", 1 / 0.6, op="quick_gelu", mode="both", elements=64)


TARGETS = tuple(_targets())


def of_case(row: dict[str, Any]) -> set[str]:
    """The contestants that a target compares this case with."""
    return {t.against for t in TARGETS if t.selects(row)}


def evaluate(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each target of which a case was measured."""
    result = []
    for target in TARGETS:
        contestants = {row["name"]: row["contestants"] for row in rows if target.selects(row)}
        ratios = {name: c[target.against]["ratio"] for name, c in contestants.items() if target.against in c}
        if ratios:
            worst = min(ratios, key=lambda name: ratios[name])
            result.append(
                {
                    "target": target.text,
                    "against": target.against,
                    "at_least": target.at_least,
                    "measured": ratios[worst],
                    "case": worst,
                    # Then other work on the machine had a part in it.
                    "preempted": any(
                        contestants[worst][n]["kept_though_preempted"] for n in ("cppcuda", target.against)
                    ),
                    "holds": ratios[worst] >= target.at_least,
                }
            )
    return result
