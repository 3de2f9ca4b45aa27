"""Compares upsample_bilinear2d with the frameworks that run deployed networks, and tests what the table does not."""

import copy
import io
import itertools
import pickle
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from cppcuda.functional import upsample_bilinear2d
from cppcuda.nn import UpsampleBilinear2d
from cppcuda.testing.compare import allocated_bytes, assert_close, profiled
from hypothesis import given
from hypothesis import strategies as st
from samples.upsample_bilinear2d import MODES, copies_one_axis
from torch import Tensor, nn
from torch.export import Dim, export
from torch.nn.functional import interpolate

forward = torch.ops.cppcuda.upsample_bilinear2d
backward = torch.ops.cppcuda._upsample_bilinear2d_backward

over_modes = pytest.mark.parametrize("mode", MODES)
CHANNELS_LAST = torch.channels_last
SIZES = [
    ((4, 5), (8, 10)),
    ((4, 5), (9, 13)),
    ((7, 5), (7, 5)),
    ((11, 9), (5, 4)),
    ((12, 8), (4, 2)),
    ((6, 7), (13, 3)),
    ((5, 6), (1, 1)),
    ((1, 1), (4, 3)),
    ((3, 1), (1, 6)),
    ((33, 17), (20, 41)),
]
over_sizes = pytest.mark.parametrize(("from_", "to"), SIZES, ids=lambda s: "x".join(map(str, s)))
SCALES = [(1.1, 1.05), (1.1, 1.3), (2.0, 2.0), (1.5, 0.75), (0.4, 3.3), (1.01, 0.99), (0.3, 7.0)]
over_scales = pytest.mark.parametrize("scales", SCALES, ids=str)


def image(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(shape, dtype=torch.float64).to(dtype)


def gathered(t: Tensor, dim: int, out: int, mode: str, scale: float | None) -> Tensor:
    """One axis in plain torch: gathers two pixels by their index and interpolates between them."""
    size = t.shape[dim]
    o = torch.arange(out, dtype=torch.float64)
    step = 1 / scale if scale else size / out
    position = {
        "half_pixel": (o + 0.5) * step - 0.5,
        "asymmetric": o * step,
        "align_corners": o * (size - 1) / max(out - 1, 1),
    }[mode].clamp(0, size - 1)
    lower = position.long()
    weight = (position - lower).view(-1, *[1] * (t.dim() - 1 - dim % t.dim()))
    upper = (lower + 1).clamp(max=size - 1)
    return t.index_select(dim, lower) * (1 - weight) + t.index_select(dim, upper) * weight


def plain(t: Tensor, size: Any, mode: str, scales: tuple[float | None, float | None] = (None, None)) -> Tensor:
    if tuple(t.shape[-2:]) == tuple(size):
        scales = (None, None)  # then torch and ONNX Runtime copy the input
    return gathered(gathered(t, -2, size[0], mode, scales[0]), -1, size[1], mode, scales[1])


# ---------------------------------------------------------------- the frameworks


def onnxruntime_resize(x: Tensor, mode: str, size: Any = None, scales: Any = None) -> Tensor:
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    helper, types = onnx.helper, onnx.TensorProto
    if size:
        given = helper.make_tensor("given", types.INT64, [4], [*x.shape[:2], *size])
    else:
        given = helper.make_tensor("given", types.FLOAT, [4], [1, 1, *scales])
    node = helper.make_node(
        "Resize",
        ["x", "", "", "given"] if size else ["x", "", "given"],
        ["y"],
        mode="linear",
        coordinate_transformation_mode=mode,
    )
    x_info, y_info = (helper.make_tensor_value_info(name, types.FLOAT, [None] * 4) for name in "xy")
    graph = helper.make_graph([node], "resize", [x_info], [y_info], [given])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


@over_modes
@over_sizes
def test_onnxruntime_of_size(from_: Any, to: Any, mode: str) -> None:
    x = image(2, 3, *from_)
    assert_close(upsample_bilinear2d(x, to, None, mode), onnxruntime_resize(x, mode, size=to), atol=1e-5, rtol=1e-5)


@over_modes
@over_scales
def test_onnxruntime_of_scales(scales: Any, mode: str) -> None:
    x = image(2, 3, 7, 10)
    expected = onnxruntime_resize(x, mode, scales=scales)
    assert_close(upsample_bilinear2d(x, None, scales, mode), expected, atol=1e-5, rtol=1e-5)


def tflite_resize(x: Tensor, size: Any, mode: str) -> Tensor:
    """Runs a model of one RESIZE_BILINEAR, written with the schema's own classes, in NHWC."""
    flatbuffers = pytest.importorskip("flatbuffers")
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    from ai_edge_litert.interpreter import Interpreter

    def buffer(data: bytes) -> Any:
        result = schema.BufferT()
        result.data = list(data)
        return result

    def tensor(name: str, shape: Any, type_: int, buffer: int) -> Any:
        result = schema.TensorT()
        result.name, result.shape, result.type, result.buffer = name, list(shape), type_, buffer
        return result

    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.RESIZE_BILINEAR
    code.version = 3  # the first with half_pixel_centers
    options = schema.ResizeBilinearOptionsT()
    options.alignCorners, options.halfPixelCenters = mode == "align_corners", mode == "half_pixel"
    op = schema.OperatorT()
    op.opcodeIndex, op.inputs, op.outputs = 0, [0, 1], [2]
    op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.ResizeBilinearOptions, options
    graph = schema.SubGraphT()
    n, c, h, w = x.shape
    graph.tensors = [
        tensor("x", (n, h, w, c), schema.TensorType.FLOAT32, 0),
        tensor("size", (2,), schema.TensorType.INT32, 1),
        tensor("y", (n, *size, c), schema.TensorType.FLOAT32, 0),
    ]
    graph.inputs, graph.outputs, graph.operators = [0], [2], [op]
    model = schema.ModelT()
    model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
    model.buffers = [buffer(b""), buffer(np.array(size, np.int32).tobytes())]
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), b"TFL3")

    interpreter = Interpreter(model_content=bytes(builder.Output()))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x.permute(0, 2, 3, 1).contiguous().numpy())
    interpreter.invoke()
    y = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return torch.from_numpy(y).permute(0, 3, 1, 2)


