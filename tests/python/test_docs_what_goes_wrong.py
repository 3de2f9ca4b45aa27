"""docs/what-goes-wrong.md says what its blocks print, with every version of torch."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from support import run_python

PAGE = Path(__file__).parents[2] / "docs" / "what-goes-wrong.md"

Version = tuple[int, ...]
ANY: Version = ()  # of an output without a version

# Runs the blocks in one namespace. An error becomes a part of the output.
RUN_BLOCKS = """
import contextlib, io, json, sys, traceback
namespace, outputs = {"__name__": "__main__"}, []
for code in json.load(open(sys.argv[1])):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            exec(code, namespace)
        except Exception:
            traceback.print_exc(file=sys.stdout)
    outputs.append(printed.getvalue())
json.dump(outputs, open(sys.argv[2], "w"))
"""


@dataclass
class Block:
    line: int
    code: str
    outputs: dict[Version, str] = field(default_factory=dict)

    def expected(self, running: Version) -> set[str]:
        """The output with this version; of a version between two, that of either; of a newer one, the newest."""
        if ANY in self.outputs:
            return {self.outputs[ANY]}
        lower = max(v for v in self.outputs if v <= running)
        higher = min((v for v in self.outputs if v >= running), default=lower)
        return {self.outputs[lower], self.outputs[higher]}


def read_blocks(page: str) -> list[Block]:
    """Each block of Python is followed by its output, or by one output for each of the ends of torch's versions."""
    blocks: list[Block] = []
    fence = r"^(?:torch ([\d.]+) prints:\n\n)?```(\w+)\n(.*?)^```$"
    for found in re.finditer(fence, page, flags=re.MULTILINE | re.DOTALL):
        version, language, text = found.groups()
        line = page.count("\n", 0, found.start()) + 1
        if language == "python":
            blocks.append(Block(line, text))
        else:
            assert language == "text" and blocks, f"line {line} is no output of a block"
            key = tuple(map(int, version.split("."))) if version else ANY
            assert key not in blocks[-1].outputs, f"line {line} repeats an output"
            blocks[-1].outputs[key] = text
    assert blocks, "there is no block"
    for block in blocks:
        assert block.outputs.keys() in ({ANY}, {(2, 11), (2, 15)}), f"the outputs of line {block.line}"
        assert all(block.outputs.values()), f"an output of line {block.line} is empty"
    return blocks


def test_blocks_print_what_the_page_says(tmp_path: Path) -> None:
    if "CPPCUDA_SECOND_LIBRARY" not in os.environ:
        pytest.skip("CPPCUDA_SECOND_LIBRARY is not set (scripts/test sets it)")
    blocks = read_blocks(PAGE.read_text())
    (tmp_path / "blocks.json").write_text(json.dumps([block.code for block in blocks]))
    run_python(RUN_BLOCKS, "blocks.json", "outputs.json", cwd=tmp_path)
    outputs = json.loads((tmp_path / "outputs.json").read_text())

    running = tuple(map(int, torch.__version__.split(".")[:2]))
    wrong = [
        f"{PAGE.name}:{block.line} prints\n{output}\nand not\n{' or '.join(block.expected(running))}"
        for block, output in zip(blocks, outputs, strict=True)
        if output not in block.expected(running)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.any_torch
@pytest.mark.parametrize(
    "page",
    [
        "no block\n",
        "```python\nprint(1)\n```\n",
        "```python\nprint(1)\n```\n\n```text\n```\n",
        "```python\nprint(1)\n```\n\ntorch 2.11 prints:\n\n```text\n1\n```\n",
        "```python\nprint(1)\n```\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n",
    ],
    ids=["no block", "no output", "empty output", "one version", "the first without output"],
)
def test_every_block_needs_its_output(page: str) -> None:
    with pytest.raises(AssertionError):
        read_blocks(page)


@pytest.mark.any_torch
def test_expected_output_of_other_versions() -> None:
    block = Block(1, "", {(2, 11): "old", (2, 15): "new"})
    assert block.expected((2, 11)) == {"old"} and block.expected((2, 15)) == block.expected((2, 16)) == {"new"}
    assert block.expected((2, 13)) == {"old", "new"}
    assert Block(1, "", {ANY: "same"}).expected((2, 13)) == {"same"}
