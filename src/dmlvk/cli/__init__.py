"""``python -m dmlvk``: devices, doctor, ops, explain, verify, run. Each prints a table, or JSON with ``--json``.

Another distribution adds a command by an entry point of the group ``dmlvk.commands``: its name is the command's, and its
object is a function that takes the command's ``ArgumentParser``, adds the arguments and sets the default ``function``, which
takes the parsed options and returns the exit status. It is imported when its command is asked for.

Exit status: 0 for success; 1 when a verification failed or the doctor found no device that works; 2 for what the caller can
mend (an unknown device or operator, a bad desc, an unsupported model, a file that cannot be read), with the reason on
standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.metadata
import itertools
import json
import math
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import dmlvk
from dmlvk.arguments import inferred_data_type, inferred_sizes
from dmlvk.devices.capabilities import Capabilities
from dmlvk.devices.mask import Mask
from dmlvk.devices.profiles import PROFILES
from dmlvk.directml.device import Device
from dmlvk.engine.explanation import explain_operator
from dmlvk.kernels.common.data_types import unsupported_types
from dmlvk.kernels.common.limitation import EVERY_OPERATOR
from dmlvk.kernels.common.registry import has_kernels, limitations_of
from dmlvk.runtime.device import devices, known_model
from dmlvk.runtime.measure import measure_model
from dmlvk.spec import ops as _ops  # noqa: F401  # fills the registry
from dmlvk.spec.enums import ExecutionFlags, OperatorType, TensorDataType
from dmlvk.spec.errors import DmlvkError, InvalidArgumentError, MissingPackageError
from dmlvk.spec.schema import REGISTRY, FieldKind, FieldSpec, OperatorDesc, ScaleBias, Size2D, class_name
from dmlvk.spec.tensor import TensorDesc

COMMANDS: Final = "dmlvk.commands"
"""The group of the entry points that add commands."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)

    def run() -> int:
        options = _parser(words).parse_args(words)
        return int(options.function(options))

    return exit_status(run)


def exit_status(run: Callable[[], int]) -> int:
    """Runs a command; returns its exit status. What the caller can mend is said on standard error, and the status is 2."""
    try:
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, such as `head`, has what it wanted; what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (DmlvkError, OSError) as error:
        print(f"dmlvk: {type(error).__name__}: {error}", file=sys.stderr)
        return 2


