"""The steps of ``lltm`` as an ONNX function, which onnxscript compiles from this file."""

from typing import Any, TypeVar, Union

from onnxscript import BFLOAT16, DOUBLE, FLOAT, FLOAT16, graph, opset18, script, values

__all__ = ["lltm_steps"]

op: Any = opset18  # its type annotations accept values, not graph nodes

# onnxscript does not know the notation with |.
Float = Union[BFLOAT16, DOUBLE, FLOAT, FLOAT16]  # noqa: UP007
X = TypeVar("X", bound=Float)
C = TypeVar("C", bound=Float)


# Scan carries the recurrent weights as a state that stays as it is, because its body should see no other values. All
# tensors but the states have the steps as their first dim; gates are the products of the inputs.
@script(values.Opset("cppcuda", 1), default_opset=op)
def lltm_steps(gates: X, recurrent: X, h0: X, c0: C) -> tuple[X, X, C, C, X]:
    @graph()
    def step(weight: Any, h: Any, c: Any, x: Any) -> Any:
        all_gates = x + op.MatMul(h, weight)
        input_gate, output_gate, candidate = op.Split(all_gates, axis=-1, num_outputs=3)
        change = op.Elu(candidate) * op.Sigmoid(input_gate)
        cy = c + op.CastLike(change, c)
        hy = op.CastLike(op.Tanh(cy), output_gate) * op.Sigmoid(output_gate)
        return op.Identity(weight), hy, cy, op.Identity(hy), op.Identity(cy), op.Identity(all_gates)

    _, hn, cn, output, cells, of_steps = op.Scan(recurrent, h0, c0, gates, body=step, num_scan_inputs=1)
    return output, hn, cn, cells, of_steps
