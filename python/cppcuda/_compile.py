"""Builds a library of operators into a cache folder, once for all processes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import IO

# torch is imported by the functions that need it, because ``python -m cppcuda.kit`` must start without it.

# Messages of compilers that lacked something: the same build may succeed later.
_TEMPORARY = ("No space left on device", "Killed signal")
# The oldest CMake that can configure the kit's projects.
_OLDEST_CMAKE = (3, 26)
_PIP_NAMES = {"cmake": "'cmake>=3.26'"}
# Without a terminal, a build prints its progress after so many seconds.
_PROGRESS_SECONDS = 20
# The instruction sets that CPU kernels are compiled for, oldest first.
INSTRUCTION_SETS = ("base", "avx2", "avx512")


class BuildError(RuntimeError):
    """A library could not be built. The message says why."""


def cache_folder() -> Path:
    """The folder for what is built: ``$XDG_CACHE_HOME/cppcuda``, by default ``~/.cache/cppcuda``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cppcuda"


def _folders(name: str) -> Iterator[str]:
    """The folders that may contain a program: the interpreter's, those of Python packages, and those on PATH.

    A package that is visible here may belong to another environment, whose programs are not on PATH. pip does not
    install it again.
    """
    yield str(Path(sys.executable).parent)
    for package in distributions():
        for file in package.files or ():
            if file.name == name:
                yield str(Path(str(package.locate_file(file))).parent.resolve())
                yield str(package.locate_file("bin"))  # of pip install --target, which records another folder
    yield from os.environ.get("PATH", os.defpath).split(os.pathsep)


def tool(name: str, hint: str = "") -> str:
    """The path of a program. CMake is new enough. The hint says how to install it, by default with pip."""
    hint = hint or f"Run: pip install {_PIP_NAMES.get(name, name)}"
    refused = ""
    for folder in _folders(name):
        program = shutil.which(name, path=folder)
        if not program:
            continue
        if name != "cmake":
            return program
        version = re.search(r"cmake version ((\d+)\.(\d+)\S*)", _version(program))
        if version and (int(version[2]), int(version[3])) >= _OLDEST_CMAKE:
            return program
        refused = refused or f"{program} {f'is version {version[1]}' if version else 'does not run'}"
    if refused:
        raise BuildError(f"CMake {'.'.join(map(str, _OLDEST_CMAKE))} or newer is needed, but {refused}. {hint}")
    raise BuildError(f"{name} was not found. {hint}")


def _compiler() -> str:
    return tool(os.environ.get("CXX") or "c++", "Install g++.")


def _version(program: str) -> str:
    try:
        return subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return ""


def digest(*parts: object) -> str:
    """A name for what depends on all of the parts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def cuda_options(name: str, cuda: str) -> tuple[list[str], str | None]:
    """CMake's options for CUDA ("AUTO", "ON" or "OFF"), and what the environment adds to them."""
    import torch

    environment = os.environ.get("TORCH_CUDA_ARCH_LIST")
    if cuda == "AUTO" and not torch.cuda.is_available():
        cuda = "OFF"
    options = [f"-D{name.upper()}_WITH_CUDA={cuda}"]
    if cuda != "OFF" and environment is None:
        capabilities = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
        architectures = ";".join(f"{major}{minor}-real" for major, minor in sorted(capabilities)) or "90-real"
        options.append(f"-DCMAKE_CUDA_ARCHITECTURES={architectures}")
    return options, environment


