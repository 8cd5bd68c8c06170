"""Cases of the recurrent networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlvk.spec import ops
from dmlvk.spec.enums import RecurrentNetworkDirection, TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, Tolerance

_FORWARD, _BACKWARD, _BOTH = RecurrentNetworkDirection
_TANH, _SIGMOID = ops.ActivationTanh(), ops.ActivationSigmoid()
_UINT32 = TensorDataType.UINT32
_UNEVEN = (3, 0, 2, 3, 1)
"""Lengths of sequences of three steps."""


def weights(fan_in: int) -> Domain:
    """Normal numbers that leave sums of so many products at about 1."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        values: Array = (rng.standard_normal(sizes) / np.sqrt(fan_in)).astype(NUMPY_TYPES[data_type])
        return values

    return domain


def _lengths(*lengths: int) -> Domain:
    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        return np.resize(np.array(lengths, np.uint32), sizes)

    return domain


def _case(
    name: str,
    row: type[OperatorDesc],
    steps: int,
    batch: int,
    inputs: int,
    hidden: int,
    *,
    direction: RecurrentNetworkDirection = _FORWARD,
    given: str = "",
    lengths: tuple[int, ...] = (),
    functions: tuple[OperatorDesc, ...] = (),
    outputs: str = "",
    quick: bool = False,
    layouts: bool = True,
    **attributes: Any,
) -> Case:
    """Optional inputs are given by letters: bias, hidden and cell states, peepholes. Outputs likewise, sequence, hidden and
    cell; all unless some are named."""
    gates = {ops.Rnn: 1, ops.Lstm: 4, ops.Gru: 3}[row]
    directions = 2 if direction == _BOTH else 1
    state = (1, directions, batch, hidden)
    sizes = {
        "input_tensor": (1, steps, batch, inputs),
        "weight_tensor": (1, directions, gates * hidden, inputs),
        "recurrence_tensor": (1, directions, gates * hidden, hidden),
    }
    optional = {
        "b": ("bias_tensor", (1, 1, directions, 2 * gates * hidden)),
        "h": ("hidden_init_tensor", state),
        "c": ("cell_mem_init_tensor", state),
        "p": ("peephole_tensor", (1, 1, directions, 3 * hidden)),
    }
    sizes |= dict(optional[letter] for letter in given)
    if lengths:
        sizes["sequence_lengths_tensor"] = (1, 1, 1, batch)
    results = {
        "s": ("output_sequence_tensor", (steps, *state[1:])),
        "h": ("output_single_tensor", state),
        "c": ("output_cell_single_tensor", state),
    }
    default = {ops.Rnn: (_TANH,), ops.Lstm: (_SIGMOID, _TANH, _TANH), ops.Gru: (_SIGMOID, _TANH)}[row]
    return Case(
        name,
        sizes,
        {"direction": direction, "activation_descs": functions or default * directions, **attributes},
        outputs=dict(results[letter] for letter in outputs),
        data_types={"sequence_lengths_tensor": _UINT32},
        domains={
            "weight_tensor": weights(inputs),
            "recurrence_tensor": weights(hidden),
            "sequence_lengths_tensor": _lengths(*lengths),
        },
        quick=quick,
        layouts=layouts,
    )


# In ULP of the magnitude that the oracle carries along, which counts the errors of earlier steps: on lavapipe at most 1.5 in
# float32 over six sets of values, and in FLOAT16 the rounding of a float32 result that is all but exact.
# In ULP of the result that is more by the ratio of that magnitude to the result, where terms cancel: an update gate z that
# is no number from 0 to 1, as relu's, makes (1 - z) n + z h a difference. A GRU of WebNN's conformance cases, with relu for
# both functions, has a result of 1.4 with a magnitude of 26: half a ULP of a term, which the state of the step before has
# lost already, is 8 ULP of the result. It was off by 11 on an H200 and is by 1.3 on lavapipe; a bound of 6 no float32 state
# can promise. "gates beyond 1" is such a network.
_TOLERANCE = {TensorDataType.FLOAT32: Tolerance(2), TensorDataType.FLOAT16: Tolerance(0.52)}

