"""The cost of handing work to the device: microseconds of the host's time, from the call until the work is seen done, for
dispatches that do next to nothing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

import numpy as np

import dmlvk
from dmlvk.directml.command import CommandList
from dmlvk.directml.device import Device
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.elementwise import ElementWiseAdd
from dmlvk.spec.tensor import TensorDesc
from dmlvk_bench.ceilings import host_seconds
from dmlvk_bench.timing import QUICK, SINGLE, Pace, settled_samples

RECORDED: Final = "1 recorded and submitted"
EAGER: Final = "eager add"
TORCH_GRAPH: Final = "torch graph 100 dependent"
TORCH_EAGER: Final = "torch eager 1"

_COUNTS: Final = (1, 10, 100, 1000)
_ELEMENTS: Final = 64
"""The elements of each sum: 256 bytes."""


def measure(device: Device, *, quick: bool = False, against: Collection[str] = ()) -> dict[str, float]:
    """Microseconds by name: "1 dependent" and so on for lists of 1, 10, 100 and 1000 dispatches that are replayed, each of
    which waits for the one before ("dependent") or none ("independent"); ``RECORDED`` for a list that is recorded anew each
    time; ``EAGER`` for a sum from numpy to numpy; and, beside PyTorch on CUDA, ``TORCH_GRAPH`` and ``TORCH_EAGER``.

    Args:
        device: The device to measure.
        quick: A few of each, to see that everything works.
        against: Rivals; of "torch" there must be a CUDA device, or its entries are missing.
    """
    pace = QUICK if quick else SINGLE
    tensor = TensorDesc(TensorDataType.FLOAT32, (_ELEMENTS,))
    operator = ReadyOperator(device, ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor))
    found = {}
    for kind in ("dependent", "independent"):
        for count in _COUNTS:
            targets = [_target(device)] * count if kind == "dependent" else [_target(device) for _ in range(count)]
            found[f"{count} {kind}"] = _microseconds(partial(_run, _recorded(device, operator, targets)), pace)
    target = _target(device)
    found[RECORDED] = _microseconds(lambda: _run(_recorded(device, operator, [target])), pace)
    a = np.ones(_ELEMENTS, np.float32)
    found[EAGER] = _microseconds(partial(dmlvk.eager.element_wise_add, a, a, device=device), pace)
    if "torch" in against:
        found |= _torch(pace)
    return found


def _target(device: Device) -> BufferBinding:
    buffer = device.create_buffer(4 * _ELEMENTS)
    buffer.write(np.zeros(_ELEMENTS, np.float32))
    return BufferBinding(buffer)


def _recorded(device: Device, operator: ReadyOperator, targets: Collection[BufferBinding]) -> CommandList:
    """A list that doubles the targets one after the other."""
    commands = device.create_command_list()
    for target in targets:
        operator.record(commands, [target, target], [target])
    return commands


def _run(commands: CommandList) -> None:
    commands.submit()
    commands.wait()


def _microseconds(run: Callable[[], Any], pace: Pace) -> float:
    """The median duration of a run, as its caller sees it."""
    return statistics.median(settled_samples(partial(host_seconds, run), float, pace)) * 1e6


def _torch(pace: Pace) -> dict[str, float]:
    """PyTorch's entries; none on a machine without CUDA."""
    import torch

    if not torch.cuda.is_available():
        return {}
    x = torch.zeros(_ELEMENTS, device="cuda")
    x.add_(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            x.add_(x)

    def finished(run: Callable[[], Any]) -> None:
        run()
        torch.cuda.synchronize()

    return {
        TORCH_GRAPH: _microseconds(partial(finished, graph.replay), pace),
        TORCH_EAGER: _microseconds(partial(finished, partial(x.add_, x)), pace),
    }
