"""What a client may ask of a server."""

from __future__ import annotations

from dataclasses import dataclass

from dmlvk.spec.errors import InvalidArgumentError


@dataclass(frozen=True)
class Limits:
    """What a client may ask of a server; what is beyond is refused before anything is computed.

    Attributes:
        body_bytes: The bytes of a request.
        seconds: How long a request may take, from its arrival to the end of its answer.
        answers: Answers that one request of a text may ask for: its prompts times ``n``.

    Raises:
        InvalidArgumentError: a number that is not above 0.
    """

    body_bytes: int = 4 * 2**20
    seconds: float = 600.0
    answers: int = 16

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise InvalidArgumentError("must be above 0", operator="Limits", field=name, value=value)
