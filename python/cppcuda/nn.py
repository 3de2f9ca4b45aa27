"""The operators as modules."""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cppcuda import _hash_grid, functional

__all__ = [
    "LLTM",
    "GridSample3d",
    "HashGrid",
    "LLTMCell",
    "QuickGELU",
    "Sigmoid",
    "SplinePrefilter2d",
    "SplinePrefilter3d",
    "SplineSample2d",
    "SplineSample3d",
    "SplineSplat2d",
    "SplineSplat3d",
    "Trilinear",
    "TrilinearIndexed",
    "TrilinearIndexedWithGrad",
    "UpsampleBilinear2d",
]


class Sigmoid(nn.Module):
    """The logistic function, elementwise; see :func:`cppcuda.functional.sigmoid`.

    Shape: any; the output has the shape of the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.sigmoid(input)


class QuickGELU(nn.Module):
    """The activation of CLIP-style models, elementwise; see :func:`cppcuda.functional.quick_gelu`.

    Shape: any; the output has the shape of the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.quick_gelu(input)


class LLTMCell(nn.Module):
    r"""One step of an LLTM; see :func:`cppcuda.functional.lltm_cell`.

    Args:
        input_size: I, the number of features of an input
        hidden_size: S, the number of features of the state

    Shape:
        - input: ``[B, I]``
        - state: ``(hx, cx)``, ``[B, S]`` each; zeros by default
        - output: ``(hy, cy)``, ``[B, S]`` each, the next state

    Attributes:
        weight: ``[3S, S + I]``, drawn uniformly from :math:`\pm 1 / \sqrt{S}`
        bias: ``[3S]``, likewise

    Raises:
        ValueError: for negative sizes.
        TypeError: in the call, for a state that is not a pair.
        RuntimeError: in the call, for an input or a state that does not have these sizes.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if input_size < 0 or hidden_size < 0:
            raise ValueError(f"LLTMCell: sizes must not be negative, got {input_size} and {hidden_size}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(3 * hidden_size, hidden_size + input_size, **factory))
        self.bias = nn.Parameter(torch.empty(3 * hidden_size, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        return _lltm_cell(input, state, self.weight, self.bias, self.input_size, self.hidden_size)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class LLTM(nn.Module):
    r"""An LLTM over sequences, with the conventions of :class:`torch.nn.LSTM`; see :func:`cppcuda.functional.lltm`.

    Args:
        input_size: I, the number of features of an input
        hidden_size: S, the number of features of the state
        num_layers: the number of LLTMs, each of which takes the output of the one before
        bias: whether there is a bias
        batch_first: whether input and output are ``[B, T, ...]`` instead of ``[T, B, ...]``. The state is not.
        dropout: the share of the values between layers that are dropped in training

    Shape:
        - input: ``[T, B, I]``, or ``[T, I]`` without a batch
        - state: ``(h0, c0)``, ``[num_layers, B, S]`` each, or ``[num_layers, S]`` without a batch; zeros by default
        - output: ``(output, (hn, cn))``: ``[T, B, S]``, the states of the last layer, and the state after the last step
          of every layer

    Attributes:
        weights: for each layer ``[3S, S + I]``, or ``[3S, 2S]`` after the first one, drawn uniformly from
            :math:`\pm 1 / \sqrt{S}`
        biases: ``[3S]`` each, likewise; none without ``bias``

    Raises:
        ValueError: for negative sizes, no layers, or a share that is not in [0, 1].
        NotImplementedError: for ``proj_size``.
        TypeError: in the call, for a packed sequence, or a state that is not a pair.
        RuntimeError: in the call, for an input or a state that does not have these sizes.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        proj_size: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if proj_size != 0:
            raise NotImplementedError("LLTM: proj_size is not supported; put a Linear behind the output instead")
        if input_size < 0 or hidden_size < 0:
            raise ValueError(f"LLTM: sizes must not be negative, got {input_size} and {hidden_size}")
        if num_layers < 1:
            raise ValueError(f"LLTM: num_layers must be at least 1, got {num_layers}")
        if not 0 <= dropout <= 1:
            raise ValueError(f"LLTM: dropout must be in [0, 1], got {dropout}")
        if dropout > 0 and num_layers == 1:
            warnings.warn("LLTM: dropout is between layers, and there is only one", stacklevel=2)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        inputs = [input_size] + [hidden_size] * (num_layers - 1)
        self.weights = nn.ParameterList(torch.empty(3 * hidden_size, hidden_size + i, **factory) for i in inputs)
        self.biases = nn.ParameterList(torch.empty(3 * hidden_size, **factory) for _ in inputs if bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, input: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return _lltm(
            input,
            state,
            list(self.weights),
            list(self.biases),
            self.input_size,
            self.hidden_size,
            self.batch_first,
            self.dropout,
            self.training,
        )

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0)):
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text


