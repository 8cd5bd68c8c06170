"""Recurrent networks in float64, step by step.

A state carries the rounding errors of the steps before it, so each value has with it a magnitude: the size at which the
error of one rounding counts, carried through the formulas to first order. Sums add the magnitudes of their terms; a
product weighs each by the other factor; an activation passes it on by how steep it is there, and adds its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import RecurrentNetworkDirection
from dmlvk.spec.ops.recurrent import Gru, Lstm, Rnn
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.oracle import Scaled
from dmlvk.verify.oracle.activation import activated

Array = NDArray[Any]


class _Sized(NamedTuple):
    """Values with the magnitude of their errors."""

    value: Array
    magnitude: Array

    def __add__(self, other: Any) -> _Sized:
        value = self.value + other.value
        return _Sized(value, np.maximum(self.magnitude + other.magnitude, np.abs(value)))

    def __mul__(self, other: Any) -> _Sized:
        value = self.value * other.value
        magnitude = self.magnitude * np.abs(other.value) + np.abs(self.value) * other.magnitude
        return _Sized(value, np.maximum(magnitude, np.abs(value)))

    def __matmul__(self, matrix: Array) -> _Sized:
        return _Sized(self.value @ matrix, (self.magnitude + np.abs(self.value)) @ np.abs(matrix))

    def complement(self) -> _Sized:
        """1 - x."""
        return _Sized(1 - self.value, np.maximum(self.magnitude, 1))

    def clip(self, limit: float) -> _Sized:
        return _Sized(np.clip(self.value, -limit, limit), self.magnitude)

    def activated(self, activation: OperatorDesc) -> _Sized:
        value = activated(activation, self.value)
        # Steepness over the reach of an error far larger than any, so that a bend nearby counts.
        reach = 1e-3 * np.maximum(self.magnitude, 1e-3)
        ends = [activated(activation, self.value + sign * reach) for sign in (-1, 1)]
        steepness = np.max([np.abs(end - value) for end in ends], axis=0) / reach
        return _Sized(value, np.maximum(steepness * self.magnitude, np.abs(value)))

    def where(self, condition: Array, other: _Sized) -> _Sized:
        return _Sized(np.where(condition, self.value, other.value), np.where(condition, self.magnitude, other.magnitude))


def _exact(value: Array) -> _Sized:
    return _Sized(value, np.abs(value))


class _Direction(NamedTuple):
    """One direction's inputs in float64: steps, weights by gate, initial states [batch, hidden], functions."""

    x: Array
    w: Array
    r: Array
    bias: Array
    h: Array
    c: Array
    peephole: Array
    lengths: Array
    functions: tuple[OperatorDesc, ...]

    def gate(self, g: int, x: Array, h: _Sized) -> _Sized:
        """a(g): the input's product, the state's and both biases."""
        products = _exact(x) @ self.w[g].T + h @ self.r[g].T
        total: _Sized = products + _exact(self.bias[0, g]) + _exact(self.bias[1, g])
        return total


def _rnn_step(desc: Rnn, own: _Direction, x: Array, h: _Sized, c: _Sized) -> tuple[_Sized, _Sized]:
    return own.gate(0, x, h).activated(own.functions[0]), c


def _lstm_step(desc: Lstm, own: _Direction, x: Array, h: _Sized, c: _Sized) -> tuple[_Sized, _Sized]:
    f, g, last = own.functions
    limit = float(np.float32(desc.clip_threshold)) if desc.use_clip_threshold else np.inf
    p_i, p_o, p_f = (_exact(weights) for weights in own.peephole)
    i = (own.gate(0, x, h) + p_i * c).clip(limit).activated(f)
    m = i.complement() if desc.couple_input_forget else (own.gate(2, x, h) + p_f * c).clip(limit).activated(f)
    following = m * c + i * own.gate(3, x, h).clip(limit).activated(g)
    o = (own.gate(1, x, h) + p_o * following).clip(limit).activated(f)
    return o * following.activated(last), following


