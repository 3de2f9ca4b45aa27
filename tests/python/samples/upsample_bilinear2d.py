"""upsample_bilinear2d."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import cppcuda
import torch
from cppcuda.testing import BadInput, OpEntry, Spec, T, register
from cppcuda.testing.samples import LAYOUTS
from torch import Tensor

MODES = ("half_pixel", "align_corners", "asymmetric")
Size = tuple[int, int]


def weights(size: int, out: int, mode: str, scale: float | None, like: Tensor) -> Tensor:
    """The weights of the input's pixels in each output pixel along one axis, [out, size], computed in float64."""
    o = torch.arange(out, dtype=torch.float64, device=like.device)
    step = size / out if scale is None else 1 / scale
    if mode == "half_pixel":
        position = (o + 0.5) * step - 0.5
    elif mode == "asymmetric":
        position = o * step
    else:
        position = o * ((size - 1) / (out - 1)) if out > 1 else o
    pixels = torch.arange(size, dtype=torch.float64, device=like.device)
    return (1 - (position.clamp(0, size - 1)[:, None] - pixels).abs()).clamp(min=0).to(like.dtype)


def both_weights(
    from_: Sequence[int], to: Sequence[int], mode: str, scales: tuple[float | None, ...], like: Tensor
) -> tuple[Tensor, Tensor]:
    if tuple(from_) == tuple(to):
        scales = (None, None)  # then torch and ONNX Runtime copy the input
    y, x = (weights(*args, mode, scale, like) for *args, scale in zip(from_, to, scales, strict=True))
    return y, x


def upsample_reference(input: Tensor, output_size: list[int], mode: str, *scales: float | None) -> Tensor:
    y, x = both_weights(input.shape[-2:], output_size, mode, scales, input)
    return torch.einsum("...hw,yh,xw->...yx", input, y, x)


def upsample_backward_reference(grad: Tensor, input_size: list[int], mode: str, *scales: float | None) -> Tensor:
    y, x = both_weights(input_size, grad.shape[-2:], mode, scales, grad)
    return torch.einsum("...yx,yh,xw->...hw", grad, y, x)


def copies_one_axis(from_: Sequence[int], to: Sequence[int], scales: Sequence[float | None]) -> bool:
    """torch on the CPU, but not elsewhere, ignores the scale of an axis whose size stays while the other changes."""
    same = [a == b for a, b in zip(from_, to, strict=True)]
    return any(s and scale != 1 for s, scale in zip(same, scales, strict=True)) and not all(same)


def interpolate(input: Tensor, output_size: list[int], mode: str, *scales: float | None) -> Tensor | None:
    """torch's own function, which has two of the modes and takes either a size or scales."""
    if mode == "asymmetric" or input.shape[1] == 0:
        return None
    options: dict[str, Any] = {"mode": "bilinear", "align_corners": mode == "align_corners"}
    if scales == (None, None):
        return torch.nn.functional.interpolate(input, tuple(output_size), **options)
    if None in scales or copies_one_axis(input.shape[2:], output_size, scales):
        return None
    out = torch.nn.functional.interpolate(input, scale_factor=scales, **options)
    return out if list(out.shape[2:]) == list(output_size) else None


def strides(t: Tensor, size: list[int], *_: Any) -> list[tuple[int, ...]]:
    """The strides of the argument's memory format, which is determined as in torch's own ops."""
    format = torch._prims_common.suggest_memory_format(t)
    return [torch.empty(*t.shape[:2], *size, memory_format=format).stride()]


def upsample_bilinear2d(
    input: Tensor, size: list[int], mode: str, scale_h: float | None, scale_w: float | None
) -> Tensor:
    """Calls the public function, which takes either a size or scales."""
    if scale_h is not None and scale_w is not None:
        return cppcuda.functional.upsample_bilinear2d(input, None, (scale_h, scale_w), mode)
    return cppcuda.functional.upsample_bilinear2d(input, size, None, mode)


