"""docs/audit.md: each finding still prints what the page says, with the version of torch that was audited."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch
from support import run_python
from test_docs_what_goes_wrong import RUN_BLOCKS, Block, read_blocks

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
PACKAGES = ("torchvision", "torch_scatter", "entmax")


def blocks_of(package: str) -> list[Block]:
    """The imports, and the blocks of one package; of torch, if it is empty."""
    first, *blocks = read_blocks_with_imports()
    used = [(b, re.findall(r"^import (\w+)", b.code, re.MULTILINE)) for b in blocks]
    return [first, *(b for b, imports in used if imports == ([package] if package else []))]


def read_blocks_with_imports() -> list[Block]:
    """The first block prints nothing."""
    page = PAGE.read_text()
    imports, code = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL), page.split("```\n", 1)[1]
    assert imports
    return [Block(1, imports[1]), *read_blocks(code)]


@pytest.mark.skipif(not torch.__version__.startswith("2.15."), reason="the page is about torch 2.15")
@pytest.mark.parametrize("package", ["", *PACKAGES], ids=lambda package: package or "torch")
def test_findings(package: str, tmp_path: Path) -> None:
    if package and not importlib.util.find_spec(package):
        pytest.skip(f"{package} is not installed")
    blocks = blocks_of(package)
    (tmp_path / "blocks.json").write_text(json.dumps([block.code for block in blocks]))
    run_python(RUN_BLOCKS, "blocks.json", "outputs.json", cwd=tmp_path)
    outputs = json.loads((tmp_path / "outputs.json").read_text())
    wrong = [
        f"{PAGE.name}: the block\n{block.code}prints\n{output}"
        for block, output in zip(blocks, outputs, strict=True)
        if output != block.outputs.get((), "")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.any_torch
def test_findings_are_short() -> None:
    _, *blocks = read_blocks_with_imports()
    assert all(len(blocks_of(package)) > 1 for package in ("", *PACKAGES))
    for block in blocks:
        lines = [line for line in block.code.splitlines() if line.strip()]
        assert len(lines) <= 10, block.code
        imported = re.findall(r"^import (\w+)", block.code, re.MULTILINE)
        assert {*imported} <= {*PACKAGES}, imported