class Trilinear(nn.Module):
    """Trilinear interpolation of the eight corner features of a voxel; see :func:`cppcuda.functional.trilinear`.

    Shape:
        - feats: ``[N, 8, F]`` (or ``[B, N, 8, F]``)
        - points: ``[N, 3]`` (or ``[B, N, 3]``), in [-1, 1]
        - output: ``[N, F]`` (or ``[B, N, F]``)
    """

    def forward(self, feats: Tensor, points: Tensor) -> Tensor:
        return functional.trilinear(feats, points)


class _Spline(nn.Module):
    """An order and a border, which the functions check."""

    def __init__(self, order: int = 3, border: str = "mirror") -> None:
        super().__init__()
        self.order = order
        self.border = border

    def extra_repr(self) -> str:
        return f"order={self.order}, border={self.border!r}"


class SplinePrefilter2d(_Spline):
    """Computes the coefficients of B-splines; see :func:`cppcuda.functional.spline_prefilter2d`.

    Args:
        order: 0 to 5.
        border: ``"mirror"``, ``"reflect"`` or ``"grid-wrap"``.

    Shape: ``[H, W, F]`` (or ``[B, H, W, F]``); the output has the shape of the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.spline_prefilter2d(input, self.order, self.border)


class SplineSample2d(_Spline):
    """Samples B-splines at points; see :func:`cppcuda.functional.spline_sample2d`.

    Args:
        order: 0 to 5.
        border: ``"mirror"``, ``"reflect"``, ``"grid-wrap"``, ``"nearest"`` or ``"grid-constant"``.

    Shape:
        - input: ``[H, W, F]`` (or ``[B, H, W, F]``)
        - points: ``[N, 2]`` (or ``[B, N, 2]``), in voxels, in the order of the axes
        - output: ``[N, F]`` (or ``[B, N, F]``)
    """

    def forward(self, input: Tensor, points: Tensor) -> Tensor:
        return functional.spline_sample2d(input, points, self.order, self.border)


class SplineSplat2d(_Spline):
    """Adds values to the coefficients of B-splines; see :func:`cppcuda.functional.spline_splat2d`.

    Args:
        size: H, W.
        order: 0 to 5.
        border: ``"mirror"``, ``"reflect"``, ``"grid-wrap"``, ``"nearest"`` or ``"grid-constant"``.

    Shape:
        - values: ``[N, F]`` (or ``[B, N, F]``)
        - points: ``[N, 2]`` (or ``[B, N, 2]``), in voxels, in the order of the axes
        - output: ``[H, W, F]`` (or ``[B, H, W, F]``)
    """

    def __init__(self, size: list[int], order: int = 3, border: str = "mirror") -> None:
        super().__init__(order, border)
        self.size = size

    def forward(self, values: Tensor, points: Tensor) -> Tensor:
        return functional.spline_splat2d(values, points, self.size, self.order, self.border)

    def extra_repr(self) -> str:
        return f"size={self.size}, {super().extra_repr()}"


class SplinePrefilter3d(_Spline):
    """Computes the coefficients of B-splines; see :func:`cppcuda.functional.spline_prefilter3d`.

    Args:
        order: 0 to 5.
        border: ``"mirror"``, ``"reflect"`` or ``"grid-wrap"``.

    Shape: ``[D, H, W, F]`` (or ``[B, D, H, W, F]``); the output has the shape of the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.spline_prefilter3d(input, self.order, self.border)


class SplineSample3d(_Spline):
    """Samples B-splines at points; see :func:`cppcuda.functional.spline_sample3d`.

    Args:
        order: 0 to 5.
        border: ``"mirror"``, ``"reflect"``, ``"grid-wrap"``, ``"nearest"`` or ``"grid-constant"``.

    Shape:
        - input: ``[D, H, W, F]`` (or ``[B, D, H, W, F]``)
        - points: ``[N, 3]`` (or ``[B, N, 3]``), in voxels, in the order of the axes
        - output: ``[N, F]`` (or ``[B, N, F]``)
    """

    def forward(self, input: Tensor, points: Tensor) -> Tensor:
        return functional.spline_sample3d(input, points, self.order, self.border)


