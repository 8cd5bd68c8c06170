"""A row of our own: the choice of a language model's next token."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc, packed_strides

_LOGITS, _CONTROLS, _HISTORY, _LENGTHS = "logits_tensor", "controls_tensor", "history_tensor", "lengths_tensor"
_TOKENS, _NEW_HISTORY, _NEW_LENGTHS = "output_tensor", "output_history_tensor", "output_lengths_tensor"
_INT32 = (TensorDataType.INT32,)

CONTROL_WORDS = 13
"""Words that say how a sequence's token is chosen."""
MOST_TOKENS = 2**19
"""The largest vocabulary: the masses of so many tokens have a sum of 64 bits."""
_ALL = 2**32 - 1
_LEAST_TEMPERATURE = 1e-6


def sampling_words(
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    repetition_window: int | None = None,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    answer_start: int = 0,
    seed: int = 0,
    active: bool = True,
) -> tuple[int, ...]:
    """A row of a ``SampleToken``'s controls.

    Args:
        temperature: What logits are divided by; 0 chooses the largest, the first of equal ones.
        top_k: Only so many tokens with the largest logits count, of equal ones the first; 0 for all.
        top_p: Of those only the most probable that together have this part of their probability, the last of them included.
        min_p: Before both, only tokens that are at least so probable as the most probable one times this.
        repetition_penalty: Positive logits of tokens in the history are divided by it, others multiplied.
        repetition_window: How many tokens of the history's end that concerns; all of them where None.
        presence_penalty: What logits of tokens lose that the history has from ``answer_start`` on, behind the repetition's
            penalty.
        frequency_penalty: What they lose besides for each time that it has them there.
        answer_start: Tokens of the history before those.
        seed: Of 64 bits. The same seed, history and logits give the same token.
        active: Whether the sequence takes part. Of one that does not, nothing is written.
    """
    softened = max(temperature, _LEAST_TEMPERATURE)
    floats = (
        1 / softened if temperature > 0 else 0.0,
        math.inf if min_p <= 0 else abs(math.log(min_p) * softened),
        repetition_penalty,
        1 / repetition_penalty,
        presence_penalty,
        frequency_penalty,
    )
    inverse, furthest, penalty, reward, presence, frequency = struct.unpack("<6I", struct.pack("<6f", *floats))
    part = 0 if top_p >= 1 else max(int(top_p * 2**32), 1)
    window = _ALL if repetition_window is None else min(repetition_window, _ALL)
    chance = (seed & _ALL, seed >> 32 & _ALL)
    answer = (presence, frequency, answer_start)
    return (inverse, top_k, part, furthest, penalty, reward, window, *chance, int(active), *answer)


@_c.constraint("sizes", "must have a row for each sequence, and the vocabulary 1 to 524,288 tokens")
def _sizes(desc: SampleToken) -> _s.Violation | None:
    sequences, vocabulary = desc.tensor(_LOGITS).sizes
    if vocabulary > MOST_TOKENS:
        return _s.Violation(_LOGITS, desc.tensor(_LOGITS).sizes)
    history = (sequences, desc.tensor(_HISTORY).sizes[1])
    wanted: dict[str, tuple[int, ...]] = {_CONTROLS: (sequences, CONTROL_WORDS), _HISTORY: history, _NEW_HISTORY: history}
    wanted |= dict.fromkeys((_LENGTHS, _TOKENS, _NEW_LENGTHS), (sequences,))
    for name, sizes in wanted.items():
        tensor: TensorDesc | None = getattr(desc, name)
        if tensor is not None and tensor.sizes != sizes:
            return _s.Violation(name, tensor.sizes, sizes)
    return None


@_c.constraint("packed", "must be packed")
def _packed(desc: SampleToken) -> _s.Violation | None:
    for spec in desc.fields:
        tensor = getattr(desc, spec.name)
        if isinstance(tensor, TensorDesc) and tensor.effective_strides != packed_strides(tensor.sizes):
            return _s.Violation(spec.name, tensor.effective_strides)
    return None


class SampleToken(
    _s.OperatorDesc,
    internal=True,
    in_place=(_HISTORY, _LENGTHS),
    constraints=(_sizes, _packed),
):
    """The next token of each sequence: the largest logit's, or one drawn by chance.

    How a sequence's token is chosen is data, so that one plan serves all: ``sampling_words`` makes a row of controls.
    Chance is Philox4x32-10 of RandomGenerator: the seed is its key, and the tokens of the history its counter.
    A NaN counts as -infinity.

    logits_tensor: {sequences, vocabulary}.
    controls_tensor: {sequences, 13}.
    history_tensor: {sequences, room}: tokens that a sequence has, in order.
    lengths_tensor: {sequences}: how many of them, but for ``pending`` more, which count as well.
    output_tensor: {sequences}, the tokens.
    output_history_tensor: The history with the token after those that count, if there is room. Only that element is written:
        the tensor is to lie where history_tensor does.
    output_lengths_tensor: The lengths, each one larger.
    pending: 1 where lengths are those before a step that has appended one token.
    """

    logits_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 2))
    controls_tensor: TensorDesc | None = _s.input_tensor((TensorDataType.UINT32,), (2, 2))
    history_tensor: TensorDesc | None = _s.input_tensor(_INT32, (2, 2))
    lengths_tensor: TensorDesc | None = _s.input_tensor(_INT32, (1, 1))
    output_tensor: TensorDesc | None = _s.output_tensor(_INT32, (1, 1))
    output_history_tensor: TensorDesc | None = _s.output_tensor(_INT32, (2, 2), optional=True)
    output_lengths_tensor: TensorDesc | None = _s.output_tensor(_INT32, (1, 1), optional=True)
    pending: int = _s.uint(0)

    def cuts(self) -> Sequence[_s.Cut]:
        """By sequences."""
        return [_s.Cut({spec.name: 0 for spec in self.fields if spec.name.endswith("_tensor")})]
