"""The page of DirectML's operators, made from the operator table.

Everything on it comes from somewhere else: fields and constraints from the rows of ``dmlvk.spec.ops``, tolerances from
``dmlvk.verify.cases``, measured errors from the accuracy cards that ``python -m dmlvk verify --full --json FILE`` wrote: of
MEASUREMENTS.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
import pathlib
import sys
import typing
from collections.abc import Iterable, Iterator, Sequence

from dmlvk.kernels.common import registry
from dmlvk.kernels.common.data_types import needed_features
from dmlvk.kernels.common.limitation import EVERY_OPERATOR
from dmlvk.kernels.common.registry import limitations_of
from dmlvk.spec import ops as _ops  # noqa: F401  # fills the registry
from dmlvk.spec.enums import OperatorType, TensorDataType
from dmlvk.spec.schema import REGISTRY, Constraint, FieldKind, FieldSpec, OperatorDesc, class_name
from dmlvk.verify import card as verify_card
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import EXACT, OperatorCases, Tolerance

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEASUREMENTS = {"H200": "bench/results/h200-verify.json", "lavapipe": "bench/results/lavapipe-verify.json"}
"""Column -> file with the measured errors; a file that is not there has measured nothing."""

KINDS = ("FLOAT", "INT", "UINT")
"""Of data types, in the page's order."""

