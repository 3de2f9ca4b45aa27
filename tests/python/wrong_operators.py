"""Operators that are wrong on purpose, each with one mistake, beside right ones. test_wrong_operators.py checks them.

They are defined in Python, where a kernel is a function for a dispatch key. The one with a C++ autograd::Function is in
tests/second_library/wrong_function.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("wrong", "DEF")
_EXCLUDED = torch._C._ExcludeDispatchKeyGuard
_VMAP_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchBatched)


def define(name: str, schema: str, **kernels: Callable[..., Any]) -> None:
    """Defines an operator with a function for each dispatch key."""
    _LIBRARY.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    for key, kernel in kernels.items():
        _LIBRARY.impl(name, kernel, key)


def below_autograd(op: Any, *args: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args)


# ---------------------------------------------------------------- x^3, with torch.library's registration


def cube(x: Tensor) -> Tensor:
    """The reference of most operators here."""
    return x * x * x


def _cube_operator(name: str, *, fake: Callable[[Tensor], Tensor] = torch.empty_like, vmap_rule: bool = True) -> Any:
    @torch.library.custom_op(f"wrong::{name}", mutates_args=())
    def op(x: Tensor) -> Tensor:
        # As new dense memory in the input's layout, in one rounding.
        return torch.empty_like(x).copy_((x.double() ** 3).to(x.dtype))

    op.register_fake(fake)
    if vmap_rule:
        op.register_vmap(lambda info, in_dims, x: (op(x), in_dims[0]))
    return op


def _save_input(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[0])


# Right in everything but forward mode, which register_autograd does not have: torch.func.jvp gives zeros.
no_forward_mode = _cube_operator("no_forward_mode")
no_forward_mode.register_autograd(
    lambda context, grad: 3 * context.saved_tensors[0] ** 2 * grad, setup_context=_save_input
)

# vmap calls the kernel once for each row.
no_batching_rule = _cube_operator("no_batching_rule", vmap_rule=False)
no_batching_rule.register_autograd(
    lambda context, grad: 3 * context.saved_tensors[0] ** 2 * grad, setup_context=_save_input
)

# Meta predicts contiguous outputs; the kernel keeps the layout.
other_strides = _cube_operator("other_strides", fake=lambda x: x.new_empty(x.shape))
other_strides.register_autograd(
    lambda context, grad: 3 * context.saved_tensors[0] ** 2 * grad, setup_context=_save_input
)


# The gradient comes from an operator that has no derivative itself.
@torch.library.custom_op("wrong::_cube_backward", mutates_args=())
def _cube_backward(grad: Tensor, x: Tensor) -> Tensor:
    return 3 * x * x * grad


_cube_backward.register_fake(lambda grad, x: torch.empty_like(grad))
backward_without_derivative = _cube_operator("backward_without_derivative")
backward_without_derivative.register_autograd(
    lambda context, grad: _cube_backward(grad, context.saved_tensors[0]), setup_context=_save_input
)


# ---------------------------------------------------------------- mistakes that have consequences

wrong_factor = _cube_operator("wrong_factor")
wrong_factor.register_autograd(
    lambda context, grad: 2 * context.saved_tensors[0] ** 2 * grad, setup_context=_save_input
)

no_fake_kernel = torch.library.custom_op("wrong::no_fake_kernel", cube, mutates_args=())

# It reads a transposed input as if it were contiguous.
ignores_strides = torch.library.custom_op(
    "wrong::ignores_strides",
    lambda x: cube(torch.as_strided(x, x.shape, torch.empty(x.shape).stride())),
    mutates_args=(),
    schema="(Tensor x) -> Tensor",
)
ignores_strides.register_fake(lambda x: x.new_empty(x.shape))


@torch.library.custom_op("wrong::only_float32", mutates_args=())
def only_float32(x: Tensor) -> Tensor:
    if x.dtype != torch.float32:
        raise TypeError("expected float32")
    return cube(x)


only_float32.register_fake(torch.empty_like)


# The right one: its gradient is made of differentiable operators.
right = _cube_operator("right")
right.register_autograd(lambda context, grad: 3 * context.saved_tensors[0] ** 2 * grad, setup_context=_save_input)


# ---------------------------------------------------------------- graphs of autograd.Function


def _with_graph(name: str, function: type[torch.autograd.Function], forward: Callable[[Tensor], Tensor]) -> None:
    define(name, "(Tensor x) -> Tensor", CPU=forward, Meta=torch.empty_like, Autograd=function.apply)


class SavesUnnoticed(torch.autograd.Function):
    """Keeps the input as an attribute, whose version autograd does not check."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.x = x
        return below_autograd(torch.ops.wrong.saved_unnoticed, x)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> Tensor:
        return 3 * context.x**2 * grad


