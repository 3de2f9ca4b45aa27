"""What only cppcuda's functions say about bad input; cppcuda.testing has what every operator refuses."""

import cppcuda
import numpy as np
import pytest
import torch
from cppcuda.testing.samples import OpEntry, forward_ops
from support import over_ops

NO_TENSORS = ([1, 2], 1.5, "1", None, np.ones(3))


@over_ops([entry for entry in forward_ops() if entry.function])
def test_arguments_that_are_not_tensors(entry: OpEntry) -> None:
    """The functions report it in one line, whereas the dispatcher would list every overload."""
    sample = entry.sample(entry.names("basic")[0])
    tensors = [i for i, argument in enumerate(sample.args) if isinstance(argument, torch.Tensor)]
    assert tensors
    for i in tensors:
        for other in NO_TENSORS:
            args = [other if i == j else argument for j, argument in enumerate(sample.args)]
            message = f"{entry.base_name}: {entry.argument_names[i]} must be a Tensor, got {type(other).__name__}"
            with pytest.raises(TypeError, match=f"^{message}$"):
                entry.function(*args)


@over_ops([entry for entry in forward_ops() if entry.writing_names])
def test_destinations_that_are_not_tensors(entry: OpEntry) -> None:
    function, in_place = entry.function, getattr(cppcuda.functional, f"{entry.base_name}_")
    for other in NO_TENSORS:
        came = type(other).__name__
        with pytest.raises(TypeError, match=rf"^{entry.base_name}_: input must be a Tensor, got {came}$"):
            in_place(other)
        with pytest.raises(TypeError, match=rf"^{entry.base_name}: input must be a Tensor, got {came}$"):
            function(other, out=torch.ones(2))
        if other is not None:
            with pytest.raises(TypeError, match=rf"^{entry.base_name}: out must be a Tensor, got {came}$"):
                function(torch.ones(2), out=other)