INTRODUCTION = """\
# Operators

DirectML has {total} operators; all are implemented here, in {families} families:

{contents}

What devices cannot do of them stands under [limitations](#limitations); `python -m dmlvk ops` says it of a device at hand.

## How to read this page

- A class is `dmlvk.ElementWiseAdd`, its function `dmlvk.eager.element_wise_add`, DirectML's name for it
  `DML_OPERATOR_ELEMENT_WISE_ADD`. Fields stand in the struct's order.
- *Level* is the feature level that introduced the operator.
- *In place*: an output may share the exact range of one of these inputs.
- *Runs as*: an older issue has no kernel of its own, but is the newer one with some fields fixed.
- Data types are written by kind: `FLOAT 32 16` is FLOAT32 and FLOAT16.
- *Needs*: the device features without which the operator, or the data type named with them, is an `UnsupportedError`.
  *Limited by*: other reasons for one, beside those that any operator may meet.
- *Fused activation*: any operator marked "can be fused", and those named beside the field.
- *Error* is counted in units in the last place (ULP) of the output's type, from a float64 result. *Allowed* is what the
  tests hold every device to; "from 0.5 up" counts smaller results in the ULP of 0.5. The devices' columns hold the largest
  error seen over all cases of that data type (the tensors' common type; index tensors have their own). 0 is bit-exact.
{sources}
"""


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What one device showed.

    Attributes:
        source: The file and what it says about itself, as a sentence.
        errors: (operator, data type) -> the error as the page says it.
    """

    source: str
    errors: dict[tuple[str, str], str]


def read_measurement(column: str, path: str) -> Measurement:
    """The results in a file of the repository; none where there is no file."""
    if not (ROOT / path).exists():
        return Measurement(f"- *{column}*: not measured, there is no {path}.", {})
    card = verify_card.read(ROOT / path)
    commit = f", commit {card.machine.commit}" if card.machine.commit else ""
    errors = {(entry.operator, entry.data_type): describe_entry(entry) for entry in card.entries}
    return Measurement(f"- *{column}*: {card.machine.device}, driver {card.machine.driver}{commit} (`{path}`).", errors)


def describe_entry(entry: verify_card.Entry) -> str:
    """An entry of an accuracy card in few words."""
    if not entry.passed:
        return "FAILED"
    if entry.unsupported:
        return "unsupported"
    return rounded_up(entry.max_ulp)


def rounded_up(ulp: float) -> str:
    """Three digits, and never less than the number."""
    if ulp == 0:
        return "0"
    digits = 2 - math.floor(math.log10(ulp))
    return f"{math.ceil(round(ulp * 10**digits, 6)) / 10**digits:g}"


def write_types(types: Iterable[TensorDataType]) -> str:
    """``FLOAT 32 16, INT 64 32`` for these data types."""
    names = [data_type.name for data_type in types]
    kinds = ((kind, [name.removeprefix(kind) for name in names if name.rstrip("0123456789") == kind]) for kind in KINDS)
    return ", ".join(" ".join((kind, *sorted(bits, key=int, reverse=True))) for kind, bits in kinds if bits)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    cells = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]


def field_row(row: type[OperatorDesc], spec: FieldSpec) -> tuple[str, str, str]:
    """Name, what it is, and which values it takes."""
    optional = "optional " * spec.optional
    if spec.kind.is_tensor:
        least, most = spec.dimension_counts
        dimensions = f"{least}" if least == most else f"{least} to {most}"
        what = {
            FieldKind.INPUT_TENSOR: "input",
            FieldKind.OUTPUT_TENSOR: "output",
            FieldKind.INPUT_TENSOR_ARRAY: "inputs",
            FieldKind.OUTPUT_TENSOR_ARRAY: "outputs",
        }[spec.kind]
        in_place = ", in place" if spec.name in row.in_place else ""
        values = f"{write_types(spec.data_types)}; {dimensions} dimension{'s' * (most > 1)}"
        return f"`{spec.name}`", f"{optional}{what}{in_place}", values
    what = spec.enumeration.__name__ if spec.enumeration is not None else spec.kind.name
    values = "" if spec.optional else write_default(row, spec)
    if spec.kind is FieldKind.FUSED_ACTIVATION and row.accepts:
        values = "also " + ", ".join(map(class_name, row.accepts))
    return f"`{spec.name}`", f"{optional}{what}", values


def write_default(row: type[OperatorDesc], spec: FieldSpec) -> str:
    default = inspect.signature(row).parameters[spec.name].default
    if default is inspect.Parameter.empty:
        return ""
    return f"default {default.name if spec.enumeration is not None else default}"


def write_tolerance(tolerance: Tolerance) -> str:
    """The tolerance of a type, in ULP."""
    if not tolerance.magnitude:
        return f"{tolerance.ulp:g}"
    mantissa, exponent = math.frexp(tolerance.magnitude)
    least = f"2^{exponent - 1}" if mantissa == 0.5 and exponent < -9 else f"{tolerance.magnitude:g}"
    return f"{tolerance.ulp:g}, from {least} up"


def output_types(entry: OperatorCases, data_type: TensorDataType) -> list[TensorDataType]:
    """The types that outputs have in the cases of a data type."""
    outputs = [spec for spec in entry.operator.fields if spec.kind.is_output]
    cases = [case for case in entry.cases if data_type in (case.only or entry.crossed_types)]
    found = (case.data_types.get(spec.name, data_type) for case in cases for spec in outputs)
    return list(dict.fromkeys(found))


def crossed(entry: OperatorCases) -> dict[TensorDataType, None]:
    """The data types that any case of an operator has, in order."""
    return dict.fromkeys(itertools.chain(*(case.only or entry.crossed_types for case in entry.cases)))


def accuracy(row: type[OperatorDesc], measurements: dict[str, Measurement]) -> list[str]:
    """The table of errors: data types whose line would be the same share one."""
    entry = all_cases()[row]
    lines: dict[tuple[str, ...], list[TensorDataType]] = {}
    run = crossed(entry)
    for data_type in run:
        allowed = dict.fromkeys(write_tolerance(entry.tolerance.get(own, EXACT)) for own in output_types(entry, data_type))
        measured = (found.errors.get((row.__name__, data_type.name), "not measured") for found in measurements.values())
        lines.setdefault((" or ".join(allowed), *measured), []).append(data_type)
    return table(("error in ULP", "allowed", *measurements), ((write_types(types), *line) for line, types in lines.items()))


def section(row: type[OperatorDesc], measurements: dict[str, Measurement]) -> Iterator[str]:
    """An operator."""
    facts = [f"`{row.type.dml_name}`", f"level {row.feature_level().name.removeprefix('LEVEL_').replace('_', '.')}"]
    if row not in registry.LOWERINGS:
        newer = typing.get_type_hints(row.upgrade)["return"]
        assert newer is not OperatorDesc, f"{row.__name__}.upgrade says in its annotation what it returns"
        facts.append(f"runs as [{newer.__name__}](#{newer.__name__.lower()})")
    if row.in_place:
        facts.append("in place")
    if row.fusable:
        facts.append("can be fused")
    yield from (f"### {row.__name__}", "", " · ".join(facts), "", inspect.getdoc(row) or "", "")
    yield from table(("field", "", "values"), (field_row(row, spec) for spec in row.fields))
    yield ""
    if row.constraints:
        yield from ("Checked: " + "; ".join(write_rule(row, constraint) for constraint in row.constraints) + ".", "")
    if text := limits(row):
        yield from (text, "")
    yield from accuracy(row, measurements)
    yield ""


def limits(row: type[OperatorDesc]) -> str:
    """What the operator asks of a device."""
    needs: dict[frozenset[str], list[TensorDataType]] = {}
    for data_type, features in needed_features(row).items():
        needs.setdefault(features, []).append(data_type)
    always = frozenset.intersection(*needs)
    parts = [", ".join(f"`{name}`" for name in sorted(always))]
    for features, types in needs.items():
        if features - always:
            parts.append(", ".join(f"`{name}`" for name in sorted(features - always)) + f" for {write_types(types)}")
    own = [found.name for found in limitations_of(row) if found not in EVERY_OPERATOR]
    sentences = ["Needs " + "; ".join(filter(None, parts)) + "."] if any(parts) else []
    sentences += ["Limited by " + ", ".join(f"[{name}](#limitation-{name})" for name in own) + "."] if own else []
    return " ".join(sentences)


def limitations() -> Iterator[str]:
    """The table of limitations, each with its operators."""
    yield from (
        "## Limitations",
        "",
        "Compiling a valid desc is an `UnsupportedError` only for these reasons, each a device's:",
        "",
    )
    rows = sorted(filter(registry.has_kernels, REGISTRY.values()), key=lambda row: row.__name__)
    for found in dict.fromkeys(itertools.chain.from_iterable(map(limitations_of, rows))):
        names = [row.__name__ for row in rows if found in limitations_of(row)]
        listed = "any" if found in EVERY_OPERATOR else ", ".join(f"[{name}](#{name.lower()})" for name in names)
        yield f'- <a id="limitation-{found.name}"></a>**{found.name}**: {found.rule}.'
        yield f"  Devices: {found.devices}."
        yield f"  Operators: {listed}."


def write_rule(row: type[OperatorDesc], constraint: Constraint) -> str:
    """The rule, and what it is about where it names no field: an error names that itself."""
    names = {"all tensors", *(name for spec in row.fields for name in (spec.name, spec.dml_name))}
    about = "" if any(name in constraint.rule for name in names) else constraint.label.replace("_", " ") + ": "
    return about + constraint.rule


def families() -> dict[str, list[type[OperatorDesc]]]:
    """The implemented rows by the name of their file in ``dmlvk.spec.ops``, both in alphabetical order."""
    found: dict[str, list[type[OperatorDesc]]] = {}
    for row in sorted(filter(registry.has_kernels, REGISTRY.values()), key=lambda row: (row.__module__, row.__name__)):
        found.setdefault(row.__module__.rpartition(".")[2], []).append(row)
    return found


def page() -> str:
    """The whole page."""
    measurements = {column: read_measurement(column, path) for column, path in MEASUREMENTS.items()}
    by_family = families()
    operators = sorted(OperatorType)[1:]
    implemented = {row.type for rows in by_family.values() for row in rows}
    assert implemented == set(operators), "every operator has a row and kernels"
    contents = [
        f"- [{name}](#{name}): " + ", ".join(f"[{row.__name__}](#{row.__name__.lower()})" for row in rows)
        for name, rows in by_family.items()
    ]
    lines = [
        INTRODUCTION.format(
            total=len(operators),
            families=len(by_family),
            contents="\n".join(contents),
            sources="\n".join(measurement.source for measurement in measurements.values()),
        )
    ]
    for name, rows in by_family.items():
        lines += [f"## {name}", "", inspect.getdoc(sys.modules[rows[0].__module__]) or "", ""]
        for row in rows:
            lines += section(row, measurements)
    lines += limitations()
    return "\n".join(lines).rstrip("\n") + "\n"
