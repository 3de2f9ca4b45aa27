"""Builds cppcuda from its sources and loads it, without an installation.

In a checkout or an unpacked sdist::

    import sys
    sys.path.insert(0, "<checkout>/python")
    import cppcuda.jit
    cppcuda.jit.load()
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, Literal

from cppcuda import _compile

_ROOT = Path(__file__).parents[2]


def is_installed() -> bool:
    """Whether the package was installed. In a source tree it has only this module until :func:`load` is called."""
    return "cppcuda._build" in sys.modules or importlib.util.find_spec("cppcuda._build") is not None


def load(cuda: Literal["AUTO", "ON", "OFF"] = "AUTO", verbose: bool = False) -> Any:
    """Builds the library from the source tree that this module is in, and loads it.

    After it the package is complete. The library is kept in ``$XDG_CACHE_HOME/cppcuda`` (by default
    ``~/.cache/cppcuda``); what has changed is compiled again. An installed package is loaded as it is. This needs g++,
    cmake and ninja (``pip install cmake ninja``).

    Args:
        cuda: whether to compile the CUDA kernels. ``"AUTO"``: if there are a GPU, a CUDA build of torch and its nvcc.
        verbose: print what the compilers print.

    Returns:
        ``torch.ops.cppcuda``.

    Raises:
        ImportError: A tool is missing, or the build failed. The message has the compiler's first error and the path of
            the whole output.
    """
    import torch

    if not is_installed():
        options, environment = _compile.cuda_options("cppcuda", cuda)
        sources = [
            p for folder in ("include", "src", "cmake") for p in sorted((_ROOT / folder).rglob("*")) if p.is_file()
        ]
        contents = [(str(p), p.read_bytes()) for p in (_ROOT / "CMakeLists.txt", *sources)]
        key = _compile.digest(torch.__version__, options, environment, contents)
        folder = _compile.cache_folder() / f"source-{_compile.digest(str(_ROOT), torch.__version__, sys.prefix)}"
        site = folder / "site" / "cppcuda"
        install: list[str | Path] = ["--install", folder / "build", "--prefix", site]
        python = ["--component", "python"]
        try:
            _compile.build(
                "cppcuda",
                _ROOT,
                folder,
                key,
                options,
                what="cppcuda",
                after=[install, [*install, *python]],
                verbose=verbose,
            )
        except _compile.BuildError as error:
            raise ImportError(str(error)) from None
        spec = importlib.util.spec_from_file_location("cppcuda._build", site / "_build.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules["cppcuda._build"] = module
        spec.loader.exec_module(module)
        package = sys.modules["cppcuda"]
        package._build = module  # type: ignore[attr-defined]
        importlib.reload(package)
    return torch.ops.cppcuda
