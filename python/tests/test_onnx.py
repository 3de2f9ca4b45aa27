"""Exported to ONNX, the operators give the same numbers in onnxruntime."""

from collections.abc import Callable
from typing import Any

import cppcuda
import numpy as np
import pytest
import torch
from cppcuda.testing.compare import assert_close, differing_dims
from cppcuda.testing.samples import OpEntry, Sample, forward_ops, outputs_of
from support import over_ops, over_samples
from torch import Tensor, nn

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


class Call(nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *tensors: Tensor) -> Any:
        return self.f(*tensors)


def session(f: Callable[..., Any], sample: Sample, dynamic_shapes: Any = None) -> Any:
    program = torch.onnx.export(
        Call(f),
        sample.tensors,
        dynamo=True,
        verbose=False,
        dynamic_shapes=dynamic_shapes,
        custom_translation_table=cppcuda.onnx.translation_table(),
    )
    domains = {node.domain for node in program.model.graph}
    assert domains <= {"", "ai.onnx"}, "a runtime would need a custom operator"
    return onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])


def run(model: Any, sample: Sample) -> list[Tensor]:
    names = [i.name for i in model.get_inputs()]
    tensors = [t.detach().numpy() for t in sample.tensors]
    return [torch.from_numpy(np.asarray(o)) for o in model.run(None, dict(zip(names, tensors, strict=True)))]


def test_every_operator_has_a_translation() -> None:
    assert {e.op for e in forward_ops()} <= cppcuda.onnx.translation_table().keys()


@over_samples("basic", entries=forward_ops())
def test_same_numbers(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name, torch.float32)
    model = session(sample.bind(entry.op), sample)
    assert_close(run(model, sample), list(outputs_of(entry.op(*sample.args))), rtol=1e-5, atol=1e-5)


@over_ops(forward_ops())
def test_dynamic_rows(entry: OpEntry) -> None:
    sample, more = entry.of_size(6, torch.float32), entry.of_size(7)
    rows = torch.export.Dim("rows", min=2, max=1 << 20)
    shapes = tuple(dict.fromkeys(dims, rows) for dims in differing_dims(sample, more))
    model = session(sample.bind(entry.op), sample, (shapes,))
    for size in (2, 11):
        other = entry.of_size(size, torch.float32)
        assert_close(run(model, other), list(outputs_of(entry.op(*other.args))), rtol=1e-5, atol=1e-5)


MODES = ("half_pixel", "align_corners", "asymmetric")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wanted", [{"size": (5, 11)}, {"scale_factor": 2.0}, {"scale_factor": (0.7, 1.9)}], ids=str)
def test_upsampling_of_images_of_any_size(mode: str, wanted: dict[str, Any]) -> None:
    module = cppcuda.nn.UpsampleBilinear2d(**wanted, coordinate_transformation_mode=mode)
    # Both sides round float32 positions differently; the error grows with the difference of neighbouring pixels.
    sample = Sample("", (torch.rand(2, 3, 7, 9),))
    height, width = torch.export.Dim("height", min=4, max=1 << 12), torch.export.Dim("width", min=4, max=1 << 12)
    model = session(module, sample, (({2: height, 3: width},),))
    for h, w in ((7, 9), (10, 4), (33, 40), (100, 100)):
        other = Sample("", (torch.rand(2, 3, h, w),))
        assert_close(run(model, other), [module(*other.tensors)], rtol=1e-6 * max(h, w), atol=1e-6 * max(h, w))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "args",
    [
        # Products that float32 rounds to the next integer, or to less than one.
        ((100, 100), (28, 56), 0.29, 0.57),
        ((100, 70), (229, 49), 2.3, 0.7),
        ((41, 3), (61, 6), 1.5, 2.1),
        # Sizes that do not follow from the scales, or from one of them only.
        ((10, 8), (7, 9), 2.0, 1.2),
        ((10, 41), (7, 123), 1.2, None),
        ((10, 10), (6, 4), None, 0.5),
        # Images that are copied, regardless of the scales.
        ((47, 47), (47, 47), 48 / 47, 48 / 47),
        ((4, 4), (4, 4), 2.0, 2.0),
        ((4, 4), (4, 4), None, 1.25),
    ],
    ids=str,
)
def test_sizes_are_the_requested_ones(
    mode: str, args: tuple[tuple[int, int], list[int], float | None, float | None]
) -> None:
    (height, width), size, *scales = args
    sample = Sample("", (torch.rand(1, 2, height, width),))

    def call(x: Tensor) -> Tensor:
        out: Tensor = torch.ops.cppcuda.upsample_bilinear2d(x, list(size), mode, *scales)
        return out

    assert_close(run(session(call, sample), sample), [call(*sample.tensors)], rtol=1e-4, atol=1e-4)


def test_a_size_that_does_not_follow_from_the_scales_of_images_of_any_size() -> None:
    def call(x: Tensor) -> Tensor:
        out: Tensor = torch.ops.cppcuda.upsample_bilinear2d(x, [7, 9], "half_pixel", 2.0, 2.0)
        return out

    dims = {dim: torch.export.Dim(f"size_{dim}", min=5, max=1 << 12) for dim in (2, 3)}
    model = session(call, Sample("", (torch.rand(1, 2, 8, 8),)), ((dims,),))
    for h, w in ((8, 8), (5, 11)):
        sample = Sample("", (torch.rand(1, 2, h, w),))
        assert_close(run(model, sample), [call(*sample.tensors)], rtol=1e-5, atol=1e-5)


def test_a_size_that_resize_cannot_have() -> None:
    def call(x: Tensor) -> Tensor:
        out: Tensor = torch.ops.cppcuda.upsample_bilinear2d(x, [9, 5], "half_pixel", 0.5, 8.0)
        return out

    with pytest.raises(torch.onnx.OnnxExporterError) as raised:
        session(call, Sample("", (torch.rand(1, 2, 4, 3),)))
    reason: BaseException = raised.value
    while reason.__cause__:
        reason = reason.__cause__
    message = "output_size must be at most 2 in ONNX if 4 pixels are scaled by 0.5, got 9"
    assert str(reason) == f"upsample_bilinear2d: {message}"
