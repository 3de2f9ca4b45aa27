"""Property tests for operators of any namespace of ``torch.ops``, made with cppcuda's kit or not.

``pytest --pyargs cppcuda.testing --operators my_ops.samples`` runs them over the operators that a module registers.
"""

from cppcuda.testing.registry import ROWS
from cppcuda.testing.samples import OPS, TOLERANCE, BadInput, OpEntry, Spec, T, register, with_layouts, zeros

__all__ = [
    "OPS",
    "ROWS",
    "TOLERANCE",
    "BadInput",
    "OpEntry",
    "Spec",
    "T",
    "register",
    "with_layouts",
    "zeros",
]
