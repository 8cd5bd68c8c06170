"""Requests for one model, joined along the first dimension while it is busy."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dmlvk.serving.tensors import Array
from dmlvk.spec.errors import DeviceLostError, InvalidArgumentError, QueueFullError, StateError, VulkanError

if TYPE_CHECKING:
    from dmlvk.onnx.session import InferenceSession

Results = Sequence[Array]


@dataclass(frozen=True, eq=False)
class _Item:
    """A request.

    Attributes:
        feeds: Its inputs.
        outputs: The names of the outputs that it wants.
        rows: What it takes of a batch.
        key: What requests of one batch have in common.
        result: Where its results go.
    """

    feeds: Mapping[str, Array]
    outputs: tuple[str, ...]
    rows: int
    key: object
    result: Future[Results]


class Batches:
    """Runs a session for requests that come from any thread, in the order in which they come. Those of the same types and
    sizes that wait while the session is busy run together, and each gets its own rows.

    Args:
        session: The session, which nothing else uses meanwhile.
        most_rows: The most rows of a batch; 1 where requests must not be joined. That a model computes rows of the first
            dimension by themselves is for the caller to know; that its inputs and outputs leave it open is checked.
        most_waiting: The most requests that wait.

    Attributes:
        failure: Why the session is of no use any more; None while it is.

    Raises:
        InvalidArgumentError: requests cannot be joined.
    """

    def __init__(self, session: InferenceSession, *, most_rows: int = 1, most_waiting: int = 256) -> None:
        if most_rows < 1:
            raise InvalidArgumentError("must be at least 1", field="most_rows", value=most_rows)
        if most_rows > 1:
            for info in (*session.get_inputs(), *session.get_outputs()):
                if info.shape is not None and (not info.shape or isinstance(info.shape[0], int)):
                    rule = f"must be 1: the first dimension of {info.name!r} is not open, its shape is {info.shape}"
                    raise InvalidArgumentError(rule, field="most_rows", value=most_rows)
        self._session, self._most_rows, self._most_waiting = session, most_rows, most_waiting
        self.failure: Exception | None = None
        self._waiting: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="dmlvk-batches", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def submit(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Future[Results]:
        """Asks for outputs; a future that is cancelled is not computed where nothing has begun.

        Raises:
            QueueFullError: as many requests wait as may.
            StateError: there is no session any more.
        """
        sizes = {array.shape[0] if array.ndim else -1 for array in feeds.values()}
        rows = sizes.pop() if len(sizes) == 1 else -1
        can_join = 1 <= rows < self._most_rows
        specs = tuple(sorted((name, array.dtype.str, array.shape[1:]) for name, array in feeds.items()))
        key = (specs, tuple(outputs)) if can_join else object()
        item = _Item(feeds, tuple(outputs), max(rows, 1), key, Future())
        with self._changed:
            if self._is_closed or self.failure is not None:
                raise StateError("the model is not there any more")
            if len(self._waiting) >= self._most_waiting:
                raise QueueFullError(f"{len(self._waiting)} requests wait already")
            self._waiting.append(item)
            self._changed.notify_all()
        return item.result

    def close(self) -> None:
        """Ends the thread; requests that wait fail."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        try:
            while (batch := self._next()) is not None:
                alive = [item for item in batch if item.result.set_running_or_notify_cancel()]
                if alive:
                    self._run(alive)
        except Exception as error:  # what no request is told is a fault of this program
            with self._changed:
                self.failure = error
        with self._changed:
            left, self._waiting = list(self._waiting), deque()
        for item in left:
            if item.result.set_running_or_notify_cancel():
                item.result.set_exception(StateError("the model is not there any more"))

    def _next(self) -> list[_Item] | None:
        """The request that has waited longest, with those that can join it; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self.failure is not None or self._waiting)
            if self._is_closed or self.failure is not None:
                return None
            batch = [self._waiting.popleft()]
            rows = batch[0].rows
            for item in [own for own in self._waiting if own.key == batch[0].key]:
                if rows + item.rows > self._most_rows:
                    break
                rows += item.rows
                batch.append(item)
                self._waiting.remove(item)
            return batch

    def _run(self, batch: Sequence[_Item]) -> None:
        try:
            results = self._joined(batch)
        except DeviceLostError as error:
            self._recover()
            _failed(batch, error)
        except Exception as error:
            # What one of them is to blame for, such as an index out of range, is not the others' fault.
            if len(batch) == 1 or isinstance(error, VulkanError):
                _failed(batch, error)
            else:
                for item in batch:
                    self._run([item])
        else:
            for item, own in zip(batch, results, strict=True):
                item.result.set_result(own)

    def _joined(self, batch: Sequence[_Item]) -> Sequence[Results]:
        first = batch[0]
        if len(batch) == 1:
            return [self._session.run(list(first.outputs), dict(first.feeds))]
        feeds = {name: np.concatenate([item.feeds[name] for item in batch]) for name in first.feeds}
        found = self._session.run(list(first.outputs), feeds)
        total = sum(item.rows for item in batch)
        for name, array in zip(first.outputs, found, strict=True):
            if array.shape[:1] != (total,):
                rule = f"must not be above 1: {name!r} of {total} rows has the shape {array.shape}"
                raise InvalidArgumentError(rule, field="most_rows", value=self._most_rows)
        ends = np.cumsum([item.rows for item in batch])
        return [[array[end - item.rows : end] for array in found] for item, end in zip(batch, ends, strict=True)]

    def _recover(self) -> None:
        try:
            self._session.recover()
        except Exception as error:
            with self._changed:
                self.failure = error


def _failed(batch: Sequence[_Item], error: Exception) -> None:
    for item in batch:
        item.result.set_exception(error)
