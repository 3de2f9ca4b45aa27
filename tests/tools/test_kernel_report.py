"""tools/kernel_report.py, with excerpts of cuobjdump's output, and what it reports of the built library.

CPPCUDA_KERNEL_REPORT  the JSON file of that report, which scripts/test makes; its text is beside it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support import load_script

SCRIPT = Path(__file__).parents[2] / "tools" / "kernel_report.py"


report = load_script(SCRIPT)


def code_of(text: str) -> list:
    """Instructions from lines of `[@guard] opcode operands`, with the addresses that a listing would have."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return [report.parse_instruction(f"        /*{16 * i:04x}*/   {line} ;  /* 0x0 */") for i, line in enumerate(lines)]


def kernel_of(function: str, text: str, resources: object = None, arch: str = "sm_90") -> object:
    resources = resources or report.Resources(registers=32, stack=0, shared=0, local=0)
    return report.kernel_of(arch, "symbol", function, code_of(text), resources)


TRILINEAR = "void cppcuda::ops::trilinear::{}(cppcuda::ops::trilinear::Params<c10::Half, float>, int)"
PACKS = TRILINEAR.format("forward_kernel<8, c10::Half, float>")
SCALARS = TRILINEAR.format("forward_kernel<1, c10::Half, float>")

# ---------------------------------------------------------------- what cuobjdump prints

LISTING = """
	code for sm_90
		Function : _Z3onev
	.headerflags	@"EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                            /* 0x00000a00ff017b82 */
                                                                                     /* 0x000fe20000000800 */
        /*0010*/              @!P0 LDG.E.128 R8, desc[UR4][R34.64+0x10] ;            /* 0x0000000422088981 */
                                                                                     /* 0x000ea2000c1e1d00 */
        /*0020*/                   EXIT ;                                            /* 0x000000000000794d */
		Function : _Z3twov
        /*0000*/                   LDG.E.U16.SYS R0, [R2] ;                          /* 0x0000000002007381 */
"""


def test_listing() -> None:
    (one, code), (two, other) = report.parse_listing(LISTING.splitlines())
    assert (one, two) == ("_Z3onev", "_Z3twov")
    assert [i.opcode for i in code] == ["LDC", "LDG.E.128", "EXIT"]
    assert code[1] == (0x10, "!P0", "LDG.E.128", ("R8", "desc[UR4][R34.64+0x10]"))
    assert (code[1].is_load, code[1].bytes, other[0].bytes) == (True, 16, 2)
    assert not code[0].is_load and not code[0].is_local


