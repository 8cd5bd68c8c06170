"""How a token is chosen from logits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampling:
    """How a sequence's next token is chosen.

    Attributes:
        temperature: What logits are divided by; 0 for the most probable token.
        top_k: Only so many of the most probable tokens count; 0 for all.
        top_p: Only the most probable tokens count that together have this probability.
        repetition_penalty: Logits of tokens that the sequence has are divided by it, or multiplied where negative.
        seed: Decides what chance decides: the same seed gives the same tokens.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
