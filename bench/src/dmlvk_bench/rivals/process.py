"""A rival's part in a process of its own: what it takes down is its own.

Large arrays go there and back as files that the other side maps and deletes: a pipe takes several times as long.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from dmlvk_bench.rivals.base import said

PATIENCE = 120.0
"""Seconds after which a request counts as hanging."""

LARGE_BYTES = 1 << 20


class EndedError(RuntimeError):
    """The process is no more, or hung and was ended."""


class RivalProcess:
    """A process with a module's ``Worker``, whose methods it calls. It starts again when it has ended.

    Args:
        module: The module that has the worker.
        arguments: The arguments of its ``Worker``.

    Attributes:
        version: The worker's.

    Raises:
        EndedError: the worker ended the process when it was made.
        RuntimeError: it could not be made.
    """

    def __init__(self, module: str, *arguments: Any) -> None:
        self._module, self._arguments = module, arguments
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, self._folder.name, self._module, self._arguments), daemon=True
        )
        self.process.start()
        theirs.close()
        self.version = str(self._answer())

    def _answer(self) -> Any:
        with contextlib.suppress(EOFError, OSError):
            if self._connection.poll(PATIENCE):
                good, found = self._connection.recv()
                if not good:
                    raise RuntimeError(found)
                return _mapped(found)
        self.close()
        raise EndedError(f"its process ended with {self.process.exitcode}")

    def ask(self, request: str, *arguments: Any) -> Any:
        """Calls a method of the worker and returns its result.

        Raises:
            EndedError: the process ended instead; the next request starts another one.
            RuntimeError: the method raised what this says.
        """
        if not self.process.is_alive():
            self.close()
            self._start()
        with contextlib.suppress(OSError):
            self._connection.send(_filed((request, *arguments), self._folder.name))
        return self._answer()

    def close(self) -> None:
        """Ends the process."""
        self._connection.close()
        self.process.join(1.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class _Filed(NamedTuple):
    """The file that holds an array."""

    path: str


def _through(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with what is in its lists, tuples and dictionaries changed."""
    if type(value) in (list, tuple):
        return type(value)(_through(part, change) for part in value)
    if type(value) is dict:
        return {key: _through(part, change) for key, part in value.items()}
    return change(value)


def _filed(value: Any, folder: str) -> Any:
    """A value with files in the places of its large arrays."""

    def change(part: Any) -> Any:
        if not isinstance(part, np.ndarray) or part.nbytes < LARGE_BYTES:
            return part
        handle, path = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            np.save(file, part)
        return _Filed(path)

    return _through(value, change)


def _mapped(value: Any) -> Any:
    """A value with arrays in the places of files, which are gone once nothing needs the arrays."""

    def change(part: Any) -> Any:
        if not isinstance(part, _Filed):
            return part
        array = np.asarray(np.load(part.path, mmap_mode="r"))
        with contextlib.suppress(OSError):  # where a file in use stays, the folder goes at the end
            os.unlink(part.path)
        return array

    return _through(value, change)


def _serve(connection: Connection, folder: str, module: str, arguments: tuple[Any, ...]) -> None:
    """Answers requests until the other end closes: first with the worker's version, then each with what it gives, or with
    what it says of why not."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):  # what the libraries tell the terminal
        os.dup2(nowhere, descriptor)
    try:
        worker = importlib.import_module(module).Worker(*arguments)
    except Exception as error:
        connection.send((False, said(error)))
        return
    connection.send((True, worker.version))
    while True:
        try:
            request, *given = _mapped(connection.recv())
        except EOFError:
            return
        try:
            connection.send((True, _filed(getattr(worker, request)(*given), folder)))
        except Exception as error:
            connection.send((False, said(error)))
