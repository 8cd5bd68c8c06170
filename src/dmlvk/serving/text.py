"""Language models as OpenAI's interface has them: completions and conversations, whole or as streams of events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from dmlvk.llm.answers import Job, TokenLogprobs
from dmlvk.llm.model import Model
from dmlvk.llm.scheduler import Request, Update
from dmlvk.llm.service import Service
from dmlvk.llm.tokenizer import Tokenizer
from dmlvk.serving.fields import CHAT, COMPLETION, json_object, read_fields
from dmlvk.serving.frame import GONE, Frame, body_of, while_connected
from dmlvk.serving.limits import Limits
from dmlvk.serving.metrics import Metrics
from dmlvk.serving.refusals import Refusal, refusal_of

_Event = Callable[[Any], Awaitable[None]]
"""Sends an event of a stream: an object, or a word."""
_USUAL_TOKENS: Final = 16
"""The most tokens of a completion that says nothing of them, as OpenAI has it. An answer in a conversation may fill the
cache."""
_SAMPLING: Final = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_LEAST_LOGPROB: Final = -9999.0
"""What OpenAI says of tokens that are next to impossible; JSON has no infinity."""


def text_application(service: Service, name: str, *, limits: Limits | None = None) -> Starlette:
    """A language model behind OpenAI's interface: ``/v1/completions``, ``/v1/chat/completions`` and ``/v1/models``, with
    ``/health``, ``/ready`` and ``/metrics`` beside them.

    Args:
        service: The model, which is closed when the server ends.
        name: What clients call the model.
        limits: What they may ask for.
    """
    return _TextServer(service, name, limits or Limits()).frame.application()


def _error(refusal: Refusal) -> dict[str, Any]:
    """An error as OpenAI's clients read it."""
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    kind = "rate_limit_error" if refusal.status == 429 else kind
    return {"error": {"message": str(refusal), "type": kind, "param": refusal.field or None, "code": refusal.code or None}}


@dataclass(eq=False)
class _Choice:
    """One of a request's answers.

    Attributes:
        job: What is to be done.
        pieces: Its text as far as it has come.
        told: How probable its tokens were, where the request asks for that.
        ended: Why it has ended.
    """

    job: Job
    pieces: list[str] = field(default_factory=list)
    told: list[TokenLogprobs] = field(default_factory=list)
    ended: str = ""


class _Part(NamedTuple):
    """A part of an answer, or a whole one.

    Attributes:
        answer: Its number.
        text: The text.
        ended: Why the answer has ended with it; "" where it goes on.
        told: How probable its tokens were; None where the request does not ask for that.
    """

    answer: int
    text: str
    ended: str
    told: Sequence[TokenLogprobs] | None


class _Answers:
    """The answers of one request, from the model's thread to the server's loop.

    Args:
        service: The model.
        jobs: What is to be done.
        metrics: Where it is counted.
        seconds: How long it may take.
    """

    def __init__(self, service: Service, jobs: Sequence[Job], metrics: Metrics, seconds: float) -> None:
        self.choices = [_Choice(job) for job in jobs]
        self._metrics = metrics
        self._started = time.perf_counter()
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._updates: asyncio.Queue[tuple[int, Update, float]] = asyncio.Queue()
        self._requests = [Request(job, self._taker(index)) for index, job in enumerate(jobs)]
        service.submit(self._requests)

    def _taker(self, index: int) -> Callable[[Update], None]:
        def take(update: Update) -> None:
            with contextlib.suppress(RuntimeError):  # the loop may have ended
                self._loop.call_soon_threadsafe(self._updates.put_nowait, (index, update, time.perf_counter()))

        return take

    def usage(self, prompts: int) -> dict[str, Any]:
        """The tokens of a request with so many prompts, as OpenAI counts them."""
        each = len(self.choices) // prompts
        read = sum(len(choice.job.prompt) for choice in self.choices[::each])
        reused = sum(request.reused for request in self._requests[::each])
        made = sum(choice.job.made for choice in self.choices)
        details = {"cached_tokens": reused}
        return {
            "prompt_tokens": read,
            "completion_tokens": made,
            "total_tokens": read + made,
            "prompt_tokens_details": details,
        }

    async def updates(self) -> AsyncIterator[_Part]:
        """The parts of all answers as they come, until all have ended.

        Raises:
            Exception: what has made the model fail.
            TimeoutError: the time is over.
        """
        last = [0.0] * len(self.choices)
        left = len(self.choices)
        while left:
            # Not wait_for, which in Python 3.11 may lose a cancellation.
            async with asyncio.timeout(max(self._started + self._seconds - time.perf_counter(), 0)):
                index, update, now = await self._updates.get()
            if update.error is not None:
                raise update.error
            self._count(index, update, now - (last[index] or self._started), is_first=last[index] == 0)
            last[index] = now
            text = "".join(map(str, update.pieces))
            choice = self.choices[index]
            choice.pieces.append(text)
            choice.told += update.told
            choice.ended = update.ended
            left -= bool(update.ended)
            if text or update.ended or update.told:
                yield _Part(index, text, update.ended, update.told if choice.job.logprobs is not None else None)

    def close(self) -> None:
        """Ends what nobody waits for any more."""
        for request, choice in zip(self._requests, self.choices, strict=True):
            if not choice.ended:
                request.cancel()

    def _count(self, index: int, update: Update, seconds: float, *, is_first: bool) -> None:
        self._metrics.count("answer_tokens", update.tokens)
        if is_first:
            self._metrics.count("prompt_tokens", len(self._requests[index].job.prompt))
            self._metrics.count("reused_tokens", self._requests[index].reused)
            self._metrics.time("time_to_first_token", seconds)
        elif update.tokens:
            self._metrics.time("time_between_tokens", seconds / update.tokens)


