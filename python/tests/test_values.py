"""The values that the kernels compute, on every device, in every dtype, from every layout."""

import itertools

import pytest
import torch
from op_samples import FLOAT_DTYPES, OpEntry, Sample, computed, outputs_of
from support import assert_close, assert_matches_reference, over_devices, over_dtypes, over_ops, over_samples

TAGS = {"shape": ("basic", "shape"), "stride": ("stride",)}


@pytest.mark.capability("dtype")
@pytest.mark.parametrize("tag", TAGS)
@over_devices
@over_dtypes()
def test_against_float64(entry: OpEntry, dtype: torch.dtype, mixed: bool, device: str, tag: str) -> None:
    for name in entry.names(*TAGS[tag]):
        check_against_float64(entry, entry.sample(name, dtype, device, mixed))


@over_devices
@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
@over_samples("large")
def test_large_against_float64(entry: OpEntry, name: str, dtype: torch.dtype, device: str) -> None:
    check_against_float64(entry, entry.sample(name, dtype, device))


def check_against_float64(entry: OpEntry, sample: Sample) -> None:
    before = [t.clone() for t in sample.tensors]
    outputs = outputs_of(entry.op(*sample.args))
    entry.assert_strides(sample, outputs)
    arguments = dict(zip(entry.argument_names, sample.args, strict=True))
    assert [t.dtype for t in outputs] == [arguments[like].dtype for like in entry.output_like], sample.name
    assert_matches_reference(entry, sample, computed(outputs))
    for t, copy in zip(sample.tensors, before, strict=True):
        assert torch.equal(t, copy), f"{sample.name}: an input was written to"


@pytest.mark.capability("strides")
@over_devices
@over_samples("stride")
def test_strides_change_no_value(entry: OpEntry, name: str, device: str) -> None:
    sample = entry.sample(name, torch.float64, device)
    dense = sample.map(lambda t: t.clone(memory_format=torch.contiguous_format))
    pairs = zip(sample.tensors, dense.tensors, strict=True)
    assert any(a.stride() != b.stride() or a.storage_offset() for a, b in pairs), "the table's layout is dense"
    for strided, contiguous in zip(computed(entry.op(*sample.args)), computed(entry.op(*dense.args)), strict=True):
        assert_close(strided, contiguous, name, rtol=1e-13, atol=1e-14)


@over_devices
@over_dtypes()
def test_against_further_oracles(entry: OpEntry, dtype: torch.dtype, mixed: bool, device: str) -> None:
    if not entry.oracles:
        pytest.skip("the reference is the only oracle")
    for oracle, name in itertools.product(entry.oracles, entry.names("basic", "shape", "stride")):
        sample = entry.sample(name, dtype, device, mixed)
        expected = oracle(*sample.double().args)
        if expected is not None:
            actual = entry.op(*sample.args)
            assert_matches_reference(entry, sample, (actual,))
            assert_close(actual.double(), expected, name, rtol=2**-7 if actual.itemsize == 2 else 1e-5, atol=1e-5)


@pytest.mark.capability("empty")
@over_ops()
@over_devices
def test_empty(entry: OpEntry, device: str) -> None:
    empty = [n for n in entry.names("shape") if any(t.numel() == 0 for t in entry.sample(n).tensors)]
    assert empty, "the table has no empty sample"
    for name in empty:
        sample = entry.sample(name, torch.float32, device).requires_grad()
        outputs = entry.sample(name).bind(entry.op)(*sample.tensors)
        assert_matches_reference(entry, sample, outputs)
        gradients = torch.autograd.grad(sum(t.sum() for t in outputs), sample.tensors, allow_unused=True)
        assert all(g is None or g.shape == t.shape for g, t in zip(gradients, sample.tensors, strict=True))


@over_devices
@over_ops()
@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_same_bits_every_time(entry: OpEntry, dtype: torch.dtype, device: str) -> None:
    """In every run, and for any number of threads, except that ATen's matrix products depend on the latter."""
    threads = torch.get_num_threads()
    try:
        for name in entry.names("shape"):
            sample = entry.sample(name, dtype, device)
            first: tuple[torch.Tensor, ...] = ()
            for count in (1, 1, 2, 2, 3, 3):
                if entry.products and count != torch.get_num_threads():
                    first = ()
                torch.set_num_threads(count)
                again = computed(entry.op(*sample.args))
                first = first or again
                assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True)), name
    finally:
        torch.set_num_threads(threads)


@over_devices
@over_samples("basic", "shape")
def test_output_is_new_memory(entry: OpEntry, name: str, device: str) -> None:
    """An output that is an input, or shares its memory, corrupts the graph silently."""
    sample = entry.sample(name, torch.float32, device)
    for out in outputs_of(entry.op(*sample.args)):
        for t in sample.tensors:
            assert out is not t
            assert t.numel() == 0 or out.untyped_storage().data_ptr() != t.untyped_storage().data_ptr()


@over_samples("basic")
def test_public_function_is_the_op(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    if not entry.function:
        pytest.skip("internal op")
    for call, args in ((entry.function, sample.args), (entry.module(*sample.attributes), sample.tensors)):
        pairs = zip(outputs_of(call(*args)), outputs_of(entry.op(*sample.args)), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