def test_resources() -> None:
    lines = """
Resource usage:
 Common:
  GLOBAL:46 CONSTANT[4]:368
 Function _Z3onev:
  REG:32 STACK:56 SHARED:5120 LOCAL:8 CONSTANT[0]:728 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
    assert report.parse_resources(lines.splitlines()) == {"_Z3onev": report.Resources(32, 56, 5120, 8)}


def test_architectures_in_order() -> None:
    lines = [f"ELF file    {i}: libcppcuda.{i}.{arch}.cubin" for i, arch in enumerate(["sm_100", "sm_90", "sm_90"])]
    assert report.architectures(lines) == ["sm_90", "sm_100"]


# ---------------------------------------------------------------- names


def test_names() -> None:
    symbol = "_ZN7cppcuda3ops9trilinear14forward_kernelILi8EN3c104HalfEfEEvNS1_13ForwardParamsIT0_T1_EEi"
    function = report.demangle(symbol)
    assert report.is_ours(function)
    assert report.short_name(function) == "trilinear::forward_kernel<8, Half, float>"
    assert report.op_of(function) == "trilinear"
    elementwise = (
        "void cppcuda::kit::detail::elementwise_dense_kernel"
        "<4, cppcuda::kit::detail::ElementwiseBackward<cppcuda::elementwise::QuickGelu>, float>"
        "(cppcuda::kit::detail::DenseParams<"
        "cppcuda::kit::detail::ElementwiseBackward<cppcuda::elementwise::QuickGelu>, float>)"
    )
    assert report.short_name(elementwise) == "elementwise_dense_kernel<4, ElementwiseBackward<QuickGelu>, float>"
    assert report.op_of(elementwise) == "quick_gelu"


def test_kernels_of_cuda_headers_are_not_ours() -> None:
    assert not report.is_ours("void cub::_V_300200_SM_900::detail::EmptyKernel<void>()")
    assert not report.is_ours("void cub::detail::reduce<cppcuda::ops::trilinear::Sum>(float*)")


@pytest.mark.parametrize(
    ("name", "packs"),
    [
        ("trilinear::forward_kernel<8, Half, float>", True),
        ("trilinear::forward_kernel<1, Half, float>", False),
        ("trilinear::backward_kernel<2, false, true, double, double>", True),
        ("lltm_cell::forward_kernel<4, BFloat16, float>", True),  # the state is in packs of float32
        ("lltm_cell::forward_kernel<4, BFloat16, BFloat16>", False),
        ("elementwise_dense_kernel<4, ElementwiseBackward<Sigmoid>, float>", True),
        ("elementwise_strided_kernel<ElementwiseBackward<Sigmoid>, float>", False),
        ("plain_kernel", False),
    ],
)
def test_kernels_with_packs(name: str, packs: bool) -> None:
    assert report.moves_packs(name) == packs


# ---------------------------------------------------------------- what is wrong


def test_spill_is_found() -> None:
    text = """
        LDG.E.128 R16, desc[UR4][R2.64+0x1000]
        STL.64 [R1+0x10], R16
        LDL.LU R2, [R1+0x4]
    """
    kernel = kernel_of(PACKS, text, report.Resources(registers=32, stack=56, shared=0, local=0))
    assert (kernel.spills, kernel.local) == (2, 56)
    (problem,) = kernel.problems
    assert "56 bytes" in problem


def test_local_memory_is_wrong_without_packs_too() -> None:
    assert kernel_of(SCALARS, "EXIT", report.Resources(32, 0, 0, 16)).problems


def test_packs_need_16_byte_accesses() -> None:
    text = "LDG.E.64 R4, desc[UR4][R2.64]\nSTG.E.64 desc[UR4][R8.64], R12"
    assert kernel_of(PACKS, text).problems == ("no 16-byte accesses in a kernel with packs",)
    assert not kernel_of(SCALARS, text).problems


def test_a_split_pack_is_found() -> None:
    """From the backward of trilinear, which stored one of eight packs of float16 in this way."""
    text = """
        LDG.E.128 R12, desc[UR8][R12.64]
        STG.E desc[UR8][R16.64], R43
        F2FP.F16.F32.PACK_AB R15, R42, R15
        STG.E desc[UR8][R16.64+0x8], R49
        STG.E desc[UR8][R16.64+0x4], R47
        STG.E desc[UR8][R16.64+0xc], R51
        STG.E.128 desc[UR8][R44.64], R12
    """
    assert kernel_of(PACKS, text).problems == (
        "1 split packs (stores): kit::load and kit::store access 16 bytes with one instruction",
    )
    assert not kernel_of(SCALARS, text).problems


def test_multiplications_per_load_of_shared_memory() -> None:
    text = "LDS.128 R4, [R2]\n" + 6 * "FFMA R8, R4, R9, R8\n"
    assert kernel_of(SCALARS, text).fma_per_load == 6
    assert kernel_of(SCALARS, "LDS R4, [R2]\nFFMA R8, R4, R9, R8").fma_per_load is None


def test_three_numbers_are_not_a_pack() -> None:
    """The gradient of a point, in float32 and in float64. The next point, through the same register, is separate."""
    for width, size in (("", 4), (".64", 8)):
        stores = "\n".join(f"STG.E{width} desc[UR8][R16.64+{i * size:#x}], R4" for i in range(3))
        text = f"LDG.E.128 R12, desc[UR8][R12.64]\n{stores}\nIADD3 R16, P0, R16, R2, RZ\n{stores}"
        assert not kernel_of(PACKS, text).problems


# ---------------------------------------------------------------- as a whole


def test_missing_library(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(tmp_path / "none.so")]) == 2
    assert "no such library" in capfd.readouterr().err


def test_built_library() -> None:
    name = os.environ.get("CPPCUDA_KERNEL_REPORT")
    if not name:
        pytest.skip("CPPCUDA_KERNEL_REPORT is not set (scripts/test sets it if the kernels have machine code)")
    kernels = json.loads(Path(name).read_text())
    assert {k["op"] for k in kernels} >= {"lltm_cell", "quick_gelu", "sigmoid", "trilinear", "upsample_bilinear2d"}
    count = len({k["arch"] for k in kernels})
    assert f"{len(kernels)} kernels, {count} architecture" in Path(name).with_suffix(".txt").read_text()
