"""Puts each mistake of mutations.py into a copy of the sources, and reports whether its tests fail.

usage: tools/run mutate [--list] [NAME ...]

NAME may contain wildcards, as in 'trilinear.*'. Without a NAME all mistakes are tried, which takes about an hour. The
copy is in build/mutate. It is built without CUDA, because the emulator runs the CUDA kernels.

First, all these tests must pass without a mistake. With a mistake, the files that the tests load must differ from those
of the first run, and pytest accepts only the library that was just built (CPPCUDA_EXPECTED_LIBRARY). So neither a
broken build nor another copy of the library counts as a caught mistake.

Exit status: 0 if every mistake was caught, 1 if one was not caught or could not be tried, 2 if nothing could be tried.
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
TIMEOUT = 1200  # seconds after which tests count as hanging
CAUGHT = "caught"


class UntriedError(Exception):
    pass


class Runner(NamedTuple):
    target: str
    loaded: tuple[str, ...]  # files and folders that the tests load, relative to the build folder
    passed: str  # a pattern for the number of tests that passed
    failed: str  # a pattern for the name of a test that failed


GTEST = {"passed": r"\[  PASSED  \] (\d+) tests?", "failed": r"\[  FAILED  \] (\S+?),? "}
RUNNERS = {
    "pytest": Runner("cppcuda", ("site",), r"(\d+) passed", r"^FAILED (\S+)"),
    "unit": Runner("cppcuda_tests", ("libcppcuda.so", "libcppcuda_kernels.so", "tests/cpp/cppcuda_tests"), **GTEST),
    "simt": Runner("cppcuda_simt_tests", ("tests/cpp/simt/cppcuda_simt_tests",), **GTEST),
}


class Build(NamedTuple):
    copy: Path
    folder: Path

    def configure(self) -> None:
        """Copies the sources and configures the build."""
        command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        names = {name for name in listed.split("\0") if (ROOT / name).is_file()}
        for path in [p for p in self.copy.rglob("*") if p.is_file() and self.folder not in p.parents]:
            if str(path.relative_to(self.copy)) not in names:
                path.unlink()
        for name in names:
            source, to = ROOT / name, self.copy / name
            # Unchanged files keep their modification time, so that little is built again.
            if not (to.is_file() and to.read_bytes() == source.read_bytes()):
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, to)
        options = ["-DCPPCUDA_WITH_CUDA=OFF", "-DCPPCUDA_BUILD_TESTS=ON", "-DCPPCUDA_ISAS=native"]
        options += [f"-DPython3_EXECUTABLE={sys.executable}"]
        configure = ["cmake", "-S", str(self.copy), "-B", str(self.folder), "-G", "Ninja", *options]
        subprocess.run(configure, stdout=subprocess.DEVNULL, check=True)

    def make(self, runners: set[str]) -> str | None:
        """Builds and installs what these runners need. Returns the output if this fails."""
        folder, site = str(self.folder), self.folder / "site"
        commands = [["cmake", "--build", folder, "--target", *sorted(RUNNERS[r].target for r in runners)]]
        if "pytest" in runners:
            shutil.rmtree(site, ignore_errors=True)
            install = ["cmake", "--install", folder, "--prefix", str(site / "cppcuda")]
            commands += [install, [*install, "--component", "python"]]
        for command in commands:
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                return run.stdout + run.stderr or f"{command[0]} exited with status {run.returncode}"
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
        """Returns the exit status and the output. The status of tests that hang is negative, like that of a crash."""
        runner, _, selection = tests.partition(" ")
        environment = dict(os.environ)
        if runner == "pytest":
            site = self.folder / "site"
            environment["PYTHONPATH"] = str(site)
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
            environment["CPPCUDA_EXPECTED_LIBRARY"] = str(next(site.glob("cppcuda/lib/torch-*/libcppcuda.so")))
            file, _, keywords = selection.partition(" ")
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/python/{file}"]
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
                timeout=TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return -1, f"not finished after {TIMEOUT} s"
        return run.returncode, run.stdout


def runner_of(tests: str) -> str:
    return tests.partition(" ")[0]


def check_texts(mutations: list[Mutation], root: Path) -> None:
    """Raises an error unless every text to replace occurs exactly once in its file."""
    problems = []
    for m in mutations:
        count = (root / m.file).read_text().count(m.text) if (root / m.file).is_file() else 0
        if count != 1:
            problems.append(f"{m.name}: the text to replace occurs {count} times in {m.file}, not once:\n{m.text}")
        if runner_of(m.tests) not in RUNNERS:
            problems.append(f"{m.name}: its tests must begin with one of {', '.join(RUNNERS)}")
    if problems:
        raise UntriedError("\n".join([*problems, "bring tools/mutations.py up to date"]))


def select(names: list[str]) -> list[Mutation]:
    for name in names:
        if not any(fnmatch.fnmatch(m.name, name) for m in MUTATIONS):
            raise UntriedError(f"no mutation matches {name} (--list prints all)")
    return [m for m in MUTATIONS if not names or any(fnmatch.fnmatch(m.name, name) for name in names)]


def tests_passed(runner: str, output: str) -> int:
    found = re.search(RUNNERS[runner].passed, output)
    return int(found[1]) if found else 0


def run_without_mistake(build: Build, mutations: list[Mutation]) -> dict[str, str]:
    """Raises an error unless all tests pass. Returns the digest of the files that each runner's tests load."""
    runners = {runner_of(m.tests) for m in mutations}
    problem = build.make(runners)
    if problem:
        raise UntriedError(f"the sources do not build:\n{problem}")
    for tests in dict.fromkeys(m.tests for m in mutations):
        start = time.monotonic()
        status, output = build.test(tests)
        if status != 0 or tests_passed(runner_of(tests), output) == 0:
            raise UntriedError(f"these tests do not pass without a mistake: {tests}\n{output}")
        print(f"{time.monotonic() - start:5.0f} s  {tests}", flush=True)
    return {runner: build.digest(runner) for runner in runners}


