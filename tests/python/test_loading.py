"""Loading: the library with and without the package, a second copy of it, kernels of another build."""

import re
import shutil
import subprocess
from pathlib import Path

import cppcuda
import pytest
import torch
from cppcuda import _load
from cppcuda.testing.samples import OPS, forward_ops
from forked import Forked, run_forked

PACKAGE = Path(cppcuda.__file__).parent
LIBRARY = PACKAGE / f"lib/torch-{_load.torch_release()}/libcppcuda.so"


IMPORT_FAILS = """
import sys
sys.path.insert(0, sys.argv[1])
try:
    import cppcuda
except ImportError as error:
    print(error)
else:
    raise SystemExit("imported")
"""


def test_library_path() -> None:
    path = cppcuda.library_path()
    assert path.is_absolute() and path.is_file()
    assert str(path) == torch.ops.cppcuda._library_path()
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "cppcuda" in line}
    assert [Path(m) for m in mapped if m.endswith("libcppcuda.so")] == [path.resolve()]


def test_cmake_prefix_path() -> None:
    assert list(cppcuda.cmake_prefix_path().rglob("cppcuda-config.cmake"))


def test_every_op_is_in_the_table() -> None:
    """An op without an entry would not be tested."""
    names = {n.split("::")[1] for n in torch._C._dispatch_get_all_op_names() if n.startswith("cppcuda::")}
    writing = {name for e in OPS for name in e.writing_names}
    without_entry = {"_library_path", "_torch_version", "_hash_grid_parameters", "_hash_grid_scales"}
    derived = ("_sharding_rule.", "_declaration.", "_decompose_")
    names = {n for n in names if n not in without_entry and not n.startswith(derived)}
    assert names == {e.base_name for e in OPS} | writing
    functions = {e.function.__name__ for e in forward_ops()} | {name for name in writing if name.endswith("_")}
    assert set(cppcuda.functional.__all__) == functions


@pytest.mark.parametrize("entry", OPS, ids=lambda e: e.base_name)
def test_every_key_has_a_kernel(entry) -> None:
    keys = {"CPU", "Meta", "Autograd", "FuncTorchBatched"}
    if cppcuda._build.CUDA:
        keys.add("CUDA")
    if entry.declaration and entry.declaration.autocast != "none":
        keys |= {"AutocastCPU", "AutocastCUDA"}
    missing = {k for k in keys if not torch._C._dispatch_has_kernel_for_dispatch_key(entry.qualified_name, k)}
    assert not missing
    assert torch.Tag.pt2_compliant_tag in entry.op.tags


def test_library_without_the_package() -> None:
    run_forked(
        """
import sys, torch
torch.ops.load_library(sys.argv[1])
feats, points = torch.randn(4, 8, 2, requires_grad=True), torch.zeros(4, 3)
out = torch.ops.cppcuda.trilinear(feats, points)
torch.testing.assert_close(out, feats.mean(1))
out.sum().backward()
torch.testing.assert_close(feats.grad, torch.full_like(feats, 1 / 8))
assert "cppcuda" not in sys.modules
""",
        cppcuda.library_path(),
    )


def test_library_loaded_twice_is_loaded_once() -> None:
    run_forked(
        """
import sys, warnings, torch
warnings.simplefilter("error", UserWarning)
torch.ops.load_library(sys.argv[1])
torch.ops.load_library(sys.argv[1])
import cppcuda
torch.ops.load_library(cppcuda.library_path())
""",
        cppcuda.library_path(),
    )


def test_second_copy_is_not_loaded(tmp_path: Path) -> None:
    """It would abort the process, because an operator can be registered only once."""
    copy = tmp_path / LIBRARY.relative_to(PACKAGE)
    shutil.copytree(PACKAGE / "lib", tmp_path / "lib")
    run_forked(
        """
import sys, warnings, torch
torch.ops.load_library(sys.argv[1])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import cppcuda
messages = [str(w.message) for w in caught if "cppcuda" in str(w.message)]
packaged = sys.argv[2]
assert len(messages) == 1 and sys.argv[1] in messages[0] and packaged in messages[0], messages
assert str(cppcuda.library_path()) == sys.argv[1]
cppcuda.functional.trilinear(torch.zeros(1, 8, 1), torch.zeros(1, 3))
""",
        copy,
        LIBRARY,
    )