def module(size: list[int], mode: str, scale_h: float | None, scale_w: float | None) -> torch.nn.Module:
    if scale_h is not None and scale_w is not None:
        return cppcuda.nn.UpsampleBilinear2d(None, (scale_h, scale_w), mode)
    return cppcuda.nn.UpsampleBilinear2d((size[0], size[1]), None, mode)


# name: [N, C, H, W], output size, mode, scales
_CASES: dict[str, tuple[tuple[int, ...], Size, str, tuple[float | None, float | None]]] = {
    **{f"same_{m}": ((2, 3, 5, 4), (5, 4), m, (None, None)) for m in MODES},
    **{f"up_{m}": ((2, 3, 4, 5), (9, 13), m, (None, None)) for m in MODES},
    **{f"twice_{m}": ((1, 2, 4, 5), (8, 10), m, (2.0, 2.0)) for m in MODES},
    **{f"down_{m}": ((2, 2, 11, 9), (3, 4), m, (None, None)) for m in MODES},
    **{f"to_one_{m}": ((1, 2, 4, 3), (1, 1), m, (None, None)) for m in MODES},
    **{f"from_one_{m}": ((2, 3, 1, 1), (4, 3), m, (None, None)) for m in MODES},
    **{f"scales_{m}": ((2, 2, 5, 7), (7, 5), m, (1.5, 0.75)) for m in MODES},
    **{f"one_scale_{m}": ((1, 2, 4, 4), (6, 3), m, (1.25, None)) for m in MODES},
    **{f"same_size_by_scales_{m}": ((1, 2, 5, 7), (5, 7), m, (1.1, 1.05)) for m in MODES},
    "one_size_stays": ((1, 2, 5, 7), (5, 9), "half_pixel", (1.1, 1.3)),
    # Positions beyond the border, and most of the input is not read.
    **{f"other_scales_{m}": ((1, 2, 4, 3), (9, 5), m, (0.5, 8.0)) for m in MODES},
    "one_row": ((2, 2, 1, 5), (3, 9), "half_pixel", (None, None)),
    "one_column": ((2, 2, 5, 1), (9, 3), "align_corners", (None, None)),
    "one_pixel": ((1, 1, 1, 1), (1, 1), "half_pixel", (None, None)),
    "one_channel": ((3, 1, 3, 4), (5, 5), "half_pixel", (None, None)),
    "channels_8": ((2, 8, 3, 4), (5, 6), "asymmetric", (None, None)),
    "channels_33": ((1, 33, 2, 3), (4, 4), "half_pixel", (None, None)),
    "larger": ((2, 3, 32, 48), (64, 96), "half_pixel", (None, None)),
    "no_images": ((0, 3, 4, 5), (8, 3), "half_pixel", (None, None)),
    "no_channels": ((2, 0, 4, 5), (8, 3), "align_corners", (None, None)),
}

# On a GPU, the planes of the first go through shared memory; those of the second do not, because of their widths.
_LARGE = {"tiles": ((1, 5, 560, 264), (1120, 528)), "planes": ((1, 5, 530, 265), (1060, 530))}


def _channels_last(t: Tensor) -> Tensor:
    return t.contiguous(memory_format=torch.channels_last)