class SplineSplat3d(_Spline):
    """Adds values to the coefficients of B-splines; see :func:`cppcuda.functional.spline_splat3d`.

    Args:
        size: D, H, W.
        order: 0 to 5.
        border: ``"mirror"``, ``"reflect"``, ``"grid-wrap"``, ``"nearest"`` or ``"grid-constant"``.

    Shape:
        - values: ``[N, F]`` (or ``[B, N, F]``)
        - points: ``[N, 3]`` (or ``[B, N, 3]``), in voxels, in the order of the axes
        - output: ``[D, H, W, F]`` (or ``[B, D, H, W, F]``)
    """

    def __init__(self, size: list[int], order: int = 3, border: str = "mirror") -> None:
        super().__init__(order, border)
        self.size = size

    def forward(self, values: Tensor, points: Tensor) -> Tensor:
        return functional.spline_splat3d(values, points, self.size, self.order, self.border)

    def extra_repr(self) -> str:
        return f"size={self.size}, {super().extra_repr()}"


class GridSample3d(nn.Module):
    """Samples a volume of feature vectors at points; see :func:`cppcuda.functional.grid_sample3d`.

    Args:
        padding_mode: ``"zeros"``, ``"border"`` or ``"reflection"``, as in :func:`torch.nn.functional.grid_sample`.
        align_corners: whether the coordinates -1 and 1 are the centres of the first and the last voxel, or else their
            outer faces.

    Shape:
        - input: ``[D, H, W, F]`` (or ``[B, D, H, W, F]``); for ``[B, F, D, H, W]`` pass ``volume.movedim(1, -1)``
        - points: ``[N, 3]`` (or ``[B, N, 3]``), coordinates (x, y, z) along W, H and D
        - output: ``[N, F]`` (or ``[B, N, F]``)

    Raises:
        ValueError: for another ``padding_mode``.
    """

    def __init__(self, padding_mode: str = "zeros", align_corners: bool = False) -> None:
        super().__init__()
        if padding_mode not in ("zeros", "border", "reflection"):
            raise ValueError(
                f"GridSample3d: padding_mode must be 'zeros', 'border' or 'reflection', got {padding_mode!r}"
            )
        self.padding_mode = padding_mode
        self.align_corners = align_corners

    def forward(self, input: Tensor, points: Tensor) -> Tensor:
        return functional.grid_sample3d(input, points, self.padding_mode, self.align_corners)

    def extra_repr(self) -> str:
        return f"padding_mode={self.padding_mode!r}, align_corners={self.align_corners}"


class TrilinearIndexed(nn.Module):
    """Trilinear interpolation in voxels whose corners are rows of a shared table; see
    :func:`cppcuda.functional.trilinear_indexed`.

    Shape:
        - table: ``[V, F]`` (or ``[B, V, F]``)
        - corners: ``[N, 8]`` (or ``[B, N, 8]``), rows of the table, or -1 for a missing vertex
        - points: ``[N, 3]`` (or ``[B, N, 3]``), in [-1, 1]
        - output: ``[N, F]`` (or ``[B, N, F]``)
    """

    def forward(self, table: Tensor, corners: Tensor, points: Tensor) -> Tensor:
        return functional.trilinear_indexed(table, corners, points)


