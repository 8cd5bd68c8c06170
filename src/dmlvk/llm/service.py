"""A model that many threads ask: one thread of its own does the rounds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from dmlvk.llm.model import Model
from dmlvk.llm.scheduler import Load, Request, Scheduler, Update
from dmlvk.spec.errors import StateError

_NOTHING = Load(0, 0, 0, 0, 0)


class Service:
    """Answers requests together, from any thread, until it is closed. Where the device is lost, the requests that there are
    fail, and the model is loaded anew.

    Args:
        load: Loads the model: now, and in the service's thread whenever its device was lost.
        most_waiting, piece: As of ``Scheduler``.

    Attributes:
        failure: Why there is no model any more: what ``load`` raised. None while there is one, or is to be one.
    """

    def __init__(self, load: Callable[[], Model], *, most_waiting: int = 256, piece: int | None = None) -> None:
        self._load, self._most_waiting, self._piece = load, most_waiting, piece
        self.failure: Exception | None = None
        self._changed = threading.Condition()
        self._is_closed = False
        self._model: Model | None = None
        self._scheduler: Scheduler | None = None
        self._open()
        self._thread = threading.Thread(target=self._work, name="dmlvk-service", daemon=True)
        self._thread.start()

    @property
    def model(self) -> Model:
        """The model, whose ``job`` makes what requests ask for.

        Raises:
            StateError: there is none: it is being loaded, or could not be, or the service is closed.
        """
        return self._there()[0]

    @property
    def load(self) -> Load:
        """How much there is to do now."""
        scheduler = self._scheduler
        return _NOTHING if scheduler is None else scheduler.load

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken."""
        return self._scheduler is not None

    def submit(self, requests: Sequence[Request]) -> None:
        """Asks for answers, all of them or none. Those who ask hear of them in the service's thread.

        Raises:
            QueueFullError: as many requests wait as may.
            StateError: there is no model, as of ``model``.
        """
        with self._changed:
            self._there()[1].submit(requests)
            self._changed.notify_all()

    def close(self) -> None:
        """Ends all answers, and the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _there(self) -> tuple[Model, Scheduler]:
        model, scheduler = self._model, self._scheduler
        if model is None or scheduler is None:
            why = self.failure or (
                "the service is closed" if self._is_closed else "its device was lost, and it is loaded anew"
            )
            raise StateError(f"the model is not there: {why}")
        return model, scheduler

    def _open(self) -> None:
        model = self._load()
        scheduler = Scheduler(model.decoder, most_waiting=self._most_waiting, piece=self._piece)
        with self._changed:
            self._model, self._scheduler = model, scheduler
            self._changed.notify_all()

    def _work(self) -> None:
        while (scheduler := self._scheduler) is not None:
            try:
                self._rounds(scheduler)
            except Exception as error:  # what a round does not tell anybody is a fault of this program
                self.failure = error
            self._model = self._scheduler = None  # its memory, before it is taken once more
            if self._is_closed or self.failure is not None:
                scheduler.end(self.failure or StateError("the service is closed"))
            else:
                del scheduler
                self._renew()

    def _rounds(self, scheduler: Scheduler) -> None:
        """Does rounds until the service is closed or the model of no use any more."""
        while scheduler.failure is None:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or scheduler.is_busy)
                if self._is_closed:
                    return
            scheduler.round()

    def _renew(self) -> None:
        try:
            self._open()
        except Exception as error:
            self.failure = error


def warmed(model: Model, piece: int | None = None) -> Model:
    """A model that has read a prompt and given an answer, so that the first one who asks waits for no pipelines.

    Args:
        model: The model.
        piece: As of the scheduler that it is for.

    Raises:
        Exception: what made that fail.
    """
    scheduler = Scheduler(model.decoder, piece=piece)
    failures: list[Exception] = []

    def take(update: Update) -> None:
        if update.error is not None:
            failures.append(update.error)

    prompt = [0] * min(2, model.capacity)
    scheduler.submit([Request(model.job(prompt, 1), take)])
    while scheduler.is_busy:
        scheduler.round()
    if failures:
        raise failures[0]
    return model
