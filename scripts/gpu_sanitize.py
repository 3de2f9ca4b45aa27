#!/usr/bin/env python3
"""A short run of every CUDA kernel for compute-sanitizer, which scripts/gpu_check calls.

    scripts/gpu_sanitize.py            must show no error
    scripts/gpu_sanitize.py --planted  reads past the end of an allocation, which must be found

Inputs are made and results are compared on the CPU, so that hardly a kernel but ours runs. Allocations should be of
their true size: PYTORCH_NO_CUDA_MEMORY_CACHING=1.
"""

import argparse
import itertools
from collections.abc import Callable

import cppcuda
import torch
from torch import Tensor

DTYPES = [
    (torch.float64, torch.float64),
    (torch.float32, torch.float32),
    (torch.float16, torch.float16),
    (torch.float16, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.float32),
]
SHAPES = [((1,), 1), ((37,), 1), ((37,), 3), ((37,), 8), ((3, 7), 16), ((5,), 33), ((9,), 64), ((9,), 257), ((9,), 512)]


def dense(t: Tensor) -> Tensor:
    return t


def offset(t: Tensor) -> Tensor:
    """The last element of the allocation is the last one that may be read."""
    return torch.cat([t.new_zeros(1), t.flatten()]).to("cuda")[1:].view(t.shape)


def transposed(t: Tensor) -> Tensor:
    return t.transpose(0, -1).contiguous().to("cuda").transpose(0, -1)


def run_trilinear() -> int:
    forward, backward = torch.ops.cppcuda.trilinear, torch.ops.cppcuda._trilinear_backward
    layouts: list[Callable[[Tensor], Tensor]] = [dense, offset, transposed]
    count = 0
    for (dtype, points_dtype), (batch, features), layout in itertools.product(DTYPES, SHAPES, layouts):
        feats = torch.randn(*batch, 8, features, dtype=dtype)
        points = (torch.rand(*batch, 3) * 2 - 1).to(points_dtype)
        grad = torch.randn(*batch, features, dtype=dtype)
        f, p, g = (layout(t).to("cuda") for t in (feats, points, grad))
        results = [
            forward(f, p),
            *backward(g, f, p, [True, True]),
            backward(g, None, p, [True, False])[0],
            backward(g, f, p, [False, True])[1],
        ]
        by_feats, by_points = backward(grad, feats, points, [True, True])
        expected = [forward(feats, points), by_feats, by_points, by_feats, by_points]
        for actual, wanted in zip(results, expected, strict=True):
            # The CPU rounds at other places: one unit in the last place of 16 bits, and of a float32 sum.
            tolerance = max(torch.finfo(actual.dtype).eps, 1e-5) * max(1.0, wanted.abs().max().item())
            torch.testing.assert_close(actual.cpu(), wanted, rtol=0, atol=tolerance)
        count += 4
    return count


class TooLarge:
    """The memory of a tensor, said to be more than it is."""

    def __init__(self, t: Tensor, shape: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (t.data_ptr(), False), "version": 2}


def run_planted() -> None:
    small = torch.zeros(64).to("cuda")
    feats = torch.as_tensor(TooLarge(small, (64, 8, 8)), device="cuda")
    torch.ops.cppcuda.trilinear(feats, torch.zeros(64, 3).to("cuda")).cpu()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planted", action="store_true")
    if parser.parse_args().planted:
        run_planted()
        raise SystemExit
    torch.manual_seed(0)
    print(f"{run_trilinear()} calls agree with the CPU ({cppcuda.library_path()})")
