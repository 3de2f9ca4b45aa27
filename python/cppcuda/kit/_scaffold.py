"""Makes projects from the folder ``template``, which is a project itself: my_ops, with swish, rotate and row_norm."""

from __future__ import annotations

import datetime
import keyword
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

_TEMPLATE = Path(__file__).parent / "template"
_LICENSES = Path(__file__).parent / "licenses"
LICENSES = ("MIT", "BSD-3-Clause", "Apache-2.0")
_KINDS = {"elementwise": "swish", "points": "rotate", "rows": "row_norm"}
# The files that list the operators.
_FAMILY = "src/elementwise/family.h"
_PACKAGE = "python/my_ops/__init__.py"

_Names = str | Sequence[str] | None

# Namespaces of torch and of C++, and names of files beside those of the operators.
_RESERVED_NAMESPACES = {
    "aten",
    "at",
    "c10",
    "caffe2",
    "cppcuda",
    "prim",
    "prims",
    "quantized",
    "std",
    "torch",
    "python",
}
_RESERVED_OPERATORS = {"cpu", "cpu_kernel", "cuda", "export", "family", "kit", "ops", "register", "samples"}
_CPP_KEYWORDS = set(
    """alignas alignof and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
    compl concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
    int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
    register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
    wchar_t while xor xor_eq""".split()
)


class KitError(Exception):
    """A project, an operator or a build cannot be made. The message says why."""


def _check_name(what: str, name: str, reserved: set[str]) -> None:
    if not re.fullmatch(r"[a-z](_?[a-z0-9])*", name):
        raise KitError(
            f"the {what} must be lower-case letters, digits and single underscores, and begin with a letter, "
            f"got {name!r}"
        )
    if name in reserved or name in _CPP_KEYWORDS or keyword.iskeyword(name):
        raise KitError(f"{name!r} is a reserved name; choose another {what}")


def check_namespace(name: str) -> None:
    _check_name("namespace", name, _RESERVED_NAMESPACES)


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


class _Operator:
    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name, self.template = kind, name, _KINDS[kind]

    def rendered(self, text: str, namespace: str) -> str:
        """Text of the template with the names of this operator and of the namespace."""
        names = {"my_ops": namespace, "MY_OPS": namespace.upper()}
        # The files that list the operators have those of one kind in the place of all.
        for template in {self.template, _KINDS["elementwise"]}:
            names |= {template: self.name, _camel(template): _camel(self.name)}
        return re.sub("|".join(names), lambda found: names[found[0]], text)


def _operators(elementwise: _Names, points: _Names, rows: _Names, namespace: str) -> list[_Operator]:
    operators: dict[str, _Operator] = {}
    for kind, given in zip(_KINDS, (elementwise, points, rows), strict=True):
        for name in [given] if isinstance(given, str) else given or ():
            _check_name("operator", name, _RESERVED_OPERATORS | {namespace})
            if name in operators:
                raise KitError(f"the operator {name} is named twice")
            operators[name] = _Operator(kind, name)
    return list(operators.values())


def _template_files() -> list[str]:
    paths = (p.relative_to(_TEMPLATE) for p in _TEMPLATE.rglob("*") if p.is_file())
    return sorted(str(p) for p in paths if not {"__pycache__", ".ruff_cache"} & set(p.parts))


def _operator_of(path: str) -> str | None:
    """The operator of the template that a file belongs to."""
    return next((kind for kind, name in _KINDS.items() if name in path), None)


def _is_of_family(path: str) -> bool:
    return path.startswith("src/elementwise/")


def _is_cuda(path: str) -> bool:
    return "/cuda" in path


def _with_line(path: str, text: str, pattern: str, line: str) -> str:
    """The text with a line among the sorted lines that match the pattern."""
    lines = text.split("\n")
    found = [i for i, other in enumerate(lines) if re.match(pattern, other)]
    if not found:
        raise KitError(f"{path} has no line like {line!r}; add the operator there by hand, or restore the line")
    place = next((i for i in found if lines[i] > line), found[-1] + 1)
    return "\n".join([*lines[:place], line, *lines[place:]])


def _with_member(path: str, text: str, member: str) -> str:
    """The family with one more operator."""
    found = re.search(r"kit::Family<([^<>]*)>", text)
    if not found:
        raise KitError(f"{path} has no list kit::Family<...>; add the operator there by hand, or restore the list")
    members = sorted({*re.split(r",\s*", found[1].strip()), member})
    return text[: found.start(1)] + ", ".join(members) + text[found.end(1) :]


def _operator_files(operator: _Operator, namespace: str, cuda: bool, with_family: bool) -> dict[str, str]:
    """The files of an operator and, if requested, those that make all operators."""
    owners = (operator.kind, None) if with_family else (operator.kind,)
    paths = [p for p in _template_files() if _operator_of(p) in owners and (_operator_of(p) or _is_of_family(p))]
    files = {}
    for path in paths if cuda else [p for p in paths if not _is_cuda(p)]:
        text = (_TEMPLATE / path).read_text()
        if not cuda:
            text = re.sub(r'^    "\S*/cuda/\S*",\n', "", text, flags=re.M)  # in the list of the operator's files
        files[operator.rendered(path, namespace)] = operator.rendered(text, namespace)
    return files


