"""Plans for normalization by the root mean square."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS
from dmlvk.kernels.common.parts import chosen_plan, placed
from dmlvk.kernels.common.plan import Plan, Range, Source, aligned, input_range, output_range
from dmlvk.kernels.common.registry import register, subgroup_features
from dmlvk.kernels.common.shapes import check_rounds, linear_grid, most_invocations
from dmlvk.kernels.root_mean_square.manifest import AddendType
from dmlvk.kernels.root_mean_square.rules import ROOT_MEAN_SQUARE, RootMeanSquareProblem
from dmlvk.spec.ops.root_mean_square import RootMeanSquare
from dmlvk.spec.tensor import TensorDesc, element_bits, packed_strides

_X, _ADDEND, _SCALE = map(input_range, range(3))
_Y, _SUM = map(output_range, range(2))


def _sizes(tensor: TensorDesc) -> tuple[int, ...]:
    """Four sizes."""
    return (1,) * (4 - tensor.dimension_count) + tensor.sizes


def _strides(tensor: TensorDesc | None) -> tuple[int, ...]:
    """Four strides, those of dimensions of size 1 as 0."""
    if tensor is None:
        return (0,) * 4
    own = (0 if size == 1 else step for size, step in zip(tensor.sizes, tensor.effective_strides, strict=True))
    return (0,) * (4 - tensor.dimension_count) + tuple(own)


def norm_row_bytes(desc: RootMeanSquare) -> int:
    """The bytes that make an element of a row."""
    tensors = (desc.input_tensor, desc.addend_tensor, desc.scale_tensor)
    return sum(element_bits(tensor.data_type) // 8 for tensor in tensors if tensor is not None)


def are_norm_rows_packed(desc: RootMeanSquare) -> bool:
    """Whether what a product with a normalization reads and writes of rows is packed."""
    tensors = (desc.input_tensor, desc.addend_tensor, desc.scale_tensor, desc.sum_tensor)
    return all(tensor is None or tensor.effective_strides == packed_strides(tensor.sizes) for tensor in tensors)


class NormSlots(NamedTuple):
    """The slots of a product's inputs that a normalization reads beside the first, and of its output that this writes."""

    addend: int
    scale: int
    sum: int = 1


def norm_buffers(desc: RootMeanSquare, slots: NormSlots) -> tuple[Range, ...]:
    """The buffers of ``glsl/include/normalized_row.glsl`` behind those of a product: what is absent is bound to another."""
    return (
        input_range(0 if desc.addend_tensor is None else slots.addend),
        input_range(slots.scale),
        output_range(0 if desc.sum_tensor is None else slots.sum),
    )


def norm_constants(desc: RootMeanSquare) -> dict[str, int]:
    """The constants of the same."""
    return {"NORM_ADDEND_TYPE": _addend_type(desc), "HAS_SUM": int(desc.sum_tensor is not None)}


def norm_apart(norm: RootMeanSquare, product: Plan, slots: NormSlots, caps: Capabilities, whole: str) -> Plan:
    """The plan of a normalization and of a product of what it makes, temporary memory behind that of the product."""
    rows = norm.tensor("output_tensor")
    home = Range(Source.TEMPORARY, 0, aligned(product.temporary_bytes), rows.total_tensor_size_in_bytes)
    end = home.offset + aligned(home.nbytes)
    first = chosen_plan(norm, caps, whole)
    inputs = (input_range(0), input_range(slots.addend), input_range(slots.scale))
    launches = placed(first, inputs=inputs, outputs=(home, output_range(slots.sum)), temporary=end)

    def moved(part: Range) -> Range:
        if (part.source, part.slot) != (Source.INPUT, 0):
            return part
        return home._replace(offset=home.offset + part.offset, nbytes=part.nbytes or home.nbytes)

    second = (dataclasses.replace(item, bindings=tuple(map(moved, item.bindings))) for item in product.dispatches)
    return dataclasses.replace(product, dispatches=(*launches, *second), temporary_bytes=end + first.temporary_bytes)


def _problem(desc: RootMeanSquare) -> RootMeanSquareProblem:
    *rows, width = desc.tensor("input_tensor").sizes
    tensors = (desc.input_tensor, desc.addend_tensor, desc.output_tensor, desc.sum_tensor)
    walks = [_strides(tensor) for tensor in tensors if tensor is not None]
    side = desc.scale_tensor is None or desc.scale_tensor.effective_strides == (1,)
    quads = side and width % 4 == 0 and all(walk[3] == 1 and all(step % 4 == 0 for step in walk[:3]) for walk in walks)
    return RootMeanSquareProblem(rows=math.prod(rows), groups=-(-width // 4), quads=quads)


def _addend_type(desc: RootMeanSquare) -> AddendType:
    addend = desc.addend_tensor
    if addend is None:
        return AddendType.NONE
    if addend.data_type is desc.tensor("output_tensor").data_type:
        return AddendType.OUTPUT
    return AddendType.INPUT if addend.data_type is desc.tensor("input_tensor").data_type else AddendType.HALF


def _rows(desc: RootMeanSquare, problem: RootMeanSquareProblem, caps: Capabilities, *, held: bool) -> Plan:
    x, y, addend, scale = desc.tensor("input_tensor"), desc.tensor("output_tensor"), desc.addend_tensor, desc.scale_tensor
    lanes = problem.lanes(caps)
    local = max(lanes, min(64, most_invocations(caps)))
    groups = -(-problem.groups // lanes)
    if not held:
        check_rounds(2 * groups, caps, desc.dml_name)
    dispatch = make_dispatch(
        "root_mean_square",
        (
            _X,
            _X if addend is None else _ADDEND,
            _X if scale is None else _SCALE,
            _Y,
            _Y if desc.sum_tensor is None else _SUM,
        ),
        linear_grid(-(-problem.rows // (local // lanes)), caps),
        variant={"T": y.data_type.name, "U": x.data_type.name},
        constants={
            "LOCAL_SIZE_X": local,
            "LANES": lanes,
            "HELD": groups if held else 0,
            "ADDEND_TYPE": _addend_type(desc),
            "HAS_SCALE": scale is not None,
            "HAS_SUM": desc.sum_tensor is not None,
            "QUADS": problem.quads,
        },
        rows=problem.rows,
        width=x.sizes[-1],
        sizes=_sizes(x)[:3],
        x_strides=_strides(x),
        addend_strides=_strides(addend),
        y_strides=_strides(y),
        sum_strides=_strides(desc.sum_tensor),
        scale_stride=0 if scale is None else scale.effective_strides[0],
        epsilon=desc.epsilon,
        zero=0,
    )
    return Plan((dispatch,))


register(
    RootMeanSquare,
    problem=_problem,
    rules=ROOT_MEAN_SQUARE,
    schedules={"held": functools.partial(_rows, held=True), "twice": functools.partial(_rows, held=False)},
    limitations=(LOOP_ROUNDS,),
    features=subgroup_features,
)
