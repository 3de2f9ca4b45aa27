"""cppcuda.kit.load builds operators from single files and a project. scripts/test_kit runs this in an empty folder."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import torch
from cppcuda.kit import KitError, add, load, new

ROOT = Path(__file__).parents[2]
HEADER = (ROOT / "tests/second_library/elementwise/swish.h").read_text()
BROADCASTING = (ROOT / "tests/second_library/elementwise/gated.h").read_text()
OPERATOR = (ROOT / "examples/one_file/row_sum.cpp").read_text()
SOURCES = ["swish.h", "row_sum.cpp", "included.h"]


def output_of_load(*arguments: object) -> str:
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        load(*arguments)  # type: ignore[arg-type]
    return printed.getvalue()


def check_emulated_device() -> None:
    """Compiling CUDA kernels, and running them in the emulator, needs no GPU."""
    new("project", "with_cuda", elementwise="swish")
    add("project", elementwise="gated", rows="norm")
    Path("project/src/elementwise/gated.h").write_text(BROADCASTING.replace("second", "with_cuda"))
    Path("project/src/elementwise/gated.cpp").unlink()  # the C++ function, which has other arguments
    try:
        ops = load("with_cuda", "project/src", emulate=True)
    except KitError as error:
        if not re.search("no nvcc .*was found", " ".join(str(error).split())):
            raise
        print("kit_load: CUDA SKIPPED, there is no nvcc")
        return
    assert torch.cuda.is_available()
    swish = ops.swish
    x = torch.randn(3, 5, dtype=torch.float64).cuda().requires_grad_()
    torch.testing.assert_close(swish(x, 1.5), x * torch.sigmoid(1.5 * x))
    assert torch.autograd.gradgradcheck(lambda t: swish(t, 1.5), x)
    (gradient,) = torch.autograd.grad(swish(x, 1.5).sum(), x)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(lambda t: swish(t, 1.5).sum()))(x), gradient)
    for gate in (x.detach()[0].cos(), x.detach()[:, :1].sin(), x.detach()[0, 0].clone()):
        inputs = (x, gate.requires_grad_())
        torch.testing.assert_close(ops.gated(*inputs), x * torch.sigmoid(gate))
        assert torch.autograd.gradgradcheck(ops.gated, inputs)
    weight = torch.rand(5, dtype=torch.float64).cuda().requires_grad_()
    expected = weight * x / ((x * x).mean(-1, keepdim=True) + 1e-3).sqrt()
    torch.testing.assert_close(ops.norm(x, weight, 1e-3), expected)
    assert torch.autograd.gradgradcheck(lambda *t: ops.norm(*t, 1e-3), (x, weight))
    # torch's operators, one of which resizes its output, and one that returns views
    total = torch.empty(0, dtype=x.dtype, device="cuda")
    torch.add(*x.detach().split([1, 2])[1], out=total)
    torch.testing.assert_close(total.cpu(), x.detach().cpu()[1:].sum(0))


def main() -> None:
    check_emulated_device()  # before the first backward
    Path("swish.h").write_text(HEADER.replace("second", "notebook"))
    included = "#include <torch/library.h>\n"
    assert included in OPERATOR
    Path("row_sum.cpp").write_text(
        OPERATOR.replace("one_file", "notebook").replace(included, '#include "included.h"\n')
    )
    Path("included.h").write_text(f"#pragma once\n{included}")
    ops = load("notebook", SOURCES)
    x = torch.randn(3, 5, dtype=torch.float64)
    torch.testing.assert_close(ops.swish(x, 1.5), x * torch.sigmoid(1.5 * x))
    torch.testing.assert_close(ops.row_sum(x), x.sum(-1))
    hessian = torch.func.hessian(lambda v: ops.swish(v, 1.5).sum())(x[0])
    torch.testing.assert_close(hessian, torch.func.hessian(lambda v: (v * torch.sigmoid(1.5 * v)).sum())(x[0]))

    assert output_of_load("notebook", SOURCES) == "", "the second call builds again"
    program = f"from cppcuda.kit import load; print(load('notebook', {SOURCES}).swish)"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "building" not in other.stderr and "notebook.swish" in other.stdout, other.stderr

    assert not torch._C._dispatch_has_kernel_for_dispatch_key("notebook::swish", "CUDA")

    Path("broken.cpp").write_text('#include "cppcuda/kit/define.h"\nint f() { return missing_name; }\n')
    for _ in range(2):  # the second error is the kept one
        try:
            load("broken", "broken.cpp")
        except KitError as error:
            assert "missing_name" in str(error) and "log.txt" in str(error), error
        else:
            raise AssertionError("no error")
    print("kit_load: passed")


if __name__ == "__main__":
    main()
