"""Puts each mistake of mutations.py into a copy of the sources, and reports whether its tests fail.

usage: tools/run mutate [NAME ...]

NAME may contain wildcards, as in 'trilinear.*'. Without a NAME all mistakes are tried, each of which compiles a part of
the library again. The copy is in build/mutate. Of the CUDA kernels only the PTX is built, which the emulator runs.

First, all these tests must pass without a mistake. With a mistake, the files that the tests load must differ from those
of the first run, and pytest accepts only the library that was just built (CPPCUDA_EXPECTED_LIBRARY). So neither a
broken build nor another copy of the library counts as a caught mistake. The exit status is 0 if every one was caught.
"""

import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[1]
COPY = ROOT / "build/mutate"
BUILD = COPY / "build"
SITE = BUILD / "site"
TIMEOUT = 1200  # seconds after which tests count as hanging
# For the first word of `tests`: the target to build, and what the tests load.
TARGETS = {
    "pytest": ("cppcuda", ("site",)),
    "unit": ("cppcuda_tests", ("libcppcuda.so", "libcppcuda_kernels.so", "tests/cpp/cppcuda_tests")),
    "emulator": ("cppcuda_emulated_tests", ("tests/cpp/emulator/cppcuda_emulated_tests",)),
}


def configure() -> None:
    """Copies the sources and configures the build. Unchanged files keep their time, so that little is built again."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    sources = {name for name in names if (ROOT / name).is_file()}
    for path in COPY.rglob("*"):
        if path.is_file() and BUILD not in path.parents and str(path.relative_to(COPY)) not in sources:
            path.unlink()
    for name in sources:
        source, to = ROOT / name, COPY / name
        if not (to.is_file() and to.read_bytes() == source.read_bytes()):
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, to)
    options = ["-DCMAKE_CUDA_ARCHITECTURES=90-virtual", "-DCPPCUDA_BUILD_TESTS=ON", "-DCPPCUDA_ISAS=native"]
    command = ["cmake", "-S", str(COPY), "-B", str(BUILD), "-G", "Ninja", f"-DPython3_EXECUTABLE={sys.executable}"]
    subprocess.run([*command, *options], stdout=subprocess.DEVNULL, check=True)


def build(runners: set[str]) -> str:
    """Builds and installs what these runners need. Returns the output if this fails."""
    commands = [["cmake", "--build", str(BUILD), "--target", *sorted(TARGETS[r][0] for r in runners)]]
    if "pytest" in runners:
        shutil.rmtree(SITE, ignore_errors=True)
        install = ["cmake", "--install", str(BUILD), "--prefix", str(SITE / "cppcuda")]
        commands += [install, [*install, "--component", "python"]]
    for command in commands:
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            return run.stdout + run.stderr or f"{command[0]} exited with status {run.returncode}"
    return ""


def digest(runner: str) -> str:
    """The hash of the files that the runner's tests load."""
    result = hashlib.sha256()
    for path in (BUILD / name for name in TARGETS[runner][1]):
        for file in [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.suffix in (".so", ".py")):
            result.update(file.read_bytes())
    return result.hexdigest()


def test(tests: str) -> tuple[int, str]:
    """Returns the exit status and the output. The status of tests that hang is negative, like that of a crash."""
    runner, _, selection = tests.partition(" ")
    environment = dict(os.environ)
    if runner == "pytest":
        library = str(next(SITE.glob("cppcuda/lib/torch-*/libcppcuda.so")))
        environment |= {"PYTHONPATH": str(SITE), "PYTHONDONTWRITEBYTECODE": "1", "CPPCUDA_EXPECTED_LIBRARY": library}
        file, _, keywords = selection.partition(" ")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/python/{file}"]
        command += ["-k", keywords] if keywords else []
    else:
        program = str(BUILD / TARGETS[runner][1][-1])
        command = [program, "--gtest_brief=1", "--gtest_fail_fast", f"--gtest_filter={selection}"]
        environment |= {"OMP_NUM_THREADS": "1", "CPPCUDA_EMULATOR_RACES": "1", "CPPCUDA_EMULATOR_GRID_STRIDE": "3"}
    try:
        run = subprocess.run(command, cwd=COPY, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return -1, f"not finished after {TIMEOUT} s"
    return run.returncode, run.stdout + run.stderr


def without_mistakes(mutations: list[Mutation]) -> dict[str, str]:
    """Exits unless all tests pass. Returns the digest of each runner's files."""
    runners = {m.tests.split()[0] for m in mutations}
    if problem := build(runners):
        sys.exit(f"error: the sources do not build:\n{problem}")
    for tests in dict.fromkeys(m.tests for m in mutations):
        status, output = test(tests)
        passed = re.search(r"\b[1-9]\d* passed|PASSED  \] [1-9]\d* test", output)
        if status != 0 or not passed:
            sys.exit(f"error: these tests do not pass without a mistake, or there are none: {tests}\n{output}")
    return {runner: digest(runner) for runner in runners}


def try_mistake(m: Mutation, digests: dict[str, str]) -> str:
    path, runner = COPY / m.file, m.tests.split()[0]
    original = path.read_text()
    assert original.count(m.text) == 1, f"{m.name}: the text to replace is not once in {m.file}"
    try:
        path.write_text(original.replace(m.text, m.replacement))
        if problem := build({runner}):
            return "DOES NOT BUILD " + next((line for line in problem.splitlines() if "error" in line), problem)
        if digest(runner) == digests[runner]:
            return "NOT TRIED: the build is the same as without the mistake"
        status, output = test(m.tests)
    finally:
        path.write_text(original)
    if status == 0:
        return f"SURVIVED {m.tests}"
    # Any other status is not a test failure, but an error of pytest or a program that cannot start, for example.
    if status != 1 and status >= 0:
        return f"NOT TRIED: the tests exited with status {status}"
    failed = re.search(
        r"^FAILED \S+|\[  FAILED  \] \S+|^.*(?:ERROR: \w+Sanitizer|runtime error).*", output, re.MULTILINE
    )
    return f"caught {failed[0] if failed else f'status {status}'}"


def main(names: list[str]) -> int:
    mutations = [m for m in MUTATIONS if not names or any(fnmatch.fnmatch(m.name, name) for name in names)]
    if not mutations:
        sys.exit(f"error: no mistake is called {' or '.join(names)}")
    configure()
    digests = without_mistakes(mutations)
    caught = 0
    for m in mutations:
        start = time.monotonic()
        result = try_mistake(m, digests)
        print(f"{m.name:48}{time.monotonic() - start:4.0f} s  {result}", flush=True)
        caught += result.startswith("caught")
    print(f"\n{len(mutations)} mistakes, {caught} caught")
    return int(caught != len(mutations))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
