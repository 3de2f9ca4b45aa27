"""The wheel that ``pip install .`` makes."""

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import cppcuda
import pytest
import torch
from packaging.metadata import Metadata

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(
        any(find_spec(m) is None for m in ("pip", "scikit_build_core")), reason="pip or scikit-build-core is missing"
    ),
]


def test_wheel_installs_and_works_elsewhere(tmp_path: Path) -> None:
    """Builds for CPU only and several files at once, to save time; the wheel has the same contents."""
    tools = Path(sys.executable).parent
    wheel_command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-build-isolation", "--no-deps", "-q"]
    quickly = {"CPPCUDA_WITH_CUDA": "OFF", "CMAKE_UNITY_BUILD": "ON"}
    settings = [f"-Cbuild-dir={tmp_path / 'build'}", *(f"-Ccmake.define.{k}={v}" for k, v in quickly.items())]
    subprocess.run(
        [*wheel_command, "-w", str(tmp_path), *settings],
        check=True,
        env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
    )
    (wheel,) = tmp_path.glob("cppcuda-*.whl")
    archive = zipfile.ZipFile(wheel)
    names = set(archive.namelist())
    assert {
        "cppcuda/__init__.py",
        "cppcuda/_build.py",
        "cppcuda/py.typed",
        "cppcuda/lib/libcppcuda.so",
        "cppcuda/lib/libcppcuda_kernels.so",
        "cppcuda/lib/cmake/cppcuda/cppcuda-config.cmake",
        "cppcuda/include/cppcuda/ops/trilinear.h",
        # the kit
        "cppcuda/lib/cmake/cppcuda/CppcudaOperators.cmake",
        "cppcuda/include/cppcuda/kit/cuda/launch.cuh",
        "cppcuda/share/cppcuda/src/kit/define.cpp",
        "cppcuda/share/cppcuda/simt/emulator.cpp",
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
    assert not [n for n in others if "test" in n or n.endswith(".cpp")]
    assert not [n for n in names if "_cache" in n or "__pycache__" in n]
    for name in (n for n in names if n.endswith(".so")):
        library = archive.read(name)
        for folder in (ROOT, tmp_path, Path(torch.__file__).parent):
            assert f"{folder}/".encode() not in library, f"{name} names {folder}"
    (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
    described = Metadata.from_email(archive.read(metadata), validate=True)
    assert str(described.version) == cppcuda.__version__
    assert described.license_expression == "MIT" and described.keywords and described.description
    assert "Programming Language :: C++" in (described.classifiers or [])

    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", str(wheel), "--no-deps", "--target", str(site), "-q"], check=True
    )
    code = (
        "import torch, cppcuda; print(cppcuda.library_path());"
        "print(cppcuda.functional.trilinear(torch.ones(2, 8, 3), torch.zeros(2, 3)).sum().item())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    path, value = run.stdout.split()
    assert Path(path) == site / "cppcuda/lib/libcppcuda.so"
    assert float(value) == 6.0
