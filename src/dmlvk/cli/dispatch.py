"""``python -m dmlvk dispatch``: DxDispatch's command line."""

from __future__ import annotations

import pathlib
import sys
from typing import Any, Final

import click

from dmlvk.cli.command import Command, option
from dmlvk.cli.output import Output
from dmlvk.cli.parameters import json_option

_FOLDER: Final = click.Path(file_okay=False, path_type=pathlib.Path)
_COUNT: Final = click.IntRange(min=0)
_OTHER: Final = {
    "debug": "the validation layer comes with DMLVK_VALIDATION=1",
    "queue_type": "there is one kind of queue, a compute queue where the device has one",
    "disable_custom_heaps": "there are no heaps to choose",
    "clear_shader_caches": "pipelines are kept in the folder that DMLVK_CACHE_DIR names",
    "disable_gpu_timeout": "the driver decides how long a submission may take",
    "enable_dred": "a lost device is a DeviceLostError that says what ran",
    "disable_background_processing": "the driver decides when it compiles",
    "set_stable_power_state": "the driver decides on its clock",
    "disable_agility_sdk": "there is no Direct3D",
    "post_dispatch_barriers": "dispatches wait for each other where they share memory, and only there",
    "dml_feature_level": "every operator is there",
    "xbox_allow_precompile": "there are no shaders in HLSL",
    "present_separator": "nothing is presented",
    "pix_capture_name": "there is no PIX",
}
"""Options that change nothing here, and why."""
_VALUED: Final = ("queue_type", "post_dispatch_barriers", "dml_feature_level", "pix_capture_name")
"""Those of them that take a value."""
_SHORT: Final = {"debug": "-d", "queue_type": "-q", "pix_capture_name": "-o"}
_REFUSED: Final = {
    "print_hlsl_disassembly": "there are no shaders in HLSL",
    "enable_ort_extensions": "custom operators of a library do not run",
}
"""Options whose result cannot be had, and why."""


def _pair(text: str) -> tuple[str, str]:
    name, colon, value = text.rpartition(":")
    if not colon or not name:
        raise click.BadParameter(f"must be NAME:VALUE; got {text!r}")
    return name, value


def _size(text: str) -> tuple[str, int]:
    name, value = _pair(text)
    if not value.isdecimal() or not int(value):
        raise click.BadParameter(f"must be NAME:SIZE, the size at least 1; got {text!r}")
    return name, int(value)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, value = _pair(text)
    if not all(size.isdecimal() for size in value.split(",")):
        raise click.BadParameter(f"must be NAME:SIZE,SIZE,...; got {text!r}")
    return name, tuple(map(int, value.split(",")))


def _without_effect(function: Any) -> Any:
    """Adds the options of DxDispatch that are read and mean nothing here."""
    for name, why in reversed(_OTHER.items()):
        flags = [_SHORT[name]] if name in _SHORT else []
        kind: dict[str, Any] = {"metavar": "TEXT"} if name in _VALUED else {"is_flag": True}
        function = option(*flags, f"--{name}", **kind, help=f"No effect: {why}.")(function)
    return function


