"""A language model as onnxruntime-genai's model builder writes it: a folder with a decoder as an ONNX file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from dmlvk.directml.device import Device
from dmlvk.engine import array_runs
from dmlvk.engine.device_array import DeviceArray
from dmlvk.llm.sampling import Sampling
from dmlvk.onnx.session import InferenceSession
from dmlvk.spec.errors import InvalidArgumentError, ModelError, StateError, UnsupportedError
from dmlvk.spec.ops.sample_token import SampleToken, sampling_words

_PIECES: Final = (1, 8, 32, 128, 512)
"""Rows that a run takes: prompts are filled up to one of them, so that few plans serve all lengths."""


@dataclass(frozen=True)
class FolderConfig:
    """What a file genai_config.json says.

    Attributes:
        vocabulary: Tokens.
        context: The most rows that the model was made for.
        ends: Tokens that end an answer.
        decoder: What it says of the decoder: its file, and the names of inputs and outputs.
    """

    vocabulary: int
    context: int
    ends: tuple[int, ...]
    decoder: Mapping[str, Any]

    @staticmethod
    def read(folder: Path) -> FolderConfig:
        """The one of a folder.

        Raises:
            ModelError: there is none, or it is broken.
        """
        path = folder / "genai_config.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["model"]
            ends = found["eos_token_id"]
            return FolderConfig(
                int(found["vocab_size"]),
                int(found["context_length"]),
                tuple(ends) if isinstance(ends, list) else (int(ends),),
                found["decoder"],
            )
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{path}: no description of a language model: {type(error).__name__}: {error}") from error


class OnnxDecoder:
    """A decoder of such a folder, with the cache of one sequence; past and present are one buffer. Its methods are those of
    ``Decoder``.

    Args:
        device: The device.
        folder: The folder.
        config: What its file says.
        capacity: Rows of the cache.

    Attributes:
        has_logprobs: False.
        begins_steps: False: the host hands each token on.
        config: As given.
        capacity: As given.
        pieces: Rows of the pieces in which a prompt can come, fewest first.
        usual_piece: The largest of them, which a ``Scheduler`` takes.
        lengths: The rows of the cache that count, one number.

    Raises:
        InvalidArgumentError: a capacity that the model was not made for.
        UnsupportedError: a node that the device cannot run.
    """

    has_logprobs = False
    begins_steps = False

    def __init__(self, device: Device, folder: Path, config: FolderConfig, *, capacity: int) -> None:
        if not 1 <= capacity <= config.context:
            rule = f"must be 1 to {config.context}, the model's context"
            raise InvalidArgumentError(rule, operator="OnnxDecoder", field="capacity", value=capacity)
        self.config, self.capacity, self.lengths = config, capacity, [0]
        self._session = InferenceSession(str(folder / config.decoder["filename"]), device=device)
        self._binding = self._session.io_binding()
        self.pieces = [size for size in _PIECES if size == 1 or size < 2 * capacity]
        self.usual_piece = self.pieces[-1]
        self._rows = capacity + self.pieces[-1]  # what fills a piece up lies behind the last row that counts
        given = {item.name: item for item in self._session.get_inputs()}
        inputs, outputs = config.decoder["inputs"], config.decoder["outputs"]
        self._ids, self._mask = inputs["input_ids"], inputs["attention_mask"]
        self._positions = inputs.get("position_ids") if inputs.get("position_ids") in given else None
        self._logits = outputs["logits"]
        self._caches: list[tuple[str, str, DeviceArray]] = []
        key_heads, size = (int(config.decoder[name]) for name in ("num_key_value_heads", "head_size"))
        for layer in range(int(config.decoder["num_hidden_layers"])):
            for part in ("key", "value"):
                past, present = inputs[f"past_{part}_names"] % layer, outputs[f"present_{part}_names"] % layer
                if past not in given:
                    raise UnsupportedError(
                        f"the decoder has no input {past!r}: only caches of keys and values are supported"
                    )
                kind = np.float16 if "float16" in given[past].type else np.float32
                zeros = np.zeros((1, key_heads, self._rows, size), kind)
                self._caches.append((past, present, DeviceArray.from_numpy(zeros, device)))
        self._device = device
        self._tokens: list[int] = []
        self._next: int | None = None

    def feed(self, tokens: Sequence[Sequence[int]], *, all_logits: bool = False) -> list[npt.NDArray[np.float32]]:
        """Appends tokens, in pieces; see ``Decoder``."""
        found = [np.empty((0, self.config.vocabulary), np.float32)]
        for count, logits in self._pieces_of(tokens, self.pieces):
            if all_logits:
                found.append(logits.numpy()[0, :count].astype(np.float32))
            else:
                found[:] = [logits[0, count - 1 : count].numpy().astype(np.float32)]
        return [np.concatenate(found)]

    def extend(self, tokens: Sequence[Sequence[int]], rows: int | None = None) -> None:
        """Appends tokens, without logits; see ``Decoder``."""
        for _ in self._pieces_of(tokens, self.pieces if rows is None else (rows,)):
            pass

    def _pieces_of(self, tokens: Sequence[Sequence[int]], pieces: Sequence[int]) -> Iterator[tuple[int, DeviceArray]]:
        """How many tokens a piece has, and its logits."""
        (new,) = tokens
        while new:
            size = next((size for size in pieces if size >= len(new)), pieces[-1])
            part, new = new[:size], new[size:]
            yield len(part), self._run(part, size)

    def step(self, sampling: Sequence[Sampling | None], tokens: Sequence[int] | None = None) -> npt.NDArray[np.int32]:
        """Appends a token and chooses the next one on the device; see ``Decoder``."""
        (own,) = sampling
        if own is None:
            return np.zeros(1, np.int32)
        token, self._next = self._next if tokens is None else tokens[0], None  # until the step has succeeded
        if token is None:
            raise StateError("step needs tokens: no step before it has left any")
        logits = self._run([token], 1)
        count = len(self._tokens) if own.reads_history else 0
        history = np.zeros((1, self.capacity), np.int32)
        history[0, :count] = self._tokens[:count]
        arrays = {
            "controls_tensor": np.array([sampling_words(**vars(own))], np.uint32),
            "history_tensor": history,
            "lengths_tensor": np.array([len(self._tokens)], np.int32),
        }
        inputs = {name: DeviceArray.from_numpy(array, self._device) for name, array in arrays.items()}
        inputs = {"logits_tensor": logits.reshape((1, self.config.vocabulary)), **inputs}
        chosen = array_runs.run(SampleToken, inputs, np.dtype(np.int32), (1,)).numpy()
        self._next = int(chosen[0])
        return chosen

    def step_told(self, sampling: Sequence[Sampling | None], tokens: Sequence[int] | None = None) -> NoReturn:
        """Raises UnsupportedError, see ``has_logprobs``."""
        raise UnsupportedError("log-probabilities are not there for a model of a folder")

    def begin_steps(self, sampling: Sequence[Sampling | None], count: int) -> NoReturn:
        """Raises UnsupportedError, see ``begins_steps``."""
        raise UnsupportedError("several steps at once are not there for a model of a folder")

    def truncate(self, sequence: int, length: int) -> None:
        """Cuts the sequence back; see ``Decoder``."""
        self.lengths = [length]  # first: tokens that follow do not count
        del self._tokens[length:]

    def share(self, source: int, target: int, length: int) -> None:
        """As ``truncate``: there is one sequence."""
        self.truncate(target, length)

    def _run(self, tokens: Sequence[int], size: int) -> DeviceArray:
        """The logits of a piece with so many rows, (1, size, vocabulary)."""
        start = self.lengths[0]
        ids = np.zeros((1, size), np.int64)
        ids[0, : len(tokens)] = tokens
        self._binding.bind_cpu_input(self._ids, ids)
        mask = np.zeros((1, self._rows), np.int64)
        mask[0, : start + size] = 1
        self._binding.bind_cpu_input(self._mask, mask)
        if self._positions is not None:
            self._binding.bind_cpu_input(self._positions, np.arange(start, start + size)[None])
        for past, present, array in self._caches:
            self._binding.bind_input(past, array)
            self._binding.bind_output(present, array)
        self._binding.bind_output(self._logits)
        self._session.run_with_iobinding(self._binding)
        self._tokens[start:] = tokens
        self.lengths = [len(self._tokens)]
        return self._binding.results[self._logits]
