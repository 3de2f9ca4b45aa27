"""Arguments with which row_norm is tested, and what it is compared with. Change: the reference and the samples."""

import torch
from cppcuda.testing import BadInput, OpEntry, Spec, T, register, with_layouts
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
    "src/elementwise/row_norm.cpp",
    "src/elementwise/row_norm.h",
)

EPS = 1e-3


def reference(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * input / torch.sqrt((input * input).mean(-1, keepdim=True) + eps)


register(
    OpEntry(
        name="my_ops::row_norm",
        template_files=TEMPLATE_FILES,
        reference=reference,
        function=my_ops.row_norm,
        specs=(
            Spec("basic", (T((2, 4)), T((4,)), EPS), "basic"),  # T: a tensor with random values
            Spec("one_row", (T((5,)), T((5,)), EPS)),
            Spec("one_value", (T((3, 1)), T((1,)), EPS)),
            Spec("long", (T((301, 97)), T((97,)), EPS)),
            Spec("empty", (T((0, 4)), T((4,)), EPS)),
            *with_layouts((T((2, 3, 4)), T((3, 4)), EPS)),  # also with weights that differ from row to row
        ),
        sized=lambda rows: (T((rows, 4)), T((4,)), EPS),
        bad_inputs=(
            BadInput(
                "other_size",
                lambda: (torch.zeros(5, 3), torch.zeros(4), EPS),
                "row_norm: weight must be [..., F] with F = 3, got [4]",
            ),
        ),
        saved_for={0: {0, 1}, 1: {0, 1}},  # the gradients keep input and weight alive
    )
)
