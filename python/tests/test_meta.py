"""Meta and fake tensors: the shape, dtype and strides of real results, without memory."""

import pytest
import torch
from op_samples import OpEntry, outputs_of
from support import over_dtypes, over_samples, scalar
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode


def description(t: Tensor) -> tuple[object, ...]:
    return t.shape, t.stride(), t.storage_offset(), t.dtype, t.layout


@pytest.mark.capability("meta")
@over_dtypes()
def test_meta_is_real(entry: OpEntry, dtype: torch.dtype, mixed: bool) -> None:
    for name in entry.names("basic", "shape", "stride"):
        sample = entry.sample(name, dtype, mixed=mixed)
        real = outputs_of(entry.op(*sample.args))
        meta = outputs_of(entry.op(*sample.map(lambda t: t.to("meta")).args))
        assert all(t.is_meta for t in meta)
        assert [description(t) for t in meta] == [description(t) for t in real], name


@pytest.mark.capability("meta")
@over_samples("basic", "shape", "stride")
def test_fake_is_real(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name, torch.float32)
    real = outputs_of(entry.op(*sample.args))
    for device in ("cpu", "cuda"):  # a fake tensor's device need not exist
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fakes = sample.map(
                lambda t, device=device, mode=mode: (
                    mode.from_tensor(t)
                    if device == "cpu"
                    else torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)
                )
            )
            fake = outputs_of(entry.op(*fakes.args))
        assert all(t.device.type == device for t in fake)
        assert [description(t) for t in fake] == [description(t) for t in real], device


@pytest.mark.capability("meta")
@over_samples("basic")
def test_gradients_on_meta(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name).map(lambda t: t.to("meta")).requires_grad()
    outputs = sample.bind(entry.op)(*sample.tensors)
    first = torch.autograd.grad(scalar(outputs), sample.tensors, create_graph=True, materialize_grads=True)
    second = torch.autograd.grad(scalar(first), sample.tensors, materialize_grads=True)
    for grads in (first, second):
        assert [g.shape for g in grads] == [t.shape for t in sample.tensors]
