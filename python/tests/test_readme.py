"""The README's examples run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"), ids=["call", "operators", "export", "onnx"])
def test_python(code: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=tmp_path)


def test_cpp(tmp_path: Path) -> None:
    (source,) = blocks("cpp")
    (project,) = blocks("cmake")
    (configure,) = (b for b in blocks("sh") if b.startswith("cmake "))
    (tmp_path / "main.cpp").write_text(source)
    (tmp_path / "CMakeLists.txt").write_text(project)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", configure], check=True, cwd=tmp_path, env=environment)
    subprocess.run(["cmake", "--build", "build"], check=True, cwd=tmp_path, env=environment)
    printed = subprocess.run(["build/app"], check=True, cwd=tmp_path, capture_output=True, text=True).stdout
    assert printed == "[1000, 8, 32] [1000, 3]\n"
