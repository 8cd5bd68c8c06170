"""Models over the rows of a ``ray.data.Dataset``, on all devices of a cluster."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import ray
import ray.data

from dmlvk.directml.device import Device
from dmlvk.onnx.batches import Batches, of_type
from dmlvk.onnx.options import SessionOptions
from dmlvk.onnx.session import InferenceSession
from dmlvk.ray.devices import RESOURCE, assigned_device
from dmlvk.ray.shared_model import ModelSource, files_of
from dmlvk.spec.errors import (
    DeviceLostError,
    InvalidArgumentError,
    ModelError,
    NoDeviceError,
    OutOfDeviceMemoryError,
    WaitTimeoutError,
)

Column = npt.NDArray[Any]
Batch = dict[str, Column]

_FAILURES: Final = (DeviceLostError, OutOfDeviceMemoryError, WaitTimeoutError)
"""What a new process, with the device opened anew, may not meet again."""


class Predictor:
    """A callable class for ``Dataset.map_batches``, in an actor that has a device."""

    _worked = False

    @contextmanager
    def new_process_on_failure(self) -> Iterator[None]:
        """Ends the process where the device fails inside, so that Ray starts another one, which opens the device anew, and
        hands it the batch again. A batch with which a new process begins and fails, too, raises its error."""
        try:
            yield
        except _FAILURES:
            if not self._worked and ray.get_runtime_context().was_current_actor_reconstructed:
                raise
            traceback.print_exc()
            print("dmlvk.ray: the device has failed: the batch is run again in a new process", file=sys.stderr, flush=True)
            os._exit(1)
        self._worked = True


class OnnxPredictor(Predictor):
    """An ONNX model for ``Dataset.map_batches``; see ``predict``.

    Rows are items along the first axis of the model's inputs and outputs. A batch is cut and filled up to what the model
    takes; rows whose arrays differ in shape go in batches of one shape each.

    Args:
        model: The path of a file that each node has, or what ``share`` has made of one.
        inputs: The column of each input; None for columns of the inputs' names, or for one input the only column.
        outputs: The outputs that become columns of their names, None for all. The columns of inputs go, others stay.
        max_batch: The most rows that the device is given at once where the model leaves it open, None for all of a batch.
        options: The session's; None for ``SessionOptions(map_files=True)``: a node has the weights in its memory once.

    Raises:
        StateError, NoDeviceError: see ``assigned_device``; and what ``InferenceSession`` raises.
        UnsupportedError: the model's inputs have no axis of items.
        ModelError: it has no such inputs or outputs.
    """

    def __init__(
        self,
        model: ModelSource,
        *,
        inputs: Mapping[str, str] | None = None,
        outputs: Sequence[str] | None = None,
        max_batch: int | None = None,
        options: SessionOptions | None = None,
    ) -> None:
        device = assigned_device()
        self._session = session_on(device, model, options)
        known = {info.name: info for info in self._session.get_outputs()}
        self._outputs = list(known if outputs is None else outputs)
        if missing := [name for name in self._outputs if name not in known]:
            raise ModelError(f"the model has no output {missing[0]!r}; its outputs are {', '.join(sorted(known))}")
        self._inputs = {info.name: info for info in self._session.get_inputs()}
        if inputs is not None and inputs.keys() != self._inputs.keys():
            raise ModelError(f"inputs must say a column for each of {sorted(self._inputs)}; it has {sorted(inputs)}")
        self._columns = inputs
        self._batches = Batches(list(self._inputs.values()), [known[name] for name in self._outputs], max_batch)

    def __call__(self, batch: Batch) -> Batch:
        """The rows with the model's outputs, in their order."""
        columns = self._columns or self._found(batch)
        if missing := [column for column in columns.values() if column not in batch]:
            raise ModelError(f"the rows have no column {missing[0]!r}; they have {', '.join(map(repr, batch))}")
        feeds = {name: batch[column] for name, column in columns.items()}
        kept = {name: items for name, items in batch.items() if name not in columns.values()}
        if taken := kept.keys() & set(self._outputs):
            raise ModelError(f"the rows have a column {min(taken)!r} already, which is an output's name")
        count = len(next(iter(feeds.values())))
        rows: list[list[npt.NDArray[Any]]] = [[] for _ in range(count)]
        with self.new_process_on_failure():
            for places in _of_one_shape(feeds, count):
                part = {name: of_type(self._inputs[name], _array(items[places])) for name, items in feeds.items()}
                made = self._batches.run(lambda batch: self._session.run(self._outputs, batch), part)
                if len(places) == count:
                    return {**kept, **dict(zip(self._outputs, made, strict=True))}
                for index, place in enumerate(places):
                    rows[place] = [output[index] for output in made]
        return {**kept, **{name: _column([row[index] for row in rows]) for index, name in enumerate(self._outputs)}}

    def _found(self, batch: Batch) -> Mapping[str, str]:
        if len(self._inputs) == len(batch) == 1:
            return dict(zip(self._inputs, batch, strict=True))
        return {name: name for name in self._inputs}


