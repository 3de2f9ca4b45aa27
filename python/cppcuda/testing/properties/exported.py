"""torch.export and AOTInductor: dynamic sizes, saving and loading, and models that compute gradients."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, export

from cppcuda.testing.compare import assert_close, raises, scalar, total
from cppcuda.testing.registry import (
    DIFFERENTIABLE,
    HAS_BAD_INPUTS,
    HAS_SIZES,
    PUBLIC,
    TAKES_SOME_ROWS,
    NotCheckedError,
    checks,
    each,
    samples,
)
from cppcuda.testing.samples import OpEntry, Sample, differing_dims, is_variable, masked_rows

# Sizes that are equal become one symbol during tracing; no op has fixed sizes equal to these.
TRACED, OTHERS = 6, (2, 11, 130)


class Call(nn.Module):
    """The op as a function of its inputs."""

    def __init__(self, entry: OpEntry, sample: Sample, op: Any = None) -> None:
        super().__init__()
        self.f = sample.bind_inputs(op or entry.op)
        self.row_dims = entry.row_dims if entry.has_sizes else ()

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return self.f(*tensors)


class Vmapped(Call):
    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return torch.func.vmap(self.f)(*tensors)


class Masked(Call):
    """The number of rows is only known at run time."""

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        mask, *tensors_ = tensors
        return self.f(*masked_rows(tensors_, self.row_dims, mask))


class Gradients(Call):
    """Outputs, and the gradients of all inputs together and of each input alone (output_mask is partly false)."""

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        variables = [i for i, t in enumerate(tensors) if is_variable(t)]
        with torch.enable_grad():
            found = [*self.f(*tensors)]
            for wanted in (variables, *([i] for i in variables)):
                leaves = [t.detach().requires_grad_(i in wanted) for i, t in enumerate(tensors)]
                inputs = [leaves[i] for i in wanted]
                value = scalar(self.f(*leaves))
                found += torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)
        return tuple(t.detach() for t in found)


class GradientsOfGradients(Gradients):
    """Those, and second derivatives."""

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        found = super().forward(*tensors)
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_(is_variable(t)) for t in tensors]
            variables = [t for t in leaves if is_variable(t)]
            first = torch.autograd.grad(scalar(self.f(*leaves)), variables, create_graph=True)
            return (*found, *torch.autograd.grad(scalar(first), variables))


def dynamic_rows(entry: OpEntry, largest: int = 1 << 40) -> tuple[dict[int, Any], ...]:
    """The dynamic sizes of each input. They follow from one, the number of rows: offsets may have one more, say."""
    rows = Dim("rows", min=2, max=largest)
    small, large = (entry.of_size(count).inputs for count in (TRACED, TRACED + 1))

    def size(few: int, more: int) -> Any:
        factor = more - few
        rest = few - factor * TRACED
        multiple = rows if factor == 1 else factor * rows
        return multiple + rest if rest else multiple

    differing = zip(small, large, differing_dims(small, large), strict=True)
    return tuple({d: size(t.shape[d], u.shape[d]) for d in dims} for t, u, dims in differing)


def exported(module: nn.Module, sample: Sample, *extra: Tensor, **kwargs: Any) -> torch.export.ExportedProgram:
    return export(module, (*extra, *sample.inputs), strict=False, **kwargs)


CONSTANTS = "fake tensor in the exported program constant's list"


def takes_gradients_inside(model: type[Call], entry: OpEntry, sample: Sample) -> bool:
    """torch cannot export a model that computes the gradient of an op that saves its output, not even of torch.exp."""
    try:
        exported(model(entry, sample), sample)
        return True
    except RuntimeError as error:
        if CONSTANTS not in str(error):
            raise
    with raises(RuntimeError, CONSTANTS):  # otherwise it is the op that cannot be exported
        plain = lambda *args: total(a.exp().sum() for a in args if isinstance(a, Tensor))  # noqa: E731
        exported(model(entry, sample, plain), sample)
    return False


def saved_and_loaded(program: torch.export.ExportedProgram) -> nn.Module:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    return torch.export.load(buffer).module()


def targets(program: torch.export.ExportedProgram) -> list[Any]:
    return [n.target for n in program.graph.nodes if n.op == "call_function"]


NOT_EXPORTED = "torch {} does not export this of plain torch either"


@checks("export", over=(each("model", (Call, Gradients)),), needs=(DIFFERENTIABLE, HAS_SIZES), compiles=True)
def dynamic_sizes(entry: OpEntry, model: type[Call]) -> None:
    sample = entry.of_size(TRACED)
    module, plain = model(entry, sample), model(entry, sample, entry.reference)
    shapes = (dynamic_rows(entry),)
    if model is Gradients and not takes_gradients_inside(model, entry, sample):
        raise NotCheckedError(NOT_EXPORTED.format(torch.__version__))
    program = exported(module, sample, dynamic_shapes=shapes)
    assert entry.op in targets(program), "the operator is not in the exported program"
    if model is Gradients and entry.backward:
        assert entry.backward.op in targets(program), "the backward operator is not in the exported program"
    loaded = saved_and_loaded(program)
    for rows in OTHERS:
        other = entry.of_size(rows)
        assert_close(loaded(*other.inputs), plain(*other.inputs), f"{rows} rows")


@checks("export", needs=(DIFFERENTIABLE, HAS_SIZES), compiles=True)
def decompositions_and_gradients_of_an_exported_program(entry: OpEntry) -> None:
    sample = entry.of_size(TRACED)
    program = exported(Call(entry, sample), sample)
    # Without the ops that torch itself decomposes.
    decomposed = program.run_decompositions({} if entry.namespace == "aten" else None)
    assert entry.op in targets(decomposed), "the operator is not in the decomposed program"
    sample = sample.requires_grad()
    leaves = sample.tensors
    options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
    actual = torch.autograd.grad(scalar(program.module()(*sample.inputs)), leaves, **options)
    assert_close(actual, torch.autograd.grad(scalar(sample.bind(entry.reference)(*leaves)), leaves, **options))


@checks("export", over=(samples("basic"),), compiles=True)
def every_basic_sample(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    expected = sample.bind(entry.reference)(*sample.tensors)
    assert_close(exported(Call(entry, sample), sample).module()(*sample.inputs), expected, name)


@checks("export", needs=(HAS_SIZES,), uses=("vmap",), compiles=True)
def vmap_with_a_dynamic_batch(entry: OpEntry) -> None:
    """A batching rule that computes in int would fix the batch size."""

    def batch(size: int, rows: int) -> Sample:
        return entry.of_size(rows).map_inputs(
            lambda t: torch.stack([t / (i + 1) if is_variable(t) else t for i in range(size)])
        )

    sample = batch(4, TRACED)
    module, plain = (Vmapped(entry, entry.of_size(TRACED), op) for op in (entry.op, entry.reference))
    size = Dim("size", min=2, max=1 << 20)
    shapes = tuple({0: size, **{d + 1: rows for d, rows in dims.items()}} for dims in dynamic_rows(entry, 1 << 20))
    program = exported(module, sample, dynamic_shapes=(shapes,))
    # torch 2.11 cannot save the bookkeeping of its own vmap, which run_decompositions removes.
    loaded = saved_and_loaded(program.run_decompositions({}))
    for size_, rows_ in ((2, 5), (7, 9), (9, 2)):
        other = batch(size_, rows_)
        assert_close(loaded(*other.inputs), plain(*other.inputs), f"{size_} times {rows_} rows")


@checks("export", needs=(HAS_SIZES, TAKES_SOME_ROWS), compiles=True)
def unbacked_rows(entry: OpEntry) -> None:
    sample = entry.of_size(TRACED)
    module, plain = (Masked(entry, sample, op) for op in (entry.op, entry.reference))
    mask = torch.arange(TRACED) % 2 == 0
    loaded = saved_and_loaded(exported(module, sample, mask))
    for other in (mask, ~mask, torch.zeros_like(mask), torch.ones_like(mask), torch.arange(TRACED) == 1):
        assert_close(loaded(other, *sample.inputs), plain(other, *sample.inputs), f"{int(other.sum())} rows")


@checks("export", needs=(HAS_BAD_INPUTS,), compiles=True)
def bad_sizes_are_refused_while_exporting(entry: OpEntry) -> None:
    bad = next((b for b in entry.all_bad_inputs if "rows" in b.name or " with " in b.message), None)
    if bad is None:
        raise NotCheckedError("no bad input is called rows")
    sample = Sample(bad.name, bad.args())
    with raises(Exception, re.escape(bad.message.split(",")[0]), bad.name):
        exported(Call(entry, sample), sample)


@contextmanager
def packaged(program: torch.export.ExportedProgram) -> Iterator[Any]:
    """A program compiled by AOTInductor and loaded."""
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    with tempfile.TemporaryDirectory() as folder:
        package = str(Path(folder) / "model.pt2")
        # The compiler needs less time, and the wrapper that it compiles computes nothing.
        configs = {"aot_inductor.compile_wrapper_opt_level": "O0"}
        yield aoti_load_package(aoti_compile_and_package(program, package_path=package, inductor_configs=configs))


@checks("AOTInductor", needs=(HAS_SIZES, PUBLIC), uses=("float32",), compiles=True)
def aot_inductor(entry: OpEntry) -> None:
    """A model that also computes derivatives calls the backward operators. Undefined tensors do not work here: an
    output that is excluded is empty."""
    sample = entry.of_size(TRACED, torch.float32)
    models = {0: (), 1: (Gradients,)}.get(entry.orders, (GradientsOfGradients, Gradients))
    model = next((m for m in models if takes_gradients_inside(m, entry, sample)), Call)
    with packaged(exported(model(entry, sample), sample, dynamic_shapes=(dynamic_rows(entry),))) as loaded:
        for rows in (TRACED, *OTHERS):
            other = entry.of_size(rows, torch.float32)
            # Second derivatives of many rows are sums that float32 rounds too often.
            compared = Gradients if model is GradientsOfGradients and rows != TRACED else model
            expected = compared(entry, sample, entry.reference)(*other.inputs)
            actual = tuple(loaded(*other.inputs))[: len(expected)]
            assert_close(actual, expected, f"{rows} rows", rtol=1e-4, atol=1e-4)
