"""A driver's own account of what it made of a pipeline, by ``VK_KHR_pipeline_executable_properties``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Statistic:
    """A number of an executable, such as its registers; which there are is the driver's choice.

    Attributes:
        name, description: The driver's.
        value: A truth value, a whole number or a float, as the driver has it.
    """

    name: str
    description: str
    value: bool | int | float


@dataclass(frozen=True)
class Representation:
    """A form of an executable, such as a compiler's code or the machine's.

    Attributes:
        name, description: The driver's.
        text: The form; of one that is no text its bytes in hexadecimal.
    """

    name: str
    description: str
    text: str


@dataclass(frozen=True)
class Executable:
    """What a driver made of a pipeline, or of a part of one: most often there is one.

    Attributes:
        name, description: The driver's.
        subgroup_size: Invocations of a subgroup.
        statistics: Its numbers.
        representations: Its forms.
    """

    name: str
    description: str
    subgroup_size: int
    statistics: tuple[Statistic, ...]
    representations: tuple[Representation, ...]

    def __str__(self) -> str:
        numbers = (f"{item.name} {item.value:,}" for item in self.statistics)
        return f"{self.name}, subgroups of {self.subgroup_size}: {', '.join(numbers) or 'the driver tells no more'}"


def executables_of(executables: list[Any]) -> tuple[Executable, ...]:
    """The native module's tuples by name."""
    return tuple(
        Executable(
            name,
            description,
            subgroup_size,
            tuple(Statistic(*statistic) for statistic in statistics),
            tuple(
                Representation(form, about, data.decode(errors="replace") if is_text else data.hex())
                for form, about, data, is_text in representations
            ),
        )
        for name, description, subgroup_size, statistics, representations in executables
    )
