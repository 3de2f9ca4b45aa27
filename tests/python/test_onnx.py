"""Exported to ONNX, the operators give the same numbers in onnxruntime."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cppcuda
import numpy as np
import pytest
import torch
from cppcuda.testing.compare import assert_close
from cppcuda.testing.samples import OpEntry, Sample, differing_dims, forward_ops, outputs_of
from support import over_ops, over_samples
from torch import Tensor, nn

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.compiles


class Call(nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *tensors: Tensor) -> Any:
        return self.f(*tensors)


def session(f: Callable[..., Any], sample: Sample, dynamic_shapes: Any = None, opset_version: int = 20) -> Any:
    program = torch.onnx.export(
        Call(f),
        sample.inputs,
        dynamo=True,
        verbose=False,
        dynamic_shapes=dynamic_shapes,
        opset_version=opset_version,
        custom_translation_table=cppcuda.onnx.translation_table(),
    )
    domains = {node.domain for node in program.model.graph}
    assert domains <= {"", "ai.onnx"}, "a runtime would need a custom operator"
    return onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])


def run(model: Any, sample: Sample) -> list[Tensor]:
    names = [i.name for i in model.get_inputs()]
    tensors = [t.detach().numpy() for t in sample.inputs]
    return [torch.from_numpy(np.asarray(o)) for o in model.run(None, dict(zip(names, tensors, strict=True)))]


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Asserts that an export fails for this reason."""
    with pytest.raises(torch.onnx.OnnxExporterError) as raised:
        yield
    reason: BaseException = raised.value
    while reason.__cause__:
        reason = reason.__cause__
    assert str(reason) == message


def test_every_operator_has_a_translation() -> None:
    assert {e.op for e in forward_ops()} <= cppcuda.onnx.translation_table().keys()


# ONNX has operators for few of the samples of splines; test_splines has those.
TRANSLATED = [e for e in forward_ops() if not e.base_name.startswith("spline_")]


@over_samples("basic", entries=TRANSLATED)
def test_same_numbers(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name, torch.float32)
    model = session(sample.bind_inputs(entry.op), sample)
    assert_close(run(model, sample), list(outputs_of(entry.op(*sample.args))), rtol=1e-5, atol=1e-5)


@over_ops(TRANSLATED)
def test_dynamic_rows(entry: OpEntry) -> None:
    sample, more = entry.of_size(6, torch.float32), entry.of_size(7)
    rows = torch.export.Dim("rows", min=2, max=1 << 20)
    shapes = tuple(dict.fromkeys(dims, rows) for dims in differing_dims(sample.inputs, more.inputs))
    model = session(sample.bind_inputs(entry.op), sample, (shapes,))
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


# Sizes of images and of results, and scales.
RESIZES: list[tuple[tuple[int, int], list[int], float | None, float | None]] = [
    # Products that float32 rounds to the next integer, or to less than one.
    ((100, 100), [28, 56], 0.29, 0.57),
    ((100, 70), [229, 49], 2.3, 0.7),
    ((41, 3), [61, 6], 1.5, 2.1),
    # Sizes that do not follow from the scales, or from one of them only.
    ((10, 8), [7, 9], 2.0, 1.2),
    ((10, 41), [7, 123], 1.2, None),
    ((10, 10), [6, 4], None, 0.5),
    # Images that are copied, regardless of the scales.
    ((47, 47), [47, 47], 48 / 47, 48 / 47),
    ((4, 4), [4, 4], 2.0, 2.0),
    ((4, 4), [4, 4], None, 1.25),
]


@pytest.mark.parametrize("mode", MODES)
def test_sizes_are_the_requested_ones(mode: str) -> None:
    sample = Sample("", tuple(torch.rand(1, 2, *image) for image, *_ in RESIZES))

    def call(*images: Tensor) -> dict[str, Tensor]:
        resize = torch.ops.cppcuda.upsample_bilinear2d
        return {str(case): resize(x, case[1], mode, *case[2:]) for x, case in zip(images, RESIZES, strict=True)}

    actual = run(session(lambda *images: tuple(call(*images).values()), sample), sample)
    expected = call(*sample.tensors)
    assert_close(dict(zip(expected, actual, strict=True)), expected, rtol=1e-4, atol=1e-4)


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

    message = "output_size must be at most 2 in ONNX if 4 pixels are scaled by 0.5, got 9"
    with refused(f"upsample_bilinear2d: {message}"):
        session(call, Sample("", (torch.rand(1, 2, 4, 3),)))


