"""The suite llm: language models of well-known shapes with random weights: how fast they read prompts and write answers,
one alone and many together.

Weights are made on the spot, as blocks of 4 bits or as FLOAT16: their values do not matter, and their bytes are what limits
the speed. All of it is the host's time, from tokens to tokens.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk_bench.results import LanguageRow

if TYPE_CHECKING:
    from dmlvk.llm.config import Weights

Array = npt.NDArray[Any]

PROMPT_TOKENS, NEW_TOKENS = 512, 128
_FEW_TOKENS: Final = 32, 8
"""Both on a processor."""
_BATCHES: Final = (1, 16)
_REPEATS: Final = 3
_AHEAD: Final = 8
"""Tokens that the host reads together, while the device goes on with as many, as ``dmlvk.llm`` has it on a fast device."""
_RANDOM_ROWS: Final = 1024
"""Rows of a weight that differ; they come again and again."""
_BLOCK, _BLOCK_BYTES = 32, 18  # of Q4_0: a FLOAT16 scale and 32 codes


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama.

    Attributes:
        name: What it is called.
        layers, width, hidden, heads, key_heads, vocabulary: As of ``dmlvk.llm.config.ModelConfig``.
    """

    name: str
    layers: int
    width: int
    hidden: int
    heads: int
    key_heads: int
    vocabulary: int

    def matrices(self) -> Iterator[tuple[str, int, int]]:
        """The name, rows and columns of each matrix."""
        keys = self.width // self.heads * self.key_heads
        yield from ((name, self.vocabulary, self.width) for name in ("token_embd", "output"))
        for layer in range(self.layers):
            sizes = {"attn_q": (self.width, self.width), "attn_k": (keys, self.width), "attn_v": (keys, self.width)}
            sizes |= {"attn_output": (self.width, self.width), "ffn_down": (self.width, self.hidden)}
            sizes |= dict.fromkeys(("ffn_gate", "ffn_up"), (self.hidden, self.width))
            yield from ((f"blk.{layer}.{name}", *size) for name, size in sizes.items())

    def norms(self) -> Iterator[str]:
        """The names of the norms' weights, each as wide as a row."""
        yield "output_norm"
        yield from (f"blk.{layer}.{part}_norm" for layer in range(self.layers) for part in ("attn", "ffn"))

    def metadata(self) -> dict[str, Any]:
        """What a GGUF file says of it."""
        own = {
            "block_count": self.layers,
            "context_length": 4096,
            "embedding_length": self.width,
            "feed_forward_length": self.hidden,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.key_heads,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": 500000.0,
            "rope.dimension_count": self.width // self.heads,
        }
        return {"general.architecture": "llama", **{f"llama.{name}": value for name, value in own.items()}}


SHAPES: Final = (
    Shape("Llama 1B", 16, 2048, 8192, 32, 8, 128_256),
    Shape("Llama 3B", 28, 3072, 8192, 24, 8, 128_256),
    Shape("Llama 8B", 32, 4096, 14336, 32, 8, 128_256),
)
SMALL: Final = (Shape("tiny Llama", 2, 256, 512, 4, 2, 2048),)
"""What a processor can run."""
TYPES: Final = ("Q4_0", "F16")


Rival = Callable[[Shape, str, int], dict[str, float]]
"""Measures a shape, a type of weights and a batch: ``prompt_per_s`` and ``new_per_s``."""


