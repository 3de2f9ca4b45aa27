"""``python -m cppcuda.kit``: the files, the names in them, and errors. scripts/test_kit builds such projects."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cppcuda.kit import LICENSES, KitError, add, new

pytestmark = pytest.mark.any_torch

KINDS = ("elementwise", "points", "rows")
ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "kit.md"


def make(path: Path, **arguments: object) -> Path:
    new(path, "fast_ops", **arguments)  # type: ignore[arg-type]
    return path


def texts(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_the_template_are_replaced(tmp_path: Path, kind: str) -> None:
    written = new(tmp_path / "p", "fast_ops", **{kind: "soft_clip"})  # type: ignore[arg-type]
    files = texts(tmp_path / "p")
    assert sorted(str(p.relative_to(tmp_path / "p")) for p in written) == sorted(files)
    for name, text in files.items():
        assert not re.search("my_?ops|swish|row_?norm|LICENSE_NAME", name + text, re.I), name
    assert {"python/fast_ops/soft_clip.py", "include/fast_ops/soft_clip.h"} <= files.keys()
    assert (tmp_path / "p/scripts/test").stat().st_mode & 0o111


@pytest.mark.parametrize("kind", KINDS)
def test_files_say_first_what_to_change(tmp_path: Path, kind: str) -> None:
    files = texts(make(tmp_path / "p", **{kind: "soft_clip"}))
    silent = {name for name, text in files.items() if "Change: " not in "\n".join(text.split("\n")[:5])}
    assert silent == {"LICENSE", "python/fast_ops/py.typed"}


@pytest.mark.parametrize("cuda", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_list_the_files_of_the_template(tmp_path: Path, kind: str, cuda: bool) -> None:
    project = make(tmp_path / "p", **{kind: "soft_clip"}, cuda=cuda)
    samples = (project / "python/fast_ops/samples/soft_clip.py").read_text()
    (listed,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(samples).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TEMPLATE_FILES"
    )
    assert sorted(listed) == sorted(name for name in texts(project) if "soft_clip" in name)
    assert "template_files=TEMPLATE_FILES" in samples and "These files are still the template's" in samples
    (declared,) = (name for name in listed if name.endswith("elementwise/soft_clip.h"))
    pointer = "// python/fast_ops/samples/soft_clip.py lists the files that are still the template's."
    assert pointer in (project / declared).read_text().splitlines()


def test_add_lists_operators_in_order(tmp_path: Path) -> None:
    project, other = make(tmp_path / "p", elementwise="middle"), make(tmp_path / "other", elementwise="middle")
    names = ("zeta", "alpha", "c")  # "c" is a part of the names of files beside those of the operators
    for name in names:
        add(project, elementwise=name)
    add(project, rows="norm")
    add(other, elementwise=names, rows="norm")
    assert texts(project) == texts(other)
    family = (project / "src/elementwise/family.h").read_text()
    assert "Family<Alpha, C, Middle, Norm, Zeta>" in family
    names = ["alpha", "c", "middle", "norm", "zeta"]
    assert re.findall(r'"elementwise/(\w+)\.h"', family) == names
    package = (project / "python/fast_ops/__init__.py").read_text()
    assert re.findall(r"^from fast_ops\.(\w+) import \1  # noqa: E402$", package, re.M) == names
    (exported,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(package).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert exported == names


def test_the_first_operator_brings_the_family(tmp_path: Path) -> None:
    project = make(tmp_path / "p", rows="norm")
    add(project, elementwise=["soft_clip", "ramp"], points="turn")
    other = make(tmp_path / "other", points="turn")
    add(other, elementwise="ramp")
    add(other, elementwise="soft_clip", rows="norm")
    assert texts(project) == texts(other)
    assert "Family<Norm, Ramp, SoftClip, Turn>" in (project / "src/elementwise/family.h").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_without_cuda(tmp_path: Path, kind: str) -> None:
    project = make(tmp_path / "p", cuda=False, **{kind: "soft_clip"})
    add(project, elementwise="other_clip")
    assert not [name for name in texts(project) if "cuda" in name or name.endswith((".cu", ".cuh"))]


@pytest.mark.parametrize("license", LICENSES)
def test_license(tmp_path: Path, license: str) -> None:
    project = make(tmp_path / "p", elementwise="soft_clip", license=license, author="A. Nonymous")
    text = (project / "LICENSE").read_text()
    assert license.split("-")[0] in text and "<" not in text.replace("<http", "")
    assert license == "Apache-2.0" or "A. Nonymous" in text
    assert f'license = "{license}"' in (project / "pyproject.toml").read_text()


def unchanged(folder: Path, call: Callable[[], object], message: str) -> None:
    before = texts(folder)
    with pytest.raises(KitError, match=message):
        call()
    assert texts(folder) == before
    assert not [p for p in folder.iterdir() if p.name.startswith(".")]


def test_errors_of_new(tmp_path: Path) -> None:
    existing = make(tmp_path / "p", elementwise="soft_clip")
    path = tmp_path / "q"

    def refused(message: str, *arguments: str, **options: str) -> None:
        unchanged(tmp_path, lambda: new(*arguments, **options), message)  # type: ignore[arg-type]

    refused("p exists", str(existing), "fast_ops", elementwise="x")
    refused("no_such is not a folder", str(tmp_path / "no_such" / "p"), "fast_ops", elementwise="x")
    for namespace in ("aten", "torch", "cppcuda", "std", "class", "import", "int"):
        refused(f"'{namespace}' is a reserved name; choose another namespace", str(path), namespace, elementwise="x")
    for name in ("", "Upper", "9x", "with-dash", "a__b", "_x", "x_", "ä", "a b", "../x"):
        refused("the namespace must be lower-case letters", str(path), name, elementwise="x")
        refused("the operator must be lower-case letters", str(path), "fast_ops", elementwise=name)
    for name in ("family", "samples", "operator", "lambda", "fast_ops"):
        refused(f"'{name}' is a reserved name; choose another operator", str(path), "fast_ops", rows=name)
    refused("name one operator", str(path), "fast_ops")
    refused("name one operator", str(path), "fast_ops", elementwise="x", rows="y")
    refused("must be one of MIT, BSD-3-Clause, Apache-2.0, got 'GPL'", str(path), "fast_ops", rows="x", license="GPL")


def test_errors_of_add(tmp_path: Path) -> None:
    project = make(tmp_path / "p", elementwise="soft_clip")

    def refused(message: str, path: Path = project, **options: str | list[str]) -> None:
        unchanged(tmp_path, lambda: add(path, **options), message)

    refused("name at least one operator")
    refused("the operator x is named twice", elementwise=["x", "y"], rows="x")
    refused("is there an operator soft_clip already", elementwise=["x", "soft_clip"])
    for kind in KINDS:
        refused("is there an operator soft_clip already", **{kind: "soft_clip"})
        refused("'class' is a reserved name", **{kind: "class"})
    refused("has no CMakeLists.txt with cppcuda_add_operators", tmp_path, elementwise="x")
    family = project / "src/elementwise/family.h"
    text = family.read_text()
    family.write_text(text.replace("kit::Family<", "kit::Other<"))
    refused("family.h has no list kit::Family<...>", elementwise="x")
    family.write_text(text)
    (project / "python/fast_ops/__init__.py").write_text("")
    refused("__init__.py has no line like 'from fast_ops.x import x", elementwise="x")


def test_command(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cppcuda.kit", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    done = run("new", "p", "--namespace", "fast_ops", "--elementwise", "soft_clip", "--no-cuda", "--license", "MIT")
    assert done.returncode == 0 and "p/CMakeLists.txt" in done.stdout.splitlines(), done.stderr
    listing = "p/python/fast_ops/samples/soft_clip.py lists the files that are still copies of the template's operator."
    assert listing in done.stdout.splitlines()
    again = run("new", "p", "--namespace", "fast_ops", "--elementwise", "soft_clip")
    assert (again.returncode, again.stdout, again.stderr) == (1, "", "error: p exists\n")
    added = run("add", "p", "--elementwise", "gelu", "ramp", "--rows", "norm", "--rows", "soft_max")
    assert added.returncode == 0 and added.stdout.count(" lists the files that ") == 4, added.stderr


@pytest.mark.parametrize(
    "arguments", ["--help", "new p --namespace fast_ops --elementwise x", "add q --rows y", "tool cmake"]
)
def test_the_command_does_not_import_torch(tmp_path: Path, arguments: str) -> None:
    """It takes seconds, which these commands would mostly consist of."""
    make(tmp_path / "q", elementwise="x")
    command = [sys.executable, "-X", "importtime", "-m", "cppcuda.kit", *arguments.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert done.returncode == 0 and "cppcuda.kit._scaffold" in imported, done.stderr
    assert "torch" not in imported


@pytest.mark.skipif(not TUTORIAL.is_file(), reason="not in a source tree")
def test_the_tutorial_shows_the_template(tmp_path: Path) -> None:
    """scripts/test_kit compiles and runs what the tutorial quotes."""
    page = TUTORIAL.read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.M | re.S)
    for command in next(text for language, text in blocks if language == "sh").splitlines()[:2]:
        words = command.split()
        assert words[:3] == ["python", "-m", "cppcuda.kit"]
        subprocess.run([sys.executable, *words[1:]], cwd=tmp_path, check=True, timeout=300, capture_output=True)
    own_kernels = texts(ROOT / "examples" / "spherical_harmonics" / "src")
    sources = [*(texts(tmp_path / "my_ops") | texts(ROOT / "examples" / "elasticity")).items()]
    sources += [(f"src/{name}", source) for name, source in own_kernels.items()]
    sources += texts(ROOT / "tests" / "second_library").items()
    quoted = [text for language, text in blocks if language in ("cpp", "cmake")]
    assert len(quoted) > 5
    for text in quoted:
        assert [name for name, source in sources if text in source], text
    for name in re.findall(r"`((?:src|cpp_tests|python)/[\w./]+\.\w+)`", page):
        assert name in dict(sources), name
