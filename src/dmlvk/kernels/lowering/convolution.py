"""Plans for convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk import ops
from dmlvk.enums import ConvolutionDirection, ConvolutionMode
from dmlvk.errors import UnsupportedError
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering import matmul
from dmlvk.kernels.lowering.fused import fused
from dmlvk.kernels.lowering.registry import register
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import Dispatch, KernelVariant, Plan, input_range, output_range
from dmlvk.kernels.select.convolution import CONVOLUTION, ConvolutionProblem
from dmlvk.kernels.shapes import check_rounds, linear_grid
from dmlvk.tensor import TensorDesc

_RUN = 4
"""Outputs along W that an invocation of the depthwise kernel computes."""
_CHANNELS = 8
"""Output channels that an invocation of the direct kernel computes, where subgroups are no smaller."""


def _spatial(values: tuple[int, ...], fill: int) -> tuple[int, int, int]:
    """One value for each of D, H and W: ``fill`` where the desc has fewer dimensions."""
    depth, height, width = (fill,) * (3 - len(values)) + values
    return (depth, height, width)


def _five(tensor: TensorDesc) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides as {N, C, D, H, W}."""
    sizes, strides = tensor.sizes, tensor.effective_strides
    return (*sizes[:2], *_spatial(sizes[2:], 1)), (*strides[:2], *_spatial(strides[2:], 0))


def _modulo(values: tuple[int, ...]) -> tuple[int, ...]:
    """Signed numbers as the shaders' modular uints."""
    return tuple(value % 2**32 for value in values)


@dataclass(frozen=True)
class _Geometry:
    """A convolution in the shaders' terms; see ``glsl/include/convolution.glsl``."""

    output_sizes: tuple[int, ...]
    output_strides: tuple[int, ...]
    input_sizes: tuple[int, ...]
    input_strides: tuple[int, ...]
    window: tuple[int, ...]
    filter_strides: tuple[int, ...]
    filter_offset: int
    filter_group_stride: int
    bias_stride: int
    group_channels: int
    group_outputs: int
    computed_sizes: tuple[int, ...]
    position_step: tuple[int, ...]
    tap_step: tuple[int, ...]
    position_start: tuple[int, ...]
    divisor: tuple[int, ...]

    @property
    def pixels(self) -> int:
        """Output positions, all batch entries counted."""
        return self.output_sizes[0] * math.prod(self.output_sizes[2:])


def _geometry(desc: ops.Convolution) -> _Geometry:
    forward = desc.direction == ConvolutionDirection.FORWARD
    input_sizes, input_strides = _five(desc.tensor("input_tensor"))
    output_sizes, output_strides = _five(desc.tensor("output_tensor"))
    filter_sizes, filter_strides = _five(desc.tensor("filter_tensor"))
    strides, dilations = _spatial(desc.strides, 1), _spatial(desc.dilations, 1)
    starts, paddings = _spatial(desc.start_padding, 0), _spatial(desc.output_padding, 0)
    window, tap_strides = filter_sizes[2:], filter_strides[2:]
    group_channels = input_sizes[1] // desc.group_count
    group_outputs = output_sizes[1] // desc.group_count
    by_output, by_input = filter_strides[:2] if forward else filter_strides[1::-1]
    reach = max(
        (
            size * stride + (taps - 1) * dilation + start
            for size, stride, taps, dilation, start in zip(
                map(max, input_sizes[2:], output_sizes[2:]), strides, window, dilations, starts, strict=True
            )
        )
    )
    if reach >= 2**31:
        raise UnsupportedError("positions in the padded input reach 2**31", operator=desc.type.dml_name)
    offset = 0
    if desc.mode == ConvolutionMode.CONVOLUTION:
        offset = sum((taps - 1) * step for taps, step in zip(window, tap_strides, strict=True))
        tap_strides = tuple(-step for step in tap_strides)
    return _Geometry(
        output_sizes=output_sizes,
        output_strides=output_strides,
        input_sizes=input_sizes[2:],
        input_strides=input_strides,
        window=window,
        filter_strides=_modulo((by_output, by_input, *tap_strides)),
        filter_offset=offset,
        filter_group_stride=by_output * group_outputs if forward else by_input * group_channels,
        bias_stride=0 if desc.bias_tensor is None else desc.bias_tensor.effective_strides[1],
        group_channels=group_channels,
        group_outputs=group_outputs,
        computed_sizes=tuple(size - padding for size, padding in zip(output_sizes[2:], paddings, strict=True)),
        position_step=strides if forward else (1, 1, 1),
        tap_step=dilations if forward else _modulo(tuple(-dilation for dilation in dilations)),
        position_start=_modulo(tuple(-start for start in starts)) if forward else starts,
        divisor=(1, 1, 1) if forward else strides,
    )


