"""How commands are run: what DxDispatch's command line says beside the model."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Attributes:
        iterations: How often a dispatch command binds, dispatches and waits.
        repeat: Dispatches of each iteration.
        milliseconds: The time after which a dispatch command ends, in place of ``iterations``; None for no such time.
        interval: The least milliseconds between two iterations.
        warmup_samples: The most iterations at the beginning that the times leave out.
        verbosity: 0 for a line a dispatch command, 1 for more, 2 for every iteration.
        gpu_times: The most iterations whose times on the device are taken.
        output_folder: The folder of files that are written.
        sizes, denoted_sizes, config: As those of ``OnnxDispatchable``, which they go before.
        binding_shapes: Sizes of ONNX models' tensors, by name; before those of the file.
        optimization_level, logging_level: In place of the file's, where not None.
        print_bindings: Whether the tensors of ONNX models are described.
        profile: Whether ONNX models write a timeline of their kernels.
    """

    iterations: int = 1
    repeat: int = 1
    milliseconds: int | None = None
    interval: int = 0
    warmup_samples: int = 1
    verbosity: int = 0
    gpu_times: int = 8192
    output_folder: pathlib.Path = pathlib.Path()
    sizes: Mapping[str, int] = field(default_factory=dict)
    denoted_sizes: Mapping[str, int] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    binding_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    optimization_level: int | None = None
    logging_level: int | None = None
    print_bindings: bool = False
    profile: bool = False
