"""What both applications have: routes, limits, errors, health and metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from dmlvk.serving.limits import Limits
from dmlvk.serving.metrics import Metrics
from dmlvk.serving.refusals import Refusal, refusal_of
from dmlvk.spec.errors import MissingPackageError
from dmlvk.spec.log import logger

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send
except ImportError as error:
    raise MissingPackageError("serving needs the package starlette: pip install 'dmlvk[serve]'") from error

Answered = TypeVar("Answered")
Endpoint = Callable[[Request], Awaitable[Response]]
GONE = 499
"""The status of a client that did not wait, in the metrics: nobody gets it."""

_THROWN_AWAY: Final = 4
"""How many times the bytes that a request may have are read of one that has more."""


class Frame:
    """The routes that every application has, around its own.

    Args:
        routes: The application's endpoints, by method and path.
        limits: What clients may ask for.
        metrics: What is counted.
        failure: Why the application does not work any more, None while it does.
        is_ready: Whether it takes requests.
        close: Called when the server ends.
        body_of: An error as the application's clients expect it.
    """

    def __init__(
        self,
        routes: Mapping[tuple[str, str], Endpoint],
        *,
        limits: Limits,
        metrics: Metrics,
        failure: Callable[[], Exception | None],
        is_ready: Callable[[], bool],
        close: Callable[[], None],
        body_of: Callable[[Refusal], Any],
    ) -> None:
        self._limits, self._metrics, self._failure, self._is_ready, self._close = limits, metrics, failure, is_ready, close
        self._body_of = body_of
        own: dict[tuple[str, str], Endpoint] = {
            ("GET", "/health"): self.health,
            ("GET", "/ready"): self.ready,
            ("GET", "/metrics"): self.exposed,
        }
        self._routes = [
            Route(path, self._counted(path, endpoint), methods=[method])
            for (method, path), endpoint in {**own, **routes}.items()
        ]

    def application(self) -> Starlette:
        """The application. Its ``state.failure()`` says why it does not work any more, None while it does."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            await asyncio.to_thread(self._close)

        made = Starlette(routes=self._routes, lifespan=lifespan, exception_handlers={HTTPException: self._no_such_route})
        made.state.failure = self._failure
        return made

    # -- endpoints

    async def health(self, request: Request) -> Response:
        """Whether the server works, or a new one is needed."""
        failure = self._failure()
        if failure is not None:
            return self.refused(Refusal(503, f"the model is gone: {type(failure).__name__}", code="failed"))
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether requests are taken now."""
        if not self._is_ready():
            return self.refused(Refusal(503, "no requests are taken now", code="not_ready"))
        return JSONResponse({"status": "ready"})

    async def exposed(self, request: Request) -> Response:
        """The metrics as Prometheus reads them."""
        body, kind = self._metrics.exposed()
        return PlainTextResponse(body, media_type=kind)

    # -- around endpoints

    def refused(self, refusal: Refusal) -> Response:
        """An error as a response."""
        return JSONResponse(self._body_of(refusal), refusal.status, refusal.headers)

    def _counted(self, path: str, endpoint: Endpoint) -> Endpoint:
        """An endpoint whose errors become responses, and whose requests are counted when their responses have been sent."""

        async def called(request: Request) -> Response:
            started = time.perf_counter()
            try:
                response = await endpoint(request)
            except ClientDisconnect:
                response = Response(status_code=GONE)
            except Exception as error:
                refusal = refusal_of(error)
                if refusal.status >= 500:
                    logger("serving").log(logging.ERROR, "%s: %s", path, error, exc_info=error)
                response = self.refused(refusal)
            return _Told(response, lambda: self._metrics.request(path, response.status_code, time.perf_counter() - started))

        return called

    async def _no_such_route(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = "not_found" if error.status_code == 404 else "method_not_allowed"
        words = f"{request.method} {request.url.path}: {error.detail}"
        self._metrics.request("", error.status_code, 0.0)
        return JSONResponse(
            self._body_of(Refusal(error.status_code, words, code=code)), error.status_code, dict(error.headers or {})
        )


class _Told(Response):
    """A response that tells when it has been sent, or nobody takes it any more."""

    def __init__(self, response: Response, told: Callable[[], None]) -> None:
        self._response, self._told = response, told
        self.background = None
        self.status_code = response.status_code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._response(scope, receive, send)
        finally:
            self._told()


async def body_of(request: Request, limits: Limits) -> bytes:
    """The body of a request.

    Raises:
        Refusal: it is larger than it may be. What is not much too large is read all the same, and thrown away: who is
            refused while still sending gets no answer from many servers, but a connection that breaks.
        TimeoutError: it does not come.
    """
    said = request.headers.get("content-length", "")
    parts: list[bytes] = []
    size = 0
    is_too_large = said.isdecimal() and int(said[:20]) > limits.body_bytes
    async with asyncio.timeout(limits.seconds):
        async for part in request.stream():
            size += len(part)
            is_too_large = is_too_large or size > limits.body_bytes
            if is_too_large:
                parts.clear()
                if size > _THROWN_AWAY * limits.body_bytes:
                    break
            else:
                parts.append(part)
    if is_too_large:
        raise Refusal(413, f"the body must have at most {limits.body_bytes} bytes", code="body_too_large")
    return b"".join(parts)


async def while_connected(request: Request, work: Coroutine[Any, Any, Answered]) -> Answered:
    """What a coroutine returns; it is cancelled where the client leaves, whose body has been read.

    Raises:
        ClientDisconnect: the client has left.
    """

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
