"""How a token is chosen from logits."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk.spec.errors import InvalidArgumentError


@dataclass(frozen=True)
class Sampling:
    """How a sequence's next token is chosen.

    Attributes:
        temperature: What logits are divided by; 0 for the most probable token, of equal ones the first.
        top_k: Only so many of the most probable tokens count; 0 for all.
        top_p: Of those only the most probable count that together have this part of their probability.
        min_p: Before both, only tokens count that are at least so probable as the most probable one times this.
        repetition_penalty: Logits of tokens that the sequence has are divided by it, or multiplied where negative.
        repetition_window: How many of the sequence's last tokens that concerns; all where None.
        presence_penalty: What logits of tokens lose that the answer has already.
        frequency_penalty: What they lose besides for each time that the answer has them; both as OpenAI defines them, behind
            the penalty for repetition. Less than 0 makes such tokens more likely.
        answer_start: How many tokens the sequence has before the answer, which both do not concern.
        seed: Decides what chance decides: the same seed gives the same tokens. Of 64 bits.

    Raises:
        InvalidArgumentError: a number that is out of its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_window: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    answer_start: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        rules = {
            "temperature": ("must be finite, and 0 or more", math.isfinite(self.temperature) and self.temperature >= 0),
            "top_k": ("must be a whole number from 0 to 2^32 - 1", _is_whole(self.top_k, 2**32)),
            "top_p": ("must be from 0 to 1", 0 <= self.top_p <= 1),
            "min_p": ("must be from 0 to 1", 0 <= self.min_p <= 1),
            "repetition_penalty": ("must be above 0, and finite", 0 < self.repetition_penalty < math.inf),
            "repetition_window": (
                "must be None or a whole number, 0 or more",
                self.repetition_window is None or _is_whole(self.repetition_window, 2**32),
            ),
            "presence_penalty": ("must be finite", math.isfinite(self.presence_penalty)),
            "frequency_penalty": ("must be finite", math.isfinite(self.frequency_penalty)),
            "answer_start": ("must be a whole number from 0 to 2^32 - 1", _is_whole(self.answer_start, 2**32)),
            "seed": ("must be a whole number from 0 to 2^64 - 1", _is_whole(self.seed, 2**64)),
        }
        for name, (rule, good) in rules.items():
            if not good:
                raise InvalidArgumentError(rule, operator="Sampling", field=name, value=getattr(self, name))

    @property
    def reads_history(self) -> bool:
        """Whether it matters which tokens the sequence has."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


def _is_whole(value: object, end: int) -> bool:
    return isinstance(value, int) and 0 <= value < end
