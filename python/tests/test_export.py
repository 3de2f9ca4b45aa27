"""torch.export and AOTInductor: dynamic sizes, saving and loading, and models that compute gradients."""

import io
from typing import Any

import pytest
import torch
from op_samples import OpEntry, Sample, forward_ops
from support import assert_close, differing_dims, over_ops, over_samples, scalar
from torch import Tensor, nn
from torch.export import Dim, export

pytestmark = pytest.mark.usefixtures("fresh_compiler")

# Sizes that are equal become one symbol during tracing; no op has fixed sizes equal to these.
TRACED, OTHERS = 6, (2, 11, 130)


class Call(nn.Module):
    """The op as a function of its tensors alone."""

    def __init__(self, entry: OpEntry, sample: Sample) -> None:
        super().__init__()
        self.f = sample.bind(entry.op)
        self.with_rows = entry.with_rows

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return self.f(*tensors)


class Vmapped(Call):
    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return torch.func.vmap(self.f)(*tensors)


class Masked(Call):
    """The number of rows is only known at run time."""

    def forward(self, mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        return self.f(*(t[mask] if rows else t for t, rows in zip(tensors, self.with_rows, strict=True)))


class Gradients(Call):
    """Outputs, and the gradients of all inputs together and of each input alone (output_mask is partly false)."""

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            found = [*self.f(*tensors)]
            for wanted in (range(len(tensors)), *([i] for i in range(len(tensors)))):
                leaves = [t.detach().requires_grad_(i in wanted) for i, t in enumerate(tensors)]
                inputs = [leaves[i] for i in wanted]
                value = scalar(self.f(*leaves))
                found += torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)
        return tuple(t.detach() for t in found)


class GradientsThroughGradients(Call):
    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in tensors]
            first = torch.autograd.grad(scalar(self.f(*leaves)), leaves, create_graph=True)
            return torch.autograd.grad(scalar(first), leaves)


def dynamic_rows(small: Sample, large: Sample) -> tuple[dict[int, Any], ...]:
    """One dynamic size for all dims in which two sizes of a sample differ."""
    rows = Dim("rows", min=2, max=1 << 40)
    return tuple(dict.fromkeys(dims, rows) for dims in differing_dims(small, large))


def exported(module: nn.Module, sample: Sample, *extra: Tensor, **kwargs: Any) -> torch.export.ExportedProgram:
    return export(module, (*extra, *sample.tensors), strict=False, **kwargs)


def takes_gradients_inside(model: type[Call], entry: OpEntry, sample: Sample) -> bool:
    """torch cannot export a model that computes the gradient of an op that saves its output, not even of torch.exp."""
    try:
        exported(model(entry, sample), sample)
        return True
    except RuntimeError as error:
        assert "fake tensor in the exported program constant's list" in str(error)
    reference = model(entry, sample)
    reference.f = sample.bind(entry.reference)
    with pytest.raises(RuntimeError, match="fake tensor in the exported program constant's list"):
        exported(reference, sample)
    return False


def saved_and_loaded(program: torch.export.ExportedProgram) -> nn.Module:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    return torch.export.load(buffer).module()


def targets(program: torch.export.ExportedProgram) -> list[Any]:
    return [n.target for n in program.graph.nodes if n.op == "call_function"]


@pytest.mark.capability("export")
@over_ops()
@pytest.mark.parametrize("model", [Call, Gradients], ids=lambda m: m.__name__)
def test_dynamic_rows(entry: OpEntry, model: type[Call]) -> None:
    sample = entry.of_size(TRACED)
    module = model(entry, sample)
    shapes = (dynamic_rows(sample, entry.of_size(TRACED + 1)),)
    if model is Gradients and not takes_gradients_inside(model, entry, sample):
        pytest.skip(f"torch {torch.__version__} does not export this of plain torch either")
    program = exported(module, sample, dynamic_shapes=shapes)
    assert entry.op in targets(program)
    if model is Gradients and entry.backward:
        assert entry.backward.op in targets(program)
    loaded = saved_and_loaded(program)
    for rows in OTHERS:
        other = entry.of_size(rows)
        assert_close(loaded(*other.tensors), module(*other.tensors))


