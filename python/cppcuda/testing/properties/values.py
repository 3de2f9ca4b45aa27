"""The values that the kernels compute, on every device, in every dtype, from every layout."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from cppcuda.testing.compare import assert_close, assert_matches_reference, named, same_bits, scalar, size_of
from cppcuda.testing.registry import (
    HAS_FUNCTION,
    HAS_MODULE,
    HAS_ORACLES,
    NotCheckedError,
    checks,
    devices,
    dtypes,
    each,
    plain_dtypes,
    samples,
)
from cppcuda.testing.samples import (
    SIXTEEN_BIT,
    OpEntry,
    Sample,
    apply,
    computed,
    is_variable,
    outputs_of,
    variable_outputs,
)

TAGS = {"shape": ("basic", "shape"), "stride": ("stride",)}


@checks("dtype", over=(dtypes, devices, each("tag", TAGS)))
def against_float64(entry: OpEntry, dtype: torch.dtype, mixed: bool, device: str, tag: str) -> None:
    names = entry.names(*TAGS[tag])
    if not names:
        raise NotCheckedError(f"no samples with the tag {tag}")
    for name in names:
        check_against_float64(entry, entry.sample(name, dtype, device, mixed))


@checks("dtype", over=(samples("large"), plain_dtypes, devices))
def large_against_float64(entry: OpEntry, name: str, dtype: torch.dtype, device: str) -> None:
    check_against_float64(entry, entry.sample(name, dtype, device))


def check_against_float64(entry: OpEntry, sample: Sample) -> None:
    before = [t.clone() for t in sample.inputs]
    outputs = outputs_of(sample.call(entry.op))
    entry.assert_strides(sample, outputs)
    assert_dtypes(entry, sample, outputs)
    assert_matches_reference(entry, sample, computed(outputs))
    for t, copy in zip(sample.inputs, before, strict=True):
        assert torch.equal(t, copy), f"{sample.name}: an input was written to"


def assert_dtypes(entry: OpEntry, sample: Sample, outputs: tuple[Tensor, ...]) -> None:
    actual = [t.dtype for t in outputs]
    arguments = dict(zip(entry.argument_names, sample.args, strict=False))
    if entry.output_like:
        expected = [arguments[like].dtype for like in entry.output_like]
    elif entry.declaration:
        like = entry.declaration.like_of_output
        outs = entry.declaration.outputs
        expected = [o.dtypes[0] if o.dtypes else arguments[like(o)].dtype for o in outs]
    else:
        promoted = sample.tensors[0].dtype
        for t in sample.tensors:
            promoted = torch.promote_types(promoted, t.dtype)
        expected = [promoted if is_variable(t) else t.dtype for t in outputs]
        if promoted in SIXTEEN_BIT:  # a statistic besides the result may be wider
            expected[1:] = [a if a == torch.float32 else e for a, e in zip(actual[1:], expected[1:], strict=True)]
    assert actual == expected, f"{sample.name}: outputs of dtypes {actual}, expected {expected}"


@checks("float64")
def samples_have_values(entry: OpEntry) -> None:
    """Samples whose results are all zero would accept a kernel that computes nothing."""
    largest: dict[int, float] = {}
    for name in entry.names("basic", "shape"):
        for i, t in enumerate(outputs_of(entry.sample(name).call(entry.reference))):
            largest[i] = max(largest.get(i, 0.0), size_of(t.double()))
    for i, size in largest.items():
        assert size > 0, f"the samples say nothing: output {i} of the reference is zero for each of them"


@checks("strides", over=(samples("stride"), devices), float64=False)
def strides_change_no_value(entry: OpEntry, name: str, device: str) -> None:
    sample = entry.sample(name, entry.widest_dtype, device)
    dense = sample.map_inputs(lambda t: t.clone(memory_format=torch.contiguous_format))
    pairs = zip(sample.inputs, dense.inputs, strict=True)
    assert any(a.stride() != b.stride() or a.storage_offset() for a, b in pairs), "the sample's layout is dense"
    assert_matches_reference(entry, sample, computed(sample.call(entry.op)))
    for strided, contiguous in zip(computed(sample.call(entry.op)), computed(dense.call(entry.op)), strict=True):
        eps = torch.finfo(entry.widest_dtype).eps
        assert_close(strided, contiguous, name, rtol=500 * eps, atol=50 * eps)


@checks("dtype", over=(dtypes, devices), needs=(HAS_ORACLES,))
def against_further_oracles(entry: OpEntry, dtype: torch.dtype, mixed: bool, device: str) -> None:
    for oracle, name in itertools.product(entry.oracles, entry.names("basic", "shape", "stride")):
        sample = entry.sample(name, dtype, device, mixed)
        expected = sample.double().call(oracle)
        if expected is not None:
            actual = sample.call(entry.op)
            assert_matches_reference(entry, sample, (actual,))
            assert_close(actual.double(), expected, name, rtol=2**-7 if actual.itemsize == 2 else 1e-5, atol=1e-5)


@checks("empty", over=(devices,), float64=False)
def empty(entry: OpEntry, device: str) -> None:
    names = [n for n in entry.names("shape") if any(t.numel() == 0 for t in entry.sample(n).tensors)]
    if not names:
        raise NotCheckedError("there is no empty sample")
    for name in names:
        sample = entry.sample(name, entry.usual_dtype, device)
        if entry.orders:
            sample = sample.requires_grad()
        assert_matches_reference(entry, sample, computed(sample.call(entry.op)))
        outputs = [t for t in sample.bind(entry.op)(*sample.tensors) if t.requires_grad]
        if outputs:
            gradients = torch.autograd.grad([t.sum() for t in outputs], sample.tensors, allow_unused=True)
            for g, t in zip(gradients, sample.tensors, strict=True):
                assert g is None or g.shape == t.shape, f"{name}: a gradient of shape {g.shape} for {t.shape}"


@checks("threads", over=(plain_dtypes, devices))
def same_bits_every_time(entry: OpEntry, dtype: torch.dtype, device: str) -> None:
    """In every run, and for any number of threads, except that ATen's matrix products depend on the latter."""

    def results(name: str) -> dict[str, Tensor]:
        sample = entry.sample(name, dtype, device)
        if entry.orders:
            sample = sample.requires_grad()
        outputs = computed(sample.call(entry.op))
        variable = [t for t in variable_outputs(outputs) if t.requires_grad]
        options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
        gradients = torch.autograd.grad(scalar(variable), sample.tensors, **options) if variable else ()
        return {**named("output", outputs), **named("gradient", gradients)}

    threads = torch.get_num_threads()
    counts = (1, 1, 2, 2, 3, 3) if entry.products else (1, 2, 3, 3)
    try:
        for name in entry.names("basic", "shape"):
            first: dict[str, Tensor] = {}
            for count in counts:
                if entry.products and count != torch.get_num_threads():
                    first = {}
                torch.set_num_threads(count)
                with entry.same_bits(device):
                    again = results(name)
                first = first or again
                for what, t in first.items():
                    assert same_bits(t, again[what]), f"{name}: {what} has other bits with {count} threads"
    finally:
        torch.set_num_threads(threads)


@checks("aliasing", over=(samples("basic", "shape"), devices), float64=False)
def output_is_new_memory(entry: OpEntry, name: str, device: str) -> None:
    """An output that is an input, or shares its memory, corrupts the graph silently."""
    sample = entry.sample(name, entry.usual_dtype, device)
    for i, out in enumerate(outputs_of(sample.call(entry.op))):
        for t in (a for a in sample.args if isinstance(a, Tensor)):
            assert out is not t, f"output {i} is an input"
            shared = t.numel() and out.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
            assert not shared, f"output {i} shares memory with an input"


@checks("float64", over=(samples("basic"),), needs=(HAS_FUNCTION, HAS_MODULE))
def public_function_is_the_op(entry: OpEntry, name: str) -> None:
    assert entry.function and entry.module
    sample = entry.sample(name)
    for call, args in ((entry.function, sample.args), (apply(entry.module, sample.attributes), sample.inputs)):
        pairs = zip(outputs_of(apply(call, args)), outputs_of(sample.call(entry.op)), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs), f"{call} gives other values"
