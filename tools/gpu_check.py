#!/usr/bin/env python3
"""Runs what tools/gpu_bundle built on a machine with a GPU, and compiles and installs nothing.

The first call shows what is wrong and what is slow, within five minutes. Its stages, each in processes of its own:

    ready       the first launch of a process for each operator, inside a graph capture, and an eager call
    smoke       the C++ tests, which run every instance of every kernel
    flagship    the benchmark's most important cases, the first of them twice, which shows the noise
    counters    the kernels of these cases under ncu: time, traffic, instructions, stalls

The second call, with --resume and the results.json of the first, repeats what failed, does what is left of these stages
except ready, and goes on:

    before      the flagship cases with the library of an earlier bundle (--before), and with this one
    sanitizers  the C++ tests under compute-sanitizer: memcheck, racecheck
    compiled    flagship cases compared with torch.compile
    others      all other cases of the benchmark
    tests       the Python tests that need CUDA

If a CUDA error makes a process useless, the test is named and the rest goes on in a new process. The folder gets three
files, which are written again every ten seconds: summary.txt, results.json, and logs.tar.gz with everything else. The
settings of the GPU, such as its clock rates, are never changed.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUNDLE = Path(__file__).resolve().parents[1]
TOOLS = ("memcheck", "racecheck")
# Most of a test's time is the reference on the CPU, so that several processes share the GPU. Each of them would take
# threads for all processors: on an H100 with 16 processors the C++ tests took 52 s so, and 9 s with two threads each.
PROCESSES = 8
FEW_THREADS = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}
# An operator for each file of kernels, and one that makes several calls.
OPERATORS = "grid_sample3d hash_grid lltm lltm_cell sigmoid trilinear trilinear_indexed upsample_bilinear2d".split()
METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sectors_op_red.sum",
    "l1tex__data_pipe_lsu_wavefronts.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "smsp__inst_executed.sum",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
)
# Without the first option ncu would lock the clock rates of the GPU, which other programs share.
NCU = "--clock-control none --cache-control none --nvtx --csv --page raw --print-units base".split()
# The last seconds are for ending the processes and writing the files.
MARGIN = 20
# After such an error no CUDA call of the process works.
CUDA_ERROR = re.compile(r"CUDA error|illegal (memory access|instruction)|misaligned address|unspecified launch failure")
# Reads past the end of an allocation. compute-sanitizer must find it, which shows that it works on this machine.
PLANTED = """
import cppcuda, torch
class TooLarge:
    def __init__(self, t, shape):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (t.data_ptr(), False), "version": 2}
