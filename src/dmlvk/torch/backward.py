"""What a backward pass says that PyTorch cannot run beside the device.

PyTorch's engine of backward passes takes it that a process has one kind of accelerator, and that it was there before the
first pass. Else it fails with an assertion of its own, which says nothing of the cause.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch.autograd.graph

from dmlvk.spec.errors import StateError

_REASONS: Final = {
    "device_ready_queues_.size()": "a backward pass has run in this process before dmlvk.torch was imported, and PyTorch"
    " starts what runs such passes on devices with the first one: import dmlvk.torch before it",
    "opt_ready_stream && opt_parent_stream": "PyTorch runs backward passes on one kind of accelerator in a process, and"
    " importing dmlvk.torch makes it the device dmlvk: train on CUDA in another process",
}
"""By a part of PyTorch's message."""


def install() -> None:
    """Has PyTorch's backward passes give the reason where they fail so."""
    run = torch.autograd.graph._engine_run_backward
    torch.autograd.graph._engine_run_backward = torch.autograd._engine_run_backward = explained(run)


def explained(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs a backward pass and raises a ``StateError`` where PyTorch fails for one of the reasons above."""

    @functools.wraps(run)
    def explaining(*args: Any, **options: Any) -> Any:
        try:
            return run(*args, **options)
        except RuntimeError as error:
            for sign, reason in _REASONS.items():
                if sign in str(error):
                    raise StateError(reason) from error
            raise

    return explaining
