"""The suite: ``pytest --pyargs cppcuda.testing --operators my_ops.samples``. The plugin makes the parameters."""

import pytest

from cppcuda.testing.registry import Case, NotCheckedError, Property
from cppcuda.testing.samples import OpEntry


def test_operator(check: Property, entry: OpEntry, case: Case) -> None:
    try:
        check.run(entry, case)
    except NotCheckedError as reason:
        pytest.skip(str(reason))
