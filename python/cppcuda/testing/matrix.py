"""The support matrix: which rows hold for which operators, as text and as Markdown."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import torch

from cppcuda.testing.registry import ROWS


def markdown(rows: list[list[str]]) -> str:
    """A table whose first row is its head."""
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def text(rows: list[list[str]]) -> str:
    """The same table in aligned columns."""
    plain = [[cell.replace("`", "").replace("*", "") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in plain]
    return "\n".join(line.rstrip() for line in lines)


class Matrix:
    """The outcomes of tests (passed, failed, skipped), counted by operator and row."""

    def __init__(self, operators: dict[str, dict[str, dict[str, int]]] | None = None) -> None:
        self.operators: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        for operator, rows in (operators or {}).items():
            for row, outcomes in rows.items():
                self.operators[operator][row].update(outcomes)

    def add(self, operator: str, row: str, outcome: str) -> None:
        self.operators[operator][row][outcome] += 1

    def table(self, rows: tuple[str, ...] = ROWS) -> list[list[str]]:
        """Operators as columns, each together with the internal ones that it is made of."""

        def public(operator: str) -> str:
            namespace, _, name = operator.partition("::")
            return f"{namespace}::{name.strip('_').removesuffix('_backward').removesuffix('_double')}"

        def mark(column: str, row: str) -> str:
            of_column = {op: outcomes.get(row) for op, outcomes in self.operators.items() if public(op) == column}
            # The suite leaves the transforms of an internal operator to the others.
            own = [o or Counter() for op, o in of_column.items() if o or "::_" not in op]
            if any(outcomes["failed"] for outcomes in own):
                return "**fails**"
            return "yes" if own and all(outcomes["passed"] for outcomes in own) else ""

        columns = sorted({public(operator) for operator in self.operators})
        one_namespace = len({column.split("::")[0] for column in columns}) == 1
        names = [column.split("::")[1] if one_namespace else column for column in columns]
        head = ["", *(f"`{name}`" for name in names)]
        return [head, *([row, *(mark(column, row) for column in columns)] for row in rows)]

    def text(self) -> str:
        return text(self.table())

    def markdown(self) -> str:
        return markdown(self.table())

    def json(self) -> dict[str, Any]:
        return {"torch": torch.__version__, "capabilities": ROWS, "operators": self.operators}

    def write(self, path: Path) -> None:
        """Writes Markdown to a file of that suffix, otherwise JSON with the number of tests by outcome."""
        path.write_text(self.markdown() if path.suffix == ".md" else json.dumps(self.json(), indent=2) + "\n")
