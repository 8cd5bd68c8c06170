"""Plans for rotary embedding."""

from __future__ import annotations

import math

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import broadcast_strides, linear_grid, most_invocations
from dmlvk.kernels.rotary.rules import ROTARY, RotaryProblem
from dmlvk.spec.ops.rotary import RotaryEmbedding
from dmlvk.spec.tensor import TensorDesc, element_bits

_X, _COSINES, _SINES, _POSITIONS = map(input_range, range(4))
_TENSORS = ("input_tensor", "cosines_tensor", "sines_tensor", "output_tensor")


def _problem(desc: RotaryEmbedding) -> RotaryProblem:
    *heads, size = desc.tensor("input_tensor").sizes
    pairs = desc.tensor("cosines_tensor").sizes[2]
    return RotaryProblem(
        chunks=math.prod(heads) * (-(-pairs // 4) + -(-(size - 2 * pairs) // 4)),
        quads=pairs % 4 == 0 and size % 4 == 0 and all(_in_groups(desc.tensor(name)) for name in _TENSORS),
    )


def _in_groups(tensor: TensorDesc) -> bool:
    *strides, last = tensor.effective_strides
    return last == 1 and all(step % 4 == 0 for step, size in zip(strides, tensor.sizes, strict=False) if size != 1)


def _pairs(desc: RotaryEmbedding, problem: RotaryProblem, caps: Capabilities) -> Plan:
    x, cosines, sines, y = (desc.tensor(name) for name in _TENSORS)
    batch, rows, heads, size = x.sizes
    positions = desc.positions_tensor
    local = min(128, most_invocations(caps))
    tables = (batch, *cosines.sizes[1:])
    dispatch = make_dispatch(
        "rotary",
        (_X, _COSINES, _SINES, _X if positions is None else _POSITIONS, output_range()),
        linear_grid(-(-problem.chunks // local), caps),
        variant={"T": x.data_type.name},
        constants={
            "LOCAL_SIZE_X": local,
            "INTERLEAVED": desc.interleaved,
            "POSITION_WORDS": 0 if positions is None else element_bits(positions.data_type) // 32,
            "QUADS": problem.quads,
        },
        count=problem.chunks,
        rows=rows,
        heads=heads,
        size=size,
        pairs=cosines.sizes[2],
        places=cosines.sizes[1],
        x_strides=x.effective_strides,
        y_strides=y.effective_strides,
        cosines_strides=broadcast_strides(cosines, tables),
        sines_strides=broadcast_strides(sines, tables),
        positions_strides=(0, 0) if positions is None else positions.effective_strides,
    )
    return Plan((dispatch,))


register(RotaryEmbedding, problem=_problem, rules=ROTARY, schedules={"pairs": _pairs})