def _problem(desc: ops.Convolution) -> ConvolutionProblem:
    geometry = _geometry(desc)
    width = desc.strides[-1], desc.dilations[-1], geometry.window[2]
    positions = math.prod(geometry.output_sizes[2:]) * math.prod(geometry.input_sizes) * math.prod(geometry.window)
    return ConvolutionProblem(
        pixels=geometry.pixels,
        groups=desc.group_count,
        group_channels=geometry.group_channels,
        group_outputs=geometry.group_outputs,
        taps=math.prod(geometry.window),
        divided=geometry.divisor != (1, 1, 1),
        forward=desc.direction == ConvolutionDirection.FORWARD,
        segment=(_RUN - 1) * width[0] + (width[2] - 1) * width[1] + 1,
        is_product=desc.group_count == 1 and positions == 1 and not any(desc.start_padding + desc.output_padding),
    )


def _dispatch(
    kernel: str,
    desc: ops.Convolution,
    constants: dict[str, int],
    grid: tuple[int, int, int],
    **params: int,
) -> Plan:
    geometry = _geometry(desc)
    activation = fused(desc.fused_activation)
    has_bias = desc.bias_tensor is not None
    constants = {
        **constants,
        "ACTIVATION": activation.id,
        "HAS_BIAS": int(has_bias),
        "HAS_DIVISOR": int(geometry.divisor != (1, 1, 1)),
    }
    block = KERNELS[kernel].pack(**vars(geometry), param0=activation.param0, param1=activation.param1, **params)
    variant = KernelVariant(kernel, (("T", desc.tensor("input_tensor").data_type.name),), tuple(constants.items()))
    bindings = (input_range(0), input_range(1), input_range(2 if has_bias else 1), output_range())
    return Plan((Dispatch(variant, bindings, block, grid),))


def _naive(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    check_rounds(2 * problem.group_channels * problem.taps, caps, desc.type.dml_name)  # of loops in loops
    local = min(128, caps.workgroup_invocations)
    count = problem.pixels * problem.groups * problem.group_outputs
    grid = linear_grid(-(-count // local), caps)
    return _dispatch("convolution_naive", desc, {"LOCAL_SIZE_X": local}, grid, count=count)


def _direct(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    check_rounds(2 * problem.group_channels * problem.taps, caps, desc.type.dml_name)
    local = 32 if caps.is_cpu else 64
    channels = min(_CHANNELS, caps.minimum_subgroup_size)
    blocks = -(-problem.group_outputs // channels)
    x, y, _ = linear_grid(-(-problem.pixels // local), caps)
    return _dispatch(
        "convolution_direct",
        desc,
        {"LOCAL_SIZE_X": local, "CHANNELS": channels},
        (x, y, problem.groups * blocks),
        pixels=problem.pixels,
        group_blocks=blocks,
    )


def _depthwise(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    local = 32 if caps.is_cpu else 64
    geometry = _geometry(desc)
    width = geometry.output_sizes[4]
    row_runs = -(-width // _RUN)
    runs = problem.pixels // width * row_runs
    x, y, _ = linear_grid(-(-runs // local), caps)
    constants = {
        "LOCAL_SIZE_X": local,
        "PIXELS": _RUN,
        "WINDOW_W": geometry.window[2],
        "STRIDE_W": desc.strides[-1],
        "DILATION_W": desc.dilations[-1],
    }
    grid = (x, y, problem.groups * problem.group_outputs)
    return _dispatch("convolution_depthwise", desc, constants, grid, runs=runs, row_runs=row_runs)


def _tiled(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Rows of a tile are output channels, columns pixels."""
    shape = matmul.tile_shape(problem.group_outputs, problem.pixels, problem.groups, caps)
    constants = {
        "LOCAL_SIZE_X": shape.local_x,
        "LOCAL_SIZE_Y": shape.local_y,
        "THREAD_K": shape.block_rows,
        "THREAD_P": shape.block_columns,
        "TILE_C": matmul.tile_depth(shape, problem.group_channels, caps),
    }
    grid = (-(-problem.pixels // shape.columns), -(-problem.group_outputs // shape.rows), problem.groups)
    return _dispatch("convolution_tiled", desc, constants, grid, pixels=problem.pixels)


def _vector(desc: ops.Convolution, problem: ConvolutionProblem, caps: Capabilities) -> Plan:
    """Rows are the batch entries, columns the output channels."""
    geometry = _geometry(desc)
    has_bias = desc.bias_tensor is not None
    product = matmul.Product(
        data_type=desc.tensor("input_tensor").data_type,
        batch=(1, 1),
        rows=problem.pixels,
        columns=problem.group_outputs,
        depth=problem.group_channels,
        a=input_range(0),
        b=input_range(1),
        c=input_range(2 if has_bias else 1),
        y=output_range(),
        a_strides=(0, 0, geometry.input_strides[0], geometry.input_strides[1]),
        b_strides=(0, 0, geometry.filter_strides[1], geometry.filter_strides[0]),
        c_strides=(0, 0, 0, geometry.bias_stride),
        y_strides=(0, 0, geometry.output_strides[0], geometry.output_strides[1]),
        has_c=has_bias,
        alpha=1.0,
        beta=1.0,
        activation=fused(desc.fused_activation),
    )
    return matmul.vector(product, caps)


register(
    ops.Convolution,
    problem=_problem,
    rules=CONVOLUTION,
    schedules={
        "vector": _vector,
        "depthwise": _depthwise,
        "tiled": _tiled,
        "direct": _direct,
        "naive": _naive,
    },
)
