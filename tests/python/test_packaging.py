"""The wheel that scripts/build_wheel makes. CPPCUDA_WHEEL is its path."""

import os
import re
import zipfile
from pathlib import Path

import cppcuda
import pytest
import torch
from cppcuda import _load
from packaging.metadata import Metadata
from support import is_for_emulator

ROOT = Path(__file__).parents[2]

WHEEL = Path(os.environ.get("CPPCUDA_WHEEL", "/"))

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif("CPPCUDA_WHEEL" not in os.environ, reason="scripts/test_kit builds the wheel and runs this"),
]


def test_contents() -> None:
    archive = zipfile.ZipFile(WHEEL)
    names = set(archive.namelist())
    assert {
        "cppcuda/__init__.py",
        "cppcuda/_build.py",
        "cppcuda/py.typed",
        f"cppcuda/lib/torch-{_load.torch_release()}/libcppcuda.so",
        f"cppcuda/lib/torch-{_load.torch_release()}/libcppcuda_kit.a",
        "cppcuda/lib/libcppcuda_kernels.so",
        "cppcuda/lib/cmake/cppcuda/cppcuda-config.cmake",
        "cppcuda/share/cppcuda/CMakeLists.txt",
        "cppcuda/share/cppcuda/src/ops/trilinear/op.cpp",
        "cppcuda/include/cppcuda/ops/trilinear.h",
        # the kit
        "cppcuda/lib/cmake/cppcuda/CppcudaOperators.cmake",
        "cppcuda/include/cppcuda/kit/cuda/launch.cuh",
        "cppcuda/share/cppcuda/src/kit/define.cpp",
        "cppcuda/share/cppcuda/emulator/run.cpp",
        "cppcuda/kit/template/.gitignore",
        "cppcuda/kit/template/python/my_ops/swish.py",
        "cppcuda/kit/licenses/MIT",
    } <= names
    script = archive.getinfo("cppcuda/kit/template/scripts/test")
    assert script.external_attr >> 16 & 0o111, "scripts/test of the template cannot be executed"
    assert "cppcuda_pytest.py" in names and "cppcuda/testing/test_operators.py" in names
    (entry_points,) = (n for n in names if n.endswith(".dist-info/entry_points.txt"))
    assert "cppcuda_pytest" in archive.read(entry_points).decode()
    sources = ("cppcuda/testing/", "cppcuda_pytest", "cppcuda/kit/template/", "cppcuda/share/cppcuda/")
    others = {n for n in names if not n.startswith(sources)}
    others -= {f"cppcuda/lib/cmake/cppcuda/{name}.in" for name in ("build.py", "config.cmake", "project.cmake")}
    assert not [n for n in others if "test" in n or n.endswith((".in", ".cpp"))]
    assert not [n for n in names if "_cache" in n or "__pycache__" in n]
    for name in (n for n in names if n.endswith(".so")):
        library = archive.read(name)
        if is_for_emulator(library):
            continue
        for folder in (ROOT, "/tmp", Path(torch.__file__).parent):
            assert f"{folder}/".encode() not in library, f"{name} names {folder}"
    (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
    described = Metadata.from_email(archive.read(metadata), validate=True)
    assert str(described.version) == cppcuda.__version__
    assert [str(r) for r in described.requires_dist or [] if not r.marker] == ["torch>=2.11"]
    assert re.fullmatch(r"cppcuda-[0-9.]+-py3-none-manylinux_2_\d+_x86_64\.whl", WHEEL.name)
    assert described.license_expression == "MIT" and described.keywords and described.description
    assert "Programming Language :: C++" in (described.classifiers or [])
