#!/usr/bin/env python3
"""A short run, for compute-sanitizer, of all CUDA kernels except those with 64-bit positions. See scripts/gpu_check.

    scripts/gpu_sanitize.py            compute-sanitizer must find no error
    scripts/gpu_sanitize.py --planted  reads past the end of an allocation, which compute-sanitizer must find

The inputs are the samples of the tests. Every operator runs on the GPU and on the CPU, and the results are compared.
Set PYTORCH_NO_CUDA_MEMORY_CACHING=1, so that allocations have their exact sizes.
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
    """Compares GPU and CPU on one sample, also for variants that write to an argument. Returns the number of calls."""
    on_cpu, on_gpu = (entry.sample(name, dtype, device, mixed) for device in ("cpu", "cuda"))
    expected = computed(entry.op(*on_cpu.args))
    results = [computed(entry.op(*on_gpu.args))]
    for variant in entry.writing_names:
        (x,) = on_gpu.tensors
        written = torch.empty_like(x) if variant.endswith(".out") else x.clone()
        if variant.endswith(".out"):
            getattr(torch.ops.cppcuda, entry.base_name)(x, out=written)
        else:
            getattr(torch.ops.cppcuda, variant)(written)
        results.append((written,))
    for actual, reference in ((a, e) for result in results for a, e in zip(result, expected, strict=True)):
        # The tolerance is for an exact reference, but the CPU's result is rounded as well.
        tolerance = {k: 2 * v for k, v in value_tolerance(entry, on_cpu, actual, reference).items()}
        torch.testing.assert_close(actual.cpu(), reference, **tolerance, msg=lambda m: f"{entry.name}, {name}: {m}")
    return len(results)


def run_table() -> None:
    """Compares all samples, and then exits with an error if any of them differed."""
    calls, failures = 0, 0
    for entry in OPS:
        for (dtype, mixed), name in itertools.product(entry.dtypes, entry.names("basic", "shape", "stride", "large")):
            try:
                calls += compare(entry, name, dtype, mixed)
            except AssertionError as error:
                print(f"{dtype}: {error}", flush=True)
                failures += 1
        print(f"{entry.name}: done", flush=True)
    if failures:
        sys.exit(f"{failures} samples give different results on the CPU")
    print(f"{calls} calls agree with the CPU ({cppcuda.library_path()})")


class TooLarge:
    """A tensor's memory, exposed with a shape that is larger than the allocation."""

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