@click.command(
    "dispatch",
    cls=Command,
    log_flags=("--verbose",),
    examples=("model.json", "model.json -i 100 -v 1", "model.onnx -f N:5 -p", "-s"),
)
@click.argument("path", type=click.Path(path_type=pathlib.Path), required=False, metavar="[MODEL]")
@option("-m", "--model", type=click.Path(path_type=pathlib.Path), metavar="MODEL", help="The model, as the argument.")
@option("-S", "--show_dependencies", is_flag=True, help="Print the versions of what it runs on.")
@option("--input_path", type=_FOLDER, help="Folder of the files that a model names; default: its own.")
@option("--output_path", type=_FOLDER, default=pathlib.Path(), help="Folder of the files that it writes; default: this one.")
@option("--print_commands", is_flag=True, help="Print each command before and after it runs.")
@option("-i", "--dispatch_iterations", type=_COUNT, default=1, help="Rounds of a dispatch command; default: 1.")
@option("-r", "--dispatch_repeat", type=click.IntRange(min=1), default=1, help="Dispatches of a round; default: 1.")
@option("-t", "--milliseconds_to_run", type=_COUNT, help="Time of a dispatch command, in place of rounds.")
@option("-I", "--dispatch_interval", type=_COUNT, default=0, help="Least milliseconds from one round to the next.")
@option("-w", "--warmup_samples", type=_COUNT, default=1, help="Rounds that times leave out; default: 1.")
@option(
    "-v", "--timing_verbosity", type=click.IntRange(0, 2), default=0, help="0: hot times, 1: cold ones too, 2: each round."
)
@option("--max_gpu_time_measurements", type=_COUNT, default=8192, help="Rounds timed on the device; 0: none.")
@option("-a", "--adapter", default="", help="Part of a device's name; default: DMLVK_DEVICE, else the best.")
@option("-s", "--show_adapters", is_flag=True, help="List the devices.")
@option(
    "-f", "--onnx_free_dim_name_override", "sizes", type=_size, multiple=True, metavar="NAME:SIZE", help="A symbolic size."
)
@option(
    "-F",
    "--onnx_free_dim_denotation_override",
    "denoted_sizes",
    type=_size,
    multiple=True,
    metavar="NAME:SIZE",
    help="A size by what it denotes.",
)
@option(
    "-e", "--onnx_session_config_entry", "config", type=_pair, multiple=True, metavar="KEY:VALUE", help="A session's entry."
)
@option(
    "-b", "--binding_shape", "shapes", type=_shape, multiple=True, metavar="NAME:SIZE,...", help="Sizes of a model's tensor."
)
@option("-l", "--onnx_graph_optimization_level", type=_COUNT, help="0: none, 1: basic, 2: extended, 99: all.")
@option("-L", "--onnx_logging_level", type=click.IntRange(0, 4), help="0: everything, to 4: what ends a run.")
@option("-p", "--print_onnx_bindings", is_flag=True, help="Describe the tensors of ONNX models.")
@option("--enable_onnx_profiling", is_flag=True, help="Write a timeline of each ONNX model.")
@option("-c", "--pix_capture_type", type=click.Choice(["gpu", "timing", "manual"]), help="Only manual: there is no PIX.")
@option("--print_hlsl_disassembly", is_flag=True, help="Refused: there are no shaders in HLSL.")
@option("-x", "--enable_ort_extensions", is_flag=True, help="Refused: custom operators of a library do not run.")
@_without_effect
@json_option
def command(
    path: pathlib.Path | None,
    model: pathlib.Path | None,
    show_dependencies: bool,
    show_adapters: bool,
    adapter: str,
    out: Output,
    **values: Any,
) -> int:
    """Run a DxDispatch model, an ONNX model, or a serialised DirectML graph.

    MODEL is a .json or an .onnx file; any other is a graph that ONNX Runtime's DirectML provider has written.
    """
    from dmlvk.spec.errors import UnsupportedError

    for name, why in _REFUSED.items():
        if values[name]:
            raise UnsupportedError(f"--{name}: {why}")
    if values["pix_capture_type"] not in (None, "manual"):
        raise UnsupportedError("--pix_capture_type: there is no PIX; --enable_onnx_profiling and `run --profile` give times")
    if path is not None and model is not None:
        raise click.UsageError("give the model as the argument or with --model, not both.")
    path = path or model
    if show_dependencies:
        _show_dependencies(out)
    if show_adapters:
        _show_adapters(out)
    if path is None:
        if show_adapters or show_dependencies:
            return 0
        raise click.UsageError("Missing argument 'MODEL'.")
    for name, why in _OTHER.items():
        if values[name]:
            _note(f"--{name} has no effect: {why}")
    return _run(path, adapter, values, out)


def _run(path: pathlib.Path, adapter: str, values: dict[str, Any], out: Output) -> int:
    from dmlvk.directml.device import Device
    from dmlvk.dxdispatch.executor import Executor
    from dmlvk.dxdispatch.model import read_model
    from dmlvk.dxdispatch.options import Options

    folder = values["input_path"]
    if folder is not None and not path.exists():
        path = folder / path
    read = read_model(path, folder)
    device = Device(adapter or None)
    out.say(f"Running on '{device.info.name}'")
    options = Options(
        iterations=values["dispatch_iterations"],
        repeat=values["dispatch_repeat"],
        milliseconds=values["milliseconds_to_run"],
        interval=values["dispatch_interval"],
        warmup_samples=values["warmup_samples"],
        verbosity=values["timing_verbosity"],
        gpu_times=values["max_gpu_time_measurements"],
        output_folder=values["output_path"],
        sizes=dict(values["sizes"]),
        denoted_sizes=dict(values["denoted_sizes"]),
        config=dict(values["config"]),
        binding_shapes=dict(values["shapes"]),
        optimization_level=values["onnx_graph_optimization_level"],
        logging_level=values["onnx_logging_level"],
        print_bindings=values["print_onnx_bindings"],
        profile=values["enable_onnx_profiling"],
    )
    executor = Executor(device, read, options, out.say, _note)
    for index, item in enumerate(read.commands):
        if values["print_commands"]:
            out.say(f"Command {index} started: {type(item).__name__}")
        executor.run(item)
        if values["print_commands"]:
            out.say(f"Command {index} completed")
    executor.end()
    out.write({"device": device.info.name, "dispatches": executor.times, "resources": executor.printed})
    return 0


def _show_dependencies(out: Output) -> None:
    import importlib.metadata

    for name in ("dmlvk", "numpy", "onnx", "onnxruntime", "pillow"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = "not installed"
        out.say(f"{name:<12} : {version}")


def _show_adapters(out: Output) -> None:
    from dmlvk.runtime.device import devices

    for info in devices():
        out.say(
            info.name,
            f"-Version: {info.driver}",
            f"-Hardware: {str(info.type != 'cpu').lower()}",
            f"-Integrated: {str(info.type == 'integrated').lower()}",
            f"-Device Memory: {info.memory_in_bytes / 2**30:.2f} GB",
            "",
        )


def _note(line: str) -> None:
    print(f"dmlvk: {line}", file=sys.stderr)
