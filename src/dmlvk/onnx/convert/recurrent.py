"""RNN, LSTM and GRU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import RecurrentNetworkDirection, TensorDataType
from dmlvk.spec.schema import FLOATS, FieldKind, OperatorDesc

_VERSIONS = (7, 14, 22)
_DIRECTIONS = {
    "forward": RecurrentNetworkDirection.FORWARD,
    "reverse": RecurrentNetworkDirection.BACKWARD,
    "bidirectional": RecurrentNetworkDirection.BIDIRECTIONAL,
}
_ACTIVATIONS: dict[str, OperatorDesc] = {
    "affine": ops.ActivationLinear(alpha=1.0, beta=0.0),
    "elu": ops.ActivationElu(alpha=1.0),
    "hardsigmoid": ops.ActivationHardSigmoid(alpha=0.2, beta=0.5),
    "leakyrelu": ops.ActivationLeakyRelu(alpha=0.01),
    "relu": ops.ActivationRelu(),
    "scaledtanh": ops.ActivationScaledTanh(alpha=1.0, beta=1.0),
    "sigmoid": ops.ActivationSigmoid(),
    "softplus": ops.ActivationSoftplus(steepness=1.0),
    "softsign": ops.ActivationSoftsign(),
    "tanh": ops.ActivationTanh(),
    "thresholdedrelu": ops.ActivationThresholdedRelu(alpha=1.0),
}
"""Activations by ONNX's name in small letters, with ONNX's defaults of alpha and beta. Softplus has neither in ONNX."""
_NUMBERS = ("alpha", "beta")


_QUANTIZED = Declared(
    inputs=12,
    outputs=3,
    attributes=(
        *("activations", "activation_alpha", "activation_beta", "clip", "direction", "hidden_size", "input_forget"),
    ),
)


def _refuse_activations(node: NodeFacts) -> None:
    for name in node.attribute("activations", ()):
        if name.lower() not in _ACTIVATIONS:
            raise node.unsupported(f"the activation {name!r} is not supported")


def _refuse_clip(node: NodeFacts) -> None:
    _refuse_activations(node)
    if "clip" in node.node.attributes:
        raise node.unsupported("clip, which DirectML has for LSTM only, is not supported")


@converts("RNN", *_VERSIONS, types=FLOATS, check=_refuse_clip)
def rnn(node: Conversion) -> tuple[Value | None, ...]:
    return _recurrent(node, ops.Rnn, (node[1], node[2]), ("Tanh",), {5: "hidden_init_tensor"})


@converts("GRU", *_VERSIONS, types=FLOATS, check=_refuse_clip)
def gru(node: Conversion) -> tuple[Value | None, ...]:
    attributes = {"linear_before_reset": bool(node.attribute("linear_before_reset", 0))}
    return _recurrent(node, ops.Gru, (node[1], node[2]), ("Sigmoid", "Tanh"), {5: "hidden_init_tensor"}, **attributes)


@converts("LSTM", *_VERSIONS, types=FLOATS, check=_refuse_activations)
def lstm(node: Conversion) -> tuple[Value | None, ...]:
    return _lstm(node, node[1], node[2])


def _lstm(node: Conversion, w: Value, r: Value) -> tuple[Value | None, ...]:
    limit = node.attribute("clip", None)
    return _recurrent(
        node,
        ops.Lstm,
        (w, r),
        ("Sigmoid", "Tanh", "Tanh"),
        {5: "hidden_init_tensor", 6: "cell_mem_init_tensor", 7: "peephole_tensor"},
        clip_threshold=0.0 if limit is None else float(limit),
        use_clip_threshold=limit is not None,
        couple_input_forget=bool(node.attribute("input_forget", 0)),
    )


@converts(
    "DynamicQuantizeLSTM",
    1,
    types=(TensorDataType.FLOAT32,),
    domain=MICROSOFT,
    check=_refuse_activations,
    declared=_QUANTIZED,
)
def dynamic_quantize_lstm(node: Conversion) -> tuple[Value | None, ...]:
    """ONNX Runtime's operator: an LSTM of 8-bit weights that lie transposed. They stay so in memory and become float32
    at each run; what they multiply stays float32, of which that runtime makes 8 bits at each step."""
    weights = [_dequantized(node, node[index], node[scale], node.get(scale + 1)) for index, scale in ((1, 8), (2, 10))]
    return _lstm(node, *weights)


def _dequantized(node: Conversion, x: Value, scale: Value, zero_point: Value | None) -> Value:
    """(directions, size, gates) as (directions, gates, size); the scale has an element for each direction, or gate too."""
    if x.rank != 3 or scale.rank > 2 or (zero_point is not None and zero_point.sizes != scale.sizes):
        rule = "weights must have 3 dimensions, the scale at most 2, and the zero point the scale's sizes"
        raise node.invalid(rule, (x.sizes, scale.sizes, None if zero_point is None else zero_point.sizes))
    own = (*scale.sizes, *(1,) * (3 - scale.rank))
    y = cast_to(node, x.transpose((0, 2, 1)), scale.dtype)
    if zero_point is not None:
        zero_point = cast_to(node, node.reshape(zero_point, own), scale.dtype)
        y = node.elementwise(ops.ElementWiseSubtract, y, zero_point)
    return node.elementwise(ops.ElementWiseMultiply, y, node.reshape(scale, own))


def _recurrent(
    node: Conversion,
    row: type[OperatorDesc],
    weights: tuple[Value, Value],
    functions: tuple[str, ...],
    optional: dict[int, str],
    **attributes: Any,
) -> tuple[Value | None, ...]:
    """Launches the operator; ``optional`` names the inputs after the sequence lengths, ``functions`` ONNX's default
    activations of a direction. With ``layout`` 1 the batch comes first everywhere: those are views."""
    batch_first = bool(node.attribute("layout", 0))
    x, (w, r) = node[0], weights
    if x.rank != 3 or w.rank != 3 or r.rank != 3:
        raise node.invalid("X, W and R must have 3 dimensions", (x.sizes, w.sizes, r.sizes))
    if x.sizes[2] == 0:  # what nothing is multiplied by is 0
        x, w = node.fill((*x.sizes[:2], 1), x.dtype.type(0)), node.fill((*w.sizes[:2], 1), w.dtype.type(0))
    x = x.transpose((1, 0, 2)) if batch_first else x
    steps, batch, _ = x.sizes
    directions, _, hidden = r.sizes
    if steps == 0:
        return _as_before(node, (directions, batch, hidden), batch_first, sorted(optional), like=x)
    fields: dict[str, Value | None] = {
        "input_tensor": _four_dimensional(node, x),
        "weight_tensor": _four_dimensional(node, w),
        "recurrence_tensor": _four_dimensional(node, r),
        "bias_tensor": _four_dimensional(node, node.get(3)),
        "sequence_lengths_tensor": _lengths(node, batch),
    }
    for index, field in optional.items():
        value = node.get(index)
        if value is not None and batch_first and value.rank == 3:
            value = value.transpose((1, 0, 2))
        fields[field] = _four_dimensional(node, value)
    outputs: list[Value | None] = []
    for index, field in enumerate(spec.name for spec in row.fields if spec.kind.is_output):
        if not node.wants(index):
            outputs.append(None)
            continue
        y, fields[field] = _output(node, (steps, directions, batch, hidden), batch_first, whole=index == 0, like=x)
        outputs.append(y)
    if any(output is not None for output in outputs):
        direction = _DIRECTIONS[node.attribute("direction", "forward")]
        node.launch(
            row, **fields, activation_descs=_activations(node, functions, directions), direction=direction, **attributes
        )
    return tuple(outputs)


def _as_before(
    node: Conversion, sizes: Sizes, batch_first: bool, initial: list[int], *, like: Value
) -> tuple[Value | None, ...]:
    """The outputs of a sequence of no steps: no states, and as the last ones the initial ones, or zeros."""
    directions, batch, hidden = sizes
    own = (batch, directions, hidden) if batch_first else sizes
    whole = (batch, 0, directions, hidden) if batch_first else (0, *sizes)
    last = [node.get(index) or node.fill(own, like.dtype.type(0)) for index in initial[: len(node.node.outputs) - 1]]
    return node.new(whole, like.dtype), *last


def _four_dimensional(node: Conversion, value: Value | None) -> Value | None:
    """The value with leading dimensions of size 1."""
    return None if value is None else node.reshape(value, (1,) * (4 - value.rank) + value.sizes)


def _lengths(node: Conversion, batch: int) -> Value | None:
    lengths = node.get(4)
    if lengths is None:
        return None
    if lengths.sizes != (batch,) or lengths.dtype != np.int32:
        rule = "sequence_lens must have an int32 for each sequence"
        raise node.invalid(rule, (lengths.dtype, lengths.sizes), (np.dtype(np.int32), (batch,)))
    return _four_dimensional(node, lengths.reinterpret(np.dtype(np.uint32)))


def _output(node: Conversion, sizes: Sizes, batch_first: bool, *, whole: bool, like: Value) -> tuple[Value, Value]:
    """An output as ONNX has it, and as DirectML does: the sequence of all states, or a last one."""
    steps, directions, batch, hidden = sizes
    if whole:
        if not batch_first:
            y = node.new(sizes, like.dtype)
            return y, y
        y = node.new((batch, steps, directions, hidden), like.dtype)
        return y, y.transpose((1, 2, 0, 3))
    if not batch_first:
        y = node.new((directions, batch, hidden), like.dtype)
        return y, node.reshape(y, (1, *y.sizes))
    y = node.new((batch, directions, hidden), like.dtype)
    return y, node.reshape(y.transpose((1, 0, 2)), (1, directions, batch, hidden))


def _activations(node: Conversion, functions: tuple[str, ...], directions: int) -> tuple[OperatorDesc, ...]:
    """The descs for the attribute ``activations``. The lists of alphas and betas have an entry for each of those that has
    the parameter, in their order, and defaults stand for what they lack."""
    names = node.attribute("activations", list(functions) * directions)
    numbers = {name: iter(node.attribute(f"activation_{name}", ())) for name in _NUMBERS}
    return tuple(_activation(node, name, numbers) for name in names)


def _activation(node: Conversion, name: str, numbers: dict[str, Iterator[float]]) -> OperatorDesc:
    activation = _ACTIVATIONS[name.lower()]
    floats = {field.name for field in activation.fields if field.kind is FieldKind.FLOAT}
    given = {key: next(numbers[key], None) for key in _NUMBERS if key in floats}
    return activation.replace(**{key: float(value) for key, value in given.items() if value is not None})
