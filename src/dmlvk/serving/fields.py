"""The fields of OpenAI's requests: which there are, what they may be, and which are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from dmlvk.serving.refusals import Refusal

Reader = Callable[[str, Any], Any]
"""What makes a value of a field's name and what a client has sent for it, or raises Refusal."""

MOST_STOPS: Final = 16
_ROLES: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def json_object(body: bytes) -> dict[str, Any]:
    """The object that a body is.

    Raises:
        Refusal: it is none.
    """
    try:
        found = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body must be JSON: {error}", code="invalid_json") from error
    if not isinstance(found, dict):
        raise Refusal(400, "the body must be a JSON object", code="invalid_json")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _wrong(name: str, rule: str) -> Refusal:
    return Refusal(400, f"{name}: {rule}", field=name, code="invalid_value")


def text(name: str, value: Any) -> str:
    """A string that can be written as UTF-8."""
    if not isinstance(value, str):
        raise _wrong(name, "must be a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _wrong(name, "must not have halves of surrogates") from error
    return value


def flag(name: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise _wrong(name, "must be true or false")
    return value


def whole(least: int, most: int) -> Reader:
    """A whole number."""

    def read(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _wrong(name, f"must be a whole number from {least} to {most}")
        return value

    return read


def number(least: float, most: float) -> Reader:
    """A number."""

    def read(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise _wrong(name, f"must be a number from {least:g} to {most:g}")
        return float(value)

    return read


def stops(name: str, value: Any) -> tuple[str, ...]:
    """A string, or some."""
    found = tuple(text(name, item) for item in (value if isinstance(value, list) else [value]))
    if len(found) > MOST_STOPS or "" in found:
        raise _wrong(name, f"must be at most {MOST_STOPS} strings that are not empty")
    return found


def prompts(name: str, value: Any) -> list[str | list[int]]:
    """A text or the tokens of one, or several of either."""
    if isinstance(value, str):
        return [text(name, value)]
    if isinstance(value, list) and value:
        if all(_is_token(item) for item in value):
            return [value]
        if all(isinstance(item, str) for item in value):
            return [text(name, item) for item in value]
        if all(isinstance(item, list) and item and all(map(_is_token, item)) for item in value):
            return value
    raise _wrong(name, "must be a string, a list of strings, a list of tokens, or a list of lists of tokens")


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def messages(name: str, value: Any) -> list[dict[str, str]]:
    """A conversation: roles and texts."""
    if not isinstance(value, list) or not value:
        raise _wrong(name, "must be a list of messages, with at least one")
    return [_message(f"{name}[{index}]", item) for index, item in enumerate(value)]


def _message(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _wrong(name, "must be an object with a role and content")
    role = value.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise _wrong(f"{name}.role", f"must be one of {', '.join(_ROLES)}")
    content = value.get("content")
    if isinstance(content, list):
        return {"role": _ROLES[role], "content": "".join(_part(f"{name}.content[{at}]", x) for at, x in enumerate(content))}
    return {"role": _ROLES[role], "content": text(f"{name}.content", content)}


def _part(name: str, value: Any) -> str:
    if not isinstance(value, dict) or value.get("type") != "text":
        raise _wrong(name, "must be a part of the type text: others are not supported")
    return text(f"{name}.text", value.get("text"))


def stream_options(name: str, value: Any) -> bool:
    """Whether the tokens are counted at the end of a stream."""
    if not isinstance(value, dict):
        raise _wrong(name, "must be an object")
    return flag(f"{name}.include_usage", value.get("include_usage", False))


_COMMON: Final[dict[str, Reader]] = {
    "model": text,
    "stream": flag,
    "stream_options": stream_options,
    "n": whole(1, 2**31),
    "max_tokens": whole(1, 2**31),
    "stop": stops,
    "seed": whole(-(2**63), 2**64 - 1),
    "temperature": number(0, 1e6),
    "top_p": number(0, 1),
    "top_k": whole(-1, 2**32 - 1),
    "min_p": number(0, 1),
    "repetition_penalty": number(1e-6, 1e6),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "ignore_eos": flag,
}
COMPLETION: Final[dict[str, Reader]] = {"prompt": prompts, "logprobs": whole(0, 5), **_COMMON}
"""The fields of a request for a completion. ``top_k``, ``min_p``, ``repetition_penalty`` and ``ignore_eos`` are not
OpenAI's, but those of many servers."""
CHAT: Final[dict[str, Reader]] = {
    "messages": messages,
    "max_completion_tokens": whole(1, 2**31),
    "logprobs": flag,
    "top_logprobs": whole(0, 20),
    **_COMMON,
}
"""The fields of a request for an answer in a conversation."""
_WITHOUT_EFFECT: Final = frozenset(
    ("metadata", "parallel_tool_calls", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user")
)
"""Fields that say nothing of the answer."""
_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
}
"""Fields of what is not supported, with the values that do not ask for it."""


def read_fields(given: Mapping[str, Any], known: Mapping[str, Reader]) -> dict[str, Any]:
    """What a request asks for, without what it leaves open. A field that is null is as one that is not there.

    Raises:
        Refusal: a field that is not known or not supported, or a value that it may not have.
    """
    found = {}
    for name, value in given.items():
        if value is None or name in _WITHOUT_EFFECT:
            continue
        if (read := known.get(name)) is not None:
            found[name] = read(name, value)
        elif not any(type(value) is type(neutral) and value == neutral for neutral in _NEUTRAL.get(name, ())):
            why = "is not supported by this server" if name in _NEUTRAL else "is not a field of this request"
            raise Refusal(400, f"{name[:60]!r} {why}", field=name[:60], code="unsupported_parameter")
    return found
