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


@pytest.mark.parametrize("code", blocks("python"), ids=["call", "operators", "export", "onnx", "dtensor"])
def test_python(code: str, tmp_path: Path) -> None:
    # As torchrun --nproc-per-node 1 sets it, with a port that is free.
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, **alone})


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


def test_links_work_elsewhere() -> None:
    # Package indexes show the file too.
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert [t for t in targets if not t.startswith("https://")] == []
