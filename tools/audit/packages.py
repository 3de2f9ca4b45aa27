"""Operators of packages on PyPI. A package that cannot be imported is left out."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from operators import ONLY_WIDE, audit, composite, hat, ints, one_hot, r
from torch import Tensor

PACKAGES: dict[str, Callable[[], None]] = {}


ONE_BY_ONE = {"vmap": "the reference reads values"}


def package(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(function: Callable[[], None]) -> Callable[[], None]:
        PACKAGES[name] = function
        return function

    return add


def add_all() -> dict[str, str]:
    """Adds the entries of all packages. Returns why some packages are left out."""
    left_out = {}
    for name, add in PACKAGES.items():
        try:
            add()
        except Exception as error:
            left_out[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return left_out


# ---------------------------------------------------------------- torchvision

ROIS = torch.tensor([[0, 0.3, 0.6, 2.9, 3.4], [0, 1.2, 0.1, 3.7, 2.2]], dtype=torch.float64)


def sampled(x: Tensor, rois: Tensor, scale: float, h: int, w: int, ratio: int, offset: float) -> Tensor:
    """[K, C, h, w]: the means of bilinear samples."""
    weights = []
    for d, size, bins in ((2, x.shape[-2], h), (1, x.shape[-1], w)):
        first, last = (rois[:, i] * scale - offset for i in (d, d + 2))
        steps = (torch.arange(bins * ratio, dtype=x.dtype) + 0.5) / (bins * ratio)
        at = first.unsqueeze(-1) + (last - first).unsqueeze(-1) * steps
        row = hat(at.clamp(0, size - 1).unsqueeze(-1) - torch.arange(size, dtype=x.dtype))
        weights.append(row.unflatten(1, (bins, ratio)).mean(2))
    return torch.einsum("kchw,kyh,kxw->kcyx", x[rois[:, 0].long()], *weights)


def ps(x: Tensor, k: int, h: int, w: int) -> Tensor:
    """The channel that each position of each output channel has."""
    return torch.arange(x.shape[1]).reshape(1, -1, h, w).expand(k, -1, -1, -1)


def position_sensitive(all_channels: Tensor, h: int, w: int) -> Tensor:
    by_place = all_channels.unflatten(1, (-1, h, w))
    return torch.stack([torch.stack([by_place[:, :, i, j, i, j] for j in range(w)], -1) for i in range(h)], -2)


def regions(rois: Tensor, scale: float, h: int, w: int, sizes: Any, extra: int) -> list[list[list[tuple[int, int]]]]:
    """For each region, the ranges of rows and of columns of its bins."""
    found = []
    for roi in rois.tolist():
        both = []
        for d, bins, size in ((2, h, sizes[0]), (1, w, sizes[1])):
            first, last = (math.floor(roi[i] * scale + 0.5) for i in (d, d + 2))
            step = max(last - first + extra, 1) / bins
            ends = [(math.floor(i * step) + first, math.ceil((i + 1) * step) + first) for i in range(bins)]
            both.append([(min(max(a, 0), size), min(max(b, 0), size)) for a, b in ends])
        found.append(both)
    return found


def roi_pool(x: Tensor, rois: Tensor, scale: float, h: int, w: int) -> tuple[Tensor, Tensor]:
    values, places = [], []
    index = torch.arange(x.shape[-2] * x.shape[-1]).reshape(x.shape[-2:])
    for ys, xs in regions(rois, scale, h, w, x.shape[-2:], 1):
        for a, b in ys:
            for c, d in xs:
                value, at = x[0, :, a:b, c:d].flatten(1).max(1)
                values.append(value)
                places.append(index[a:b, c:d].flatten()[at])
    shape = (rois.shape[0], h, w, -1)
    return tuple(torch.stack(t).reshape(shape).permute(0, 3, 1, 2) for t in (values, places))  # type: ignore[return-value]


def ps_roi_pool(x: Tensor, rois: Tensor, scale: float, h: int, w: int) -> tuple[Tensor, Tensor]:
    means = [
        torch.stack([x[0, :, a:b, c:d].mean((1, 2)) for a, b in ys for c, d in xs], -1).unflatten(-1, (h, w))
        for ys, xs in regions(rois, scale, h, w, x.shape[-2:], 0)
    ]
    return position_sensitive(torch.stack(means), h, w), ps(x, rois.shape[0], h, w)


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    kept: list[int] = []
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    for i in scores.argsort(descending=True).tolist():
        over = [
            (torch.min(boxes[i, 2:], boxes[j, 2:]) - torch.max(boxes[i, :2], boxes[j, :2])).clamp(min=0) for j in kept
        ]
        shared = [o.prod() / (area[i] + area[j] - o.prod()) for o, j in zip(over, kept, strict=True)]
        if all(s <= threshold for s in shared):
            kept.append(i)
    return torch.tensor(kept)


def deform_conv2d(x: Tensor, w: Tensor, offset: Tensor, mask: Tensor, b: Tensor, *_: Any) -> Tensor:
    """With one group, stride 1 and no padding."""
    kh, kw = w.shape[-2:]
    n, _, h, wide = offset.shape
    taps = offset.reshape(n, kh * kw, 2, h, wide)
    grid = torch.meshgrid(torch.arange(h), torch.arange(wide), indexing="ij")
    weights = []
    for d, size in enumerate(x.shape[-2:]):
        tap = torch.tensor([(i // kw, i % kw)[d] for i in range(kh * kw)]).reshape(-1, 1, 1)
        at = taps[:, :, d] + tap + grid[d]
        weights.append(hat(at.unsqueeze(-1) - torch.arange(size, dtype=x.dtype)))
    seen = torch.einsum("nchw,ntyxh,ntyxw->nctyx", x, *weights) * mask.unsqueeze(1)
    return torch.einsum("nctyx,oct->noyx", seen, w.flatten(2)) + b.reshape(-1, 1, 1)


@package("torchvision")
def add_torchvision() -> None:
    importlib.import_module("torchvision")
    add = partial(audit, package="torchvision")
    only_input: dict[str, Any] = {"differentiable": ("input",), **ONLY_WIDE}
    add(
        "torchvision::roi_align",
        lambda x, rois, scale, h, w, ratio, aligned: sampled(x, rois, scale, h, w, ratio, 0.5),
        (r(1, 2, 4, 5), ROIS, 1.0, 2, 2, 2, True),
        **only_input,
    )
    add(
        "torchvision::ps_roi_align",
        lambda x, rois, scale, h, w, ratio: (
            position_sensitive(sampled(x, rois, scale, h, w, ratio, 0.5), h, w),
            ps(x, rois.shape[0], h, w),
        ),
        (r(1, 4, 4, 3), ROIS * 0.8, 1.0, 2, 2, 2),
        **only_input,
    )
    add("torchvision::roi_pool", roi_pool, (r(1, 2, 4, 5), ROIS, 1.0, 2, 2), **only_input)
    add("torchvision::ps_roi_pool", ps_roi_pool, (r(1, 4, 4, 3), ROIS * 0.8, 1.0, 2, 2), **only_input)
    boxes = torch.tensor([[0, 0, 2, 2], [0.1, 0, 2, 2.2], [1, 1, 3, 3], [4, 4, 5, 6]], dtype=torch.float64)
    add("torchvision::nms", nms, (boxes, torch.tensor([0.3, 0.9, 0.5, 0.2]), 0.4), skip=ONE_BY_ONE, **ONLY_WIDE)
    add(
        "torchvision::deform_conv2d",
        deform_conv2d,
        (r(1, 2, 3, 3), r(1, 2, 2, 2), r(1, 8, 2, 2) / 3, r(1, 4, 2, 2), r(1), 1, 1, 0, 0, 1, 1, 1, 1, True),
        **ONLY_WIDE,
    )


# ---------------------------------------------------------------- torchaudio


@package("torchaudio")
def add_torchaudio() -> None:
    """Its Python package refuses a torch for another version of CUDA. Its library of operators can be loaded."""
    spec = importlib.util.find_spec("torchaudio")
    assert spec and spec.origin
    torch.ops.load_library(Path(spec.origin).parent / "lib" / "libtorchaudio.abi3.so")

    def align(lp: Tensor, targets: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        """The best of all paths for two different labels, and the log-probabilities."""
        t, best = lp.shape[1], None
        a, b = targets[0].tolist()
        for i in range(1, t):
            for j in range(i, t):
                for k in range(j + 1, t + 1):
                    for i0 in range(i):
                        path = [0] * i0 + [a] * (i - i0) + [0] * (j - i) + [b] * (k - j) + [0] * (t - k)
                        score = float(lp[0, list(range(t)), path].sum())
                        best = max(best or (score, path), (score, path))
        assert best
        return ints(best[1]), lp.clone()

    lp = r(1, 5, 3).log_softmax(-1)
    audit(
        "torchaudio::forced_align",
        align,
        (lp, ints([1, 2]), ints(5), ints(2), 0),
        differentiable=False,
        skip=ONE_BY_ONE,
        package="torchaudio",
        **ONLY_WIDE,
    )


# ---------------------------------------------------------------- torchao


def qparams(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """The scale and the zero point with which the range of each row becomes -128 ... 127."""
    low, high = x.amin(-1).clamp(max=0), x.amax(-1).clamp(min=0)
    scale = (high - low) / 255
    return scale, (-128 - (low / scale).round()).int()


@package("torchao")
def add_torchao() -> None:
    importlib.import_module("torchao.quantization")
    add = partial(audit, package="torchao")
    options: dict[str, Any] = {"dtypes": [torch.float64, torch.float32], "differentiable": False}
    add(
        "torchao::choose_qparams_affine",
        qparams,
        (r(2, 4), "ASYMMETRIC", [1, 4], torch.int8),
        **options,
    )


# ---------------------------------------------------------------- e3nn


def soft_unit_step(x: Tensor) -> Tensor:
    return torch.where(x > 0, (-1 / torch.where(x > 0, x, 1.0)).exp(), 0.0)


def second_harmonics(v: Tensor) -> Tensor:
    """The real spherical harmonics of degree 2 of vectors of any length. For unit vectors their norm is sqrt(5)."""
    x, y, z = v.unbind(-1)
    s = 15**0.5
    parts = (s * x * z, s * x * y, 5**0.5 * (y * y - (x * x + z * z) / 2), s * y * z, s / 2 * (z * z - x * x))
    return torch.stack(parts, -1)


@package("e3nn")
def add_e3nn() -> None:
    o3, e3math = importlib.import_module("e3nn.o3"), importlib.import_module("e3nn.math")
    add = partial(audit, package="e3nn")
    harmonics = composite("harmonics(Tensor x) -> Tensor", lambda x: o3.spherical_harmonics([2], x, False, "component"))
    add(harmonics, second_harmonics, (r(2, 3),), label="e3nn.o3.spherical_harmonics")
    step = composite("soft_unit_step(Tensor x) -> Tensor", e3math.soft_unit_step)
    add(step, soft_unit_step, (r(3, 2, low=-0.5, high=2.0),), label="e3nn.math.soft_unit_step")
    angles = composite("xyz_to_angles(Tensor x) -> (Tensor, Tensor)", o3.xyz_to_angles)
    add(
        angles,
        lambda v: (torch.atan2(v[..., 0], v[..., 2]), torch.atan2((v[..., 0] ** 2 + v[..., 2] ** 2).sqrt(), v[..., 1])),
        (r(2, 3),),
        label="e3nn.o3.xyz_to_angles",
    )


# ---------------------------------------------------------------- entmax


def support(x: Tensor, threshold: Callable[[Tensor], Tensor], inside: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The candidate for each size of the support, of which the one is taken whose values are positive there only."""
    ordered = x.sort(-1, descending=True)[0]
    taus = torch.stack([threshold(ordered[..., :k]) for k in range(1, x.shape[-1] + 1)], -1)
    size = (ordered > taus).sum(-1, keepdim=True)
    return inside(x, taus.gather(-1, size - 1))


