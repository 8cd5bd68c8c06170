"""Arithmetic in registers and nothing else: plans that show what a device computes at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dmlvk.devices.capabilities import Capabilities, CooperativeMatrix
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Plan, output_range
from dmlvk.kernels.manifest import KERNELS

_INVOCATIONS: Final = 256
"""Invocations of a workgroup, where the device allows so many."""


@dataclass(frozen=True)
class Arithmetic:
    """A kernel that does nothing but compute.

    Attributes:
        kernel: Its name in the manifest.
        constants: The specialisation constants, where they differ from the manifest's.
        params: The parameters, without ``rounds``.
        operations: The operations of a workgroup in a round; a multiply-add counts as two.
        output_bytes: The bytes that a workgroup writes.
    """

    kernel: str
    constants: Mapping[str, int]
    params: Mapping[str, int | float]
    operations: int
    output_bytes: int

    def is_possible(self, caps: Capabilities) -> bool:
        """Whether a device has the features that it needs."""
        spec = KERNELS[self.kernel]
        return all(caps.features.issuperset(spec.required_features(variant)) for variant in spec.combinations())

    def plan(self, workgroups: int, rounds: int) -> Plan:
        """A plan of one dispatch, of so many workgroups that each go through so many rounds."""
        (macros,) = KERNELS[self.kernel].combinations()
        made = make_dispatch(
            self.kernel,
            (output_range(),),
            (workgroups, 1, 1),
            variant=dict(macros),
            constants=self.constants,
            rounds=rounds,
            **self.params,
        )
        return Plan((made,))


def chains(caps: Capabilities, kernel: str, operations: int, invocations: int = _INVOCATIONS) -> Arithmetic:
    """Independent chains of multiply-adds in every invocation.

    Args:
        caps: The device's capabilities.
        kernel: "peak_float32", "peak_float16" or "peak_int8".
        operations: The operations of one instruction.
        invocations: The invocations of a workgroup, where the device allows so many.
    """
    invocations = min(invocations, caps.workgroup_invocations)
    defaults = dict(KERNELS[kernel].constants)
    params: dict[str, int | float] = (
        {"factor": 0x7F030501} if kernel == "peak_int8" else {"factor": 0.75, "addend": 0.3, "step": 2.0**-10}
    )
    each = int(defaults["CHAINS"] * defaults["STEPS"]) * operations
    return Arithmetic(kernel, {"LOCAL_SIZE_X": invocations}, params, invocations * each, 4 * invocations)


def matrices(caps: Capabilities, operands: str, sums: str) -> list[Arithmetic]:
    """Independent sums of products of cooperative matrices, one for each shape that the device multiplies.

    Args:
        caps: The device's capabilities.
        operands: Component type of the factors, "float16" or "int8".
        sums: Component type of the sums.
    """
    shapes = [shape for shape in caps.cooperative_matrices if (shape.operands, shape.sums) == (operands, sums)]
    return [_products(caps, shape) for shape in shapes]


def _products(caps: Capabilities, shape: CooperativeMatrix) -> Arithmetic:
    kernel = f"peak_matrix_{shape.operands}"
    subgroups = max(1, min(_INVOCATIONS, caps.workgroup_invocations) // caps.subgroup_size)
    constants = {"LOCAL_SIZE_X": subgroups * caps.subgroup_size, "MAT_M": shape.m, "MAT_N": shape.n, "MAT_K": shape.k}
    defaults = dict(KERNELS[kernel].constants)
    each = int(defaults["SUMS"] * defaults["STEPS"]) * 2 * shape.m * shape.n * shape.k
    return Arithmetic(kernel, constants, {"factor": 7}, subgroups * each, subgroups * shape.m * shape.n * 4)