@over_modes
@over_sizes
def test_tflite(from_: Any, to: Any, mode: str) -> None:
    """TensorFlow's converter turns resize_bilinear into this op, whose options cover TensorFlow 1 and 2."""
    x = image(2, 3, *from_)
    actual = upsample_bilinear2d(x.contiguous(memory_format=CHANNELS_LAST), to, None, mode)
    assert_close(actual, tflite_resize(x, to, mode), atol=1e-5, rtol=1e-5)


def test_the_modes_differ() -> None:
    """Otherwise the tests above would prove nothing."""
    x = image(1, 1, 7, 9)
    for a, b in itertools.combinations((upsample_bilinear2d(x, (11, 5), None, mode) for mode in MODES), 2):
        assert (a - b).abs().max() > 0.05


@given(
    from_=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    scales=st.tuples(st.floats(0.1, 4), st.floats(0.1, 4)),
    align=st.booleans(),
)
def test_scale_factor_is_that_of_interpolate(from_: Any, scales: Any, align: bool) -> None:
    x = image(1, 2, *from_, dtype=torch.float64)
    mode = "align_corners" if align else "half_pixel"
    try:
        expected = interpolate(x, scale_factor=scales, mode="bilinear", align_corners=align)
    except RuntimeError:  # a size of 0
        with pytest.raises(RuntimeError, match=r"^upsample_bilinear2d: output_size must be at least 1 in each entry"):
            upsample_bilinear2d(x, None, scales, mode)
        return
    if not align and copies_one_axis(from_, expected.shape[2:], scales):
        expected = plain(x, expected.shape[2:], mode, scales)
    assert_close(upsample_bilinear2d(x, None, scales, mode), expected)


# ---------------------------------------------------------------- backward


@over_modes
@over_sizes
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("format", [torch.contiguous_format, CHANNELS_LAST], ids=str)
def test_gradient_against_plain_torch(
    from_: Any, to: Any, mode: str, dtype: torch.dtype, format: torch.memory_format
) -> None:
    grad = (image(2, 3, *to, dtype=dtype) - 0.5).contiguous(memory_format=format)
    x = image(2, 3, *from_, dtype=torch.float64).requires_grad_()
    (expected,) = torch.autograd.grad(plain(x, to, mode), x, grad.double())
    actual = backward(grad, from_, mode)
    if grad.stride() != grad.contiguous().stride() or format == torch.contiguous_format:  # 1 x 1 is both
        assert actual.is_contiguous(memory_format=format)
    # The error of float32 positions is up to one unit in the last place of 33.
    tolerance = {torch.float64: 1e-13, torch.float32: 2e-5, torch.bfloat16: 2**-8}[dtype]
    assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance * (1 if dtype != torch.bfloat16 else 0.1))


@over_scales
@over_modes
def test_gradient_of_scales_against_plain_torch(mode: str, scales: Any) -> None:
    x = image(2, 2, 7, 10, dtype=torch.float64).requires_grad_()
    out = upsample_bilinear2d(x, None, scales, mode)
    grad = torch.randn_like(out)
    expected_out = plain(x, out.shape[2:], mode, scales)
    assert_close(out, expected_out)
    assert_close(torch.autograd.grad(out, x, grad), torch.autograd.grad(expected_out, x, grad))


