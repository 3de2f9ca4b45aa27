"""Saves a module that uses the op as TorchScript and as AOTInductor package, with inputs and what must come out.

make_models.py <libcppcuda.so> <folder>
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn


class Field(nn.Module):
    """Interpolated features through one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 2)

    def forward(self, feats: Tensor, points: Tensor) -> Tensor:
        return self.linear(torch.ops.cppcuda.trilinear(feats, points))


def main() -> None:
    library, folder = sys.argv[1], Path(sys.argv[2])
    torch.ops.load_library(library)
    torch.manual_seed(0)
    model = Field()
    torch.jit.script(model).save(str(folder / "model.pt"))

    feats, points = torch.randn(10, 8, 6), torch.rand(10, 3) * 2 - 1
    rows = torch.export.Dim("rows", min=1)
    with torch.no_grad():
        exported = torch.export.export(model, (feats, points), dynamic_shapes=({0: rows}, {0: rows}))
        torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / "model.pt2"))

    examples = []
    for n in (10, 1, 300):
        feats, points = torch.randn(n, 8, 6, requires_grad=True), torch.rand(n, 3) * 2 - 1
        out = model(feats, points)
        (grad,) = torch.autograd.grad(out.sum(), feats)
        examples.append((feats.detach(), points, out.detach(), grad))
    torch.save(examples, folder / "examples.pt")


if __name__ == "__main__":
    main()
