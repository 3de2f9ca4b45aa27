"""Operators of torch, each with a reference that does not call the same kernel, and one or two small samples.

References are formulas of sums, products and elementary functions; `audit(...)` adds one to the table `ENTRIES`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Entry:
    """The arguments of ``cppcuda.testing.check`` for one operator, and the package that it is from."""

    name: str
    reference: Callable[..., Any]
    samples: Sequence[tuple[Any, ...]]
    options: dict[str, Any] = field(default_factory=dict)
    package: str = "torch"
    label: str = ""  # tells two entries of one operator apart

    @property
    def key(self) -> str:
        return self.name + (f" ({self.label})" if self.label else "")


ENTRIES: list[Entry] = []


def audit(
    name: str,
    reference: Callable[..., Any],
    *samples: tuple[Any, ...],
    label: str = "",
    package: str = "torch",
    **kw: Any,
) -> None:
    name = name if "::" in name else f"aten::{name}"
    ENTRIES.append(Entry(name, reference, samples, kw, package, label))


LIBRARY = torch.library.Library("audit", "DEF")


def composite(schema: str, function: Callable[..., Any]) -> str:
    """A function of Python as an operator with an implicit composite kernel, so that autograd and the transforms see
    what the function itself calls. Returns the operator's name."""
    LIBRARY.define(schema)
    name = schema.split("(")[0]
    for key in ("CompositeImplicitAutograd", "FuncTorchBatchedDecomposition"):
        LIBRARY.impl(name, function, key)
    return f"audit::{name}"


def r(*shape: int, low: float = -1.5, high: float = 1.5) -> Tensor:
    """Random values, the same ones for the same shape and range in every run."""
    generator = torch.Generator().manual_seed(sum((i + 3) * 7919**i for i in shape) % 2**31)
    return torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low


def ints(*values: Any) -> Tensor:
    return torch.tensor(values)


ONLY_WIDE = {"dtypes": [torch.float64, torch.float32]}

# ---------------------------------------------------------------- norms


