"""Recurrent networks without gradients, a layer an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import RecurrentNetworkDirection
from dmlvk.spec.schema import OperatorDesc
from dmlvk.torch.conversion import Conversion
from dmlvk.torch.convert.movement import joined, taken
from dmlvk.torch.registry import converter

_BEFORE: Final = ("hidden_init_tensor", "cell_mem_init_tensor")
_AFTER: Final = ("output_single_tensor", "output_cell_single_tensor")
_DIRECTIONS: Final = {False: RecurrentNetworkDirection.FORWARD, True: RecurrentNetworkDirection.BIDIRECTIONAL}


@converter("dmlvk.lstm.default")
def lstm(node: Conversion, x: Value, hx: Sequence[Value], *layers: Any) -> tuple[Value, ...]:
    """PyTorch's gates are input, forget, cell, output; DirectML's input, output, forget, cell."""
    functions = (ops.ActivationSigmoid(), ops.ActivationTanh(), ops.ActivationTanh())
    return _layers(node, ops.Lstm, (0, 3, 1, 2), functions, x, hx, *layers)


@converter("dmlvk.gru.default")
def gru(node: Conversion, x: Value, hx: Sequence[Value], *layers: Any) -> tuple[Value, ...]:
    """PyTorch's gates are reset, update, new; DirectML's update, reset, new."""
    functions = (ops.ActivationSigmoid(), ops.ActivationTanh())
    return _layers(node, ops.Gru, (1, 0, 2), functions, x, hx, *layers, linear_before_reset=True)


def _layers(
    node: Conversion,
    row: type[OperatorDesc],
    order: Sequence[int],
    functions: tuple[OperatorDesc, ...],
    x: Value,
    hx: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    **fields: Any,
) -> tuple[Value, ...]:
    """All layers: the states of each are the inputs of the next one.

    Args:
        node: The node.
        row: The operator.
        order: The places in PyTorch's order of the operator's gates.
        functions: The operator's activations, of a direction.
        x: The inputs, (steps, batch, size), or with the batch first.
        hx: The states before the first step, (layers * directions, batch, hidden) each.
        params: For each layer and direction the weights of inputs and states, and their biases if there are any.
        has_biases, num_layers, bidirectional, batch_first: PyTorch's.
        fields: More fields of the operator.

    Returns:
        The states of the last layer, (steps, batch, directions * hidden), and each kind of state after the last step.
    """
    directions, of_each = 2 if bidirectional else 1, 4 if has_biases else 2
    x = x.transpose((1, 0, 2)) if batch_first else x
    (steps, batch, _), hidden = x.sizes, hx[0].sizes[2]
    last: list[list[Value]] = [[] for _ in hx]
    for layer in range(num_layers):
        first = layer * directions
        own = [params[(first + at) * of_each : (first + at + 1) * of_each] for at in range(directions)]
        gates = [_by_gates(node, [of[kind] for of in own], order, hidden) for kind in range(2)]
        own_sizes = (1, directions, len(order) * hidden)
        weights, recurrence = (node.reshape(each, (*own_sizes, each.sizes[1])) for each in gates)
        biases = [bias for of in own for bias in of[2:]]
        bias = _by_gates(node, biases, order, hidden) if biases else None
        before = [node.sliced(state, [(first, directions, 1), (0, batch, 1), (0, hidden, 1)]) for state in hx]
        is_turned = batch_first and layer == num_layers - 1
        y = node.new((batch, steps, directions, hidden) if is_turned else (steps, batch, directions, hidden), x.dtype)
        after = [node.new((directions, batch, hidden), x.dtype) for _ in hx]
        node.launch(
            row,
            input_tensor=_four(node, x),
            weight_tensor=weights,
            recurrence_tensor=recurrence,
            bias_tensor=None if bias is None else node.reshape(bias, (1, 1, directions, 2 * len(order) * hidden)),
            output_sequence_tensor=y.transpose((1, 2, 0, 3) if is_turned else (0, 2, 1, 3)),
            activation_descs=functions * directions,
            direction=_DIRECTIONS[bidirectional],
            **{field: _four(node, own) for field, own in zip(_BEFORE, before, strict=False)},
            **{field: _four(node, own) for field, own in zip(_AFTER, after, strict=False)},
            **fields,
        )
        x = node.reshape(y, (*y.sizes[:2], directions * hidden))
        for kept, state in zip(last, after, strict=True):
            kept.append(state)
    return x, *(joined(node, states, 0) for states in last)


def _by_gates(node: Conversion, pieces: Sequence[Value], order: Sequence[int], hidden: int) -> Value:
    """Weights or biases one after the other, the gates of each in the operator's order."""
    rows = np.arange(len(order) * hidden, dtype=np.int32).reshape(len(order), hidden)[list(order)]
    places = rows.reshape(-1) + (np.arange(len(pieces), dtype=np.int32) * rows.size)[:, None]
    return taken(node, joined(node, pieces, 0), node.upload(places.reshape(-1)), 0)


def _four(node: Conversion, value: Value) -> Value:
    return node.reshape(value, (1,) * (4 - value.rank) + value.sizes)