@pytest.mark.capability("export")
@over_ops()
def test_decompositions_and_gradients_of_an_exported_program(entry: OpEntry) -> None:
    sample = entry.of_size(TRACED)
    program = exported(Call(entry, sample), sample)
    assert entry.op in targets(program.run_decompositions())
    leaves = sample.requires_grad().tensors
    actual = torch.autograd.grad(scalar(program.module()(*leaves)), leaves)
    assert_close(actual, torch.autograd.grad(scalar(sample.bind(entry.op)(*leaves)), leaves))


@pytest.mark.capability("export")
@over_samples("basic")
def test_every_basic_sample(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    module = Call(entry, sample)
    assert_close(exported(module, sample).module()(*sample.tensors), module(*sample.tensors))


@pytest.mark.capability("export")
@over_ops()
def test_vmap_with_a_dynamic_batch(entry: OpEntry) -> None:
    """A batching rule that computes in int would fix the batch size."""

    def batch(size: int, rows: int) -> Sample:
        return entry.of_size(rows).map(lambda t: torch.stack([t * (i + 1) for i in range(size)]))

    sample = batch(4, TRACED)
    module = Vmapped(entry, entry.of_size(TRACED))
    rows, size = Dim("rows", min=2, max=1 << 20), Dim("size", min=2, max=1 << 20)
    with_rows = differing_dims(entry.of_size(TRACED), entry.of_size(TRACED + 1))
    shapes = tuple({0: size, **{d + 1: rows for d in dims}} for dims in with_rows)
    program = exported(module, sample, dynamic_shapes=(shapes,))
    # torch 2.11 cannot save the bookkeeping of its own vmap, which run_decompositions removes.
    loaded = saved_and_loaded(program.run_decompositions({}))
    for size_, rows_ in ((2, 5), (7, 9), (9, 2)):
        other = batch(size_, rows_)
        assert_close(loaded(*other.tensors), module(*other.tensors))


@pytest.mark.capability("export")
@over_ops()
def test_unbacked_rows(entry: OpEntry) -> None:
    sample = entry.of_size(TRACED)
    module = Masked(entry, sample)
    mask = torch.arange(TRACED) % 2 == 0
    loaded = saved_and_loaded(exported(module, sample, mask))
    for other in (mask, ~mask, torch.zeros_like(mask), torch.ones_like(mask), torch.arange(TRACED) == 1):
        assert_close(loaded(other, *sample.tensors), module(other, *sample.tensors))


@pytest.mark.capability("export")
@over_ops()
def test_bad_sizes_are_refused_while_exporting(entry: OpEntry) -> None:
    bad = next((b for b in entry.bad_inputs if "rows" in b.name), None)
    if bad is None:
        pytest.skip("takes any size")
    sample = Sample(bad.name, bad.args())
    with pytest.raises(Exception, match=bad.message.split(",")[0].replace("[", r"\[").replace("]", r"\]")):
        exported(Call(entry, sample), sample)


@pytest.mark.capability("AOTInductor")
@over_ops()
def test_aot_inductor(entry: OpEntry, tmp_path: Any) -> None:
    """Undefined tensors do not work here, so an output that is excluded is an empty tensor."""
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    sample = entry.of_size(TRACED, torch.float32)
    # The test of second order covers the derivatives of backward ops; each model takes half a minute.
    inside = entry.backward and takes_gradients_inside(Gradients, entry, sample)
    module = (Gradients if inside else Call)(entry, sample)
    shapes = (dynamic_rows(sample, entry.of_size(TRACED + 1)),)
    package = aoti_compile_and_package(
        exported(module, sample, dynamic_shapes=shapes), package_path=str(tmp_path / "model.pt2")
    )
    loaded = aoti_load_package(package)
    for rows in OTHERS:
        other = entry.of_size(rows, torch.float32)
        assert_close(tuple(loaded(*other.tensors)), module(*other.tensors), rtol=1e-4, atol=1e-4)


@pytest.mark.capability("AOTInductor")
@over_ops(forward_ops())
def test_second_order_inside_an_aot_inductor_model(entry: OpEntry, tmp_path: Any) -> None:
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    sample = entry.of_size(TRACED, torch.float32)
    module = GradientsThroughGradients(entry, sample)
    if not takes_gradients_inside(GradientsThroughGradients, entry, sample):
        pytest.skip(f"torch {torch.__version__} does not export this of plain torch either")
    package = aoti_compile_and_package(exported(module, sample), package_path=str(tmp_path / "model.pt2"))
    assert_close(tuple(aoti_load_package(package)(*sample.tensors)), module(*sample.tensors), rtol=1e-4, atol=1e-4)
