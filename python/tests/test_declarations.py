"""Wrong declarations of operators do not compile, and the compiler's error says in plain words what is wrong."""

import shutil
import subprocess
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[2] / "include"
if not (INCLUDE / "cppcuda" / "kit").is_dir():
    pytest.skip("not in a source tree", allow_module_level=True)
if not shutil.which("c++"):
    pytest.skip("no compiler", allow_module_level=True)

PROGRAM = """
#include "cppcuda/kit/names.h"
namespace kit = cppcuda::kit;
using Op = kit::Declare<{declaration}>;
static_assert(Op::declaration.arguments.size() > 0);
{uses}
"""
GOOD = '"a::f(Tensor x[B?, N], Tensor? y[B?, N], float by, bool[1] output_mask) -> (Tensor grad(x))"'

pytestmark = pytest.mark.any_torch


def compile_errors(declaration: str, uses: str = "") -> str:
    """The errors of the compiler. The headers that parse declarations include nothing from torch."""
    program = PROGRAM.format(declaration=declaration, uses=uses)
    command = ["c++", "-std=c++20", "-fsyntax-only", "-fmessage-length=0", f"-I{INCLUDE}", "-x", "c++", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True)
    assert (done.returncode == 0) == (not done.stderr), done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "declaration",
    [
        GOOD,
        GOOD + ', kit::GradientReads<"x", "y">, kit::MayBeWider<"y">',
        '"a::f(Tensor x[S, 3S + 1], *, Tensor(a!) y, str mode=\\"a\\") -> ()"',
    ],
)
def test_right_declarations_compile(declaration: str) -> None:
    assert not compile_errors(declaration)


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ('"a::f(Tensor x[N] -> Tensor[N]"', "a schema needs a parenthesis after its arguments"),
        ('"a::f(Tensor x[N]) -> (Tensor[N]"', "a schema needs a parenthesis after its outputs"),
        ('"a::f(Tensor x[N]) Tensor[N]"', "a schema needs -> and its outputs"),
        ('"f(Tensor x[N]) -> Tensor[N]"', "the name of an operator needs its namespace"),
        ('"a::f(Tensr x[N]) -> Tensor[N]"', "unknown type in a schema"),
        ('"a::f(Tensor x[N, f]) -> Tensor[N]"', "not a pattern of sizes"),
        ('"a::f(Tensor x[N]) -> Tensor[N, M]"', "an output has a letter whose size no argument says"),
        ('"a::f(Tensor x[N] like z) -> Tensor[N]"', "no argument has this name"),
        ('"a::f(Tensor x[N], bool[2] output_mask) -> Tensor[N]"', "output_mask must have an entry for each output"),
        (GOOD + ', kit::MayBeWider<"z">', "no argument has this name"),
        (GOOD + ', kit::Independent<"M">', "no dim of an argument is this letter alone"),
        ('"a::f(Tensor x[2N, S + 1], Tensor s[S]) -> Tensor[2N]", kit::Independent<"N">', "no dim of an argument is"),
        (GOOD + ', kit::GradientReads<"z", "y">', "no output is the gradient of this name"),
        (GOOD + ', kit::GradientReads<"x", "z">', "no argument has this name"),
    ],
)
def test_wrong_declarations_do_not_compile(declaration: str, message: str) -> None:
    assert f'"{message}' in compile_errors(declaration)


NAMES = "kit::Named<int, 2, kit::InputKey<Op>> named; kit::Named<int, 1, kit::OutputKey<Op>> outputs;"


@pytest.mark.parametrize(
    "use",
    [
        'int i = named["y"] + outputs["grad(x)"];',
        'constexpr auto reads = kit::reads<Op>({{"x", {"y", "grad(x)"}}});',
        'constexpr auto i = kit::attribute_index<Op, "by">();',
    ],
)
def test_right_names_compile(use: str) -> None:
    assert not compile_errors(GOOD, NAMES + use)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ('int i = named["z"];', "no tensor among the arguments has this name"),
        ('int i = named["by"];', "no tensor among the arguments has this name"),
        ('int i = outputs["x"];', "no output has this name"),
        (
            'constexpr auto reads = kit::reads<Op>({{"x", {"z"}}});',
            "no tensor among the arguments and outputs has this name",
        ),
        ('constexpr auto reads = kit::reads<Op>({{"z", {"x"}}});', "no tensor among the arguments has this name"),
        ('constexpr auto i = kit::attribute_index<Op, "z">();', "no argument has this name"),
        ('constexpr auto i = kit::attribute_index<Op, "x">();', "this argument is a tensor"),
    ],
)
def test_wrong_names_do_not_compile(use: str, message: str) -> None:
    assert f'"{message}"' in compile_errors(GOOD, NAMES + use)
