"""The cases of the benchmark: operators, their inputs and their peers."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import cppcuda
import cppcuda.kit
import peers
import torch
import torch.nn.functional as F
from targets import ACTIVATIONS, COPY, FORMULAS, GPU_TIME, HOST_TIME, LSTM, OWN_LSTM, ROWS, ROWS_FORMULAS, SIZES
from torch import Tensor

Tensors = tuple[Tensor, ...]
# The simplest code that somebody would write; torch.compile compiles it.
SIMPLEST: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "quick_gelu": peers.quick_gelu}


def unchanged(*tensors: Tensor) -> Tensors:
    return tensors


@dataclass(frozen=True)
class Contestant:
    call: Callable[..., Any]
    prepare: Callable[..., Tensors] = unchanged  # converts the inputs to the form that it takes; not timed
    restore: Callable[..., Tensors] = unchanged  # converts gradients of these back to gradients of the inputs
    comparable: bool = True  # False if it computes something else and is measured only for scale
    has_gradients: bool = True  # False if it is called as it is for backward as well


@dataclass(frozen=True)
class Case:
    op: str
    mode: str  # forward, backward (of a recorded graph), both
    size: str
    elements: int
    inputs: Callable[[torch.device], Tensors]
    contestants: dict[str, Contestant]  # "cppcuda" and its peers
    plain: Contestant | None = None  # what torch.compile compiles
    # Minimal numbers of bytes read and written, if memory is the bound. The rows of a table count as often as points
    # have corners there.
    bytes: tuple[int, int] | None = None
    dtype: str = "float32"
    layout: str = "contiguous"
    regime: str = "default"
    threads: str = "all"
    key: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        names = ("op", "mode", "size", "elements", "dtype", "layout", "regime", "threads")
        key: dict[str, Any] = {name: getattr(self, name) for name in names}
        name = " ".join(v for k, v in key.items() if k != "elements" and v not in ("contiguous", "all"))
        object.__setattr__(self, "key", {"name": name + " thread" * (self.threads == "one"), **key})

    @property
    def name(self) -> str:
        return str(self.key["name"])


def noise(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Tensor:
    """Random numbers. Large tensors repeat them, because generating many takes longer than most operators."""
    numel = torch.Size(shape).numel()
    base = torch.randn(min(numel, 2**20 + 7), device=device).to(dtype)
    return base.repeat(-(-numel // base.numel()))[:numel].view(shape)


def _into(function: Callable[..., Any], dtype: torch.dtype | None = None) -> Contestant:
    """Calls function(x, out). `out` starts as NaN, so that a function that does not write it is found."""

    def prepare(x: Tensor) -> Tensors:
        x = x if dtype is None else x.to(dtype)
        return x, torch.full_like(x, torch.nan)

    return Contestant(function, prepare)


def activation(op: str, mode: str, elements: int, layout: str = "contiguous", **where: Any) -> Case:
    dtype: torch.dtype = getattr(torch, where.get("dtype", "float32"))
    ours: Callable[..., Tensor] = getattr(cppcuda.functional, op)
    plain: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
        "sigmoid": {"eager": (peers.sigmoid, peers.sigmoid_into), "torch.sigmoid": (torch.sigmoid, torch.sigmoid)},
        "quick_gelu": {"eager": (peers.quick_gelu, peers.quick_gelu_into)},
    }[op]
    simplest = SIMPLEST[op]

    def inputs(device: torch.device) -> Tensors:
        if layout == "strided":
            return (noise(2 * elements, dtype=dtype, device=device)[::2],)
        if layout == "channels_last":
            images = noise(elements // 2**14, 16, 32, 32, dtype=dtype, device=device)
            return (images.to(memory_format=torch.channels_last),)
        return (noise(elements, dtype=dtype, device=device),)

    if where.get("regime") == "out":
        contestants = {"cppcuda": _into(lambda x, out: ours(x, out=out))}
        contestants |= {name: _into(lambda x, out, into=into: into(x, out=out)) for name, (_, into) in plain.items()}
        if dtype.itemsize == 2:
            contestants["cppcuda float32"] = _into(lambda x, out: ours(x, out=out), torch.float32)
        compiled = _into(lambda x, out: out.copy_(simplest(x)))
    else:
        contestants = {"cppcuda": Contestant(ours)} | {name: Contestant(f) for name, (f, _) in plain.items()}
        compiled = Contestant(simplest)
    size = elements * dtype.itemsize
    # There is no roofline for strided inputs, because they are read in whole cache lines.
    moved = None if layout == "strided" else ((1 if mode == "forward" else 2) * size, size)
    power = f"2^{elements.bit_length() - 1}"
    return Case(op, mode, power, elements, inputs, contestants, compiled, moved, layout=layout, **where)


ROOT = Path(__file__).parents[1]


@functools.cache
def _formulas() -> Any:
    """Operators that are a formula alone, built at the first call."""
    return cppcuda.kit.load("formulas", sorted((ROOT / "benchmarks/formulas").glob("*.h")))


@functools.cache
def _points_or_rows(op: str) -> Callable[..., Tensor]:
    """A formula of points or of rows, built at the first call."""
    if op == "neo_hookean":
        load = functools.partial(cppcuda.kit.load, "elasticity", ROOT / "examples/elasticity/neo_hookean.h")
    else:
        names = ("rotate", "project", *ROWS_FORMULAS)
        headers = [ROOT / f"tests/second_library/elementwise/{name}.h" for name in names]
        load = functools.partial(cppcuda.kit.load, "second", headers)
    found: Callable[..., Tensor] = getattr(load(), op)
    return found


def formula_of_points(op: str, mode: str, count: int, **where: Any) -> Case:
    """An operator whose tensors have a few values for each point. `project` has one camera."""
    dtype: torch.dtype = getattr(torch, where.get("dtype", "float32"))
    plain: Callable[..., Tensor] = getattr(peers, op)
    attributes = (1.0, 4.0) if op == "neo_hookean" else ()

    def inputs(device: torch.device) -> Tensors:
        def values(*shape: int) -> Tensor:
            return noise(*shape, dtype=dtype, device=device)

        if op == "rotate":
            return values(count, 4), values(count, 3)
        if op == "project":
            front = torch.tensor([0, 0, 2], dtype=dtype, device=device)
            return values(count, 3) / 4 + front, values(4), values(5) / 10
        return (values(count, 3, 3) / 10 + torch.eye(3, dtype=dtype, device=device),)

    def contestant(f: Callable[..., Tensor]) -> Contestant:
        call = functools.partial(_with_attributes, f, attributes)
        return Contestant(torch.func.vmap(torch.func.hessian(call)) if mode == "hessian" else call)

    def ours(*t: Any) -> Tensor:
        return _points_or_rows(op)(*t)

    contestants = {"cppcuda": contestant(ours), "eager": contestant(plain)}
    if mode != "hessian" and op in warp_functions():
        contestants["warp"] = dataclasses.replace(contestant(warp_functions()[op]), comparable=op != "rotate")
    size = count * dtype.itemsize
    read, written = {"rotate": (7, 3), "project": (3, 2), "neo_hookean": (9, 1)}[op]
    if mode == "forward":

        def to_copy(*t: Tensor) -> Tensors:
            return (noise((read + written) * count // 2, dtype=dtype, device=t[0].device),)

        contestants[COPY] = Contestant(torch.clone, prepare=to_copy, comparable=False)
    moved = (read * size, written * size) if mode == "forward" else None
    return Case(
        f"{op}_hessian" if mode == "hessian" else op,
        "forward" if mode == "hessian" else mode,
        f"2^{count.bit_length() - 1}",
        count,
        inputs,
        contestants,
        None if mode == "hessian" else contestant(plain),
        moved,
        **where,
    )


def formula_of_rows(op: str, mode: str, features: int, **where: Any) -> Case:
    """2^24 values in rows of so many, beside torch's own operator and the formula under torch.compile."""
    dtype: torch.dtype = getattr(torch, where.get("dtype", "float32"))
    elements = 2**24
    builtin: dict[str, Callable[..., Tensor]] = {
        "rms_norm": lambda x, weight: F.rms_norm(x, (features,), weight, 1e-6),
        "layer_norm": lambda x, weight, bias: F.layer_norm(x, (features,), weight, bias, 1e-5),
        "softmax": lambda x: x.softmax(-1),
    }

    def inputs(device: torch.device) -> Tensors:
        x = noise(elements // features, features, dtype=dtype, device=device)
        weights = [noise(features, dtype=dtype, device=device) for _ in range(ROWS_FORMULAS[op])]
        return (x, *weights)

    contestants = {
        "cppcuda": Contestant(lambda *t: _points_or_rows(op)(*t)),
        "built-in": Contestant(builtin[op]),
    }
    plain: Callable[..., Tensor] = getattr(peers, op)
    size = elements * dtype.itemsize
    moved = (size, size) if mode == "forward" else None
    return Case(op, mode, f"2^24/{features}", elements, inputs, contestants, Contestant(plain), moved, **where)


@functools.cache
def warp_functions() -> dict[str, Callable[..., Tensor]]:
    """The formulas in Warp, if it is installed: pip install warp-lang."""
    if importlib.util.find_spec("warp") is None:
        return {}
    import warp_peers

    return warp_peers.PEERS


def _with_attributes(f: Callable[..., Tensor], attributes: tuple[float, ...], *tensors: Tensor) -> Tensor:
    return f(*tensors, *attributes)


def formula(op: str, mode: str, elements: int, **where: Any) -> Case:
    """An operator of benchmarks/formulas beside torch's own, and beside its formula under torch.compile."""
    dtype: torch.dtype = getattr(torch, where.get("dtype", "float32"))
    builtin: dict[str, Callable[..., Tensor]] = {"gelu": F.gelu, "mish": F.mish, "sin": torch.sin}
    contestants = {
        "cppcuda": Contestant(lambda x: getattr(_formulas(), op)(x)),
        "built-in": Contestant(builtin.get(op, F.softplus)),
    }
    plain = {"gelu": peers.gelu, "mish": peers.mish, "sin": torch.sin, "softplus": peers.softplus}[op]
    size = elements * dtype.itemsize
    moved = ((1 if mode == "forward" else 2) * size, size)

    def inputs(device: torch.device) -> Tensors:
        return (noise(elements, dtype=dtype, device=device),)

    power = f"2^{elements.bit_length() - 1}"
    return Case(op, mode, power, elements, inputs, contestants, Contestant(plain), moved, **where)


def fused(op: str, mode: str, elements: int, **where: Any) -> Case:
    """An operator between two others under torch.compile, which fuses it, beside the kernel in the same function."""

    def between(f: Callable[[Tensor], Tensor], **options: Any) -> Contestant:
        return Contestant(torch.compile(lambda x, bias, y: f(x + bias) * y, dynamic=False, **options))

    ours: Callable[[Tensor], Tensor] = getattr(cppcuda.functional, op)
    kernel = between(ours, options={"joint_custom_pre_pass": None})
    plain = SIMPLEST[op]

    def inputs(device: torch.device) -> Tensors:
        x, y = (noise(elements // 1024, 1024, device=device) for _ in range(2))
        return x, noise(1024, device=device), y

    moved = (8 * elements, 4 * elements) if mode == "forward" else (12 * elements, 8 * elements)
    size = f"2^{elements.bit_length() - 1}"
    contestants = {"cppcuda": between(ours), "kernel": kernel}
    return Case(
        f"fused_{op}",
        mode,
        size,
        elements,
        inputs,
        contestants,
        Contestant(lambda x, bias, y: plain(x + bias) * y),
        moved,
        **where,
    )


def trilinear(
    mode: str, features: int, rows: int = 65536, points_dtype: torch.dtype | None = None, **where: Any
) -> Case:
    dtype = getattr(torch, where.get("dtype", "float32"))
    points_dtype = points_dtype or dtype

    def inputs(device: torch.device) -> Tensors:
        points = torch.rand(rows, 3, device=device).to(points_dtype) * 2 - 1
        return noise(rows, 8, features, dtype=dtype, device=device), points

    contestants = {
        "cppcuda": Contestant(cppcuda.functional.trilinear),
        "eager": Contestant(peers.trilinear),
        "eager factored": Contestant(peers.trilinear_corners),
        "eager bmm": Contestant(peers.trilinear_bmm),
        "F.grid_sample": Contestant(peers.grid_sample, peers.volume_of, peers.feats_of),
    }
    if dtype in (torch.bfloat16, torch.float16):
        del contestants["F.grid_sample"]  # it does not support 16-bit types on the CPU, or rounds positions to them
    if points_dtype != dtype:
        del contestants["eager"]  # it computes in the wider type
    values, points = rows * features * dtype.itemsize, rows * 3 * points_dtype.itemsize
    moved = (8 * values + points, values) if mode == "forward" else (9 * values + points, 8 * values + points)
    size, plain = f"{rows}x{features}", Contestant(peers.trilinear)
    return Case("trilinear", mode, size, rows * features, inputs, contestants, plain, moved, **where)


def eikonal(features: int, rows: int = 65536) -> Case:
    """A training step with an eikonal loss: the gradients of a function of the gradient of the points."""

    def loss_of(interpolate: Callable[[Tensor, Tensor], Tensor]) -> Contestant:
        def loss(feats: Tensor, points: Tensor) -> Tensor:
            out = interpolate(feats, points)
            (slope,) = torch.autograd.grad(out.sin().sum(), points, create_graph=True)
            return (slope.norm(dim=-1) - 1).square().sum() + out.square().sum()

        return Contestant(loss)

    plain = trilinear("both", features, rows)
    peers_of_it = {name: loss_of(plain.contestants[name].call) for name in ("cppcuda", "eager", "eager factored")}
    size = f"{rows}x{features}"
    return Case("trilinear_eikonal", "both", size, rows * features, plain.inputs, peers_of_it, regime="reused")


def _bytes_of_rows(mode: str, count: int, features: int, itemsize: int, other: int, levels: int = 1) -> tuple[int, int]:
    """The bytes read and written: for each point the rows of 8 corners, a row of features, and `other` bytes. Backward
    computes the gradients of the table and of the points."""
    rows, values, other = (count * n for n in (8 * levels * features * itemsize, levels * features * itemsize, other))
    return (rows + other, values) if mode == "forward" else (rows + values + other, rows + 12 * count)


def _rows_peer(
    mode: str,
    levels: Sequence[Sequence[float]],
    features: int,
    prepare: Callable[..., Tensors],
    params_only: bool = False,
) -> Contestant:
    """Moves the rows that the operator moves, without its arithmetic. prepare: table [V, F], points, and corners."""

    def inputs(*tensors: Tensor) -> Tensors:
        table, points, *corners = prepare(*tensors)
        values = noise(len(points), len(levels), features, dtype=table.dtype, device=table.device)
        return table, torch.zeros_like(table, dtype=torch.float32), points, values, torch.empty_like(values), *corners

    def call(table: Tensor, sums: Tensor, points: Tensor, grad: Tensor, out: Tensor, *corners: Tensor) -> Tensor:
        import gather  # it needs Triton

        if mode == "forward" or not params_only:
            out = gather.rows(table, points, out, levels, *corners)
        return out if mode == "forward" else gather.rows(sums, points, grad, levels, *corners, add=True)

    return Contestant(call, inputs, comparable=False, has_gradients=False)


def grid_sample3d(mode: str, features: int, side: int, points: int = 65536, regime: str = "reused") -> Case:
    """Points in random order, in a volume whose features are contiguous."""

    def inputs(device: torch.device) -> Tensors:
        return noise(side, side, side, features, device=device), torch.rand(points, 3, device=device) * 2 - 1

    plain = Contestant(peers.grid_sample3d)
    contestants = {
        "cppcuda": Contestant(cppcuda.functional.grid_sample3d),
        "F.grid_sample": Contestant(peers.grid_sample3d, peers.features_first),
        "channels_last_3d": plain,  # F.grid_sample of a volume of this memory format
    }
    moved = None
    if regime == GPU_TIME:
        levels = ((side - 1.5, side, 0, 0),)
        contestants[ROWS] = _rows_peer(mode, levels, features, lambda x, p: (x.flatten(0, 2), (p + 1) / 2))
        moved = _bytes_of_rows(mode, points, features, 4, 12)
    size = f"{points}x{features} of {side}^3"
    return Case("grid_sample3d", mode, size, points * features, inputs, contestants, plain, moved, regime=regime)


def grid_corners(side: int, rows: int, device: torch.device) -> Tensor:
    """The vertices of random voxels of a grid with side^3 vertices."""
    steps = torch.tensor([side**2, side, 1], device=device)
    voxels = torch.randint(0, side - 1, (rows, 1, 3), device=device)
    corners = torch.tensor(list(product((0, 1), repeat=3)), device=device)
    return ((voxels + corners) * steps).sum(-1)


def trilinear_indexed(mode: str, features: int, side: int, rows: int = 65536, **where: Any) -> Case:
    """Points in random voxels of a grid; with a side of 2 all are in one voxel."""

    def inputs(device: torch.device) -> Tensors:
        table = noise(side**3, features, dtype=getattr(torch, where.get("dtype", "float32")), device=device)
        points = torch.rand(rows, 3, device=device) * 2 - 1
        return table, grid_corners(side, rows, device), points

    plain = Contestant(peers.trilinear_indexed)
    contestants = {
        "cppcuda": Contestant(cppcuda.functional.trilinear_indexed),
        "eager": plain,
        "F.embedding_bag": Contestant(peers.embedding_bag),
    }
    moved = None
    if where.get("regime") == GPU_TIME:
        contestants[ROWS] = _rows_peer(mode, ((0, 0, 0, 0),), features, lambda table, c, p: (table, p, c))
        moved = _bytes_of_rows(mode, rows, features, getattr(torch, where.get("dtype", "float32")).itemsize, 12 + 64)
    size = f"{rows}x{features} of {side}^3"
    return Case("trilinear_indexed", mode, size, rows * features, inputs, contestants, plain, moved, **where)


def indexed_eikonal(side: int, rows: int = 65536) -> Case:
    """A training step of a distance field with an eikonal loss."""

    def loss_of(with_grad: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Contestant:
        def loss(table: Tensor, corners: Tensor, points: Tensor) -> Tensor:
            value, slope = with_grad(table, corners, points)
            return (slope.norm(dim=-1) - 1).square().sum() + value.square().sum()

        return Contestant(loss)

    def by_autograd(f: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Contestant:
        def with_grad(table: Tensor, corners: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
            value = f(table, corners, points)
            return value, torch.autograd.grad(value.sum(), points, create_graph=True)[0]

        return loss_of(with_grad)

    contestants = {
        "cppcuda": loss_of(cppcuda.functional.trilinear_indexed_with_grad),
        "trilinear_indexed": by_autograd(cppcuda.functional.trilinear_indexed),
        "eager": by_autograd(peers.trilinear_indexed),
    }
    plain, size = trilinear_indexed("both", 1, side, rows), f"{rows}x1 of {side}^3"
    return Case("trilinear_indexed_eikonal", "both", size, rows, plain.inputs, contestants, regime="reused")


# 16 levels from 16 to 2048 vertices per axis, as in neural fields; the arguments of the operator after its tensors.
HASH_GRID: dict[str, Any] = {
    "n_levels": 16,
    "n_features_per_level": 2,
    "log2_hashmap_size": 19,
    "base_resolution": 16,
    "per_level_scale": 1.3819129,
}


def hash_grid(
    mode: str,
    points: int,
    params_only: bool = False,
    regime: str = "reused",
    dtype: str = "float32",
    n_levels: int = HASH_GRID["n_levels"],
) -> Case:
    """params_only: points have no gradient."""
    arguments = HASH_GRID | {"n_levels": n_levels}
    grid = {name: value for name, value in arguments.items() if name != "n_features_per_level"}
    plain = peers.HashGrid(**grid)

    def inputs(device: torch.device) -> Tensors:
        count = torch.ops.cppcuda._hash_grid_parameters(3, *arguments.values())
        params = noise(count, dtype=getattr(torch, dtype), device=device)
        p = torch.rand(points, 3, device=device)
        # Tensors of integers get no gradient.
        return params, p.view(torch.int32) if params_only else p

    def contestant(f: Callable[[Tensor, Tensor], Tensor]) -> Contestant:
        return Contestant((lambda params, bits: f(params, bits.view(torch.float32))) if params_only else f)

    contestants = {
        "cppcuda": contestant(lambda params, p: cppcuda.functional.hash_grid(params, p, **grid)),
        "eager": contestant(plain),
        "index_select": contestant(plain.by_index_select),
    }
    features = 2 * n_levels
    size, compiled, moved = f"{points}x{features}{', params only' * params_only}", contestants["eager"], None
    if regime == GPU_TIME:
        del contestants["eager"]  # its backward takes seconds
        levels = [(v.scale, v.resolution, v.first_row, v.is_hashed * v.rows) for v in plain.levels]
        contestants[ROWS] = _rows_peer(
            mode, levels, 2, lambda t, p: (t.view(-1, 2), p.view(torch.float32)), params_only
        )
        moved = _bytes_of_rows(mode, points, 2, getattr(torch, dtype).itemsize, 12, len(levels))
        if params_only:
            moved = moved[0] - moved[1] + 12 * points, moved[1] - 12 * points  # no row is read
    where = {"regime": regime, "dtype": dtype}
    return Case("hash_grid", mode, size, points * features, inputs, contestants, compiled, moved, **where)


def upsample(
    mode: str,
    layout: str = "contiguous",
    shape: tuple[int, int, int, int] = (8, 64, 128, 128),
    factor: int = 2,
    **where: Any,
) -> Case:
    dtype, out = getattr(torch, where.get("dtype", "float32")), (factor * shape[2], factor * shape[3])

    def inputs(device: torch.device) -> Tensors:
        images = noise(*shape, dtype=dtype, device=device)
        return (images.to(memory_format=torch.channels_last) if layout == "channels_last" else images,)

    def builtin(x: Tensor) -> Tensor:
        return F.interpolate(x, size=out, mode="bilinear", align_corners=False)

    ours = Contestant(lambda x: cppcuda.functional.upsample_bilinear2d(x, out))

    def gathered(x: Tensor) -> Tensor:
        import gather  # it needs Triton

        return gather.upsample(x, factor)

    contestants = {"cppcuda": ours, "F.interpolate": Contestant(builtin)}
    if where.get("regime") == GPU_TIME:
        if dtype == torch.float32:  # in 16 bits its positions have 16 bits
            contestants["F.grid_sample"] = Contestant(lambda x: peers.grid_sample_upsample(x, factor))
        if mode == "backward":
            contestants["gather"] = Contestant(gathered)
    size = torch.Size(shape).numel() * dtype.itemsize
    moved = (size, factor**2 * size) if mode == "forward" else (factor**2 * size, size)
    name, elements = "x".join(map(str, shape)), torch.Size(shape).numel()
    if factor != 2:
        name += f", {factor} times"
    plain = Contestant(builtin)
    op = "upsample_bilinear2d"
    return Case(op, mode, name, elements, inputs, contestants, plain, moved, layout=layout, **where)


def asymmetric(mode: str) -> Case:
    def ours(x: Tensor) -> Tensor:
        return cppcuda.functional.upsample_bilinear2d(x, (256, 256), coordinate_transformation_mode="asymmetric")

    def inputs(device: torch.device) -> Tensors:
        return (noise(8, 64, 128, 128, device=device),)

    plain = Contestant(peers.upsample_asymmetric)
    contestants = {"cppcuda": Contestant(ours), "eager": plain}
    return Case("upsample_asymmetric", mode, "8x64x128x128", 2**23, inputs, contestants, plain)


def lltm(mode: str, batch: int, inputs: int, state: int, **where: Any) -> Case:
    def make(device: torch.device) -> Tensors:
        shapes = ((batch, inputs), (3 * state, state + inputs), (3 * state,), (batch, state), (batch, state))
        return tuple(noise(*s, device=device) * (state + inputs) ** -0.5 for s in shapes)

    def lstm_inputs(input: Tensor, weight: Tensor, bias: Tensor, hx: Tensor, cx: Tensor) -> Tensors:
        shapes = ((4 * state, inputs), (4 * state, state), (4 * state,))
        return input, hx, cx, *(noise(*s, device=input.device) for s in shapes)

    def lstm_cell(x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor) -> Tensors:
        return torch.lstm_cell(x, (h, c), w_ih, w_hh, b, b)

    def product_inputs(input: Tensor, weight: Tensor, bias: Tensor, hx: Tensor, cx: Tensor) -> Tensors:
        return torch.cat([hx, input], 1), weight, bias

    plain = Contestant(peers.lltm_cell)
    contestants = {
        "cppcuda": Contestant(cppcuda.functional.lltm_cell),
        "eager": plain,
        "nn.LSTMCell": Contestant(lstm_cell, lstm_inputs, comparable=False),
    }
    moved = None
    if where.get("regime") == GPU_TIME and mode != "both":
        # The pointwise part moves gates and states, and their gradients.
        state_bytes = batch * state * 4
        moved = (4 * state_bytes, 2 * state_bytes) if mode == "forward" else (6 * state_bytes, 4 * state_bytes)
        contestants["products"] = Contestant(F.linear, product_inputs, comparable=False)
    size = f"{batch}/{inputs}/{state}"
    return Case("lltm_cell", mode, size, batch * state, make, contestants, plain, moved, **where)


def sequence(mode: str, steps: int, batch: int, inputs: int, state: int, **where: Any) -> Case:
    """An LLTM over a sequence. "cppcuda loop" calls lltm_cell for each step."""

    def make(device: torch.device) -> Tensors:
        shapes = ((steps, batch, inputs), (3 * state, state + inputs), (3 * state,), (batch, state), (batch, state))
        scales = (1.0, state**-0.5, state**-0.5, 1.0, 1.0)
        return tuple(noise(*s, device=device) * scale for s, scale in zip(shapes, scales, strict=True))

    def lstm_inputs(input: Tensor, weight: Tensor, bias: Tensor, h0: Tensor, c0: Tensor) -> Tensors:
        # As the weights of nn.LSTM, they are parts of one tensor; otherwise cuDNN would copy them in each call.
        shapes = ((4 * state, inputs), (4 * state, state), (4 * state,), (4 * state,))
        flat = noise(sum(torch.Size(s).numel() for s in shapes), device=input.device) * state**-0.5
        parts = flat.split([torch.Size(s).numel() for s in shapes])
        return input, h0[None], c0[None], *(part.view(s) for part, s in zip(parts, shapes, strict=True))

    def lstm(x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> Tensors:
        return torch.lstm(x, (h, c), weights, True, 1, 0.0, torch.is_grad_enabled(), False, False)

    def own_lstm(*tensors: Tensor) -> Tensors:
        with torch.backends.mkldnn.flags(enabled=False):
            return lstm(*tensors)

    plain = Contestant(peers.loop_of(peers.lltm_cell))
    contestants = {
        "cppcuda": Contestant(cppcuda.functional.lltm),
        "cppcuda loop": Contestant(peers.loop_of(cppcuda.functional.lltm_cell)),
        LSTM: Contestant(lstm, lstm_inputs, comparable=False),
    }
    if where["regime"] != GPU_TIME:  # a sample there takes ten seconds of launches, and oneDNN is for the CPU
        contestants |= {"eager": plain, OWN_LSTM: Contestant(own_lstm, lstm_inputs, comparable=False)}
    size = f"{steps}x{batch}/{inputs}/{state}"
    return Case("lltm", mode, size, steps * batch * state, make, contestants, plain, **where)


def cases() -> Iterator[Case]:
    """The cases for the CPU."""
    ops, modes = ("sigmoid", "quick_gelu"), ("forward", "backward")
    large = SIZES[-4:]
    for op in ops:
        for mode, elements in product(modes, SIZES):
            yield activation(op, mode, elements)
        for mode, elements in product(modes, large):
            yield activation(op, mode, elements, regime="thp")
        for elements in SIZES:
            yield activation(op, "forward", elements, regime="out")
        for mode, elements in product(modes, (2**14, 2**20, 2**26)):
            yield activation(op, mode, elements, threads="one")
        for dtype, largest in (("bfloat16", 2**26), ("float16", 2**26), ("float64", 2**25)):
            for mode, elements in product(modes, (2**10, 2**20, largest)):
                yield activation(op, mode, elements, dtype=dtype)
            yield activation(op, "forward", largest, dtype=dtype, regime="out")
            yield activation(op, "forward", largest, dtype=dtype, regime="thp")
        for layout, elements in product(("channels_last", "strided"), (2**20, 2**24)):
            yield activation(op, "forward", elements, layout)
        yield activation(op, "both", 64)
    for op, mode, dtype in product(FORMULAS, ("forward", "both"), ("float32", "bfloat16")):
        for threads in ("all", "one"):
            yield formula(op, mode, 2**24, dtype=dtype, threads=threads, regime="reused")
    for op, mode, threads in product(("rotate", "project", "neo_hookean"), ("forward", "both"), ("all", "one")):
        yield formula_of_points(op, mode, 2**20, threads=threads, regime="reused")
    yield formula_of_points("neo_hookean", "hessian", 2**17, regime="reused")
    for op, mode, features in product(ROWS_FORMULAS, ("forward", "both"), (64, 1024, 16384)):
        for threads in ("all", "one"):
            yield formula_of_rows(op, mode, features, threads=threads, regime="reused")
    for op, mode, threads in product(ACTIVATIONS, ("forward", "both"), ("all", "one")):
        yield fused(op, mode, 2**24, threads=threads, regime="reused")
    for mode in modes:
        for features in (1, 7, 8, 32, 256):
            yield trilinear(mode, features)
        for regime in ("thp", "reused"):
            yield trilinear(mode, 256, regime=regime)
        yield trilinear(mode, 256, threads="one")
        for dtype in ("bfloat16", "float16", "float64"):
            yield trilinear(mode, 32, dtype=dtype)
        for layout in ("contiguous", "channels_last"):
            for regime in ("default", "thp", "reused"):
                yield upsample(mode, layout, regime=regime)
            yield upsample(mode, layout, threads="one")
            yield upsample(mode, layout, dtype="bfloat16")
        yield asymmetric(mode)
        for features, side in ((32, 64), (128, 64), (4, 128), (1, 64), (1, 256)):
            yield grid_sample3d(mode, features, side)
    for features in (2, 8, 32):
        yield eikonal(features)
    for mode in (*modes, "both"):
        for features in (1, 2, 8, 32, 128):
            yield trilinear_indexed(mode, features, 46, regime="reused")
    for mode, features, side in product(("backward", "both"), (2, 32), (10, 2)):
        yield trilinear_indexed(mode, features, side, regime="reused")
    yield indexed_eikonal(46)
    for points in (4096, 65536):
        for mode in modes:
            yield hash_grid(mode, points)
        yield hash_grid("backward", points, params_only=True)
    for mode in (*modes, "both"):
        yield lltm(mode, 16, 32, 128)
        yield lltm(mode, 512, 512, 512)
    yield sequence("both", 128, 16, 32, 128, regime="reused")


class GpuSizes(NamedTuple):
    values: int
    elements: int
    batch: int
    state: int
    images: tuple[int, int, int, int]
    small: tuple[int, int, int, int]
    unaligned: tuple[int, int, int, int]
    points: int
    side: int
    levels: int


_SIZES = GpuSizes(2**24, 2**26, 4096, 512, (8, 64, 256, 256), (8, 64, 128, 128), (8, 64, 255, 255), 2**20, 128, 16)
_TINY = GpuSizes(2**11, 2**12, 8, 8, (1, 8, 4, 4), (1, 8, 2, 2), (1, 8, 3, 3), 64, 4, 2)
_GPU: dict[str, Any] = {"regime": GPU_TIME}
_MODES = ("forward", "backward")


def _trilinear_on_gpu(mode: str, features: int, sizes: GpuSizes, dtype: str = "float32") -> Case:
    return trilinear(mode, features, sizes.values // features, torch.float32, dtype=dtype, **_GPU)


def flagship_cases(tiny: bool = False) -> Iterator[Case]:
    """The most important cases for a GPU, those first of which least is known. tiny: for checks without a GPU."""
    sizes = _TINY if tiny else _SIZES
    for dtype in ("float32", "float16"):
        where = {"dtype": dtype, "n_levels": sizes.levels, **_GPU}
        yield hash_grid("forward", sizes.points, **where)
        yield hash_grid("backward", sizes.points, params_only=True, **where)
        yield hash_grid("backward", sizes.points, **where)
    yield sequence("both", 4 if tiny else 128, 16, 32, 128, **_GPU)
    for features, mode in product((32, 2), _MODES):
        yield grid_sample3d(mode, features, sizes.side, sizes.points, **_GPU)
    for mode in _MODES:
        yield trilinear_indexed(mode, 32, sizes.side, sizes.points, **_GPU)
    for features, mode in product((256, 32, 8, 3, 1), _MODES):
        yield _trilinear_on_gpu(mode, features, sizes)
    for mode in _MODES:
        yield _trilinear_on_gpu(mode, 256, sizes, "bfloat16")
    for layout, mode in product(("contiguous", "channels_last"), _MODES):
        yield upsample(mode, layout, sizes.small, **_GPU)
    for mode in _MODES:
        yield activation("quick_gelu", mode, sizes.elements, **_GPU)
    for regime in (GPU_TIME, HOST_TIME):
        yield lltm("both", 16, 32, 128, regime=regime)


def compiled_cases(tiny: bool = False) -> Iterator[Case]:
    """Flagship cases beside torch.compile, and beside nothing else."""
    for case in flagship_cases(tiny):
        if case.op in ("hash_grid", "quick_gelu", "trilinear") and case.regime == GPU_TIME and case.plain:
            yield dataclasses.replace(case, contestants={"cppcuda": case.contestants["cppcuda"]})


def other_gpu_cases(tiny: bool = False) -> Iterator[Case]:
    """The other cases for a GPU."""
    sizes = _TINY if tiny else _SIZES
    yield sequence("both", 4 if tiny else 32, 4096, 32, 128, **_GPU)
    for mode in _MODES:
        yield lltm(mode, sizes.batch, sizes.state, sizes.state, **_GPU)
        for layout in ("contiguous", "channels_last"):
            yield upsample(mode, layout, sizes.images, **_GPU)
        for dtype in ("bfloat16", "float16"):
            yield activation("quick_gelu", mode, sizes.elements, dtype=dtype, **_GPU)
            yield upsample(mode, shape=sizes.images, dtype=dtype, **_GPU)
        yield _trilinear_on_gpu(mode, 256, sizes, "float16")
    for mode in _MODES:
        for dtype in ("float32", "bfloat16", "float16"):
            yield activation("sigmoid", mode, sizes.elements, dtype=dtype, **_GPU)
        yield _trilinear_on_gpu(mode, 8, sizes, "bfloat16")
        yield _trilinear_on_gpu(mode, 3, sizes, "bfloat16")
        yield upsample(mode, "channels_last", sizes.images, dtype="bfloat16", **_GPU)
        yield _trilinear_on_gpu(mode, 4, sizes)
        yield _trilinear_on_gpu(mode, 33, sizes)
        for features in (8, 32):
            yield trilinear_indexed(mode, features, 46, sizes.values // features, **_GPU)
        for dtype in ("float32", "bfloat16"):
            yield upsample(mode, shape=sizes.small, factor=4, dtype=dtype, **_GPU)
            yield upsample(mode, shape=sizes.unaligned, dtype=dtype, **_GPU)
        yield trilinear_indexed(mode, 2, sizes.side, sizes.points, **_GPU)


def gpu_cases(tiny: bool = False, part: str = "all") -> list[Case]:
    """The cases of a part: "flagship", "others", "compiled", or "all", the first two."""
    if part == "compiled":
        return list(compiled_cases(tiny))
    flagship, others = (
        [dataclasses.replace(c, plain=None) for c in f(tiny)] for f in (flagship_cases, other_gpu_cases)
    )
    return {"all": flagship + others, "flagship": flagship, "others": others}[part]
