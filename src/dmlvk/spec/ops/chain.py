"""Rows of our own, which are no operators of DirectML: what passes over a graph make of several.

They are not in the table: neither ``dmlvk`` nor the reference, the eager functions or the command line show them.
"""

from __future__ import annotations

from typing import Any, Final

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.enums import TensorDataType as _T
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.ops import activation, elementwise, gradient, logical
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.spec.tensor import TensorDesc

MOST_INPUTS: Final = 6
MOST_OPERATIONS: Final = 8
FIRST_NUMBER: Final = MOST_INPUTS
FIRST_RESULT: Final = MOST_INPUTS + 2
NONE: Final = 15
ROUND_TO_BFLOAT16: Final = 1 << 16
"""What the shader calls a FormatCast, which has no number among DirectML's operators."""

_MOST_TENSORS: Final = 30
"""The tensors that one launch has at most: 31 storage buffers is what Metal binds."""

_FAMILIES = tuple(file.__name__ for file in (activation, elementwise, gradient, logical))


def together(inputs: int) -> int:
    """How often a launch can have a chain of so many inputs, each time of other tensors."""
    return _MOST_TENSORS // (inputs + 1)


@_c.constraint(
    "program", "every operation must have three operands, which are inputs, numbers or earlier results, and two numbers"
)
def _program(desc: PointwiseChain) -> _s.Violation | None:
    count = len(desc.operator_descs)
    if not 0 < count <= MOST_OPERATIONS or len(desc.input_tensors) > MOST_INPUTS:
        return _s.Violation("operator_descs", count)
    if len(desc.operands) != 3 * count or len(desc.numbers) != 2 * count:
        return _s.Violation("operands", desc.operands)
    for place, operand in enumerate(desc.operands):
        is_input = operand < len(desc.input_tensors)
        is_number = FIRST_NUMBER <= operand < FIRST_RESULT
        is_result = FIRST_RESULT <= operand < FIRST_RESULT + place // 3
        if not (is_input or is_number or is_result or (operand == NONE and place % 3)):
            return _s.Violation("operands", operand)
    return None


