"""Arguments with which row_norm is tested, and what it is compared with. Change: the references and the samples."""

from typing import Any

import torch
from cppcuda.testing import OpEntry, Spec, T, derivative, register
from torch import Tensor

import my_ops

# These files are still the template's: they divide each row by its root mean square. The tests print this list. Delete
# a line when you have changed its file, or when the file can stay as it is.
TEMPLATE_FILES = (
    "cpp_tests/cuda/test_row_norm.cpp",
    "cpp_tests/test_row_norm.cpp",
    "include/my_ops/row_norm.h",
    "python/my_ops/row_norm.py",
    "python/my_ops/samples/row_norm.py",
    "src/ops/row_norm/cpu/kernel.cpp",
    "src/ops/row_norm/cpu/kernel.h",
    "src/ops/row_norm/cpu/launch.cpp",
    "src/ops/row_norm/cuda/kernel.cuh",
    "src/ops/row_norm/cuda/launch.cu",
    "src/ops/row_norm/formulas.h",
    "src/ops/row_norm/math.h",
    "src/ops/row_norm/op.cpp",
    "src/ops/row_norm/op.h",
    "src/ops/row_norm/params.h",
)

EPS = 1e-3


def reference(input: Tensor, eps: float) -> Tensor:
    return input / torch.sqrt((input * input).mean(-1, keepdim=True) + eps)


def backward_reference(grad: Tensor, rstd: Tensor, input: Tensor) -> Tensor:
    rstd = rstd.unsqueeze(-1)
    return rstd * grad - rstd**3 * input * (grad * input).mean(-1, keepdim=True)


def args(*shape: int) -> tuple[Any, ...]:
    return T(shape), EPS  # T: a tensor with random values


# Other sizes, layouts, dtypes and wrong calls follow from the declarations in op.h.
register(
    OpEntry(
        name="my_ops::row_norm",
        template_files=TEMPLATE_FILES,
        reference=reference,
        function=my_ops.row_norm,
        specs=(Spec("basic", args(3, 2), "basic"), Spec("basic_batch", args(2, 1, 3), "basic")),
        sizes={"F": (0, 1, 5, 1031)},  # sizes to try of a letter that op.h does not call independent
        saved_for={0: {0}},  # the gradient of input keeps input alive
        backward=derivative(
            "my_ops::_row_norm_backward",
            reference=backward_reference,
            sizes={"F": (1, 5, 1031)},
            saved_for={0: {1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}},
        ),
    )
)
