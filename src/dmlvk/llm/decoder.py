"""A language model on a device: its weights, a cache of keys and values, and the plans that feed it and step it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dmlvk.engine.compiled_graphs import CompiledGraph
from dmlvk.engine.copies import Copy, recorded_copies
from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.engine.numpy_types import data_type_of, dtype_of
from dmlvk.engine.run import Account, Run
from dmlvk.engine.trace import Region
from dmlvk.engine.transfer import Array
from dmlvk.graph.step import Storage
from dmlvk.llm.config import Weights
from dmlvk.llm.network import Network, Wanted
from dmlvk.llm.sampling import Sampling
from dmlvk.llm.tensors import check_tensors
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.recorder import BoundRange, Recording
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, OutOfDeviceMemoryError, StateError
from dmlvk.spec.ops.sample_token import sampling_words
from dmlvk.spec.tensor import element_bits

Tokens = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]
_PIECES: Final = (8, 32, 128, 512)
"""Rows of the pieces in which prompts come; but for the first, those of all their sequences together are no more than the
last."""
_LARGEST_PIECE: Final = 2048
"""The rows of one more, where matrices are multiplied by hardware of their own: elsewhere it takes memory, and no product is
faster for it."""
_MOST_READ: Final = 1 << 20
"""Most tokens of the history that are read at once for what several sequences have chosen."""
_WASTE: Final = 2
"""How many times as much as in the best pieces a row may cost in those that are filled up least."""


class Told(NamedTuple):
    """How probable tokens were that a step has chosen, by the model itself: before penalties and all else.

    Attributes:
        logprobs: The natural logarithm of the probability of each sequence's token: (sequences, 1).
        top_tokens: The most probable tokens of each, the best first, of equal ones the first: (sequences, tokens).
        top_logprobs: Theirs.
    """

    logprobs: Array
    top_tokens: Array
    top_logprobs: Array


class _Piece(NamedTuple):
    """What is fed at once.

    Attributes:
        places: The sequences that get it: one or all.
        parts: The tokens of each of them.
        size: The rows of each.
    """

    places: Sequence[int]
    parts: Sequence[Sequence[int]]
    size: int


class _Costs:
    """What pieces of some sequences cost, in microseconds, by their rows."""

    def __init__(self, costs: Mapping[int, float]) -> None:
        self._costs = costs
        self._most = max(costs)
        best = self._best = [(0.0, 0)]
        for count in range(1, self._most):
            best.append(min((cost + best[max(count - size, 0)][0], -size) for size, cost in costs.items()))

    def of(self, count: int) -> float:
        """What so many tokens of each sequence cost at least: what is filled up costs time, and so does each piece."""
        whole, rest = divmod(count, self._most)
        return whole * self._costs[self._most] + self._best[rest][0]

    def first(self, count: int) -> int:
        """The rows of the first piece where they cost that."""
        return self._most if count >= self._most else -self._best[count][1]

    @property
    def usual(self) -> int:
        """The fewest rows of a piece that are not much dearer by the row than others."""
        least = min(cost / size for size, cost in self._costs.items())
        return min(size for size, cost in self._costs.items() if cost / size <= _WASTE * least)


@dataclass(frozen=True)
class Steps:
    """Steps that the device takes while the host goes on.

    Attributes:
        parts: By the sequence, what gives bytes among which its tokens are, and the place of the first there.
        count: Steps.
        sequences: Those of the decoder.
    """

    parts: Mapping[int, tuple[Callable[[], npt.NDArray[np.uint8]], int]]
    count: int
    sequences: int

    def tokens(self) -> Tokens:
        """The chosen tokens, (count, sequences), once they have come."""
        chosen = np.zeros((self.count, self.sequences), np.int32)
        for sequence, (take, first) in self.parts.items():
            chosen[:, sequence] = take().view(np.int32)[first : first + self.count]
        return chosen


class Decoder:
    """A model with the cache of some sequences, which take their steps together. Not for several threads at once.

    Args:
        device: The device.
        weights: The model.
        capacity: Rows of each sequence's cache, the most tokens that it can have; at most what the model was made for.
        sequences: Sequences.
        data_type: The type of activations and of the cache, FLOAT16 or FLOAT32; what the device is good at where None.

    Attributes:
        has_logprobs: True: ``step_told`` is there.
        begins_steps: True: ``begin_steps`` is there.
        config: The model's numbers.
        capacity: As given.
        nbytes: Bytes on the device: weights, cache and all else, but for the logits of every row, and
            log-probabilities, while they are asked for.
        pieces: Rows of the pieces in which a sequence's prompt can come alone, fewest first.
        usual_piece: The one of them for prompts of any length that come in pieces of one size: the fewest rows that cost,
            by the device's model, at most twice as much each as in the best.
        lengths: For each sequence, the rows of its cache that count. What follows them in the cache is without effect.

    Raises:
        InvalidArgumentError: a capacity that the model was not made for, or less than one sequence.
        UnsupportedError: a weight of a type, or an architecture, for which there are no kernels.
        OutOfDeviceMemoryError: the device has not got as much memory as is needed; none is taken then.
    """

    has_logprobs = True
    begins_steps = True

    def __init__(
        self,
        device: ComputeDevice,
        weights: Weights,
        *,
        capacity: int,
        sequences: int = 1,
        data_type: TensorDataType | None = None,
    ) -> None:
        self.config = config = weights.config
        _require(
            "capacity", 1 <= capacity <= config.context, f"must be 1 to {config.context}, the model's context", capacity
        )
        _require("sequences", sequences >= 1, "must be at least 1", sequences)
        check_tensors(weights)
        self.capacity = capacity
        self.lengths = [0] * sequences
        self._device = device
        pieces = {count: _pieces(device, capacity, count) for count in (1, sequences)}
        self.pieces = pieces[1]
        self._network = Network(weights, data_type or _suited(device), capacity, sequences, pieces)
        network = self._network
        outside: dict[Storage, BoundRange] = {}
        graphs = self._graphs = CompiledGraphs(device, network, capacity=1, outside=outside)
        largest = [network.piece(sizes[-1], Wanted.LAST, count) for count, sizes in pieces.items()]
        regions = (network.step, *largest)
        traces = [network.trace(region, network.inputs(region), {}) for region in regions]
        state = sum(value.storage.nbytes for value in network.state.values())
        self.nbytes = state + graphs.compiler.needed_bytes(traces)
        steps = len(traces[0].steps)
        self._costs = {count: _costs(device, weights, sizes, count, steps) for count, sizes in pieces.items()}
        self.usual_piece = self._costs[1].usual
        _check_room(device, self.nbytes)
        self._state = {
            name: BoundRange(device.create_buffer(value.storage.nbytes), 0, value.storage.nbytes)
            for name, value in network.state.items()
        }
        outside.update((network.state[name].storage, place) for name, place in self._state.items())
        self._run = Run(device, graphs, Account({}), data_type_of)
        self._recordings: list[Recording] = []
        self._taken = range(0)  # of them, by the last steps
        """Of a step, the graph's own first."""
        self._on_device: list[int] = []  # the lengths that the device has
        self._sampling: list[Sampling | None] = []
        self._has_tokens = False  # whether a step has left the tokens of the next one on the device

    def feed(self, tokens: Sequence[Sequence[int]], *, all_logits: bool = False) -> list[Logits]:
        """Appends tokens to the sequences, in pieces.

        Args:
            tokens: For each sequence its new tokens, none where it is to stay as it is.
            all_logits: Whether the logits of each new token are wanted, not only those of the last.

        Returns:
            For each sequence the logits of its new tokens, or of the last of them: (rows, vocabulary). There are none of a
            sequence without new tokens.

        Raises:
            InvalidArgumentError: a token that the model has not, or more of them than the cache has room for. Nothing has
                changed then.
        """
        found: list[list[Logits]] = [[] for _ in tokens]
        left = [len(own) for own in tokens]
        for piece in self._pieces_of(tokens, None):
            ends = []
            for place, part in zip(piece.places, piece.parts, strict=True):
                left[place] -= len(part)
                ends.append(bool(part) and not left[place])
            if all_logits or any(ends):
                for place, logits, wanted in zip(piece.places, self._fed(piece, all_logits), ends, strict=True):
                    found[place] += [logits] * (all_logits or wanted)
            else:
                self._submit_piece(piece, Wanted.NONE)
        none = np.empty((0, self.config.vocabulary), np.float32)
        return [np.concatenate(own) if own else none for own in found]

    def extend(self, tokens: Sequence[Sequence[int]], rows: int | None = None) -> None:
        """As ``feed``, without logits: nothing is read or waited for.

        Args:
            tokens: As of ``feed``.
            rows: One of ``pieces``: each sequence's tokens come alone, in pieces of so many rows, however few they are. Then
                what its cache holds of them has the same bits, whatever comes for other sequences.
        """
        for piece in self._pieces_of(tokens, rows):
            self._submit_piece(piece, Wanted.NONE)

    def _pieces_of(self, tokens: Sequence[Sequence[int]], rows: int | None) -> Iterator[_Piece]:
        """The tokens in pieces: each sequence's alone, in so many rows; where None, in whatever takes least time."""
        _require("tokens", len(tokens) == len(self.lengths), f"must be {len(self.lengths)} lists", len(tokens))
        for sequence, new in enumerate(tokens):
            self._check_tokens(new)
            self._check_room(sequence, len(new))
        alone, together = self._costs[1], self._costs[len(tokens)]
        done, common = 0, 0 if rows else self._together(list(map(len, tokens)))
        while done < common:
            size = together.first(common - done)
            yield _Piece(range(len(tokens)), [new[done : min(done + size, common)] for new in tokens], size)
            done += size
        for sequence, new in enumerate(tokens):
            done = common
            while done < len(new):
                size = rows or alone.first(len(new) - done)
                yield _Piece((sequence,), (new[done : done + size],), size)
                done += size

    def _together(self, counts: Sequence[int]) -> int:
        """How many tokens of each sequence come together with those of all others, before what is left of each comes alone:
        a piece of all costs as much whoever has tokens, and one of each reads all weights."""
        if len(counts) == 1:
            return 0
        alone, together = self._costs[1], self._costs[len(counts)]
        return min(
            sorted({0, *counts}), key=lambda common: together.of(common) + sum(alone.of(max(n - common, 0)) for n in counts)
        )

    def _fed(self, piece: _Piece, every: bool) -> list[Logits]:
        """The logits of one piece: of every row, or of the last that is no padding."""
        logits = self._read(self._submit_piece(piece, Wanted.EVERY if every else Wanted.LAST), "logits")
        parts = piece.parts
        if every:
            return [own[: len(part)] for own, part in zip(np.split(logits, len(parts)), parts, strict=True)]
        return [logits[row : row + bool(part)] for row, part in enumerate(parts)]

    def _submit_piece(self, piece: _Piece, wanted: Wanted) -> CompiledGraph:
        places, parts, size = piece
        padded = np.zeros((len(parts), size), np.int32)
        for row, part in zip(padded, parts, strict=True):
            row[: len(part)] = part
        last = np.array([max(len(part), 1) - 1 + size * row for row, part in enumerate(parts)], np.int32)
        for sequence, part in zip(places, parts, strict=True):
            self._remember(sequence, part)
        region = self._network.piece(size, wanted, len(places))
        feeds = {"tokens": padded.reshape(-1), "last": last}
        if len(places) < len(self.lengths):
            self._graphs.bind(self._alone(places[0]))
        graph = self._ready(region)
        self._run.submit(graph, {name: feeds[name] for name in region.inputs})
        new = dict(zip(places, map(len, parts), strict=True))
        self.lengths = [length + new.get(sequence, 0) for sequence, length in enumerate(self.lengths)]
        return graph

    def _alone(self, sequence: int) -> dict[Storage, BoundRange]:
        """Where that lies which a piece of one sequence has."""
        found = {}
        for name, value in self._network.alone.items():
            buffer, nbytes = self._state[name].buffer, value.desc.total_tensor_size_in_bytes
            found[value.storage] = BoundRange(buffer, sequence * nbytes, nbytes)
        return found

    def step(self, sampling: Sequence[Sampling | None], tokens: Sequence[int] | None = None) -> Tokens:
        """Appends one token to each sequence and chooses the next one of each, on the device.

        Args:
            sampling: For each sequence how its token is chosen; None for one that is to stay as it is.
            tokens: The tokens to append, such as the last ones of prompts; those that the last step has chosen where None,
                which the host need not send.

        Returns:
            The chosen tokens, one for each sequence; those of sequences without sampling mean nothing. None of them is
            part of its sequence before the next step.

        Raises:
            InvalidArgumentError: a sequence has no room, or a token is none of the model's. Nothing has changed then.
            StateError: no tokens, and no step that has succeeded before.
        """
        self._append(sampling, tokens)
        self._submit_steps(sampling, 1)
        return self._chosen()

    def step_told(self, sampling: Sequence[Sampling | None], tokens: Sequence[int] | None = None) -> tuple[Tokens, Told]:
        """As ``step``, which chooses the same tokens, with how probable they were.

        Args:
            sampling, tokens: As of ``step``.

        Raises:
            InvalidArgumentError, StateError: as ``step``.
        """
        self._append(sampling, tokens)
        self._place_sampling(sampling)
        graph = self._ready(self._network.told_step)
        self._on_device, self._has_tokens = [], False  # until it is submitted
        self._run.submit(graph, {})
        self._have_stepped(sampling, 1)
        return self._chosen(), Told(*(self._read(graph, name) for name in ("logprobs", "top_tokens", "top_logprobs")))

    def _append(self, sampling: Sequence[Sampling | None], tokens: Sequence[int] | None) -> None:
        """Puts the tokens that the next step appends where it reads them."""
        self._check_sampling(sampling, 1)
        if tokens is None:
            self._check_has_tokens()
        else:
            _require("tokens", len(tokens) == len(self.lengths), f"must be {len(self.lengths)}", len(tokens))
            self._check_tokens(tokens)
            self._has_tokens = False  # until they are steps': those that the last one has left are overwritten
            self._place("tokens", np.array(tokens, np.int32))
            for sequence, token in enumerate(tokens):
                self._remember(sequence, [token])

    def _chosen(self) -> Tokens:
        """The tokens that the last step has chosen."""
        place = self._state["tokens"]
        return place.buffer.read(place.nbytes, place.offset).view(np.int32)

    def begin_steps(self, sampling: Sequence[Sampling | None], count: int) -> Steps:
        """As many times ``step`` without tokens: the device goes on without waiting for the host, which takes the tokens of
        all of them later. More steps may be begun before that. (Of the 8B shape in Q4_0 an H200 waited 0.3 ms between any
        eight, where the host took those first.)

        Args:
            sampling: As of ``step``.
            count: Steps.

        Raises:
            InvalidArgumentError: a sequence has no room for so many. Nothing has changed then.
            StateError: no step has succeeded before.
        """
        self._check_sampling(sampling, count)
        self._check_has_tokens()
        starts = [length + 1 for length in self.lengths]  # in the history, which has the token that is to be appended
        self._submit_steps(sampling, count)
        room = self._network.state["history"].sizes[1]
        places = {number: number * room + starts[number] for number, own in enumerate(sampling) if own is not None}
        first, end = min(places.values(), default=0), max(places.values(), default=0) + count
        size, history = np.dtype(np.int32).itemsize, self._state["history"]
        parts: dict[int, tuple[Callable[[], npt.NDArray[np.uint8]], int]] = {}
        if 0 < end - first <= _MOST_READ:
            take = history.buffer.begin_read((end - first) * size, history.offset + first * size).result
            parts = {number: (take, place - first) for number, place in places.items()}
        else:  # far apart: each by itself, which waits for what has been begun since, too
            parts = {
                number: (functools.partial(history.buffer.read, count * size, history.offset + place * size), 0)
                for number, place in places.items()
            }
        return Steps(parts, count, len(sampling))

    def _check_has_tokens(self) -> None:
        if not self._has_tokens:
            raise StateError("step needs tokens: no step before it has left any on the device")

    def _check_sampling(self, sampling: Sequence[Sampling | None], count: int) -> None:
        _require("sampling", len(sampling) == len(self.lengths), f"must be {len(self.lengths)}", len(sampling))
        for sequence, own in enumerate(sampling):
            self._check_room(sequence, 0 if own is None else count)

    def _submit_steps(self, sampling: Sequence[Sampling | None], count: int) -> None:
        self._place_sampling(sampling)
        graph = self._ready(self._network.step)
        # A recording waits for its own last submit, so each step in flight has one: those of the steps begun before may be.
        first = self._graphs.recorded(graph)
        if self._recordings[:1] != [first]:
            self._recordings, self._taken = [first], range(0)
        is_first = count == 1 or self._taken.start > 0
        self._taken = range(count) if is_first else range(self._taken.stop, self._taken.stop + count)
        while len(self._recordings) < self._taken.stop:
            self._recordings.append(self._graphs.record(graph)[0])
        self._on_device, self._has_tokens = [], False  # until all are submitted: one of them may fail
        for number, recording in enumerate(self._recordings[self._taken.start : self._taken.stop]):
            # The device starts with the first of several while the host submits the others: 11 us less a token of the 8B
            # shape on an H200, by eight. One alone goes with the read that follows.
            recording.submit(defer=number > 0 or count == 1)
        self._have_stepped(sampling, count)

    def _place_sampling(self, sampling: Sequence[Sampling | None]) -> None:
        if [*sampling] != self._sampling:
            words = [sampling_words(active=False) if own is None else sampling_words(**vars(own)) for own in sampling]
            self._sampling = []  # until it is there
            self._place("controls", np.array(words, np.uint32))
            self._sampling = [*sampling]

    def _have_stepped(self, sampling: Sequence[Sampling | None], count: int) -> None:
        self.lengths = [length + (0 if own is None else count) for length, own in zip(self.lengths, sampling, strict=True)]
        self._on_device, self._has_tokens = [*self.lengths], True

    def truncate(self, sequence: int, length: int) -> None:
        """Cuts a sequence back to its first tokens.

        Raises:
            InvalidArgumentError: it is shorter.
        """
        own = self.lengths[sequence]
        _require("length", 0 <= length <= own, f"must be 0 to {own}", length)
        self.lengths = [*self.lengths[:sequence], length, *self.lengths[sequence + 1 :]]

    def share(self, source: int, target: int, length: int) -> None:
        """Makes the first tokens of a sequence another one's beginning, which becomes as long.

        Raises:
            InvalidArgumentError: the source is shorter.
        """
        own = self.lengths[source]
        _require("length", 0 <= length <= own, f"must be 0 to {own}", length)
        if source != target and length:
            copies = []
            for name in ("history", *self._network.caches):
                desc, buffer = self._network.state[name].desc, self._state[name].buffer
                heads, room, size = (1, desc.sizes[1], 1) if name == "history" else desc.sizes[1:]
                row = size * element_bits(desc.data_type) // 8
                for head in range(heads):
                    one, other = ((own * heads + head) * room * row for own in (source, target))
                    copies.append(Copy(BoundRange(buffer, one, length * row), BoundRange(buffer, other, length * row)))
            recording = recorded_copies(self._device, copies)
            self.truncate(target, 0)  # until it is there: one who is interrupted must not take its old tokens for kept
            recording.submit(defer=True)
        self.lengths = [*self.lengths[:target], length, *self.lengths[target + 1 :]]

    # -- runs

    def _ready(self, region: Region) -> CompiledGraph:
        """The graph of a region, with the lengths on the device."""
        graph = self._graphs.get(region, self._network.inputs(region), {})
        if self.lengths != self._on_device:
            self._on_device = []
            self._place("lengths", np.array(self.lengths, np.int32))
            self._on_device = [*self.lengths]
        return graph

    def _read(self, graph: CompiledGraph, name: str) -> Array:
        """An output of a graph that has been submitted."""
        result = graph.trace.outputs[name]
        assert not isinstance(result, np.ndarray), "outputs are computed on the device"
        place = self._graphs.locate(graph, result.storage)
        return place.buffer.read(place.nbytes, place.offset).view(dtype_of(result.data_type)).reshape(result.sizes)

    def _place(self, name: str, values: Array, offset: int = 0) -> None:
        """Writes to a tensor that outlives runs."""
        place = self._state[name]
        place.buffer.write(values, place.offset + offset)

    def _remember(self, sequence: int, tokens: Sequence[int]) -> None:
        """Makes tokens those that follow a sequence's in its history."""
        if tokens:
            start = sequence * (self.capacity + 1) + self.lengths[sequence]
            self._place("history", np.array(tokens, np.int32), start * np.dtype(np.int32).itemsize)

    def _check_tokens(self, tokens: Sequence[int]) -> None:
        known = self.config.vocabulary
        wrong = next((token for token in tokens if not 0 <= token < known), 0)
        _require("tokens", wrong == 0, f"must be 0 to {known - 1}", wrong)

    def _check_room(self, sequence: int, count: int) -> None:
        room = self.capacity - self.lengths[sequence]
        rule = f"must fit the {room} rows that sequence {sequence} has left of the capacity of {self.capacity}"
        _require("tokens", count <= room, rule, count)


