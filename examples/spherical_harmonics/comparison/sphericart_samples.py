"""sphericart's spherical_harmonics with the samples of this library, for cppcuda.testing.

Points are [N, 3], because sphericart has no [B, N, 3]. Its errors may have any message.
"""

import sphericart.torch  # noqa: F401 (registers the operators)
import torch
from cppcuda.testing import BadInput, OpEntry, Spec, T, register, with_layouts

from sph.samples.spherical_harmonics import reference

register(
    OpEntry(
        name="sphericart_torch::spherical_harmonics",
        reference=reference,
        specs=(
            Spec("basic", (T((3, 3)), 2), "basic"),
            Spec("one_point", (T((1, 3)), 4)),
            Spec("degree_7", (T((5, 3)), 7)),
            Spec("many", (T((1031, 3)), 2)),
            Spec("empty", (T((0, 3)), 2)),
            *with_layouts((T((4, 3)), 2)),
        ),
        sized=lambda rows: (T((rows, 3)), 2),
        bad_inputs=(BadInput("coordinates", lambda: (torch.ones(4, 2), 1), None),),
        roundings=8,
        strides=None,
    )
)
