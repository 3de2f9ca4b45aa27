"""Checks the loops (kit/loop.h) of the second library on CUDA, in the emulator. A test runs this file in a process of
its own, because the device "cuda" of the process is then the emulator's.
"""

from __future__ import annotations

import os

import torch
from cppcuda.kit._jit import _use_emulated_device

torch.ops.load_library(os.environ["CPPCUDA_SECOND_LIBRARY"])
_use_emulated_device()  # before the import of cppcuda.testing, which lists the devices
second = torch.ops.second

from cppcuda.testing import check  # noqa: E402
from cppcuda.testing.samples import DEVICES  # noqa: E402
from test_public_operators import INDPTR, SEGMENTS, SRC  # noqa: E402
from test_second_library import EXCEPTIONS, EXPECTATIONS, OPERATORS  # noqa: E402
from test_testing_functions import CASES  # noqa: E402

# The properties of kernels. The others are checked on the CPU.
KERNELS = ["float64", "float32", "float16", "bfloat16", "strides", "empty", "aliasing", "threads", "backward", "vmap"]
NAMES = ("int8_linear", "modrelu", "store", "causal_conv1d", "causal_conv1d without state")


def check_operators() -> None:
    for name in (*SEGMENTS, *NAMES):
        reference, samples, *_ = (SEGMENTS | OPERATORS | CASES)[name]
        left_out, expectations = EXCEPTIONS.get(name, ()), EXPECTATIONS.get(name, {})
        report = check(f"second::{name.split()[0]}", reference, samples, only=KERNELS, skip=left_out, **expectations)
        assert not report.failed, report


def check_modrelu_of_float() -> None:
    z, bias = torch.randn(5, 4, dtype=torch.complex64), torch.randn(4)
    found = second.modrelu(z.cuda(), bias.cuda()).cpu()
    torch.testing.assert_close(found, second.modrelu(z, bias))


def check_store() -> None:
    """Values of any size, and several for one row."""
    rows = torch.tensor([1, 4, 1, 0])
    for dtype in (
        torch.bool,
        torch.int8,
        torch.float8_e4m3fn,
        torch.int16,
        torch.float32,
        torch.int64,
        torch.complex128,
    ):
        for index in (torch.int32, torch.int64):
            values = torch.arange(8).view(4, 2).to(dtype)
            given = (torch.zeros(5, 2).to(dtype), torch.arange(5), values, rows.to(index))
            on_cuda = [t.cuda() for t in given]
            second.store(*given)
            second.store(*on_cuda)
            for found, expected in zip(on_cuda, given, strict=True):
                assert torch.equal(found.cpu().to(torch.complex128), expected.to(torch.complex128))
            assert torch.equal(given[0][1].to(torch.complex128), values[2].to(torch.complex128))
            assert given[1].tolist() == [1, 3, 2, 3, 5]


def check_bad_indices() -> None:
    """They stop the kernel."""
    for call, message in (
        (lambda: second.segment_csr(SRC.cuda(), INDPTR.flip(0).cuda()), "indptr must not decrease"),
        (lambda: store_at(6), "rows must be in"),
        (lambda: store_at(-1), "rows must be in"),
    ):
        try:
            call()
        except RuntimeError as error:
            assert message in str(error), error
        else:
            raise AssertionError(f"no error: {message}")


def store_at(row: int) -> None:
    cache = torch.zeros(6, 3, device="cuda")
    second.store(cache, None, torch.ones(1, 3, device="cuda"), torch.tensor([row], device="cuda"))


assert DEVICES == ["cpu", "cuda"]
check_operators()
check_modrelu_of_float()
check_store()
check_bad_indices()
