"""DTensors: two processes compute on the CPU and communicate with gloo."""

from __future__ import annotations

import atexit
import importlib
import io
import itertools
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import Tensor, distributed
from torch.torch_version import TorchVersion

from cppcuda.testing.compare import assert_close, scalar, some_of
from cppcuda.testing.registry import (
    DIFFERENTIABLE,
    HAS_BACKWARD,
    HAS_SIZES,
    PUBLIC,
    TAKES_SOME_ROWS,
    NotCheckedError,
    Requirement,
    checks,
    samples,
)
from cppcuda.testing.samples import OpEntry, RowDims, Sample, is_variable, outputs_of

WORLD_SIZE = 2
# Second derivatives use torch's own operators; older versions of DTensor got select of a sharded tensor wrong.
SECOND_ORDER = TorchVersion(torch.__version__) >= "2.15"
TOLERANCE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}

AVAILABLE = Requirement(lambda entry: distributed.is_available(), "torch was built without distributed")


# ---------------------------------------------------------------- two processes


def work(rank: int, store: str, libraries: list[str], connection: Connection) -> None:
    """Runs the functions that the connection sends."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD_SIZE)
    for library in libraries:
        torch.ops.load_library(library)
    while True:
        function, args = connection.recv()
        torch.manual_seed(0)
        try:
            function(*args)
            connection.send("")
        except Exception:
            connection.send(traceback.format_exc())


@contextmanager
def without_main_module() -> Iterator[None]:
    """A process that is started here does not run the script again that calls ``check``."""
    main = sys.modules["__main__"]
    before: dict[str, Any] = {
        name: main.__dict__.pop(name) for name in ("__file__", "__spec__") if name in main.__dict__
    }
    main.__spec__ = None
    try:
        yield
    finally:
        main.__dict__.update(before)


class Cluster:
    """`cluster(f, *args)` calls a function of an importable module in each process."""

    def __init__(self) -> None:
        self.folder, self.starts = tempfile.TemporaryDirectory(), 0
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        self.libraries: list[str] = []
        atexit.register(self.stop)

    def start(self) -> None:
        self.starts += 1
        self.libraries = sorted(map(str, torch.ops.loaded_libraries))
        context = mp.get_context("spawn")
        for rank in range(WORLD_SIZE):
            ours, theirs = context.Pipe()
            store = os.fspath(Path(self.folder.name) / f"store{self.starts}")
            process = context.Process(target=work, args=(rank, store, self.libraries, theirs), daemon=True)
            with without_main_module():
                process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        self.pipes, self.processes = [], []

    def __call__(self, function: Callable[..., None], *args: Any) -> None:
        if self.libraries != sorted(map(str, torch.ops.loaded_libraries)):
            self.stop()  # the processes lack a library that was loaded later
        if not self.processes:
            self.start()
        for pipe in self.pipes:
            pipe.send((function, args))
        waiting = list(self.pipes)
        try:
            while waiting:
                ready = wait(waiting, timeout=300)
                assert ready, f"no answer from process {[self.pipes.index(w) for w in waiting]}"
                for pipe in [p for p in waiting if p in ready]:
                    error = pipe.recv()
                    assert not error, f"{error.splitlines()[-1]}\n{error}"
                    waiting.remove(pipe)
        except BaseException:
            self.stop()  # otherwise the other process would wait for the one that failed
            raise


@cache
def cluster() -> Cluster:
    """The processes of this session, which end with it."""
    return Cluster()


def on_cluster(function: Callable[..., None], entry: OpEntry, sample: Sample, *args: Any) -> None:
    """Calls ``function(op, sample, *args)`` in each process, which registers the operator first."""
    data = io.BytesIO()
    torch.save((sample.name, sample.args, args), data)
    try:
        cluster()(run, function, entry.name, entry.modules, data.getvalue())
    except AssertionError as error:
        if UnknownError.__name__ in str(error):
            reason = (
                f"a new process has no operator {entry.name}: modules must name the module that registers it, which is "
                "not the script that runs"
            )
            raise NotCheckedError(reason) from None
        raise


class UnknownError(Exception):
    """The process has no such operator."""


def run(function: Callable[..., None], name: str, modules: tuple[str, ...], data: bytes) -> None:
    from cppcuda.distributed import register_sharding

    for module in modules:
        importlib.import_module(module)
    entry = OpEntry(name, lambda: None, ())
    try:
        entry.op  # noqa: B018
    except AttributeError:
        raise UnknownError(name) from None
    if hasattr(getattr(torch.ops, entry.namespace), "_sharding_rule"):
        register_sharding(entry.namespace)
    sample_name, args, rest = torch.load(io.BytesIO(data), weights_only=False)
    function(entry.op, Sample(sample_name, args), *rest)


# ---------------------------------------------------------------- in each process


def mesh() -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (WORLD_SIZE,))


def distribute(sample: Sample, placements: tuple[Any, ...]) -> Sample:
    """A sample with these placements of its inputs."""
    from torch.distributed.tensor import distribute_tensor

    inputs = zip(sample.inputs, placements, strict=True)
    return sample.with_inputs(tuple(distribute_tensor(t, mesh(), [placement]) for t, placement in inputs))


def some_placements(sample: Sample, count: int) -> list[tuple[Any, ...]]:
    """Each tensor is replicated, or sharded along any dim; tensors of indices are replicated."""
    from torch.distributed.tensor import Replicate, Shard

    dims = (range(t.dim() if is_variable(t) else 0) for t in sample.inputs)
    return some_of(itertools.product(*([Replicate(), *map(Shard, d)] for d in dims)), count)


def rows_sharded(sample: Sample, row_dims: RowDims) -> Sample:
    """A sample with its rows sharded over the processes."""
    from torch.distributed.tensor import Replicate, Shard

    return distribute(sample, tuple(Replicate() if dim is None else Shard(dim) for dim in row_dims))


def whole(outputs: tuple[Tensor, ...]) -> list[Tensor]:
    from torch.distributed.tensor import DTensor

    gathered = []
    for t in outputs:
        assert isinstance(t, DTensor), "the result is not a DTensor"
        gathered.append(t.full_tensor())
    return gathered


def gradients(f: Callable[..., tuple[Tensor, ...]], sample: Sample) -> list[Tensor]:
    """Gradients of the first and second order."""
    sample = sample.requires_grad()
    tensors = sample.tensors
    options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
    first = torch.autograd.grad(scalar(f(*tensors)), tensors, create_graph=True, **options)
    if not SECOND_ORDER:
        return list(first)
    return [*first, *torch.autograd.grad(scalar(first), tensors, **options)]


def check_every_placement(op: Any, sample: Sample, expected: list[Tensor]) -> None:
    for placements in some_placements(sample, 12):
        outputs = outputs_of(distribute(sample, placements).call(op))
        assert_close(whole(outputs), expected, f"{sample.name} {placements}", **TOLERANCE)


def check_gradients(op: Any, sample: Sample, expected: list[Tensor]) -> None:
    for placements in some_placements(sample, 8):
        sharded = distribute(sample, placements)
        actual = whole(tuple(gradients(sharded.bind(op), sharded)))
        assert_close(actual, expected, f"{sample.name} {placements}", **TOLERANCE)


def check_rows(op: Any, sample: Sample, row_dims: RowDims, of_outputs: RowDims) -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
    from torch.distributed.tensor.debug import CommDebugMode

    sharded = rows_sharded(sample, row_dims).requires_grad()
    with CommDebugMode() as sent:
        outputs = sharded.bind(op)(*sharded.tensors)
        grads = torch.autograd.grad(outputs, sharded.tensors, [torch.ones_like(t) for t in outputs])
    messages = sent.get_total_counts()
    assert messages == 0, f"{messages} messages"
    placements = [t.placements if isinstance(t, DTensor) else None for t in outputs]
    assert placements == [(Replicate() if dim is None else Shard(dim),) for dim in of_outputs], (
        f"outputs are not sharded by rows: {placements}"
    )
    # The gradient of a replicated tensor is a sum over processes.
    pairs = zip(sample.inputs, row_dims, strict=True)
    expected = [(Partial() if dim is None else Shard(dim),) for t, dim in pairs if is_variable(t)]
    found = [t.placements for t in grads if isinstance(t, DTensor)]
    assert found == expected, f"gradients are {found}, expected {expected}"


def check_compiled(op: Any, sample: Sample, row_dims: RowDims, expected: list[Tensor]) -> None:
    # All operators compile the same frame of torch's. From the sizes of an earlier operator torch would guess dynamic
    # ones, of the whole tensor but not of its shard, which fails.
    torch._dynamo.reset()
    compiled: Any = torch.compile(op, fullgraph=True, backend="aot_eager")
    assert_close(whole(outputs_of(rows_sharded(sample, row_dims).call(compiled))), expected, **TOLERANCE)


# ---------------------------------------------------------------- properties


@checks("DTensor", over=(samples("basic"),), needs=(AVAILABLE,))
def every_placement(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    on_cluster(check_every_placement, entry, sample, list(outputs_of(sample.call(entry.reference))))


@checks("DTensor", over=(samples("basic"),), needs=(AVAILABLE, DIFFERENTIABLE, PUBLIC))
def gradients_of_dtensors(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    expected = [t.detach() for t in gradients(sample.bind(entry.reference), sample)]
    on_cluster(check_gradients, entry, sample, expected)


@checks("DTensor", needs=(AVAILABLE, DIFFERENTIABLE, HAS_SIZES, TAKES_SOME_ROWS, HAS_BACKWARD))
def rows_are_not_sent(entry: OpEntry) -> None:
    """Sharded rows are computed by the process that has them: nothing is sent, forward or backward."""
    on_cluster(check_rows, entry, entry.of_size(2 * WORLD_SIZE), entry.row_dims, entry.row_dims_of_outputs)


@checks("DTensor", needs=(AVAILABLE, HAS_SIZES, PUBLIC), compiles=True)
def compiled_dtensors(entry: OpEntry) -> None:
    sample = entry.of_size(2 * WORLD_SIZE)
    expected = list(outputs_of(sample.call(entry.reference)))
    on_cluster(check_compiled, entry, sample, entry.row_dims, expected)
