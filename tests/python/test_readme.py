"""The examples of the README and of docs/ run without changes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked import Forked

ROOT = Path(__file__).parents[2]
README, *DOCS = ((ROOT / name).read_text() for name in ("README.md", "docs/python.md", "docs/cpp.md"))


def blocks(language: str) -> list[str]:
    text = "\n".join([README, *DOCS])
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "code",
    blocks("python"),
    ids=["call", "export", "operators", "grid_sample", "scipy", "tcnn", "gradients", "onnx", "dtensor"],
)
def test_python(code: str, tmp_path: Path) -> None:
    # The variables that torchrun --nproc-per-node 1 sets, with a free port.
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    Forked(code, cwd=tmp_path, environment={**os.environ, **alone}).wait()


def command(program: str) -> str:
    """The only block of shell commands that starts with this program."""
    (found,) = (b for b in blocks("sh") if b.startswith(f"{program} "))
    return found


def run(command: str, folder: Path) -> str:
    """Runs a command, with `python` as the interpreter of the tests, and returns its output."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def cpp_program(tmp_path: Path) -> Path:
    (source,) = blocks("cpp")
    (tmp_path / "main.cpp").write_text(source)
    return tmp_path


@pytest.mark.any_torch  # tests/consumer and the smoke test compile programs for every torch
@pytest.mark.compiles
def test_cpp(cpp_program: Path) -> None:
    (project,) = blocks("cmake")
    (cpp_program / "CMakeLists.txt").write_text(project)
    # The other test compiles the program as it is. torch/torch.h takes most of the time.
    main = cpp_program / "main.cpp"
    main.write_text(main.read_text().replace("torch/torch.h", "ATen/ATen.h").replace("torch::", "at::"))
    run(command("cmake"), cpp_program)
    run("cmake --build build", cpp_program)
    assert run("build/app", cpp_program) == "[1000, 8, 32] [1000, 3]\n"


@pytest.mark.any_torch
@pytest.mark.compiles
def test_cpp_without_cmake(cpp_program: Path) -> None:
    assert run(command("g++"), cpp_program) == ""  # the linker has no warnings
    assert run("./app", cpp_program) == "[1000, 8, 32] [1000, 3]\n"


def test_links_work_elsewhere() -> None:
    # Package indexes also show this file.
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert [t for t in targets if not t.startswith("https://")] == []


def test_links_of_docs_lead_to_files() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)]+)\)", text):
            file, _, heading = target.partition("#")
            assert target.startswith("https://") or (page.parent / file).exists(), f"{page.name}: {target}"
            if heading and file.endswith(".md"):
                headings = re.findall(r"^#+ (.*)$", (page.parent / file).read_text(), flags=re.MULTILINE)
                anchors = [
                    re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings
                ]  # as GitHub makes them
                assert heading in anchors, f"{page.name}: {target}"


def test_readme_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= 150 and max(map(len, lines)) <= 120