small = torch.zeros(64).to("cuda")
feats = torch.as_tensor(TooLarge(small, (64, 8, 8)), device="cuda")
torch.ops.cppcuda.trilinear(feats, torch.zeros(64, 3).to("cuda")).cpu()
"""
MACHINE = """
import json, torch, cppcuda
cuda = torch.cuda.is_available()
print(json.dumps({
    "torch": torch.__version__, "torch_folder": torch.__path__[0], "library": str(cppcuda.library_path()),
    "architectures": cppcuda.config().cuda_architectures,
    "gpu": torch.cuda.get_device_name() if cuda else None,
    "capability": "{}{}".format(*torch.cuda.get_device_capability()) if cuda else None,
}))
"""


class SkippedError(Exception):
    """A stage cannot run on this machine. The message says why."""


@dataclass
class Stage:
    """What a stage may use, and where it puts its results."""

    log: Path  # a folder
    deadline: float
    environment: dict[str, str]
    results: dict[str, Any]  # test or case: "passed", or what went wrong, or numbers; at first those of an earlier call
    dry_run: bool
    before: Path | None = None  # the folder of an earlier bundle

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def lines(self, command: Sequence[str | Path], log: str, **environment: str) -> Iterator[str]:
        """The output of a command, which is also appended to a log. Ends the command when the time is over.

        If the caller stops reading, the command is killed. The last line is "exit status N".
        """
        with (self.log / log).open("a") as file:
            process = subprocess.Popen(
                list(map(str, command)),
                cwd=BUNDLE,
                env=self.environment | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )

            def kill() -> None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

            timer = threading.Timer(max(0, self.seconds_left()), kill)
            timer.start()
            try:
                assert process.stdout
                for line in process.stdout:
                    file.write(line)
                    file.flush()
                    yield line.rstrip("\n")
                status = "no time left" if self.seconds_left() <= 0 else f"exit status {process.wait()}"
                file.write(f"{status}\n")
                yield status
            finally:
                timer.cancel()
                kill()
                process.wait()

    def run(self, command: Sequence[str | Path], log: str, **environment: str) -> str:
        """Runs a command and returns "exit status N", or "no time left"."""
        status = ""
        for line in self.lines(command, log, **environment):
            status = line
        return status


def gtest_names(program: Path, environment: dict[str, str]) -> list[str]:
    done = subprocess.run([program, "--gtest_list_tests"], env=environment, capture_output=True, text=True)
    names, suite = [], ""
    for line in done.stdout.splitlines():
        name = line.split("#")[0]
        if name.startswith("  "):
            names.append(suite + name.strip())
        elif name.rstrip().endswith("."):
            suite = name.strip()
    if not names:
        raise RuntimeError(f"{program} lists no tests:\n{done.stdout}{done.stderr}")
    return names


def first_of_each_suite(names: Sequence[str]) -> list[str]:
    return list({name.rpartition(".")[0]: name for name in reversed(names)}.values())[::-1]


def run_gtest(stage: Stage, program: Sequence[str | Path], names: Sequence[str], log: str) -> None:
    """Runs the tests of a GoogleTest program. After a crash or a CUDA error a new process runs the rest."""
    remaining = list(names)
    while remaining and stage.seconds_left() > 0:
        test, output, ended = "", [], ""
        for line in stage.lines(program, log, GTEST_FILTER=":".join(remaining), **FEW_THREADS):
            begins = re.match(r"\[ RUN      \] (\S+)", line)
            ends = re.match(r"\[ +(OK|FAILED|SKIPPED) +\] (\S+?),? ", f"{line} ")
            if begins:
                test, output = begins[1], []
            elif ends and ends[2] == test:
                failed = ends[1] == "FAILED"
                stage.results[test] = "\n".join(output[-20:]) or "failed" if failed else "passed"
                test = ""
                if failed and CUDA_ERROR.search("\n".join(output)):
                    break
            else:
                output.append(line)
            ended = line
        if test and ended != "no time left":
            stage.results[test] = "\n".join([*output[-20:-1], f"the process ended with {ended}"])
        rest = [name for name in remaining if name not in stage.results]
        if len(rest) == len(remaining):
            if ended != "no time left":
                raise RuntimeError(f"{program[0]} ran no test: {ended}, see {log}")
            break
        remaining = rest


def summary_of(results: dict[str, Any], expected: int) -> str:
    passed = sum(result == "passed" for result in results.values())
    failed = [name for name, result in results.items() if isinstance(result, str) and result != "passed"]
    text = f"{passed} of {expected} passed"
    return text + (f", FAILED: {', '.join(failed[:5])}{', ...' if len(failed) > 5 else ''}" if failed else "")


def smoke(stage: Stage) -> str:
    program = BUNDLE / "cuda_tests"
    every = gtest_names(program, stage.environment)
    names = first_of_each_suite(every)[:4] if stage.dry_run else every
    left = [name for name in names if name not in stage.results]
    shards = [shard for i in range(PROCESSES) if (shard := left[i::PROCESSES])]
    with ThreadPoolExecutor(PROCESSES) as pool:
        list(pool.map(lambda i: run_gtest(stage, [program], shards[i], f"smoke-{i}.log"), range(len(shards))))
    return summary_of(stage.results, len(names))


def is_measured(result: Any) -> bool:
    return not isinstance(result, str)


def bench(stage: Stage, name: str, *options: str, **environment: str) -> dict[str, Any]:
    """Runs cases of the benchmark, and returns what it measured, by the case's name."""
    file = stage.log / f"{name}.json"
    options = (*options, "--seconds", str(stage.seconds_left() - 10), "--json", str(file))
    device = ["--device", "cuda"]
    if stage.dry_run:
        device, options = ["--tiny", "--no-compile"], (*options, "--rounds", "1")
    command = [sys.executable, BUNDLE / "benchmarks/bench.py", *device, *options]
    ended = stage.run(command, f"{name}.log", **environment)
    if not file.exists() and ended == "exit status 0":
        return {}  # an earlier call measured everything
    if not file.exists():
        raise RuntimeError(f"nothing was measured: {ended}, see {name}.log")
    measured = json.loads(file.read_text())
    for t in measured["targets"]:
        if t["cases"]:
            print(f"  {t['target']}: {t['measured']:.2f} of {t['against']}, {t['case']}", flush=True)
    return {row["name"]: row for row in measured["rows"]}


