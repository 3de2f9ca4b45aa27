"""Runs cppcuda.testing.check over operators of torch and of other packages, each in a process of its own.

    python tools/audit [--full] [--time-limit S] [NAME ...]

NAME is part of the names of the operators to check; all of them by default. Reports are written to build/audit, and an
operator that has one is not checked again unless it is named. `--full` checks the rows that compile, too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operators import Entry

FOLDER = Path(__file__).parents[2] / "build" / "audit"
COMPILED = ("compile", "compiled autograd", "export", "AOTInductor", "DTensor")


def entries(key: str = "") -> list[Entry]:
    """All entries; other packages are not imported for an operator of torch."""
    import operators

    if not any(e.key == key for e in operators.ENTRIES):
        import packages

        for package, reason in packages.add_all().items():
            print(f"{package} is left out: {reason}")
    return operators.ENTRIES


def file_of(entry: Entry, full: bool) -> Path:
    return FOLDER / f"{re.sub(r'[^a-zA-Z0-9_.]+', '-', entry.key).strip('-')}{'.full' if full else ''}.json"


def check_one(key: str, full: bool) -> None:
    """Checks an operator in this process, and writes the report."""
    from cppcuda.testing import check

    entry = next(e for e in entries(key) if e.key == key)
    options = {**entry.options}
    skip = options.pop("skip", {}) | ({} if full else dict.fromkeys(COMPILED, "left out, because it compiles"))
    start = time.perf_counter()
    report = check(entry.name, entry.reference, entry.samples, skip=skip, **options)
    result = {
        "seconds": time.perf_counter() - start,
        "passed": report.passed,
        "failed": {row: report.reasons(row) for row in report.failed},
        "not_checked": report.not_checked,
        "results": [[r.property, r.case, r.outcome, r.reason] for r in report.results],
    }
    file_of(entry, full).write_text(json.dumps({"key": key, "package": entry.package, **result}, indent=1))


def run(entry: Entry, full: bool, limit: float) -> None:
    file = file_of(entry, full)
    command = [sys.executable, __file__, "--one", entry.key, *(["--full"] if full else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        what = f"the process ended with {done.returncode}"
        text = done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        what, text = f"no report after {limit:.0f} s", str(error.stderr)
    file.with_suffix(".log").write_text(text)
    if not file.exists():
        file.write_text(json.dumps({"key": entry.key, "package": entry.package, "ended": what, "log": text[-2000:]}))


def line_of(report: dict[str, Any]) -> str:
    if "ended" in report:
        return f"{report['key']:48} {report['ended']}: {(report['log'].strip().splitlines() or [''])[-1]}"
    failed = ", ".join(report["failed"]) or "nothing fails"
    return f"{report['key']:48} {report['seconds']:4.0f} s  {failed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--time-limit", type=float, default=600.0)
    parser.add_argument("--one")
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.one:
        check_one(options.one, options.full)
        return
    reports = []
    for entry in entries():
        file = file_of(entry, options.full)
        if options.names and not any(name in entry.key for name in options.names):
            continue
        if options.names or not file.exists():
            file.unlink(missing_ok=True)
            run(entry, options.full, options.time_limit)
        reports.append(json.loads(file.read_text()))
        print(line_of(reports[-1]), flush=True)
    complete = [r for r in reports if "failed" in r]
    counts = {k: sum(len(r[k]) for r in complete) for k in ("passed", "failed", "not_checked")}
    print(f"{len(reports)} entries, {len(complete)} with a report, rows: {counts}")


if __name__ == "__main__":
    main()
