"""DTensors: two processes compute on the CPU and communicate with gloo."""

from __future__ import annotations

import itertools
import os
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import cppcuda
import pytest
import torch
import torch.multiprocessing as mp
from op_samples import OPS, OpEntry, Sample, forward_ops, outputs_of, register_all
from support import assert_close, over_ops, over_samples, scalar, some_of
from torch import Tensor, distributed
from torch.torch_version import TorchVersion

if not distributed.is_available():
    pytest.skip("torch was built without distributed", allow_module_level=True)

from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

WORLD_SIZE = 2
# Second derivatives use torch's own operators; older versions of DTensor got select of a sharded tensor wrong.
SECOND_ORDER = TorchVersion(torch.__version__) >= (2, 15)


# The dims of tensors as in einsum, then the dims along which the operator computes independently.
RULES = {
    "sigmoid": "...->... ...",
    "sigmoid_": "...-> ...",
    "_sigmoid_backward": "...,...->... ...",
    "quick_gelu": "...->... ...",
    "quick_gelu_": "...-> ...",
    "_quick_gelu_backward": "...,...->... ...",
    "trilinear": "...N_F,...N_->...NF ...FN",
    "_trilinear_backward": "...NF,...N_F,...N_->...N_F,...N_ ...FN",
    "upsample_bilinear2d": "NCHW->NC__ CN",
    "_upsample_bilinear2d_backward": "NCHW->NC__ CN",
    "lltm_cell": "...BI,...__,..._,...BS,...BS->...BS,...BS ...B",
    "_lltm_cell": "...BI,...__,..._,...BS,...BS->...BS,...BS,...B_ ...B",
    "_lltm_cell_backward": "...BS,...BS,...B_,...B_,...BI,...__,...BS,...BS->...BI,...__,..._,...BS,...BS ...B",
}


def test_rules_follow_from_the_declarations() -> None:
    rules = torch.ops.cppcuda._sharding_rule
    assert sorted(getattr(rules, name)() for name in rules.overloads()) == sorted(map(" ".join, RULES.items()))


def work(rank: int, store: str, connection: Connection) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD_SIZE)
    cppcuda.distributed.register_sharding()
    register_all()
    while True:
        function, args = connection.recv()
        torch.manual_seed(0)
        try:
            function(*args)
            connection.send("")
        except Exception:
            connection.send(traceback.format_exc())


