"""Errors as clients see them: a status, and words that say what to change."""

from __future__ import annotations

from dmlvk.spec.errors import (
    InvalidArgumentError,
    ModelError,
    QueueFullError,
    StateError,
    UnsupportedError,
    VulkanError,
    WaitTimeoutError,
)

_SECONDS_TO_WAIT = 1


class Refusal(Exception):
    """A request that gets an error for an answer.

    Args:
        status: The status of HTTP.
        message: What is wrong.
        field: The field of the request that is, "" where it is none of them.
        code: A word for programs.
    """

    def __init__(self, status: int, message: str, *, field: str = "", code: str = "") -> None:
        super().__init__(message)
        self.status, self.field, self.code = status, field, code

    @property
    def headers(self) -> dict[str, str]:
        """What else the answer says: when to come again."""
        return {"Retry-After": str(_SECONDS_TO_WAIT)} if self.status in (429, 503) else {}


def refusal_of(error: Exception) -> Refusal:
    """An error of this package, or of a program, as clients see it. Of what is no fault of theirs they learn no details."""
    match error:
        case Refusal():
            return error
        case QueueFullError():
            return Refusal(429, f"too many requests: {error}", code="queue_full")
        case InvalidArgumentError(field=field):
            return Refusal(400, str(error), field=field, code="invalid_value")
        case UnsupportedError() | ModelError():
            return Refusal(422, str(error), code="unprocessable")
        case WaitTimeoutError() | TimeoutError():
            return Refusal(504, "the request took longer than it may", code="timeout")
        case VulkanError() | MemoryError():
            return Refusal(503, f"the device has failed: {type(error).__name__}", code="device_failed")
        case StateError():
            return Refusal(503, str(error), code="not_ready")
        case _:
            return Refusal(500, "the server has failed", code="internal_error")