class TrilinearIndexedWithGrad(nn.Module):
    """The same with the derivatives by the points; see :func:`cppcuda.functional.trilinear_indexed_with_grad`.

    Shape:
        - table: ``[V, F]`` (or ``[B, V, F]``)
        - corners: ``[N, 8]`` (or ``[B, N, 8]``), rows of the table, or -1 for a missing vertex
        - points: ``[N, 3]`` (or ``[B, N, 3]``), in [-1, 1]
        - output: ``(value, gradient)``, ``[N, F]`` and ``[N, F, 3]`` (or ``[B, N, F]`` and ``[B, N, F, 3]``)
    """

    def forward(self, table: Tensor, corners: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        return functional.trilinear_indexed_with_grad(table, corners, points)


class HashGrid(nn.Module):
    r"""Multi-resolution hash encoding with trainable features; see :func:`cppcuda.functional.hash_grid`.

    Args:
        n_input_dims: D, the number of coordinates of a point, 2 to 4
        n_levels: L, the number of levels
        n_features_per_level: C, 1, 2, 4 or 8
        log2_hashmap_size: the logarithm of the largest number of rows of a level
        base_resolution: the number of vertices per axis of the coarsest level
        per_level_scale: how much finer each level is than the one before
        interpolation: ``"Linear"`` or ``"Smoothstep"``

    Shape:
        - points: ``[..., D]``, from 0 to 1
        - output: ``[..., L * C]``, level by level

    Attributes:
        params: ``[P]``, the features of all levels in the layout of tiny-cuda-nn, drawn uniformly from
            :math:`\pm 10^{-4}`
        n_output_dims: ``L * C``

    Raises:
        ValueError: for a configuration that the function rejects.
        RuntimeError: in the call, for points that do not have D coordinates.
    """

    def __init__(
        self,
        n_input_dims: int,
        n_levels: int = 16,
        n_features_per_level: int = 2,
        log2_hashmap_size: int = 19,
        base_resolution: int = 16,
        per_level_scale: float = 2.0,
        interpolation: str = "Linear",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if interpolation not in ("Linear", "Smoothstep"):
            raise ValueError(f"HashGrid: interpolation must be 'Linear' or 'Smoothstep', got {interpolation!r}")
        self.n_input_dims = n_input_dims
        self.n_levels = n_levels
        self.n_features_per_level = n_features_per_level
        self.log2_hashmap_size = log2_hashmap_size
        self.base_resolution = base_resolution
        self.per_level_scale = float(per_level_scale)
        self.interpolation = interpolation
        self.n_output_dims = n_levels * n_features_per_level
        count = _hash_grid.count_parameters(n_input_dims, self._config())
        self.params = nn.Parameter(torch.empty(count, device=device, dtype=dtype))
        self.reset_parameters()

    def _config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _hash_grid.DEFAULTS}

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.params, -1e-4, 1e-4)

    def forward(self, points: Tensor) -> Tensor:
        return _hash_grid_of_points(
            self.params,
            points,
            self.n_input_dims,
            self.n_levels,
            self.n_features_per_level,
            self.log2_hashmap_size,
            self.base_resolution,
            self.per_level_scale,
            self.interpolation,
        )

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in ("n_input_dims", *_hash_grid.DEFAULTS))

    @classmethod
    def from_tcnn(cls, params: Tensor, config: Mapping[str, Any], n_input_dims: int | None = None) -> "HashGrid":
        """A module with the parameters of a ``tinycudann.Encoding``, of which it keeps dtype and device.

        Args:
            params: a copy of ``encoding.params``, or of their part that belongs to the grid: those of a
                ``NetworkWithInputEncoding`` begin with the network's.
            config: the encoding's configuration, with ``"otype": "HashGrid"``, or ``"Grid"`` and ``"type": "Hash"``.
                Keys that are missing have the defaults of tiny-cuda-nn, which are those of this class. Numbers may
                also be numpy's or tensors without dims, as in some checkpoints.
            n_input_dims: the number of coordinates of a point. By default it is the one that fits the number of
                parameters.

        Warns:
            UserWarning: if versions of tiny-cuda-nn before 2.0 look up vertices of some levels elsewhere, because the
                number of vertices overflows there. Parameters that such a version has trained give other values here.

        Raises:
            TypeError: if ``params`` is not a tensor or ``config`` is not a mapping.
            ValueError: for another encoding, for keys and values that are not supported, and for a number of parameters
                that the configuration does not have.
        """
        if not isinstance(params, Tensor):
            raise TypeError(f"HashGrid.from_tcnn: params must be a Tensor, got {type(params).__name__}")
        if not isinstance(config, Mapping):
            raise TypeError(f"HashGrid.from_tcnn: config must be a dict, got {type(config).__name__}")
        if params.dim() != 1 or not params.is_floating_point():
            raise ValueError(
                f"HashGrid.from_tcnn: params must be [P] and floating point, got {list(params.shape)} of {params.dtype}"
            )
        grid = _hash_grid.from_tcnn_config(config)
        possible = (2, 3, 4) if n_input_dims is None else (_hash_grid.plain(n_input_dims),)
        counts = {d: _hash_grid.count_parameters(d, grid) for d in possible}
        fitting = [d for d, count in counts.items() if count == params.numel()]
        if not fitting:
            expected = " or ".join(f"{count} for {d} dimensions" for d, count in counts.items())
            raise ValueError(f"HashGrid.from_tcnn: params must have {expected}, got {params.numel()}")
        if len(fitting) > 1:
            raise ValueError(
                "HashGrid.from_tcnn: n_input_dims must be given, because the number of parameters is the same for "
                f"{' and '.join(map(str, fitting))} dimensions"
            )
        module = cls(fitting[0], **grid, device="meta", dtype=params.dtype)
        module.params = nn.Parameter(params.detach().clone())
        module._warn_of_overflow("from_tcnn")
        return module

    def to_tcnn(self) -> tuple[Tensor, dict[str, Any]]:
        """``(params, config)``: a copy of the parameters, and the configuration for ``tinycudann.Encoding(n_input_dims,
        config)``, whose ``params`` they are. Warns like :meth:`from_tcnn`.
        """
        self._warn_of_overflow("to_tcnn")
        return self.params.detach().clone(), {"otype": "HashGrid", **self._config()}

    def _warn_of_overflow(self, method: str) -> None:
        dims = self.n_input_dims
        levels = _hash_grid.levels_of(
            dims, self.n_levels, self.log2_hashmap_size, self.base_resolution, self.per_level_scale
        )
        overflowing = _hash_grid.overflowing_levels(levels, dims)
        if overflowing:
            vertices = f"{levels[overflowing[0]].resolution}^{dims}"
            warnings.warn(
                f"HashGrid.{method}: versions of tiny-cuda-nn before 2.0 look up the vertices of the levels "
                f"{overflowing} elsewhere, because {vertices} vertices and more overflow 32 bits, so these levels have "
                "other values there. Version 2.0 looks them up as cppcuda does.",
                stacklevel=3,
            )


