"""``python -m dmlvk ops``."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import click

from dmlvk.cli.command import Command
from dmlvk.cli.output import Output
from dmlvk.cli.parameters import device_option, json_option
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.schema import REGISTRY, class_name

if TYPE_CHECKING:
    from dmlvk.devices.capabilities import Capabilities


@click.command("ops", cls=Command, examples=("", "--device 1 --json"))
@device_option
@json_option
def command(device: str | None, out: Output) -> int:
    """List DirectML's operators, and what the device cannot do of them."""
    from dmlvk.directml.device import Device
    from dmlvk.kernels.common.limitation import EVERY_OPERATOR

    opened = Device(device)
    operators, limitations = operator_list(opened.capabilities), limitation_list(opened.capabilities)
    out.write({"device": opened.info.name, "operators": operators, "limitations": limitations})
    general = {limitation.name for limitation in EVERY_OPERATOR}
    rows = []
    for item in operators:
        own = ", ".join(name for name in item["limitations"] if name not in general)
        types = ", ".join(f"{name} ({' '.join(missing)})" for name, missing in item["unsupported"].items())
        rows.append((item["class"], item["feature_level"], item["status"], own, types, ", ".join(item["in_place"])))
    out.table(rows, ("operator", "level", "status", "limitations", "without", "in place"))
    out.say(f"{sum(item['status'] == 'implemented' for item in operators)} of {len(operators)} implemented")
    out.say(f"\nWhat a desc may meet on {opened.info.name}:")
    for item in limitations:
        which = "any operator" if item["name"] in general else "those that say so"
        out.say(f"  {item['name']} ({which}): {item['rule']}\n    on {item['devices']}")
    return 0


def operator_list(caps: Capabilities) -> list[dict[str, Any]]:
    """Every DirectML operator with its status, the limitations that its descs may meet on a device, and the data types
    that the device cannot do, each with the features that it lacks."""
    from dmlvk.kernels.common.data_types import unsupported_types
    from dmlvk.kernels.common.registry import has_kernels, limitations_of

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
    from dmlvk.kernels.common.registry import has_kernels, limitations_of

    found = dict.fromkeys(itertools.chain.from_iterable(map(limitations_of, filter(has_kernels, REGISTRY.values()))))
    return [
        {"name": limitation.name, "rule": limitation.rule, "devices": limitation.devices}
        for limitation in found
        if limitation.concerns(caps)
    ]
