"""Language models: a decoder with a tokenizer, which continue texts and answer messages."""

from __future__ import annotations

import json
import operator
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, overload

import numpy as np
import numpy.typing as npt

from dmlvk.directml.device import Device
from dmlvk.engine.default_device import check_device, default_device
from dmlvk.llm.answers import Job, Piece, StoppedText
from dmlvk.llm.chat_template import ChatTemplate, Message
from dmlvk.llm.decoder import Decoder
from dmlvk.llm.gguf_file import load_gguf
from dmlvk.llm.network import MOST_LOGPROBS
from dmlvk.llm.sampling import Sampling
from dmlvk.llm.scheduler import Request, Scheduler, Update
from dmlvk.llm.tokenizer import TextStream, Tokenizer
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, NoSuchFileError, StateError, UnsupportedError

if TYPE_CHECKING:
    from dmlvk.llm.onnx_decoder import OnnxDecoder

Prompt = str | Sequence[int]
_USUAL_CAPACITY: Final = 4096


def load(
    path: str | os.PathLike[str],
    device: ComputeDevice | None = None,
    *,
    capacity: int | None = None,
    sequences: int = 1,
    data_type: TensorDataType | None = None,
) -> Model:
    """A language model of a file, on a device.

    Args:
        path: A GGUF file, or the first part of one in several; or a folder as onnxruntime-genai's model builder writes it.
        device: The device; the process-wide one where None.
        capacity: Tokens that a sequence can have, prompt and answer together; as many as the model was made for, but at most
            4,096, where None. The cache takes memory for all of them.
        sequences: Sequences that are continued at once; one for a folder.
        data_type: The type of activations and of the cache, FLOAT16 or FLOAT32; what the device is good at where None. A
            folder's files say it themselves.

    Raises:
        NoSuchFileError, ModelError: there is no such file, or it is broken.
        UnsupportedError: an architecture, a type of weights or a tokenizer that is not supported.
        InvalidArgumentError: a capacity beyond the model's context, or less than one sequence.
        OutOfDeviceMemoryError: the model does not fit; no memory is taken then.
    """
    file = Path(path)
    if not file.exists():
        raise NoSuchFileError(f"there is no file {file}")
    if device is not None:
        check_device(device)
    if file.is_dir():
        if sequences != 1 or data_type is not None:
            raise UnsupportedError("a model of a folder has one sequence, and the types that its files say")
        return _of_folder(file, device, capacity)
    weights = load_gguf(file)
    tokenizer = Tokenizer.of_metadata(weights.metadata)
    source = weights.metadata.get("tokenizer.chat_template")
    template = None if source is None else ChatTemplate(source, tokenizer.special)
    rows = min(weights.config.context, _USUAL_CAPACITY) if capacity is None else capacity
    owner = default_device() if device is None else device
    return Model(Decoder(owner, weights, capacity=rows, sequences=sequences, data_type=data_type), tokenizer, template)


def _of_folder(folder: Path, device: ComputeDevice | None, capacity: int | None) -> Model:
    from dmlvk.llm.onnx_decoder import FolderConfig, OnnxDecoder  # here: GGUF files do not need the package onnx

    config = FolderConfig.read(folder)
    path = folder / "tokenizer_config.json"
    said = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    texts = {name: own.get("content") if isinstance(own, dict) else own for name, own in said.items()}
    special = {name: text for name, text in texts.items() if name.endswith("_token") and isinstance(text, str)}
    tokenizer = Tokenizer.of_file(folder / "tokenizer.json", ends=config.ends, special=special)
    template = folder / "chat_template.jinja"
    source = template.read_text(encoding="utf-8") if template.is_file() else said.get("chat_template")
    rows = min(config.context, _USUAL_CAPACITY) if capacity is None else capacity
    owner = default_device() if device is None else device
    assert isinstance(owner, Device), "every device that a caller can have is one"
    decoder = OnnxDecoder(owner, folder, config, capacity=rows)
    return Model(decoder, tokenizer, ChatTemplate(source, special) if isinstance(source, str) else None)


class Config(Protocol):
    """The numbers that every model has."""

    @property
    def vocabulary(self) -> int:
        """Tokens."""

    @property
    def context(self) -> int:
        """The most tokens of a sequence that it was made for."""


