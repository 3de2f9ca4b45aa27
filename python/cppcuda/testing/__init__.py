"""Property tests for operators of any namespace of ``torch.ops``, made with cppcuda's kit or not.

.. code-block:: python

    report = cppcuda.testing.check("my_ops::swish", reference, samples=[(x, 1.5)])
    assert not report.failed, report

``pytest --pyargs cppcuda.testing --operators my_ops.samples`` runs the same properties as a test suite, over the
operators that a module registers. ``docs/testing.md`` says what each property means.
"""

from cppcuda.testing.check import Report, Result, check
from cppcuda.testing.derived import derivative
from cppcuda.testing.registry import ROWS
from cppcuda.testing.samples import OPS, TOLERANCE, BadInput, OpEntry, Spec, T, register, with_layouts, zeros

__all__ = [
    "OPS",
    "ROWS",
    "TOLERANCE",
    "BadInput",
    "OpEntry",
    "Report",
    "Result",
    "Spec",
    "T",
    "check",
    "derivative",
    "register",
    "with_layouts",
    "zeros",
]
