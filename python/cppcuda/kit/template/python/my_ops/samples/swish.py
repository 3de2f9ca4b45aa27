"""Arguments with which swish is tested, and what it is compared with. Change: the reference and the samples."""

import torch
from cppcuda.testing import OpEntry, Spec, T, register, with_layouts
from torch import Tensor

import my_ops


def reference(x: Tensor, beta: float) -> Tensor:
    return x * torch.sigmoid(beta * x)


register(
    OpEntry(
        name="my_ops::swish",
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
