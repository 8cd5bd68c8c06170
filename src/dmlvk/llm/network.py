"""The network of a decoder as steps for the engine: one description for all architectures."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dmlvk.engine.numpy_types import dtype_of
from dmlvk.engine.trace import Label, Numbers, PackedTensor, Region, Spec, Trace
from dmlvk.engine.transfer import Array
from dmlvk.graph.passes import optimized
from dmlvk.graph.step import Origin, Step, Storage
from dmlvk.graph.step_graph import DerivedConstants
from dmlvk.graph.views import Sizes, View
from dmlvk.llm.config import Weights, WeightTensor
from dmlvk.llm.tensors import PLAIN_TYPES
from dmlvk.spec import ops
from dmlvk.spec.block_formats import BlockFormat
from dmlvk.spec.enums import MatrixTransform, ReduceFunction, TensorDataType
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.ops.block_quantized import BlockQuantizedGather, BlockQuantizedGemm
from dmlvk.spec.ops.cached_attention import CachedAttention
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.spec.ops.root_mean_square import RootMeanSquare
from dmlvk.spec.ops.sample_token import CONTROL_WORDS, SampleToken
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

_F32, _INT = TensorDataType.FLOAT32, TensorDataType.INT32


MOST_LOGPROBS = 20
"""The most probable tokens of which a step can tell how probable they are, if the vocabulary has so many."""


class Part(NamedTuple):
    """A part of the network, as errors and reports name it.

    Attributes:
        name: Its place, such as "blk.3".
        op_type: What it does there, such as "attention".
    """

    name: str
    op_type: str


class _Value(NamedTuple):
    """A tensor of the network: bytes, and what lies in them."""

    storage: Storage
    desc: TensorDesc

    @property
    def sizes(self) -> Sizes:
        return self.desc.sizes

    def packed(self) -> PackedTensor:
        """As a trace has it."""
        data_type = self.desc.data_type
        return PackedTensor(self.storage, data_type, dtype_of(data_type), self.sizes)

    def seen_as(self, *sizes: int) -> _Value:
        """The same elements under other sizes; those of the whole are packed."""
        return _Value(self.storage, TensorDesc(self.desc.data_type, sizes))

    def repeated(self, *sizes: int) -> _Value:
        """The elements repeated, by numpy's rule."""
        view = View.packed(self.sizes).broadcast(sizes)
        assert view is not None, "the network's sizes fit each other"
        return _Value(self.storage, view.desc(self.desc))


class _Sums(NamedTuple):
    """What goes round layers, and what is yet to be added to it: by the norm that reads it."""

    x: _Value
    addend: _Value | None = None


class _Steps:
    """The steps of a trace, as they are made."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.part = Part("", "")

    def launch(
        self,
        row: type[OperatorDesc],
        inputs: Mapping[str, _Value],
        sizes: Sizes,
        data_type: TensorDataType,
        also: Mapping[str, _Value] | None = None,
        **attributes: Any,
    ) -> _Value:
        """The output of an operator; ``also`` are outputs that have memory already."""
        result = _made(data_type, sizes)
        self.into(result, row, {**inputs, **(also or {})}, **attributes)
        return result

    def into(self, result: _Value, row: type[OperatorDesc], tensors: Mapping[str, _Value], **attributes: Any) -> None:
        """An operator that writes its output into memory that is there."""
        given = {**tensors, "output_tensor": result}
        desc = row(**{name: value.desc for name, value in given.items()}, **attributes)
        desc.validate()
        self.steps.append(Step.of(self.part, desc, {name: value.storage for name, value in given.items()}))

    def pointwise(self, row: type[OperatorDesc], a: _Value, b: _Value) -> _Value:
        """An operator of two tensors of the same sizes."""
        return self.launch(row, {"a_tensor": a, "b_tensor": b}, a.sizes, a.desc.data_type)


def _made(data_type: TensorDataType, sizes: Sizes, constant: Array | None = None) -> _Value:
    """A new packed tensor, of constant elements where they are given."""
    desc = TensorDesc(data_type, sizes)
    return _Value(Storage(desc.total_tensor_size_in_bytes, constant), desc)


class _Told(NamedTuple):
    """Steps behind the choice of tokens, and what they tell."""

    steps: Sequence[Step]
    outputs: Mapping[str, _Value]


class Wanted(enum.Enum):
    """The rows of a prompt's piece whose logits are wanted."""

    NONE = enum.auto()
    LAST = enum.auto()
    """One of each sequence."""
    EVERY = enum.auto()