class UpsampleBilinear2d(nn.Module):
    """Resizes images with bilinear interpolation; see :func:`cppcuda.functional.upsample_bilinear2d`.

    Args:
        size: the size of the output, ``(H_out, W_out)``, or one number for both.
        scale_factor: alternative to ``size``; one number, or one for each axis.
        coordinate_transformation_mode: ``"half_pixel"`` (torch's ``align_corners=False``, TensorFlow 2, ONNX),
            ``"align_corners"`` or ``"asymmetric"`` (TensorFlow 1, TFLite).

    Shape:
        - input: ``[N, C, H, W]``
        - output: ``[N, C, H_out, W_out]``, contiguous or channels_last like the input

    Raises:
        TypeError, ValueError: for a ``size`` or ``scale_factor`` that the function rejects.
    """

    def __init__(
        self,
        size: int | tuple[int, int] | None = None,
        scale_factor: float | tuple[float, float] | None = None,
        coordinate_transformation_mode: str = "half_pixel",
    ) -> None:
        super().__init__()
        if (size is None) == (scale_factor is None):
            raise ValueError("UpsampleBilinear2d: exactly one of size and scale_factor must be given")
        self.size = None if size is None else functional._two_sizes(size)
        self.scale_factor = None if scale_factor is None else functional._two_scales(scale_factor)
        self.coordinate_transformation_mode = coordinate_transformation_mode

    def forward(self, input: Tensor) -> Tensor:
        return functional.upsample_bilinear2d(input, self.size, self.scale_factor, self.coordinate_transformation_mode)

    def extra_repr(self) -> str:
        given = f"scale_factor={self.scale_factor}" if self.size is None else f"size={self.size}"
        return f"{given}, coordinate_transformation_mode={self.coordinate_transformation_mode!r}"


# The modules that check sizes call these functions. torch.fx.symbolic_trace records such a call as one node, because
# proxies have no sizes. torch.jit.trace scripts the function, so that the checks become part of the graph.


