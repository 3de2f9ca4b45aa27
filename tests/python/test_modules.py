"""torch.fx.symbolic_trace and torch.jit.trace with every module of cppcuda.nn."""

import pickle
import warnings
from typing import Any

import pytest
import torch
from cppcuda import nn
from cppcuda.testing.compare import assert_close
from torch import Tensor

CORNERS = torch.randint(-1, 6, (5, 8))
TABLE, POINTS, STEPS = torch.rand(6, 2), torch.rand(5, 3), torch.rand(7, 5, 3)
STATE = (torch.rand(5, 4), torch.rand(5, 4))
STATES = (torch.rand(2, 5, 4), torch.rand(2, 5, 4))

# For each module a way to make it, and the arguments of calls.
MODULES: dict[str, tuple[Any, ...]] = {
    "GridSample3d": (nn.GridSample3d, (torch.rand(3, 4, 5, 2), POINTS)),
    "HashGrid": (lambda: nn.HashGrid(3, 2, log2_hashmap_size=6), (POINTS,), (STEPS,), (POINTS[0],)),
    "LLTM": (lambda: nn.LLTM(3, 4, 2), (STEPS,), (STEPS, STATES), (STEPS[:, 0],)),
    "LLTMCell": (lambda: nn.LLTMCell(3, 4), (POINTS,), (POINTS, STATE)),
    "QuickGELU": (nn.QuickGELU, (POINTS,)),
    "Sigmoid": (nn.Sigmoid, (POINTS,)),
    "SplinePrefilter2d": (nn.SplinePrefilter2d, (torch.rand(3, 4, 2),)),
    "SplinePrefilter3d": (nn.SplinePrefilter3d, (torch.rand(3, 4, 5, 2),)),
    "SplineSample2d": (nn.SplineSample2d, (torch.rand(3, 4, 2), POINTS[:, :2])),
    "SplineSample3d": (nn.SplineSample3d, (torch.rand(3, 4, 5, 2), POINTS)),
    "SplineSplat2d": (lambda: nn.SplineSplat2d([3, 4]), (torch.rand(5, 2), POINTS[:, :2])),
    "SplineSplat3d": (lambda: nn.SplineSplat3d([3, 4, 5]), (torch.rand(5, 2), POINTS)),
    "Trilinear": (nn.Trilinear, (torch.rand(5, 8, 2), POINTS)),
    "TrilinearIndexed": (nn.TrilinearIndexed, (TABLE, CORNERS, POINTS)),
    "TrilinearIndexedWithGrad": (nn.TrilinearIndexedWithGrad, (TABLE, CORNERS, POINTS)),
    "UpsampleBilinear2d": (lambda: nn.UpsampleBilinear2d(scale_factor=2), (torch.rand(1, 2, 3, 4),)),
}

over_modules = pytest.mark.parametrize("name", sorted(nn.__all__))


class Model(torch.nn.Module):
    """A model that calls a module with an intermediate value and with constants."""

    def __init__(self, module: torch.nn.Module, *constants: Any) -> None:
        super().__init__()
        self.module = module
        self.constants = constants

    def forward(self, input: Tensor) -> Any:
        return self.module(2 * input, *self.constants)


@over_modules
def test_symbolic_trace(name: str) -> None:
    """A module alone, where one graph serves every call, and in a model, as torch.nn.LSTM can be traced."""
    make, *calls = MODULES[name]
    module = make()
    graph = torch.fx.symbolic_trace(module)
    for args in calls:
        expected = module(*args)
        assert_close(graph(*args), expected)
        assert_close(pickle.loads(pickle.dumps(graph))(*args), expected)
        input, *constants = args
        assert_close(torch.fx.symbolic_trace(Model(module, *constants))(input / 2), expected)


@over_modules
def test_traced(name: str) -> None:
    """torch.jit.trace does not warn that it loses something."""
    make, *calls = MODULES[name]
    module = make()
    for args in calls:
        with warnings.catch_warnings():
            warnings.simplefilter("error", torch.jit.TracerWarning)
            traced = torch.jit.trace(module, args)
        assert_close(traced(*args), module(*args))
