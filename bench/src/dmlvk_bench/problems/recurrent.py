"""Recurrent networks, against cuDNN's through ``torch.nn``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import dmlvk
from dmlvk.spec.enums import RecurrentNetworkDirection, TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.recurrent import weights
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, Problem, nbytes
from dmlvk_bench.problems.scale import Scale

SUITE = "matmul"

_TARGET = 1 / 1.5
"""The target ratio: at most one and a half times cuDNN's time."""

_TOLERANCE = {FLOAT32: 3e-5, FLOAT16: 1e-3}
"""Up to 128 units cuDNN keeps the weights on the chip, and its results are 1e-5 off in float32; from 512 units on they agree
to 4e-7."""

_TORCH_GATES = {dmlvk.Lstm: (0, 2, 3, 1), dmlvk.Gru: (1, 0, 2), dmlvk.Rnn: (0,)}
"""torch's gates among DirectML's, which has i, o, f, c where torch has i, f, c, o, and z, r, h where torch has r, z, h."""


def _module(row: type[Any], directions: int, torch: Any, *inputs: Any) -> Sequence[Any]:
    """torch's layer with these weights, and its input."""
    x, w, r, b = (tensor[0] for tensor in inputs)
    gates, hidden = _TORCH_GATES[row], r.shape[2]
    layer = {dmlvk.Lstm: torch.nn.LSTM, dmlvk.Gru: torch.nn.GRU, dmlvk.Rnn: torch.nn.RNN}[row]
    with torch.device(x.device), torch.no_grad():
        module = layer(x.shape[2], hidden, bidirectional=directions == 2).to(x.dtype)
        for direction in range(directions):
            biases = b[0, direction].reshape(2, -1)
            parts = {"weight_ih": w[direction], "weight_hh": r[direction], "bias_ih": biases[0], "bias_hh": biases[1]}
            for name, values in parts.items():
                blocks = values.reshape(len(gates), hidden, -1)[list(gates)]
                target = getattr(module, f"{name}_l0{'_reverse' * direction}")
                target.copy_(blocks.reshape(target.shape))
        module.flatten_parameters()
    return module.eval(), x


def _rival(directions: int, torch: Any, module: Any, x: Any) -> Any:
    with torch.no_grad():
        y = module(x)[0]
    # [step, sequence, direction and unit] as DirectML's [step, direction, sequence, unit]: a view, which takes no time.
    return y.unflatten(2, (directions, -1)).transpose(1, 2)


def _problem(
    scale: Scale,
    row: type[Any],
    data_type: TensorDataType,
    batch: int,
    size: int = 512,
    steps: int = 100,
    directions: int = 1,
) -> Problem:
    gates = len(_TORCH_GATES[row])
    steps = scale.pick(steps, 8, 2)
    size = scale.pick(size, min(size, 512), min(size, 512))
    batch = min(batch, scale.pick(batch, 16, 4))
    tensors = [
        TensorDesc(data_type, sizes)
        for sizes in (
            (1, steps, batch, size),
            (1, directions, gates * size, size),
            (1, directions, gates * size, size),
            (1, 1, directions, 2 * gates * size),
            (steps, directions, batch, size),
        )
    ]
    sigmoid, tanh = dmlvk.ActivationSigmoid(), dmlvk.ActivationTanh()
    functions = {dmlvk.Lstm: (sigmoid, tanh, tanh), dmlvk.Gru: (sigmoid, tanh), dmlvk.Rnn: (tanh,)}[row]
    names = ("input_tensor", "weight_tensor", "recurrence_tensor", "bias_tensor", "output_sequence_tensor")
    more = {"linear_before_reset": True} if row is dmlvk.Gru else {}
    desc = row(
        **dict(zip(names, tensors, strict=True)),
        activation_descs=functions * directions,
        direction=RecurrentNetworkDirection.BIDIRECTIONAL if directions == 2 else RecurrentNetworkDirection.FORWARD,
        **more,
    )

    both_ways = " both ways" * (directions == 2)
    return Problem(
        f"{row.__name__}{both_ways} {data_type.name} hidden {size}, {steps} steps, batch {batch}",
        desc,
        functools.partial(_rival, directions),
        target=_TARGET,
        bytes_moved=nbytes(*tensors),
        operations=2 * 2 * steps * batch * directions * gates * size * size,
        domains=dict.fromkeys(("weight_tensor", "recurrence_tensor", "bias_tensor"), weights(size)),
        tolerance=_TOLERANCE[data_type],
        prepare=functools.partial(_module, row, directions),
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = [
        _problem(scale, row, data_type, batch)
        for row in (dmlvk.Lstm, dmlvk.Gru)
        for data_type in (FLOAT32, FLOAT16)
        for batch in (1, 16, 64)
    ]
    return [
        *found,
        _problem(scale, dmlvk.Lstm, FLOAT32, 1, size=64),
        _problem(scale, dmlvk.Lstm, FLOAT32, 16, size=128),
        _problem(scale, dmlvk.Gru, FLOAT32, 1, size=128),
        _problem(scale, dmlvk.Gru, FLOAT32, 16, size=256),
        _problem(scale, dmlvk.Lstm, FLOAT32, 1, size=512, directions=2),
        _problem(scale, dmlvk.Lstm, FLOAT32, 16, size=1024),
        *(_problem(scale, dmlvk.Rnn, data_type, 16) for data_type in (FLOAT32, FLOAT16)),
    ]
