"""``python -m dmlvk devices``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dmlvk.cli.command import Command, option
from dmlvk.cli.output import INTERRUPTED, Output
from dmlvk.cli.parameters import json_option

if TYPE_CHECKING:
    from dmlvk.runtime.device import DeviceInfo


@click.command("devices", cls=Command, examples=("", "--measure"))
@option("--measure", is_flag=True, help="Open each, measure it, and keep what was found.")
@json_option
def command(measure: bool, out: Output) -> int:
    """List the Vulkan devices, and what is known of their speed."""
    from dmlvk.devices.mask import Mask
    from dmlvk.devices.profiles import PROFILES
    from dmlvk.engine.progress import UntilInterrupted
    from dmlvk.runtime.device import devices

    mask = str(Mask.from_environment())
    found = []
    described = UntilInterrupted(_described(info, mask, measure) for info in devices())
    for item, model in described:
        found.append(item)
        out.say(f"{item['index']}: {item['name']} ({item['type']}, {item['memory']:,} bytes)")
        out.say(f"   driver   {item['driver']}\n   uuid     {item['uuid']}")
        out.say(f"   features {', '.join(name for name, there in item['features'].items() if there) or 'none'}")
        out.say(f"   without  {', '.join(name for name, there in item['features'].items() if not there) or 'none'}")
        out.say(f"   model    {model}")
        if measure:
            out.say(f"   measured {', '.join(f'{name} {value:,g}' for name, value in item['measured'].items())}")
    out.say(f"mask: {mask or 'none'}; the profiles that DMLVK_PROFILE takes are {', '.join(PROFILES)}")
    out.write(found)
    return INTERRUPTED if described.interrupted else 0


def _described(info: DeviceInfo, mask: str, measure: bool) -> tuple[dict[str, Any], str]:
    """A device as JSON has it, and its model in words."""
    from dmlvk.directml.device import Device
    from dmlvk.runtime.device import known_model
    from dmlvk.runtime.measure import measure_model

    measured = {"measured": measure_model(Device(info))} if measure else {}
    model = known_model(info)
    return {
        "index": info.index,
        "name": info.name,
        "uuid": info.uuid,
        "driver": info.driver,
        "type": info.type,
        "memory": info.memory_in_bytes,
        "features": dict(info.features),
        "mask": mask,
        **measured,
        "model": {"name": model.name, **model.known()},
    }, str(model)