def _channels_last_sliced(t: Tensor) -> Tensor:
    return LAYOUTS["sliced"](t.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def _channels_last_offset(t: Tensor) -> Tensor:
    return LAYOUTS["offset"](t.permute(0, 2, 3, 1).contiguous()).permute(0, 3, 1, 2)


_LAYOUTS = {
    **LAYOUTS,
    "channels_last": _channels_last,
    "channels_last_sliced": _channels_last_sliced,
    "channels_last_offset": _channels_last_offset,
}


def _specs(backward: bool) -> Iterator[Spec]:
    """Specs of the op, or of its backward op, which goes from the output's size to the input's."""

    def args(
        shape: tuple[int, ...], size: Size, mode: str, scales: tuple[float | None, float | None]
    ) -> tuple[Any, ...]:
        if backward:
            return T((*shape[:2], *size)), list(shape[2:]), mode, *scales
        return T(shape), list(size), mode, *scales

    yield Spec("basic_half_pixel", args((1, 2, 2, 3), (3, 2), "half_pixel", (None, None)), "basic")
    yield Spec("basic_scales", args((2, 1, 2, 2), (3, 4), "asymmetric", (1.5, 2.0)), "basic")
    yield Spec(
        "basic_align_corners", args((1, 2, 3, 2), (2, 3), "align_corners", (None, None)), "basic", (_channels_last,)
    )
    for name, case in _CASES.items():
        yield Spec(name, args(*case))
    for name, (shape, size) in _LARGE.items():
        yield Spec(name, args(shape, size, "half_pixel", (None, None)), "large")
    for name, layout in _LAYOUTS.items():
        yield Spec(name, args((3, 8, 4, 5), (7, 4), "half_pixel", (None, None)), "stride", (layout,))


_SIDES = {"H": (1, 9), "W": (1, 9)}


def _sized(n: int) -> tuple[Any, ...]:
    return T((n, 3, 8, 3)), [3, 8], "half_pixel", None, None


def _bad(op: str, argument: str, size_argument: str) -> Iterator[BadInput]:
    def bad(
        name: str,
        message: str,
        shape: tuple[int, ...] = (2, 3, 4, 5),
        size: tuple[int, ...] = (6, 7),
        mode: str = "half_pixel",
        scales: tuple[float | None, float | None] = (None, None),
    ) -> BadInput:
        return BadInput(name, lambda: (torch.zeros(shape), list(size), mode, *scales), f"{op}: {message}")

    for shape in ((2, 3, 0, 5), (2, 3, 4, 0), (0, 3, 0, 5)):
        message = f"{argument} must be [N, C, H, W] with H and W at least 1, got {list(shape)}"
        yield bad(f"no_pixels_{shape}", message, shape)
    expected = f"{size_argument} must have 2 entries, got"
    yield bad("no_size", f"{expected} 0", size=())
    yield bad("size_of_one", f"{expected} 1", size=(6,))
    yield bad("size_of_three", f"{expected} 3", size=(6, 7, 8))
    expected = f"{size_argument} must be at least 1 in each entry, got"
    yield bad("size_0", f"{expected} [0, 7]", size=(0, 7))
    yield bad("size_negative", f"{expected} [6, -1]", size=(6, -1))
    expected = "coordinate_transformation_mode must be 'half_pixel', 'align_corners' or 'asymmetric', got"
    yield bad("mode", f"{expected} 'bilinear'", mode="bilinear")
    yield bad("mode_empty", f"{expected} ''", mode="")
    yield bad("scale_0", "scale_h must be positive and finite, got 0", scales=(0.0, None))
    yield bad("scale_negative", "scale_w must be positive and finite, got -2", scales=(2.0, -2.0))
    yield bad("scale_infinite", "scale_w must be positive and finite, got inf", scales=(None, float("inf")))


register(
    OpEntry(
        name="cppcuda::upsample_bilinear2d",
        mechanism="linear map",
        reference=upsample_reference,
        oracles=(interpolate,),
        specs=tuple(_specs(backward=False)),
        sized=_sized,
        sizes=_SIDES,
        bad_inputs=tuple(_bad("upsample_bilinear2d", "input", "output_size")),
        function=upsample_bilinear2d,
        module=module,
        strides=strides,
        saved_for={0: set()},
        backward=OpEntry(
            name="cppcuda::_upsample_bilinear2d_backward",
            reference=upsample_backward_reference,
            specs=tuple(_specs(backward=True)),
            sized=_sized,
            sizes=_SIDES,
            bad_inputs=tuple(_bad("_upsample_bilinear2d_backward", "grad", "input_size")),
            strides=strides,
            saved_for={0: set()},
        ),
    )
)
