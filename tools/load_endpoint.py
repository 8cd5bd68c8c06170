"""Clients of an OpenAI endpoint, all at once: how long they wait, and whether anything goes wrong.

    python tools/load_endpoint.py http://127.0.0.1:8000 --clients 64 --seconds 120 --rude 0.1

Needs nothing but Python, and works with any server of that interface. Each client asks for one streamed answer after
another. Rude ones leave in the middle, send what is no JSON or far too much, and expect an error in OpenAI's form. A
server's ``/metrics`` is read where there is one, for its memory. The status is 1 where an answer was not as it must be.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import ssl
import time
import urllib.parse
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_WORDS = (
    "the",
    "a",
    "quick",
    "slow",
    "red",
    "fox",
    "dog",
    "river",
    "house",
    "over",
    "jumps",
    "and",
    "then",
    "at noon",
    "joy",
)
_KINDS = ("leaves", "no JSON", "wrong values", "far too long")


class Failed(Exception):
    """An answer that is not as it must be."""


@dataclass
class Found:
    """What clients have seen.

    Attributes:
        first: Seconds to each first piece.
        between: Seconds between pieces.
        whole: Seconds of each answer.
        tokens: Tokens of answers, as the server counts them.
        rude: Rude requests by kind.
        failed: What went wrong, by its words.
    """

    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    tokens: int = 0
    rude: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)


class Endpoint:
    """A server.

    Args:
        url: Its address, without a path.
    """

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self.host = parts.hostname or "127.0.0.1"
        self._is_secure = parts.scheme == "https"
        self.port = parts.port or (443 if self._is_secure else 80)
        self._path = parts.path.rstrip("/")

    async def ask(self, method: str, path: str, body: bytes = b"") -> Response:
        """Sends a request, and reads the head of its answer."""
        secure = ssl.create_default_context() if self._is_secure else None
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=secure, limit=1 << 20)
        head = f"{method} {self._path}{path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        response = Response(reader, writer)
        try:
            writer.write(head.encode() + body)
            with contextlib.suppress(ConnectionError):  # it has answered before it has read all
                await writer.drain()
            await response.read_head()
        except BaseException:
            response.close()
            raise
        return response


class Response:
    """An answer of HTTP.

    Attributes:
        status: Its status.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.status = 0
        self._headers: dict[str, str] = {}

    async def read_head(self) -> None:
        """Reads status and headers."""
        line = await self._reader.readline()
        if not line:
            raise Failed("no answer")
        self.status = int(line.split()[1])
        while (line := await self._reader.readline()).strip():
            name, _, value = line.decode().partition(":")
            self._headers[name.lower()] = value.strip()

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        if self._headers.get("transfer-encoding") == "chunked":
            while size := int((await self._reader.readline()).strip() or b"0", 16):
                yield await self._reader.readexactly(size)
                await self._reader.readline()
        elif "content-length" in self._headers:
            yield await self._reader.readexactly(int(self._headers["content-length"]))
        else:
            yield await self._reader.read()

    async def body(self) -> bytes:
        """All of the body."""
        return b"".join([part async for part in self.parts()])

    async def events(self) -> AsyncIterator[str]:
        """The events of a stream."""
        left = b""
        async for part in self.parts():
            *lines, left = (left + part).split(b"\n\n")
            for line in lines:
                yield line.decode().removeprefix("data: ")
        if left.strip():
            raise Failed("a stream that ends in the middle of an event")

    def close(self) -> None:
        """Leaves."""
        self._writer.close()


def prompt_of(random_: random.Random, words: int) -> str:
    return " ".join(random_.choices(_WORDS, k=random_.randint(1, words)))


async def one_answer(endpoint: Endpoint, asked: Mapping[str, Any], found: Found, *, leaves: bool) -> None:
    """A streamed answer, which must be whole unless the client leaves."""
    started = last = time.perf_counter()
    response = await endpoint.ask("POST", "/v1/completions", json.dumps(asked).encode())
    try:
        if response.status != 200:
            raise Failed(f"{response.status}: {(await response.body())[:200]!r}")
        ended, is_done, is_first = "", False, True
        async for event in response.events():
            if event == "[DONE]":
                is_done = True
                continue
            said = json.loads(event)
            if "error" in said:
                raise Failed(f"in a stream: {said['error']['message']}")
            if usage := said.get("usage"):
                found.tokens += usage["completion_tokens"]
            if choices := said["choices"]:
                now = time.perf_counter()
                (found.first if is_first else found.between).append(now - last)
                last, is_first = now, False
                ended = choices[0]["finish_reason"] or ended
                if leaves:
                    return
        if not is_done or ended not in ("stop", "length"):
            raise Failed("a stream without its end")
        found.whole.append(time.perf_counter() - started)
    finally:
        response.close()