def test_import_from_any_folder(tmp_path: Path) -> None:
    done = Forked("import cppcuda; print(cppcuda.library_path())", cwd=tmp_path).wait()
    assert Path(done.out.strip()).samefile(cppcuda.library_path())


def test_every_operator_has_a_header() -> None:
    headers = PACKAGE / "include/cppcuda"
    for name in cppcuda.functional.__all__:
        header = f"cppcuda/ops/{name.removesuffix('_')}.h"
        assert f"#include <{header}>" in (headers / "cppcuda.h").read_text()
        assert f" {name}(" in (headers.parent / header).read_text()


def test_public_names() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", cppcuda.__version__)
    for name in cppcuda.__all__:
        assert hasattr(cppcuda, name)
    for entry in forward_ops():
        function = getattr(cppcuda.functional, entry.base_name)
        assert function.__doc__
        if function is entry.function:  # otherwise it has other arguments, and the table converts them to the op's
            out = {"out"} if entry.writing_names else set()
            assert set(function.__annotations__) == {*entry.argument_names, *out, "return"}
    for name in cppcuda.nn.__all__:
        assert getattr(cppcuda.nn, name).__doc__
    assert (PACKAGE / "py.typed").is_file()


# ---------------------------------------------------------------- the library with the kernels

OTHER_KERNELS = """
struct Table { const char* headers; };
static const Table table{"of another build"};
extern "C" const Table* cppcuda_kernels_v1() { return &table; }
"""


def kernels_of_another_build(folder: Path) -> Path:
    folder.mkdir()
    library = folder / "libcppcuda_kernels.so"
    (folder / "table.cpp").write_text(OTHER_KERNELS)
    command = ["c++", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "table.cpp", "-o", library.name]
    subprocess.run(command, check=True, cwd=folder)
    return library


def assert_names_both(message: str, library: Path, kernels: Path) -> None:
    assert re.fullmatch(
        rf"cppcuda: {re.escape(str(library))} and the library of its kernels, {re.escape(str(kernels))}, come from "
        "different builds\\. Install both from one build, and load no other copy of the kernels before\\.",
        message.strip(),
    ), message


def test_kernels_of_another_build(tmp_path: Path) -> None:
    kernels = kernels_of_another_build(tmp_path / "other")
    site = tmp_path / "site"
    package = shutil.copytree(PACKAGE, site / "cppcuda", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(kernels, package / "lib")
    message = run_forked(IMPORT_FAILS, site)
    assert_names_both(message, package / LIBRARY.relative_to(PACKAGE), package / "lib/libcppcuda_kernels.so")


def test_kernels_of_another_build_that_were_loaded_before(tmp_path: Path) -> None:
    kernels = kernels_of_another_build(tmp_path / "other")
    load = f"import ctypes; ctypes.CDLL({str(kernels)!r})"
    message = run_forked(load + IMPORT_FAILS, PACKAGE.parent)
    assert_names_both(message, cppcuda.library_path(), kernels)

    # Without the package, the first call says so.
    code = f"""{load}
import torch
torch.ops.load_library({str(cppcuda.library_path())!r})
try:
    torch.ops.cppcuda.sigmoid(torch.zeros(2))
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""
    assert_names_both(run_forked(code), cppcuda.library_path(), kernels)


def test_same_kernels_from_another_folder_that_were_loaded_before(tmp_path: Path) -> None:
    """The loaded kernels are used, because the loader compares the names of libraries, not their folders."""
    kernels = Path(shutil.copy(PACKAGE / "lib/libcppcuda_kernels.so", tmp_path))
    code = f"""
import ctypes
ctypes.CDLL({str(kernels)!r})
import cppcuda, torch
assert cppcuda.functional.sigmoid(torch.zeros(2)).tolist() == [0.5, 0.5]
print({{line.split()[-1] for line in open("/proc/self/maps") if "cppcuda_kernels" in line}})
"""
    assert run_forked(code).strip() == str({str(kernels)})
