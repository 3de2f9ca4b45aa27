"""Arguments with which row_norm is tested, and what it is compared with. Change: the references and the samples."""

from typing import Any

import torch
from cppcuda.testing import BadInput, OpEntry, Spec, T, register, with_layouts, zeros
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
    "src/ops/row_norm/autograd.cpp",
    "src/ops/row_norm/cpu/kernel.cpp",
    "src/ops/row_norm/cpu/kernel.h",
    "src/ops/row_norm/cpu/launch.cpp",
    "src/ops/row_norm/cuda/kernel.cuh",
    "src/ops/row_norm/cuda/launch.cu",
    "src/ops/row_norm/dispatch.cpp",
    "src/ops/row_norm/math.h",
    "src/ops/row_norm/op.cpp",
    "src/ops/row_norm/op.h",
    "src/ops/row_norm/params.h",
    "src/ops/row_norm/shape.h",
)

EPS = 1e-3


def reference(input: Tensor, eps: float) -> Tensor:
    return input / torch.sqrt((input * input).mean(-1, keepdim=True) + eps)


def backward_reference(grad: Tensor, input: Tensor, rstd: Tensor) -> Tensor:
    rstd = rstd.unsqueeze(-1)
    return rstd * grad - rstd**3 * input * (grad * input).mean(-1, keepdim=True)


def args(*shape: int) -> tuple[Any, ...]:
    return T(shape), EPS  # T: a tensor with random values


def backward_args(*shape: int) -> tuple[Any, ...]:
    return T(shape), T(shape), T(shape[:-1], wide=True)  # wide: may be float32 beside 16-bit tensors


SHAPES = {"batch": (2, 3, 5), "one_feature": (3, 1), "long": (2, 1031), "many": (515, 70), "empty": (0, 5)}

register(
    OpEntry(
        name="my_ops::row_norm",
        template_files=TEMPLATE_FILES,
        reference=reference,
        function=my_ops.row_norm,
        specs=(
            Spec("basic", args(3, 2), "basic"),
            Spec("basic_batch", args(2, 1, 3), "basic"),
            Spec("no_features", args(3, 0)),
            *(Spec(name, args(*shape)) for name, shape in SHAPES.items()),
            *with_layouts(args(3, 4, 5)),
        ),
        sized=lambda rows: args(rows, 4),
        bad_inputs=(
            BadInput("rank", lambda: (torch.ones(4), EPS), "row_norm: input must be [N, F] or [B, N, F], got [4]"),
        ),
        saved_for={0: {0}},  # the gradient of input keeps input alive
        differentiated_as="_row_norm",
        autocast_policy=False,
        backward=OpEntry(
            name="my_ops::_row_norm_backward",
            reference=backward_reference,
            specs=(
                Spec("basic", backward_args(3, 2), "basic"),
                Spec("basic_batch", backward_args(2, 1, 3), "basic"),
                *(Spec(name, backward_args(*shape)) for name, shape in SHAPES.items()),
                *with_layouts(backward_args(3, 4, 5)),
            ),
            sized=lambda rows: backward_args(rows, 4),
            bad_inputs=(
                BadInput(
                    "rows",
                    lambda: zeros((5, 4), (5, 4), (6,)),
                    "_row_norm_backward: rstd must be [N] with N = 5, got [6]",
                ),
            ),
            output_like=("input",),
            saved_for={0: {1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}},
            autocast_policy=False,
        ),
    )
)
