"""Arguments with which swish is tested, and what it is compared with. Change: the reference and the samples."""

import torch
from cppcuda.testing import OpEntry, Spec, T, register, with_layouts
from torch import Tensor

import my_ops

# These files are still the template's: they compute x * sigmoid(beta * x). The tests print this list. Delete a line
# when you have changed its file, or when the file can stay as it is.
TEMPLATE_FILES = (
    "cpp_tests/cuda/test_swish.cpp",
    "cpp_tests/test_swish.cpp",
    "include/my_ops/swish.h",
    "python/my_ops/samples/swish.py",
    "python/my_ops/swish.py",
    "src/elementwise/swish.cpp",
    "src/elementwise/swish.h",
)


def reference(x: Tensor, beta: float) -> Tensor:
    return x * torch.sigmoid(beta * x)


register(
    OpEntry(
        name="my_ops::swish",
        template_files=TEMPLATE_FILES,
        reference=reference,
        function=my_ops.swish,
        specs=(
            Spec("basic", (T((3, 2), low=-4, high=4), 1.5), "basic"),  # T: a tensor with random values
            Spec("basic_negative", (T((2, 3)), -0.75), "basic"),
            Spec("scalar", (T(()), 1.5)),
            Spec("long", (T((5, 40001)), 1.5)),
            Spec("empty", (T((3, 0)), 1.5)),
            *with_layouts((T((3, 4, 5)), 1.5)),
        ),
        sized=lambda rows: (T((rows, 4)), 1.5),
        bad_inputs=(),  # other dtypes and layouts are tested anyway
        saved_for={0: {0}},  # the gradient of x keeps x alive
        strides=lambda x, beta: [torch.sigmoid(x).stride()],
    )
)
