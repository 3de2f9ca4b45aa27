"""Formulas of points in Warp, an optional peer on the CPU: pip install warp-lang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import warp as wp
from torch import Tensor

wp.config.quiet = True
wp.init()


@wp.kernel
def _rotate(q: wp.array(dtype=wp.quatf), v: wp.array(dtype=wp.vec3f), out: wp.array(dtype=wp.vec3f)) -> None:  # type: ignore[valid-type]
    i = wp.tid()
    out[i] = wp.quat_rotate(q[i], v[i])


@wp.kernel
def _neo_hookean(f: wp.array(dtype=wp.mat33f), out: wp.array(dtype=wp.float32), mu: float, lam: float) -> None:  # type: ignore[valid-type]
    i = wp.tid()
    log_j = wp.log(wp.determinant(f[i]))
    out[i] = 0.5 * mu * (wp.ddot(f[i], f[i]) - 3.0) - mu * log_j + 0.5 * lam * log_j * log_j


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernel: Any, types: tuple[Any, ...], result: Any, attributes: Any, *tensors: Tensor
    ) -> Tensor:
        inputs = [wp.from_torch(t.detach(), dtype=d, requires_grad=True) for t, d in zip(tensors, types, strict=True)]
        size = tensors[0].shape[:1] + ((3,) if result is wp.vec3f else ())
        out = wp.from_torch(torch.empty(size), dtype=result, requires_grad=True)
        ctx.call = (kernel, inputs, out, attributes)
        wp.launch(kernel, dim=size[0], inputs=inputs, outputs=[out, *attributes], device="cpu")
        return wp.to_torch(out).detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        kernel, inputs, out, attributes = ctx.call
        out.grad = wp.from_torch(grad.contiguous(), dtype=out.dtype)
        wp.launch(
            kernel,
            dim=out.shape[0],
            inputs=inputs,
            outputs=[out, *attributes],
            adj_inputs=[t.grad for t in inputs],
            adj_outputs=[out.grad, *attributes],
            adjoint=True,
            device="cpu",
        )
        return (None, None, None, None, *(wp.to_torch(t.grad) for t in inputs))


def rotate(q: Tensor, v: Tensor) -> Tensor:
    """Warp's quaternions have the real part last, so it rotates by others: it takes the same time."""
    result: Tensor = _Function.apply(_rotate, (wp.quatf, wp.vec3f), wp.vec3f, (), q, v)
    return result


def neo_hookean(f: Tensor, mu: float, lam: float) -> Tensor:
    result: Tensor = _Function.apply(_neo_hookean, (wp.mat33f,), wp.float32, (mu, lam), f)
    return result


PEERS: dict[str, Callable[..., Tensor]] = {"rotate": rotate, "neo_hookean": neo_hookean}
