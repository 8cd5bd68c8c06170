"""The one way from a kernel's manifest row to a launch of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dmlvk.kernels.common.plan import Dispatch, KernelVariant, Range
from dmlvk.kernels.manifest import KERNELS


def make_dispatch(
    kernel: str,
    bindings: Iterable[Range],
    grid: tuple[int, int, int],
    subgroup_size: int = 0,
    /,
    *,
    variant: Mapping[str, str | int],
    constants: Mapping[str, int],
    **params: Any,
) -> Dispatch:
    """A launch of a kernel, held against the kernel's manifest row.

    Args:
        kernel: The row's name.
        bindings: A range for each of its buffers, in the row's order.
        grid: Workgroups in x, y, z.
        subgroup_size: The subgroup size that the kernel requires, 0 for the device's choice.
        variant: A value for each of its macros, in any order; True and False are 1 and 0.
        constants: Specialisation constants by name. Those that are left out have the row's defaults.
        params: Every member of its parameter block.
    """
    spec = KERNELS[kernel]
    bindings = tuple(bindings)
    assert len(bindings) == len(spec.buffers), f"{kernel} has the buffers {spec.buffers}, got {bindings}"
    assert variant.keys() == set(spec.macros), f"{kernel} has the macros {spec.macros}, got {sorted(variant)}"
    unknown = constants.keys() - spec.defaults.keys()
    assert not unknown, f"{kernel} has no constants {sorted(unknown)}"
    macros = tuple((macro, _text(variant[macro])) for macro in spec.macros)
    chosen = tuple((name, int(value)) for name, value in constants.items())
    return Dispatch(KernelVariant(kernel, macros, chosen, subgroup_size), bindings, spec.pack(**params), grid)


def _text(value: str | int) -> str:
    return value if isinstance(value, str) else str(int(value))