def _require(field: str, good: bool, rule: str, value: object) -> None:
    if not good:
        raise InvalidArgumentError(rule, operator="Decoder", field=field, value=value)


def _pieces(device: ComputeDevice, capacity: int, sequences: int) -> list[int]:
    """Rows of the pieces in which prompts come: none much larger than a cache, nor too many of all sequences together."""
    sizes = (*_PIECES, _LARGEST_PIECE) if _has_matrices(device) else _PIECES
    found = list(sizes[:1])
    for size in sizes[1:]:
        if found[-1] < capacity and size * sequences <= sizes[-1]:
            found.append(size)
    return found


def _costs(device: ComputeDevice, weights: Weights, pieces: Sequence[int], sequences: int, dispatches: int) -> _Costs:
    """What the device's model says of pieces of so many sequences: of their dispatches, and of reading all matrices or
    multiplying with them."""
    model = device.capabilities.model
    matrices = [tensor for name, tensor in weights.tensors.items() if len(tensor.sizes) > 1 and name != "token_embd.weight"]
    reading = sum(tensor.data.nbytes for tensor in matrices) / model.bytes_per_microsecond
    rate = (model.half_products_per_microsecond or model.products_per_microsecond) * model.processors
    row = sequences * sum(math.prod(tensor.sizes) for tensor in matrices) / rate
    return _Costs({size: dispatches * model.dispatch_microseconds + max(reading, size * row) for size in pieces})


def _has_matrices(device: ComputeDevice) -> bool:
    """Whether matrices of FLOAT16 are multiplied by hardware of their own."""
    return device.capabilities.model.half_products_per_microsecond is not None


def _suited(device: ComputeDevice) -> TensorDataType:
    """FLOAT16 where it has matrices."""
    return TensorDataType.FLOAT16 if _has_matrices(device) else TensorDataType.FLOAT32


def _check_room(device: ComputeDevice, nbytes: int) -> None:
    """Raises OutOfDeviceMemoryError where so many bytes are more than there are, as far as the driver tells."""
    memory = device.memory()
    free = [memory["budget"] - memory["usage"]] if "budget" in memory else []
    if device.max_memory_bytes is not None:
        free.append(device.max_memory_bytes - memory["live"])
    if free and nbytes > min(free):
        raise OutOfDeviceMemoryError(
            f"the model and its cache need {nbytes} bytes of the device, which has {min(free)} left"
        )
