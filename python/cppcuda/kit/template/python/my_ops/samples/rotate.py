"""Arguments with which rotate is tested, and what it is compared with. Change: the reference and the samples."""

import torch
from cppcuda.testing import BadInput, OpEntry, Spec, T, register, with_layouts
from torch import Tensor

import my_ops

# These files are still the template's: they rotate vectors by quaternions. The tests print this list. Delete a line
# when you have changed its file, or when the file can stay as it is.
TEMPLATE_FILES = (
    "cpp_tests/cuda/test_rotate.cpp",
    "cpp_tests/test_rotate.cpp",
    "include/my_ops/rotate.h",
    "python/my_ops/rotate.py",
    "python/my_ops/samples/rotate.py",
    "src/elementwise/rotate.cpp",
    "src/elementwise/rotate.h",
)


def reference(q: Tensor, v: Tensor) -> Tensor:
    axis, v = torch.broadcast_tensors(q[..., 1:], v)
    twice = 2 * torch.linalg.cross(axis, v)
    return v + q[..., :1] * twice + torch.linalg.cross(axis, twice)


register(
    OpEntry(
        name="my_ops::rotate",
        template_files=TEMPLATE_FILES,
        reference=reference,
        function=my_ops.rotate,
        specs=(
            Spec("basic", (T((2, 4)), T((2, 3))), "basic"),  # T: a tensor with random values
            Spec("one_rotation", (T((4,)), T((5, 3)))),
            Spec("long", (T((20001, 4)), T((20001, 3)))),
            Spec("empty", (T((0, 4)), T((3,)))),
            *with_layouts((T((2, 3, 4)), T((2, 3, 3)))),
        ),
        sized=lambda rows: (T((rows, 4)), T((rows, 3))),
        bad_inputs=(
            BadInput(
                "three_values", lambda: (torch.zeros(5, 3), torch.zeros(5, 3)), "rotate: q must be [..., 4], got [5, 3]"
            ),
        ),
        saved_for={0: {0, 1}, 1: {0, 1}},  # the gradients keep q and v alive
        strides=lambda q, v: [torch.empty_like(v).stride()],
    )
)
