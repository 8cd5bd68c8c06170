"""``python -m dmlvk chat``."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dmlvk.cli.command import Command, option
from dmlvk.cli.output import INTERRUPTED, Output
from dmlvk.cli.parameters import device_option, json_option

if TYPE_CHECKING:
    from dmlvk.llm import Model


@click.command(
    "chat",
    cls=Command,
    examples=(
        "model.gguf",
        'model.gguf --prompt "Why is the sky blue?" --temperature 0',
        'model.gguf --system "Answer in one sentence."',
    ),
)
@click.argument("model", type=click.Path(path_type=pathlib.Path))
@option("--prompt", metavar="TEXT", help="Answer this message and end.")
@option("--system", metavar="TEXT", help="What the model is told before all messages.")
@option("--max-tokens", type=click.IntRange(min=1), default=1024, help="The most tokens of an answer; default: 1024.")
@option(
    "--capacity", type=click.IntRange(min=1), help="Tokens of the whole conversation; default: the model's, at most 4096."
)
@option("--temperature", type=float, default=0.8, help="0: always the most probable token; default: 0.8.")
@option("--top-k", type=int, default=40, help="Only so many of the most probable tokens, 0 for all; default: 40.")
@option("--top-p", type=float, default=0.95, help="Only the most probable that have this part of it; default: 0.95.")
@option("--min-p", type=float, default=0.05, help="Only those as probable as the best times this; default: 0.05.")
@option("--repetition-penalty", type=float, default=1.0, help="What tokens that were there are held back by; default: 1.")
@option("--seed", type=int, default=0, help="The same seed gives the same text; default: 0.")
@device_option
@json_option
def command(
    model: pathlib.Path,
    prompt: str | None,
    system: str | None,
    max_tokens: int,
    capacity: int | None,
    device: str | None,
    out: Output,
    **options: Any,
) -> int:
    """Talk with a language model of a GGUF file, or of a folder of onnxruntime-genai.

    Ctrl-C ends an answer, and between answers the program, as Ctrl-D does.
    """
    from dmlvk.directml.device import Device
    from dmlvk.llm import load
    from dmlvk.llm.sampling import Sampling

    if prompt is None and not out.has_text:
        raise click.UsageError("--json without a file needs --prompt")
    Sampling(**options)  # a mistake is told before the model is read
    opened = None if device is None else Device(device)
    talk = _Talk(load(model, opened, capacity=capacity), system, max_tokens, options, out)
    if prompt is not None:
        return talk.answer(prompt)
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  lines can be edited, and come back
    while True:
        try:
            line = input("> ")
        except EOFError:
            out.say("")
            return 0
        if line.strip():
            talk.answer(line)


class _Talk:
    """A conversation."""

    def __init__(self, model: Model, system: str | None, max_tokens: int, options: dict[str, Any], out: Output) -> None:
        self._model, self._max_tokens, self._options, self._out = model, max_tokens, options, out
        self._messages = [] if system is None else [{"role": "system", "content": system}]

    def answer(self, message: str) -> int:
        """Prints an answer as it comes, and how long it took; returns the command's status."""
        self._messages.append({"role": "user", "content": message})
        pieces: list[str] = []
        status = 0
        try:
            for piece in self._pieces():
                pieces.append(piece)
                if self._out.has_text:
                    sys.stdout.write(piece)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            status = INTERRUPTED
        usage, answer = self._model.usage, "".join(pieces)
        self._messages.append({"role": "assistant", "content": answer})
        computed = usage.prompt_tokens - usage.reused_tokens
        self._out.say(
            "",
            f"[prompt: {usage.prompt_tokens} tokens, {computed} of them new, {usage.prompt_speed:.1f} a second; "
            f"answer: {usage.new_tokens} tokens, {usage.speed:.1f} a second]",
        )
        self._out.write(
            {
                "answer": answer,
                "prompt_tokens": usage.prompt_tokens,
                "reused_tokens": usage.reused_tokens,
                "prompt_tokens_per_second": usage.prompt_speed,
                "new_tokens": usage.new_tokens,
                "tokens_per_second": usage.speed,
            }
        )
        return status

    def _pieces(self) -> Iterator[str]:
        return self._model.chat(self._messages, self._max_tokens, **self._options)
