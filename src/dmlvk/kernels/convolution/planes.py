"""Plans for convolutions of one tap over planes, by cooperative matrices."""

from __future__ import annotations

import math

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix
from dmlvk.kernels.common.cooperative_tile import WORD, cooperative_constants
from dmlvk.kernels.common.plan import Plan
from dmlvk.kernels.common.shapes import divisors, linear_grid
from dmlvk.kernels.convolution.cooperative import is_half
from dmlvk.kernels.convolution.geometry import Geometry, as_it_is, dispatch_of, meets_itself, repacked, whole_planes
from dmlvk.kernels.convolution.matrix_tiles import plane_tile
from dmlvk.kernels.convolution.rules import ConvolutionProblem
from dmlvk.spec import ops


def planes_fit(desc: ops.Convolution, geometry: Geometry) -> bool:
    """Whether ``convolution_planes`` computes it: float16, a window of one tap over planes in whole quads, whole words of
    channels."""
    inputs = (geometry.output_sizes[0], desc.group_count * geometry.group_channels, *geometry.input_sizes)
    return (
        is_half(desc)
        and geometry.group_channels % WORD == 0
        and meets_itself(desc, geometry)
        and geometry.output_start % 4 == 0
        and whole_planes(inputs, geometry.input_strides)
        and whole_planes(geometry.output_sizes, geometry.output_strides)
    )


def planes(desc: ops.Convolution, geometry: Geometry, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Rows of a tile are output channels, columns the pixels of planes."""
    matrix = cooperative_matrix(caps, "float16", "float32")
    assert matrix is not None, "the rule asks for one"
    outputs, channels, groups = geometry.group_outputs, geometry.group_channels, desc.group_count
    by_output, by_input = geometry.filter_strides[:2]
    starts = (geometry.filter_group_stride, by_output, geometry.filter_offset)
    if by_input == 1 and not any(step % WORD for step in starts):
        filters = as_it_is(geometry)
    else:
        steps = (outputs * channels, channels, 1, 0, 0, 0)
        filters = repacked(desc, geometry, steps, groups * outputs * channels, caps)
    tile = plane_tile(outputs, geometry.pixels, groups, caps)
    plane = math.prod(geometry.input_sizes)
    steps_apart = geometry.input_strides[:2]
    dispatch = dispatch_of(
        "convolution_planes",
        desc,
        filters,
        {
            **cooperative_constants(tile, matrix, caps),
            "A_ALONG_K": 1,
            "B_ALONG_K": 0,
            "WHOLE": int(plane % WORD == 0 and not any(step % WORD for step in steps_apart)),
        },
        linear_grid(groups * tile.tiles(outputs, geometry.pixels), caps),
        subgroup_size=caps.subgroup_size,
        pixels=geometry.pixels,
        groups=groups,
        plane=plane,
        plane_divisor=divisors([plane]),
    )
    return filters.plan(dispatch)
