#!/usr/bin/env python3
"""A short run of the CUDA kernels, but those of 64-bit positions, for compute-sanitizer. scripts/gpu_check calls it.

    scripts/gpu_sanitize.py            must show no error
    scripts/gpu_sanitize.py --planted  reads past the end of an allocation, which must be found

Inputs are those of the tests' table, on the GPU and on the CPU, whose results are compared. Allocations should be of
their true size: PYTORCH_NO_CUDA_MEMORY_CACHING=1.
"""

import argparse
import itertools
import sys
from pathlib import Path

import cppcuda
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "tests"))

from conftest import register_all
from cppcuda.testing.compare import value_tolerance
from cppcuda.testing.samples import OPS, OpEntry, computed


def compare(entry: OpEntry, name: str, dtype: torch.dtype, mixed: bool) -> int:
    on_cpu, on_gpu = (entry.sample(name, dtype, device, mixed) for device in ("cpu", "cuda"))
    expected = computed(entry.op(*on_cpu.args))
    results = [computed(entry.op(*on_gpu.args))]
    for writing in entry.writing_names:
        (x,) = on_gpu.tensors
        written = torch.empty_like(x) if writing.endswith(".out") else x.clone()
        if writing.endswith(".out"):
            getattr(torch.ops.cppcuda, entry.base_name)(x, out=written)
        else:
            getattr(torch.ops.cppcuda, writing)(written)
        results.append((written,))
    for actual, wanted in ((a, w) for result in results for a, w in zip(result, expected, strict=True)):
        # The CPU rounds at other places: once more.
        tolerance = {k: 2 * v for k, v in value_tolerance(entry, on_cpu, actual, wanted).items()}
        torch.testing.assert_close(actual.cpu(), wanted, **tolerance, msg=lambda m: f"{entry.name}, {name}: {m}")
    return len(results)


def run_table() -> None:
    """All of it, also after a call that differs, and ends with an error if there was one."""
    calls, differing = 0, 0
    for entry in OPS:
        for (dtype, mixed), name in itertools.product(entry.dtypes, entry.names("basic", "shape", "stride", "large")):
            try:
                calls += compare(entry, name, dtype, mixed)
            except AssertionError as error:
                print(f"{dtype}: {error}", flush=True)
                differing += 1
        print(f"{entry.name}: done", flush=True)
    if differing:
        sys.exit(f"{differing} samples differ from the CPU's")
    print(f"{calls} calls agree with the CPU ({cppcuda.library_path()})")


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
    register_all()
    run_table()
