"""A door of its own: networks as lines of text, run by the engine. docs/adding-a-door.md walks through it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.engine.run import Account, Program, Run
from dmlvk.engine.tensors import Tensor
from dmlvk.engine.trace import Label, Numbers, PackedTensor, Region, Spec, Trace
from dmlvk.engine.transfer import Array
from dmlvk.graph.passes import optimized
from dmlvk.graph.step import Origin, Step, Storage
from dmlvk.graph.views import Sizes, View
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

F32 = TensorDataType.FLOAT32


# [line]
class Line(NamedTuple):
    """``y = add x b``: a line of a network, which names its step in errors and reports."""

    name: str
    op_type: str
    operands: tuple[str, ...]

    @staticmethod
    def read(text: str) -> Line:
        name, call = text.split("=")
        op_type, *operands = call.split()
        return Line(name.strip(), op_type, tuple(operands))


# [describe]
def describe(line: Line, operands: list[PackedTensor]) -> tuple[OperatorDesc, Sizes]:
    """The operator of a line, and the sizes of what it makes."""
    first = operands[0].sizes
    tensors = [TensorDesc(F32, operand.sizes) for operand in operands]
    match line.op_type:
        case "relu":
            return ops.ActivationRelu(input_tensor=tensors[0], output_tensor=tensors[0]), first
        case "add":
            view = View.packed(operands[1].sizes).broadcast(first)  # other strides of the same memory
            if view is None:
                raise InvalidArgumentError(f"must broadcast to {first}", field=line.name, value=operands[1].sizes)
            other = view.desc(tensors[1])
            return ops.ElementWiseAdd(a_tensor=tensors[0], b_tensor=other, output_tensor=tensors[0]), first
        case "matmul":
            sizes = (first[0], operands[1].sizes[1])
            return ops.Gemm(a_tensor=tensors[0], b_tensor=tensors[1], output_tensor=TensorDesc(F32, sizes)), sizes
        case unknown:
            raise InvalidArgumentError("must be relu, add or matmul", field=line.name, value=unknown)


# [network]
class ToyNetwork:
    """Lines of text with weights; what the engine asks of a door."""

    region_count = 1

    def __init__(self, text: str, weights: Mapping[str, Array]) -> None:
        self.lines = [Line.read(line) for line in text.splitlines() if line.strip()]
        self.weights = {name: _tensor(array.shape, array) for name, array in weights.items()}
        made = {line.name for line in self.lines}
        read = {name for line in self.lines for name in line.operands}
        self.region = Region(tuple(sorted(read - made - weights.keys())), frozenset(), (self.lines[-1].name,))

    def trace(self, region: Region, specs: Mapping[str, Spec], host_values: Mapping[str, Array | Numbers]) -> Trace:
        inputs = {name: _tensor(sizes) for name, (_, sizes) in specs.items()}
        values = {**self.weights, **inputs}
        steps = []
        for line in self.lines:
            operands = [values[name] for name in line.operands]
            desc, sizes = describe(line, operands)
            desc.validate()
            values[line.name] = result = _tensor(sizes)
            storages = [operand.storage for operand in operands]
            absent = [None] * (len(desc.input_slots()) - len(storages))
            steps.append(Step(line, desc, (*storages, *absent), (result.storage,)))
        outputs = {name: values[name] for name in region.outputs}
        kept = optimized(steps, [value.storage for value in outputs.values()])
        labels = {line: Label(line.name, line.op_type) for line in self.lines}
        return Trace(kept, inputs, outputs, device_labels=labels)

    def refusal(self, origin: Origin, error: UnsupportedError) -> UnsupportedError:
        return UnsupportedError(f"line {origin.name!r}: {error}")


def _tensor(sizes: Sizes, constant: Array | None = None) -> PackedTensor:
    nbytes = TensorDesc(F32, sizes).total_tensor_size_in_bytes
    return PackedTensor(Storage(nbytes, constant), F32, np.dtype(np.float32), sizes)


# [session]
class ToySession:
    """A network on a device."""

    def __init__(self, device: ComputeDevice, text: str, weights: Mapping[str, Array]) -> None:
        self.device = device
        self.network = ToyNetwork(text, weights)
        self.graphs = CompiledGraphs(device, self.network, capacity=4)
        self.account = Account({})

    def run(self, **feeds: Array) -> Array:
        """The value of the last line."""
        self.account = Account({name: array.shape for name, array in feeds.items()})
        run = Run(self.device, self.graphs, self.account, data_type_of)
        program = Program(((self.network.region, frozenset()),), self.network.region.outputs)
        items: dict[str, Any] = {name: run.carrier.tensor(array) for name, array in feeds.items()}
        (result,) = run.program(program, items, ChainMap())
        assert isinstance(result, Tensor)
        return result.on_host()
