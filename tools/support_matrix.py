"""Prints the support matrix of docs/support.md from the results of the tests.

usage: tools/run support_matrix [RESULTS.json] [--write | --check]
"""

import argparse
import json
import os
import sys
from pathlib import Path

from cppcuda.testing.matrix import Matrix, markdown
from cppcuda.testing.registry import ROWS

PAGE = Path(__file__).parent.parent / "docs/support.md"
# Rows about mistakes in an operator, not about what it supports.
OTHERS = {"bad input", "aliasing", "threads", "kept alive", "saved tensors"}
BEGIN, END = "<!-- support matrix -->\n", "<!-- end of support matrix -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("BUILD_DIR", ".")) / "support_matrix.json"
    parser.add_argument("results", type=Path, nargs="?", default=default)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="write the table into docs/support.md")
    action.add_argument("--check", action="store_true", help="fail if docs/support.md has a different table")
    options = parser.parse_args()

    matrix = Matrix(json.loads(options.results.read_text())["operators"])
    printed = markdown(matrix.table(tuple(row for row in ROWS if row not in OTHERS)))
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    current, after = rest.split(END)
    if options.write:
        PAGE.write_text(before + BEGIN + printed + END + after)
    elif options.check and current != printed:
        hint = "tools/run support_matrix --write"
        print(f"docs/support.md differs from the tests' results ({hint}):\n{printed}", file=sys.stderr)
        return 1
    else:
        print(printed, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