def shows(parser: argparse.ArgumentParser, *examples: str) -> None:
    """Adds examples, the words behind ``python -m dmlvk`` of each, to the end of a command's help."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(("examples:", *(f"  python -m dmlvk {example}" for example in examples)))


def takes_device(parser: argparse.ArgumentParser) -> None:
    """Adds ``--device``, whose value ``Device`` takes."""
    parser.add_argument("--device", help="index, UUID or part of the name; default DMLVK_DEVICE, else the best")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of these words: all commands, and the arguments of the one that they name.

    Raises:
        MissingPackageError: they name a command that is not installed.
    """
    parser = argparse.ArgumentParser(prog="dmlvk", description="DirectML's operators on every Vulkan GPU.")
    parser.add_argument("--version", action="version", version=f"dmlvk {dmlvk.__version__}")
    shows(parser, "doctor", "run model.onnx", "run --help")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Any, text: str, *examples: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        shows(sub, *examples)
        sub.add_argument("--json", action="store_true", help="print JSON")
        sub.set_defaults(function=function)
        return sub

    def takes_sizes(sub: argparse._ActionsContainer) -> None:
        text = "value of a model's symbolic dimension: NAME=SIZE, of one without a name: INPUT.AXIS=SIZE; default 1"
        sub.add_argument("--size", action="append", default=[], type=_named_size, help=text)

    text = "list the Vulkan devices, and what is known of their speed"
    sub = command("devices", _devices, text, "devices", "devices --measure")
    sub.add_argument("--measure", action="store_true", help="open each, measure it, and keep what was found")
    text = "say what keeps dmlvk from a device, and the command that mends it; try each device"
    command("doctor", _doctor, text, "doctor", "doctor --json")
    text = "list DirectML's operators, and what the device cannot do of them"
    takes_device(command("ops", _ops_command, text, "ops", "ops --device 1 --json"))
    text = "show which kernel rule a desc, or a node of an ONNX model, gets, and why"
    of_operator = "explain Gemm a_tensor=FLOAT16[64,128] b_tensor=FLOAT16[128,256]"
    sub = command("explain", _explain, text, of_operator, "explain model.onnx NODE --size batch=8")
    sub.add_argument("operator", help="class name, such as MeanVarianceNormalization1; or the path of an ONNX model")
    text = "such as input_tensor=FLOAT32[32,256,128,128] axes=2,3 epsilon=1e-5; of a model, the name of a node"
    sub.add_argument("fields", nargs="*", help=text)
    takes_sizes(sub)
    text = "as compiled with ALLOW_HALF_PRECISION_COMPUTATION: FLOAT32 may be computed in float16"
    sub.add_argument("--allow-half-precision", action="store_true", help=text)
    takes_device(sub)
    takes_device(_verify_parser(commands))
    examples = ("run model.onnx --size batch=8 --repeat 20", "run model.onnx --profile trace.json")
    sub = command("run", _run, "run an ONNX model", "run model.onnx", *examples)
    sub.add_argument("model", type=pathlib.Path)
    inputs = sub.add_mutually_exclusive_group()
    inputs.add_argument("--input", type=pathlib.Path, help="an .npz file with the inputs; default: random numbers, seed 0")
    takes_sizes(inputs)
    sub.add_argument("--output", type=pathlib.Path, help="write the outputs to this .npz file")
    sub.add_argument("--repeat", type=_count, default=1, help="runs after the first, for the time")
    text = "time every kernel in two more runs, list them and write a Chrome trace, which Perfetto opens"
    sub.add_argument("--profile", type=pathlib.Path, help=text)
    takes_device(sub)

    asked = words[0] if words and not words[0].startswith("-") else None
    for entry in importlib.metadata.entry_points(group=COMMANDS):
        text = entry.dist.metadata["Summary"] if entry.dist is not None else ""
        sub = commands.add_parser(entry.name, help=text, description=text)
        if entry.name == asked:
            entry.load()(sub)
    if asked is not None and asked not in commands.choices:
        there = ", ".join(commands.choices)
        raise MissingPackageError(
            f"there is no command {asked!r}, only {there}; a distribution adds bench: pip install dmlvk-bench"
        )
    return parser


