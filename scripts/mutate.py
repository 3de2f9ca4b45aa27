"""Puts each mistake of mutations.py into a copy of the sources, and reports whether the tests named with it fail.

usage: mutate.py --copy FOLDER --build FOLDER --cmake PROGRAM [NAME ...]
       mutate.py --list [NAME ...]

First all the named tests must pass without a mistake. With one, what they load must differ from what they loaded then;
pytest refuses any other library than the one just built (CPPCUDA_EXPECTED_LIBRARY). So neither a broken build nor
another copy of the library counts as a mistake that was caught. NAME may have wildcards.

Exit status: 0 when every mistake was caught, 1 when one was not or could not be tried, 2 when nothing could be tried.
"""

import argparse
import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[1]
SECONDS = 1200  # after which a test counts as one that hangs
CAUGHT = "caught"


class UntriedError(Exception):
    pass


class Runner(NamedTuple):
    target: str
    loaded: tuple[str, ...]  # what tests load: files and folders in the folder of the build
    passed: str  # how many did
    failed: str  # the name of one


GTEST = {"passed": r"\[  PASSED  \] (\d+) tests?", "failed": r"\[  FAILED  \] (\S+?),? "}
RUNNERS = {
    "pytest": Runner("cppcuda", ("site",), r"(\d+) passed", r"^FAILED (\S+)"),
    "unit": Runner("cppcuda_tests", ("libcppcuda.so", "libcppcuda_kernels.so", "cpp_tests/cppcuda_tests"), **GTEST),
    "simt": Runner("cppcuda_simt_tests", ("cpp_tests/simt/cppcuda_simt_tests",), **GTEST),
}