def outcome(runner: str, status: int, output: str) -> str:
    if status == 0:
        return "SURVIVED"
    # Any other status is not a test failure, but an error of pytest or a program that cannot start, for example.
    return CAUGHT if status == 1 or status < 0 else f"NOT TRIED: the tests exited with status {status}"


def first_failure(runner: str, status: int, output: str) -> str:
    found = re.search(RUNNERS[runner].failed, output, re.MULTILINE)
    if found:
        return found[1].removeprefix("tests/python/")
    error = re.search(r"^.*(?:ERROR: \w+Sanitizer|runtime error|Error)[^\n]*", output, re.MULTILINE)
    return error[0] if error else f"status {status}"


def try_mutation(build: Build, m: Mutation, digests: dict[str, str]) -> tuple[str, str]:
    """Returns the outcome, and a text with the times and the first failure."""
    path = build.copy / m.file
    original = path.read_text()
    runner = runner_of(m.tests)
    start = time.monotonic()
    try:
        path.write_text(original.replace(m.text, m.replacement))
        problem = build.make({runner})
        built = time.monotonic()
        if problem:
            errors = [line for line in problem.splitlines() if "error" in line]
            return "DOES NOT BUILD", (errors or problem.splitlines())[0]
        if build.digest(runner) == digests[runner]:
            return "NOT TRIED: the build is the same as without the mistake", ""
        status, output = build.test(m.tests)
    finally:
        path.write_text(original)
    (build.folder / f"{m.name}.log").write_text(output)
    failure = first_failure(runner, status, output) if status != 0 else m.tests
    return outcome(runner, status, output), f"{built - start:4.0f} + {time.monotonic() - built:3.0f} s  {failure}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(arguments)

    try:
        mutations = select(options.names)
        check_texts(mutations, ROOT)
        width = max(len(m.name) for m in mutations)
        if options.list:
            for m in mutations:
                print(f"{m.name:{width}}  {m.file}  {m.tests}")
            return 0
        build = Build(ROOT / "build/mutate", ROOT / "build/mutate/build")
        build.configure()
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
