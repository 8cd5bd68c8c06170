"""Runs the commands of a model."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.directml.device import Device
from dmlvk.dxdispatch.buffers import Buffers
from dmlvk.dxdispatch.model import (
    BindingSource,
    Command,
    DispatchCommand,
    GraphDispatchable,
    Model,
    OperatorDispatchable,
    PrintCommand,
    WriteFileCommand,
)
from dmlvk.dxdispatch.operator_run import Run, graph_run, operator_run
from dmlvk.dxdispatch.options import Options
from dmlvk.dxdispatch.printing import times_text, values_text
from dmlvk.images import CHANNELS, IMAGES, write_image


class Executor:
    """A model on a device: its resources are filled and its dispatchables are ready.

    Args:
        device: The device.
        model: The model.
        options: How it is run.
        say: Prints a line of results.
        note: Prints a line about what has no effect.

    Attributes:
        buffers: The resources.
        times: The milliseconds of the iterations of each dispatch command that was run.
        printed: What each print command has printed.

    Raises:
        DmlvkError: a dispatchable cannot be made; names its path.
    """

    def __init__(
        self,
        device: Device,
        model: Model,
        options: Options,
        say: Callable[[str], None] = print,
        note: Callable[[str], None] = print,
    ) -> None:
        self._model, self._options, self._say, self._note = model, options, say, note
        self.times: list[dict[str, Any]] = []
        self.printed: list[dict[str, Any]] = []
        for notice in model.notices:
            note(notice)
        self.buffers = Buffers(device, model.resources)
        self._runs: dict[str, Run] = {}
        for name, item in model.dispatchables.items():
            started = time.perf_counter()
            if isinstance(item, OperatorDispatchable):
                self._runs[name] = operator_run(device, item, self.buffers)
            elif isinstance(item, GraphDispatchable):
                self._runs[name] = graph_run(device, item)
            else:
                from dmlvk.dxdispatch.onnx_run import OnnxRun  # which takes the package onnx

                self._runs[name] = OnnxRun(device, item, options, say)
            if options.verbosity:
                say(f"Initialize '{name}': {(time.perf_counter() - started) * 1e3:.4f} ms")

    def run(self, command: Command) -> None:
        """Runs one command.

        Raises:
            DmlvkError: it cannot be run; names its path.
            OSError: a file cannot be written.
        """
        if isinstance(command, DispatchCommand):
            self._dispatch(command)
        elif isinstance(command, PrintCommand):
            source = _whole(command)
            values = self.buffers.content(source, trimmed=True).reshape(-1)
            self.printed.append({"resource": command.resource, "type": str(values.dtype), "values": values.tolist()})
            text = values_text(values, verbose=command.verbose)
            self._say(f"Resource '{command.resource}':{chr(10) if command.verbose else ' '}{text}")
        else:
            path = self._options.output_folder / command.target
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(command, path)
            self._say(f"Resource '{command.resource}' written to '{path}'")

    def end(self) -> None:
        """Writes the timelines of ONNX models, where they were asked for."""
        for run in self._runs.values():
            if path := run.end():
                self._say(f"Timeline written to '{path}'")

    def _dispatch(self, command: DispatchCommand) -> None:
        options, run, place = self._options, self._runs[command.dispatchable], command.bindings_place
        for name in command.bindings.keys() - set(run.bind_points):
            known = ", ".join(run.bind_points)
            self._note(f"{place.path}.{name} is none of {known}, and is ignored")
        bound = run.bound(place, command.bindings, self.buffers, options)
        cpu: list[float] = []
        gpu: list[float] = []
        begun = time.perf_counter()
        while options.milliseconds is not None or len(cpu) < options.iterations:
            started = time.perf_counter()
            on_device = bound.run()
            ended = time.perf_counter()
            cpu.append((ended - started) * 1e3 / options.repeat)
            if on_device is not None and len(gpu) < options.gpu_times:
                gpu.append(on_device / options.repeat)
            left = max(options.interval - (ended - started) * 1e3, 0)
            if options.milliseconds is not None and (ended - begun) * 1e3 + left > options.milliseconds:
                break
            time.sleep(left / 1e3)
        if cpu:
            self.times.append({"dispatchable": command.dispatchable, "cpu_ms": cpu, "gpu_ms": gpu})
            for line in times_text(command.dispatchable, cpu, gpu, options.warmup_samples, options.verbosity):
                self._say(line)

    def _write(self, command: WriteFileCommand, path: pathlib.Path) -> None:
        source, suffix = _whole(command), path.suffix.lower()
        if suffix != ".npy" and suffix not in IMAGES:
            path.write_bytes(self.buffers.raw(source).tobytes())
            return
        content = self.buffers.content(source, trimmed=False)
        shape = content.shape if self.buffers.is_deferred(source) else command.dimensions
        if suffix == ".npy":
            np.save(path, _shaped(command, content, shape or (content.size,)))
            return
        shape = (*shape, *(1,) * (4 - len(shape)))
        if len(shape) != 4 or shape[0] != 1 or shape[1] not in CHANNELS or content.dtype.kind != "f":
            rule = f"must be N, C, H and W of floats, with N 1 and C one of {', '.join(map(str, CHANNELS))}, for a picture"
            (command.place.get("dimensions") or command.place).refuse(rule, shape)
        write_image(path, _shaped(command, content, shape)[0])


def _whole(command: PrintCommand | WriteFileCommand) -> BindingSource:
    return BindingSource(command.place.member("resource"), command.resource)


def _shaped(command: WriteFileCommand, content: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """As many of the elements as the sizes take."""
    count = int(np.prod(shape, dtype=object))
    if count > content.size:
        (command.place.get("dimensions") or command.place).refuse(
            f"must be the sizes of at most {content.size} elements", shape
        )
    return content.reshape(-1)[:count].reshape(shape)


def execute(
    device: Device,
    model: Model,
    options: Options,
    say: Callable[[str], None] = print,
    note: Callable[[str], None] = print,
) -> Executor:
    """Runs all commands of a model; returns what ran them, with the resources as they are afterwards."""
    executor = Executor(device, model, options, say, note)
    for command in model.commands:
        executor.run(command)
    executor.end()
    return executor
