"""Conversations as text, by the templates that models come with: the one place of this room that imports jinja2."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from dmlvk.spec.errors import InvalidArgumentError, MissingPackageError, ModelError

try:
    from jinja2 import TemplateError, TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError as error:
    raise MissingPackageError("chat templates need the package jinja2: pip install dmlvk[llm]") from error

Message = Mapping[str, Any]
"""A message of a conversation: its "role", such as "user", and its "content"."""


class _Refused(Exception):
    """A template refuses a conversation."""


class ChatTemplate:
    """A model's template, which cannot reach anything but what it is given.

    Args:
        source: Its text, in jinja2's language as Hugging Face's transformers take it.
        special: The texts of tokens, by the names that templates know, such as "bos_token".

    Raises:
        ModelError: it is no template.
    """

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _as_json
        environment.globals.update(raise_exception=_refuse, strftime_now=_now)
        self._special = dict(special)
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise ModelError(f"the model's chat template is broken: {error}") from error

    def text(self, messages: Sequence[Message], *, answers: bool = True, **variables: Any) -> str:
        """A conversation as the model reads it.

        Args:
            messages: Its messages, in order.
            answers: Whether the beginning of an answer follows.
            variables: What else the template may ask for, such as ``tools``.

        Raises:
            InvalidArgumentError: messages that the template refuses.
        """
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise InvalidArgumentError("must be a dict with a role and content", field="messages", value=message)
        given = {**self._special, **variables, "messages": list(messages), "add_generation_prompt": answers}
        try:
            return self._template.render(given)
        except (_Refused, TemplateError, TypeError) as error:
            raise InvalidArgumentError(f"must suit the model's chat template: {error}", field="messages") from error


def _refuse(message: str) -> NoReturn:
    raise _Refused(message)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _as_json(value: Any, indent: int | None = None) -> str:
    """As transformers write it: letters beyond ASCII and HTML's signs as they are."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
