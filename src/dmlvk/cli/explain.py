"""``python -m dmlvk explain``."""

from __future__ import annotations

import dataclasses
import os

import click
from click.shell_completion import CompletionItem

from dmlvk.cli.command import Command, option
from dmlvk.cli.output import Output
from dmlvk.cli.parameters import device_option, json_option, operator_names, size_option
from dmlvk.spec.errors import InvalidArgumentError


def _operators_and_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file"), *operator_names(context, parameter, incomplete)]


@click.command(
    "explain",
    cls=Command,
    examples=(
        "Gemm a_tensor=FLOAT16[64,128] b_tensor=FLOAT16[128,256]",
        "model.onnx NODE --size batch=8",
    ),
)
@click.argument("operator", metavar="OPERATOR|MODEL", shell_complete=_operators_and_files)
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]...|NODE")
@size_option()
@option(
    "--allow-half-precision",
    is_flag=True,
    help="As compiled with ALLOW_HALF_PRECISION_COMPUTATION: FLOAT32 may be computed in float16.",
)
@option(
    "--compiled",
    is_flag=True,
    help="Also what the driver made of each kernel: registers, spills and the like, and with --json its code.",
)
@device_option
@json_option
def command(
    operator: str,
    fields: tuple[str, ...],
    sizes: tuple[tuple[str, int], ...],
    allow_half_precision: bool,
    compiled: bool,
    device: str | None,
    out: Output,
) -> int:
    """Show which kernel rule a desc, or a node of an ONNX model, gets, and why.

    OPERATOR is a class name, such as MeanVarianceNormalization1; a FIELD is one of its desc, such as
    input_tensor=FLOAT32[32,256,128,128], axes=2,3 or epsilon=1e-5. Outputs that are left out are inferred.
    """
    if operator.endswith(".onnx") or os.path.isfile(operator):
        return _explain_node(operator, fields, dict(sizes), allow_half_precision, compiled, device, out)
    if sizes:
        raise InvalidArgumentError("must be left out: an operator's sizes stand in its fields", field="--size", value=sizes)
    return _explain_operator(operator, fields, allow_half_precision, compiled, device, out)


def _explain_operator(
    name: str, fields: tuple[str, ...], half: bool, compiled: bool, device: str | None, out: Output
) -> int:
    from dmlvk.cli.descs import parse_desc
    from dmlvk.directml.device import Device
    from dmlvk.engine.explanation import explain_operator
    from dmlvk.spec.enums import ExecutionFlags

    desc = parse_desc(name, fields)
    desc.validate()
    opened = Device(device)
    flags = ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION if half else ExecutionFlags.NONE
    capabilities = dataclasses.replace(opened.capabilities, allow_half_precision=half)
    plan = opened.compile_operator(opened.create_operator(desc), flags).plan
    explanation = explain_operator(desc, plan, capabilities, opened.programs if compiled else None)
    out.write({"device": opened.info.name, "chosen": explanation.chosen, **dataclasses.asdict(explanation)})
    out.say(f"{explanation.operator} on {opened.info.name}, lowered as {explanation.lowered_as}", *explanation.lines())
    return 0


def _explain_node(
    model: str,
    names: tuple[str, ...],
    sizes: dict[str, int],
    half: bool,
    compiled: bool,
    device: str | None,
    out: Output,
) -> int:
    from dmlvk.onnx.command_line import loaded, random_feeds

    if len(names) != 1:
        raise InvalidArgumentError("must be the name of one node of the model", field="NODE", value=" ".join(names))
    if half:
        raise InvalidArgumentError("must be left out of a model's nodes", field="--allow-half-precision", value=True)
    session = loaded(model, device)
    session.run(None, random_feeds(session, sizes))
    explanation = session.explain(names[0], compiled=compiled)
    out.write({"device": session.device.info.name, **explanation.to_dict()})
    out.say(f"{explanation}\non {session.device.info.name}")
    return 0
