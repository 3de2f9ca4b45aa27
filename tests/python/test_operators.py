"""The suite cppcuda.testing over cppcuda's operators, with the samples of the folder samples/."""

import pytest
from cppcuda.testing.properties.autograd import record_saved
from cppcuda.testing.samples import OPS
from cppcuda.testing.test_operators import test_operator  # noqa: F401  (pytest collects it here)


@pytest.mark.parametrize("name", ["sigmoid", "lltm_cell"])
def test_outputs_are_saved(name: str) -> None:
    """Ensures that backward_frees_what_was_saved covers outputs too."""
    (entry,) = (e for e in OPS if e.base_name == name)
    sample = entry.sample(entry.names("basic")[0]).requires_grad()
    with record_saved() as saved:
        entry.op(*sample.args)
    inputs = {t.data_ptr() for t in sample.tensors}
    assert any(t.data_ptr() not in inputs for t in saved)