@torch.fx.wrap
@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _lltm_cell(
    input: Tensor,
    state: tuple[Tensor, Tensor] | None,
    weight: Tensor,
    bias: Tensor,
    input_size: int,
    hidden_size: int,
) -> tuple[Tensor, Tensor]:
    if not isinstance(input, Tensor):
        functional._check_tensors("LLTMCell", input=input)
    if input.dim() == 0 or input.size(-1) != input_size:
        raise RuntimeError(f"LLTMCell: input must be [B, I] with I = {input_size}, got {list(input.shape)}")
    if state is None:
        shape = list(input.shape)
        shape[-1] = hidden_size
        zeros = input.new_zeros(shape)
        state = (zeros, zeros)
    if not torch.jit.is_scripting() and not (isinstance(state, (tuple, list)) and len(state) == 2):  # type: ignore[attr-defined]
        raise TypeError(f"LLTMCell: state must be (hx, cx), got {type(state).__name__}")
    hx, cx = state[0], state[1]
    if isinstance(hx, Tensor) and (hx.dim() == 0 or hx.size(-1) != hidden_size):
        raise RuntimeError(f"LLTMCell: hx must be [B, S] with S = {hidden_size}, got {list(hx.shape)}")
    return functional.lltm_cell(input, weight, bias, hx, cx)


@torch.fx.wrap
@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _lltm(
    input: Tensor,
    state: tuple[Tensor, Tensor] | None,
    weights: list[Tensor],
    biases: list[Tensor],
    input_size: int,
    hidden_size: int,
    batch_first: bool,
    dropout: float,
    training: bool,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    if not torch.jit.is_scripting():  # type: ignore[attr-defined]
        if isinstance(input, nn.utils.rnn.PackedSequence):
            raise TypeError("LLTM: packed sequences are not supported; pass a padded tensor")
        functional._check_tensors("LLTM", input=input)
        if state is not None:
            if not (isinstance(state, (tuple, list)) and len(state) == 2):
                raise TypeError(f"LLTM: state must be (h0, c0), got {type(state).__name__}")
            functional._check_tensors("LLTM", h0=state[0], c0=state[1])
    num_layers = len(weights)
    batched = input.dim() == 3
    if not (batched or input.dim() == 2) or input.size(-1) != input_size:
        raise RuntimeError(
            f"LLTM: input must be [T, B, I], or [T, I] without a batch, with I = {input_size}, got {list(input.shape)}"
        )
    x = input
    if not batched:
        x = input.unsqueeze(1)
    elif batch_first:
        x = input.transpose(0, 1)
    if state is None:
        zeros = input.new_zeros([num_layers, x.size(1), hidden_size])
        h0, c0 = zeros, zeros
    else:
        h0, c0 = state
        for t in (h0, c0):
            if t.dim() != input.dim() or t.size(0) != num_layers or t.size(-1) != hidden_size:
                shape = "[num_layers, B, S]" if batched else "[num_layers, S]"
                raise RuntimeError(
                    f"LLTM: h0 and c0 must be {shape} with num_layers = {num_layers}, S = {hidden_size}, "
                    f"got {list(t.shape)}"
                )
        if not batched:
            h0, c0 = h0.unsqueeze(1), c0.unsqueeze(1)
    hn: list[Tensor] = []
    cn: list[Tensor] = []
    for layer, weight in enumerate(weights):
        if layer > 0:
            x = nn.functional.dropout(x, dropout, training)
        bias = biases[layer] if len(biases) > 0 else weight.new_zeros(3 * hidden_size)
        x, h, c = functional.lltm(x, weight, bias, h0[layer], c0[layer])
        hn.append(h)
        cn.append(c)
    new_h, new_c = torch.stack(hn), torch.stack(cn)
    if not batched:
        return x.squeeze(1), (new_h.squeeze(1), new_c.squeeze(1))
    return (x.transpose(0, 1) if batch_first else x), (new_h, new_c)


@torch.fx.wrap
@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _hash_grid_of_points(
    params: Tensor,
    points: Tensor,
    n_input_dims: int,
    n_levels: int,
    n_features_per_level: int,
    log2_hashmap_size: int,
    base_resolution: int,
    per_level_scale: float,
    interpolation: str,
) -> Tensor:
    if not isinstance(points, Tensor):
        functional._check_tensors("HashGrid", points=points)
    if points.dim() == 0 or points.size(-1) != n_input_dims:
        raise RuntimeError(f"HashGrid: points must be [..., D] with D = {n_input_dims}, got {list(points.shape)}")
    features = functional.hash_grid(
        params,
        points if points.dim() == 2 else points.reshape(-1, n_input_dims),
        n_levels,
        n_features_per_level,
        log2_hashmap_size,
        base_resolution,
        per_level_scale,
        interpolation,
    )
    return features if points.dim() == 2 else features.view(points.shape[:-1] + features.shape[-1:])
