"""Who else computes the measured problems: PyTorch, ONNX Runtime, ncnn; each on the same numbers, in the same run."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from dmlvk.directml.device import Device
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk_bench.names import RIVALS
from dmlvk_bench.rivals.base import Prepared, Rival, RivalMissingError
from dmlvk_bench.timing import QUICK, THOROUGH

__all__ = ["Prepared", "Rival", "find"]


def find(
    names: Iterable[str], device: Device | None = None, *, quick: bool = False
) -> tuple[dict[str, Rival], dict[str, str]]:
    """The rivals of these names that can take part here, and why each of the others cannot.

    Args:
        names: Some of ``RIVALS``.
        device: Ours. Beside a CPU's driver a rival computes on the CPU, too, and ncnn takes the Vulkan device of the same
            name; without, a rival takes the best device that it finds.
        quick: A few executions each.

    ONNX Runtime and ncnn run in processes of their own: a script that calls this keeps what it does under
    ``if __name__ == "__main__"``, as Python's ``multiprocessing`` asks.

    Raises:
        InvalidArgumentError: there is no rival of this name.
    """
    available: dict[str, Rival] = {}
    missing: dict[str, str] = {}
    for name in names:
        if name not in RIVALS:
            raise InvalidArgumentError(f"must be one of {', '.join(RIVALS)}", field="against", value=name)
        module = importlib.import_module(f"{__name__}.{name}_rival")
        try:
            available[name] = module.open_rival(device, QUICK if quick else THOROUGH)
        except RivalMissingError as error:
            missing[name] = str(error)
    return available, missing
