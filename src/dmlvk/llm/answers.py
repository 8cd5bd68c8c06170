"""What becomes of a sequence's tokens: text cut at whole characters, and where it ends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dmlvk.llm.sampling import Sampling
from dmlvk.llm.tokenizer import TextStream

Piece = str | int
"""A part of an answer: text, or a token where the prompt was tokens."""


class StoppedText:
    """Text that comes in pieces and ends before the first of some strings, wherever their pieces are cut.

    Args:
        stream: What makes text of tokens.
        stops: The strings.

    Attributes:
        is_over: Whether one of them has come.
    """

    def __init__(self, stream: TextStream, stops: Sequence[str]) -> None:
        self._stream, self._stops = stream, stops
        self._held = ""
        self.is_over = False

    def push(self, token: int) -> str:
        """The text that a token completes, but for what may be the beginning of a stop."""
        return self._take(self._stream.push(token))

    def close(self) -> str:
        """What is left at the end."""
        text = self._take(self._stream.close()) + self._held
        self._held = ""
        return text

    def _take(self, text: str) -> str:
        if self.is_over:
            return ""
        self._held += text
        found = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if found:
            self.is_over = True
            text, self._held = self._held[: min(found)], ""
            return text
        longest = max(map(len, self._stops), default=1) - 1
        for start in range(max(len(self._held) - longest, 0), len(self._held)):
            if any(stop.startswith(self._held[start:]) for stop in self._stops):
                text, self._held = self._held[:start], self._held[start:]
                return text
        text, self._held = self._held, ""
        return text


class TokenLogprobs(NamedTuple):
    """How probable a token was, by the model itself: before penalties, temperature and what leaves tokens out.

    Attributes:
        token: The token that was chosen.
        logprob: The natural logarithm of its probability.
        top: The most probable tokens with theirs, the best first.
    """

    token: int
    logprob: float
    top: Sequence[tuple[int, float]]


@dataclass(eq=False)
class Job:
    """One sequence to be continued.

    Attributes:
        index: Its number among the prompts.
        prompt: Its tokens.
        sampling: How each next one is chosen.
        room: Tokens that it may have more.
        ends: Tokens that end it, which are no part of it.
        text: What makes text of its tokens; None where tokens are wanted.
        logprobs: How many of the most probable tokens are told beside each one; None where nobody asks.
        last: The newest token, which is not in the cache yet.
        made: Tokens that have been chosen.
        ended: Why it has ended: "stop" where the model or a stop ended it, "length" where its room did; "" before.
    """

    index: int
    prompt: list[int]
    sampling: Sampling
    room: int
    ends: Collection[int]
    text: StoppedText | None
    logprobs: int | None = None
    last: int = field(init=False)
    made: int = 0
    ended: Literal["", "stop", "length"] = ""

    def __post_init__(self) -> None:
        self.last = self.prompt[-1]

    def push(self, token: int) -> tuple[list[Piece], bool]:
        """What a new token gives, and whether it was the last."""
        self.last = token
        self.made += 1
        if token in self.ends:
            self.ended = "stop"
            return self._closed([]), True
        is_last = self.made >= self.room
        self.ended = "length" if is_last else ""
        if self.text is None:
            return [token], is_last
        pieces: list[Piece] = [text] if (text := self.text.push(token)) else []
        if self.text.is_over:
            self.ended = "stop"
            return pieces, True
        return (self._closed(pieces), True) if is_last else (pieces, False)

    @property
    def ended_by_token(self) -> bool:
        """Whether its last token ended it, which is no part of it."""
        return self.ended == "stop" and self.last in self.ends

    def _closed(self, pieces: list[Piece]) -> list[Piece]:
        left = self.text.close() if self.text is not None else ""
        return [*pieces, left] if left else pieces