def sparsemax(x: Tensor) -> Tensor:
    return support(x, lambda top: (top.sum(-1) - 1) / top.shape[-1], lambda x, tau: (x - tau).clamp(min=0))


def entmax15(x: Tensor) -> Tensor:
    def threshold(top: Tensor) -> Tensor:
        k, mean = top.shape[-1], top.mean(-1)
        rest = (1 - ((top - mean.unsqueeze(-1)) ** 2).sum(-1)) / k
        return mean - torch.where(rest > 0, rest, 1e-300).sqrt()

    return support(x / 2, threshold, lambda x, tau: (x - tau).clamp(min=0).square())


@package("entmax")
def add_entmax() -> None:
    module = importlib.import_module("entmax")
    for name, reference in (("sparsemax", sparsemax), ("entmax15", entmax15)):
        op = composite(f"{name}(Tensor x) -> Tensor", getattr(module, name))
        audit(op, reference, (r(3, 4),), package="entmax", label=f"entmax.{name}")
    op = composite("entmax_bisect(Tensor x) -> Tensor", lambda x: module.entmax_bisect(x, 1.5))
    audit(op, entmax15, (r(3, 4),), package="entmax", label="entmax.entmax_bisect")


# ---------------------------------------------------------------- torch-scatter


@package("torch-scatter")
def add_torch_scatter() -> None:
    importlib.import_module("torch_scatter")
    add = partial(audit, package="torch-scatter")
    index = ints(0, 2, 0, 1)
    src = r(4, 2)
    add(
        "torch_scatter::scatter_mean",
        lambda s, i, d, out, size: (
            (one_hot(i[:, 0], size, s).mT @ s) / one_hot(i[:, 0], size, s).sum(0).clamp(min=1).unsqueeze(-1)
        ),
        (src, index.unsqueeze(-1).expand(4, 2), 0, None, 3),
    )
    add(
        "torch_scatter::segment_sum_csr",
        lambda s, p, out: torch.stack([s[:2].sum(0), s[2:].sum(0)]),
        (src, ints(0, 2, 4), None),
    )
    add(
        "torch_scatter::gather_csr",
        lambda s, p, out: s[[0, 0, 1, 1]],
        (r(2, 3), ints(0, 2, 4), None),
    )


# ---------------------------------------------------------------- sphericart


@package("sphericart")
def add_sphericart() -> None:
    module = importlib.import_module("sphericart.torch")
    calculator = module.SolidHarmonics(l_max=2)

    def solid(v: Tensor) -> Tensor:
        x, y, z = v.unbind(-1)
        one, s = torch.full_like(x, 0.5 / math.pi**0.5), math.pi**-0.5
        return torch.stack(
            (
                one,
                *((3 / 4) ** 0.5 * s * t for t in (y, z, x)),
                *(15**0.5 / 2 * s * t for t in (x * y, y * z)),
                5**0.5 / 4 * s * (2 * z * z - x * x - y * y),
                *(15**0.5 / 2 * s * t for t in (x * z, (x * x - y * y) / 2)),
            ),
            -1,
        )

    op = composite("solid_harmonics(Tensor x) -> Tensor", lambda x: calculator.compute(x))
    audit(op, solid, (r(2, 3),), package="sphericart", label="SolidHarmonics", **ONLY_WIDE)