def measure_part(stage: Stage, part: str, *options: str) -> str:
    """Measures those cases of a part that no earlier call has measured. Returns the summary."""
    done = stage.log / "done.json"
    done.write_text(json.dumps(list(stage.results)))
    rows = bench(stage, part, "--part", part, "--skip", str(done), "--rounds", "9", *options)
    stage.results |= {name: row["failed"].get("cppcuda") or row["contestants"] for name, row in rows.items()}
    failed = [name for name, result in stage.results.items() if not is_measured(result)]
    text = f"{len(stage.results) - len(failed)} cases measured"
    return text + (f", FAILED: {', '.join(failed)}" if failed else "")


def flagship(stage: Stage) -> str:
    text = measure_part(stage, "flagship", "--again")
    for again, result in stage.results.items():
        first = stage.results.get(again.replace(", again", ""))
        if ", again" in again and is_measured(result) and is_measured(first):
            text += f"; measured twice: {result['cppcuda']['median'] / first['cppcuda']['median']:.3f}"
    return text


def before(stage: Stage) -> str:
    if not stage.before:
        raise SkippedError("--before names no earlier bundle")
    sites = {"before": stage.before / "site", "now": BUNDLE / "site"}
    seconds: dict[str, dict[str, float]] = {}
    for name, site in sites.items():
        environment = {"PYTHONPATH": str(site), "CPPCUDA_EXPECTED_LIBRARY": ""}
        for case, row in bench(stage, name, "--part", "flagship", "--own", "--rounds", "5", **environment).items():
            if not row["failed"]:
                seconds.setdefault(case, {})[name] = row["contestants"]["cppcuda"]["median"]
    for case, times in seconds.items():
        if len(times) == 2:
            stage.results[case] = times | {"speedup": times["before"] / times["now"]}
            print(f"  {case}: {stage.results[case]['speedup']:.3f} times as fast as before", flush=True)
    if not stage.results:
        raise RuntimeError("nothing was measured with both")
    speedups = sorted((result["speedup"], case) for case, result in stage.results.items())
    return f"{len(speedups)} cases, from {speedups[0][0]:.3f} ({speedups[0][1]}) to {speedups[-1][0]:.3f} times as fast"


def compiled(stage: Stage) -> str:
    return measure_part(stage, "compiled")


def others(stage: Stage) -> str:
    return measure_part(stage, "others")