class _Events(Response):
    """A response of server-sent events, which ends where its client leaves.

    Args:
        request: The client.
        write: Writes the events by a function that it is given.
        close: Called at the end, however it comes.
    """

    def __init__(
        self,
        request: HttpRequest,
        write: Callable[[_Event], Coroutine[Any, Any, None]],
        close: Callable[[], None],
    ) -> None:
        super().__init__(media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        del self.headers["content-length"]
        self._request, self._write, self._close = request, write, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def event(value: Any) -> None:
            line = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            await send({"type": "http.response.body", "body": f"data: {line}\n\n".encode(), "more_body": True})

        async def all_of_it() -> None:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._write(event)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        try:
            await while_connected(self._request, all_of_it())
        except (ClientDisconnect, OSError):
            self.status_code = GONE
        finally:
            self._close()


class _TextServer:
    """The endpoints."""

    def __init__(self, service: Service, name: str, limits: Limits) -> None:
        self._service, self._name, self._limits = service, name, limits
        self._created = int(time.time())
        self._metrics = Metrics(
            {
                "requests_waiting": ("Answers that wait for a sequence", lambda: service.load.waiting),
                "requests_running": ("Answers that have one", lambda: service.load.running),
                "sequences": ("Sequences that there are", lambda: service.load.sequences),
                "cache_use": (
                    "Part of the cache that running answers take",
                    lambda: service.load.rows / max(service.load.capacity, 1),
                ),
            },
            {
                "prompt_tokens": "Tokens of prompts",
                "reused_tokens": "Those of them that were in the cache already",
                "answer_tokens": "Tokens of answers",
            },
            {
                "time_to_first_token": "From a request to the first token of an answer",
                "time_between_tokens": "Between two tokens of an answer",
            },
        )
        self.frame = Frame(
            {
                ("GET", "/v1/models"): self.models,
                ("GET", "/v1/models/{name:path}"): self.model,
                ("POST", "/v1/completions"): self.completions,
                ("POST", "/v1/chat/completions"): self.chat,
            },
            limits=limits,
            metrics=self._metrics,
            failure=lambda: service.failure,
            is_ready=lambda: service.is_ready,
            close=service.close,
            body_of=_error,
        )

    async def models(self, request: HttpRequest) -> Response:
        """The models that there are: one."""
        return JSONResponse({"object": "list", "data": [self._described()]})

    async def model(self, request: HttpRequest) -> Response:
        """What is known of a model."""
        self._check_name(request.path_params["name"])
        return JSONResponse(self._described())

    def _described(self) -> dict[str, Any]:
        most = self._service.model.capacity
        return {"id": self._name, "object": "model", "created": self._created, "owned_by": "dmlvk", "max_model_len": most}

    def _check_name(self, name: str) -> None:
        if name != self._name:
            words = f"there is no model {name[:200]!r}: the one of this server is {self._name!r}"
            raise Refusal(404, words, field="model", code="model_not_found")

    async def completions(self, request: HttpRequest) -> Response:
        """Continues prompts."""
        asked = read_fields(json_object(await body_of(request, self._limits)), COMPLETION)
        if "prompt" not in asked:
            raise Refusal(400, "prompt: must be there", field="prompt", code="missing_field")
        asked.setdefault("max_tokens", _USUAL_TOKENS)
        return await self._answer(request, asked, lambda model: asked["prompt"], _Completion)

    async def chat(self, request: HttpRequest) -> Response:
        """Answers a conversation."""
        asked = read_fields(json_object(await body_of(request, self._limits)), CHAT)
        if "messages" not in asked:
            raise Refusal(400, "messages: must be there", field="messages", code="missing_field")
        if "top_logprobs" in asked and not asked.get("logprobs"):
            raise Refusal(400, "top_logprobs: needs logprobs to be true", field="top_logprobs", code="invalid_value")
        asked["logprobs"] = asked.get("top_logprobs", 0) if asked.get("logprobs") else None
        asked["max_tokens"] = asked.get("max_completion_tokens", asked.get("max_tokens", self._service.model.capacity))
        return await self._answer(request, asked, lambda model: [_conversation(model, asked["messages"])], _Chat)

    async def _answer(
        self, request: HttpRequest, asked: Mapping[str, Any], prompts: Callable[[Model], Sequence[Any]], kind: type[_Form]
    ) -> Response:
        if "model" in asked:
            self._check_name(asked["model"])
        model = self._service.model
        form = kind(self._name, model.tokenizer)
        jobs, count = await asyncio.to_thread(self._jobs, model, asked, prompts)
        answers = _Answers(self._service, jobs, self._metrics, self._limits.seconds)
        if asked.get("stream"):
            counted = count if asked.get("stream_options") else 0
            return _Events(request, lambda event: self._streamed(event, answers, form, counted), answers.close)
        try:
            return JSONResponse(await while_connected(request, self._whole(answers, form, count)))
        finally:
            answers.close()

    def _jobs(
        self, model: Model, asked: Mapping[str, Any], prompts: Callable[[Model], Sequence[Any]]
    ) -> tuple[list[Job], int]:
        """What is to be done, and for how many prompts. Texts are cut to tokens here, which takes its time."""
        found, copies = prompts(model), asked.get("n", 1)
        if len(found) * copies > self._limits.answers:
            rule = f"n times the prompts must be at most {self._limits.answers}"
            raise Refusal(400, rule, field="n", code="invalid_value")
        options = {name: asked[name] for name in _SAMPLING if name in asked}
        options.setdefault("temperature", 1.0)
        options["top_k"] = max(asked.get("top_k", 0), 0)
        options["logprobs"] = asked.get("logprobs")
        options["ignore_ends"] = asked.get("ignore_eos", False)
        seed = asked.get("seed", secrets.randbits(63))
        jobs = []
        for prompt in found:
            tokens = model.tokenizer.encode_at_most(prompt, model.capacity) if isinstance(prompt, str) else prompt
            if len(tokens) > model.capacity:
                count = str(len(tokens)) if len(tokens) <= 2 * model.capacity else f"more than {2 * model.capacity}"
                rule = f"prompt: must have at most {model.capacity} tokens, the model's context; got {count}"
                raise Refusal(400, rule, field="prompt", code="context_length_exceeded")
            for copy in range(copies):
                options["seed"] = (seed + copy) % 2**64
                jobs.append(model.job(tokens, asked["max_tokens"], stop=asked.get("stop", ()), as_text=True, **options))
        return jobs, len(found)

    async def _whole(self, answers: _Answers, form: _Form, prompts: int) -> dict[str, Any]:
        async for _ in answers.updates():
            pass
        choices = []
        for index, choice in enumerate(answers.choices):
            told = choice.told if choice.job.logprobs is not None else None
            choices.append(form.whole(_Part(index, "".join(choice.pieces), choice.ended, told)))
        return form.object(choices, usage=answers.usage(prompts))

    async def _streamed(self, event: _Event, answers: _Answers, form: _Form, counted_prompts: int) -> None:
        try:
            for index in range(len(answers.choices)):
                if (first := form.first(index)) is not None:
                    await event(form.part([first]))
            async for part in answers.updates():
                for piece in form.pieces(part):
                    await event(form.part([piece]))
            if counted_prompts:
                await event(form.part([], usage=answers.usage(counted_prompts)))
        except OSError:
            raise
        except Exception as error:
            await event(_error(refusal_of(error)))
        await event("[DONE]")


def _conversation(model: Model, messages: Sequence[Mapping[str, str]]) -> str:
    try:
        return model.prompt(messages)
    except Exception as error:
        refusal = refusal_of(error)
        raise Refusal(422, str(refusal), field="messages", code="unprocessable") from error


class _Form:
    """How answers are written.

    Args:
        model: The model's name.
        tokenizer: Its tokenizer.
    """

    prefix = kind = part_kind = ""

    def __init__(self, model: str, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._shared = {"id": f"{self.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def object(self, choices: Sequence[Any], **more: Any) -> dict[str, Any]:
        """A whole response."""
        return {**self._shared, "object": self.kind, "choices": choices, **more}

    def part(self, choices: Sequence[Any], **more: Any) -> dict[str, Any]:
        """An event of a stream."""
        return {**self._shared, "object": self.part_kind, "choices": choices, **more}

    def whole(self, part: _Part) -> dict[str, Any]:
        """A whole answer."""
        raise NotImplementedError

    def first(self, index: int) -> dict[str, Any] | None:
        """What comes before an answer in a stream."""
        raise NotImplementedError

    def pieces(self, part: _Part) -> list[dict[str, Any]]:
        """A part of an answer in a stream."""
        raise NotImplementedError

    def _text(self, token: int) -> str:
        """A token's text; U+FFFD where it is a part of a character."""
        return self._tokenizer.piece(token).decode(errors="replace")


class _Completion(_Form):
    """A text that continues another."""

    prefix, kind, part_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, model: str, tokenizer: Tokenizer) -> None:
        super().__init__(model, tokenizer)
        self._offsets: dict[int, int] = {}

    def whole(self, part: _Part) -> dict[str, Any]:
        logprobs = None if part.told is None else self._logprobs(part.answer, part.told)
        return {"index": part.answer, "text": part.text, "logprobs": logprobs, "finish_reason": part.ended or None}

    def first(self, index: int) -> None:
        return None

    def pieces(self, part: _Part) -> list[dict[str, Any]]:
        return [self.whole(part)]

    def _logprobs(self, index: int, told: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """Tokens with how probable they were, and where each begins in the answer."""
        texts = [self._text(item.token) for item in told]
        offsets = [self._offsets.get(index, 0)]
        for text in texts:
            offsets.append(offsets[-1] + len(text))
        self._offsets[index] = offsets.pop()
        return {
            "tokens": texts,
            "token_logprobs": [_finite(item.logprob) for item in told],
            "top_logprobs": [{self._text(token): _finite(value) for token, value in item.top} for item in told],
            "text_offset": offsets,
        }


class _Chat(_Form):
    """An answer in a conversation."""

    prefix, kind, part_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def whole(self, part: _Part) -> dict[str, Any]:
        message = {"role": "assistant", "content": part.text}
        return {"index": part.answer, "message": message, "logprobs": self._logprobs(part), "finish_reason": part.ended}

    def first(self, index: int) -> dict[str, Any]:
        return self._delta(_Part(index, "", "", None), {"role": "assistant", "content": ""})

    def pieces(self, part: _Part) -> list[dict[str, Any]]:
        found = [self._delta(part, {"content": part.text})] if part.text or part.told else []
        return [*found, self._delta(part._replace(told=None), {}, part.ended)] if part.ended else found

    def _delta(self, part: _Part, delta: Mapping[str, str], ended: str = "") -> dict[str, Any]:
        logprobs = self._logprobs(part)
        return {"index": part.answer, "delta": delta, "logprobs": logprobs, "finish_reason": ended or None}

    def _logprobs(self, part: _Part) -> dict[str, Any] | None:
        if part.told is None:
            return None
        content = [
            {**self._told(item.token, item.logprob), "top_logprobs": [self._told(*best) for best in item.top]}
            for item in part.told
        ]
        return {"content": content, "refusal": None}

    def _told(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": self._text(token), "logprob": _finite(logprob), "bytes": list(self._tokenizer.piece(token))}


def _finite(logprob: float) -> float:
    return logprob if logprob > _LEAST_LOGPROB else _LEAST_LOGPROB
