"""Finds and loads the shared library, once per process."""

import warnings
from pathlib import Path

import torch

import cppcuda._build as _build

_PACKAGED = Path(__file__).parent / "lib" / "libcppcuda.so"

_REBUILD = (
    "Rebuild cppcuda with the installed torch: "
    "pip install --no-build-isolation --force-reinstall --no-deps <path to the cppcuda source>"
)


def _release(version: str) -> str:
    """The part of a torch version that determines its C++ ABI: "2.15" for "2.15.0+cu132"."""
    return ".".join(version.split("+")[0].split(".")[:2])


def _check_torch(name: str, torch_version: str, hint: str) -> None:
    """Raises ImportError if torch is not the one built with; loading would fail with undefined symbols."""
    if _release(torch.__version__) != _release(torch_version):
        raise ImportError(
            f"{name} was built with torch {torch_version}, but torch {torch.__version__} is installed. {hint}"
        )


def load_library(path: str | Path, *, name: str, torch_version: str) -> None:
    """Loads a library of operators that somebody else made with the kit.

    Raises:
        ImportError: The file is missing, or torch is another release than the ``torch_version`` that the library was
            built with. The message gives ``name`` and both versions.
    """
    hint = f"Rebuild {name} with the installed torch."
    _check_torch(name, torch_version, hint)
    if not Path(path).is_file():
        raise ImportError(f"{name}: {path} is missing. {hint}")
    torch.ops.load_library(path)


def load() -> Path:
    """Registers the ops and returns the path of their library."""
    registered = torch._C._dispatch_has_kernel("cppcuda::trilinear")
    if not registered:
        _check_torch(f"cppcuda {_build.VERSION}", _build.TORCH_VERSION, _REBUILD)
        if not _PACKAGED.is_file():
            raise ImportError(f"cppcuda: {_PACKAGED} is missing. {_REBUILD}")
        torch.ops.load_library(_PACKAGED)
    try:
        path = Path(torch.ops.cppcuda._library_path())
    except RuntimeError as error:  # the kernels come from another build
        raise ImportError(str(error).splitlines()[0]) from None
    if registered and not (_PACKAGED.is_file() and path.samefile(_PACKAGED)):
        # A second copy in one process would abort: an operator is registered only once.
        warnings.warn(
            f"cppcuda: using {path}, which was loaded first; the package's own {_PACKAGED} is not loaded",
            stacklevel=3,
        )
    return path