class _Batch(NamedTuple):
    """The sequences that a region computes together.

    Attributes:
        sequences: How many they are.
        state: What they have that outlives runs, by name.
    """

    sequences: int
    state: Mapping[str, _Value]


class Network:
    """A decoder network, as the engine knows one: a region that takes a step, and some for each size of prompts' pieces.

    Args:
        weights: The model.
        data_type: The type of activations, FLOAT16 or FLOAT32. What goes round layers is FLOAT32: that of some models grows
            beyond what FLOAT16 holds.
        capacity: Rows of each sequence's cache that count.
        sequences: Sequences.
        pieces: Rows of the pieces in which prompts come, by the sequences of which they are: one or all.

    Attributes:
        state: Tensors that outlive a run, by name: caches, lengths, the tokens that the next step appends, all tokens of
            each sequence, these among them, and how the next ones are chosen.
        caches: The names of the caches among them: {sequences, key heads, rows, head size}.
        alone: What a piece of one sequence has in the place of ``state``: the caches and the length of that one, wherever
            they are bound. Where there is one sequence it is a part of ``state``.
        step: The region that takes a step.
        told_step: One that takes a step, with the most probable tokens and their log-probabilities, ``top_tokens`` and
            ``top_logprobs`` {sequences, tokens}, and that of the token that was chosen, ``logprobs`` {sequences, 1}.
    """

    def __init__(
        self, weights: Weights, data_type: TensorDataType, capacity: int, sequences: int, pieces: Mapping[int, Sequence[int]]
    ) -> None:
        self._config = config = weights.config
        self._data_type = data_type
        self._derived: DerivedConstants = {}
        self._weights = {name: _Weight.of(tensor) for name, tensor in weights.tensors.items()}
        self.state = {name: _made(_INT, (sequences,)) for name in ("tokens", "lengths")}
        self.state["history"] = _made(_INT, (sequences, capacity + 1))
        self.state["controls"] = _made(TensorDataType.UINT32, (sequences, CONTROL_WORDS))
        self.caches = [f"blk.{layer}.{name}" for layer in range(config.layers) for name in ("key", "value")]
        room = (config.key_heads, capacity + capacity % 2, config.head_size)  # whole words of each sequence
        self.state |= {name: _made(data_type, (sequences, *room)) for name in self.caches}
        self.alone = {name: self.state[name] for name in ("lengths", *self.caches)}
        if sequences > 1:
            self.alone = {name: _made(value.desc.data_type, (1, *value.sizes[1:])) for name, value in self.alone.items()}
        self._tables = {
            key: tuple(self._constant(table) for table in rotation.tables(capacity))
            for key, rotation in {id(own): own for own in config.rotations}.items()
        }
        self.step = Region((), frozenset(), ("logits",))
        self.told_step = Region((), frozenset(), ("logits", "top_logprobs", "top_tokens", "logprobs"))
        kinds = [(size, count) for count, sizes in pieces.items() for size in sizes]
        self._pieces = {(size, wanted, count): _piece(wanted) for size, count in kinds for wanted in Wanted}
        self._sizes = {region: (size, count) for (size, _, count), region in self._pieces.items()}
        self._all = _Batch(sequences, self.state)

    @property
    def region_count(self) -> int:
        return 2 + len(self._pieces)

    def piece(self, size: int, wanted: Wanted, count: int) -> Region:
        """The region that feeds so many rows to each of ``count`` sequences: to all, or to the one that ``alone`` says.

        Its inputs: ``tokens``, of all their rows, and for the logits of one row each ``last``, these rows, counted over
        all of them.
        """
        return self._pieces[size, wanted, count]

    def inputs(self, region: Region) -> dict[str, Spec]:
        """The types and sizes of a region's inputs."""
        size, count = self._sizes.get(region, (1, self._all.sequences))
        sizes = {"tokens": (count * size,), "last": (count,)}
        return {name: (np.dtype(np.int32), sizes[name]) for name in region.inputs}

    def trace(self, region: Region, specs: Mapping[str, Spec], host_values: Mapping[str, Array | Numbers]) -> Trace:
        steps = _Steps()
        inputs = {name: _made(_INT, sizes) for name, (_, sizes) in specs.items()}
        _, count = self._sizes.get(region, (1, self._all.sequences))
        batch = self._all if count == self._all.sequences else _Batch(count, self.alone)
        sums = self._layers(steps, inputs.get("tokens", self.state["tokens"]), batch)
        takes_step = region in (self.step, self.told_step)
        outputs = {"logits": self._logits(steps, sums, inputs.get("last"))} if region.outputs else {}
        if outputs and not takes_step:  # for the host
            outputs["logits"] = _cast(steps, outputs["logits"], _F32)
        outside = [value.storage for value in batch.state.values()]
        results = [*(value.storage for value in outputs.values()), *outside]
        kept = optimized(steps.steps, results, memory=self._derived)
        if takes_step:  # the same steps up to the logits in both
            kept = (*kept, *self._chosen(outputs["logits"]))
        if region is self.told_step:
            told = self._told(outputs["logits"])
            kept, outputs = (*kept, *told.steps), {**outputs, **told.outputs}
        labels = {step.origin: Label(step.origin.name, step.origin.op_type) for step in steps.steps}
        return Trace(
            kept,
            {name: value.packed() for name, value in inputs.items()},
            {name: value.packed() for name, value in outputs.items()},
            outside=frozenset(outside),
            device_labels=labels,
        )

    def refusal(self, origin: Origin, error: UnsupportedError) -> UnsupportedError:
        return UnsupportedError(f"{origin.op_type} of {origin.name}: {error}")

    # -- the network

    def _layers(self, steps: _Steps, tokens: _Value, batch: _Batch) -> _Sums:
        """What the layers make of tokens, one a row."""
        steps.part = Part("token_embd", "embedding")
        sums = _Sums(self._embedded(steps, tokens))
        for layer in range(self._config.layers):
            sums = self._layer(steps, sums, layer, batch)
        return sums

    def _logits(self, steps: _Steps, sums: _Sums, last: _Value | None) -> _Value:
        """The logits of rows, {rows, vocabulary}, of FLOAT32 or the layers' type: of those that ``last`` names, or all."""
        steps.part = Part("output", "logits")
        if last is not None:
            sums = _Sums(_rows(steps, sums.x, last), sums.addend and _rows(steps, sums.addend, last))
        output = "output" if "output.weight" in self._weights else "token_embd"
        # Products with blocks take any rows: FLOAT32 here, where every bit may decide which token is the best. Where
        # layers are FLOAT16, matrices may multiply many rows of them.
        exact = _F32 if self._weights[f"{output}.weight"].format else self._data_type
        x, _ = self._normalised(steps, sums, "output_norm", exact)
        logits = self._product(steps, x, output)
        if cap := self._config.output_softcap:
            logits = _cast(steps, logits, _F32)
            logits = steps.launch(
                ops.ActivationScaledTanh, {"input_tensor": logits}, logits.sizes, _F32, alpha=cap, beta=1 / cap
            )
        return logits

    def _layer(self, steps: _Steps, sums: _Sums, layer: int, batch: _Batch) -> _Sums:
        name = f"blk.{layer}"
        steps.part = Part(name, "attention")
        y, x = self._normalised(steps, sums, f"{name}.attn_norm", self._data_type)
        y = self._product(steps, self._attention(steps, y, layer, batch), f"{name}.attn_output")
        sums = _Sums(x, self._handed_on(steps, y, f"{name}.post_attention_norm"))
        steps.part = Part(name, "feed_forward")
        y, x = self._normalised(steps, sums, f"{name}.ffn_norm", self._data_type)
        gate, up = self._gate_and_up(steps, y, name)
        y = steps.pointwise(ops.ElementWiseMultiply, _activated(steps, self._config.architecture.activation, gate), up)
        return _Sums(x, self._handed_on(steps, self._product(steps, y, f"{name}.ffn_down"), f"{name}.post_ffw_norm"))

    def _handed_on(self, steps: _Steps, y: _Value, norm: str) -> _Value:
        """What a part of a layer adds: normalised where the architecture does so."""
        if not self._config.architecture.post_norms:
            return y
        return self._normalised(steps, _Sums(y), norm, _F32)[0]

    def _gate_and_up(self, steps: _Steps, x: _Value, name: str) -> tuple[_Value, _Value]:
        if f"{name}.ffn_gate.weight" in self._weights:
            gate, up = (self._product(steps, x, f"{name}.ffn_{part}") for part in ("gate", "up"))
            return gate, up
        gate, up = _split(steps, self._product(steps, x, f"{name}.ffn_up"), (self._config.hidden,) * 2)
        return gate, up

    def _heads(self, steps: _Steps, x: _Value, name: str) -> list[_Value]:
        """Queries, keys and values: {rows, heads * head size}."""
        config = self._config
        if f"{name}.attn_qkv.weight" not in self._weights:
            return [self._product(steps, x, f"{name}.attn_{part}") for part in "qkv"]
        counts = (config.heads, config.key_heads, config.key_heads)
        return _split(steps, self._product(steps, x, f"{name}.attn_qkv"), [count * config.head_size for count in counts])

    def _attention(self, steps: _Steps, x: _Value, layer: int, batch: _Batch) -> _Value:
        config, name, size = self._config, f"blk.{layer}", self._config.head_size
        rows = x.sizes[0] // batch.sequences
        query, key, value = (
            part.seen_as(batch.sequences, rows, part.sizes[1] // size, size) for part in self._heads(steps, x, name)
        )
        if config.architecture.head_norms:
            query, key = (
                self._normalised(steps, _Sums(part), f"{name}.attn_{letter}_norm", self._data_type)[0]
                for part, letter in ((query, "q"), (key, "k"))
            )
        cosines, sines = self._tables[id(config.rotations[layer])]
        y = steps.launch(
            CachedAttention,
            {
                "query_tensor": query,
                "key_tensor": key,
                "value_tensor": value,
                "lengths_tensor": batch.state["lengths"],
                "cosines_tensor": cosines,
                "sines_tensor": sines,
            },
            query.sizes,
            self._data_type,
            {f"cache_{part}_tensor": batch.state[f"{name}.{part}"] for part in ("key", "value")},
            scale=config.attention_scale,
            softcap=config.attention_softcap,
            window=config.windows[layer],
            interleaved=config.architecture.interleaved,
        )
        return y.seen_as(x.sizes[0], config.heads * size)

    def _embedded(self, steps: _Steps, tokens: _Value) -> _Value:
        table = self._weights["token_embd.weight"]
        if table.format:
            inputs = {"indices_tensor": tokens, "weight_tensor": table.value}
            sizes = (tokens.sizes[0], self._config.width)
            x = steps.launch(BlockQuantizedGather, inputs, sizes, _F32, format=table.format)
        else:
            x = _cast(steps, _rows(steps, self._in_type(steps, table, self._data_type), tokens), _F32)
        if not self._config.architecture.scaled_embeddings:
            return x
        scale = math.sqrt(self._config.width)
        return steps.launch(ops.ActivationLinear, {"input_tensor": x}, x.sizes, _F32, alpha=scale, beta=0.0)

    def _normalised(self, steps: _Steps, sums: _Sums, name: str, data_type: TensorDataType) -> tuple[_Value, _Value]:
        """The rows of a sum divided by the root of their mean square, times a weight; and the sum itself."""
        x = sums.x
        inputs = {"input_tensor": x, "scale_tensor": self._in_type(steps, self._weights[f"{name}.weight"], x.desc.data_type)}
        also = {}
        if sums.addend:
            inputs["addend_tensor"] = sums.addend
            also["sum_tensor"] = _made(x.desc.data_type, x.sizes)
        y = steps.launch(RootMeanSquare, inputs, x.sizes, data_type, also, epsilon=self._config.epsilon)
        return y, also.get("sum_tensor", x)

    def _product(self, steps: _Steps, x: _Value, name: str) -> _Value:
        """Rows times a weight, {rows, columns}, plus its bias where there is one."""
        data_type, weight, bias = x.desc.data_type, self._weights[f"{name}.weight"], self._weights.get(f"{name}.bias")
        sizes = (x.sizes[0], weight.sizes[0])
        row = None if bias is None else self._in_type(steps, bias, data_type)
        if weight.format:
            inputs = {"input_tensor": x, "weight_tensor": weight.value}
            if row:
                inputs["bias_tensor"] = row
            halves = self._data_type is TensorDataType.FLOAT16
            return steps.launch(BlockQuantizedGemm, inputs, sizes, data_type, format=weight.format, half_factors=halves)
        inputs = {"a_tensor": x, "b_tensor": self._in_type(steps, weight, data_type)}
        if row:
            inputs["c_tensor"] = row.seen_as(1, sizes[1]).repeated(*sizes)
        return steps.launch(ops.Gemm, inputs, sizes, data_type, trans_b=MatrixTransform.TRANSPOSE)

    def _chosen(self, logits: _Value) -> list[Step]:
        """The steps behind all others, which passes leave alone: they write what those read."""
        steps = _Steps()
        steps.part = Part("output", "choice")
        inputs = {f"{name}_tensor": self.state[name] for name in ("controls", "history", "lengths")}
        outputs = {f"output_{name}_tensor": self.state[name] for name in ("history", "lengths")}
        steps.into(self.state["tokens"], SampleToken, {"logits_tensor": logits, **inputs, **outputs}, pending=1)
        return steps.steps

    def _told(self, logits: _Value) -> _Told:
        """How probable the chosen tokens are, and the most probable ones, by the logits as the network gives them."""
        steps = _Steps()
        steps.part = Part("output", "log-probabilities")
        rows, vocabulary = logits.sizes
        best = (rows, min(MOST_LOGPROBS, vocabulary))
        logits = _cast(steps, logits, _F32)
        top, tokens = _made(_F32, best), _made(TensorDataType.UINT32, best)
        best_ones = ops.TopK1(
            input_tensor=logits.desc, output_value_tensor=top.desc, output_index_tensor=tokens.desc, axis=1, k=best[1]
        )
        best_ones.validate()
        steps.steps.append(Step(steps.part, best_ones, (logits.storage,), (top.storage, tokens.storage)))
        whole = steps.launch(
            ops.Reduce, {"input_tensor": logits}, (rows, 1), _F32, function=ReduceFunction.LOG_SUM_EXP, axes=(1,)
        )
        indices = self.state["tokens"].seen_as(rows, 1)
        own = steps.launch(ops.GatherElements, {"input_tensor": logits, "indices_tensor": indices}, (rows, 1), _F32, axis=1)
        logprobs = steps.pointwise(ops.ElementWiseSubtract, own, whole)
        top_logprobs = steps.pointwise(ops.ElementWiseSubtract, top, whole.repeated(*best))
        return _Told(steps.steps, {"top_logprobs": top_logprobs, "top_tokens": tokens, "logprobs": logprobs})

    # -- weights

    def _constant(self, table: Array) -> _Value:
        return _made(self._data_type, table.shape, table.astype(dtype_of(self._data_type)))

    def _in_type(self, steps: _Steps, weight: _Weight, data_type: TensorDataType) -> _Value:
        """A weight that is not in blocks in some type: made of it once, on the device."""
        value = weight.value
        if value.desc.data_type is not TensorDataType.UINT16:
            return _cast(steps, value, data_type)
        return steps.launch(FormatCast, {"input_tensor": value}, value.sizes, data_type, format=NumberFormat.BFLOAT16)


def _piece(wanted: Wanted) -> Region:
    """The region of a piece."""
    inputs = ("tokens", "last") if wanted is Wanted.LAST else ("tokens",)
    return Region(inputs, frozenset(), () if wanted is Wanted.NONE else ("logits",))


class _Weight(NamedTuple):
    """A weight on the device.

    Attributes:
        value: Its bytes.
        sizes: The elements of its dimensions.
        format: What the bytes mean; None of numbers of one each.
    """

    value: _Value
    sizes: Sizes
    format: BlockFormat | None

    @staticmethod
    def of(tensor: WeightTensor) -> _Weight:
        if data_type := PLAIN_TYPES.get(tensor.type):
            elements = tensor.data.view(dtype_of(data_type)).reshape(tensor.sizes)
            return _Weight(_made(data_type, tensor.sizes, elements), tensor.sizes, None)
        rows = tensor.data.reshape(tensor.sizes[0], -1)
        return _Weight(_made(TensorDataType.UINT8, rows.shape, rows), tensor.sizes, BlockFormat[tensor.type])


def _cast(steps: _Steps, x: _Value, data_type: TensorDataType) -> _Value:
    if x.desc.data_type is data_type:
        return x
    return steps.launch(ops.Cast, {"input_tensor": x}, x.sizes, data_type)


def _rows(steps: _Steps, table: _Value, indices: _Value) -> _Value:
    """Rows of a table, {rows, width}."""
    count = indices.sizes[0]
    inputs = {"input_tensor": table, "indices_tensor": indices.seen_as(1, count)}
    return steps.launch(ops.Gather, inputs, (count, table.sizes[1]), table.desc.data_type, axis=0, index_dimensions=1)


def _split(steps: _Steps, x: _Value, widths: Sequence[int]) -> list[_Value]:
    """The columns of a tensor in parts."""
    parts = [_made(x.desc.data_type, (x.sizes[0], width)) for width in widths]
    desc = ops.Split(input_tensor=x.desc, output_tensors=tuple(part.desc for part in parts), axis=1)
    desc.validate()
    steps.steps.append(Step(steps.part, desc, (x.storage,), tuple(part.storage for part in parts)))
    return parts


def _activated(steps: _Steps, activation: str, x: _Value) -> _Value:
    """SiLU, or GELU by its tanh: x * sigmoid(2 z) with z = sqrt(2 / pi) * (x + 0.044715 x^3)."""
    data_type = x.desc.data_type
    if activation == "silu":
        return steps.launch(ops.ActivationSwish, {"input_tensor": x}, x.sizes, data_type, sigmoid_input_scale=1.0)
    first = 2 * math.sqrt(2 / math.pi)
    square = steps.pointwise(ops.ElementWiseMultiply, x, x)
    slope = steps.launch(
        ops.ActivationLinear, {"input_tensor": square}, x.sizes, data_type, alpha=first * 0.044715, beta=first
    )
    angle = steps.pointwise(ops.ElementWiseMultiply, x, slope)
    share = steps.launch(ops.ActivationSigmoid, {"input_tensor": angle}, x.sizes, data_type)
    return steps.pointwise(ops.ElementWiseMultiply, x, share)
