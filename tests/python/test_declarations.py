"""Wrong declarations of operators do not compile, and the compiler's error says in plain words what is wrong."""

import functools
import re
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
struct Settings {{ double by = 0.25; }};
using Op = kit::OpBase<{declaration}>;
static_assert(Op::name != nullptr);
{uses}
"""
GOOD = '"a::f(Tensor x[B?, N], Tensor? y[B?, N], float by, bool[1] output_mask) -> (Tensor grad(x))"'

pytestmark = [pytest.mark.any_torch, pytest.mark.compiles]


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
        GOOD + ', kit::GradientReads<"x", "y">, kit::Config<Settings, "by", "by">',
        '"a::f(Tensor x[N], float by=25e-2) -> Tensor", kit::Config<Settings, "by", "by">',
        '"a::f(Tensor x[S, 3S + 1], *, Tensor y, str mode=\\"a\\") -> Tensor[S]"',
        '"a::f(Tensor x[N]) -> (Tensor sum[] opmath, Tensor[N] opmath)"',
        '"a::f(Tensor sum[] opmath, Tensor x[N], Tensor? y[N] keep_wide, Tensor z[N] like y) -> Tensor[N]"',
        '"a::f(Tensor x[N], Tensor? y[N] like x = None, SymInt[] s = [1, 2], int[] k=[]) -> (Tensor sum[])"',
        '"a::f( Tensor x[N], SymInt rows[M], SymInt? n = None, int? i=1, int[3] j=0, float[] f=[], bool? b=None, '
        'str? s = None, Scalar a=1, ScalarType? dtype=None, Device? device=None) -> Tensor[M, N]"',
        '"a::f(Tensor x[N], int[]? i, int[2]? j, SymInt[]? n, float[3] f, float[]? g, bool[] b, str[] s, Scalar? a, '
        'ScalarType dtype, Device where, Layout? layout, MemoryFormat? format, Generator? g2=None) -> Tensor[N]"',
        '"a::f(Tensor! x[N], Tensor(cache!)? y[N], Tensor!? z[N], Tensor(b!) u[N]) -> ()"',
        '"a::f(Tensor i[N] int64, Tensor m[N] bool) -> (Tensor[N], Tensor m2[N] bool)"',
        '"a::f(Tensor i[N] int8 or float8_e4m3fn, Tensor x[N], Tensor v[N] any, Tensor w[N] like v) -> Tensor like v"',
        '"a::f(Tensor z[N] complex64 or complex128, Tensor w[N] like z) -> (Tensor grad(z), Tensor grad(w))"',
        '"a::f(Tensor x[A, B, C, D, E, F, G, H]) -> Tensor[A]"',
        '"a::f(Tensor(a!)[] xs[_, F], Tensor?[] ys like z, Tensor[]? zs=None, Tensor z[F], Tensor![] us) -> ()"',
        '"a::f(Tensor[] x, Tensor? y) -> (Tensor, Tensor[] z, Tensor?, int n, float, bool, SymInt, str, int[] sizes)"',
        '"a::f(Tensor(a!) x[N], Tensor y[N]) -> Tensor[N]"',
        '"a::f(Tensor[] xs[N, F]) -> Tensor[N, F]", kit::Sharded<"N">',
        '"a::f(int n, Device? device=None) -> Tensor"',
        '"a::f() -> ()"',
        '"a::f(Tensor x[N - 1, D], Tensor y[D/2, 3D/4 - 2N + 1]) -> Tensor[N, D - 1]"',
        '"a::f(Tensor x[N, F]) -> (Tensor rows[{M}, F], Tensor numbers[M] int64, Tensor[{K}, 2])"',
        f'"a::f({", ".join(f"Tensor x{i}[N]" for i in range(48))}) -> ({", ".join(["Tensor[N]"] * 16)})"',
    ],
)
def test_right_declarations_compile(declaration: str) -> None:
    assert not compile_errors(declaration)


TYPES = (
    "an argument is a Tensor, Tensor(a!), str, int, SymInt, float, bool, Scalar, ScalarType or Device, "
    "one of these with a ?, a list such as int[], int[3] or int[]?, or a Layout?, MemoryFormat? or Generator?"
)
DIMS = "a dim is a number, a capital letter, a product such as 3S or LC, D/2, or a sum such as S + 1"
SUFFIX = "after the sizes of a tensor may come like NAME, opmath, "
NO_TENSOR = "a::f needs a Tensor that is not optional, "
OUTPUT = "an output is a Tensor, Tensor?, Tensor[], int, float, bool, SymInt, str or int[], got "


WRONG = [
    ('"a::f(Tensor x[N] -> Tensor[N]"', "(Tensor x[N] needs a parenthesis after the arguments"),
    ('"a::f(Tensor x[N]) -> (Tensor[N]"', "(Tensor[N] needs a parenthesis after the outputs"),
    ('"a::f(Tensor x[N]) Tensor[N]"', "a::f(Tensor x[N]) Tensor[N] needs -> and its outputs"),
    ('"a::f(Tensor x[N]) ->"', "a::f(Tensor x[N]) -> needs its outputs after ->"),
    ('"a::f(Tensor x[N, M) -> Tensor[N]"', "Tensor x[N, M does not close a bracket"),
    ('"a::f(Tensor xN]) -> Tensor[N]"', "Tensor xN] closes a bracket that it has not opened"),
    ('"a::f Tensor x[N] -> Tensor[N]"', "a::f Tensor x[N] -> Tensor[N] needs a parenthesis before its arguments"),
    ('"f(Tensor x[N]) -> Tensor[N]"', "f is not the name of an operator with its namespace"),
    ('"a::f(Tensr x[N]) -> Tensor[N]"', f"Tensr is an unknown type; {TYPES}"),
    (
        '"a::f(Tensor(a!) x[N]) -> Tensor[N]", kit::Variants',
        "a::f has Variants, which only an operator has that writes to",
    ),
    (
        '"a::f(Tensor[] x) -> Tensor", kit::Variants',
        "a::f has Variants, which only an operator has that writes to nothing",
    ),
    (
        '"a::f(Tensor x[..., N]) -> Tensor[..., N]", kit::StridesOf<"x">',
        "x has strides for outputs only if it is a Tensor",
    ),
    ('"a::f(Tensor(a!) x[N], Tensor(a!)? y[N]) -> ()"', "Tensor(a!) is the type of two arguments; each needs a letter"),
    ('"a::f(Tensor?! x[N]) -> ()"', f"Tensor?! is an unknown type; {TYPES}"),
    ('"a::f(Tensor(1!) x[N]) -> ()"', f"Tensor(1!) is an unknown type; {TYPES}"),
    ('"a::f(Tensor(a) x[N]) -> Tensor[N]"', f"Tensor(a) is an unknown type; {TYPES}"),
    ('"a::f(Tensor[2] x) -> Tensor[N]"', f"Tensor[2] is an unknown type; {TYPES}"),
    ('"a::f(Tensor[][] x) -> Tensor[N]"', f"Tensor[][] is an unknown type; {TYPES}"),
    ('"a::f(Tensor[] x) -> Tensor[N]"', "[N] of an output has a letter whose size no argument says"),
    (
        '"a::f(Tensor[] x) -> (Tensor y[2] opmath)"',
        "a::f has an output with sizes or a dtype, but no Tensor that is not optional",
    ),
    ('"a::f(Tensor[] x opmath) -> Tensor"', "x has the dtype of a Tensor that is not optional, of which there is none"),
    ('"a::f(Tensor x[_, 3_]) -> Tensor"', "[_, 3_] has a _ that is not a dim alone"),
    ('"a::f(Tensor x[{N}]) -> Tensor[N]"', "[{N}] has a letter in braces; only an output has one"),
    ('"a::f(Tensor x[N]) -> Tensor[{N}]"', "[{N}] has a letter in braces whose size something else says"),
    ('"a::f(Tensor x[N]) -> Tensor[{NM}]"', "[{NM}] has braces without one letter between them, as in {M}"),
    ('"a::f(Tensor x[_]) -> Tensor[_]"', "[_] of an output has a dim of any size"),
    ('"a::f(Tensor x[N]) -> Tensor[..., N]"', "[..., N] of an output has ... without an argument that has it"),
    ('"a::f(Tensor x[N], SymInt[2][] s) -> Tensor[N]"', f"SymInt[2][] is an unknown type; {TYPES}"),
    ('"a::f(Tensor x[N], int[a] s) -> Tensor[N]"', f"int[a] is an unknown type; {TYPES}"),
    ('"a::f(Tensor x[N], bool[]? s) -> Tensor[N]"', f"bool[]? is an unknown type; {TYPES}"),
    ('"a::f(Tensor x[N], str[] s=[]) -> Tensor[N]"', "str[] s=[] has a default, which torch supports for no list of"),
    ('"a::f(Tensor x[N], Layout s) -> Tensor[N]"', f"Layout is an unknown type; {TYPES}"),
    (
        f'"a::f(Tensor x[N]{"".join(f", Tensor! y{i}" for i in range(27))}) -> ()"',
        "a::f writes to more than 26 arguments",
    ),
    ('"a::f(Tensor x[N], int?[] s) -> Tensor[N]"', f"int?[] is an unknown type; {TYPES}"),
    ('"a::f(Tensor) -> Tensor[N]"', "an argument is a type and a name, got Tensor"),
    ('"a::f(Tensor x[N, f]) -> Tensor[N]"', f"[N, f] has the part f; {DIMS}"),
    ('"a::f(Tensor x[N, M * 2]) -> Tensor[N]"', f"[N, M * 2] has the part *; {DIMS}"),
    ('"a::f(Tensor x[N, D], Tensor y[D/S]) -> Tensor[N]"', "[D/S] has a / that does not divide a product by a number"),
    ('"a::f(Tensor x[N, D], Tensor y[D/0]) -> Tensor[N]"', "[D/0] has a / that does not divide a product by a number"),
    ('"a::f(Tensor x[N, D/2]) -> Tensor[N]"', "[N, D/2] has letters whose sizes no other pattern says"),
    ('"a::f(Tensor x[N, M?]) -> Tensor[N]"', "[N, M?] has a ? that does not follow the first dim"),
    ('"a::f(Tensor x[N, LCD]) -> Tensor[N]"', "[N, LCD] has a product of more than 2 letters"),
    ('"a::f(Tensor x[A, B, C, D, E, F, G, H, I]) -> Tensor[A]"', "[A, B, C, D, E, F, G, H, I] has more than 8 dims"),
    (f'"a::f(Tensor x[A], Tensor y[{", ".join(["A + 2A + 3A"] * 6)}]) -> Tensor[A]"', "[A + 2A + 3A, A + 2A + 3A,"),
    ('"a::f(Tensor x[A, B, C], Tensor y[A + B + C + 1]) -> Tensor[A]"', "[A + B + C + 1] has a sum of more than 3"),
    ('"a::f(Tensor x[N] int4) -> Tensor[N]"', f"x[N] int4 ends with int4; {SUFFIX}keep_wide, any, or dtypes such as"),
    ('"a::f(Tensor x[N] int8 or float) -> Tensor[N]"', f"x[N] int8 or float ends with int8 or float; {SUFFIX}keep"),
    ('"a::f(Tensor x[N] int8 int16) -> Tensor[N]"', f"x[N] int8 int16 ends with int8 int16; {SUFFIX}keep_wide"),
    (
        '"a::f(Tensor x[N]) -> Tensor y[N] int32 or int64"',
        f"y[N] int32 or int64 ends with int32 or int64; {SUFFIX}or a",
    ),
    ('"a::f(Tensor x[N]) -> Tensor grad(x) int64"', "Tensor grad(x) int64 is a gradient, which has the dtype of its"),
    ('"a::f(Tensor x[N]) -> Tensor grad(x) opmath"', "Tensor grad(x) opmath is a gradient, which has the dtype of its"),
    ('"a::f(Tensor x[N]) -> Tensor y[N] keep_wide"', f"y[N] keep_wide ends with keep_wide; {SUFFIX}or a dtype"),
    ('"a::f(Tensor x[N], float y opmath) -> Tensor"', "y opmath has a dtype; only a tensor has one"),
    ('"a::f(Tensor x[N] keep_wide) -> Tensor"', NO_TENSOR + "and not like another, opmath or keep_wide"),
    ('"a::f(Tensor x[N], float y int32 or int64) -> Tensor"', "y int32 or int64 has a dtype; only a tensor has one"),
    (
        '"a::f(Tensor x[N], Tensor y[N] int32 or int64) -> Tensor grad(y)"',
        "y has a dtype without gradients, int32 or int64",
    ),
    ('"a::f(Tensor x[N], bool[N] output_mask) -> Tensor[N]"', f"bool[N] is an unknown type; {TYPES}"),
    ('"a::f(Tensor x[N, LC], int c[C]) -> Tensor[N]"', "[N, LC] has letters whose sizes no other pattern says"),
    (
        '"a::f(Tensor x[N], float y[N]) -> Tensor[N]"',
        "y[N] has a pattern; only a tensor, a list of tensors or sizes, or",
    ),
    ('"a::f(Tensor x[N]) -> Tensor?[]"', OUTPUT + "Tensor?[]"),
    ('"a::f(Tensor(a!) x[N]) -> Tensor(a!)"', "an output is a new tensor, got Tensor(a!); with Variants, f.out and f_"),
    ('"a::f(Tensor x[N]) -> int?"', OUTPUT + "int?"),
    ('"a::f(Tensor x[N]) -> int n m"', OUTPUT + "int n m"),
    ('"a::f(Tensor x[N]) -> Tensor[N, M]"', "[N, M] of an output has a letter whose size no argument says"),
    ('"a::f(Tensor x[N, 2S]) -> Tensor[N]"', "[N, 2S] has letters whose sizes no other pattern says"),
    ('"a::f(Tensor x[N], Tensor x[N]) -> Tensor[N]"', "two arguments or outputs have the name x"),
    ('"a::f(Tensor x[N], Tensor y[N] like z) -> Tensor[N]"', "no argument has the name z"),
    (
        '"a::f(Tensor? x[N]) -> Tensor[N]"',
        "a::f has an output with sizes or a dtype, but no Tensor that is not optional",
    ),
    ('"a::f(Tensor x[N], Tensor i[N] int8, Tensor y[N] like i) -> Tensor grad(y)"', "y has a dtype without gradients"),
    ('"a::f(Tensor x[N], bool[2] output_mask) -> Tensor[N]"', "bool[2] output_mask must have an entry for each output"),
    (f'"a::f(Tensor x[N]{", int n" * 48}) -> Tensor[N]"', "a::f(Tensor x[N], int n,"),
    (GOOD + ', kit::Independent<"M">', "no dim of an argument is M alone"),
    ('"a::f(Tensor x[2N, S + 1], Tensor s[S]) -> Tensor[2N]", kit::Independent<"N">', "no dim of an argument is N"),
    (GOOD + ', kit::GradientReads<"z", "y">', "no output is the gradient of z"),
    (GOOD + ', kit::GradientReads<"x", "z">', "no argument has the name z"),
    ('"a::f(Tensor x[N], float by=0.5) -> Tensor", kit::Config<Settings, "by", "by">', "by=0.5 is not the default of"),
    (GOOD + ', kit::Config<Settings, "z", "by">', "no argument has the name z"),
    (GOOD + ', kit::Config<Settings, "output_mask", "by">', "output_mask comes after by"),
    (GOOD + ', kit::Config<Settings, "y", "by">', "y is a tensor, which a Config cannot have"),
]


@functools.cache
def errors_of_wrong_declarations() -> dict[int, str]:
    """One run of the compiler takes as long for all of them as for one."""
    uses = (
        f'#line {i} "wrong"\nusing Wrong{i} = kit::OpBase<{wrong}>; static_assert(Wrong{i}::name);'
        for i, (wrong, _) in enumerate(WRONG, 1)
    )
    errors = compile_errors(GOOD, "\n".join(uses))
    found = re.findall(
        r"^wrong:(\d+):\d+:   required from here\n\S* error: .*?Mistake\{\"(.*?)\"\}", errors, re.MULTILINE
    )
    return {int(line): mistake for line, mistake in found}


@pytest.mark.parametrize("i", range(len(WRONG)), ids=[wrong for wrong, _ in WRONG])
def test_wrong_declarations_do_not_compile(i: int) -> None:
    """The compiler prints the wrong text, and what is allowed."""
    assert errors_of_wrong_declarations()[i + 1].startswith(WRONG[i][1])


def documented() -> list[str]:
    """The examples of docs/declarations.md, with their policies. Outputs can be hidden in kit::Op only."""
    page = (INCLUDE.parent / "docs" / "declarations.md").read_text()
    found = re.findall(r"`(my_ops::[^`]*->[^`]*)`(?:, `(kit::[^`]*)`)?", page)
    found += re.findall(r'kit::Op<"(my_ops::[^"]*)",\s*(kit::.*)>;', page)
    texts = (text.replace("hidden ", "").replace('"', '\\"') for text, _ in found)
    return [f'"{text}"' + (policy and f", {policy}") for text, (_, policy) in zip(texts, found, strict=True)]


def test_documented_declarations_compile() -> None:
    assert len(documented()) >= 40
    uses = (f"static_assert(kit::OpBase<{declaration}>::name != nullptr);" for declaration in documented())
    assert not compile_errors(GOOD, "\n".join(uses))


def test_documented_dtypes_and_types_are_all() -> None:
    page = (INCLUDE.parent / "docs" / "declarations.md").read_text()
    header = (INCLUDE / "cppcuda" / "kit" / "schema.h").read_text()
    for table in ("attribute_types", "dtype_names"):
        names = re.findall(r'"([^"]+)"', header.split(f" {table}[] = {{")[1].split("};")[0])
        assert len(names) > 10
        for name in names:
            plain = name.rstrip("?").removesuffix("[]")
            assert re.search(rf"`{re.escape(plain)}(\[\])?\??`", page), name


FORWARD = '"a::f(Tensor x[N], Tensor? y[N] like x, Tensor i[N] int32 or int64, float by) -> Tensor[N]"'


def backward_of(forward: str, *policies: str) -> str:
    """The errors of BackwardOf, which also parses the text that it derives."""
    names = ", ".join(("Op", "Op", *policies))
    return compile_errors(
        forward,
        f"using Text = kit::detail::BackwardText<{names}>;"
        f"using Backward = kit::OpBase<{', '.join(('kit::detail::fixed_string<Text::text>()', *policies))}>;"
        "static_assert(Backward::declaration.outputs.size() > 0);",
    )


def test_right_backward_operators_compile() -> None:
    assert not backward_of(FORWARD, 'kit::GradientReads<"x", "x", "y">', 'kit::GradientReads<"y", "x">')


@pytest.mark.parametrize(
    ("forward", "policies", "message"),
    [
        (FORWARD, (), "a::f needs GradientReads for its backward operator"),
        (FORWARD, ('kit::GradientReads<"z">',), "no tensor among the arguments has the name z"),
        (FORWARD, ('kit::GradientReads<"by">',), "no tensor among the arguments has the name by"),
        (FORWARD, ('kit::GradientReads<"i">',), "i has a dtype without gradients, int32 or int64"),
        (FORWARD, ('kit::GradientReads<"x", "z">',), "no argument has the name z"),
        (FORWARD, ('kit::GradientReads<"x">', 'kit::FurtherArguments<"it n">'), "it is an unknown type"),
        ('"a::f(Tensor x[N]) -> Tensor"', ('kit::GradientReads<"x">',), "a::f has an output without sizes, from which"),
        (
            '"a::f(Tensor x[N], Tensor[] y) -> Tensor[N]"',
            ('kit::GradientReads<"x">',),
            "a::f has no derivatives: it writes",
        ),
    ],
)
def test_wrong_backward_operators_do_not_compile(forward: str, policies: tuple[str, ...], message: str) -> None:
    assert f'Mistake{{"{message}' in backward_of(forward, *policies)


def test_the_mistake_is_the_first_error() -> None:
    lines = compile_errors('"a::f(Tensr x[N]) -> Tensor[N]"').splitlines()
    first = next(i for i, line in enumerate(lines) if " error: " in line)
    assert "DeclarationWith<cppcuda::kit::" in lines[first] and 'Mistake{"Tensr is an unknown type' in lines[first]
    assert first <= 4


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
        ('constexpr auto i = kit::argument_index<Op, "z">();', "no argument has this name"),
        ('constexpr auto i = kit::attribute_index<Op, "x">();', "this argument is a tensor"),
    ],
)
def test_wrong_names_do_not_compile(use: str, message: str) -> None:
    assert f'"{message}"' in compile_errors(GOOD, NAMES + use)