def session_on(device: Device, model: ModelSource, options: SessionOptions | None = None) -> InferenceSession:
    """A session whose weights all processes of the node share, unless the options say otherwise."""
    return InferenceSession(files_of(model), device, options or SessionOptions(map_files=True))


def _array(items: Column) -> Column:
    return np.stack([np.asarray(item) for item in items]) if items.dtype == object else items


def _of_one_shape(feeds: Mapping[str, Column], count: int) -> list[list[int]]:
    """The places of rows whose arrays have the same shapes."""
    ragged = [items for items in feeds.values() if items.dtype == object]
    if not ragged:
        return [list(range(count))] if count else []
    found: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for place in range(count):
        found.setdefault(tuple(np.shape(items[place]) for items in ragged), []).append(place)
    return list(found.values())


def _column(items: list[Any]) -> Column:
    """A column of rows: one array where they have one shape."""
    if items and len({item.shape for item in items}) == 1:
        return np.stack(items)
    column = np.empty(len(items), object)
    column[:] = items
    return column


class LlmPredictor(Predictor):
    """A language model for ``Dataset.map_batches``; see ``predict``. Prompts of a batch are continued together.

    Args:
        model: The path of a file, or of a folder, that each node has, or what ``share`` has made of one.
        prompt: The column of prompts: texts, or conversations as ``Model.chat`` takes them.
        answer: The column that gets the answers.
        max_new_tokens: The most tokens of an answer.
        sequences: Prompts that are continued at once, see ``dmlvk.llm.load``.
        capacity: Tokens of a prompt and its answer, see there.
        options: ``stop``, ``temperature``, ``seed`` and the others of ``Model.generate``. A seed is the same for all rows,
            so that an answer does not depend on the rows beside it.

    Raises:
        StateError, NoDeviceError: see ``assigned_device``; and what ``dmlvk.llm.load`` raises.
    """

    def __init__(
        self,
        model: ModelSource,
        *,
        prompt: str = "prompt",
        answer: str = "answer",
        max_new_tokens: int = 256,
        sequences: int = 1,
        capacity: int | None = None,
        **options: Any,
    ) -> None:
        from dmlvk.llm.model import load  # here: ONNX models do not need its packages

        device = assigned_device()
        self._model = load(files_of(model), device, capacity=capacity, sequences=sequences)
        self._prompt, self._answer, self._most, self._options = prompt, answer, max_new_tokens, options

    def __call__(self, batch: Batch) -> Batch:
        """The rows with their answers, in their order."""
        if self._prompt not in batch:
            raise ModelError(f"the rows have no column {self._prompt!r}; they have {', '.join(map(repr, batch))}")
        prompts = [item if isinstance(item, str) else self._model.prompt(list(item)) for item in batch[self._prompt]]
        answers: list[list[str]] = [[] for _ in prompts]
        with self.new_process_on_failure():
            for index, piece in self._model.generate_batch(prompts, self._most, **self._options):
                answers[index].append(str(piece))
        return {**batch, self._answer: np.array(["".join(pieces) for pieces in answers], object)}


def predict(
    dataset: ray.data.Dataset,
    predictor: type[Predictor],
    model: ModelSource,
    *,
    batch_size: int = 32,
    num_devices: float = 1,
    workers: int | None = None,
    num_cpus: float = 1,
    **arguments: Any,
) -> ray.data.Dataset:
    """A dataset with what a model makes of its rows, in their order: each device of the cluster has a copy of the model.

    Nothing runs before the result is read. A process that ends, with its device or without, is started again, and its batch
    is run again: no row is lost, and none is there twice.

    Args:
        dataset: The rows.
        predictor: ``OnnxPredictor`` or ``LlmPredictor``, or a class of your own that is derived from one.
        model: Its model.
        batch_size: Rows that a predictor is given at once.
        num_devices: The share of a device that a copy takes, at most 1.
        workers: The most copies, None for as many as the nodes have devices now.
        num_cpus: Processors that a copy takes, for Ray's count.
        arguments: What else the predictor takes.

    Raises:
        NoDeviceError: no node has announced devices; see ``resources``.
        InvalidArgumentError: a share that is not more than 0 and at most 1, or less than one worker.
    """
    if not 0 < num_devices <= 1:
        raise InvalidArgumentError("must be more than 0 and at most 1", field="num_devices", value=num_devices)
    if workers is not None and workers < 1:
        raise InvalidArgumentError("must be at least 1, or None", field="workers", value=workers)
    most = int(ray.cluster_resources().get(RESOURCE, 0) / num_devices) if workers is None else workers
    if not most:
        raise NoDeviceError("no node of the cluster has announced Vulkan devices: ray.init(resources=dmlvk.ray.resources())")
    made = dataset.map_batches(
        predictor,
        fn_constructor_args=(model,),
        fn_constructor_kwargs=arguments,
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=most, initial_size=most),
        num_cpus=num_cpus,
        resources={RESOURCE: num_devices},
    )
    made.context.execution_options.preserve_order = True
    return made