def centred(x: Tensor, dims: Any, eps: float = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised values, the mean, and the reciprocal of the standard deviation."""
    mean = x.mean(dims, keepdim=True)
    rstd = (x - mean).square().mean(dims, keepdim=True).add(eps).rsqrt()
    return (x - mean) * rstd, mean, rstd


def group_norm(x: Tensor, groups: int, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, rstd = centred(x.reshape(x.shape[0], groups, -1), -1)
    per_channel = (x.shape[1],) + (1,) * (x.dim() - 2)
    y = y.reshape(x.shape) * w.reshape(per_channel) + b.reshape(per_channel)
    return y, mean.squeeze(-1), rstd.squeeze(-1)


def batch_norm(x: Tensor, w: Tensor, b: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    dims = (0, *range(2, x.dim()))
    y, mean, rstd = centred(x, dims)
    per_channel = (x.shape[1],) + (1,) * (x.dim() - 2)
    return y * w.reshape(per_channel) + b.reshape(per_channel), mean.flatten(), rstd.flatten()


def detached(first: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    """Statistics that an operator returns without a gradient."""
    return first, *(t.detach() for t in rest)


def rms_norm(x: Tensor, _: Any, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    rstd = (x.square().mean(-1, True) + eps).rsqrt()
    return x * rstd * w, rstd


def weight_norm(v: Tensor, g: Tensor, _: int) -> tuple[Tensor, Tensor]:
    norm = v.square().sum(1, keepdim=True).sqrt()
    return detached(v * (g / norm), norm)  # type: ignore[return-value]


def renorm(x: Tensor, p: float, dim: int, most: float) -> Tensor:
    norm = x.abs().pow(p).sum([d for d in range(x.dim()) if d != dim], True).pow(1 / p)
    return x * torch.where(norm > most, most / (norm + 1e-7), 1.0)


audit("layer_norm", lambda x, s, w, b: centred(x, -1)[0] * w + b, (r(3, 4), [4], r(4), r(4)))
audit(
    "native_layer_norm",
    lambda x, s, w, b, eps: detached(centred(x, -1)[0] * w + b, *centred(x, -1)[1:]),
    (r(2, 3), [3], r(3), r(3), 1e-5),
)
audit("group_norm", lambda x, g, w, b: group_norm(x, g, w, b)[0], (r(2, 4, 3), 2, r(4), r(4)))
audit(
    "native_group_norm",
    lambda x, w, b, n, c, hw, g, eps: group_norm(x, g, w, b),
    (r(2, 4, 2), r(4), r(4), 2, 4, 2, 2, 1e-5),
)
audit("batch_norm", lambda *a: batch_norm(*a)[0], (r(3, 2, 2), r(2), r(2), None, None, True, 0.1, 1e-5, False))
audit("native_batch_norm", lambda *a: detached(*batch_norm(*a)), (r(3, 2, 2), r(2), r(2), None, None, True, 0.1, 1e-5))
audit(
    "instance_norm",
    lambda x, w, b, *_: group_norm(x, x.shape[1], w, b)[0],
    (r(2, 3, 4), r(3), r(3), None, None, True, 0.1, 1e-5, False),
)
audit("_fused_rms_norm", rms_norm, (r(3, 4), [4], r(4), 1e-5))
audit("_weight_norm_interface", weight_norm, (r(3, 2), r(3, 1), 0))
audit("_weight_norm", lambda *a: weight_norm(*a)[0], (r(3, 2), r(3, 1), 0))
audit("renorm", renorm, (r(3, 4), 2.0, 0, 1.0))

# ---------------------------------------------------------------- attention


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores + mask
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, -torch.inf)
    weights = scores.exp() / scores.exp().sum(-1, True)
    return weights @ v, scores.exp().sum(-1).log()


def flash_attention(q: Tensor, k: Tensor, v: Tensor, p: float, causal: bool) -> tuple[Tensor, ...]:
    return detached(*attention(q, k, v, None, causal))


QKV = (r(1, 2, 3, 2), r(1, 2, 3, 2).sin(), r(1, 2, 3, 2).cos())
audit(
    "scaled_dot_product_attention",
    lambda q, k, v, mask: attention(q, k, v, mask, False)[0],
    (*QKV, r(3, 3)),
)
audit(
    "_scaled_dot_product_flash_attention_for_cpu",
    flash_attention,
    (*QKV, 0.0, False),
    (*QKV, 0.0, True),
)
audit(
    "_scaled_dot_product_attention_math",
    lambda q, k, v: (
        attention(q, k, v, None, False)[0],
        torch.exp(q @ k.mT / 2**0.5 - attention(q, k, v, None, False)[1].unsqueeze(-1)),
    ),
    QKV,
)

# ---------------------------------------------------------------- interpolation


def hat(t: Tensor) -> Tensor:
    return (1 - t.abs()).clamp(min=0)


def cubic(t: Tensor, a: float = -0.75) -> Tensor:
    t = t.abs()
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return torch.where(t < 1, near, torch.where(t < 2, far, 0.0))


def reflected(p: Tensor, low: float, high: float) -> Tensor:
    """The coordinate after it was reflected at both ends as often as needed."""
    p = (p - low).remainder(2 * (high - low))
    return low + torch.where(p > high - low, 2 * (high - low) - p, p)


def grid_sample(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    """The sum over all pixels, each with the value of the kernel at its distance."""
    weights = []
    for d, size in enumerate(reversed(x.shape[2:])):  # the grid has x first
        p = (grid[..., d] + 1) / 2 * (size - 1) if align else ((grid[..., d] + 1) * size - 1) / 2
        if padding == 2:
            p = reflected(p, *((0, size - 1) if align else (-0.5, size - 0.5)))
        if padding:
            p = p.clamp(0, size - 1)
        t = p.unsqueeze(-1) - torch.arange(size, dtype=x.dtype)
        weights.append((hat, lambda t: (t.abs() <= 0.5).to(x.dtype), cubic)[mode](t))
    letters = "yxz"[: x.dim() - 2]
    sizes = "hwd"[: x.dim() - 2]
    terms = ",".join(f"n{letters}{s}" for s in sizes)
    return torch.einsum(f"nc{sizes},{terms}->nc{letters}", x, *reversed(weights))


def affine_grid(theta: Tensor, size: list[int], align: bool) -> Tensor:
    h, w = size[2:]
    ys, xs = (torch.tensor([(2 * i + 1) / s - 1 for i in range(s)], dtype=theta.dtype) for s in (h, w))
    points = torch.stack((xs.expand(h, w), ys.unsqueeze(-1).expand(h, w), torch.ones(h, w, dtype=theta.dtype)), -1)
    return torch.einsum("hwk,nck->nhwc", points, theta)


GRID = r(1, 2, 2, 2, low=-0.9, high=0.9)
for label, mode, padding in (("bilinear, zeros", 0, 0), ("bilinear, reflection", 0, 2), ("bicubic, zeros", 2, 0)):
    wide = GRID * (1.7 if padding or mode == 2 else 1)
    audit("grid_sampler_2d", grid_sample, (r(1, 2, 3, 4), wide, mode, padding, False), label=label)
audit("grid_sampler_3d", grid_sample, (r(1, 1, 3, 2, 3), r(1, 1, 2, 2, 3, low=-0.9, high=0.9), 0, 1, True))
audit("affine_grid_generator", affine_grid, (r(2, 2, 3), [2, 1, 2, 3], False))


def matrix_of(size: int, out: int, kind: str, align: bool) -> Tensor:
    """Row o has the weights of the inputs in output o."""
    scale = (size - 1) / (out - 1) if align else size / out
    return torch.tensor([row_of(o, size, scale, kind, align) for o in range(out)], dtype=torch.float64)


def row_of(o: int, size: int, scale: float, kind: str, align: bool) -> list[float]:
    """In plain numbers, because a transform may trace the reference."""
    weights = [0.0] * size
    if kind.endswith("aa"):
        kernel, radius = (tent, 1) if kind == "linear_aa" else (partial(keys, a=-0.5), 2)
        wide, centre = max(scale, 1.0), scale * (o + 0.5)
        first, last = max(int(centre - radius * wide + 0.5), 0), min(int(centre + radius * wide + 0.5), size)
        row = [kernel((i + 0.5 - centre) / wide) for i in range(first, last)]
        weights[first:last] = [w / sum(row) for w in row]
        return weights
    p = o * scale if align else (o + 0.5) * scale - 0.5
    if kind.startswith("nearest"):
        weights[int((o + 0.5 * (kind == "nearest_exact")) * scale)] = 1
    elif kind == "linear":
        p = min(max(p, 0.0), size - 1.0)
        weights = [tent(i - p) for i in range(size)]
    else:
        for tap in range(math.floor(p) - 1, math.floor(p) + 3):
            weights[min(max(tap, 0), size - 1)] += keys(p - tap)
    return weights


def tent(t: float) -> float:
    return max(0.0, 1 - abs(t))


def keys(t: float, a: float = -0.75) -> float:
    """The cubic kernel of Keys."""
    t = abs(t)
    if t < 1:
        return ((a + 2) * t - (a + 3)) * t * t + 1
    return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a if t < 2 else 0.0


def upsample(x: Tensor, out: list[int], align: bool = False, kind: str = "linear") -> Tensor:
    for d, size in enumerate(out, 2):
        x = torch.einsum(
            "oi,i...->o...", matrix_of(x.shape[d], size, kind, align).to(x.dtype), x.movedim(d, 0)
        ).movedim(0, d)
    return x


audit("upsample_linear1d", upsample, (r(2, 2, 4), [7], False))
audit("upsample_bilinear2d", upsample, (r(1, 2, 3, 4), [5, 3], False), (r(1, 2, 3, 4), [5, 3], True))
audit("upsample_bicubic2d", partial(upsample, kind="cubic"), (r(1, 2, 3, 4), [5, 3], False))
audit("upsample_trilinear3d", upsample, (r(1, 1, 2, 3, 2), [3, 2, 4], True))
audit("upsample_nearest2d", lambda x, s: upsample(x, s, kind="nearest"), (r(1, 2, 3, 4), [5, 3]))
audit("_upsample_nearest_exact2d", lambda x, s: upsample(x, s, kind="nearest_exact"), (r(1, 2, 3, 4), [5, 3]))
audit("_upsample_bilinear2d_aa", partial(upsample, kind="linear_aa"), (r(1, 2, 3, 7), [5, 3], False))
audit("_upsample_bicubic2d_aa", partial(upsample, kind="cubic_aa"), (r(1, 2, 3, 7), [5, 3], False))

# ---------------------------------------------------------------- fft


def dft(x: Tensor, sign: int, out: int | None = None, scale: float = 1) -> Tensor:
    """The discrete Fourier transform of real values along the last dim."""
    size = x.shape[-1]
    angles = torch.outer(torch.arange(size), torch.arange(out or size)).double() * (2 * torch.pi / size)
    return torch.complex(x @ angles.cos().to(x.dtype), sign * x @ angles.sin().to(x.dtype)) * scale


def inverse_of_half(x: Tensor, n: int) -> Tensor:
    """The real signal of n values whose half spectrum has these real values."""
    half = n // 2 + 1
    angles = torch.outer(torch.arange(half), torch.arange(n)).double() * (2 * torch.pi / n)
    twice = torch.tensor([1.0 if k == 0 or 2 * k == n else 2.0 for k in range(half)]).to(x.dtype)
    return (x[..., :half] * twice) @ angles.cos().to(x.dtype)


def dft2(x: Tensor) -> Tensor:
    rows = dft(x, -1)
    re, im = dft(rows.real.mT, -1), dft(rows.imag.mT, -1)
    return torch.complex((re.real - im.imag).mT, (re.imag + im.real).mT)


audit("fft_fft", lambda x: dft(x, -1), (r(3, 4),), **ONLY_WIDE)
audit("fft_ifft", lambda x: dft(x, 1, scale=1 / x.shape[-1]), (r(3, 5),), **ONLY_WIDE)
audit("fft_rfft", lambda x: dft(x, -1, x.shape[-1] // 2 + 1), (r(2, 5),), **ONLY_WIDE)
audit("fft_irfft", lambda x, n: inverse_of_half(x, n) / n, (r(3, 4), 6), (r(2, 4), 7), **ONLY_WIDE)
audit("fft_hfft", inverse_of_half, (r(3, 4), 6), **ONLY_WIDE)
audit("fft_fft2", dft2, (r(2, 3, 2),), **ONLY_WIDE)

# ---------------------------------------------------------------- linalg


def inverse(a: Tensor) -> Tensor:
    """By elimination without pivots; it needs nonzero leading minors."""
    n = a.shape[-1]
    m = torch.cat((a, torch.eye(n, dtype=a.dtype).expand_as(a)), -1)
    for i in range(n):
        row = m[..., i : i + 1, :] / m[..., i : i + 1, i : i + 1]
        unit = torch.eye(n, dtype=a.dtype)[:, i : i + 1]
        m = m - (m[..., :, i : i + 1] - unit) * row
    return m[..., n:]


def determinant(a: Tensor) -> Tensor:
    """The sum over permutations."""
    n = a.shape[-1]
    terms = []
    for p in itertools.permutations(range(n)):
        sign = (-1) ** sum(p[i] > p[j] for i in range(n) for j in range(i + 1, n))
        term = a[..., 0, p[0]] * sign
        for i in range(1, n):
            term = term * a[..., i, p[i]]
        terms.append(term)
    return torch.stack(terms).sum(0)


def matrix_exp(a: Tensor) -> Tensor:
    term = total = torch.eye(a.shape[-1], dtype=a.dtype).expand_as(a)
    for k in range(1, 26):
        term = term @ a / k
        total = total + term
    return total


def gram_schmidt(a: Tensor) -> tuple[Tensor, Tensor]:
    """With a positive diagonal of R."""
    q: list[Tensor] = []
    for j in range(a.shape[-1]):
        v = a[..., j]
        for u in q:
            v = v - u * (u * a[..., j]).sum(-1, True)
        q.append(v / v.square().sum(-1, True).sqrt())
    basis = torch.stack(q, -1)
    return basis, (basis.mT @ a).triu()


def singular_values(a: Tensor) -> Tensor:
    """The singular values of 2 x 2 matrices."""
    s = a.square().sum((-2, -1))
    root = (s.square() - 4 * (a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]).square()).sqrt()
    return torch.stack((((s + root) / 2).sqrt(), ((s - root) / 2).sqrt()), -1)


def householder(v: Tensor, tau: Tensor) -> Tensor:
    m, n = v.shape[-2:]
    product = torch.eye(m, dtype=v.dtype)
    for i in range(n):
        u = torch.cat((torch.zeros_like(v[..., :i, i]), torch.ones_like(v[..., :1, i]), v[..., i + 1 :, i]), -1)
        product = product - tau[..., i, None, None] * (product @ u.unsqueeze(-1)) @ u.unsqueeze(-2)
    return product


def pinv(a: Tensor, _: float = 0) -> Tensor:
    return inverse(a.mT @ a) @ a.mT


A = torch.tensor([[2.0, 0.5, 0.1], [0.3, 3.0, -0.2], [-0.4, 0.2, 1.5]], dtype=torch.float64)
SINGULAR = torch.tensor([[1.0, 2.0, 0.5], [2.0, 4.0, 1.0], [0.3, -1.0, 2.0]], dtype=torch.float64)
audit("linalg_inv", inverse, (A,), **ONLY_WIDE)
audit("linalg_solve", lambda a, b: inverse(a) @ b, (A, r(3, 2)), **ONLY_WIDE)
audit("linalg_det", determinant, (A,), **ONLY_WIDE)
audit("linalg_det", determinant, (SINGULAR,), label="singular", **ONLY_WIDE)
audit("linalg_slogdet", lambda a: (determinant(a).sign(), determinant(a).abs().log()), (A,), **ONLY_WIDE)
audit("linalg_matrix_exp", matrix_exp, (A / 4,))
audit("linalg_matrix_power", lambda a, n: a @ a @ a, (A / 2, 3), **ONLY_WIDE)
audit("linalg_qr", gram_schmidt, (r(3, 2) / 4 - torch.eye(3, 2, dtype=torch.float64),), **ONLY_WIDE)
audit("linalg_svdvals", singular_values, (r(2, 2) + torch.tensor([[2.0, 0], [0, 1]]),), **ONLY_WIDE)
audit("linalg_pinv", pinv, (r(3, 2) + torch.eye(3, 2), 1e-10), **ONLY_WIDE)
audit("linalg_householder_product", lambda v, t: householder(v, t)[..., : v.shape[-1]], (r(3, 2), r(2)), **ONLY_WIDE)
audit("ormqr", lambda v, t, b: householder(v, t) @ b, (r(3, 2), r(2), r(3, 2).cos()), **ONLY_WIDE)
# Only the lower triangle is an input.
audit(
    composite("cholesky_inverse(Tensor x) -> Tensor", lambda x: torch.cholesky_inverse(x.tril())),
    lambda x: inverse(x.tril() @ x.tril().mT),
    (A,),
    **ONLY_WIDE,
)
audit(
    composite("cholesky_solve(Tensor b, Tensor x) -> Tensor", lambda b, x: torch.cholesky_solve(b, x.tril())),
    lambda b, x: inverse(x.tril() @ x.tril().mT) @ b,
    (r(3, 2), A),
    **ONLY_WIDE,
)
audit("linalg_vector_norm", lambda x, p: x.abs().pow(p).sum().pow(1 / p), (r(3, 4), 3.0))
audit(
    "linalg_cross",
    lambda a, b: torch.stack([a[..., i - 2] * b[..., i - 1] - a[..., i - 1] * b[..., i - 2] for i in range(3)], -1),
    (r(2, 3), r(2, 3).cos()),
)

# ---------------------------------------------------------------- distances


def distances(x: Tensor, y: Tensor, p: float) -> Tensor:
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).abs().pow(p).sum(-1).pow(1 / p)


def cosine(x: Tensor, y: Tensor, dim: int) -> Tensor:
    return (x * y).sum(dim) / (x.square().sum(dim) * y.square().sum(dim)).sqrt()


audit("cdist", distances, (r(3, 2), r(2, 2), 2.0), label="p=2")
audit("cdist", distances, (r(3, 2), r(2, 2), 1.5), label="p=1.5")
audit(
    "pdist",
    lambda x, p: (x[..., [0, 0, 1], :] - x[..., [1, 2, 2], :]).abs().pow(p).sum(-1).pow(1 / p),
    (r(3, 2), 3.0),
    **ONLY_WIDE,
)
audit("cosine_similarity", cosine, (r(3, 4), r(3, 4).cos(), 1))
audit("pairwise_distance", lambda x, y: (x - y + 1e-6).square().sum(-1).sqrt(), (r(3, 4), r(3, 4).cos()))

# ---------------------------------------------------------------- embeddings and losses


def one_hot(index: Tensor, size: int, like: Tensor) -> Tensor:
    return (index.unsqueeze(-1) == torch.arange(size)).to(like.dtype)


BAG = (r(5, 2), ints(0, 3, 1, 1, 4, 2), ints(0, 2, 5))
IN_BAG = ints([1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1])


def embedding_bag(w: Tensor, index: Tensor, offsets: Tensor, _: bool, mode: int, *weights: Any) -> tuple[Tensor, ...]:
    rows = one_hot(index, w.shape[0], w) @ w
    bags = IN_BAG.to(w.dtype)
    if weights:
        bags = bags * weights[1].unsqueeze(-2)
    if mode == 2:
        inside = torch.where(IN_BAG.unsqueeze(-1) == 1, rows.unsqueeze(-3), -torch.inf)
        out, at = inside.max(-2)
        return out, IN_BAG.argmax(0), IN_BAG.sum(1), index[at]
    out = bags @ rows
    none = torch.zeros(IN_BAG.shape[0])
    if mode == 0:
        return out, none, none
    return out / IN_BAG.sum(1, keepdim=True), IN_BAG.argmax(0), IN_BAG.sum(1), IN_BAG.sum(1)


for label, mode in (("mean", 1), ("max", 2)):
    audit("embedding_bag", embedding_bag, (*BAG, False, mode), label=label)
# In other modes, some of the outputs are only made for a second kernel.
audit(
    composite(
        "embedding_bag(Tensor w, Tensor i, Tensor o, Tensor p) -> Tensor",
        lambda w, i, o, p: torch.nn.functional.embedding_bag(i, w, o, mode="sum", per_sample_weights=p),
    ),
    lambda w, i, o, p: embedding_bag(w, i, o, False, 0, False, p)[0],
    (*BAG, r(6)),
    label="weighted sum",
)
audit("embedding", lambda w, i: one_hot(i, w.shape[0], w) @ w, (r(5, 2), ints([0, 3, 1], [1, 1, 4])))


def ctc(lp: Tensor, targets: Tensor, lengths: Any, target_lengths: Any, blank: int, reduction: int) -> Tensor:
    """The sum of the probabilities of all paths, by dynamic programming."""
    losses = []
    for n, (t, s) in enumerate(zip(lengths, target_lengths, strict=True)):
        p = lp[:t, n].exp()
        labels = [blank]
        for label in targets[n, :s].tolist():
            labels += [label, blank]
        alpha: list[Any] = [p[0, labels[0]], p[0, labels[1]], *[0.0] * (len(labels) - 2)]
        for step in range(1, t):
            before = [*alpha]
            for i, label in enumerate(labels):
                paths = before[i] + (before[i - 1] if i else 0.0)
                if i > 1 and label not in (blank, labels[i - 2]):
                    paths = paths + before[i - 2]
                alpha[i] = paths * p[step, label]
        losses.append(-(alpha[-1] + alpha[-2]).log())
    return torch.stack(losses)


# Its gradient is that of normalised probabilities.
audit(
    composite(
        "ctc_loss(Tensor x, Tensor targets) -> Tensor",
        lambda x, targets: torch.ctc_loss(x.log_softmax(-1), targets, [4, 3], [2, 1], 0, 0),
    ),
    lambda x, targets: ctc((x.exp() / x.exp().sum(-1, True)).log(), targets, [4, 3], [2, 1], 0, 0),
    (r(4, 2, 3), ints([1, 2], [2, 2])),
    **ONLY_WIDE,
)
LABELS = ints(0, 2, 1)


def cross_entropy(x: Tensor, y: Tensor, w: Tensor, _: int, ignore: int, smoothing: float) -> Tensor:
    lp = x - x.exp().sum(-1, True).log()
    at = one_hot(y, x.shape[-1], x)
    own = -(lp * at * w).sum(-1)
    smooth = -(lp * w).sum(-1)
    return ((1 - smoothing) * own.sum() + smoothing / x.shape[-1] * smooth.sum()) / (at * w).sum()


def multi_margin(x: Tensor, y: Tensor) -> Tensor:
    at = one_hot(y, x.shape[-1], x)
    own = (x * at).sum(-1, True)
    return ((1 - own + x).clamp(min=0) * (1 - at)).sum(-1).div(x.shape[-1]).mean()


def huber(x: Tensor, y: Tensor, delta: float = 1.0) -> Tensor:
    d = (x - y).abs()
    return torch.where(d < delta, d * d / 2, delta * (d - delta / 2)).mean()


audit(
    "cross_entropy_loss",
    cross_entropy,
    (r(3, 4), LABELS, r(4, low=0.2), 1, -100, 0.1),
    differentiable=("self",),
)
audit(
    "nll_loss",
    lambda x, y, w: -(x * one_hot(y, x.shape[-1], x) * w).sum() / (one_hot(y, x.shape[-1], x) * w).sum(),
    (r(3, 4), LABELS, r(4, low=0.2)),
    differentiable=("self",),
)
audit("kl_div", lambda x, y: (y * (y.log() - x)).mean(), (r(3, 4), r(3, 4, low=0.1)))
audit("huber_loss", huber, (r(3, 4), r(3, 4).cos()))
audit(
    "binary_cross_entropy",
    lambda x, y, w: -(w * (y * x.log() + (1 - y) * (1 - x).log())).mean(),
    (r(3, 4, low=0.1, high=0.9), r(3, 4, low=0.2, high=0.8), r(3, 4, low=0.5)),
    differentiable=("self", "target"),
)
audit(
    "binary_cross_entropy_with_logits",
    lambda x, y, w, p: ((1 - y) * x + (1 + (p - 1) * y) * (1 + (-x).exp()).log()).mul(w).mean(),
    (r(3, 2), r(3, 2, low=0.2, high=0.8), r(3, 2, low=0.5), r(2, low=0.5)),
    differentiable=("self", "target"),
)
audit("multi_margin_loss", multi_margin, (r(3, 4), LABELS))
audit(
    "soft_margin_loss",
    lambda x, y: (1 + (-x * y).exp()).log().mean(),
    (r(3, 4), r(3, 4).cos()),
    differentiable=("self",),
)

# ---------------------------------------------------------------- recurrent cells


def gru_cell(x: Tensor, h: Tensor, wi: Tensor, wh: Tensor, bi: Tensor, bh: Tensor) -> Tensor:
    i, g = (x @ wi.mT + bi).chunk(3, -1), (h @ wh.mT + bh).chunk(3, -1)
    reset, update = (1 / (1 + (-(a + b)).exp()) for a, b in zip(i[:2], g[:2], strict=True))
    return (1 - update) * torch.tanh(i[2] + reset * g[2]) + update * h


audit("gru_cell", gru_cell, (r(2, 2), r(2, 1), r(3, 2), r(3, 1), r(3), r(3).cos()))
audit(
    "rnn_tanh_cell",
    lambda x, h, wi, wh: torch.tanh(x @ wi.mT + h @ wh.mT),
    (r(2, 3), r(2, 2), r(2, 3).cos(), r(2, 2).cos()),
)

# ---------------------------------------------------------------- index and scatter


def scattered(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str = "sum") -> Tensor:
    """x with the values of src joined in, along dim 0."""
    hit = (index.unsqueeze(0) == torch.arange(x.shape[0]).reshape(-1, *[1] * index.dim())).to(x.dtype)
    if reduce == "sum":
        return x + (hit * src).sum(1)
    if reduce == "mean":
        return (x + (hit * src).sum(1)) / (1 + hit.sum(1))
    if reduce == "prod":
        factors = torch.where(hit == 1, src, 1.0)
        for row in factors.unbind(1):
            x = x * row
        return x
    return torch.maximum(x, torch.where(hit == 1, src, -torch.inf).amax(1))


SCATTER = (r(3, 2), 0, ints([0, 2], [2, 2], [1, 0], [2, 1]), r(4, 2))
WITH_ZEROS = (r(3, 2), 0, SCATTER[2], r(4, 2) * ints([0, 1], [1, 1], [1, 1], [0, 0]))
rows_of = lambda index, src: index.unsqueeze(-1).expand(*index.shape, src.shape[-1])  # noqa: E731
audit("scatter_add", scattered, SCATTER)
for reduce in ("sum", "mean", "amax", "prod"):
    audit("scatter_reduce.two", scattered, (*SCATTER, reduce), label=reduce)
audit("scatter_reduce.two", scattered, (*WITH_ZEROS, "prod"), label="prod with zeros")
audit(
    "index_add",
    lambda x, d, i, s: scattered(x, d, rows_of(i, s), s),
    (r(3, 2), 0, ints(0, 2, 2, 1), r(4, 2)),
)
for reduce in ("prod", "mean"):
    audit(
        "index_reduce",
        lambda x, d, i, s, how: scattered(x, d, rows_of(i, s), s, how),
        (r(3, 2), 0, ints(0, 2, 2, 1), r(4, 2), reduce),
        label=reduce,
    )
audit(
    "index_copy",
    lambda x, d, i, s: x * (1 - one_hot(i, x.shape[0], x).sum(0)).unsqueeze(-1) + one_hot(i, x.shape[0], x).mT @ s,
    (r(4, 2), 0, ints(3, 0), r(2, 2)),
)
audit(
    "gather",
    lambda x, d, i: (one_hot(i, x.shape[1], x) * x.unsqueeze(1)).sum(-1),
    (r(2, 3), 1, ints([0, 2, 2, 1], [1, 1, 0, 2])),
)
audit("index_select", lambda x, d, i: one_hot(i, x.shape[0], x) @ x, (r(4, 2), 0, ints(3, 0, 0)))
audit("take", lambda x, i: one_hot(i, x.numel(), x) @ x.flatten(), (r(3, 2), ints([5, 0], [2, 5])))
audit(
    "put",
    lambda x, i, s, add: x + (one_hot(i, x.numel(), x).mT @ s).reshape(x.shape),
    (r(3, 2), ints(5, 0, 5), r(3), True),
)
audit(
    "masked_scatter",
    lambda x, m, s: torch.where(
        m, (one_hot(m.flatten().cumsum(0) - 1, s.numel(), s) @ s.flatten()).reshape(x.shape), x
    ),
    (r(3, 2), ints([1, 0], [1, 1], [0, 1]).bool(), r(3, 2).cos()),
)

# ---------------------------------------------------------------- convolution and pooling


def windows(x: Tensor, size: int, stride: int = 1, padding: int = 0, dilation: int = 1, fill: float = 0.0) -> Tensor:
    """[N, C, Y, X, size, size]: what each window sees."""
    x = torch.nn.functional.pad(x, [padding] * 4, value=fill)
    steps = [range(0, s - (size - 1) * dilation, stride) for s in x.shape[-2:]]
    taps = torch.arange(size) * dilation
    ys, xs = (torch.tensor([*step]).unsqueeze(-1) + taps for step in steps)
    return x[..., ys, :][..., xs].transpose(-3, -2)


def conv2d(x: Tensor, w: Tensor, b: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    seen = windows(x, w.shape[-1], stride[0], padding[0], dilation[0])
    n, c, y, xs, *_ = seen.shape
    out = torch.einsum(
        "ngcyxhw,gochw->ngoyx",
        seen.reshape(n, groups, c // groups, y, xs, *w.shape[-2:]),
        w.reshape(groups, w.shape[0] // groups, *w.shape[1:]),
    )
    return out.flatten(1, 2) + b.reshape(-1, 1, 1)


def conv_transpose2d(x: Tensor, w: Tensor, b: Tensor, stride: Any) -> Tensor:
    """Each pixel adds the kernel, times its value."""
    size, s = w.shape[-1], stride[0]
    at = [one_hot(torch.arange(n).unsqueeze(-1) * s + torch.arange(size), (n - 1) * s + size, x) for n in x.shape[2:]]
    return torch.einsum("nchw,cokl,hky,wlx->noyx", x, w, *at) + b.reshape(-1, 1, 1)


def pooled(x: Tensor, how: Callable[[Tensor], Tensor], out: list[int]) -> Tensor:
    """Over windows whose ends are rounded outwards."""
    h, w = x.shape[-2:]
    bounds = [[(i * s // o, -(-(i + 1) * s // o)) for i in range(o)] for s, o in ((h, out[0]), (w, out[1]))]
    return torch.stack(
        [torch.stack([how(x[..., a:b, c:d].flatten(-2)) for c, d in bounds[1]], -1) for a, b in bounds[0]], -2
    )


def max_pool(x: Tensor, k: Any, s: Any) -> tuple[Tensor, Tensor]:
    index = torch.arange(x.shape[-1] * x.shape[-2], dtype=x.dtype).reshape(1, 1, *x.shape[-2:])
    values, at = windows(x, k[0], s[0]).flatten(-2).max(-1)
    places = windows(index, k[0], s[0]).flatten(-2).expand(*values.shape, -1)
    return values, places.gather(-1, at.unsqueeze(-1)).squeeze(-1).long()


audit(
    "conv2d", conv2d, (r(1, 2, 4, 4), r(2, 1, 2, 2), r(2), [1, 1], [1, 1], [2, 2], 2), label="groups, dilation, padding"
)
audit("conv_transpose2d.input", conv_transpose2d, (r(1, 2, 2, 3), r(2, 2, 2, 2), r(2), [2, 2]))
audit(
    "conv_tbc",
    lambda x, w, b: sum(x[k : x.shape[0] - w.shape[0] + 1 + k] @ w[k] for k in range(w.shape[0])) + b,
    (r(4, 1, 2), r(2, 2, 2), r(2)),
)
audit("max_pool2d_with_indices", max_pool, (r(1, 2, 4, 4), [2, 2], [1, 1]))
audit(
    "avg_pool2d",
    lambda x, k, s, p: windows(x, k[0], s[0], p[0]).mean((-2, -1)),
    (r(1, 2, 4, 4), [2, 2], [2, 2], [1, 1]),
)
audit("adaptive_avg_pool2d", lambda x, s: pooled(x, lambda t: t.mean(-1), s), (r(1, 2, 4, 5), [3, 2]))
audit(
    "im2col",
    lambda x, k, d, p, s: windows(x, k[0], s[0], p[0], d[0]).permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3),
    (r(1, 2, 3, 4), [2, 2], [1, 1], [1, 1], [2, 2]),
)

# ---------------------------------------------------------------- reductions, scans and functions of one number


def series(x: Tensor, terms: Callable[[int], float], count: int = 40) -> Tensor:
    """A power series, by Horner's rule."""
    total = torch.zeros_like(x)
    for k in reversed(range(count)):
        total = total * x + terms(k)
    return total


def even(f: Callable[[int], float]) -> Callable[[int], float]:
    return lambda k: 0.0 if k % 2 else f(k // 2)


def odd(f: Callable[[int], float]) -> Callable[[int], float]:
    return lambda k: f(k // 2) if k % 2 else 0.0


def newton_erfinv(x: Tensor) -> Tensor:
    y = x.detach().clone()
    for _ in range(12):
        y = y - (torch.erf(y) - x) * (y * y).exp() * (math.pi**0.5 / 2)
    return y


def running(x: Tensor, dim: int, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    found = [x.select(dim, 0)]
    for i in range(1, x.shape[dim]):
        found.append(join(found[-1], x.select(dim, i)))
    return torch.stack(found, dim)


X = torch.tensor([[-1.3, 0.0], [0.4, 1.1], [0.8, -0.6]], dtype=torch.float64)
audit("logcumsumexp", lambda x, d: running(x.exp(), d, torch.add).log(), (r(3, 4), 1))
audit("cumprod", lambda x, d: running(x, d, torch.mul), (r(3, 4), 1))
audit(
    "cumprod",
    lambda x, d: running(x, d, torch.mul),
    (r(2, 4) * ints([1, 0, 1, 1], [1, 0, 1, 0]), 1),
    label="zeros",
)
audit(
    "prod.dim_int",
    lambda x, d: running(x, d, torch.mul).select(d, -1),
    (r(3, 3) * ints([1, 0, 1], [1, 0, 0], [1, 1, 1]), 1),
    label="zeros",
)
audit("logsumexp", lambda x, d: x.exp().sum(d).log(), (r(3, 4), [1]))
audit("_softmax", lambda x, d, _: x.exp() / x.exp().sum(d, True), (r(3, 4), 1, False))
audit(
    "std_mean.dim",
    lambda x, d: ((x - x.mean(d, True)).square().sum(d).div(x.shape[-1] - 1).sqrt(), x.mean(d)),
    (r(3, 4), [1]),
)
audit("_prelu_kernel", lambda x, w: torch.where(x > 0, x, w * x), (r(3, 4), r(3, 4).cos()))
audit("glu", lambda x: x[..., : x.shape[-1] // 2] / (1 + (-x[..., x.shape[-1] // 2 :]).exp()), (r(3, 4),))
audit("mish", lambda x: x * torch.tanh((1 + x.exp()).log()), (X,))
audit("celu", lambda x, a: torch.where(x > 0, x, a * ((x / a).exp() - 1)), (r(3, 4), 1.3))
audit("logit", lambda x: (x / (1 - x)).log(), (r(3, 4, low=0.1, high=0.9),))
audit("sinc", partial(series, terms=even(lambda k: (-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k + 1))), (X,))
audit("erfinv", newton_erfinv, (X / 2,), **ONLY_WIDE)
audit("special_i0", partial(series, terms=even(lambda k: 0.25**k / math.factorial(k) ** 2)), (X,))
audit(
    "special_i1",
    partial(series, terms=odd(lambda k: 0.5 * 0.25**k / math.factorial(k) / math.factorial(k + 1))),
    (X,),
    **ONLY_WIDE,
)
audit(
    "special_i1e",
    lambda x: series(x, odd(lambda k: 0.5 * 0.25**k / math.factorial(k) / math.factorial(k + 1))) * (-x.abs()).exp(),
    (r(3, 2),),
    **ONLY_WIDE,
)
audit("special_erfcx", lambda x: (x * x).exp() * (1 - torch.erf(x)), (X,), **ONLY_WIDE)
audit("logaddexp", lambda x, y: (x.exp() + y.exp()).log(), (r(3, 4), r(3, 4).cos()))
audit("xlogy.Tensor", lambda x, y: x * y.log(), (X, r(3, 2, low=0.2)))
audit("hypot", lambda x, y: (x * x + y * y).sqrt(), (r(3, 4), r(3, 4).cos()))
audit(
    "trapezoid.x",
    lambda y, x: ((x[..., 1:] - x[..., :-1]) * (y[..., 1:] + y[..., :-1]) / 2).sum(-1),
    (r(3, 4), r(3, 4).cos()),
)
audit("dist", lambda x, y, p: (x - y).abs().pow(p).sum().pow(1 / p), (r(3, 2), r(3, 2).cos(), 3.0))
