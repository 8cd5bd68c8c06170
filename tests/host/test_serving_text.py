"""A language model behind OpenAI's interface, without a socket and without a device."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asgi_client import LONG, Answer, Client
from counting_model import CountingDecoder, byte_tokenizer
from counting_model import model as counting
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlvk
from dmlvk.llm.model import Model
from dmlvk.llm.service import Service
from dmlvk.serving.limits import Limits
from dmlvk.serving.text import text_application

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
LIMITS = Limits(body_bytes=4000)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    service = Service(lambda: counting("abcdefgh", sequences=3)[0], most_waiting=8)
    with Client(text_application(service, "letters", limits=LIMITS)) as own:
        yield own
    service.close()


def error_of(answer: Answer) -> tuple[int, str, str]:
    found = answer.json["error"]
    assert found.keys() == {"message", "type", "param", "code"} and found["message"]
    return answer.status, found["param"], found["code"]


def test_a_completion(client: Client) -> None:
    answer = client.post(COMPLETIONS, {"model": "letters", "prompt": "xy", "max_tokens": 4, "user": "somebody"})
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    found = answer.json
    assert found.pop("id").startswith("cmpl-") and found.pop("created") > 0
    assert found == {
        "object": "text_completion",
        "model": "letters",
        "choices": [{"index": 0, "text": "cdef", "logprobs": None, "finish_reason": "length"}],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 4,
            "total_tokens": 6,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_prompts_and_choices_in_order(client: Client) -> None:
    found = client.post(COMPLETIONS, {"prompt": ["xyz", "x"], "n": 2, "max_tokens": 2, "seed": -1}).json
    assert [(item["index"], item["text"]) for item in found["choices"]] == [(0, "de"), (1, "de"), (2, "bc"), (3, "bc")]
    assert found["usage"]["prompt_tokens"] == 4 and found["usage"]["completion_tokens"] == 8
    tokens = client.post(COMPLETIONS, {"prompt": [[120, 121], [120]], "max_tokens": 3, "stop": "d"}).json["choices"]
    assert [(item["text"], item["finish_reason"]) for item in tokens] == [("c", "stop"), ("bc", "stop")]
    assert len(client.post(COMPLETIONS, {"prompt": [120]}).json["choices"][0]["text"]) == 16


def test_a_conversation(client: Client) -> None:
    parts = [{"type": "text", "text": "y"}, {"type": "text", "text": "z"}]
    messages = [{"role": "developer", "content": "x"}, {"role": "user", "content": parts}]
    found = client.post(CHAT, {"messages": messages, "max_completion_tokens": 3, "max_tokens": 9, "stop": None}).json
    assert found["object"] == "chat.completion" and found["id"].startswith("chatcmpl-")
    (choice,) = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": "def"} and choice["finish_reason"] == "length"
    endless = client.post(CHAT, {"messages": messages}).json
    assert endless["usage"]["total_tokens"] == 65, "as far as the cache reaches, which the last token is not in"


def test_streams(client: Client) -> None:
    asked = {"prompt": "xy", "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
    answer = client.post(COMPLETIONS, asked)
    assert answer.headers["content-type"].startswith("text/event-stream") and "content-length" not in answer.headers
    *parts, usage, done = answer.events
    assert done == "[DONE]" and usage["choices"] == [] and usage["usage"]["total_tokens"] == 5
    assert "".join(part["choices"][0]["text"] for part in parts) == "cde"
    assert [part["choices"][0]["finish_reason"] for part in parts][-1] == "length"
    asked = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "stream": True, "n": 2}
    *parts, done = client.post(CHAT, asked).events
    assert done == "[DONE]" and len({part["id"] for part in parts}) == 1
    for index in range(2):
        own = [part["choices"][0] for part in parts if part["choices"][0]["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(item["delta"].get("content", "") for item in own) == "bcd"
        assert [item["finish_reason"] for item in own] == [None] * (len(own) - 1) + ["length"]


def test_how_probable_tokens_were(client: Client) -> None:
    asked = {"prompt": "xy", "max_tokens": 2, "logprobs": 3}
    expected = {
        "tokens": ["c", "d"],
        "token_logprobs": pytest.approx([math.log(0.5)] * 2),
        "top_logprobs": [
            pytest.approx({"c": math.log(0.5), "d": math.log(0.25), "\x07": -9999.0}),
            pytest.approx({"d": math.log(0.5), "e": math.log(0.25), "\x07": -9999.0}),
        ],
        "text_offset": [0, 1],
    }
    assert client.post(COMPLETIONS, asked).json["choices"][0]["logprobs"] == expected
    *parts, _ = client.post(COMPLETIONS, {**asked, "stream": True}).events
    told = [part["choices"][0]["logprobs"] for part in parts]
    assert [item for own in told for item in own["tokens"]] == ["c", "d"]
    assert [item for own in told for item in own["text_offset"]] == [0, 1]
    asked = {"messages": [{"role": "user", "content": "xy"}], "max_tokens": 2, "logprobs": True}
    first, _ = client.post(CHAT, asked).json["choices"][0]["logprobs"]["content"]
    assert first == {"token": "c", "logprob": pytest.approx(math.log(0.5)), "bytes": [99], "top_logprobs": []}
    *parts, _ = client.post(CHAT, {**asked, "top_logprobs": 1, "stream": True}).events
    told = [item for part in parts if (own := part["choices"][0]["logprobs"]) for item in own["content"]]
    assert [item["token"] for item in told] == ["c", "d"]
    assert [item["top_logprobs"][0]["bytes"] for item in told] == [[99], [100]]
    answer = client.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "top_logprobs": 1})
    assert error_of(answer) == (400, "top_logprobs", "invalid_value")


def test_models_and_health(client: Client) -> None:
    (model,) = client.get("/v1/models").json["data"]
    assert model["id"] == "letters" and model["max_model_len"] == 64
    assert client.get("/v1/models/letters").json == model
    assert error_of(client.get("/v1/models/a/b")) == (404, "model", "model_not_found")
    assert (client.get("/health").status, client.get("/ready").status) == (200, 200)
    assert error_of(client.get("/v1/other"))[::2] == (404, "not_found")
    assert error_of(client.get(COMPLETIONS))[::2] == (405, "method_not_allowed")


def test_metrics(client: Client) -> None:
    def value(name: str) -> float:
        lines = client.get("/metrics").body.decode().splitlines()
        return float(next((line.split()[-1] for line in lines if line.startswith(f"{name} ")), 0))

    before = value("dmlvk_answer_tokens_total")
    client.post(COMPLETIONS, {"prompt": "x", "max_tokens": 5})
    assert value("dmlvk_answer_tokens_total") == before + 5
    assert value("dmlvk_requests_waiting") == value("dmlvk_requests_running") == value("dmlvk_cache_use") == 0
    assert value("dmlvk_sequences") == 3 and value("dmlvk_time_to_first_token_seconds_count") >= 1
    assert value('dmlvk_requests_total{route="/v1/completions",status="200"}') >= 1


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"prompt": 1}, "prompt", "invalid_value"),
    ({"prompt": []}, "prompt", "invalid_value"),
    ({"prompt": ["a", [1]]}, "prompt", "invalid_value"),
    ({"prompt": ""}, "prompt", "invalid_value"),
    ({"prompt": [258]}, "prompt", "invalid_value"),
    ({"prompt": "\ud800"}, "prompt", "invalid_value"),
    ({"prompt": "x" * 65}, "prompt", "context_length_exceeded"),
    ({}, "prompt", "missing_field"),
    ({"prompt": "x", "max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"prompt": "x", "max_tokens": True}, "max_tokens", "invalid_value"),
    ({"prompt": "x", "temperature": "hot"}, "temperature", "invalid_value"),
    ({"prompt": "x", "temperature": -1}, "temperature", "invalid_value"),
    ({"prompt": "x", "top_p": 2}, "top_p", "invalid_value"),
    ({"prompt": "x", "n": 17}, "n", "invalid_value"),
    ({"prompt": "x", "n": 2**40}, "n", "invalid_value"),
    ({"prompt": "x", "stop": [""]}, "stop", "invalid_value"),
    ({"prompt": "x", "stop": ["a"] * 17}, "stop", "invalid_value"),
    ({"prompt": "x", "stream": 1}, "stream", "invalid_value"),
    ({"prompt": "x", "logprobs": 6}, "logprobs", "invalid_value"),
    ({"prompt": "x", "logprobs": True}, "logprobs", "invalid_value"),
    ({"prompt": "x", "top_logprobs": 1}, "top_logprobs", "unsupported_parameter"),
    ({"prompt": "x", "frequency_penalty": 2.1}, "frequency_penalty", "invalid_value"),
    ({"prompt": "x", "presence_penalty": "much"}, "presence_penalty", "invalid_value"),
    ({"prompt": "x", "echo": True}, "echo", "unsupported_parameter"),
    ({"prompt": "x", "warmth": 1}, "warmth", "unsupported_parameter"),
    ({"prompt": "x", "stream_options": []}, "stream_options", "invalid_value"),
]


@pytest.mark.parametrize(("body", "param", "code"), WRONG)
def test_what_is_refused(client: Client, body: dict[str, Any], param: str, code: str) -> None:
    assert error_of(client.post(COMPLETIONS, body)) == (400, param, code)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ("x", "messages"),
        ([], "messages"),
        (["x"], "messages[0]"),
        ([{"role": "cook", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
    ],
)
def test_messages_that_are_refused(client: Client, messages: Any, param: str) -> None:
    assert error_of(client.post(CHAT, {"messages": messages})) == (400, param, "invalid_value")


def test_neutral_values_of_what_is_not_supported(client: Client) -> None:
    neutral = {"logprobs": False, "presence_penalty": 0, "frequency_penalty": -1.5, "tools": [], "logit_bias": {}}
    messages = [{"role": "user", "content": "x"}]
    more = {"top_k": -1, "min_p": 0.0, "response_format": {"type": "text"}, "tool_choice": "none", "store": False}
    assert client.post(CHAT, {"messages": messages, "max_tokens": 1, **neutral, **more}).status == 200


def test_bodies_that_are_refused(client: Client) -> None:
    for body in (b"", b"{", b"[]", b"\xff", b'{"prompt": NaN}', b"[" * 3000, b'{"n": ' + b"1" * 3900 + b"}"):
        status, _, code = error_of(client.post(COMPLETIONS, body))
        assert (status, code) in ((400, "invalid_json"), (400, "invalid_value"))
    assert error_of(client.post(COMPLETIONS, b"x" * 4001)) == (413, None, "body_too_large")
    assert error_of(client.post(COMPLETIONS, b"x" * 100_000)) == (413, None, "body_too_large")
    long = client.post(COMPLETIONS, b"", headers={"Content-Length": "99999999999999999999999"})
    assert error_of(long) == (413, None, "body_too_large")
    assert error_of(client.post(COMPLETIONS, {"model": "other", "prompt": "x"})) == (404, "model", "model_not_found")


def test_a_template_that_refuses_a_conversation() -> None:
    service = Service(lambda: Model(CountingDecoder("a"), byte_tokenizer()))  # type: ignore[arg-type]
    with Client(text_application(service, "letters")) as client:
        answer = client.post(CHAT, {"messages": [{"role": "user", "content": "x"}]})
    assert error_of(answer) == (422, "messages", "unprocessable")
    service.close()


class HeldDecoder(CountingDecoder):
    """Steps wait until they may; each tells that it has begun."""

    def __init__(self) -> None:
        super().__init__(byte_tokenizer().encode("abcdefgh"))
        self.may_step, self.failure = threading.Semaphore(0), None
        self.begun = threading.Semaphore(0)

    failure: Exception | None

    def step(self, sampling: Any, tokens: Any = None) -> Any:
        self.begun.release()
        assert self.may_step.acquire(timeout=LONG)
        if self.failure is not None:
            raise self.failure
        return super().step(sampling, tokens)

    def go(self) -> None:
        """No step waits from now on."""
        for _ in range(10_000):
            self.may_step.release()


@pytest.fixture
def held() -> Iterator[tuple[Client, HeldDecoder, Service]]:
    decoder = HeldDecoder()
    models = iter([Model(decoder, byte_tokenizer()), counting("12345678")[0]])  # type: ignore[arg-type]
    service = Service(lambda: next(models), most_waiting=1)
    with Client(text_application(service, "letters", limits=Limits(seconds=LONG))) as own:
        yield own, decoder, service
    decoder.go()
    service.close()


def test_a_queue_that_is_full(held: tuple[Client, HeldDecoder, Service]) -> None:
    client, decoder, service = held

    async def several() -> tuple[Answer, Answer, Answer]:
        def ask() -> asyncio.Task[Answer]:
            return asyncio.create_task(client.ask("POST", COMPLETIONS, b'{"prompt": "x", "max_tokens": 2}'))

        first = ask()
        await asyncio.to_thread(decoder.begun.acquire, timeout=LONG)
        second = ask()
        while service.load.waiting < 1 and not second.done():
            await asyncio.sleep(0)
        third = await ask()
        decoder.go()
        return await first, await second, third

    first, second, third = client.run(several())
    assert (first.status, second.status) == (200, 200)
    assert error_of(third) == (429, None, "queue_full") and third.headers["retry-after"] == "1"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("leaves_after", [0, 1, 2])
def test_a_client_that_leaves_frees_its_sequence(
    held: tuple[Client, HeldDecoder, Service], stream: bool, leaves_after: int
) -> None:
    client, decoder, _ = held
    if leaves_after and not stream:
        leaves_after = 0  # it gets nothing before the end
    decoder.may_step.release()
    decoder.may_step.release()
    body = {"prompt": "x", "max_tokens": 60, "stream": stream}
    answer = client.post(COMPLETIONS, body, leaves_after=leaves_after)
    assert len(answer.body) < 2000
    decoder.go()
    follower = client.post(COMPLETIONS, {"prompt": "xy", "max_tokens": 2})
    assert follower.json["choices"][0]["text"] == "cd"
    assert decoder.lengths == [1], "all are gone, and only what was read stays"


@pytest.mark.parametrize("stream", [False, True])
def test_a_device_that_fails_is_one_error_and_the_next_request_works(
    held: tuple[Client, HeldDecoder, Service], stream: bool
) -> None:
    client, decoder, _ = held
    decoder.failure = dmlvk.OutOfDeviceMemoryError("no memory")
    decoder.may_step.release()
    answer = client.post(COMPLETIONS, {"prompt": "x", "stream": stream})
    found = answer.events[-2] if stream else answer.json
    assert found["error"]["code"] == "device_failed" and answer.status == (200 if stream else 503)
    decoder.failure = None
    decoder.go()
    assert client.post(COMPLETIONS, {"prompt": "x", "max_tokens": 2}).json["choices"][0]["text"] == "bc"


def test_after_a_lost_device_the_server_goes_on_with_a_new_model(held: tuple[Client, HeldDecoder, Service]) -> None:
    client, decoder, service = held
    decoder.failure = dmlvk.DeviceLostError("lost")
    decoder.go()
    assert error_of(client.post(COMPLETIONS, {"prompt": "x"})) == (503, None, "device_failed")
    with service._changed:
        assert service._changed.wait_for(lambda: service.is_ready, LONG)
    assert client.post(COMPLETIONS, {"prompt": "x", "max_tokens": 2}).json["choices"][0]["text"] == "23"


def test_a_time_that_is_over() -> None:
    decoder = HeldDecoder()
    service = Service(lambda: Model(decoder, byte_tokenizer()))  # type: ignore[arg-type]
    with Client(text_application(service, "letters", limits=Limits(seconds=1e-9))) as client:
        assert error_of(client.post(COMPLETIONS, {"prompt": "x"})) == (504, None, "timeout")
    decoder.go()
    service.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["prompt", "messages", "n", "stop", "stream", "max_tokens", "seed", "temperature", "top_p", "stream_options", "model"]
)


@settings(deadline=None, max_examples=60)
@given(
    path=st.sampled_from([COMPLETIONS, CHAT]),
    fields=st.dictionaries(NAMES | st.text(max_size=6), JSON, max_size=5),
    valid=st.booleans(),
    cut=st.integers(0, 400),
    part=st.integers(1, 60),
    leaves=st.sampled_from([None, None, 0, 1, 2, 3]),
)
def test_no_request_brings_it_down(
    client: Client, path: str, fields: dict[str, Any], valid: bool, cut: int, part: int, leaves: int | None
) -> None:
    """Whatever comes, cut anywhere: an answer or an error in the form that clients expect, and then it works as before."""
    base = {"prompt": "x", "max_tokens": 3} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "x"}]}
    body = json.dumps({**base, **fields} if valid else fields).encode()
    if not valid:
        body = body[:cut]
    answer = client.run(client.ask("POST", path, body, part=part, leaves_after=leaves))
    if answer.status not in (0, 200, 499):
        assert error_of(answer)[0] in (400, 404, 413, 422, 429)
    again = client.post(COMPLETIONS, {"prompt": "xy", "max_tokens": 2})
    assert again.json["choices"][0]["text"] == "cd"
