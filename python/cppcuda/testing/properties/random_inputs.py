"""Random sizes, layouts and dtypes, forward and backward, against float64. Needs hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cppcuda.testing.compare import assert_close, gradient_eps, value_tolerance
from cppcuda.testing.registry import DIFFERENTIABLE, HAS_STRATEGY, NotCheckedError, checks, devices
from cppcuda.testing.samples import (
    SIXTEEN_BIT,
    OpEntry,
    Sample,
    T,
    computed,
    is_variable,
    make_tensor,
    never_read,
)

try:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st
except ImportError as error:  # only these properties need it
    MISSING = f"hypothesis is missing: {error}"
else:
    MISSING = ""


def for_random_inputs(check: Callable[[Any], None]) -> None:
    """Calls a check with 60 draws, the same ones in every run."""
    if MISSING:
        raise NotCheckedError(MISSING)
    options = settings(
        deadline=None, derandomize=True, max_examples=60, database=None, suppress_health_check=list(HealthCheck)
    )
    options(given(data=st.data())(lambda data: check(data)))()


def layouts(draw: Callable[[Any], Any], dims: int) -> Callable[[Tensor], Tensor]:
    """Any strides that a strided tensor can have: any order of dims, gaps, an offset, dims with stride 0."""
    order = draw(st.permutations(range(dims)))
    steps = draw(st.lists(st.integers(1, 3), min_size=dims, max_size=dims))
    offset = draw(st.integers(0, 5))
    expanded = draw(st.sets(st.integers(0, dims - 1), max_size=dims)) if dims and draw(st.booleans()) else set()

    def lay_out(t: Tensor) -> Tensor:
        for d in expanded:
            t = t.narrow(d, 0, min(1, t.shape[d])).expand_as(t)
        strides, stride = [0] * dims, 1
        for d in order:
            if d not in expanded:
                strides[d] = stride * steps[d]
                stride *= max(t.shape[d], 1) * steps[d]
        memory = t.new_full([offset + stride], never_read(t))
        view = memory.as_strided(t.shape, strides, offset)
        if t.numel():
            own = tuple(slice(0, 1) if d in expanded else slice(None) for d in range(dims))
            view[own].copy_(t[own])
        return view

    return lay_out


def sample_of(draw: Callable[[Any], Any], entry: OpEntry, device: str) -> tuple[torch.dtype, Sample]:
    dtype = draw(st.sampled_from(entry.plain_dtypes))
    mixed = dtype in SIXTEEN_BIT and draw(st.booleans())
    seed = draw(st.integers(0, 2**16))
    args = []
    for i, arg in enumerate(draw(entry.strategy)):
        if isinstance(arg, T):
            wide = dtype in SIXTEEN_BIT and entry.is_wide(i, arg, mixed)
            tensor = make_tensor(arg, torch.float32 if wide else dtype, device, seed + i)
            arg = layouts(draw, tensor.dim())(tensor)
        args.append(arg)
    name = str([tuple(a.shape) if isinstance(a, Tensor) else a for a in args])
    return dtype, Sample(name, tuple(args), entry.constants)


@checks("strides", over=(devices,), needs=(HAS_STRATEGY, DIFFERENTIABLE))
def random_values_and_gradients(entry: OpEntry, device: str) -> None:
    def check(data: Any) -> None:
        dtype, sample = sample_of(data.draw, entry, device)
        sample, exact = sample.requires_grad(), sample.double().requires_grad()
        actual = computed(sample.call(entry.op))
        expected = computed(exact.call(entry.reference))
        if actual:
            entry.assert_strides(sample, actual)
        for a, e in zip(actual, expected, strict=True):
            assert_close(a.double(), e.double(), sample.name, **value_tolerance(entry, sample, a, e))
        actual, expected = (tuple(t for t in outputs if is_variable(t)) for outputs in (actual, expected))
        if not actual:
            return
        cotangents = [torch.rand_like(a) for a in actual]
        options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
        grads = torch.autograd.grad(actual, sample.tensors, cotangents, **options)
        exact_grads = torch.autograd.grad(expected, exact.tensors, [c.double() for c in cotangents], **options)
        for t, a, e in zip(sample.tensors, grads, exact_grads, strict=True):
            assert a.dtype == t.dtype and a.shape == t.shape
            eps = gradient_eps(entry, sample, t, dtype) * (2 if dtype == torch.float64 else 1)  # both sides round
            assert_close(
                a.double(),
                e,
                sample.name,
                rtol=4 * eps,
                atol=8 * eps * (1 + e.abs().sum(-1).amax().item() if e.numel() else 1),
            )

    for_random_inputs(check)


@checks("vmap", over=(devices,), needs=(HAS_STRATEGY,))
def vmap_over_any_layout(entry: OpEntry, device: str) -> None:
    def check(data: Any) -> None:
        _, sample = sample_of(data.draw, entry, device)
        in_dims = [data.draw(st.none() | st.integers(0, t.dim())) for t in sample.tensors]
        if all(d is None for d in in_dims):
            in_dims[0] = 0
        size = data.draw(st.integers(1, 3))
        inputs = [
            t if d is None else torch.stack([t * (i + 1) for i in range(size)], d)
            for t, d in zip(sample.tensors, in_dims, strict=True)
        ]
        actual = torch.func.vmap(sample.bind(entry.op), in_dims=tuple(in_dims))(*inputs)
        for i in range(size):
            one = [t if d is None else t.select(d, i) for t, d in zip(inputs, in_dims, strict=True)]
            for a, e in zip(actual, sample.bind(entry.op)(*one), strict=True):
                assert_close(a[i], e, sample.name, **value_tolerance(entry, sample, a[i], e))

    for_random_inputs(check)