CASES = (
    OperatorCases(
        ops.Rnn,
        _TOLERANCE,
        (
            _case("small", ops.Rnn, 3, 2, 5, 7, given="b", quick=True),
            _case("one of each", ops.Rnn, 1, 1, 1, 1, given="h"),
            _case("both directions, lengths", ops.Rnn, 5, 3, 4, 9, direction=_BOTH, given="bh", lengths=(5, 0, 2)),
            _case("backward, last state only", ops.Rnn, 4, 2, 3, 8, direction=_BACKWARD, outputs="h"),
            _case(
                "other activations",
                ops.Rnn,
                3,
                2,
                4,
                6,
                direction=_BOTH,
                functions=(ops.ActivationScaledTanh(alpha=1.5, beta=0.5), ops.ActivationLeakyRelu(alpha=0.25)),
            ),
            _case("wide", ops.Rnn, 3, 17, 35, 133, given="bh", layouts=False),
            _case("wide, whole words", ops.Rnn, 3, 19, 24, 136, direction=_BOTH, given="bh", lengths=_UNEVEN, layouts=False),
        ),
    ),
    OperatorCases(
        ops.Lstm,
        _TOLERANCE,
        (
            _case("small", ops.Lstm, 3, 2, 5, 7, given="b", quick=True),
            _case("one of each", ops.Lstm, 1, 1, 1, 1),
            _case("peepholes", ops.Lstm, 3, 2, 4, 6, given="bhcp"),
            _case("both directions, lengths", ops.Lstm, 5, 3, 4, 9, direction=_BOTH, given="bhcp", lengths=(2, 9, 0)),
            _case("backward, sequence only", ops.Lstm, 4, 2, 3, 8, direction=_BACKWARD, outputs="s", given="h"),
            _case("last cell only", ops.Lstm, 4, 1, 3, 5, outputs="c", given="c", lengths=(3,)),
            _case("clipped", ops.Lstm, 3, 2, 6, 5, given="bcp", clip_threshold=0.75, use_clip_threshold=True),
            _case("a threshold that is not used", ops.Lstm, 2, 2, 3, 4, given="p", clip_threshold=0.1),
            _case("coupled gates", ops.Lstm, 3, 2, 5, 6, given="bp", couple_input_forget=True),
            _case(
                "other activations",
                ops.Lstm,
                3,
                2,
                4,
                6,
                direction=_BOTH,
                functions=(
                    *(ops.ActivationHardSigmoid(alpha=0.25, beta=0.5), ops.ActivationSoftsign(), _TANH),
                    *(_SIGMOID, ops.ActivationElu(alpha=0.5), ops.ActivationLinear(alpha=0.5, beta=0.125)),
                ),
            ),
            _case("wide", ops.Lstm, 3, 17, 35, 67, given="bhc", layouts=False),
            _case(
                "wide, whole words", ops.Lstm, 3, 19, 24, 136, direction=_BOTH, given="bhcp", lengths=_UNEVEN, layouts=False
            ),
            _case("very wide, whole words", ops.Lstm, 2, 3, 8, 520, given="h", layouts=False),
            _case("wide, few sequences", ops.Lstm, 2, 5, 8, 93, given="b", layouts=False),
        ),
    ),
    OperatorCases(
        ops.Gru,
        _TOLERANCE,
        (
            _case("small", ops.Gru, 3, 2, 5, 7, given="b", quick=True),
            _case("small, linear before reset", ops.Gru, 3, 2, 5, 7, given="b", linear_before_reset=True, quick=True),
            _case("one of each", ops.Gru, 1, 1, 1, 1),
            _case("both directions, lengths", ops.Gru, 5, 3, 4, 9, direction=_BOTH, given="bh", lengths=(0, 5, 3)),
            _case(
                "both directions, lengths, linear before reset",
                *(ops.Gru, 5, 3, 4, 9),
                direction=_BOTH,
                given="bh",
                lengths=(1, 5, 0),
                linear_before_reset=True,
            ),
            _case("backward, last state only", ops.Gru, 4, 2, 3, 8, direction=_BACKWARD, outputs="h", given="h"),
            _case(
                "other activations",
                ops.Gru,
                3,
                2,
                4,
                6,
                direction=_BOTH,
                functions=(
                    *(ops.ActivationHardSigmoid(), ops.ActivationSoftsign()),
                    *(_SIGMOID, ops.ActivationThresholdedRelu(alpha=0.25)),
                ),
                given="b",
            ),
            _case(
                "gates beyond 1",
                *(ops.Gru, 3, 3, 2, 4),
                direction=_BACKWARD,
                functions=(ops.ActivationRelu(), ops.ActivationRelu()),
                given="bh",
                layouts=False,
            ),
            _case("wide", ops.Gru, 3, 17, 35, 67, given="bh", layouts=False),
            _case("wide, linear before reset", ops.Gru, 3, 17, 35, 67, given="bh", linear_before_reset=True, layouts=False),
            _case("wide, whole words", ops.Gru, 3, 19, 24, 136, direction=_BOTH, given="bh", lengths=_UNEVEN, layouts=False),
            _case(
                "wide, whole words, linear before reset",
                *(ops.Gru, 3, 19, 24, 136),
                direction=_BOTH,
                given="bh",
                lengths=_UNEVEN,
                linear_before_reset=True,
                layouts=False,
            ),
        ),
    ),
)
