"""Describes the machine that the numbers were measured on."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import cppcuda
import torch

# Environment variables that affect speed.
_AFFECTS_SPEED = re.compile("(OMP|GOMP|KMP|MKL|MALLOC|CPPCUDA|ATEN|THP|TORCHINDUCTOR)_|LD_PRELOAD|GLIBC_TUNABLES")


def _output_of(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def caches() -> dict[str, int]:
    """The sizes of the first CPU's caches in bytes. In a virtual machine, these are the reported sizes."""
    sizes = {}
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        size = re.fullmatch(r"(\d+)([KM]?)", _text(cache / "size"))
        if size:
            kind = {"Data": "d", "Instruction": "i"}.get(_text(cache / "type"), "")
            sizes[f"L{_text(cache / 'level')}{kind}"] = int(size[1]) << {"": 0, "K": 10, "M": 20}[size[2]]
    return sizes


def machine() -> dict[str, Any]:
    model = re.search(r"model name\s*: (.*)", _text("/proc/cpuinfo"))
    record: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        # A copy of the files without .git does not know its commit.
        "commit": os.environ.get("CPPCUDA_COMMIT") or _output_of("git", "rev-parse", "HEAD").strip() or None,
        "uncommitted_changes": bool(_output_of("git", "status", "--porcelain", "--untracked-files=no").strip()),
        "cppcuda": cppcuda.__version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "cpu": model[1] if model else platform.processor() or platform.machine(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches": caches(),
        "transparent_hugepage": _text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "environment": {k: v for k, v in os.environ.items() if _AFFECTS_SPEED.match(k)},
        "load_average": os.getloadavg()[0],
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "gpu": None,
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        query = _output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        record |= {
            "gpu": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "l2_bytes": properties.L2_cache_size,
            "driver": query.splitlines()[0].strip() if query else None,
        }
    return record
