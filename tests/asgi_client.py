"""A client of an ASGI application in the same process, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

LONG = 120
"""Seconds that nothing in a test takes."""


@dataclass
class Answer:
    """What came back.

    Attributes:
        status: The status; 0 where nothing came.
        headers: By lower-case names.
        body: All of it.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream, the last one's word among them."""
        lines = self.body.decode().split("\n\n")
        assert lines.pop() == "" and all(line.startswith("data: ") for line in lines)
        found = [line.removeprefix("data: ") for line in lines]
        return [line if line == "[DONE]" else json.loads(line) for line in found]


class Client:
    """A client, which is closed at the end of a ``with``.

    Args:
        application: The application.
    """

    def __init__(self, application: Any) -> None:
        self._application = application
        self._runner = asyncio.Runner()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine returns, in the client's loop."""
        return self._runner.run(work)

    def get(self, path: str) -> Answer:
        return self.run(self.ask("GET", path, b""))

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None, **options: Any) -> Answer:
        """Sends bytes, or anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.run(self.ask("POST", path, content, headers or {}, **options))

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        part: int = 1000,
        leaves_after: int | None = None,
    ) -> Answer:
        """One request.

        Args:
            part: The bytes of the body that come at once.
            leaves_after: How many messages of the response the client takes; it leaves then. 0: it leaves at once. None: it
                stays.
        """
        answer, sent = Answer(), 0
        parts = [body[start : start + part] for start in range(0, len(body), part)] or [b""]
        has_left = asyncio.Event()
        if leaves_after == 0:
            has_left.set()

        async def receive() -> dict[str, Any]:
            if parts:
                return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
            await has_left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal sent
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.body += message.get("body", b"")
            sent += 1
            if sent == leaves_after:
                has_left.set()

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        }
        async with asyncio.timeout(LONG):
            await self._application(scope, receive, send)
        return answer