def matrix(rng: np.random.Generator, kind: str, rows: int, columns: int) -> Array:
    """The bytes of a random matrix, row after row."""
    own = min(rows, _RANDOM_ROWS)
    if kind == "F16":
        data = (rng.standard_normal((own, columns), np.float32) / math.sqrt(columns)).astype(np.float16).view(np.uint8)
    else:
        blocks = np.empty((own, columns // _BLOCK, _BLOCK_BYTES), np.uint8)
        scales = rng.uniform(0.5, 1.5, (own, columns // _BLOCK, 1)) / (4.6 * math.sqrt(columns))  # codes spread by 4.6
        blocks[..., :2] = scales.astype(np.float16).view(np.uint8)
        blocks[..., 2:] = rng.integers(0, 256, (*blocks.shape[:2], _BLOCK_BYTES - 2), np.uint8)
        data = blocks.reshape(own, -1)
    return data[np.arange(rows) % own]


def weights_of(shape: Shape, kind: str) -> Weights:
    """A model of that shape, as if it had been read of a file."""
    from dmlvk.llm.config import Weights, WeightTensor
    from dmlvk.llm.gguf_config import config_of

    rng = np.random.default_rng(0)
    tensors = {
        f"{name}.weight": WeightTensor(kind, (rows, columns), matrix(rng, kind, rows, columns).reshape(-1))
        for name, rows, columns in shape.matrices()
    }
    ones = np.ones(shape.width, np.float32).view(np.uint8)
    tensors |= {f"{name}.weight": WeightTensor("F32", (shape.width,), ones) for name in shape.norms()}
    metadata = shape.metadata()
    return Weights(config_of(metadata, {}, shape.vocabulary), tensors, metadata)


class Model(NamedTuple):
    """A shape with a type of weights."""

    shape: Shape
    kind: str

    def __str__(self) -> str:
        return f"{self.shape.name} {self.kind}"


def models(only: str, *, is_cpu: bool) -> list[Model]:
    """The models of a device that have a word in their name.

    Raises:
        InvalidArgumentError: there are none.
    """
    every = [Model(shape, kind) for shape in (SMALL if is_cpu else SHAPES) for kind in TYPES]
    found = [model for model in every if only.lower() in str(model).lower()]
    if not found:
        rule = f"must be part of the name of a model: {', '.join(map(str, every))}"
        raise InvalidArgumentError(rule, field="only", value=only)
    return found


def measure(device: ComputeDevice, model: Model, rivals: Mapping[str, Rival]) -> Iterator[LanguageRow]:
    """A model's rows as they come, one for each batch.

    Args:
        device: The device.
        model: The model.
        rivals: Who else is measured, by name.

    Raises:
        OutOfDeviceMemoryError: it does not fit.
    """
    weights = weights_of(*model)
    for batch in _BATCHES:
        row = _measured(device, model, weights, batch)
        yield dataclasses.replace(row, rivals={name: rival(*model, batch) for name, rival in rivals.items()})


def _measured(device: ComputeDevice, model: Model, weights: Weights, batch: int) -> LanguageRow:
    from dmlvk.llm.decoder import Decoder
    from dmlvk.llm.sampling import Sampling

    prompt_tokens, new_tokens = _FEW_TOKENS if device.capabilities.is_cpu else (PROMPT_TOKENS, NEW_TOKENS)
    decoder = Decoder(device, weights, capacity=prompt_tokens + new_tokens, sequences=batch)
    rng = np.random.default_rng(1)
    prompts = rng.integers(0, model.shape.vocabulary, (batch, prompt_tokens)).tolist()
    sampling = [Sampling()] * batch
    reading, writing = [], []
    for _ in range(1 + _REPEATS):  # the first makes pipelines and plans
        for sequence in range(batch):
            decoder.truncate(sequence, 0)
        started = time.perf_counter()
        decoder.extend([prompt[:-1] for prompt in prompts])
        decoder.step(sampling, [prompt[-1] for prompt in prompts])
        read = time.perf_counter()
        counts = [min(_AHEAD, new_tokens - first) for first in range(1, new_tokens, _AHEAD)]
        begun = decoder.begin_steps(sampling, counts[0])
        for count in counts[1:]:
            following = decoder.begin_steps(sampling, count)
            begun.tokens()
            begun = following
        begun.tokens()
        reading.append(read - started)
        writing.append(time.perf_counter() - read)
    return LanguageRow(
        str(model),
        batch,
        sum(tensor.data.nbytes for tensor in weights.tensors.values()),
        decoder.nbytes,
        prompt_tokens,
        new_tokens,
        batch * prompt_tokens / median(reading[1:]),
        batch * (new_tokens - 1) / median(writing[1:]),
    )
