"""The kernels of several pointwise operators in a row: of one tensor, and of several tensors at once."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.shapes import group_lanes
from dmlvk.kernels.common.terms import FLOATS, bits, lanes
from dmlvk.kernels.elementwise.manifest import ITEM_PARAMS, steps
from dmlvk.spec.ops.chain import FIRST_NUMBER, FIRST_RESULT, MOST_INPUTS, MOST_OPERATIONS, NONE, ROUND_TO_BFLOAT16, together

_INPUTS = tuple(f"x{index}" for index in range(MOST_INPUTS))
_NUMBERED = range(MOST_OPERATIONS)

_PROGRAM = (
    ("OPERATIONS", 1),
    *((f"OPERATION_{number}", 0) for number in _NUMBERED),
    *((f"OPERANDS_{number}", 0) for number in _NUMBERED),
)
_PROGRAM_PARAMS = (f"float numbers[{2 * MOST_OPERATIONS}]", "uint zero")
_SHARED = (
    *(("FIRST_NUMBER", FIRST_NUMBER), ("FIRST_RESULT", FIRST_RESULT), ("NONE", NONE)),
    ("ROUND_TO_BFLOAT16", ROUND_TO_BFLOAT16),
)
_SELECTORS = tuple(f"OPERATION_{number}" for number in _NUMBERED)


def _of_several(inputs: int) -> KernelSpec:
    """The kernel of several tensors, for chains of so many inputs."""
    tensors = range(together(inputs))
    return KernelSpec(
        name=f"multi_tensor_chain_{inputs}",
        source="multi_tensor_chain.comp",
        buffers=tuple(
            name for tensor in tensors for name in (*(f"x{tensor}_{index}" for index in range(inputs)), f"y{tensor}:w")
        ),
        params=("uint tensors", f"uint counts[{len(tensors)}]", f"uint ends[{len(tensors)}]", *_PROGRAM_PARAMS),
        constants=(("LOCAL_SIZE_X", 128), ("BROADCAST", 0), *_PROGRAM),
        shared=(("INPUTS", inputs), *_SHARED),
        selectors=_SELECTORS,
        variants=(("LANES T", tuple(f"{group_lanes(bits(name))} {name}" for name in FLOATS)),),
    )


ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="pointwise_chain",
        source="pointwise_chain.comp",
        buffers=(*_INPUTS, "output:w"),
        params=(*ITEM_PARAMS, *steps(*_INPUTS, "output"), *_PROGRAM_PARAMS),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("INPUTS", 1),
            *_PROGRAM,
            *(("RANK", 1), ("ITEMS", 1), ("RUNS", 0)),
            *((f"{name.upper()}_MODE", 0) for name in (*_INPUTS, "output")),
        ),
        shared=_SHARED,
        selectors=_SELECTORS,
        variants=(("LANES T R", lanes((*((name, name) for name in FLOATS), ("FLOAT32", "UINT16")))),),
    ),
    *map(_of_several, range(1, MOST_INPUTS + 1)),
)
