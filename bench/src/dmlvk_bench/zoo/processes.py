"""Processes for the files: a function of each file in a process of its own, all from a server that imports packages once.

What one file takes down is its own, and exporters keep what they have traced; but PyTorch takes seconds to import.
"""

from __future__ import annotations

import importlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import os
import pathlib
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from dmlvk_bench.rivals.base import said

Task = TypeVar("Task")

_IMPORTED: Final = (
    "torch.export",
    "torchvision.models",
    "transformers.generation",
    "transformers.modeling_utils",
    "onnxscript",
    "dmlvk_bench.zoo.export",
    "dmlvk_bench.zoo.worker",
)
"""What the server imports; what is not installed it passes over."""
_LEAVING_SECONDS: Final = 20.0
"""After so long a process that has answered is killed."""


class Job(Generic[Task]):
    """A process with a generator function. What the function yields it sends here, and after each it waits to be told on.

    Args:
        task: What the process is for.
        function: Module and name of the function, with a colon between.
        arguments: The function's.
        log: The file of what it prints, and of why it failed.
        seconds: After so long it is killed, unless it has answered.

    Attributes:
        task: As given.
        found: The last of what it sent; None before.
        error: Why the process came to an end before it answered; "" where it has not.
    """

    def __init__(self, task: Task, function: str, arguments: Sequence[Any], log: pathlib.Path, seconds: float) -> None:
        self.task, self._log, self._seconds = task, log, seconds
        self.found: Any = None
        self.error = ""
        context = _context()
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, str(log), function, tuple(arguments)), daemon=True)
        self._process.start()
        theirs.close()
        self.until = time.monotonic() + seconds

    @property
    def event(self) -> Any:
        """What ``multiprocessing.connection.wait`` waits for: an answer, or once it is closed its end."""
        return self._process.sentinel if self._connection.closed else self._connection

    def look(self, *, stays: bool) -> bool:
        """Whether the process has answered, or never will.

        Args:
            stays: Whether it is left waiting after its answer; else it counts only when the process has ended.
        """
        if not self._connection.closed:
            if self._connection.poll():
                self._receive()
                if stays and not self.error:
                    return True
                if not self._connection.closed:
                    self.close()
            elif time.monotonic() >= self.until:
                self.kill()
                self.error = f"took longer than {self._seconds:g} s"
                return True
            return False
        if self._process.is_alive() and time.monotonic() < self.until:
            return False
        self.end()
        return True

    def go_on(self, until: float) -> bool:
        """Tells the process on and waits for what it sends; False if that was not before a time of ``time.monotonic``,
        when the process is killed."""
        self.until = time.monotonic() + self._seconds
        try:
            self._connection.send(None)
        except OSError:
            self._fail()
            return True
        if self._connection.poll(max(min(until, self.until) - time.monotonic(), 0.0)):
            self._receive()
            return True
        self.kill()
        if time.monotonic() < until:
            self.error = f"took longer than {self._seconds:g} s"
        return bool(self.error)

    def close(self) -> None:
        """Tells the process to end."""
        self._connection.close()
        self.until = time.monotonic() + _LEAVING_SECONDS

    def end(self) -> None:
        """Waits for the end of a process that was told to; what goes wrong there is an error, too."""
        self._process.join(max(self.until - time.monotonic(), 0.0))
        if self._process.is_alive():
            self.kill()
            self.error = self.error or f"did not end within {_LEAVING_SECONDS:g} s"
        elif self._process.exitcode and not self.error:
            self._fail()

    def kill(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _receive(self) -> None:
        try:
            good, answer = self._connection.recv()
        except (EOFError, OSError):
            self._fail()
            return
        if good:
            self.found = answer
        else:
            self.error = answer

    def _fail(self) -> None:
        self._connection.close()
        self._process.join(_LEAVING_SECONDS)
        self._process.kill()
        self._process.join()
        printed = self._log.read_text(errors="replace").strip().splitlines()
        self.error = f"the process ended with {self._process.exitcode}: {printed[-1][:200] if printed else ''}"


def each(
    waiting: deque[Task], start: Callable[[Task], Job[Task]], jobs: int, until: float, *, stays: bool = False
) -> Iterator[Job[Task]]:
    """The jobs of tasks, as they answer. Those that are running when nobody asks for more, or at the end, are killed.

    Args:
        waiting: The tasks; whoever takes jobs may add more.
        start: Makes a task's job.
        jobs: The number of processes at once.
        until: The end, a time of ``time.monotonic``.
        stays: Whether the processes are left waiting after an answer.
    """
    running: list[Job[Task]] = []
    try:
        while (waiting or running) and time.monotonic() < until:
            while waiting and len(running) < jobs:
                running.append(start(waiting.popleft()))
            nearest = min(until, *(job.until for job in running))
            multiprocessing.connection.wait([job.event for job in running], max(nearest - time.monotonic(), 0.0))
            for job in list(running):
                if job.look(stays=stays):
                    running.remove(job)
                    yield job
    finally:
        for job in running:
            job.kill()


def start_server() -> None:
    """Lets the server import while the caller does so, too."""
    if _context().get_start_method() == "forkserver":
        multiprocessing.forkserver.ensure_running()


def _context() -> Any:
    """Whoever makes processes: the server, where the system has such."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # else asking for a GPU spoils CUDA for those forked later
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    return context


def _serve(connection: multiprocessing.connection.Connection, log: str, function: str, arguments: tuple[Any, ...]) -> None:
    """What a process does. It sends pairs: True and what was found, or False and the first error that led to this."""
    with open(log, "wb") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    module, _, name = function.partition(":")
    try:
        for found in getattr(importlib.import_module(module), name)(*arguments):
            connection.send((True, found))
            connection.recv()
    except EOFError:  # told to end
        return
    except Exception as error:
        traceback.print_exc()
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__
        connection.send((False, said(first)))