def elementwise_files(namespace: str) -> dict[str, str]:
    """The files of ``src`` that make the operators of an elementwise family, without the family."""
    made = {}
    for path in _template_files():
        if _is_of_family(path) and path != _FAMILY and _operator_of(path) is None:
            made[path.removeprefix("src/")] = (_TEMPLATE / path).read_text().replace("my_ops", namespace)
    return made


def new(
    path: str | Path,
    namespace: str,
    elementwise: str | None = None,
    points: str | None = None,
    rows: str | None = None,
    cuda: bool = True,
    license: str = "MIT",
    author: str | None = None,
) -> list[Path]:
    """Writes a project with one operator to a new folder.

    Args:
        path: the folder, which must not exist.
        namespace: the operators are ``torch.ops.<namespace>.*``; the Python package has this name too.
        elementwise: the name of an elementwise operator, which is made from one formula.
        points: the name of one with a few values for each element, such as quaternions and points.
        rows: the name of one that computes with rows, such as a norm or softmax. Name one of the three.
        cuda: with CUDA kernels, and tests of them that need no GPU.
        license: one of :data:`LICENSES`.
        author: the copyright holder.

    Returns:
        The files.

    Raises:
        KitError: The folder exists, or a name is bad or reserved. Nothing was written.
    """
    folder = Path(path)
    if folder.exists() or folder.is_symlink():
        raise KitError(f"{folder} exists")
    if not folder.absolute().parent.is_dir():
        raise KitError(f"{folder.absolute().parent} is not a folder")
    check_namespace(namespace)
    operators = _operators(elementwise, points, rows, namespace)
    if len(operators) != 1:
        raise KitError("name one operator: elementwise, points or rows")
    (operator,) = operators
    if license not in LICENSES:
        raise KitError(f"the license must be one of {', '.join(LICENSES)}, got {license!r}")
    files = _operator_files(operator, namespace, cuda, with_family=True)
    for shared in (p for p in _template_files() if _operator_of(p) is None and not p.startswith("src/")):
        text = (_TEMPLATE / shared).read_text()
        files[operator.rendered(shared, namespace)] = operator.rendered(text, namespace).replace(
            "LICENSE_NAME", license
        )
    holder = author or f"the authors of {namespace}"
    text = (_LICENSES / license).read_text()
    files["LICENSE"] = text.replace("<year>", str(datetime.date.today().year)).replace("<author>", holder)
    return _write_new(folder, files)


def _write_new(folder: Path, files: dict[str, str]) -> list[Path]:
    """Writes a folder that is complete as soon as it exists."""
    with tempfile.TemporaryDirectory(dir=folder.absolute().parent, prefix=f".{folder.name}-") as temporary:
        whole = Path(temporary) / folder.name
        for name, text in files.items():
            file = whole / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            if text.startswith("#!"):
                file.chmod(0o755)
        whole.rename(folder)
    return [folder / name for name in sorted(files)]


def add(
    path: str | Path,
    elementwise: str | Sequence[str] = (),
    points: str | Sequence[str] = (),
    rows: str | Sequence[str] = (),
) -> list[Path]:
    """Adds operators to a project that :func:`new` made. They have CUDA kernels if the others have.

    Args:
        path: the project's folder.
        elementwise: the name of an elementwise operator, or several names.
        points: the name of an elementwise operator with a few values for each element, or several names.
        rows: the name of an operator that computes with rows, or several names.

    Returns:
        The files that were written or changed.

    Raises:
        KitError: There is no such project, an operator exists, or a name is bad or reserved. Nothing was written.
    """
    folder = Path(path)
    lists = folder / "CMakeLists.txt"
    found = re.search(r"cppcuda_add_operators\(\w+ NAMESPACE (\w+)", lists.read_text()) if lists.is_file() else None
    if not found:
        raise KitError(f"{folder} has no CMakeLists.txt with cppcuda_add_operators(... NAMESPACE ...)")
    operators = _operators(elementwise, points, rows, found[1])
    if not operators:
        raise KitError("name at least one operator: elementwise, points or rows")
    files: dict[str, str] = {}
    for operator in operators:
        files |= _added(folder, files, operator, found[1])
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return [folder / name for name in sorted(files)]


def _added(folder: Path, written: dict[str, str], operator: _Operator, namespace: str) -> dict[str, str]:
    """The files that an operator adds to a project or changes in it, after others that will be written."""

    def current(name: str) -> str | None:
        file = folder / name
        return written.get(name) or (file.read_text() if file.is_file() else None)

    family = current(_FAMILY)
    cuda = any((folder / "src").rglob("*.cu"))
    files = _operator_files(operator, namespace, cuda, with_family=not family)
    existing = [name for name in files if (folder / name).exists()]
    if existing:
        raise KitError(f"{folder / existing[0]} exists: is there an operator {operator.name} already?")
    if family:
        line = f'#include "elementwise/{operator.name}.h"'
        family = _with_line(_FAMILY, family, '#include "elementwise/', line)
        files[_FAMILY] = _with_member(_FAMILY, family, _camel(operator.name))
    package = operator.rendered(_PACKAGE, namespace)
    text = current(package)
    if text is None:
        raise KitError(f"{folder / package} is missing")
    line = f"from {namespace}.{operator.name} import {operator.name}  # noqa: E402"
    text = _with_line(package, text, rf"from {namespace}\.\w+ import ", line)
    files[package] = _with_line(package, text, r'    "\w+",$', f'    "{operator.name}",')
    return files