def instruction_set() -> str:
    """The newest of INSTRUCTION_SETS that torch uses on this machine."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability().lower()
    return capability if capability in INSTRUCTION_SETS else "base"


@contextmanager
def _locked(what: str, folder: Path) -> Iterator[IO[str]]:
    """Holds the lock of a build folder. If another process holds it, says which one, and waits."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a+")
    except OSError as error:
        raise BuildError(f"cannot write to {folder}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            builder = lock.read().strip() or "another process"
            print(f"{what}: waiting for {builder}, which builds it in {folder}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        yield lock


def _run(command: Sequence[str | Path], lock: IO[str], log: Path, what: str, verbose: bool) -> None:
    """Runs a command that writes to the log. Shows the number of the compiled file, in a file from time to time."""
    on_terminal, printed = sys.stderr.isatty(), time.monotonic()
    with log.open("a") as file:
        # The compilers hold the lock, too: they may go on after this process was killed.
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=[lock.fileno()],
        )
        assert process.stdout
        output = []
        with process:
            for line in process.stdout:
                output.append(line.rstrip())
                file.write(line)
                if verbose:
                    print(line, end="")
                waited = on_terminal or time.monotonic() - printed >= _PROGRESS_SECONDS
                if not verbose and waited and (found := re.match(r"\[\d+/\d+\]", line)):
                    start, end = ("\r", " ") if on_terminal else ("", "\n")
                    print(f"{start}{what}: {found[0]}", end=end, file=sys.stderr, flush=True)
                    printed = time.monotonic()
        if on_terminal and not verbose:
            print(end="\r", file=sys.stderr)
    if process.returncode:
        raise BuildError(f"{what} failed; the whole output is in {log}:\n{_first_error(output)}")


def _first_error(output: list[str]) -> str:
    """The first error with the lines before it that say where it comes from; the middle of long lines is left out.

    The sentence of a static_assert comes first, because many such lines may be before it.
    """
    is_error = re.compile(r"error|undefined reference", re.IGNORECASE)
    first = next((i for i, line in enumerate(output) if is_error.search(line)), max(0, len(output) - 10))
    end = first + 10
    sentence = re.search("static assertion failed: (.*)", output[first]) if output else None
    while first and re.search(r"(In |in |from |required |instantiation )", output[first - 1]):
        first -= 1
    lines = (line if len(line) <= 300 else f"{line[:140]} ... {line[-140:]}" for line in output[first:end])
    return "\n".join([sentence[1], *lines] if sentence else lines)


def build(
    name: str,
    source: Path,
    folder: Path,
    key: str,
    options: Sequence[str] = (),
    *,
    what: str,
    prepare: Callable[[], None] | None = None,
    verbose: bool = False,
) -> Path:
    """Configures and builds a project with the kit, and returns the path of its library.

    Processes that build into the same folder wait for the first one. A build that was interrupted goes on. A build
    that failed is not tried again until the key, the compiler or CMake changes, unless the disk or memory was full.

    Args:
        name: the name of the library in the project.
        source: the project's folder.
        folder: the folder of the build.
        key: changes if the library must be built again.
        options: options for CMake.
        what: the subject of messages.
        prepare: is called before the build, for example to write the sources.
        verbose: print what the compilers print.

    Raises:
        BuildError: A tool is missing, the folder cannot be written, or the build failed. The message has the compiler's
            first error and the path of the whole output.
    """
    import torch

    library, built, failed, log = (folder / file for file in (f"build/lib{name}.so", "built", "failed", "log.txt"))

    def is_built() -> bool:
        return library.is_file() and built.is_file() and built.read_text() == key

    if is_built():
        return library
    with _locked(what, folder) as lock:
        if is_built():  # by the process that this one waited for
            return library
        cmake, ninja, compiler = tool("cmake"), tool("ninja"), _compiler()
        attempt = f"{key}\n{_version(compiler)}{_version(cmake)}"
        if failed.is_file() and failed.read_text().startswith(attempt):
            message = failed.read_text()[len(attempt) :]
            raise BuildError(f"{message}\nIt is tried again when something changes, or if you remove {failed}.")
        print(f"{what}: building it in {folder}", file=sys.stderr)
        configure: list[str | Path] = [cmake, "-S", source, "-B", folder / "build", "-G", "Ninja"]
        configure += [f"-DCMAKE_MAKE_PROGRAM={ninja}", f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=Release"]
        configure += [f"-DCPPCUDA_TORCH_DIR={Path(torch.__file__).parent}", *options]
        try:
            log.unlink(missing_ok=True)
            built.unlink(missing_ok=True)
            failed.unlink(missing_ok=True)
            if prepare:
                prepare()
            _run(configure, lock, log, f"{what}: configuring", verbose)
            _run([cmake, "--build", folder / "build", "--target", name], lock, log, f"{what}: the build", verbose)
            built.write_text(key)
        except OSError as error:
            raise BuildError(f"cannot write to {folder}: {error.strerror}") from None
        except BuildError as error:
            if not any(cause in log.read_text() for cause in _TEMPORARY):
                failed.write_text(f"{attempt}{error}")
            raise
    return library