class Cluster:
    """`cluster(f, *args)` calls a function of this module in each process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.starts = folder, 0
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []

    def start(self) -> None:
        self.starts += 1
        context = mp.get_context("spawn")
        for rank in range(WORLD_SIZE):
            ours, theirs = context.Pipe()
            args = (rank, os.fspath(self.folder / f"store{self.starts}"), theirs)
            process = context.Process(target=work, args=args, daemon=True)
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
        if not self.processes:
            self.start()
        for pipe in self.pipes:
            pipe.send((function, args))
        waiting = list(self.pipes)
        try:
            while waiting:
                ready = wait(waiting, timeout=300)
                assert ready, f"no answer from process {[self.pipes.index(w) for w in waiting]}"
                for pipe in ready:
                    assert isinstance(pipe, Connection)
                    error = pipe.recv()
                    assert not error, error
                    waiting.remove(pipe)
        except BaseException:
            self.stop()  # otherwise the other process would wait for the one that failed
            raise


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    processes = Cluster(tmp_path_factory.mktemp("cluster"))
    yield processes
    processes.stop()


def entry_of(name: str) -> OpEntry:
    return next(e for e in OPS if e.name == name)


def mesh() -> Any:
    return distributed.init_device_mesh("cpu", (WORLD_SIZE,))


def distribute(sample: Sample, placements: tuple[Placement, ...]) -> Sample:
    return sample.with_tensors(
        tuple(distribute_tensor(t, mesh(), [p]) for t, p in zip(sample.tensors, placements, strict=True))
    )


def some_placements(sample: Sample, count: int) -> list[tuple[Placement, ...]]:
    """Each tensor is replicated, or sharded along any dim."""
    return some_of(itertools.product(*([Replicate(), *map(Shard, range(t.dim()))] for t in sample.tensors)), count)


def rows_sharded(entry: OpEntry) -> tuple[Sample, Sample]:
    """A sample, and the same sample with its rows sharded over the processes."""
    sample = entry.of_size(2 * WORLD_SIZE)
    return sample, distribute(sample, tuple(Shard(0) if rows else Replicate() for rows in entry.with_rows))


def whole(outputs: tuple[Tensor, ...]) -> list[Tensor]:
    assert all(isinstance(t, DTensor) for t in outputs)
    return [t.full_tensor() for t in outputs]


def check_every_placement(name: str, sample_name: str) -> None:
    entry = entry_of(name)
    sample = entry.sample(sample_name)
    expected = outputs_of(entry.op(*sample.args))
    for placements in some_placements(sample, 12):
        outputs = outputs_of(entry.op(*distribute(sample, placements).args))
        assert_close(whole(outputs), list(expected), f"{sample.name} {placements}", rtol=1e-12, atol=1e-12)


@pytest.mark.capability("DTensor")
@over_samples("basic")
def test_every_placement(entry: OpEntry, name: str, cluster: Cluster) -> None:
    cluster(check_every_placement, entry.name, name)


def check_gradients(name: str, sample_name: str) -> None:
    """Checks gradients of first and second order."""
    entry = entry_of(name)

    def gradients(sample: Sample) -> list[Tensor]:
        tensors = sample.tensors
        first = torch.autograd.grad(scalar(sample.bind(entry.op)(*tensors)), tensors, create_graph=True)
        if not SECOND_ORDER:
            return list(first)
        return [*first, *torch.autograd.grad(scalar(first), tensors, materialize_grads=True)]

    sample = entry.sample(sample_name)
    expected = gradients(sample.requires_grad())
    for placements in some_placements(sample, 8):
        actual = whole(tuple(gradients(distribute(sample, placements).requires_grad())))
        assert_close(actual, expected, f"{sample.name} {placements}", rtol=1e-10, atol=1e-10)


@pytest.mark.capability("DTensor")
@over_samples("basic", entries=forward_ops())
def test_gradients(entry: OpEntry, name: str, cluster: Cluster) -> None:
    cluster(check_gradients, entry.name, name)


def check_rows(name: str) -> None:
    """Sharded rows are computed by the process that has them: nothing is sent, forward or backward."""
    entry = entry_of(name)
    sharded = rows_sharded(entry)[1].requires_grad()
    with CommDebugMode() as sent:
        outputs = sharded.bind(entry.op)(*sharded.tensors)
        grads = torch.autograd.grad(outputs, sharded.tensors, [torch.ones_like(t) for t in outputs])
    assert sent.get_total_counts() == 0
    assert all(t.placements == (Shard(0),) for t in outputs)
    # The gradient of a replicated tensor is a sum over processes.
    expected = [(Shard(0) if rows else Partial(),) for rows in entry.with_rows]
    assert [t.placements for t in grads] == expected


@pytest.mark.capability("DTensor")
@over_ops(forward_ops())
def test_rows_are_not_sent(entry: OpEntry, cluster: Cluster) -> None:
    cluster(check_rows, entry.name)


def check_features() -> None:
    feats, points = torch.randn(4, 8, 6), torch.rand(4, 3)
    sharded = distribute(Sample("features", (feats, points)), (Shard(2), Replicate())).requires_grad()
    with CommDebugMode() as sent:
        out = cppcuda.functional.trilinear(*sharded.args)
        grads = torch.autograd.grad(out, sharded.args, torch.ones_like(out))
    assert sent.get_total_counts() == 0
    assert out.placements == (Shard(1),)
    assert [t.placements for t in grads] == [(Shard(2),), (Partial(),)]


def test_features_are_not_sent(cluster: Cluster) -> None:
    cluster(check_features)


def check_sizes() -> None:
    """DTensor's cache of sharding decisions distinguishes calls by their arguments that are not tensors."""
    image = distribute_tensor(torch.randn(2, 3, 4, 5), mesh(), [Shard(0)])
    for size in ((8, 10), (7, 3)):
        out = cppcuda.functional.upsample_bilinear2d(image, size=size)
        assert out.shape == (2, 3, *size)
        assert out.full_tensor().shape == out.shape


def test_sizes_are_not_mistaken(cluster: Cluster) -> None:
    cluster(check_sizes)


def check_in_place(name: str) -> None:
    in_place = getattr(cppcuda.functional, f"{name}_")
    x = torch.randn(4, 6, 3)
    for placement in (Shard(0), Shard(1), Shard(2), Replicate()):
        sharded = distribute_tensor(x.clone(), mesh(), [placement])
        in_place(sharded)
        assert sharded.placements == (placement,)
        assert_close(sharded.full_tensor(), entry_of(name).reference(x), rtol=1e-5, atol=1e-5)
    partial = DTensor.from_local(x, mesh(), [Partial()])
    with pytest.raises(RuntimeError, match="in-place"):
        in_place(partial)
    assert_close(partial.to_local(), x)


@over_ops([e for e in forward_ops() if e.writing_names])
def test_in_place(entry: OpEntry, cluster: Cluster) -> None:
    cluster(check_in_place, entry.name)


def check_compiled(name: str) -> None:
    entry = entry_of(name)
    sample, sharded = rows_sharded(entry)
    compiled = torch.compile(entry.op, fullgraph=True, backend="aot_eager")
    outputs = outputs_of(compiled(*sharded.args))
    assert_close(whole(outputs), list(outputs_of(entry.op(*sample.args))), rtol=1e-12, atol=1e-12)


@over_ops(forward_ops())
def test_compiled(entry: OpEntry, cluster: Cluster) -> None:
    cluster(check_compiled, entry.name)


def test_every_operator_has_a_rule() -> None:
    # DTensor does not support operators that return nothing and write to an argument named out.
    names = {name for e in OPS for name in (e.name, *e.writing_names) if not name.endswith(".out")}
    assert set(RULES) == names
