#!/usr/bin/env python3
"""Every operator beside plain torch, forward and backward, on the CPU and, where there is one, on the GPU.

    benchmarks/compare.py [--device cpu|cuda] [--rounds 11] [--json FILE]

The sizes are those that the originals of these operators are measured with: trilinear with 65536 points and 256
features, LLTM with batch 16, input 32 and state 128; and an activation and an upsampling of a network's size.

Results are compared before they are timed. Contestants take turns within each round, so that other work on the
machine meets all of them; the table has medians over rounds and their ratio. Outputs are allocated in the call.
Backward is torch.autograd.grad on a graph that was recorded before.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cppcuda
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.benchmark import Timer

Outputs = tuple[Tensor, ...]


@dataclass
class Case:
    name: str
    make: Callable[[torch.device], Outputs]
    ours: Callable[..., Any]
    peers: dict[str, Callable[..., Any]]


def trilinear_plain(feats: Tensor, points: Tensor) -> Tensor:
    """Corner by corner, as one writes it down."""
    near, far = ((1 - points) / 2).unsqueeze(-1), ((1 + points) / 2).unsqueeze(-1)
    weight = [
        (near, far)[i][:, 0] * (near, far)[j][:, 1] * (near, far)[k][:, 2]
        for i in (0, 1)
        for j in (0, 1)
        for k in (0, 1)
    ]
    return sum((w * feats[:, c] for c, w in enumerate(weight)), start=torch.zeros((), device=feats.device))


def trilinear_bmm(feats: Tensor, points: Tensor) -> Tensor:
    x, y, z = torch.stack([1 - points, 1 + points], -1).div(2).unbind(1)
    weights = (x[:, :, None, None] * y[:, None, :, None] * z[:, None, None, :]).flatten(1)
    return torch.bmm(weights.unsqueeze(1), feats).squeeze(1)


def lltm_plain(input: Tensor, weight: Tensor, bias: Tensor, hx: Tensor, cx: Tensor) -> Outputs:
    gates = F.linear(torch.cat([hx, input], 1), weight, bias)
    i, o, candidate = gates.chunk(3, 1)
    cy = cx + F.elu(candidate) * torch.sigmoid(i)
    return torch.tanh(cy) * torch.sigmoid(o), cy


def asymmetric_plain(image: Tensor) -> Tensor:
    """Bilinear upsampling by 2 with the coordinates of TensorFlow 1.x, which F.interpolate does not have."""
    for dim in (2, 3):
        after = torch.cat([image.narrow(dim, 1, image.shape[dim] - 1), image.narrow(dim, -1, 1)], dim)
        image = torch.stack([image, (image + after) / 2], dim + 1).flatten(dim, dim + 1)
    return image


def upsample(mode: str) -> Callable[[Tensor], Tensor]:
    return lambda x: cppcuda.functional.upsample_bilinear2d(x, scale_factor=2.0, coordinate_transformation_mode=mode)


def interpolate(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


def cases() -> Iterator[Case]:
    def points(device: torch.device) -> Outputs:
        return torch.randn(65536, 8, 256, device=device), torch.rand(65536, 3, device=device) * 2 - 1

    def cell(device: torch.device) -> Outputs:
        batch, inputs, state = 16, 32, 128
        shapes = ((batch, inputs), (3 * state, state + inputs), (3 * state,), (batch, state), (batch, state))
        return tuple(torch.randn(s, device=device) * 0.3 for s in shapes)

    def activations(device: torch.device) -> Outputs:
        return (torch.randn(64, 197, 3072, device=device),)

    def images(device: torch.device) -> Outputs:
        return (torch.randn(8, 64, 128, 128, device=device),)

    def images_channels_last(device: torch.device) -> Outputs:
        return (images(device)[0].to(memory_format=torch.channels_last),)

    functional = cppcuda.functional
    yield Case(
        "trilinear 65536 x 256",
        points,
        functional.trilinear,
        {"plain torch": trilinear_plain, "plain torch, bmm": trilinear_bmm},
    )
    yield Case("lltm_cell 16, 32, 128", cell, functional.lltm_cell, {"plain torch": lltm_plain})
    gelu = {"plain torch": lambda x: x * torch.sigmoid(1.702 * x)}
    yield Case("quick_gelu 64 x 197 x 3072", activations, functional.quick_gelu, gelu)
    yield Case("sigmoid 64 x 197 x 3072", activations, functional.sigmoid, {"torch.sigmoid": torch.sigmoid})
    half_pixel, peers = upsample("half_pixel"), {"F.interpolate": interpolate}
    yield Case("upsample half_pixel 8 x 64 x 128 x 128", images, half_pixel, peers)
    yield Case("the same, channels_last", images_channels_last, half_pixel, peers)
    yield Case("upsample asymmetric", images, upsample("asymmetric"), {"plain torch": asymmetric_plain})


def outputs_of(result: Tensor | Outputs) -> Outputs:
    return (result,) if isinstance(result, Tensor) else result


def passes(f: Callable[..., Any], inputs: Outputs) -> dict[str, Callable[[], Outputs]]:
    """Forward and backward as functions of nothing."""
    plain = tuple(t.detach() for t in inputs)
    leaves = tuple(t.detach().requires_grad_() for t in inputs)
    outputs = outputs_of(f(*leaves))
    grads = tuple(torch.cos(t.detach()) for t in outputs)
    return {
        "forward": lambda: outputs_of(f(*plain)),
        "backward": lambda: torch.autograd.grad(outputs, leaves, grads, retain_graph=True),
    }


def time_in_turn(calls: dict[str, Callable[[], Any]], rounds: int, seconds: float) -> dict[str, list[float]]:
    timers = {
        name: Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
        for name, call in calls.items()
    }
    number = {name: max(1, round(seconds / max(t.timeit(1).mean, 1e-9))) for name, t in timers.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, timer in timers.items():
            samples[name].append(timer.timeit(number[name]).mean)
    return samples


def run(case: Case, device: torch.device, rounds: int, seconds: float) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    inputs = case.make(device)
    contestants = {"cppcuda": case.ours, **case.peers}
    both = {name: passes(f, inputs) for name, f in contestants.items()}
    rows = []
    for direction in ("forward", "backward"):
        expected = both["cppcuda"][direction]()
        for name in case.peers:
            torch.testing.assert_close(both[name][direction](), expected, rtol=1e-3, atol=1e-3)
        del expected
        samples = time_in_turn({name: p[direction] for name, p in both.items()}, rounds, seconds)
        ours = statistics.median(samples["cppcuda"])
        for name in case.peers:
            # Round by round: other work on the machine meets neighbours alike.
            ratios = [peer / own for peer, own in zip(samples[name], samples["cppcuda"], strict=True)]
            rows.append(
                {
                    "device": device.type,
                    "case": case.name,
                    "pass": direction,
                    "peer": name,
                    "cppcuda_seconds": ours,
                    "peer_seconds": statistics.median(samples[name]),
                    "ratio": statistics.median(ratios),
                    "ratio_quartiles": statistics.quantiles(ratios, n=4)[::2],
                    "samples": {n: samples[n] for n in ("cppcuda", name)},
                }
            )
    return rows


def spelled(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], action="append", help="default: all that are there")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.05, help="that a sample lasts at least (default: 0.05)")
    parser.add_argument("--json", type=Path, help="also write every sample to this file")
    args = parser.parse_args()
    devices = args.device or ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    names = {"cpu": platform.processor() or platform.machine()}
    if "cuda" in devices:
        names["cuda"] = torch.cuda.get_device_name()
    print(f"torch {torch.__version__}, cppcuda {cppcuda.__version__}, {torch.get_num_threads()} threads, float32")

    rows: list[dict[str, Any]] = []
    print(f"{'':56}{'beside':18}{'cppcuda':>10}{'peer':>10}  peer / cppcuda (quartiles)")
    for device in devices:
        for case in cases():
            print(f"... {device}: {case.name}", end="\r", file=sys.stderr)
            for row in run(case, torch.device(device), args.rounds, args.seconds):
                rows.append(row)
                low, high = row["ratio_quartiles"]
                print(
                    f"{device:5}{row['case']:41}{row['pass']:10}{row['peer']:18}"
                    f"{spelled(row['cppcuda_seconds']):>10}{spelled(row['peer_seconds']):>10}"
                    f"  {row['ratio']:.2f} ({low:.2f} to {high:.2f})"
                )
    if args.json:
        record = {"torch": torch.__version__, "machine": names, "threads": torch.get_num_threads(), "rows": rows}
        args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