class Saves(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return below_autograd(torch.ops.wrong.saved, x)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return 3 * x**2 * grad


_with_graph("saved_unnoticed", SavesUnnoticed, lambda x: x**3)
_with_graph("saved", Saves, lambda x: x**3)


def double(x: Tensor) -> Tensor:
    """The reference of operators whose gradient reads no input."""
    return 2 * x


class KeepsTooMuch(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return below_autograd(torch.ops.wrong.keeps_too_much, x)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return 2 * grad + 0 * x


class KeepsNothing(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return below_autograd(torch.ops.wrong.keeps_nothing, x)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> Tensor:
        return 2 * grad


_with_graph("keeps_too_much", KeepsTooMuch, lambda x: 2 * x)
_with_graph("keeps_nothing", KeepsNothing, lambda x: 2 * x)


def scale_columns(x: Tensor, scale: Tensor) -> Tensor:
    return x * scale


class DependsOnThreads(torch.autograd.Function):
    """The gradient of `scale` is a sum in shares, one for each thread."""

    @staticmethod
    def forward(context: Any, x: Tensor, scale: Tensor) -> Tensor:
        context.save_for_backward(x, scale)
        return below_autograd(torch.ops.wrong.depends_on_threads, x, scale)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, scale = context.saved_tensors
        count = torch.get_num_threads()
        return grad * scale, sum((grad * x)[i::count].sum(0) for i in range(count))


class DependsOnNothing(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, scale: Tensor) -> Tensor:
        context.save_for_backward(x, scale)
        return below_autograd(torch.ops.wrong.depends_on_nothing, x, scale)

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, scale = context.saved_tensors
        return grad * scale, (grad * x).sum(0)


for _name, _function in (("depends_on_threads", DependsOnThreads), ("depends_on_nothing", DependsOnNothing)):
    define(
        _name, "(Tensor x, Tensor scale) -> Tensor", CPU=scale_columns, Meta=lambda x, scale: torch.empty_like(x),
        Autograd=_function.apply,
    )  # fmt: skip


# ---------------------------------------------------------------- kernels


def identity(x: Tensor) -> Tensor:
    return x * 1


# The output is the input itself, although the schema says that it is new.
define("output_is_input", "(Tensor x) -> Tensor", CPU=lambda x: x, Meta=torch.empty_like)
define("output_is_new", "(Tensor x) -> Tensor", CPU=torch.clone, Meta=torch.empty_like)


def row_sum(x: Tensor) -> Tensor:
    return x.sum(-1)


def _sum_in_its_dtype(x: Tensor) -> Tensor:
    """Rounds to 16 bits after each addition."""
    result = torch.zeros_like(x[..., 0])
    for t in x.unbind(-1):
        result = result + t
    return result


define("sum_in_16_bits", "(Tensor x) -> Tensor", CPU=_sum_in_its_dtype, Meta=row_sum)
define("sum_in_32_bits", "(Tensor x) -> Tensor", CPU=row_sum, Meta=row_sum)


# Autocast's dtype is swallowed: the kernel always casts to bfloat16.
def _autocast(name: str, dtype: Callable[[], torch.dtype]) -> Callable[[Tensor], Tensor]:
    def kernel(x: Tensor) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
            return getattr(torch.ops.wrong, name)(x if x.dtype == torch.float64 else x.to(dtype()))

    return kernel


for _name, _dtype in (
    ("swallowed_dtype", lambda: torch.bfloat16),
    ("autocast_dtype", lambda: torch.get_autocast_dtype("cpu")),
):
    define(
        _name, "(Tensor x) -> Tensor", CompositeExplicitAutograd=lambda x: x**3, Meta=torch.empty_like,
        Autograd=lambda x: x**3, AutocastCPU=_autocast(_name, _dtype),
    )  # fmt: skip


# ---------------------------------------------------------------- sizes


def scale_by_counts(x: Tensor, offsets: Tensor) -> Tensor:
    """Multiplies each row by its number of entries in a CSR matrix, which has one more offset than rows."""
    return x * offsets.diff().to(x.dtype).unsqueeze(-1)


# Meta fixes the number of rows with int().
for _name, _fake in (
    ("fixed_offsets", lambda x, offsets: x.new_empty([int(offsets.shape[0]) - 1, *x.shape[1:]])),
    ("dynamic_offsets", lambda x, offsets: x.new_empty([offsets.shape[0] - 1, *x.shape[1:]])),
):
    _operator = torch.library.custom_op(
        f"wrong::{_name}", scale_by_counts, mutates_args=(), schema="(Tensor x, Tensor offsets) -> Tensor"
    )
    _operator.register_fake(_fake)
    _operator.register_vmap(lambda info, in_dims, x, offsets: (scale_by_counts(x.movedim(in_dims[0], 0), offsets), 0))
    _operator.register_autograd(
        lambda ctx, grad: (scale_by_counts(grad, ctx.saved_tensors[0]), None),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1]),
    )


# ---------------------------------------------------------------- batching rules by hand


def product(x: Tensor, y: Tensor) -> Tensor:
    return x * y


def _batching_rule(name: str, of_current_level: bool) -> Callable[[Tensor, Tensor], Tensor]:
    functorch = torch._C._functorch

    def rule(x: Tensor, y: Tensor) -> Tensor:
        level = functorch.maybe_current_level()
        assert level is not None
        unwrapped, batched = [], False
        for t in (x, y):
            # The mistake: a tensor that is batched at an outer level is unwrapped too, as if it had this level's batch.
            own = functorch.is_batchedtensor(t) and (not of_current_level or functorch.maybe_get_level(t) == level)
            if own:
                t, batched = functorch.get_unwrapped(t).movedim(functorch.maybe_get_bdim(t), 0), True
            unwrapped.append(t)
        with _EXCLUDED(_VMAP_KEYS):
            out = getattr(torch.ops.wrong, name)(*torch.broadcast_tensors(*unwrapped))
        return functorch._add_batch_dim(out, 0, level) if batched else out

    return rule


for _name, _right in (("batched_at_wrong_level", False), ("batched_at_current_level", True)):
    define(
        _name, "(Tensor x, Tensor y) -> Tensor", CPU=lambda x, y: x * y, Meta=lambda x, y: torch.empty_like(x),
        FuncTorchBatched=_batching_rule(_name, _right),
    )  # fmt: skip