class Build(NamedTuple):
    copy: Path
    folder: Path
    cmake: str

    def make(self, runners: set[str]) -> str | None:
        """Builds and installs what these runners need. Returns what went wrong."""
        folder, site = str(self.folder), self.folder / "site"
        commands = [[self.cmake, "--build", folder, "--target", *sorted(RUNNERS[r].target for r in runners)]]
        if "pytest" in runners:
            shutil.rmtree(site, ignore_errors=True)
            install = [self.cmake, "--install", folder, "--prefix", str(site / "cppcuda")]
            commands += [install, [*install, "--component", "python"]]
        for command in commands:
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                return run.stdout + run.stderr or f"{command[0]} ended with {run.returncode}"
        return None

    def digest(self, runner: str) -> str:
        """The hash of the files that the runner's tests load."""
        result = hashlib.sha256()
        for name in RUNNERS[runner].loaded:
            path = self.folder / name
            files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.suffix in (".so", ".py"))
            for file in files:
                result.update(file.read_bytes())
        return result.hexdigest()

    def test(self, tests: str) -> tuple[int, str]:
        """The exit status and the output; a test that hangs ends with a status below 0, as one that crashes."""
        runner, _, selection = tests.partition(" ")
        environment = dict(os.environ)
        if runner == "pytest":
            site = self.folder / "site"
            environment["PYTHONPATH"] = str(site)
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
            environment["CPPCUDA_EXPECTED_LIBRARY"] = str(site / "cppcuda" / "lib" / "libcppcuda.so")
            file, _, keywords = selection.partition(" ")
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"python/tests/{file}"]
            command += ["-k", keywords] if keywords else []
        else:
            program = self.folder / RUNNERS[runner].loaded[-1]
            command = [str(program), "--gtest_brief=1", "--gtest_fail_fast", f"--gtest_filter={selection}"]
        try:
            run = subprocess.run(
                command,
                cwd=self.copy,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return -1, f"no end after {SECONDS} s"
        return run.returncode, run.stdout


def runner_of(tests: str) -> str:
    return tests.partition(" ")[0]


def check_texts(mutations: list[Mutation], root: Path) -> None:
    """Throws unless every text that is replaced is in its file, once."""
    problems = []
    for m in mutations:
        count = (root / m.file).read_text().count(m.text) if (root / m.file).is_file() else 0
        if count != 1:
            problems.append(f"{m.name}: the text to replace occurs {count} times in {m.file}, not once:\n{m.text}")
        if runner_of(m.tests) not in RUNNERS:
            problems.append(f"{m.name}: its tests must begin with one of {', '.join(RUNNERS)}")
    if problems:
        raise UntriedError("\n".join([*problems, "bring scripts/mutations.py up to date"]))


def select(names: list[str]) -> list[Mutation]:
    for name in names:
        if not any(fnmatch.fnmatch(m.name, name) for m in MUTATIONS):
            raise UntriedError(f"no mutation has the name {name} (--list names them)")
    return [m for m in MUTATIONS if not names or any(fnmatch.fnmatch(m.name, name) for name in names)]


def tests_passed(runner: str, output: str) -> int:
    found = re.search(RUNNERS[runner].passed, output)
    return int(found[1]) if found else 0


def run_without_mistake(build: Build, mutations: list[Mutation]) -> dict[str, str]:
    """Throws unless all tests pass. Returns the digest of what each runner's tests load."""
    runners = {runner_of(m.tests) for m in mutations}
    problem = build.make(runners)
    if problem:
        raise UntriedError(f"the sources do not build:\n{problem}")
    for tests in dict.fromkeys(m.tests for m in mutations):
        start = time.monotonic()
        status, output = build.test(tests)
        if status != 0 or tests_passed(runner_of(tests), output) == 0:
            raise UntriedError(f"without a mistake these do not pass: {tests}\n{output}")
        print(f"{time.monotonic() - start:5.0f} s  {tests}", flush=True)
    return {runner: build.digest(runner) for runner in runners}


def outcome(runner: str, status: int, output: str) -> str:
    if status == 0:
        return "SURVIVED"
    # Pytest has other numbers for what is no failure of a test, as has a program that does not start.
    return CAUGHT if status == 1 or status < 0 else f"NOT TRIED: the tests ended with {status}"


def first_failure(runner: str, status: int, output: str) -> str:
    found = re.search(RUNNERS[runner].failed, output, re.MULTILINE)
    if found:
        return found[1].removeprefix("python/tests/")
    error = re.search(r"^.*(?:ERROR: \w+Sanitizer|runtime error|Error)[^\n]*", output, re.MULTILINE)
    return error[0] if error else f"status {status}"


def try_mutation(build: Build, m: Mutation, digests: dict[str, str]) -> tuple[str, str]:
    """The outcome, and how long it took and what failed."""
    path = build.copy / m.file
    right = path.read_text()
    runner = runner_of(m.tests)
    start = time.monotonic()
    try:
        path.write_text(right.replace(m.text, m.replacement))
        problem = build.make({runner})
        built = time.monotonic()
        if problem:
            errors = [line for line in problem.splitlines() if "error" in line]
            return "DOES NOT BUILD", (errors or problem.splitlines())[0]
        if build.digest(runner) == digests[runner]:
            return "NOT TRIED: what is built is the same as without it", ""
        status, output = build.test(m.tests)
    finally:
        path.write_text(right)
    (build.folder / f"{m.name}.log").write_text(output)
    failure = first_failure(runner, status, output) if status != 0 else m.tests
    return outcome(runner, status, output), f"{built - start:4.0f} + {time.monotonic() - built:3.0f} s  {failure}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--copy", type=Path)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--cmake", default="cmake")
    options = parser.parse_args(arguments)
    if not options.list and not (options.copy and options.build):
        parser.error("--copy and --build are needed")

    try:
        mutations = select(options.names)
        check_texts(mutations, ROOT)
        width = max(len(m.name) for m in mutations)
        if options.list:
            for m in mutations:
                print(f"{m.name:{width}}  {m.file}  {m.tests}")
            return 0
        build = Build(options.copy, options.build, options.cmake)
        print("without a mistake:", flush=True)
        digests = run_without_mistake(build, mutations)
    except UntriedError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2

    print("\nmistakes (building + testing):", flush=True)
    outcomes = []
    for m in mutations:
        result, details = try_mutation(build, m, digests)
        print(f"{m.name:{width}}  {result}  {details}", flush=True)
        outcomes.append(result)
    caught = outcomes.count(CAUGHT)
    print(f"\n{len(mutations)} mistakes, {caught} caught")
    return int(caught != len(mutations))


if __name__ == "__main__":
    sys.exit(main())
