"""Lowering of ``ops.pooling_gradient``."""

from __future__ import annotations

import math

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, POSITIONS
from dmlvk.kernels.common.parts import chosen_plan, placed
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Resource, Source, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import check_rounds, divisors, linear_grid
from dmlvk.kernels.pooling.lowering import position_terms, rows_contiguous, walk_of
from dmlvk.kernels.pooling_gradient.lanes import tiled, tiles
from dmlvk.kernels.pooling_gradient.rules import (
    AVERAGE_POOLING_GRADIENT,
    MAX_POOLING_GRADIENT,
    PoolingGradientProblem,
)
from dmlvk.spec.enums import ReduceFunction, TensorDataType
from dmlvk.spec.ops.elementwise import ElementWiseIdentity
from dmlvk.spec.ops.pooling import MaxPooling2
from dmlvk.spec.ops.pooling_gradient import AveragePoolingGrad, MaxPoolingGrad
from dmlvk.spec.schema import ScaleBias
from dmlvk.spec.tensor import TensorDesc

_Gradient = AveragePoolingGrad | MaxPoolingGrad


def _problem(desc: _Gradient) -> PoolingGradientProblem:
    sizes, counts = (desc.tensor(f"{name}_gradient_tensor").sizes[2:] for name in ("output", "input"))
    return PoolingGradientProblem(
        whole=all(
            count == 1 and window >= start + size
            for size, count, window, start in zip(sizes, counts, desc.window_size, desc.start_padding, strict=True)
        ),
        tile_words=min((tile.words for tile in tiles(desc)), default=None),
    )


def _broadcast(desc: AveragePoolingGrad, problem: PoolingGradientProblem, caps: Capabilities) -> Plan:
    source, target = desc.tensor("input_gradient_tensor"), desc.tensor("output_gradient_tensor")
    counted = target.sizes[2:]
    if desc.include_padding:
        counted = tuple(
            min(window, start + size + end)
            for window, start, size, end in zip(desc.window_size, desc.start_padding, counted, desc.end_padding, strict=True)
        )
    strides = (*source.effective_strides[:2], *(0 for _ in counted))
    scaled = ElementWiseIdentity(
        input_tensor=TensorDesc(source.data_type, target.sizes, strides),
        output_tensor=target,
        scale_bias=ScaleBias(1 / math.prod(counted), 0.0),
    )
    return chosen_plan(scaled, caps, desc.dml_name)


def _gathered(desc: _Gradient, function: ReduceFunction, indices: Range, caps: Capabilities) -> Dispatch:
    """Each element of dx fetches what is its own; of a maximum, by packed indices."""
    forward = desc.forward()
    dx, dy = forward.tensor("input_tensor"), forward.tensor("output_tensor")
    if isinstance(forward, MaxPooling2):
        forward = forward.replace(output_indices_tensor=TensorDesc(TensorDataType.UINT32, dy.sizes))
    channels_fastest = not rows_contiguous(dx)
    constants, params = position_terms(forward, channels_fastest)
    walk = walk_of(forward)
    order = walk.order(walk.input_sizes, channels_fastest)
    counts = walk.output_sizes[2:]
    rounds = math.prod(
        min(count, (window - 1) * dilation // stride + 1) + 1
        for count, window, dilation, stride in zip(
            dy.sizes[2:], forward.window_size, forward.dilations, forward.strides, strict=True
        )
    )
    check_rounds(rounds, caps, desc.dml_name)
    size = min(256, caps.workgroup_invocations)
    params |= {"outputs": dx.element_count, "walk_sizes": order, "walk_divisors": divisors(order)}
    constants |= {"LOCAL_SIZE_X": size, "FUNCTION": int(function)}
    gradient = input_range(1 if isinstance(desc, MaxPoolingGrad) else 0)
    return make_dispatch(
        "pooling_gradient",
        (gradient, indices, output_range()),
        linear_grid(-(-dx.element_count // size), caps),
        variant={"T": dx.data_type.name},
        constants=constants,
        **params,
        window_counts=counts,
    )


def _elements(desc: AveragePoolingGrad, problem: PoolingGradientProblem, caps: Capabilities) -> Plan:
    return Plan((_gathered(desc, ReduceFunction.AVERAGE, input_range(0), caps),))


def _indices(desc: MaxPoolingGrad, problem: PoolingGradientProblem, caps: Capabilities) -> Plan:
    dy = desc.tensor("input_gradient_tensor")
    maxima, indices = (TensorDesc(data_type, dy.sizes) for data_type in (dy.data_type, TensorDataType.UINT32))
    plan = chosen_plan(
        desc.forward().replace(input_tensor=desc.input_tensor, output_tensor=maxima, output_indices_tensor=indices),
        caps,
        desc.dml_name,
    )
    temporary = Resource(Source.TEMPORARY)
    found, places = (temporary.take(tensor.total_tensor_size_in_bytes) for tensor in (maxima, indices))
    search = placed(plan, inputs=(input_range(0),), outputs=(found, places))
    gathered = _gathered(desc, ReduceFunction.MAX, places, caps)
    return Plan((*search, gathered), temporary_bytes=temporary.end)


def _lanes(desc: _Gradient, problem: PoolingGradientProblem, caps: Capabilities) -> Plan:
    return tiled(desc, caps)


register(
    AveragePoolingGrad,
    problem=_problem,
    rules=AVERAGE_POOLING_GRADIENT,
    schedules={"broadcast": _broadcast, "lanes": _lanes, "elements": _elements},
    limitations=(LOOP_ROUNDS, POSITIONS),
)
register(
    MaxPoolingGrad,
    problem=_problem,
    rules=MAX_POOLING_GRADIENT,
    schedules={"lanes": _lanes, "indices": _indices},
    limitations=(LOOP_ROUNDS, POSITIONS),
)