@over_modes
def test_large_coordinates(mode: str) -> None:
    x = torch.linspace(0, 1, 5000).view(1, 1, 1, -1)
    assert_close(
        upsample_bilinear2d(x, (1, 7919), None, mode).double(), plain(x.double(), (1, 7919), mode), atol=1e-6, rtol=0
    )
    grad = backward(torch.ones(1, 1, 1, 7919), [1, 5000], mode).double()
    assert abs(grad.sum().item() - 7919) < 1e-3
    assert grad[..., 1:-1].min() > 1
    grad = backward(torch.ones(1, 1, 1, 5000), [1, 7919], mode).double()
    assert abs(grad.sum().item() - 5000) < 1e-3


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
@over_modes
def test_extreme_scales(mode: str, scale: float) -> None:
    for dtype in (torch.float32, torch.float64):
        x = image(1, 2, 4, 6, dtype=dtype)
        out = forward(x, [5, 7], mode, scale, scale)
        assert torch.isfinite(out).all()
        assert_close(out.double(), plain(x.double(), (5, 7), mode, (scale, scale)))
        grad = backward(torch.ones_like(out), [4, 6], mode, scale, scale)
        assert_close(grad.sum(), torch.tensor(2.0 * 35, dtype=dtype))


# ---------------------------------------------------------------- exact facts


@over_modes
def test_same_size_is_a_copy(mode: str) -> None:
    """Also for infinities, which a weight of 0 would turn into NaN."""
    x = image(2, 3, 5, 7)
    x[0, 0, 2, 3] = torch.inf
    x[1, 1, 4, 6] = -torch.inf
    for t in (x, x.contiguous(memory_format=CHANNELS_LAST), x[:, :, ::2, 1:]):
        for out in (upsample_bilinear2d(t, tuple(t.shape[2:]), None, mode), backward(t, t.shape[2:], mode)):
            assert torch.equal(out, t)
            assert out.data_ptr() != t.data_ptr()


def test_pixels_without_neighbours_are_read_alone() -> None:
    """align_corners keeps the corners, and asymmetric keeps every pixel whose position it meets exactly."""
    x = image(1, 1, 5, 6)
    corners = upsample_bilinear2d(x, (9, 11), None, "align_corners")
    assert torch.equal(corners[..., ::2, ::2], x)
    assert torch.equal(upsample_bilinear2d(x, (10, 12), None, "asymmetric")[..., ::2, ::2], x)
    assert torch.equal(upsample_bilinear2d(x[..., :4, :], (2, 3), None, "asymmetric"), x[..., :4:2, ::2])


def bits(t: Tensor) -> Tensor:
    return t.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[t.itemsize])


def values_of_all_kinds(*shape: int, dtype: torch.dtype) -> Tensor:
    """Subnormal numbers, both zeros, the largest numbers, infinities and ordinary numbers."""
    info = torch.finfo(dtype)
    smallest = info.tiny * info.eps
    kinds = [
        smallest,
        3 * smallest,
        1.5 * info.tiny,
        -smallest,
        info.tiny,
        0.0,
        -0.0,
        info.max,
        info.min,
        0.7,
        torch.inf,
    ]
    values = torch.tensor(kinds, dtype=torch.float64).to(dtype)
    assert values[0] > 0 and values[1] == 3 * values[0]
    return values[torch.randint(len(kinds), shape)]