async def rude_request(endpoint: Endpoint, asked: Mapping[str, Any], found: Found, random_: random.Random) -> None:
    """A request that a server must refuse, or bear."""
    kind = random_.choice(_KINDS)
    found.rude[kind] += 1
    if kind == "leaves":
        return await one_answer(endpoint, asked, found, leaves=True)
    body = json.dumps({**asked, "stream": False}).encode()
    match kind:
        case "no JSON":
            place = random_.randrange(len(body))
            body = body[:place] + bytes(random_.randrange(256) for _ in range(5))
        case "wrong values":
            name = random_.choice(["prompt", "max_tokens", "temperature", "n", "stop", "stream", "top_p"])
            wrong = random_.choice([[], {}, -1, "x" * 99, [[["x"]]], 1e99, True])
            body = json.dumps({**asked, "stream": False, name: wrong}).encode()
        case _:
            words = "word " * random_.choice([20_000, 2_000_000])
            body = json.dumps({**asked, "stream": False, "prompt": words}).encode()
    response = await endpoint.ask("POST", "/v1/completions", body)
    try:
        content = await response.body()
        if response.status == 200:
            return None  # what was wrong may be right for some value
        said = json.loads(content)["error"]
        if response.status not in (400, 404, 413, 422, 429) or not said["message"]:
            raise Failed(f"a rude request gets {response.status}: {content[:200]!r}")
    finally:
        response.close()


async def client(endpoint: Endpoint, options: argparse.Namespace, number: int, found: Found) -> None:
    """Asks until the time is over."""
    random_ = random.Random(options.seed * 1000 + number)
    end = time.perf_counter() + options.seconds
    while time.perf_counter() < end:
        asked = {
            "model": options.model,
            "prompt": prompt_of(random_, options.words),
            "max_tokens": random_.randint(1, options.tokens),
            "temperature": random_.choice([0.0, 0.8]),
            "seed": random_.randrange(2**32),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        try:
            if random_.random() < options.rude:
                await rude_request(endpoint, asked, found, random_)
            else:
                await one_answer(endpoint, asked, found, leaves=False)
        except (Failed, OSError, asyncio.IncompleteReadError, ValueError) as error:
            found.failed[f"{type(error).__name__}: {error}"[:200]] += 1
            await asyncio.sleep(0.1)


async def memory(endpoint: Endpoint) -> float:
    """The server's memory in MiB, 0 where it does not say."""
    response = await endpoint.ask("GET", "/metrics")
    try:
        lines = (await response.body()).decode().splitlines() if response.status == 200 else []
    finally:
        response.close()
    value = next((line.split()[1] for line in lines if line.startswith("process_resident_memory_bytes ")), "0")
    return float(value) / 2**20


async def watched(endpoint: Endpoint, seconds: float) -> list[float]:
    """The server's memory, ten times."""
    found = []
    for _ in range(10):
        found.append(await memory(endpoint))
        await asyncio.sleep(seconds / 10)
    return [*found, await memory(endpoint)]


async def run(options: argparse.Namespace) -> int:
    endpoint, found = Endpoint(options.url), Found()
    if not options.model:
        response = await endpoint.ask("GET", "/v1/models")
        options.model = json.loads(await response.body())["data"][0]["id"]
        response.close()
    started = time.perf_counter()
    clients = [client(endpoint, options, number, found) for number in range(options.clients)]
    watching = asyncio.create_task(watched(endpoint, options.seconds))
    await asyncio.gather(*clients)
    sizes = await watching
    seconds = time.perf_counter() - started
    print(report(found, sizes, options, seconds))
    return 1 if found.failed or not found.whole else 0


def report(found: Found, sizes: Sequence[float], options: argparse.Namespace, seconds: float) -> str:
    """What was found, as a table."""
    lines = [
        f"{options.clients} clients, {seconds:.0f} s: {len(found.whole)} answers, "
        f"{found.tokens / seconds:.0f} tokens a second, {sum(found.failed.values())} errors",
        "",
        "| seconds | median | 90 % | 99 % | most |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, values in (("to the first piece", found.first), ("between pieces", found.between), ("whole", found.whole)):
        ordered = sorted(values) or [0.0]
        at = [ordered[min(int(part * len(ordered)), len(ordered) - 1)] for part in (0.5, 0.9, 0.99, 1.0)]
        lines.append(f"| {name} | " + " | ".join(f"{value:.3f}" for value in at) + " |")
    if any(sizes):
        lines += ["", "server's memory, MiB: " + " ".join(f"{size:.0f}" for size in sizes)]
    if found.rude:
        lines += ["", "rude requests: " + ", ".join(f"{kind} {count}" for kind, count in sorted(found.rude.items()))]
    lines += ["", *(f"{count} x {words}" for words, count in found.failed.most_common(10))] if found.failed else []
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", help="the server's address, such as http://127.0.0.1:8000")
    parser.add_argument("--model", default="", help="default: the first that it has")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--words", type=int, default=60, help="the most words of a prompt")
    parser.add_argument("--tokens", type=int, default=48, help="the most tokens of an answer")
    parser.add_argument("--rude", type=float, default=0.0, help="the part of requests that are rude")
    parser.add_argument("--seed", type=int, default=0)
    return asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
