"""Meta and fake tensors: the shape, dtype and strides of real results, without memory."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from cppcuda.testing.compare import scalar
from cppcuda.testing.registry import DIFFERENTIABLE, checks, dtypes, samples
from cppcuda.testing.samples import OpEntry, apply, outputs_of


def description(t: Tensor, exact: bool) -> dict[str, object]:
    """What Meta must predict. The strides of a tensor without elements, and of dims of size 1, are never used."""
    used = [t.stride(d) if t.shape[d] > 1 else 0 for d in range(t.dim())] if t.numel() else []
    strides = t.stride() if exact else tuple(used)
    where = {"strides": strides, "storage offset": t.storage_offset()}
    return {"shape": tuple(t.shape), **where, "dtype": t.dtype, "layout": t.layout}


def assert_same_descriptions(
    entry: OpEntry, predicted: tuple[Tensor, ...], real: tuple[Tensor, ...], name: str
) -> None:
    for i, tensors in enumerate(zip(predicted, real, strict=True)):
        p, r = (description(t, entry.made_with_kit) for t in tensors)
        for what in p:
            assert p[what] == r[what], f"{name}: output {i} is predicted with {what} {p[what]}, and has {r[what]}"


@checks("meta", over=(dtypes,))
def meta_is_real(entry: OpEntry, dtype: torch.dtype, mixed: bool) -> None:
    for name in entry.names("basic", "shape", "stride"):
        sample = entry.sample(name, dtype, mixed=mixed)
        real = outputs_of(sample.call(entry.op))
        meta = outputs_of(sample.to("meta").call(entry.op))
        assert all(t.is_meta for t in meta), f"{name}: the output is not on meta"
        assert_same_descriptions(entry, meta, real, name)


@checks("meta", over=(samples("basic", "shape", "stride"),), float64=False)
def fake_is_real(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name, entry.usual_dtype)
    real = outputs_of(sample.call(entry.op))
    for device in ("cpu", "cuda"):  # a fake tensor's device need not exist
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:

            def fake(t: Tensor, device: str = device, mode: FakeTensorMode = mode) -> Tensor:
                if device == "cpu":
                    return mode.from_tensor(t)
                return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)

            args = tuple(fake(a) if isinstance(a, Tensor) else a for a in sample.args)
            outputs = outputs_of(apply(entry.op, args))
        assert all(t.device.type == device for t in outputs), f"{name}: the output is not on {device}"
        assert_same_descriptions(entry, outputs, real, f"{name} on {device}")


@checks("meta", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def gradients_on_meta(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name).to("meta").requires_grad()
    outputs = sample.bind(entry.op)(*sample.tensors)
    for _ in range(min(entry.orders, 2)):
        grads = torch.autograd.grad(scalar(outputs), sample.tensors, create_graph=True, materialize_grads=True)
        outputs = grads
        for g, t in zip(grads, sample.tensors, strict=True):
            assert g.shape == t.shape, f"a gradient of shape {g.shape} for {t.shape}"
