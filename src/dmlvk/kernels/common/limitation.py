"""The limits of devices, which no kernel can pass: each is declared here once, raised where a desc meets it, and
listed by ``python -m dmlvk ops`` and the reference for the operators whose lowering names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dmlvk.devices.capabilities import Capabilities
from dmlvk.spec.errors import UnsupportedError


def _any(caps: Capabilities) -> bool:
    return True


@dataclass(frozen=True)
class Limitation:
    """A reason for which a valid desc may have no plan.

    Attributes:
        name: The name that errors and listings carry.
        rule: The rule that descs which run keep to, as a sentence without its full stop.
        devices: The devices that it is about, in words.
        concerns: Whether a device is one of them.
    """

    name: str
    rule: str
    devices: str
    concerns: Callable[[Capabilities], bool] = _any

    def error(self, found: str, operator: str, *, features: tuple[str, ...] = ()) -> UnsupportedError:
        """The error to raise.

        Args:
            found: The desc's need that the device does not meet, in words.
            operator: The operator's DirectML name.
            features: The device features that it would take.
        """
        return UnsupportedError(found, operator=operator, limitation=self.name, features=features)


FEATURES: Final = Limitation(
    "features",
    "the device has the features that loading, storing and computing the data types takes, and the kernel's subgroups",
    "those without such a feature",
)
STORAGE_BINDING: Final = Limitation(
    "storage_binding",
    "a tensor has less than 2**32 elements and fits a storage binding, or the operator can be cut into parts of which each "
    "does; what a kernel keeps of it on the way fits one too",
    "every device, each with its own maxStorageBufferRange: 128 MiB at least, 4 GiB at most",
)
WORKGROUPS: Final = Limitation(
    "workgroups",
    "the workgroups of a dispatch stay below maxComputeWorkGroupCount",
    "every device, each with its own, 65535 in each of three dimensions at least",
)
LOOP_ROUNDS: Final = Limitation(
    "loop_rounds",
    "no shader needs more than 65535 rounds of its loops, those of nested ones multiplied",
    "drivers of CPUs: Mesa's lavapipe leaves a loop after as many, without an error",
    lambda caps: caps.is_cpu,
)
LAUNCHES: Final = Limitation(
    "launches",
    "an operator takes no more launches than Device(max_launches=...) allows, 16384 where nothing is said",
    "every device: the host prepares each launch, of a recurrent network one or two for each step, or for many steps where "
    "a workgroup can take them; of what is cut into parts that bindings hold one or more for each part",
)
POSITIONS: Final = Limitation(
    "positions",
    "along every dimension the positions that windows, blocks and samples reach, in the padding too, fit 31 bits",
    "every device: shaders count positions in 32-bit integers",
)
SAMPLES: Final = Limitation(
    "samples",
    "a region's MinimumSamplesPerOutput is 1024 at most, and so a million samples of each output",
    "every device: a dispatch that takes seconds counts as hung",
)

EVERY_OPERATOR: Final = (FEATURES, STORAGE_BINDING, WORKGROUPS, LAUNCHES)
"""The limitations that any desc may meet."""