@dataclass
class Usage:
    """What a call came to.

    Attributes:
        prompt_tokens: Tokens of all prompts.
        reused_tokens: Those of them that were in the cache already.
        new_tokens: Tokens that were chosen, those that ended answers included.
        prompt_seconds: The time until the first of them.
        seconds: The time until the last of them.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    new_tokens: int = 0
    prompt_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def prompt_speed(self) -> float:
        """Prompt tokens a second that were computed; 0 where there was nothing to compute."""
        return (self.prompt_tokens - self.reused_tokens) / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def speed(self) -> float:
        """Tokens a second after the first; 0 where there are none."""
        rest = self.seconds - self.prompt_seconds
        return (self.new_tokens - 1) / rest if self.new_tokens > 1 and rest > 0 else 0.0


class Model:
    """A language model: ``load`` makes one. Not for several threads at once.

    What its cache holds stays there between calls: of a new prompt only what follows its longest beginning that some
    sequence has is computed.

    Attributes:
        config: The model's numbers.
        tokenizer: Its tokenizer.
        decoder: What computes, which a ``Scheduler`` takes for itself.
        usage: What the last call came to, or the one that goes on.
    """

    def __init__(self, decoder: Decoder | OnnxDecoder, tokenizer: Tokenizer, template: ChatTemplate | None = None) -> None:
        self.tokenizer = tokenizer
        self.usage = Usage()
        self.decoder: Final = decoder
        self._template = template
        self._scheduler: Scheduler | None = None
        self._requests: list[Request] = []
        """What the last call has asked for."""

    @property
    def config(self) -> Config:
        return self.decoder.config

    @property
    def capacity(self) -> int:
        """Tokens that a sequence can have, prompt and answer together."""
        return self.decoder.capacity

    @property
    def sequences(self) -> int:
        """Sequences that are continued at once."""
        return len(self.decoder.lengths)

    @overload
    def generate(
        self, prompt: str, max_new_tokens: int = ..., *, stop: str | Sequence[str] = ..., **options: Any
    ) -> Iterator[str]: ...
    @overload
    def generate(
        self, prompt: Sequence[int], max_new_tokens: int = ..., *, stop: Sequence[int] = ..., **options: Any
    ) -> Iterator[int]: ...
    def generate(self, prompt: Prompt, max_new_tokens: int = 256, *, stop: Any = (), **options: Any) -> Iterator[Any]:
        """Continues a prompt, piece by piece as they come.

        Args:
            prompt: Text, or tokens.
            max_new_tokens: The most tokens of the answer, which also ends where the capacity does.
            stop: Strings before the first of which the answer ends; of a prompt in tokens, tokens.
            options: ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``repetition_penalty``, ``repetition_window``,
                ``presence_penalty``, ``frequency_penalty`` and ``seed``: the fields of ``Sampling``; without them the most
                probable token is chosen. ``ignore_ends``: whether an answer goes on where the model ends it.

        Returns:
            Text, cut only between whole characters, or tokens. Another call ends it.

        Raises:
            InvalidArgumentError: a prompt without tokens or one that the capacity does not hold, a token that the model has
                not, or an option out of its range. Nothing has been computed then.
        """
        jobs = self._jobs([prompt], max_new_tokens, stop, options)
        return (piece for _, piece in self._pieces(jobs))

    def generate_batch(
        self, prompts: Sequence[Prompt], max_new_tokens: int = 256, *, stop: Any = (), **options: Any
    ) -> Iterator[tuple[int, Piece]]:
        """Continues prompts together, as ``generate`` does each; a seed is the same for all.

        Args:
            prompts: Texts, or lists of tokens. Where there are more than sequences, one begins where another ends.

        Returns:
            The number of a prompt and a piece of its answer, of all answers in turn.
        """
        return self._pieces(self._jobs(prompts, max_new_tokens, stop, options))

    def chat(
        self,
        messages: Sequence[Message],
        max_new_tokens: int = 1024,
        *,
        variables: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """Answers a conversation, piece by piece as they come.

        Args:
            messages: Dicts with a "role" ("system", "user" or "assistant") and "content", in order.
            max_new_tokens: As of ``generate``; so are ``options``.
            variables: What else the model's template may ask for, such as ``{"tools": [...]}``.

        Raises:
            UnsupportedError: the model has no chat template.
            InvalidArgumentError: messages that its template refuses; and as ``generate``.
        """
        return self.generate(self.prompt(messages, variables), max_new_tokens, **options)

    def prompt(self, messages: Sequence[Message], variables: Mapping[str, Any] | None = None) -> str:
        """A conversation as the model reads it: what ``chat`` continues.

        Raises:
            UnsupportedError, InvalidArgumentError: as ``chat``.
        """
        if self._template is None:
            raise UnsupportedError("the model's file has no chat template: generate continues text")
        return self._template.text(messages, **(variables or {}))

    def job(
        self,
        prompt: Prompt,
        max_new_tokens: int,
        *,
        stop: Any = (),
        as_text: bool = False,
        logprobs: int | None = None,
        **options: Any,
    ) -> Job:
        """What ``generate`` would do, for a ``Scheduler`` to do it.

        Args:
            as_text: Whether the answer is text, and ``stop`` are strings, though the prompt be tokens.
            logprobs: How many of the most probable tokens are told beside each that is chosen, 0 to 20; None where nobody
                wants to know how probable tokens were. Steps with them come one by one.

        Raises:
            InvalidArgumentError: as ``generate``.
            UnsupportedError: log-probabilities of a folder's model.
        """
        (job,) = self._jobs([prompt], max_new_tokens, stop, options, as_text=as_text, logprobs=logprobs)
        return job

    def logits(self, prompt: Prompt) -> npt.NDArray[np.float32]:
        """For each token of a prompt, the logits of the one that follows: (tokens, vocabulary). The cache is forgotten.

        Raises:
            InvalidArgumentError: as ``generate``.
        """
        tokens = self._tokens(prompt)
        self._end_last_call()
        self._scheduler = None  # which would not know what the cache holds
        self.decoder.truncate(0, 0)
        return self.decoder.feed([tokens, *([] for _ in range(self.sequences - 1))], all_logits=True)[0]

    # -- what is to be done

    def _tokens(self, prompt: Prompt) -> list[int]:
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else _whole_numbers(prompt)
        if not 1 <= len(tokens) <= self.capacity:
            rule = f"must have 1 to {self.capacity} tokens, the capacity that the model was loaded with"
            raise InvalidArgumentError(rule, field="prompt", value=len(tokens))
        known = self.config.vocabulary
        for token in tokens:
            if not 0 <= token < known:
                raise InvalidArgumentError(f"must be tokens from 0 to {known - 1}", field="prompt", value=token)
        return tokens

    def _jobs(
        self,
        prompts: Sequence[Prompt],
        most: int,
        stop: Any,
        options: dict[str, Any],
        *,
        as_text: bool = False,
        logprobs: int | None = None,
    ) -> list[Job]:
        if not isinstance(most, int) or most < 1:
            raise InvalidArgumentError("must be a whole number, 1 or more", field="max_new_tokens", value=most)
        ends = frozenset() if options.pop("ignore_ends", False) else self.tokenizer.ends
        if logprobs is not None and not (isinstance(logprobs, int) and 0 <= logprobs <= MOST_LOGPROBS):
            raise InvalidArgumentError(f"must be None, or 0 to {MOST_LOGPROBS}", field="logprobs", value=logprobs)
        if logprobs is not None and not self.decoder.has_logprobs:
            raise UnsupportedError("log-probabilities are not there for a model of a folder")
        try:
            sampling = Sampling(**options, answer_start=0)  # of each prompt its own
        except TypeError:
            known = {"ignore_ends", *Sampling.__dataclass_fields__} - {"answer_start"}
            wrong = sorted(options.keys() - known)
            raise InvalidArgumentError(f"must be one of {', '.join(sorted(known))}", field="options", value=wrong) from None
        stops = (stop,) if isinstance(stop, str | int) else tuple(stop)
        jobs = []
        for index, prompt in enumerate(prompts):
            is_text = as_text or isinstance(prompt, str)
            if not all(isinstance(item, str if is_text else int) and item != "" for item in stops):
                rule = "must be strings that are not empty" if is_text else "must be tokens, as the prompt is"
                raise InvalidArgumentError(rule, field="stop", value=stop)
            tokens = self._tokens(prompt)
            room = min(most, self.capacity - len(tokens) + 1)
            text = StoppedText(TextStream(self.tokenizer, tokens), stops) if is_text else None
            own_ends = ends if is_text else ends | frozenset(cast("tuple[int, ...]", stops))
            jobs.append(Job(index, tokens, replace(sampling, answer_start=len(tokens)), room, own_ends, text, logprobs))
        return jobs

    # -- the loop

    def _pieces(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Piece]]:
        """The pieces of all jobs, each with the number of its prompt."""
        self._end_last_call()
        self.usage = usage = Usage(prompt_tokens=sum(len(job.prompt) for job in jobs))
        if self._scheduler is None or self._scheduler.failure is not None:
            self._scheduler = Scheduler(self.decoder, most_waiting=None, exact=False)
        made: deque[tuple[int, Update]] = deque()
        self._requests = [Request(job, _taker(made, job.index)) for job in jobs]
        return self._run(self._scheduler, self._requests, made, usage)

    def _run(
        self, scheduler: Scheduler, requests: list[Request], made: deque[tuple[int, Update]], usage: Usage
    ) -> Iterator[tuple[int, Piece]]:
        started = time.perf_counter()
        left = len(requests)
        self._check_is_last(requests)
        scheduler.submit(requests)
        while left:
            self._check_is_last(requests)
            scheduler.round()
            usage.seconds = time.perf_counter() - started
            usage.reused_tokens = sum(request.reused for request in requests)
            while made:
                index, update = made.popleft()
                if update.error is not None:
                    raise update.error
                self._check_is_last(requests)
                usage.new_tokens += update.tokens
                usage.prompt_seconds = usage.prompt_seconds or usage.seconds
                left -= bool(update.ended)
                yield from ((index, piece) for piece in update.pieces)

    def _check_is_last(self, requests: list[Request]) -> None:
        if requests is not self._requests:
            raise StateError("another call has taken the model's cache: an answer is read to its end first")

    def _end_last_call(self) -> None:
        for request in self._requests:
            request.cancel()
        self._requests = []


def _whole_numbers(prompt: Sequence[int]) -> list[int]:
    if isinstance(prompt, bytes) or not isinstance(prompt, Iterable):
        raise InvalidArgumentError("must be text or a list of tokens", field="prompt", value=prompt)
    tokens = []
    for token in prompt:
        try:
            tokens.append(operator.index(token))
        except TypeError:
            raise InvalidArgumentError("must be tokens, whole numbers", field="prompt", value=token) from None
    return tokens


def _taker(made: deque[tuple[int, Update]], index: int) -> Callable[[Update], None]:
    return lambda update: made.append((index, update))