@_c.constraint(
    "types",
    "inputs must have the output's type, or INT32 where only casts to FLOAT32 read them; an output of UINT16 must be the "
    "bits of FLOAT32 that is rounded to BFLOAT16 in the end",
)
def _types(desc: PointwiseChain) -> _s.Violation | None:
    output = desc.tensor("output_tensor").data_type
    if output is _T.UINT16:
        if not (desc.operator_descs and rounds_to_bfloat16(desc.operator_descs[-1])):
            return _s.Violation("output_tensor", output)
        output = _T.FLOAT32
    for index, tensor in enumerate(desc.input_tensors):
        readers = [desc.operator_descs[place // 3] for place, name in enumerate(desc.operands) if name == index]
        casts = {isinstance(reader, elementwise.Cast) for reader in readers}
        is_cast = (tensor.data_type, output) == (_T.INT32, _T.FLOAT32) and casts == {True}
        if not is_cast and (tensor.data_type != output or True in casts):
            return _s.Violation("input_tensors", tensor.data_type)
    return None


@_c.constraint("own", "of rows of our own an operation may be a FormatCast to BFLOAT16 of FLOAT32")
def _own(desc: PointwiseChain) -> _s.Violation | None:
    is_float32 = desc.tensor("output_tensor").data_type != _T.FLOAT16
    for operation in desc.operator_descs:
        if operation.type is OperatorType.INVALID and not (is_float32 and rounds_to_bfloat16(operation)):
            return _s.Violation("operator_descs", operation.title)
    return None


def rounds_to_bfloat16(operation: _s.OperatorDesc) -> bool:
    """Whether an operation is a FormatCast to BFLOAT16."""
    return isinstance(operation, FormatCast) and operation.format is NumberFormat.BFLOAT16


class PointwiseChain(
    _s.OperatorDesc,
    internal=True,
    in_place=("input_tensors",),
    constraints=(_c.same_sizes(), _program, _types, _own),
    accepts=(*(kind for kind, row in _s.REGISTRY.items() if row.__module__ in _FAMILIES), OperatorType.INVALID),
    traits=_s.Traits(strided=True, separable=_s.everywhere),
):
    """y = the last of up to 8 pointwise operations, each of inputs, numbers and the results of earlier ones.

    input_tensors: Up to 6, of the output's sizes; broadcasting is a stride of 0. One of INT32 is only cast.
    operator_descs: The operations, without tensors.
    operands: Three of each operation: an input's number, ``FIRST_NUMBER`` or the next for one of its numbers,
        ``FIRST_RESULT`` + k for the result of operation k, ``NONE`` where it has fewer. A truth value is 1 or 0.
    numbers: Two of each operation, 0 where it reads fewer.

    A FormatCast rounds FLOAT32 to numbers of BFLOAT16, and makes their bits of an output of UINT16. FLOAT32 results are
    those of the operations one after the other, bit for bit; of FLOAT16 only the last is rounded.
    """

    input_tensors: tuple[TensorDesc, ...] = _s.input_tensor_array((*_s.FLOATS, _T.INT32))
    output_tensor: TensorDesc | None = _s.output_tensor((*_s.FLOATS, _T.UINT16))
    operator_descs: tuple[_s.OperatorDesc, ...] = _s.operator_desc_array()
    operands: tuple[int, ...] = _s.uint_array(())
    numbers: tuple[float, ...] = _s.float_array(())

    @property
    def title(self) -> str:
        """The title with the operations: "PointwiseChain(ElementWiseMultiply, ActivationRelu)"."""
        return f"{super().title}({', '.join(operation.title for operation in self.operator_descs)})"


@_c.constraint(
    "tensors", "each output must have as many inputs as the others, and make a PointwiseChain with them, of the same types"
)
def _each(desc: MultiTensorChain) -> _s.Violation | None:
    count, outputs = len(desc.input_tensors), len(desc.output_tensors)
    inputs = count // outputs if outputs else 0
    if not inputs or inputs * outputs != count or outputs > together(inputs):
        return _s.Violation("input_tensors", count)
    types = [tensor.data_type for tensor in desc.input_tensors]
    for index, output in enumerate(desc.output_tensors):
        if (output.data_type, types[index * inputs : (index + 1) * inputs]) != (
            desc.output_tensors[0].data_type,
            types[:inputs],
        ):
            return _s.Violation("output_tensors", output.data_type)
    for chain in desc.chains():
        chain.validate()
    return None


class MultiTensorChain(
    _s.OperatorDesc,
    internal=True,
    in_place=("input_tensors",),
    constraints=(_each,),
    accepts=PointwiseChain.accepts,
):
    """The same ``PointwiseChain`` for each of several outputs, each with inputs of its own: an optimiser's step.

    input_tensors: The inputs of the first output, then those of the second, and so on.
    output_tensors: Up to 15 outputs of chains of one input, 10 of two, 7 of three, 6, 5 and 4 of six.
    operator_descs, operands, numbers: Those of each chain.
    """

    input_tensors: tuple[TensorDesc, ...] = _s.input_tensor_array((*_s.FLOATS, _T.INT32))
    output_tensors: tuple[TensorDesc, ...] = _s.output_tensor_array(_s.FLOATS)
    operator_descs: tuple[_s.OperatorDesc, ...] = _s.operator_desc_array()
    operands: tuple[int, ...] = _s.uint_array(())
    numbers: tuple[float, ...] = _s.float_array(())

    @property
    def title(self) -> str:
        """The title with the number of outputs and the operations: "MultiTensorChain(7 x ElementWiseAdd)"."""
        operations = ", ".join(operation.title for operation in self.operator_descs)
        return f"{super().title}({len(self.output_tensors)} x {operations})"

    def chains(self) -> tuple[PointwiseChain, ...]:
        """The chain of each output."""
        program: dict[str, Any] = {name: getattr(self, name) for name in ("operator_descs", "operands", "numbers")}
        return tuple(
            PointwiseChain(
                input_tensors=tuple(self.input_tensors[slot] for slot in sorted(self.overwritable(index))),
                output_tensor=output,
                **program,
            )
            for index, output in enumerate(self.output_tensors)
        )

    def overwritable(self, output: int) -> frozenset[int]:
        """The inputs of an output's own chain."""
        inputs = len(self.input_tensors) // len(self.output_tensors)
        return frozenset(range(output * inputs, (output + 1) * inputs))
