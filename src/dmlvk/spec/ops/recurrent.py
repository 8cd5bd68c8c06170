"""Recurrent networks of one layer: a state that each step of a sequence changes."""

from __future__ import annotations

from collections.abc import Sequence

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import RecurrentNetworkDirection as _Direction
from dmlvk.spec.enums import TensorDataType as _Type
from dmlvk.spec.tensor import TensorDesc

__all__ = ["Gru", "Lstm", "Rnn"]

_DIMS = (4, 4)


def _directions(desc: Rnn | Lstm | Gru) -> int:
    return 2 if desc.direction == _Direction.BIDIRECTIONAL else 1


def _inferred(desc: Rnn | Lstm | Gru) -> tuple[tuple[int, ...], ...]:
    """The sizes of the sequence of states, and of each last state."""
    _, steps, batch, _ = desc.tensor("input_tensor").sizes
    state = (_directions(desc), batch, desc.tensor("recurrence_tensor").sizes[3])
    return ((steps, *state), *((1, *state),) * (len(desc.output_slots()) - 1))


_BATCHES = {
    "input_tensor": 2,
    "hidden_init_tensor": 2,
    "cell_mem_init_tensor": 2,
    "sequence_lengths_tensor": 3,
    "output_sequence_tensor": 2,
    "output_single_tensor": 2,
    "output_cell_single_tensor": 2,
}
"""The dimension of the sequences of a batch, which know nothing of each other."""


def _sizes(gates: int) -> _s.Constraint:
    """The inputs fit together. ``gates`` blocks of rows of the weights make one step's new state."""

    def check(desc: Rnn | Lstm | Gru) -> _s.Violation | None:
        leading, _, batch, inputs = desc.tensor("input_tensor").sizes
        directions, hidden = _directions(desc), desc.tensor("recurrence_tensor").sizes[3]
        if leading != 1:
            return _s.Violation("input_tensor", desc.tensor("input_tensor").sizes)
        wanted = {
            "weight_tensor": (1, directions, gates * hidden, inputs),
            "recurrence_tensor": (1, directions, gates * hidden, hidden),
            "bias_tensor": (1, 1, directions, 2 * gates * hidden),
            "hidden_init_tensor": (1, directions, batch, hidden),
            "cell_mem_init_tensor": (1, directions, batch, hidden),
            "sequence_lengths_tensor": (1, 1, 1, batch),
            "peephole_tensor": (1, 1, directions, 3 * hidden),
        }
        for slot in desc.input_slots()[1:]:
            if slot.tensor is not None and slot.tensor.sizes != wanted[slot.field.name]:
                return _s.Violation(slot.field.name, slot.tensor.sizes, wanted[slot.field.name])
        return None

    rows = "H" if gates == 1 else f"{gates} H"
    rule = (
        f"the inputs must fit together: for S steps, batch B, input size I, hidden size H and D directions (2 for "
        f"BIDIRECTIONAL, else 1) the input is {{1, S, B, I}}, the weights {{1, D, {rows}, I}}, the recurrence "
        f"{{1, D, {rows}, H}}, the bias {{1, 1, D, {2 * gates} H}}, initial states {{1, D, B, H}} and the sequence lengths "
        "{1, 1, 1, B}" + ", the peephole weights {1, 1, D, 3 H}" * (gates == 4)
    )
    return _s.Constraint("input_sizes", rule, check)


def _activations(functions: int) -> _s.Constraint:
    def check(desc: Rnn | Lstm | Gru) -> _s.Violation | None:
        count, wanted = len(desc.activation_descs), functions * _directions(desc)
        return None if count == wanted else _s.Violation("activation_descs", count, wanted)

    return _s.Constraint("activation_count", f"must have {functions} activations for each direction", check)


@_c.constraint("some_output", "at least one output must be given")
def _some_output(desc: Rnn | Lstm | Gru) -> _s.Violation | None:
    given = any(slot.tensor is not None for slot in desc.output_slots())
    return None if given else _s.Violation("output_sequence_tensor", None)


@_c.constraint("clip_threshold", "clip_threshold must not be negative where it is used")
def _clip_threshold(desc: Lstm) -> _s.Violation | None:
    good = desc.clip_threshold >= 0 or not desc.use_clip_threshold
    return None if good else _s.Violation("clip_threshold", desc.clip_threshold)


_FLOAT_TENSORS = (
    "input_tensor",
    "weight_tensor",
    "recurrence_tensor",
    "bias_tensor",
    "hidden_init_tensor",
    "cell_mem_init_tensor",
    "peephole_tensor",
    "output_sequence_tensor",
    "output_single_tensor",
    "output_cell_single_tensor",
)


def _constraints(gates: int, functions: int) -> tuple[_s.Constraint, ...]:
    return (
        _c.same_data_type(*_FLOAT_TENSORS),
        _sizes(gates),
        _some_output,
        _c.output_sizes_match(),
        _activations(functions),
    )


