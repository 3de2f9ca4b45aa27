"""Prints the README's support matrix from the results of the tests.

usage: support_matrix.py RESULTS.json [--write | --check]
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- support matrix -->\n", "<!-- end of support matrix -->"


def public_name(op: str) -> str:
    return op.strip("_").removesuffix("_backward")


def table(results: dict[str, Any]) -> str:
    """The rows are capabilities, the columns operators. A column covers the operator's internal operators as well."""
    operators: dict[str, dict[str, dict[str, int]]] = results["operators"]

    def mark(name: str, capability: str) -> str:
        found = [outcomes.get(capability, {}) for op, outcomes in operators.items() if public_name(op) == name]
        if any(outcomes.get("failed") for outcomes in found):
            return "**fails**"
        return "yes" if all(outcomes.get("passed") for outcomes in found) else ""

    names = sorted({public_name(op) for op in operators})
    rows = [["", *(f"`{name}`" for name in names)], ["---"] * (len(names) + 1)]
    rows += [[capability, *(mark(name, capability) for name in names)] for capability in results["capabilities"]]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="write the table into the README")
    action.add_argument("--check", action="store_true", help="fail if the README has a different table")
    options = parser.parse_args()

    printed = table(json.loads(options.results.read_text()))
    text = README.read_text()
    before, rest = text.split(BEGIN)
    current, after = rest.split(END)
    if options.write:
        README.write_text(before + BEGIN + printed + END + after)
    elif options.check and current != printed:
        hint = "scripts/support_matrix.py FILE --write"
        print(f"the README's support matrix differs from the tests' results ({hint}):\n{printed}", file=sys.stderr)
        return 1
    else:
        print(printed, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