@over_modes
@pytest.mark.parametrize("format", [torch.contiguous_format, CHANNELS_LAST], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_pixels_that_are_met_exactly_are_copied_bit_by_bit(
    dtype: torch.dtype, format: torch.memory_format, mode: str
) -> None:
    for sizes in ((2, 3, 5, 7), (1, 20, 6, 37)):
        x = values_of_all_kinds(*sizes, dtype=dtype).contiguous(memory_format=format)
        size = x.shape[2:]
        assert torch.equal(bits(upsample_bilinear2d(x, tuple(size), None, mode)), bits(x))
        assert torch.equal(bits(backward(x, size, mode)), bits(x))
        if mode != "half_pixel":  # half_pixel meets no pixel exactly when it doubles the size
            doubled = [2 * s - (mode == "align_corners") for s in size]
            assert torch.equal(bits(upsample_bilinear2d(x, tuple(doubled), None, mode)[..., ::2, ::2]), bits(x))


@pytest.mark.parametrize("format", [torch.contiguous_format, CHANNELS_LAST], ids=str)
def test_gradients_keep_the_sign_of_zero(format: torch.memory_format) -> None:
    """A pixel gets -0 if an output with gradient -0 reads it, and 0 if no output reads it."""
    grad = torch.full((2, 3, 2, 5), -0.0).contiguous(memory_format=format)
    expected = torch.zeros(2, 3, 8, 20)
    expected[..., ::4, ::4] = -0.0
    assert torch.equal(bits(backward(grad, (8, 20), "asymmetric")), bits(expected))
    # Pixels at the edges have fewer readers than the others.
    grad = torch.full((2, 3, 8, 20), -0.0).contiguous(memory_format=format)
    assert torch.equal(bits(backward(grad, (2, 5), "half_pixel")), bits(torch.full((2, 3, 2, 5), -0.0)))


def test_nan_goes_to_its_readers_only() -> None:
    x = image(1, 1, 4, 4)
    x[0, 0, 1, 1] = torch.nan
    out = upsample_bilinear2d(x, (8, 8))
    readers = upsample_bilinear2d(x.isnan().float(), (8, 8)) > 0
    assert torch.equal(out.isnan(), readers)
    assert readers.sum() == 16


# ---------------------------------------------------------------- memory formats


def test_formats_are_kept() -> None:
    for format in (torch.contiguous_format, CHANNELS_LAST):
        x = image(2, 3, 4, 5).contiguous(memory_format=format).requires_grad_()
        for f in (
            lambda t: upsample_bilinear2d(t, (7, 8)),
            torch.compile(lambda t: upsample_bilinear2d(t, (7, 8)), fullgraph=True, backend="aot_eager"),
            torch.compile(
                lambda t: upsample_bilinear2d(t, None, 2.0), fullgraph=True, dynamic=True, backend="aot_eager"
            ),
        ):
            out = f(x)
            assert out.is_contiguous(memory_format=format)
            (grad,) = torch.autograd.grad(out, x, torch.ones_like(out))
            assert grad.is_contiguous(memory_format=format)
            (again,) = torch.autograd.grad((f(x) ** 2).sum(), x)
            assert again.is_contiguous(memory_format=format)


def test_formats_of_models() -> None:
    """Every module of a channels_last model returns channels_last."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), UpsampleBilinear2d(scale_factor=2), nn.Conv2d(8, 2, 3))
    model = model.to(memory_format=CHANNELS_LAST)
    x = image(2, 3, 8, 9).contiguous(memory_format=CHANNELS_LAST)
    outputs = [x]
    for module in model:
        outputs.append(module(outputs[-1]))
        assert outputs[-1].is_contiguous(memory_format=CHANNELS_LAST)
    out = outputs[-1]
    assert out.shape == (2, 2, 10, 12)
    assert_close(out, copy.deepcopy(model).to(memory_format=torch.contiguous_format)(x.contiguous()))


COPIES = {"aten::copy_", "aten::clone", "aten::contiguous", "aten::repeat", "aten::stack", "aten::cat"}


@pytest.mark.parametrize(
    "lay_out",
    [
        lambda t: t,
        lambda t: t.contiguous(memory_format=CHANNELS_LAST),
        lambda t: t.transpose(2, 3),
        lambda t: t[:, :, ::2, 1:],
        lambda t: t[:1].expand(4, -1, -1, -1),
        lambda t: t.contiguous(memory_format=CHANNELS_LAST)[:, 1:],
    ],
    ids=["contiguous", "channels_last", "transposed", "sliced", "expanded", "channels_last sliced"],
)
def test_no_layout_is_copied(lay_out: Any) -> None:
    x = lay_out(image(4, 6, 30, 32))
    for f in (lambda: forward(x, [50, 60]), lambda: backward(x, [50, 60])):
        assert not {event.name for event in profiled(f).events()} & COPIES
        assert allocated_bytes(f) <= 1.1 * f().nbytes
        dense = forward(x.contiguous(), [50, 60])
    assert_close(forward(x, [50, 60]), dense)


def test_vmap_keeps_channels_last_and_copies_nothing() -> None:
    x = image(15, 3, 8, 9).contiguous(memory_format=CHANNELS_LAST).view(5, 3, 3, 8, 9)
    f = torch.func.vmap(lambda t: upsample_bilinear2d(t, (12, 14)))
    out = f(x)
    assert all(t.is_contiguous(memory_format=CHANNELS_LAST) for t in out)
    assert_close(out, torch.stack([upsample_bilinear2d(t, (12, 14)) for t in x]))
    assert not {event.name for event in profiled(lambda: f(x)).events()} & COPIES


# ---------------------------------------------------------------- the function and the module


def test_size_and_scale_factor() -> None:
    x = image(2, 3, 4, 6)
    eight = (np.int64(8), np.uint8(8), np.array(8), torch.tensor(8), torch.tensor([8]))
    for size in (8, (8, 8), [8, 8], torch.Size((8, 8)), *eight, *((8, e) for e in eight), [eight[0], eight[3]]):
        assert torch.equal(upsample_bilinear2d(x, size), forward(x, [8, 8]))
    two = (np.float32(2), np.float64(2), np.int64(2), torch.tensor(2.0), torch.tensor([2]), Fraction(2))
    for scale in (2, 2.0, (2, 2), [2.0, 2], *two, *((2, t) for t in two)):
        assert torch.equal(upsample_bilinear2d(x, scale_factor=scale), forward(x, [8, 12], "half_pixel", 2.0, 2.0))
    assert upsample_bilinear2d(x, scale_factor=(1.3, 0.9)).shape == (2, 3, 5, 5)


F = "upsample_bilinear2d:"
EITHER = f"{F} exactly one of size and scale_factor must be given"
SIZE = f"{F} size must be an integer or a pair of integers, got"
SCALE = f"{F} scale_factor must be a number or a pair of numbers, got"
TOO_MANY = f"{F} scale_factor must give fewer than 2**63 rows and columns, got"
MODE = f"{F} coordinate_transformation_mode must be 'half_pixel', 'align_corners' or 'asymmetric', got"
OVERFLOW = "Storage size calculation overflowed with sizes="  # torch's own
NO_SIZES = (
    *(2.5, 2.0, (2.5, 3), [3, None], "3", ("3", "4"), b"3", {3: 4}, 3 + 0j, np.float32(3)),
    *(np.array([3, 4]), np.array([2.5]), torch.tensor([3, 4]), torch.tensor(2.5), (3, torch.tensor([3, 4]))),
)
NO_SCALES = (
    *("2", ("2", 2.0), b"2", bytearray(b"2"), (2, None), {2: 2}, 2 + 0j),
    *(np.array([2.0, 3.0]), torch.tensor([2.0, 3.0]), (2.0, torch.tensor([2.0, 3.0]))),
)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({}, ValueError, EITHER),
        ({"size": 3, "scale_factor": 2.0}, ValueError, EITHER),
        *(({"size": s}, ValueError, f"{SIZE} {s}") for s in ((1, 2, 3), [1], ())),
        *(({"scale_factor": s}, ValueError, f"{SCALE} {s}") for s in ((1.0,), [1, 2, 3], [])),
        ({"scale_factor": 0}, ValueError, f"{F} scale_factor must be positive and finite, got (0.0, 0.0)"),
        ({"scale_factor": (2, -1.5)}, ValueError, f"{F} scale_factor must be positive and finite, got (2.0, -1.5)"),
        ({"scale_factor": torch.nan}, ValueError, f"{F} scale_factor must be positive and finite, got (nan, nan)"),
        ({"scale_factor": torch.inf}, ValueError, f"{F} scale_factor must be positive and finite, got (inf, inf)"),
        ({"scale_factor": 10**400}, ValueError, f"{F} scale_factor must be positive and finite, got {10**400}"),
        *(
            ({"scale_factor": s}, ValueError, f"{TOO_MANY} {pair} for 4 rows and 5 columns")
            for s, pair in ((1e19, (1e19, 1e19)), (1e308, (1e308, 1e308)), ((2.0**61, 1), (2.0**61, 1.0)))
        ),
        ({"scale_factor": (1, 1e18)}, RuntimeError, f"{OVERFLOW}[1, 2, 4, 5000000000000000000]"),
        ({"scale_factor": 0.1}, RuntimeError, f"{F} output_size must be at least 1 in each entry, got [0, 0]"),
        ({"size": 0}, RuntimeError, f"{F} output_size must be at least 1 in each entry, got [0, 0]"),
        ({"size": (3, -1)}, RuntimeError, f"{F} output_size must be at least 1 in each entry, got [3, -1]"),
        *(
            ({"size": s}, ValueError, f"{F} size must be at least 1 and below 2**63, got {s!r}")
            for s in (2**63, (2**70, 1), [1, -(2**70)], np.uint64(2**63))
        ),
        ({"size": (2**62, 3)}, RuntimeError, f"{OVERFLOW}[1, 2, 4611686018427387904, 3]"),
        *(
            ({"size": 3, "coordinate_transformation_mode": m}, TypeError, f"{MODE} {m!r}")
            for m in (None, 1, b"half_pixel", ["half_pixel"])
        ),
        (
            {"size": 3, "coordinate_transformation_mode": "pytorch_half_pixel"},
            RuntimeError,
            f"{MODE} 'pytorch_half_pixel'",
        ),
        *(({"size": s}, TypeError, f"{SIZE} {s!r}") for s in NO_SIZES),
        *(({"scale_factor": s}, TypeError, f"{SCALE} {s!r}") for s in NO_SCALES),
    ],
)
def test_errors(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        upsample_bilinear2d(image(1, 2, 4, 5), **kwargs)
    assert str(raised.value).splitlines()[0] == message


def test_errors_of_the_input() -> None:
    with pytest.raises(RuntimeError) as error:
        upsample_bilinear2d(torch.zeros(1, 3, 4, 5, dtype=torch.uint8), 8)
    expected = f"{F} input must be of dtype float64, float32, float16 or bfloat16, got uint8"
    assert str(error.value).splitlines()[0] == expected
    with pytest.raises(RuntimeError, match=r"^upsample_bilinear2d: input must be \[N, C, H, W\], got \[3, 4, 5\]"):
        upsample_bilinear2d(image(3, 4, 5), 8)
    with pytest.raises(RuntimeError, match=r"^upsample_bilinear2d: input must be \[N, C, H, W\], got \[3, 4, 5\]"):
        upsample_bilinear2d(image(3, 4, 5), scale_factor=2)
    with pytest.raises(RuntimeError, match=r"^upsample_bilinear2d: scale_h must be positive and finite, got nan"):
        forward(image(1, 1, 2, 2), [3, 3], "half_pixel", float("nan"), None)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.compiles
def test_unbacked_channels(layout: torch.memory_format) -> None:
    """The number of channels that a mask selects is not known during compilation."""

    class Masked(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return upsample_bilinear2d(x[:, mask], (5, 5))

    x, mask = image(2, 3, 6, 8).to(memory_format=layout), torch.tensor([True, False, True])
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(Masked(), fullgraph=True)
        exported = export(Masked(), (x, mask)).module()
    for kept in (mask, ~mask, mask & False):
        expected = Masked()(x, kept)
        assert expected.shape == (2, int(kept.sum()), 5, 5)
        for f in (compiled, exported):
            assert torch.equal(f(x, kept), expected)


def test_symbolic_trace() -> None:
    x = image(1, 2, 3, 4)
    traced = torch.fx.symbolic_trace(nn.Sequential(UpsampleBilinear2d(scale_factor=2)))
    assert torch.equal(traced(x), upsample_bilinear2d(x, scale_factor=2))
    traced = torch.fx.symbolic_trace(lambda y: upsample_bilinear2d(x, (y.shape[2], y.shape[3])))
    assert torch.equal(traced(image(1, 2, 7, 5)), upsample_bilinear2d(x, (7, 5)))
    traced = torch.fx.symbolic_trace(lambda x, y: upsample_bilinear2d(x, y.shape[-2:]))
    y = image(1, 2, 7, 5)
    assert torch.equal(traced(x, y), upsample_bilinear2d(x, (7, 5)))


def test_module() -> None:
    x = image(2, 3, 4, 5)
    modules = {
        "UpsampleBilinear2d(size=(7, 7), coordinate_transformation_mode='half_pixel')": UpsampleBilinear2d(7),
        "UpsampleBilinear2d(size=(7, 8), coordinate_transformation_mode='asymmetric')": UpsampleBilinear2d(
            [7, 8], coordinate_transformation_mode="asymmetric"
        ),
        "UpsampleBilinear2d(scale_factor=(2.0, 2.0), coordinate_transformation_mode='align_corners')": (
            UpsampleBilinear2d(scale_factor=2, coordinate_transformation_mode="align_corners")
        ),
    }
    for text, module in modules.items():
        assert repr(module) == text
        expected = upsample_bilinear2d(x, module.size, module.scale_factor, module.coordinate_transformation_mode)
        for other in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            assert torch.equal(other(x), expected)
        assert not list(module.parameters()) and not module.state_dict()
    for kwargs in ({}, {"size": 3, "scale_factor": 2.0}):
        with pytest.raises(
            ValueError, match=r"^UpsampleBilinear2d: exactly one of size and scale_factor must be given$"
        ):
            UpsampleBilinear2d(**kwargs)


def test_module_refuses_what_the_function_refuses() -> None:
    """The constructor raises the error, not the call."""
    sizes, scales = (*NO_SIZES, (1, 2, 3), [1], (2**70, 1)), (*NO_SCALES, (1.0,), 0, (2, -1.5), torch.nan, torch.inf)
    for kwargs in (*({"size": s} for s in sizes), *({"scale_factor": s} for s in scales)):
        with pytest.raises((TypeError, ValueError)) as of_function:
            upsample_bilinear2d(image(1, 2, 4, 5), **kwargs)
        with pytest.raises(of_function.type) as of_module:
            UpsampleBilinear2d(**kwargs)
        assert str(of_module.value) == str(of_function.value)
    assert UpsampleBilinear2d((np.int64(3), 4)).size == (3, 4)
    for module in (UpsampleBilinear2d((np.int64(3), 4)), UpsampleBilinear2d(scale_factor=np.float64(1.5))):
        assert torch.jit.script(module)(image(1, 2, 4, 5)).shape == module(image(1, 2, 4, 5)).shape  # without numpy


# ---------------------------------------------------------------- TorchScript, compile, export


def test_scripted_forms() -> None:
    @torch.jit.script
    def forms(x: Tensor, size: list[int], scale: float) -> list[Tensor]:
        return [
            upsample_bilinear2d(x, 7),
            upsample_bilinear2d(x, (7, 8)),
            upsample_bilinear2d(x, size),
            upsample_bilinear2d(x, x.shape[2:]),
            upsample_bilinear2d(x, scale_factor=scale),
            upsample_bilinear2d(x, scale_factor=(scale, 1.5), coordinate_transformation_mode="asymmetric"),
            upsample_bilinear2d(x, scale_factor=[scale, 1.5]),
        ]

    for x in (image(2, 3, 4, 5), image(1, 1, 9, 7)):
        expected = [
            upsample_bilinear2d(x, 7),
            upsample_bilinear2d(x, (7, 8)),
            upsample_bilinear2d(x, (6, 9)),
            x,
            upsample_bilinear2d(x, None, 0.8),
            upsample_bilinear2d(x, None, (0.8, 1.5), "asymmetric"),
            upsample_bilinear2d(x, None, (0.8, 1.5)),
        ]
        assert_close(forms(x, [6, 9], 0.8), expected)
    scripted = torch.jit.script(upsample_bilinear2d)
    for kwargs, message in (
        ({}, EITHER),
        ({"size": [1, 2, 3]}, SIZE),
        ({"scale_factor": 0.0}, "scale_factor must be positive and finite"),
        ({"scale_factor": 1e19}, re.escape(TOO_MANY)),
        ({"scale_factor": (1e308, 1.0)}, re.escape(TOO_MANY)),
    ):
        with pytest.raises(torch.jit.Error, match=message):
            scripted(image(1, 1, 2, 2), **kwargs)


@pytest.mark.filterwarnings("error::torch.jit.TracerWarning")
def test_traces_follow_the_sizes() -> None:
    """The sizes of the input if scales are given, and of another tensor if a size is given."""
    by_scale = torch.jit.trace(lambda x: upsample_bilinear2d(x, None, (1.5, 2)), image(2, 3, 4, 5))
    by_size = torch.jit.trace(lambda x, y: upsample_bilinear2d(x, y.shape[2:]), (image(2, 3, 4, 5), image(1, 1, 6, 7)))
    module = torch.jit.trace(UpsampleBilinear2d(scale_factor=2.0), image(2, 3, 4, 5))
    buffer = io.BytesIO()
    torch.jit.save(by_scale, buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    for x in (image(2, 3, 4, 5), image(1, 2, 9, 7)):
        for f in (by_scale, loaded):
            assert_close(f(x), upsample_bilinear2d(x, None, (1.5, 2)))
        assert_close(module(x), upsample_bilinear2d(x, None, 2.0))
        y = image(1, 1, x.shape[3], 11)
        assert_close(by_size(x, y), upsample_bilinear2d(x, y.shape[2:]))


class Model(nn.Module):
    def __init__(self, form: str, mode: str) -> None:
        super().__init__()
        self.form, self.mode = form, mode

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.form == "scale":
            return upsample_bilinear2d(x, None, (1.5, 0.75), self.mode) * y.mean()
        if self.form == "size":
            return upsample_bilinear2d(x, (7, 11), None, self.mode) * y.mean()
        return upsample_bilinear2d(x, y.shape[2:], None, self.mode) * y  # as in U-Nets

    def gradient(self, x: Tensor, y: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(self(x, y).square().sum(), x)[0]


FORMS = ("scale", "size", "like")
over_forms = pytest.mark.parametrize("form", FORMS)
SHAPES = [((5, 4, 6), (9, 10)), ((3, 5, 9), (13, 4)), ((4, 23, 8), (6, 30))]  # N, H, W, and H, W of the other tensor


def inputs(shape: Any, format: torch.memory_format = torch.contiguous_format) -> tuple[Tensor, Tensor]:
    (n, h, w), other = shape
    return image(n, 3, h, w).contiguous(memory_format=format), image(n, 3, *other).contiguous(memory_format=format)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("format", [torch.contiguous_format, CHANNELS_LAST], ids=str)
@over_forms
@pytest.mark.compiles
def test_one_graph_for_all_heights_and_widths(form: str, format: torch.memory_format) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    model = Model(form, "asymmetric")
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    for shape in SHAPES:
        x, y = inputs(shape, format)
        x.requires_grad_()
        out, expected = compiled(x, y), model(x, y)
        assert_close(out, expected)
        assert out.stride() == expected.stride()
        assert_close(torch.autograd.grad(out.square().sum(), x)[0], model.gradient(x, y))
    assert counter.frame_count == 1


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("format", [torch.contiguous_format, CHANNELS_LAST], ids=str)
@over_forms
@pytest.mark.compiles
def test_export_with_dynamic_heights_and_widths(form: str, format: torch.memory_format, strict: bool) -> None:
    model = Model(form, "half_pixel")
    # 3 * 0.75 gives 2; an output width of 1 is a special case, as in torch's interpolate.
    n, h, w, other_h, other_w = (Dim(name, min=3, max=4096) for name in ("n", "h", "w", "other_h", "other_w"))
    shapes = {"x": {0: n, 2: h, 3: w}, "y": {0: n, 2: other_h, 3: other_w}}
    program = export(model, inputs(SHAPES[0], format), dynamic_shapes=shapes, strict=strict)
    assert torch.ops.cppcuda.upsample_bilinear2d.default in [node.target for node in program.graph.nodes]
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    loaded = torch.export.load(buffer).module()
    for shape in SHAPES:
        x, y = inputs(shape, format)
        out, expected = loaded(x, y), model(x, y)
        assert_close(out, expected)
        assert out.stride() == expected.stride()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("form", ["scale", "like"])
@pytest.mark.compiles
def test_export_with_heights_of_any_size(form: str, strict: bool) -> None:
    """The check that the number of rows fits into 64 bits does not bound the dims."""
    h, other_h = Dim("h", min=3), Dim("other_h", min=3)
    shapes = {"x": {2: h}, "y": {2: other_h}}
    program = export(Model(form, "half_pixel"), inputs(SHAPES[0]), dynamic_shapes=shapes, strict=strict)
    dims = program.range_constraints.values()
    assert [str(limits.upper) for limits in dims] == ["int_oo", "int_oo"]


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.compiles
def test_compiled_sizes_of_other_types() -> None:
    x = image(1, 2, 4, 5)
    for size in (np.int64(7), torch.tensor(7)):
        with torch._dynamo.config.patch(capture_scalar_outputs=True):
            compiled = torch.compile(lambda x, s: upsample_bilinear2d(x, (s, 6)), fullgraph=True, backend="aot_eager")
            assert_close(compiled(x, size), upsample_bilinear2d(x, (7, 6)))


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("format", [torch.contiguous_format, CHANNELS_LAST], ids=str)
@pytest.mark.compiles
def test_data_dependent_sizes(format: torch.memory_format) -> None:
    """Unbacked sizes: the output's size and the number of images depend on the data of tensors."""

    def f(x: Tensor, mask: Tensor, size: Tensor) -> Tensor:
        h, w = size.tolist()
        return upsample_bilinear2d(x[mask], (h, w)).sin()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        compiled = torch.compile(f, fullgraph=True, dynamic=True, backend="aot_eager")
        for n, size in ((6, (7, 9)), (5, (3, 4))):
            args = image(n, 3, 4, 8).contiguous(memory_format=format), torch.arange(n) % 2 == 0, torch.tensor(size)
            assert_close(compiled(*args), f(*args))


@pytest.mark.compiles
def test_export_rejects_an_unknown_mode() -> None:
    with pytest.raises(Exception, match="coordinate_transformation_mode must be"):
        export(Model("size", "cubic"), inputs(SHAPES[0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sums_of_16_bits_are_taken_in_float32(dtype: torch.dtype) -> None:
    """The gradient of a pixel is a sum of 4096 ones, which 16 bits cannot add one by one."""
    grad = backward(torch.ones(1, 1, 64, 64, dtype=dtype), [1, 1])
    assert grad.item() == 4096
    x = image(2, 3, 9, 9, dtype=dtype)
    out = upsample_bilinear2d(x, 31)
    assert out.dtype == dtype
    assert torch.equal(out, upsample_bilinear2d(x.float(), 31).to(dtype))


def test_memory_follows_sizes_where_one_pixel_has_all_readers() -> None:
    """If every pixel had space for as many outputs as that one, this would take 29 GB."""
    pixels = 60_000
    grad = backward(torch.ones(1, 1, 1, pixels + 1), [1, pixels], "half_pixel", None, float(pixels))
    positions = ((torch.arange(pixels + 1, dtype=torch.float64) + 0.5) / pixels - 0.5).clamp(min=0)
    expected = torch.zeros(pixels, dtype=torch.float64)
    expected[0], expected[1] = (1 - positions).sum(), positions.sum()  # no position is beyond pixel 1
    assert_close(grad.flatten(), expected.float(), rtol=1e-5, atol=0)


@pytest.mark.compiles
def test_compiled_scales_that_vary(fresh_compiler: None) -> None:
    """Scales are then symbols, like sizes, so nothing may depend on those of the first call."""
    compiled = torch.compile(
        lambda x, scale: upsample_bilinear2d(x, scale_factor=scale), backend="aot_eager", fullgraph=True, dynamic=True
    )
    for size in (5, 6, 9):
        x = torch.randn(1, 2, size, size + 2)
        for scale in (2.0, 1.5, 2.5, 3.0, 2, (2, 1.5), 0.7):
            assert_close(compiled(x, scale), upsample_bilinear2d(x, scale_factor=scale))