def _gru_step(desc: Gru, own: _Direction, x: Array, h: _Sized, c: _Sized) -> tuple[_Sized, _Sized]:
    f, g = own.functions
    z, r = own.gate(0, x, h).activated(f), own.gate(1, x, h).activated(f)
    if desc.linear_before_reset:
        inner = r * (h @ own.r[2].T + _exact(own.bias[1, 2]))
    else:
        inner = (r * h) @ own.r[2].T + _exact(own.bias[1, 2])
    n = (_exact(x) @ own.w[2].T + inner + _exact(own.bias[0, 2])).activated(g)
    return z.complement() * n + z * h, c


def _run(desc: Any, step: Any, gates: int, inputs: dict[str, Array | None]) -> tuple[Scaled, ...]:
    """The sequence of states, the last one, and the last cell."""

    def float64(name: str, sizes: tuple[int, ...]) -> Array:
        array = inputs.get(name)
        return np.zeros(sizes) if array is None else array.astype(np.float64).reshape(sizes)

    x = float64("x", desc.input_tensor.sizes[1:])
    steps, batch, _ = x.shape
    _, directions, _, hidden = desc.recurrence_tensor.sizes
    w, r = float64("w", (directions, gates, hidden, x.shape[2])), float64("r", (directions, gates, hidden, hidden))
    bias, peephole = float64("b", (directions, 2, gates, hidden)), float64("p", (directions, 3, hidden))
    first_h, first_c = float64("h", (directions, batch, hidden)), float64("c", (directions, batch, hidden))
    given = inputs.get("lengths")
    lengths = np.full(batch, steps) if given is None else np.minimum(given.reshape(batch).astype(np.int64), steps)
    count = len(desc.activation_descs) // directions

    sequence = [np.zeros((steps, directions, batch, hidden)) for _ in range(2)]
    last = [[np.zeros((1, directions, batch, hidden)) for _ in range(2)] for _ in range(2)]
    for d in range(directions):
        reverse = d == 1 or desc.direction == RecurrentNetworkDirection.BACKWARD
        functions = desc.activation_descs[d * count : (d + 1) * count]
        own = _Direction(x, w[d], r[d], bias[d], first_h[d], first_c[d], peephole[d], lengths, functions)
        for b in range(batch):
            h, c = _exact(own.h[b]), _exact(own.c[b])
            positions = range(lengths[b])
            for t in reversed(positions) if reverse else positions:
                h, c = step(desc, own, x[t, b], h, c)
                for target, part in zip(sequence, h, strict=True):
                    target[t, d, b] = part
            if lengths[b]:
                for pair, state in zip(last, (h, c), strict=True):
                    for target, part in zip(pair, state, strict=True):
                        target[0, d, b] = part
    return Scaled(*sequence), Scaled(*last[0]), Scaled(*last[1])


def rnn(
    desc: Rnn, x: Array, w: Array, r: Array, b: Array | None, h: Array | None, lengths: Array | None
) -> tuple[Scaled, ...]:
    return _run(desc, _rnn_step, 1, {"x": x, "w": w, "r": r, "b": b, "h": h, "lengths": lengths})[:2]


def lstm(
    desc: Lstm,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    h: Array | None,
    c: Array | None,
    lengths: Array | None,
    p: Array | None,
) -> tuple[Scaled, ...]:
    return _run(desc, _lstm_step, 4, {"x": x, "w": w, "r": r, "b": b, "h": h, "c": c, "lengths": lengths, "p": p})


def gru(
    desc: Gru, x: Array, w: Array, r: Array, b: Array | None, h: Array | None, lengths: Array | None
) -> tuple[Scaled, ...]:
    return _run(desc, _gru_step, 3, {"x": x, "w": w, "r": r, "b": b, "h": h, "lengths": lengths})[:2]
