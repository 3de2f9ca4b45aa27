"""Random sizes, layouts and dtypes, forward and backward, against float64."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from op_samples import FLOAT_DTYPES, SIXTEEN_BIT, TOLERANCE, OpEntry, Sample, T, computed, make_tensor
from support import assert_close, gradient_eps, over_devices, over_ops, value_tolerance
from torch import Tensor


@st.composite
def layouts(draw: st.DrawFn, dims: int) -> Callable[[Tensor], Tensor]:
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
        memory = t.new_full([offset + stride], torch.nan)
        view = memory.as_strided(t.shape, strides, offset)
        if t.numel():
            own = tuple(slice(0, 1) if d in expanded else slice(None) for d in range(dims))
            view[own].copy_(t[own])
        return view

    return lay_out


@st.composite
def samples(draw: st.DrawFn, entry: OpEntry, device: str) -> tuple[torch.dtype, Sample]:
    dtype = draw(st.sampled_from(FLOAT_DTYPES))
    mixed = dtype in SIXTEEN_BIT and draw(st.booleans())
    seed = draw(st.integers(0, 2**16))
    args = []
    for i, arg in enumerate(draw(entry.arguments)):
        if isinstance(arg, T):
            tensor = make_tensor(arg, torch.float32 if mixed and arg.wide else dtype, device, seed + i)
            arg = draw(layouts(tensor.dim()))(tensor)
        args.append(arg)
    return dtype, Sample(str([tuple(a.shape) if isinstance(a, Tensor) else a for a in args]), tuple(args))


@pytest.mark.capability("strides")
@over_devices
@over_ops()
def test_values_and_gradients(entry: OpEntry, device: str) -> None:
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        dtype, sample = data.draw(samples(entry, device))
        sample, exact = sample.requires_grad(), sample.double().requires_grad()
        actual = computed(entry.op(*sample.args))
        expected = computed(entry.reference(*exact.args))
        if actual:
            entry.assert_strides(sample, actual)
        for a, e in zip(actual, expected, strict=True):
            assert_close(a.double(), e, sample.name, **value_tolerance(entry, sample, a, e))
        if not actual:
            return
        cotangents = [torch.rand_like(a) for a in actual]
        options = {"allow_unused": True, "materialize_grads": True}
        grads = torch.autograd.grad(actual, sample.tensors, cotangents, **options)
        exact_grads = torch.autograd.grad(expected, exact.tensors, [c.double() for c in cotangents], **options)
        for t, a, e in zip(sample.tensors, grads, exact_grads, strict=True):
            assert a.dtype == t.dtype and a.shape == t.shape
            eps = gradient_eps(entry, sample, t, dtype)
            assert_close(
                a.double(),
                e,
                sample.name,
                rtol=4 * eps,
                atol=8 * eps * (1 + e.abs().sum(-1).amax().item() if e.numel() else 1),
            )

    check()


@over_devices
@over_ops()
def test_vmap_over_any_layout(entry: OpEntry, device: str) -> None:
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        _, sample = data.draw(samples(entry, device))
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
                tolerance = value_tolerance(entry, sample, a[i], e) if entry.products else TOLERANCE[e.dtype]
                assert_close(a[i], e, sample.name, **tolerance)

    check()
