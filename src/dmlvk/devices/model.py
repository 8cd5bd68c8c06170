"""The model of a device: how many processors it has, how fast its memory is, what a launch costs.

``Capabilities`` say what kernels may do; a ``DeviceModel`` says what is fast. Rules and lowerings read it as ``caps.model``.
They hold ratios ("8 workgroups for each processor"); the numbers of one device stand here, or are measured.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


class NumberSource(enum.StrEnum):
    """The source of a number of a model."""

    VULKAN = "Vulkan"
    MEASURED = "measured"
    SHIPPED = "shipped row"
    GENERIC = "generic"


@dataclass(frozen=True)
class DeviceModel:
    """The speed of a device, as the rules know it.

    Attributes:
        name: The name of the row that it started from: a key of ``MODELS``.
        processors: Compute units, streaming multiprocessors, cores: what a workgroup runs on.
        resident_invocations: The invocations that a processor holds at once; all processors together hold a wave.
        bytes_per_microsecond: The bytes that a large copy reads and writes, together.
        launch_microseconds: The time of a dispatch that waits for nothing.
        barrier_microseconds: The further time of a dispatch that waits for the one before.
        latency_microseconds: The time from a load to its value, and of a barrier of the workgroup.
        products_per_microsecond: Multiply-adds of float32, of one processor.
        half_products_per_microsecond: Multiply-adds of cooperative matrices, float16 with float32 sums; None if not known.
        byte_products_per_microsecond: Multiply-adds of cooperative matrices of int8; None if not known.
        sources: The source of each of these numbers, in this order. Two models are equal whatever their sources.
    """

    name: str
    processors: int
    resident_invocations: int
    bytes_per_microsecond: float
    launch_microseconds: float
    barrier_microseconds: float
    latency_microseconds: float
    products_per_microsecond: float
    half_products_per_microsecond: float | None = None
    byte_products_per_microsecond: float | None = None
    sources: tuple[NumberSource, ...] = dataclasses.field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.sources:
            source = NumberSource.GENERIC if self.name == "gpu" else NumberSource.SHIPPED
            object.__setattr__(self, "sources", (source,) * len(NUMBERS))

    def told(self, source: NumberSource, numbers: Mapping[str, float | None]) -> DeviceModel:
        """The model with better numbers, those that are not None, and where they come from."""
        known = {name: value for name, value in numbers.items() if value is not None}
        pairs = zip(NUMBERS, self.sources, strict=True)
        sources = tuple(source if name in known else own for name, own in pairs)
        return dataclasses.replace(self, **known, sources=sources)  # type: ignore[arg-type]

    def is_known(self, number: str) -> bool:
        """Whether a number is that of this device, or of one like it, and no guess."""
        return self.sources[NUMBERS.index(number)] is not NumberSource.GENERIC

    @property
    def dispatch_microseconds(self) -> float:
        """The time of a dispatch that waits for the one before."""
        return self.launch_microseconds + self.barrier_microseconds

    def workgroups(self, each: float) -> int:
        """The workgroups, rows or tiles that give every processor ``each`` of them; at least 1.

        Processors are counted as the nearest power of two, as grids are cut by powers of two.
        """
        return max(int(nearest_power_of_two(self.processors) * each), 1)

    def invocations(self, share: float) -> int:
        """The invocations that are such a share of a wave, with processors counted as ``workgroups`` counts them."""
        return self.workgroups(nearest_power_of_two(self.resident_invocations) * share)

    def known(self) -> dict[str, tuple[float, str]]:
        """Each number that is known, with where it comes from."""
        values = ((name, getattr(self, name), str(source)) for name, source in zip(NUMBERS, self.sources, strict=True))
        return {name: (value, source) for name, value, source in values if value is not None}

    def __str__(self) -> str:
        """The name of its row, and each number that is known with its source: such as "processors 132 (Vulkan)"."""
        numbers = (f"{name} {value:,g} ({source})" for name, (value, source) in self.known().items())
        return f"{self.name}: {', '.join(numbers)}"


NUMBERS: Final = tuple(field.name for field in dataclasses.fields(DeviceModel) if field.name not in ("name", "sources"))
"""Names of a model's numbers."""


def nearest_power_of_two(number: float) -> int:
    """The power of two that is nearest, at least 1: 132 counts as 128, 20 as 16, 24 as 32."""
    return 1 << max(math.floor(math.log2(number) + 0.5), 0)


def preferred(number: float) -> float:
    """The nearest of Renard's numbers R10: 1, 1.25, 1.6, 2, 2.5, 3.15, 4, 5, 6.3, 8, 10 and so on.

    What is measured is rounded so: two measurements of one device make one model.
    """
    steps = round(10 * math.log10(number))
    return (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)[steps % 10] * 10.0 ** (steps // 10)


H200: Final = DeviceModel(
    "h200",
    processors=132,
    resident_invocations=2048,
    bytes_per_microsecond=4e6,
    launch_microseconds=0.16,
    barrier_microseconds=2.34,
    latency_microseconds=0.45,
    products_per_microsecond=224e3,
    half_products_per_microsecond=2.4e6,
    byte_products_per_microsecond=4.8e6,
)
"""An NVIDIA H200 under driver 580, measured in 2026 (bench/results/h200.json): copies move 4.25 TB/s; of 1000 dispatches
each takes 2.25 us where it waits for the one before, 0.16 us where it waits for none; matrices reach 628 TFLOP/s and 1256
TOP/s. 128 multiply-adds a cycle of 1.75 GHz are a processor's. The latency and the barrier, a little longer than measured,
are fitted to 1x1 convolutions of ResNet-50 within 15 %."""

GENERIC_GPU: Final = DeviceModel(
    "gpu",
    processors=32,
    resident_invocations=1024,
    bytes_per_microsecond=4e5,
    launch_microseconds=2.5,
    barrier_microseconds=2.5,
    latency_microseconds=0.5,
    products_per_microsecond=200e3,
)
"""A GPU of which nothing is known: of the middle of what is sold in 2026."""

CPU: Final = DeviceModel(
    "cpu",
    processors=128,
    resident_invocations=2048,
    bytes_per_microsecond=4e4,
    launch_microseconds=31.5,
    barrier_microseconds=3.15,
    latency_microseconds=0.1,
    products_per_microsecond=315.0,
)
"""A driver that runs kernels on a CPU: lavapipe (bench/results/lavapipe.json), 42 GB/s, 35 us a dispatch, 85 GFLOP/s. Its
processors are not its cores but how finely work is cut: a driver ends an invocation's loops after 65535 rounds, so that
long rows must have many parts on few cores, too."""

PHONE: Final = DeviceModel(
    "phone",
    processors=4,
    resident_invocations=1024,
    bytes_per_microsecond=3.15e4,
    launch_microseconds=10.0,
    barrier_microseconds=10.0,
    latency_microseconds=0.63,
    products_per_microsecond=63e3,
)
"""A GPU as phones of 2022 have: four cores of 64 multiply-adds a cycle of 1 GHz, which share 32 GB/s with the CPU
(Arm's data sheet of the Mali-G610 MP4, LPDDR5)."""

MODELS: Final = {model.name: model for model in (H200, GENERIC_GPU, CPU, PHONE)}
"""The shipped rows by name, which ``DMLVK_MODEL`` takes."""

DEVICES: Final = {"NVIDIA H200": H200}
"""The models of devices that have a row of their own, by the driver's name of the device."""