class Rnn(_s.OperatorDesc, constraints=_constraints(1, 1)):
    """H_t = f(X_t W^T + H_{t-1} R^T + Wb + Rb), for each direction and each sequence of the batch.

    Sizes, for S steps, batch B, input size I, hidden size H and D directions (2 for BIDIRECTIONAL, else 1):
    InputTensor {1, S, B, I}; WeightTensor W {1, D, H, I}; RecurrenceTensor R {1, D, H, H}; BiasTensor {1, 1, D, 2 H},
    Wb and then Rb; HiddenInitTensor H_{-1} {1, D, B, H}, 0 where it is absent; SequenceLengthsTensor {1, 1, 1, B};
    OutputSequenceTensor {S, D, B, H} takes the state after each step; OutputSingleTensor {1, D, B, H} the last one.
    ActivationDescs: f for each direction, fusable activations without tensors.

    Where the specification is silent, ONNX and its runtime are followed; this holds for ``Lstm`` and ``Gru`` as well:

    - A sequence of length L has only its first L steps; a length above S counts as S. OutputSequenceTensor is 0 past it,
      and the last state is that after its own last step: of an empty sequence 0.
    - BACKWARD, and the second direction of BIDIRECTIONAL, reads each sequence from its own end to its start; the state
      after reading X_t stands at t, so the last one at 0.
    - RecurrenceTensor, which the page's text calls optional, is required as in the struct. At least one output is given.
    - States, sums and activations are float32 for both data types; only what is written is rounded to FLOAT16.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS)
    weight_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS)
    recurrence_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS, optional=True)
    hidden_init_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS, optional=True)
    sequence_lengths_tensor: TensorDesc | None = _s.input_tensor((_Type.UINT32,), _DIMS, optional=True)
    output_sequence_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, _DIMS, optional=True)
    output_single_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, _DIMS, optional=True)
    activation_descs: tuple[_s.OperatorDesc, ...] = _s.operator_desc_array()
    direction: _Direction = _s.enumeration(_Direction, _Direction.FORWARD)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)

    def cuts(self) -> Sequence[_s.Cut]:
        return [_s.Cut(_BATCHES)]


class Lstm(_s.OperatorDesc, constraints=(*_constraints(4, 3), _clip_threshold)):
    """Long short-term memory: a state H and a cell C. With a(g) = X_t W_g^T + H_{t-1} R_g^T + Wb_g + Rb_g,

    | i = f(clip(a(i) + P_i C_{t-1})), the input gate
    | m = f(clip(a(f) + P_f C_{t-1})), the forget gate; with CoupleInputForget 1 - i instead
    | C_t = m C_{t-1} + i g(clip(a(c)))
    | o = f(clip(a(o) + P_o C_t)), the output gate
    | H_t = o h(C_t)

    The gates stand in the order i, o, f, c: WeightTensor {1, D, 4 H, I}, RecurrenceTensor {1, D, 4 H, H}, BiasTensor
    {1, 1, D, 8 H}. PeepholeTensor P {1, 1, D, 3 H} has the order i, o, f. CellMemInitTensor C_{-1} is as
    HiddenInitTensor, and OutputCellSingleTensor, the last cell, as OutputSingleTensor. ActivationDescs: f, g, h for each
    direction. The rest, and what holds where the specification is silent, is as in ``Rnn``, and:

    - The output gate looks through its peephole at C_t, not C_{t-1}.
    - ``clip`` limits to -ClipThreshold..ClipThreshold if UseClipThreshold; as in the formula, h's argument is not clipped.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS)
    weight_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS)
    recurrence_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS, optional=True)
    hidden_init_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS, optional=True)
    cell_mem_init_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS, optional=True)
    sequence_lengths_tensor: TensorDesc | None = _s.input_tensor((_Type.UINT32,), _DIMS, optional=True)
    peephole_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS, optional=True)
    output_sequence_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, _DIMS, optional=True)
    output_single_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, _DIMS, optional=True)
    output_cell_single_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, _DIMS, optional=True)
    activation_descs: tuple[_s.OperatorDesc, ...] = _s.operator_desc_array()
    direction: _Direction = _s.enumeration(_Direction, _Direction.FORWARD)
    clip_threshold: float = _s.floating(0.0)
    use_clip_threshold: bool = _s.boolean(False)
    couple_input_forget: bool = _s.boolean(False)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)

    def cuts(self) -> Sequence[_s.Cut]:
        return [_s.Cut(_BATCHES)]


class Gru(_s.OperatorDesc, constraints=_constraints(3, 2)):
    """Gated recurrent unit. With a(g) = X_t W_g^T + H_{t-1} R_g^T + Wb_g + Rb_g,

    | z = f(a(z)), the update gate
    | r = f(a(r)), the reset gate
    | n = g(X_t W_h^T + (r H_{t-1}) R_h^T + Wb_h + Rb_h), or
    | n = g(X_t W_h^T + r (H_{t-1} R_h^T + Rb_h) + Wb_h) with LinearBeforeReset
    | H_t = (1 - z) n + z H_{t-1}

    The gates stand in the order z, r, h: WeightTensor {1, D, 3 H, I}, RecurrenceTensor {1, D, 3 H, H}, BiasTensor
    {1, 1, D, 6 H}. ActivationDescs: f, g for each direction. The rest, and what holds where the specification is silent, is
    as in ``Rnn``. Without LinearBeforeReset a step takes two products, the second of which waits for the reset gates of all
    units, so it takes about twice the time.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS)
    weight_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS)
    recurrence_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS, optional=True)
    hidden_init_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, _DIMS, optional=True)
    sequence_lengths_tensor: TensorDesc | None = _s.input_tensor((_Type.UINT32,), _DIMS, optional=True)
    output_sequence_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, _DIMS, optional=True)
    output_single_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, _DIMS, optional=True)
    activation_descs: tuple[_s.OperatorDesc, ...] = _s.operator_desc_array()
    direction: _Direction = _s.enumeration(_Direction, _Direction.FORWARD)
    linear_before_reset: bool = _s.boolean(False)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)

    def cuts(self) -> Sequence[_s.Cut]:
        return [_s.Cut(_BATCHES)]
