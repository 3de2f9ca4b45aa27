"""Two libraries made with different versions of the kit, beside cppcuda, whose operators have the same names.

scripts/test_kit makes them: second_ops.soft_clip(x, beta) is first_ops.soft_clip(x, 2 * beta).
"""

from collections.abc import Callable

import cppcuda
import first_ops
import second_ops
import torch
from torch import Tensor
from torch._dynamo import compiled_autograd


def derivatives(f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, ...]:
    """The value, the gradient by torch.autograd, the second derivative, the tangent, and the gradient under vmap."""
    leaf = x.clone().requires_grad_()
    out = f(leaf)
    (grad,) = torch.autograd.grad(out.sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), leaf)
    _, tangent = torch.func.jvp(f, (x,), (torch.ones_like(x),))
    per_row = torch.vmap(torch.func.grad(lambda row: f(row[None]).sum()))(x)
    return out.detach(), grad.detach(), second, tangent, per_row


def compiled_gradient(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    out = f(leaf).sum()
    with compiled_autograd._enable(torch.compile(backend="aot_eager", fullgraph=True)):
        out.backward()
    assert leaf.grad is not None
    return leaf.grad


def plain_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3)


PAIRS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "first soft_clip": (lambda x: first_ops.soft_clip(x, 0.5), lambda x: x * torch.sigmoid(0.5 * x)),
    "second soft_clip": (lambda x: second_ops.soft_clip(x, 0.5), lambda x: x * torch.sigmoid(x)),
    "cppcuda quick_gelu": (cppcuda.functional.quick_gelu, lambda x: x * torch.sigmoid(1.702 * x)),
    "first norm": (lambda x: first_ops.norm(x, x.new_ones(5), 1e-3), plain_norm),
    "second norm": (lambda x: second_ops.norm(x, x.new_ones(5), 1e-3), plain_norm),
}


def main() -> None:
    x = torch.randn(3, 5, dtype=torch.float64)
    for name, (f, reference) in PAIRS.items():
        torch.testing.assert_close(derivatives(f, x), derivatives(reference, x), msg=lambda m, n=name: f"{n}: {m}")
    # Compiled autograd keeps a graph for each type of node, by the type's name.
    for order in (list(PAIRS), list(reversed(PAIRS))):
        compiled_autograd.reset()
        torch._dynamo.reset()
        for name in order:
            f, reference = PAIRS[name]
            actual, expected = compiled_gradient(f, x), compiled_gradient(reference, x)
            torch.testing.assert_close(actual, expected, msg=lambda m, n=name: f"{n}: {m}")
    paths = {torch.ops.first_ops._library_path(), torch.ops.second_ops._library_path(), str(cppcuda.library_path())}
    assert len(paths) == 3, paths
    print("two_libraries: passed")


if __name__ == "__main__":
    main()
