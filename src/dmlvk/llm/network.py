"""The network of a decoder as steps for the engine: one description for all architectures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dmlvk.engine.compiled_graphs import elsewhere
from dmlvk.engine.numpy_types import dtype_of
from dmlvk.engine.trace import Label, Numbers, PackedTensor, Region, Spec, Trace
from dmlvk.engine.transfer import Array
from dmlvk.graph.passes import optimized
from dmlvk.graph.placement import Placement
from dmlvk.graph.step import Origin, Step, Storage
from dmlvk.graph.step_graph import DerivedConstants
from dmlvk.graph.views import Sizes, View
from dmlvk.llm.config import Weights, WeightTensor
from dmlvk.llm.gguf_file import dequantized
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform, TensorDataType
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.spec.ops.rotary import RotaryEmbedding
from dmlvk.spec.ops.sample_token import CONTROL_WORDS, SampleToken
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

_F32, _INT = TensorDataType.FLOAT32, TensorDataType.INT32
_MASKED: Final = -1e30


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


class Network:
    """A decoder network, as the engine knows one: a region that takes a step, and two for each size of prompts' pieces.

    Args:
        weights: The model.
        data_type: The type of activations, FLOAT16 or FLOAT32. What layers hand on is FLOAT32: that of some models grows
            beyond what FLOAT16 holds.
        capacity: Rows of each sequence's cache that count.
        sequences: Sequences.
        pieces: Rows of the pieces in which prompts come.

    Attributes:
        state: Tensors that outlive a run, by name: caches, lengths, the tokens that the next step appends, all tokens of
            each sequence, these among them, and how the next ones are chosen.
        caches: The names of the caches among them: {sequences, key heads, rows, head size}.
        step: The region that takes a step.
    """

    def __init__(
        self, weights: Weights, data_type: TensorDataType, capacity: int, sequences: int, pieces: Sequence[int]
    ) -> None:
        self._config = config = weights.config
        self._data_type = data_type
        self._sequences = sequences
        self._derived: DerivedConstants = {}
        self._weights = {name: _weight(tensor) for name, tensor in weights.tensors.items()}
        cache = (sequences, config.key_heads, capacity + max(pieces), config.head_size)
        self.state = {name: _made(_INT, (sequences,)) for name in ("tokens", "lengths")}
        self.state["history"] = _made(_INT, (sequences, capacity + 1))
        self.state["controls"] = _made(TensorDataType.UINT32, (sequences, CONTROL_WORDS))
        self.caches = [f"blk.{layer}.{name}" for layer in range(config.layers) for name in ("key", "value")]
        self.state |= {name: _made(data_type, cache) for name in self.caches}
        self._tables = {
            id(rotation): tuple(self._constant(table[None]) for table in rotation.tables(capacity))
            for rotation in config.rotations
        }
        self.step = Region((), frozenset(), ("logits",))
        self._pieces = {
            Region(("tokens", *(("last",) * (not every))), frozenset(), ("logits",)): (size, every)
            for size in pieces
            for every in (False, True)
        }

    @property
    def region_count(self) -> int:
        return 1 + len(self._pieces)

    def piece(self, size: int, every: bool) -> Region:
        """The region that feeds each sequence so many rows, for the logits of every row or of one row each.

        Its inputs: ``tokens``, of all sequences' rows, and of the second kind ``last``, the rows whose logits are wanted,
        counted over all sequences.
        """
        return next(region for region, own in self._pieces.items() if own == (size, every))

    def inputs(self, region: Region) -> dict[str, Sizes]:
        """The inputs of a region, INT32, and their sizes."""
        size, _ = self._pieces.get(region, (1, True))
        sizes = {"tokens": (self._sequences * size,), "last": (self._sequences,)}
        return {name: sizes[name] for name in region.inputs}

    def nbytes(self, regions: Sequence[Region]) -> int:
        """Bytes on the device that some regions take together: weights, state, and the arena in which they take turns,
        without the scratch of operators."""
        kept = {value.storage for value in self.state.values()}
        arena = 0
        for region in regions:
            specs = {name: (np.dtype(np.int32), sizes) for name, sizes in self.inputs(region).items()}
            trace = self.trace(region, specs, {})
            apart = elsewhere(trace)
            for step in trace.steps:
                if not step.runs_once:
                    kept |= {item for item in step.read() if item.constant is not None or item in apart}
            inputs = [value.storage for value in trace.inputs.values()]
            placement = Placement(trace.steps, inputs, trace.results(), [0] * len(trace.steps), apart=apart)
            arena = max(arena, placement.nbytes)
        return arena + sum(storage.nbytes for storage in kept)

    def trace(self, region: Region, specs: Mapping[str, Spec], host_values: Mapping[str, Array | Numbers]) -> Trace:
        rows, _ = self._pieces.get(region, (1, True))
        steps = _Steps()
        inputs = {name: _made(_INT, sizes) for name, (_, sizes) in specs.items()}
        logits = self._logits(steps, inputs.get("tokens", self.state["tokens"]), inputs.get("last"), rows)
        results = [logits.storage, *(state.storage for state in self.state.values())]
        kept = optimized(steps.steps, results, memory=self._derived)
        if region is self.step:
            kept = (*kept, *self._chosen(logits))
        labels = {step.origin: Label(step.origin.name, step.origin.op_type) for step in steps.steps}
        return Trace(
            kept,
            {name: value.packed() for name, value in inputs.items()},
            {"logits": logits.packed()},
            outside=frozenset(value.storage for value in self.state.values()),
            device_labels=labels,
        )

    def refusal(self, origin: Origin, error: UnsupportedError) -> UnsupportedError:
        return UnsupportedError(f"{origin.op_type} of {origin.name}: {error}")

    # -- the network

    def _logits(self, steps: _Steps, tokens: _Value, last: _Value | None, rows: int) -> _Value:
        """The logits of rows, {rows, vocabulary}: of those that ``last`` names, else of all."""
        config = self._config
        steps.part = Part("token_embd", "embedding")
        x = self._embedded(steps, tokens)
        positions = self._positions(steps, rows)
        for layer in range(config.layers):
            x = self._layer(steps, x, positions, layer)
        steps.part = Part("output", "logits")
        if last is not None:
            x = _rows(steps, x, last)
        x = self._normalised(steps, x, "output_norm")
        logits = self._product(steps, x, "output" if "output.weight" in self._weights else "token_embd", _F32)
        if cap := config.output_softcap:
            logits = steps.launch(
                ops.ActivationScaledTanh, {"input_tensor": logits}, logits.sizes, _F32, alpha=cap, beta=1 / cap
            )
        return logits

    def _layer(self, steps: _Steps, x: _Value, positions: _Value, layer: int) -> _Value:
        architecture, name = self._config.architecture, f"blk.{layer}"
        steps.part = Part(name, "attention")
        y = self._attention(steps, self._normalised(steps, x, f"{name}.attn_norm"), positions, layer)
        y = self._product(steps, y, f"{name}.attn_output", _F32)
        if architecture.post_norms:
            y = self._normalised(steps, y, f"{name}.post_attention_norm", _F32)
        x = steps.pointwise(ops.ElementWiseAdd, x, y)
        steps.part = Part(name, "feed_forward")
        y = self._normalised(steps, x, f"{name}.ffn_norm")
        gate, up = self._gate_and_up(steps, y, name)
        y = steps.pointwise(ops.ElementWiseMultiply, _activated(steps, architecture.activation, gate), up)
        y = self._product(steps, y, f"{name}.ffn_down", _F32)
        if architecture.post_norms:
            y = self._normalised(steps, y, f"{name}.post_ffw_norm", _F32)
        return steps.pointwise(ops.ElementWiseAdd, x, y)

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

    def _attention(self, steps: _Steps, x: _Value, positions: _Value, layer: int) -> _Value:
        config, name = self._config, f"blk.{layer}"
        batch, size = self._sequences, config.head_size
        rows = x.sizes[0] // batch
        turned, counts = [], (config.heads, config.key_heads, config.key_heads)
        heads = [
            part.seen_as(batch, rows, count, size) for part, count in zip(self._heads(steps, x, name), counts, strict=True)
        ]
        for part, letter in zip(heads[:2], "qk", strict=True):
            if config.architecture.head_norms:
                part = self._normalised(steps, part, f"{name}.attn_{letter}_norm")
            turned.append(self._turned(steps, part, positions, layer))
        if config.windows[layer] or config.attention_softcap:
            raise UnsupportedError("windows and softcaps are to come")
        query, key, value = (part.seen_as(batch, rows, part.sizes[2] * size) for part in (*turned, heads[2]))
        y = steps.launch(
            ops.MultiheadAttention1,
            {
                "query_tensor": query,
                "key_tensor": key,
                "value_tensor": value,
                "past_sequence_lengths_tensor": self.state["lengths"],
            },
            query.sizes,
            self._data_type,
            {f"output_present_{part}_tensor": self.state[f"{name}.{part}"] for part in ("key", "value")},
            scale=config.attention_scale,
            mask_filter_value=_MASKED,
            query_head_count=config.heads,
            key_value_head_count=config.key_heads,
        )
        return y.seen_as(batch * rows, config.heads * size)

    def _turned(self, steps: _Steps, x: _Value, positions: _Value, layer: int) -> _Value:
        cosines, sines = self._tables[id(self._config.rotations[layer])]
        inputs = {"input_tensor": x, "cosines_tensor": cosines, "sines_tensor": sines, "positions_tensor": positions}
        interleaved = self._config.architecture.interleaved
        return steps.launch(RotaryEmbedding, inputs, x.sizes, self._data_type, interleaved=interleaved)

    def _positions(self, steps: _Steps, rows: int) -> _Value:
        """The place of each row in its sequence: {sequences, rows}."""
        sizes = (self._sequences, rows)
        lengths = self.state["lengths"].seen_as(self._sequences, 1).repeated(*sizes)
        counted = _made(_INT, (1, rows), np.arange(rows, dtype=np.int32)[None]).repeated(*sizes)
        return steps.pointwise(ops.ElementWiseAdd, lengths, counted)

    def _embedded(self, steps: _Steps, tokens: _Value) -> _Value:
        x = _rows(steps, self._in_type(steps, self._weights["token_embd.weight"], self._data_type), tokens)
        x = _cast(steps, x, _F32)
        if self._config.architecture.scaled_embeddings:
            scale = _made(_F32, (1, 1), np.full((1, 1), math.sqrt(self._config.width), np.float32))
            x = steps.pointwise(ops.ElementWiseMultiply, x, scale.repeated(*x.sizes))
        return x

    def _normalised(self, steps: _Steps, x: _Value, name: str, data_type: TensorDataType | None = None) -> _Value:
        """The last dimension divided by the root of its mean square, times a weight."""
        data_type = data_type or self._data_type
        scale = self._in_type(steps, self._weights[f"{name}.weight"], x.desc.data_type)
        y = steps.launch(
            ops.MeanVarianceNormalization2,
            {"input_tensor": x, "scale_tensor": scale.seen_as(*(1,) * (len(x.sizes) - 1), x.sizes[-1])},
            x.sizes,
            x.desc.data_type,
            axes=(len(x.sizes) - 1,),
            use_mean=False,
            use_variance=True,
            epsilon=self._config.epsilon,
        )
        return _cast(steps, y, data_type)

    def _product(self, steps: _Steps, x: _Value, name: str, data_type: TensorDataType | None = None) -> _Value:
        """Rows times a weight, {rows out, depth}, plus its bias where there is one."""
        own = x.desc.data_type
        weight = self._in_type(steps, self._weights[f"{name}.weight"], own)
        inputs = {"a_tensor": x, "b_tensor": weight}
        sizes = (x.sizes[0], weight.sizes[0])
        if bias := self._weights.get(f"{name}.bias"):
            inputs["c_tensor"] = self._in_type(steps, bias, own).seen_as(1, sizes[1]).repeated(*sizes)
        y = steps.launch(ops.Gemm, inputs, sizes, own, trans_b=MatrixTransform.TRANSPOSE)
        return _cast(steps, y, data_type or own)

    def _chosen(self, logits: _Value) -> list[Step]:
        """The steps behind all others, which passes leave alone: they write what those read."""
        steps = _Steps()
        steps.part = Part("output", "choice")
        inputs = {f"{name}_tensor": self.state[name] for name in ("controls", "history", "lengths")}
        outputs = {f"output_{name}_tensor": self.state[name] for name in ("history", "lengths")}
        steps.into(self.state["tokens"], SampleToken, {"logits_tensor": logits, **inputs, **outputs}, pending=1)
        return steps.steps

    # -- weights

    def _constant(self, table: Array) -> _Value:
        return _made(self._data_type, table.shape, table.astype(dtype_of(self._data_type)))

    def _in_type(self, steps: _Steps, weight: _Value, data_type: TensorDataType) -> _Value:
        """A weight in another type: made of it once, on the device."""
        if weight.desc.data_type is not TensorDataType.UINT16:
            return _cast(steps, weight, data_type)
        inputs = {"input_tensor": weight}
        return steps.launch(FormatCast, inputs, weight.sizes, data_type, format=NumberFormat.BFLOAT16)


_TYPES: Final = {
    "F32": (TensorDataType.FLOAT32, np.float32),
    "F16": (TensorDataType.FLOAT16, np.float16),
    "BF16": (TensorDataType.UINT16, np.uint16),
}


def _weight(tensor: WeightTensor) -> _Value:
    if tensor.type not in _TYPES:
        return _made(_F32, tensor.sizes, dequantized(tensor))
    data_type, dtype = _TYPES[tensor.type]
    return _made(data_type, tensor.sizes, tensor.data.view(dtype).reshape(tensor.sizes))


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
