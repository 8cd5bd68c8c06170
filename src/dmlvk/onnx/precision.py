"""A model of 64-bit floats as one of 32-bit floats.

Devices compute with 64-bit floats slowly, and some not at all. Whoever can do with float32's precision and range asks for it
(``SessionOptions.float64_as_float32``): then what the model declares as double is computed as float. Inputs and outputs stay
what they are; casts on the device stand between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

_DOUBLE, _FLOAT = onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT
_TYPE_ATTRIBUTES: Final = frozenset({"to", "dtype", "output_datatype", "output_dtype"})


def in_float32(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float for double, but for its inputs and outputs; one without doubles is the same."""
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    graph = model.graph
    constants = {item.name for item in graph.initializer}
    fed = [item.name for item in graph.input if item.name not in constants and _is_double(item)]
    wanted = [item.name for item in graph.output if _is_double(item)]
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    inner = {name: _unused(f"{name}/float32", taken) for name in (*fed, *wanted)}
    for item in graph.input:
        if item.name in constants:
            _retype(item)
    _narrow(graph, inner)
    nodes = [onnx.helper.make_node("Cast", [name], [inner[name]], f"{name}/to_float32", to=_FLOAT) for name in fed]
    nodes += graph.node
    nodes += [
        onnx.helper.make_node("Cast", [inner[name]], [name], f"{name}/to_float64", to=_DOUBLE)
        for name in wanted
        if name not in fed
    ]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _narrow(graph: onnx.GraphProto, inner: Mapping[str, str]) -> None:
    """Changes types and values in a graph and those inside it, and renames values."""
    for tensor in graph.initializer:
        _narrow_tensor(tensor)
        tensor.name = inner.get(tensor.name, tensor.name)
    for item in graph.value_info:
        _retype(item)
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [inner.get(name, name) for name in names]
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i == _DOUBLE:
                attribute.i = _FLOAT
            for tensor in (attribute.t, *attribute.tensors):
                _narrow_tensor(tensor)
            for body in (attribute.g, *attribute.graphs):
                for item in (*body.input, *body.output):
                    _retype(item)
                    item.name = inner.get(item.name, item.name)
                _narrow(body, inner)


def _narrow_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == _DOUBLE:
        array = onnx.numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def _is_double(item: onnx.ValueInfoProto) -> bool:
    return bool(item.type.tensor_type.elem_type == _DOUBLE)


def _retype(item: onnx.ValueInfoProto) -> None:
    if _is_double(item):
        item.type.tensor_type.elem_type = _FLOAT
