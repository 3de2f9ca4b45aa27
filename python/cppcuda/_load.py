"""Finds the library of operators for the installed torch, builds it if there is none, and loads it once per process."""

import importlib.abc
import importlib.machinery
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

import cppcuda._build as _build
from cppcuda import _compile

# The folder with lib/, include/ and share/. In an editable installation the Python files are elsewhere.
PACKAGE: Path = Path(_build.__file__).parent

# The namespaces whose elementwise operators Inductor may compile (_decompose.py), with the versions of their libraries.
decomposed: dict[str, str] = {}
_INDUCTOR = "torch._inductor.config"


def torch_release() -> str:
    """The part of torch's version that determines its C++ ABI: "2.15" for "2.15.0+cu132"."""
    return ".".join(torch.__version__.split("+")[0].split(".")[:2])


def _build_library(name: str, package: Path, problem: str) -> Path:
    source = package / "share" / name
    kernels = package / "lib" / f"lib{name}_kernels.so"
    if not (source / "CMakeLists.txt").is_file() or not kernels.is_file():
        raise ImportError(f"{problem}, and {package} has no sources to build one from. Install {name} again.")
    switch = f"{name.upper()}_BUILD"
    if os.environ.get(switch) == "0":
        raise ImportError(f"{problem}, and {switch}=0 forbids building one.")
    file = kernels.stat()
    key = _compile.digest(str(kernels), file.st_mtime_ns, file.st_size, torch.__version__, sys.prefix)
    folder = _compile.cache_folder() / f"{name}-torch-{torch_release()}-{key}"
    # Only the kernels need nvcc. The kit is in cppcuda's own package.
    options = [f"-D{name.upper()}_WITH_CUDA=OFF", f"-DCMAKE_PREFIX_PATH={PACKAGE}"]
    try:
        return _compile.build(name, source, folder, key, options, what=f"{name} for torch {torch.__version__}")
    except _compile.BuildError as error:
        raise ImportError(f"{problem}, and none could be built: {error}") from None


def _packaged(name: str, package: Path) -> Path:
    return package / "lib" / f"torch-{torch_release()}" / f"lib{name}.so"


def _find_library(name: str, package: Path) -> Path:
    path = _packaged(name, package)
    if path.is_file():
        return path
    releases = [p.parent.name.removeprefix("torch-") for p in package.glob(f"lib/torch-*/lib{name}.so")]
    releases.sort(key=lambda release: [int(number) for number in release.split(".")])
    others = f" (it has libraries for {', '.join(releases)})" if releases else ""
    return _build_library(name, package, f"{name} has no library for torch {torch.__version__}{others}")


class _InductorFinder(importlib.abc.MetaPathFinder):
    """Sets the pass when torch imports Inductor, which takes seconds and which many processes never do."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == _INDUCTOR else None
        if spec is not None and spec.loader is not None:
            sys.meta_path.remove(self)
            execute = spec.loader.exec_module

            def execute_and_install(module: Any) -> None:
                execute(module)
                _set_pass()

            spec.loader.exec_module = execute_and_install  # type: ignore[method-assign]
        return spec


def _set_pass() -> None:
    try:
        importlib.import_module("cppcuda._decompose")
    except (AttributeError, ImportError, KeyError) as error:  # names that are not public; everything else works
        warnings.warn(f"with torch {torch.__version__} elementwise operators are not fused: {error}", stacklevel=2)


def allow_decomposition(namespace: str, library: Path) -> None:
    """Lets Inductor compile the elementwise operators of a library together with their neighbours."""
    if os.environ.get("CPPCUDA_DECOMPOSE") == "0":
        return
    is_first = not decomposed
    file = library.stat()
    decomposed[namespace] = f"{file.st_mtime_ns} {file.st_size}"
    if is_first and _INDUCTOR in sys.modules:
        _set_pass()
    elif is_first:
        sys.meta_path.insert(0, _InductorFinder())


def load_library(name: str, package: str | Path, *, namespace: str | None = None, decompose: bool = True) -> Path:
    """Loads a library of operators that was made with the kit, and returns its path.

    The library is ``<package>/lib/torch-<minor>/lib<name>.so`` for the minor version of the installed torch. If there
    is none, it is built from the sources in the package with g++, cmake and ninja, once, into
    ``$XDG_CACHE_HOME/cppcuda`` (by default ``~/.cache/cppcuda``). The environment variable ``<NAME>_BUILD=0`` forbids
    this. If the operators are registered already, by a library that the process loaded before, that one is used, with a
    warning if it is another file.

    Args:
        name: the library's name, the first argument of ``cppcuda_add_operators``.
        package: the folder that the library was installed into.
        namespace: the namespace of the operators (default: the name).
        decompose: whether ``torch.compile`` may replace elementwise operators by their formulas, to fuse them with
            their neighbours. The environment variable ``CPPCUDA_DECOMPOSE=0`` forbids it for all libraries.

    Raises:
        ImportError: There is no library for the installed torch and it could not be built, or the library and its
            kernels come from different builds.
    """
    package, namespace = Path(package), namespace or name
    registered = torch._C._dispatch_has_kernel(f"{namespace}::_library_path")
    if not registered:
        torch.ops.load_library(_find_library(name, package))
    try:
        path = Path(getattr(torch.ops, namespace)._library_path())
    except RuntimeError as error:  # the kernels come from another build
        raise ImportError(str(error).splitlines()[0]) from None
    packaged = _packaged(name, package)
    if registered and not (packaged.is_file() and path.samefile(packaged)):
        # A second copy in one process would abort: an operator is registered only once.
        warnings.warn(
            f"{name}: using {path}, which was loaded first; the package's own {packaged} is not loaded",
            stacklevel=3,
        )
    if decompose:
        allow_decomposition(namespace, path)
    if hasattr(getattr(torch.ops, namespace), "_found_sizes"):
        importlib.import_module("cppcuda._fake").register_fakes(namespace)
    return path