def _verify_parser(commands: Any) -> argparse.ArgumentParser:
    """The command ``verify``."""
    text = "run the operators' cases on the device against the oracle, and print an accuracy card"
    verify: argparse.ArgumentParser = commands.add_parser("verify", help=text, description=text)
    shows(verify, "verify", "verify Gemm Convolution", "verify --json card.json --html card.html")
    verify.set_defaults(function=_verify)
    verify.add_argument("operators", nargs="*", help="class names; default all")
    amount = verify.add_mutually_exclusive_group()
    amount.add_argument("--quick", action="store_true", help="only the quick cases")
    text = "every case in every layout under every rule; default: every case, and every layout and rule of every type once"
    amount.add_argument("--full", action="store_true", help=text)
    text = "of these only the runs that have this in their description, such as 'FLOAT16, strided'; implies --full"
    amount.add_argument("--only", default="", metavar="TEXT", help=text)
    text = "print the card as JSON instead of a table, or write it to a file as well"
    verify.add_argument("--json", nargs="?", const="-", metavar="FILE", help=text)
    verify.add_argument("--html", type=pathlib.Path, metavar="FILE", help="write the card as a page")
    verify.add_argument("--commit", default="", help="what was built, for the card; default: this checkout's HEAD")
    return verify


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _named_size(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name or not size.isdecimal() or int(size) < 1:
        raise argparse.ArgumentTypeError("must be NAME=SIZE, the size at least 1")
    return name, int(size)


def _print_json(value: object) -> None:
    json.dump(_standard(value), sys.stdout, indent=1, allow_nan=False)
    print()


def _standard(value: object) -> object:
    """The value with null for NaN and infinity, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: _standard(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_standard(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_table(rows: Iterable[Sequence[object]], head: Sequence[str]) -> None:
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _devices(options: argparse.Namespace) -> int:
    mask = str(Mask.from_environment())
    found: list[dict[str, Any]] = [
        {
            "index": info.index,
            "name": info.name,
            "uuid": info.uuid,
            "driver": info.driver,
            "type": info.type,
            "memory": info.memory_in_bytes,
            "features": dict(info.features),
            "mask": mask,
            **({"measured": measure_model(Device(info))} if options.measure else {}),
            "model": known_model(info),
        }
        for info in devices()
    ]
    if options.json:
        _print_json([{**item, "model": {"name": item["model"].name, **item["model"].known()}} for item in found])
        return 0
    for item in found:
        print(f"{item['index']}: {item['name']} ({item['type']}, {item['memory']:,} bytes)")
        print(f"   driver   {item['driver']}\n   uuid     {item['uuid']}")
        print(f"   features {', '.join(name for name, there in item['features'].items() if there) or 'none'}")
        print(f"   without  {', '.join(name for name, there in item['features'].items() if not there) or 'none'}")
        print(f"   model    {item['model']}")
        if "measured" in item:
            print(f"   measured {', '.join(f'{name} {value:,g}' for name, value in item['measured'].items())}")
    print(f"mask: {mask or 'none'}; the profiles that DMLVK_PROFILE takes are {', '.join(PROFILES)}")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from dmlvk.doctor.command import diagnose
    from dmlvk.doctor.system import System

    diagnosis = diagnose(System(), (lambda line: None) if options.json else functools.partial(print, flush=True))
    if options.json:
        _print_json(diagnosis.as_json())
    return 0 if diagnosis.works else 1


def operator_list(caps: Capabilities) -> list[dict[str, Any]]:
    """Every DirectML operator with its status, the limitations that its descs may meet on a device, and the data types
    that the device cannot do, each with the features that it lacks."""
    found = []
    for operator in sorted(OperatorType)[1:]:
        row = REGISTRY.get(operator)
        implemented = row is not None and has_kernels(row)
        limitations = limitations_of(row) if row is not None and implemented else ()
        unsupported = unsupported_types(row, caps) if row is not None and implemented else {}
        found.append(
            {
                "name": operator.dml_name,
                "class": class_name(operator),
                "feature_level": operator.feature_level.name.removeprefix("LEVEL_").replace("_", "."),
                "status": "implemented" if implemented else "limitation",
                "limitations": [limitation.name for limitation in limitations if limitation.concerns(caps)],
                "unsupported": {data_type.name: sorted(missing) for data_type, missing in unsupported.items()},
                "in_place": list(row.in_place) if row is not None else [],
            }
        )
    return found


def limitation_list(caps: Capabilities) -> list[dict[str, Any]]:
    """Every limitation that an operator has on a device."""
    found = dict.fromkeys(itertools.chain.from_iterable(map(limitations_of, filter(has_kernels, REGISTRY.values()))))
    return [
        {"name": limitation.name, "rule": limitation.rule, "devices": limitation.devices}
        for limitation in found
        if limitation.concerns(caps)
    ]


def _ops_command(options: argparse.Namespace) -> int:
    device = Device(options.device)
    operators, limitations = operator_list(device.capabilities), limitation_list(device.capabilities)
    if options.json:
        _print_json({"device": device.info.name, "operators": operators, "limitations": limitations})
        return 0
    general = {limitation.name for limitation in EVERY_OPERATOR}
    rows = []
    for item in operators:
        own = ", ".join(name for name in item["limitations"] if name not in general)
        types = ", ".join(f"{name} ({' '.join(missing)})" for name, missing in item["unsupported"].items())
        rows.append((item["class"], item["feature_level"], item["status"], own, types, ", ".join(item["in_place"])))
    _print_table(rows, ("operator", "level", "status", "limitations", "without", "in place"))
    print(f"{sum(item['status'] == 'implemented' for item in operators)} of {len(operators)} implemented")
    print(f"\nWhat a desc may meet on {device.info.name}:")
    for item in limitations:
        which = "any operator" if item["name"] in general else "those that say so"
        print(f"  {item['name']} ({which}): {item['rule']}\n    on {item['devices']}")
    return 0


def parse_desc(operator: str, fields: Sequence[str]) -> OperatorDesc:
    """A desc from words: ``TYPE[sizes]`` or ``TYPE[sizes]@strides`` for a tensor, several joined by ``+`` for an array of
    them, numbers, names of enumeration members, comma-separated arrays, a class name for a fused activation, with its fields
    after colons (``ElementWiseClip:min=0:max=6``). Outputs that are left out are inferred.

    Raises:
        InvalidArgumentError: an unknown operator or field, or a word that does not parse.
    """
    row = next((row for row in REGISTRY.values() if row.__name__ == operator), None)
    if row is None:
        raise InvalidArgumentError("must be the class name of an operator", field="operator", value=operator)
    specs = {spec.name: spec for spec in row.fields}
    values: dict[str, Any] = {}
    for text in fields:
        name, _, word = text.partition("=")
        if name not in specs:
            raise InvalidArgumentError(f"must be one of {', '.join(specs)}", operator=operator, field="field", value=name)
        try:
            values[name] = _parse_field(specs[name], word)
        except (ValueError, KeyError) as error:
            if isinstance(error, InvalidArgumentError):
                raise
            kind = "tensor such as FLOAT32[2,3]" if specs[name].kind.is_tensor else specs[name].kind.value
            raise InvalidArgumentError(f"must be a {kind}", operator=operator, field=name, value=word) from None
    for item in dataclasses.fields(row):  # type: ignore[arg-type]  # every row is a dataclass
        if item.default is dataclasses.MISSING and item.name not in values:
            raise InvalidArgumentError("must be given", operator=operator, field=item.name)
    desc = row(**values)
    outputs = [spec for spec in row.fields if spec.kind is FieldKind.OUTPUT_TENSOR and not spec.optional]
    first = next((slot.tensor for slot in desc.input_slots()), None)
    if first is not None and any(spec.name not in values for spec in outputs):
        inferred = dict(zip(outputs, inferred_sizes(desc, outputs), strict=True))
        missing = [spec for spec in outputs if spec.name not in values]
        desc = desc.replace(**{spec.name: TensorDesc(inferred_data_type(desc, spec), inferred[spec]) for spec in missing})
    return desc


def _parse_tensor(word: str) -> TensorDesc:
    match = re.fullmatch(r"(\w+)\[([\d,]+)\](?:@([\d,]+))?", word)
    if not match:
        raise ValueError(word)
    strides = tuple(map(int, match[3].split(","))) if match[3] else None
    return TensorDesc(TensorDataType[match[1].upper()], tuple(map(int, match[2].split(","))), strides)


def _parse_field(spec: FieldSpec, word: str) -> Any:
    if spec.kind in (FieldKind.INPUT_TENSOR_ARRAY, FieldKind.OUTPUT_TENSOR_ARRAY):
        return tuple(map(_parse_tensor, word.split("+")))
    if spec.kind.is_tensor:
        return _parse_tensor(word)
    if spec.kind is FieldKind.ENUM:
        assert spec.enumeration is not None
        return spec.enumeration[word.upper()]
    if spec.kind in (FieldKind.FUSED_ACTIVATION, FieldKind.OPERATOR_DESC_ARRAY):
        found = tuple(parse_desc(name, fields) for name, *fields in (part.split(":") for part in word.split("+")))
        return found if spec.kind is FieldKind.OPERATOR_DESC_ARRAY else found[0]
    if spec.kind is FieldKind.SCALE_BIAS:
        scale, bias = word.split(",")
        return ScaleBias(float(scale), float(bias))
    if spec.kind is FieldKind.SIZE_2D:
        width, height = map(int, word.split(","))
        return Size2D(width, height)
    if spec.kind is FieldKind.BOOL:
        return {"true": True, "false": False}[word.lower()]
    if spec.kind in (FieldKind.UINT_ARRAY, FieldKind.INT_ARRAY, FieldKind.FLOAT_ARRAY):
        number = float if spec.kind is FieldKind.FLOAT_ARRAY else int
        return tuple(number(item) for item in word.split(",") if item)
    if spec.kind is FieldKind.SCALAR_UNION:
        return int(word) if re.fullmatch(r"[+-]?\d+", word) else float(word)
    return {FieldKind.UINT: int, FieldKind.INT: int, FieldKind.FLOAT: float}[spec.kind](word)


def _explain(options: argparse.Namespace) -> int:
    if options.operator.endswith(".onnx") or os.path.isfile(options.operator):
        return _explain_node(options)
    if options.size:
        raise InvalidArgumentError(
            "must be left out: an operator's sizes stand in its fields", field="--size", value=options.size
        )
    desc = parse_desc(options.operator, options.fields)
    desc.validate()
    device = Device(options.device)
    flags = ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION if options.allow_half_precision else ExecutionFlags.NONE
    capabilities = dataclasses.replace(device.capabilities, allow_half_precision=options.allow_half_precision)
    compiled = device.compile_operator(device.create_operator(desc), flags)
    explanation = explain_operator(desc, compiled.plan, capabilities)
    if options.json:
        _print_json({"device": device.info.name, "chosen": explanation.chosen, **dataclasses.asdict(explanation)})
        return 0
    print(f"{explanation.operator} on {device.info.name}, lowered as {explanation.lowered_as}")
    print("\n".join(explanation.lines()))
    return 0


def _explain_node(options: argparse.Namespace) -> int:
    from dmlvk.onnx.command_line import loaded, random_feeds

    if len(options.fields) != 1:
        raise InvalidArgumentError("must be the name of one node of the model", field="NODE", value=" ".join(options.fields))
    if options.allow_half_precision:
        raise InvalidArgumentError("must be left out of a model's nodes", field="--allow-half-precision", value=True)
    session = loaded(options.operator, options.device)
    session.run(None, random_feeds(session, dict(options.size)))
    explanation = session.explain(options.fields[0])
    if options.json:
        _print_json({"device": session.device.info.name, **explanation.to_dict()})
    else:
        print(f"{explanation}\non {session.device.info.name}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from dmlvk.verify import command
    from dmlvk.verify.runs import Selection

    if options.json in {class_name(operator) for operator in OperatorType}:
        rule = "must be a file; write the operator before --json, or after --json -"
        raise InvalidArgumentError(rule, field="--json", value=options.json)
    if options.html is not None:
        from dmlvk.verify.page import page  # before minutes have passed: what it needs may not be installed
    full = options.full or options.only
    selection = Selection.QUICK if options.quick else Selection.FULL if full else Selection.DEFAULT
    device = Device(options.device)
    card = command.verify(device, options.operators, selection, only=options.only, commit=options.commit)
    if options.json == "-":
        _print_json(card.as_json())
    else:
        machine = card.machine
        reduced = f", reduced to {machine.mask}" * bool(machine.mask)
        print(f"device {machine.device}, driver {machine.driver}, uuid {machine.uuid}{reduced}")
        _print_table(command.table(card), command.HEAD)
        print("\n".join(command.summary(card)))
        if options.json is not None:
            card.write(pathlib.Path(options.json))
    if options.html is not None:
        options.html.write_text(page(card), encoding="utf-8")
    return 0 if card.passed else 1


def _run(options: argparse.Namespace) -> int:
    import numpy as np

    from dmlvk.onnx.command_line import loaded, random_feeds, read_feeds

    started = time.perf_counter()
    session = loaded(str(options.model), options.device)
    load_seconds = time.perf_counter() - started
    feeds = random_feeds(session, dict(options.size)) if options.input is None else read_feeds(options.input)
    times = []
    for _ in range(1 + options.repeat):
        started = time.perf_counter()
        outputs = session.run(None, feeds)
        times.append(time.perf_counter() - started)
    report = session.report() if options.profile is None else session.profile(feeds)
    if options.profile is not None:
        options.profile.write_text(report.chrome_trace(), encoding="utf-8")
    arrays: dict[str, Any] = {}
    for info, output in zip(session.get_outputs(), outputs, strict=True):
        if isinstance(output, list):  # a sequence
            arrays.update((f"{info.name}.{index}", item) for index, item in enumerate(output))
        elif output is not None:
            arrays[info.name] = output
    if options.output is not None:
        np.savez(options.output, **arrays)
    summary: dict[str, Any] = {
        "device": session.device.info.name,
        "load_seconds": load_seconds,
        "first_run_seconds": times[0],
        "run_seconds": sorted(times[1:])[len(times[1:]) // 2] if times[1:] else times[0],
        "outputs": {
            name: {"shape": list(value.shape), "type": str(value.dtype), "mean": float(np.mean(value.astype(float)))}
            for name, value in arrays.items()
        },
        "report": report.to_dict(),
    }
    if options.json:
        _print_json(summary)
        return 0
    print(report)
    if options.profile is not None:
        print(report.table())
    for name, item in summary["outputs"].items():
        print(f"{name}: {item['type']}{item['shape']}, mean {item['mean']:.6g}")
    print(
        f"load {load_seconds * 1e3:.1f} ms, first run {times[0] * 1e3:.1f} ms, "
        f"then {summary['run_seconds'] * 1e3:.2f} ms (median of {max(options.repeat, 1)})"
    )
    return 0