@pytest.mark.parametrize(
    ("padding_mode", "align_corners", "batched"),
    # The samples have the others.
    [("zeros", True, False), ("border", False, False), ("reflection", True, True)],
)
def test_volumes_of_any_size(padding_mode: str, align_corners: bool, batched: bool) -> None:
    module = cppcuda.nn.GridSample3d(padding_mode, align_corners)
    b, d, h, n = (torch.export.Dim(name, min=2, max=1 << 10) for name in "bdhn")
    shapes: tuple[dict[int, Any], ...] = ({0: b, 1: d, 2: h}, {0: b, 1: n}) if batched else ({0: d, 1: h}, {0: n})

    def sample(b: int, d: int, h: int, n: int) -> Sample:
        outer = (b,) if batched else ()
        return Sample("", (torch.rand(*outer, d, h, 5, 3), 6 * torch.rand(*outer, n, 3) - 3))

    small = sample(2, 4, 3, 7)
    model = session(module, small, (shapes,))
    for other in (small, sample(3, 9, 2, 40)):
        # Both sides round float32 positions differently.
        assert_close(run(model, other), [module(*other.tensors)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_tables_of_any_size(dtype: torch.dtype, batched: bool) -> None:
    """Also of one vertex, and of none. The index -1, which ONNX takes for the last row, is a missing vertex."""
    b, v, n = (torch.export.Dim(name, min=0, max=1 << 20) for name in "bvn")
    shapes: tuple[dict[int, Any], ...] = ({0: b, 1: v}, *[{0: b, 1: n}] * 2) if batched else ({0: v}, {0: n}, {0: n})

    def sample(b: int, v: int, n: int) -> Sample:
        outer = (b,) if batched else ()
        corners = torch.randint(-1, v, (*outer, n, 8), dtype=dtype)
        return Sample("", (1 + torch.rand(*outer, v, 3), corners, 4 * torch.rand(*outer, n, 3) - 2))

    module, small = cppcuda.nn.TrilinearIndexedWithGrad(), sample(2, 5, 7)
    model = session(module, small, (shapes,))
    for other in (small, sample(3, 4, 40), sample(4, 1, 9), sample(1, 0, 3)):
        assert_close(run(model, other), list(module(*other.inputs)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_input_dims", [2, 3, 4])
@pytest.mark.parametrize(
    ("interpolation", "dtype"), [("Linear", torch.float32), ("Smoothstep", torch.float32), ("Linear", torch.float16)]
)
def test_hash_grids(n_input_dims: int, interpolation: str, dtype: torch.dtype) -> None:
    """Also with points outside, and with fine levels, where a position that is rounded twice is in another place."""
    module = cppcuda.nn.HashGrid(n_input_dims, log2_hashmap_size=10, interpolation=interpolation, dtype=dtype)
    nn.init.normal_(module.params)
    n = torch.export.Dim("n", min=0, max=1 << 20)
    model = session(module, Sample("", (torch.rand(7, n_input_dims),)), (({0: n},),))
    for count in (0, 1, 500):
        points = 3 * torch.rand(count, n_input_dims) - 1
        points[1:3] *= 1e12
        other = Sample("", (points,))
        (out,) = run(model, other)
        assert out.dtype == dtype
        assert_close([out], [module(points)], rtol=2e-3 if dtype == torch.float16 else 1e-5, atol=1e-5)


def test_a_hash_grid_at_samples_of_rays() -> None:
    module = cppcuda.nn.HashGrid(3, log2_hashmap_size=10)
    nn.init.normal_(module.params)
    r, s = (torch.export.Dim(name, min=0, max=1 << 20) for name in "rs")
    model = session(module, Sample("", (torch.rand(4, 5, 3),)), (({0: r, 1: s},),))
    for shape in ((4, 5), (1, 30), (0, 5)):
        other = Sample("", (torch.rand(*shape, 3),))
        assert_close(run(model, other), [module(*other.tensors)], rtol=1e-5, atol=1e-5)


def test_a_volume_of_16_bits_and_points_of_32() -> None:
    module = cppcuda.nn.GridSample3d()
    sample = Sample("", (torch.rand(3, 4, 5, 2).half(), 2 * torch.rand(9, 3) - 1))
    (out,) = run(session(module, sample), sample)
    assert out.dtype == torch.float16
    assert_close([out], [module(*sample.tensors)], rtol=2**-10, atol=1e-5)


def test_volumes_need_opset_20() -> None:
    sample = Sample("", (torch.rand(3, 4, 5, 2), torch.rand(9, 3)))
    with refused("grid_sample3d: opset_version must be at least 20 for volumes, got 18"):
        session(cppcuda.nn.GridSample3d(), sample, opset_version=18)


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("border", ["mirror", "reflect", "nearest", "grid-constant"])
def test_splines(axes: int, border: str) -> None:
    name = f"spline_sample{axes}d"
    sample = Sample("", (torch.rand(*(3, 4, 5)[:axes], 2), 12 * torch.rand(40, axes) - 4))
    function = lambda *tensors: getattr(cppcuda.functional, name)(*tensors, order=1, border=border)  # noqa: E731
    (out,) = run(session(function, sample), sample)
    assert_close([out], [function(*sample.tensors)], rtol=1e-5, atol=1e-5)
    cubic = lambda *tensors: getattr(cppcuda.functional, name)(*tensors, border=border)  # noqa: E731
    with refused(f"{name}: ONNX has no operator for order 3 with the border '{border}'"):
        session(cubic, sample)


def test_filters_and_splats() -> None:
    image = torch.rand(3, 4, 2)
    linear = lambda t: cppcuda.functional.spline_prefilter2d(t, order=1)  # noqa: E731
    assert_close(run(session(linear, Sample("", (image,))), Sample("", (image,))), [image], rtol=0, atol=0)
    with refused("spline_prefilter2d: ONNX has no operator for the filter of order 3"):
        session(cppcuda.functional.spline_prefilter2d, Sample("", (image,)))
    splat = lambda v, p: cppcuda.functional.spline_splat2d(v, p, [3, 4])  # noqa: E731
    with refused("spline_splat2d: ONNX has no operator for splats"):
        session(splat, Sample("", (torch.rand(5, 2), torch.rand(5, 2))))