def find_tool(name: str) -> str:
    path = os.pathsep.join((os.environ.get("PATH", ""), f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"))
    found = shutil.which(name, path=path)
    if not found:
        raise SkippedError(f"{name} was not found (it comes with the CUDA toolkit)")
    return found


def sanitizers(stage: Stage) -> str:
    sanitizer, program = find_tool("compute-sanitizer"), BUNDLE / "cuda_tests"
    # Only cppcuda's kernels; the option's name depends on the version. The library checks its launches itself.
    helped = subprocess.run([sanitizer, "--help"], capture_output=True, text=True).stdout
    options = ["--report-api-errors", "no", "--error-exitcode", "86"]
    for option in ("--kernel-name", "--kernel-regex"):
        if option in helped:
            options += [option, "kns=cppcuda"]
            break
    environment = FEW_THREADS | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # allocations have their exact sizes
    first = {name.rpartition(".")[0]: name for name in first_of_each_suite(gtest_names(program, stage.environment))}
    suites = list(first)[: 2 if stage.dry_run else None]

    def find_planted() -> None:
        command = [sanitizer, "--tool", "memcheck", *options, sys.executable, "-c", PLANTED]
        found = "\n".join(stage.lines(command, "planted.log", **environment))
        if re.search("device not supported|not supported on this device", found, re.IGNORECASE):
            raise SkippedError("compute-sanitizer does not support this device")
        if "Invalid __global__ read" not in found:
            stage.results["planted error"] = "not found, see planted.log"

    def check(tool: str, suite: str) -> None:
        name = f"{tool} {suite}"
        if name in stage.results or stage.seconds_left() <= 0:
            return
        tests = first[suite] if stage.dry_run else f"{suite}.*"
        command = [sanitizer, "--tool", tool, *options, program, "--gtest_brief=1"]
        output = list(stage.lines(command, f"{name}.log".replace("/", "-"), GTEST_FILTER=tests, **environment))
        if output[-1] == "no time left":
            return
        # The first line that says what happened, and the number of errors.
        errors = [line for line in output if re.match(r"=+ +(?!COMPUTE)\w", line) or "FAILED" in line]
        passed = output[-1] == "exit status 0"
        stage.results[name] = "passed" if passed else "; ".join([*errors[:1], *errors[-1:], output[-1]])
        print(f"  {name}: {stage.results[name]}", flush=True)

    with ThreadPoolExecutor(PROCESSES) as pool:
        planted = pool.submit(find_planted)
        running = [pool.submit(check, tool, suite) for suite in suites for tool in TOOLS]
        planted.result()
        for job in running:
            job.result()
    return summary_of(stage.results, len(TOOLS) * len(suites))


def counters(stage: Stage) -> str:
    """Profiles the flagship cases in three processes, so that one that is killed loses a third of them."""
    ncu = find_tool("ncu")
    program = [sys.executable, BUNDLE / "benchmarks/profile_cases.py", *(["--tiny"] if stage.dry_run else [])]
    options = [*NCU, "--kernel-name", "regex:cppcuda", "--kernel-name-base", "demangled"]
    options += ["--filter-mode", "per-launch-config", "--launch-count", "1"]

    def profile(third: str, metrics: Sequence[str]) -> tuple[str, list[dict[str, str]]]:
        name = f"counters-{third[0]}"
        file = stage.log / f"{name}.csv"
        command = [ncu, *options, "--metrics", ",".join(metrics), "--log-file", file, *program, "--share", third]
        return stage.run(command, f"{name}.log"), counted(file)

    metrics: Sequence[str] = METRICS
    for third in ("0/3", "1/3", "2/3"):
        ended, rows = profile(third, metrics)
        if not rows and ended != "no time left":
            # A GPU may lack some of them, and ncu then counts nothing.
            printed = "".join(file.read_text() for file in stage.log.glob("counters-*"))
            metrics = [m for m in metrics if not re.search(rf"(error|find).*\b{m.split('.')[0]}\b", printed, re.I)]
            ended, rows = profile(third, metrics)
        stage.results |= {f"{third[0]} {row['ID']}": row for row in rows}
        if ended != "exit status 0" or not rows:
            raise RuntimeError(f"{ended}, {len(stage.results)} launches were counted, see counters-{third[0]}.log")
    return f"{len(stage.results)} launches"


def counted(file: Path) -> list[dict[str, str]]:
    """The launches in an ncu log: case, kernel, grid and metrics."""
    lines = file.read_text().splitlines() if file.exists() else []
    table = [line for line in lines if line.startswith('"')]
    rows = []
    for row in list(csv.DictReader(table))[1:]:  # the first line has the units
        kept = {k: v for k, v in row.items() if k in ("ID", "Kernel Name", "Grid Size", "Block Size", *METRICS)}
        ranges = " ".join(value or "" for name, value in row.items() if "Push/Pop" in name)
        case = re.search(r"\w+ (forward|backward|both) [^:]* gpu", ranges)
        rows.append(kept | {"case": case[0] if case else ""})
    return rows


def pytest(stage: Stage, log: str, *options: str | Path, processes: int = PROCESSES) -> str:
    """Runs pytest in parallel, and returns "exit status N", or "no time left"."""
    parallel = processes > 1 and importlib.util.find_spec("xdist") and not stage.dry_run
    workers = ["-n", str(min(processes, os.cpu_count() or 1))] if parallel else []
    pattern = re.compile(r"(?:\[gw\d+\] \[ *\d+%\] )?(PASSED|FAILED|ERROR) (\S+)|(\S+::\S+) (PASSED|FAILED|ERROR)")
    command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider", "--rootdir", BUNDLE]
    output = list(stage.lines([*command, *workers, *options], log, **FEW_THREADS))
    for found in filter(None, map(pattern.match, output)):
        outcome, name = (found[1], found[2]) if found[1] else (found[4], found[3])
        stage.results[name] = outcome.lower() if outcome == "PASSED" else f"{outcome}, see {log}"
    return output[-1]


def ready(stage: Stage) -> str:
    test = "tests/python/test_cuda_operators.py::test_first_launch_of_a_process"
    if stage.dry_run:  # there is no CUDA
        test = "tests/python/test_operators.py::test_outputs_are_saved"
    names = [f"{test}[{name}-graph]" for name in OPERATORS]
    ended = pytest(stage, "ready.log", *(["-k", "outputs_are_saved", test.split("::")[0]] if stage.dry_run else names))
    if not stage.results:
        raise RuntimeError(f"{ended}, see ready.log")
    return summary_of(stage.results, len(stage.results) if stage.dry_run else len(names))


def tests(stage: Stage) -> str:
    # The other files test what a GPU does not change, and some need the whole source tree.
    files = [f"tests/python/test_{name}.py" for name in ("operators", "elementwise", "cuda_operators", "cuda")]
    keyword = "outputs_are_saved" if stage.dry_run else "cuda and not compile and not export and not aoti"
    arguments = stage.log / "deselect.txt"
    arguments.write_text("".join(f"--deselect={name}\n" for name in stage.results))
    ended = []
    # Tests marked large fill the GPU's memory, so they run alone.
    for selection, processes in (("not large", PROCESSES), ("large", 1))[: 1 if stage.dry_run else 2]:
        options = ["-k", keyword, "-m", selection, f"@{arguments}"]
        ended.append(pytest(stage, "tests.log", *files, *options, processes=processes))
    # 5: no test was selected
    if any(end not in ("exit status 0", "exit status 1", "exit status 5") for end in ended):
        raise RuntimeError(f"{summary_of(stage.results, len(stage.results))}; {', '.join(ended)}, see tests.log")
    return summary_of(stage.results, len(stage.results))


@dataclass(frozen=True)
class Plan:
    run: Callable[[Stage], str]
    least: int  # seconds that are kept for the stage
    most: int  # seconds that it may take while others follow


PLANS = {
    "ready": Plan(ready, 20, 60),
    "smoke": Plan(smoke, 30, 60),
    "flagship": Plan(flagship, 80, 130),
    "counters": Plan(counters, 40, 90),
    "before": Plan(before, 50, 80),
    "sanitizers": Plan(sanitizers, 50, 90),
    "compiled": Plan(compiled, 20, 60),
    "others": Plan(others, 20, 60),
    "tests": Plan(tests, 30, 300),
}
FIRST = ("ready", "smoke", "flagship", "counters")


class Clocks:
    """Records the GPU's clock rates, power and reasons for throttling once per second."""

    QUERY = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "clocks_event_reasons.active")

    def __init__(self, file: Path) -> None:
        self.file, self.process, self.read = file, None, 0
        program = shutil.which("nvidia-smi")
        if program:
            query = f"--query-gpu={','.join(self.QUERY)}"
            command = [program, query, "--format=csv,noheader,nounits", "-i", "0", "-l", "1"]
            self.process = subprocess.Popen(command, stdout=file.open("w"), stderr=subprocess.DEVNULL)

    def since_last_call(self) -> dict[str, Any]:
        """The smallest, median and largest of each number, and the reasons, since the last call."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        rows = [row for row in csv.reader(lines[self.read :]) if len(row) == len(self.QUERY)]
        self.read = len(lines)
        result: dict[str, Any] = {}
        for name, column in zip(self.QUERY, zip(*rows, strict=True), strict=False):
            if name == self.QUERY[-1]:
                result[name] = sorted({value.strip() for value in column})
                continue
            values = [float(value) for value in column if re.fullmatch(r" *[0-9.]+ *", value)]
            if values:
                result[name] = [min(values), statistics.median(values), max(values)]
        return result

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


class Report:
    """The three files of results."""

    def __init__(self, out: Path, work: Path, results: dict[str, Any]) -> None:
        self.out, self.work, self.results = out, work, results
        self.lock, self.stopped = threading.Lock(), threading.Event()
        threading.Thread(target=self._publish_often, daemon=True).start()

    def _publish_often(self) -> None:
        while not self.stopped.wait(10):
            self.publish()

    def summary(self) -> str:
        machine, stages = self.results["machine"], list(self.results["stages"].items())
        lines = [f"{machine['gpu'] or 'no GPU'}, torch {machine['torch']}, commit {self.results['commit']}"]
        lines += [f"{name}: {s['status']} ({s['seconds']:.0f} s), {s['line']}" for name, s in stages]
        return "\n".join(lines) + "\n"

    def publish(self) -> None:
        """Writes the files. One that is being written has another name, so that a kill leaves the last one."""
        with self.lock:
            self._replace("summary.txt", lambda path: path.write_text(self.summary()))
            # A copy, because the stages' threads go on writing. json copies a dict's items at once.
            results = json.loads(json.dumps(self.results))
            self._replace("results.json", lambda path: path.write_text(json.dumps(results, indent=1) + "\n"))

            def archive(path: Path) -> None:
                with tarfile.open(path, "w:gz", compresslevel=1) as tar:
                    tar.add(self.work, "logs")

            self._replace("logs.tar.gz", archive)

    def _replace(self, name: str, write: Callable[[Path], object]) -> None:
        temporary = self.work.parent / name
        write(temporary)
        shutil.move(temporary, self.out / f".{name}")
        (self.out / f".{name}").replace(self.out / name)


def run_stages(options: argparse.Namespace, report: Report, environment: dict[str, str], deadline: float) -> None:
    earlier = json.loads(options.resume.read_text())["stages"] if options.resume else {}
    unfinished = [name for name in FIRST[1:] if earlier.get(name, {}).get("status") != "passed"]
    rest = [*unfinished, *(name for name in PLANS if name not in FIRST)]
    chosen = [name for name in PLANS if name in (options.only or (rest if options.resume else FIRST))]
    clocks = Clocks(report.work / "gpu.csv")
    for i, name in enumerate(chosen):
        start = time.monotonic()
        kept = sum(PLANS[later].least for later in chosen[i + 1 :])
        seconds = deadline - start - kept
        if chosen[i + 1 :] and not options.dry_run:
            seconds = min(seconds, PLANS[name].most)
        # What passed or was measured in an earlier call is not repeated.
        kept_results = {
            k: r for k, r in earlier.get(name, {}).get("results", {}).items() if r == "passed" or is_measured(r)
        }
        entry: dict[str, Any] = {"status": "running", "seconds": 0, "line": "", "results": kept_results}
        report.results["stages"][name] = entry
        (report.work / name).mkdir()
        stage = Stage(
            report.work / name, start + seconds, environment, entry["results"], options.dry_run, options.before
        )
        print(f"== {name} (at most {seconds:.0f} s)", flush=True)
        try:
            if seconds < 5:
                raise RuntimeError("no time left")
            entry["line"] = PLANS[name].run(stage)
            entry["status"] = "FAILED" if "FAILED" in entry["line"] else "passed"
            if stage.seconds_left() <= 0 and entry["status"] == "passed":
                entry["status"], entry["line"] = "FAILED", f"not done after {seconds:.0f} s; {entry['line']}"
        except SkippedError as why:
            entry["status"], entry["line"] = "SKIPPED", str(why)
        except Exception as error:  # the next stages run nevertheless
            entry["status"], entry["line"] = "FAILED", f"{error}"
        entry["seconds"] = time.monotonic() - start
        entry["clocks"] = clocks.since_last_call()
        print(f"{name}: {entry['status']}, {entry['line']}", flush=True)
        report.publish()
    clocks.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    out = Path(os.environ.get("OUT", "out/gpu_check"))
    parser.add_argument("--out", type=Path, default=out, help="folder for the results (default: $OUT or out/gpu_check)")
    parser.add_argument("--minutes", type=float, default=5, help="time for all stages together (default: 5)")
    parser.add_argument("--only", action="append", choices=PLANS, default=[], help="a stage; may be repeated")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="the results.json of an earlier call")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="an earlier bundle, unpacked")
    parser.add_argument("--dry-run", action="store_true", help="without a GPU: emulated kernels, tiny sizes")
    parser.add_argument("--began", type=float, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.before = options.before and options.before.resolve()
    deadline = time.monotonic() - options.began + 60 * options.minutes - MARGIN

    site = BUNDLE / "site"
    environment = os.environ | {"PYTHONPATH": str(site), "CPPCUDA_BUILD": "0", "PYTHONUNBUFFERED": "1"}
    environment["CPPCUDA_COMMIT"] = commit = (BUNDLE / "commit").read_text().strip()
    asked = subprocess.run([sys.executable, "-c", MACHINE], env=environment, capture_output=True, text=True)
    if asked.returncode:
        print(f"gpu_check: the bundle cannot be used here:\n{asked.stderr[-2000:]}", file=sys.stderr)
        return 1
    machine = json.loads(asked.stdout.splitlines()[-1])
    environment["CPPCUDA_EXPECTED_LIBRARY"] = machine["library"]
    environment["LD_LIBRARY_PATH"] = f"{machine['torch_folder']}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"
    if not options.dry_run:
        if not machine["gpu"]:
            print(f"gpu_check: no GPU that torch {machine['torch']} can use", file=sys.stderr)
            return 2
        built = machine["architectures"]
        if not any(re.fullmatch(rf"(sm|compute)_{machine['capability'][:-1]}\d[af]?", name) for name in built):
            print(
                f"gpu_check: the kernels are for {', '.join(built)}, but the GPU has {machine['capability']}",
                file=sys.stderr,
            )
            return 1
        environment["CPPCUDA_REQUIRE_CUDA"] = "1"

    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"commit": commit, "machine": machine, "dry_run": options.dry_run, "stages": {}}
    with tempfile.TemporaryDirectory(prefix="gpu_check-") as folder:
        work = Path(folder) / "logs"
        work.mkdir()
        report = Report(options.out, work, results)
        run_stages(options, report, environment, deadline)
        report.stopped.set()
        report.publish()
    print(f"\n{report.summary()}", end="")
    statuses = {stage["status"] for stage in results["stages"].values()}
    return 1 if "FAILED" in statuses else 3 if "SKIPPED" in statuses else 0


if __name__ == "__main__":
    sys.exit(main())
