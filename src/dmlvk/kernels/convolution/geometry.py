"""The geometry that every convolution kernel is given, and the repacking of filters."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.activation import fused
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import POSITIONS
from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.common.shapes import linear_grid
from dmlvk.kernels.copy.lowering import copy_launch, copy_problem
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec import ops
from dmlvk.spec.enums import ConvolutionDirection, ConvolutionMode
from dmlvk.spec.ops.convolution import ConvolutionAdd
from dmlvk.spec.tensor import TensorDesc, element_bits


def _spatial(values: tuple[int, ...], fill: int) -> tuple[int, int, int]:
    """One value for each of D, H and W: ``fill`` where the desc has fewer dimensions."""
    depth, height, width = (fill,) * (3 - len(values)) + values
    return (depth, height, width)


def _five(tensor: TensorDesc) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides as {N, C, D, H, W}."""
    sizes, strides = tensor.sizes, tensor.effective_strides
    return (*sizes[:2], *_spatial(sizes[2:], 1)), (*strides[:2], *_spatial(strides[2:], 0))


def modular(values: int | tuple[int, ...]) -> int | tuple[int, ...]:
    """Signed numbers as the shaders' modular uints."""
    return tuple(value % 2**32 for value in values) if isinstance(values, tuple) else values % 2**32


@dataclass(frozen=True)
class Geometry:
    """A convolution in the shaders' terms; see ``glsl/include/convolution.glsl``. Steps may be negative."""

    output_sizes: tuple[int, ...]
    output_strides: tuple[int, ...]
    output_start: int
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

    @property
    def taps_apart(self) -> tuple[int, ...]:
        """How far apart the taps are that meet inputs at one output position, along each dimension."""
        return tuple(step // math.gcd(tap, step) for tap, step in zip(self.tap_step, self.divisor, strict=True))

    @property
    def params(self) -> dict[str, int | tuple[int, ...]]:
        """Its part of every kernel's parameter block."""
        return {name: modular(value) for name, value in vars(self).items()}


def geometry_of(desc: ops.Convolution) -> Geometry:
    """A convolution in the terms of the shaders. Raises UnsupportedError where its positions pass 31 bits."""
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
    # Each by itself: which of them is the largest is of no matter, and would be another recipe for other sizes.
    farthest = [
        output * (stride if forward else 1) + (taps - 1) * dilation + start
        for output, stride, taps, dilation, start in zip(output_sizes[2:], strides, window, dilations, starts, strict=True)
    ]
    if any(number >= 2**31 for number in (*farthest, *strides, *dilations)):
        raise POSITIONS.error("positions in the padded input must stay below 2**31", desc.dml_name)
    offset = 0
    if desc.mode == ConvolutionMode.CONVOLUTION:
        offset = sum((taps - 1) * step for taps, step in zip(window, tap_strides, strict=True))
        tap_strides = tuple(-step for step in tap_strides)
    return Geometry(
        output_sizes=output_sizes,
        output_strides=output_strides,
        output_start=0,
        input_sizes=input_sizes[2:],
        input_strides=input_strides,
        window=window,
        filter_strides=(by_output, by_input, *tap_strides),
        filter_offset=offset,
        filter_group_stride=by_output * group_outputs if forward else by_input * group_channels,
        bias_stride=0 if desc.bias_tensor is None else desc.bias_tensor.effective_strides[1],
        group_channels=group_channels,
        group_outputs=group_outputs,
        computed_sizes=tuple(size - padding for size, padding in zip(output_sizes[2:], paddings, strict=True)),
        position_step=strides if forward else (1, 1, 1),
        tap_step=dilations if forward else tuple(-dilation for dilation in dilations),
        position_start=tuple(-start for start in starts) if forward else starts,
        divisor=(1, 1, 1) if forward else strides,
    )


class Phase(NamedTuple):
    """The output positions along a dimension that leave the same remainder by the stride of a BACKWARD convolution.

    Attributes:
        remainder: That remainder.
        first: The first tap that meets inputs there.
        taps: How many do; 0 for none.
    """

    remainder: int
    first: int
    taps: int


def _phases_along(window: int, tap_step: int, start: int, divisor: int, apart: int) -> list[Phase]:
    """The phases along a dimension: one for each remainder, each with the taps of which positions can be divided."""
    found = []
    for remainder in range(divisor):
        firsts = (tap for tap in range(min(apart, window)) if (remainder + start + tap * tap_step) % divisor == 0)
        first = next(firsts, window)
        found.append(Phase(remainder, first, -(-(window - first) // apart)))
    return found


def divided_phases(geometry: Geometry) -> list[Geometry]:
    """A convolution with divided positions as several without: one for each remainder of output positions by the strides, of
    every ``divisor``-th output and the taps that meet inputs there, those that have any outputs.

    Where no tap does, there is one that only reads beside the input, so that outputs are what bias and activation make of 0.
    """
    apart = geometry.taps_apart
    rows = zip(geometry.window, geometry.tap_step, geometry.position_start, geometry.divisor, apart, strict=True)
    found = []
    for phase in itertools.product(*(_phases_along(*row) for row in rows)):
        remainders = tuple(own.remainder for own in phase)
        sizes, computed = (
            tuple(-(-(size - rest) // step) for size, rest, step in zip(whole, remainders, geometry.divisor, strict=True))
            for whole in (geometry.output_sizes[2:], geometry.computed_sizes)
        )
        if any(size <= 0 for size in sizes):
            continue
        taps = list(zip(phase, geometry.tap_step, geometry.position_start, geometry.divisor, sizes, apart, strict=True))
        strides, by_tap = geometry.output_strides, geometry.filter_strides[2:]
        found.append(
            dataclasses.replace(
                geometry,
                output_sizes=(*geometry.output_sizes[:2], *sizes),
                output_strides=(
                    *strides[:2],
                    *(own * step for own, step in zip(strides[2:], geometry.divisor, strict=True)),
                ),
                output_start=geometry.output_start
                + sum(rest * own for rest, own in zip(remainders, strides[2:], strict=True)),
                computed_sizes=tuple(max(size, 0) for size in computed),
                window=tuple(max(own.taps, 1) for own in phase),
                filter_strides=(
                    *geometry.filter_strides[:2],
                    *(step * each for step, each in zip(by_tap, apart, strict=True)),
                ),
                filter_offset=geometry.filter_offset
                + sum(own.first * step for own, step in zip(phase, by_tap, strict=True) if own.taps),
                tap_step=tuple(each * step // divisor for _, step, _, divisor, _, each in taps),
                position_start=tuple(
                    (own.remainder + start + own.first * step) // divisor if own.taps else -size
                    for own, step, start, divisor, size, _ in taps
                ),
                divisor=(1, 1, 1),
            )
        )
    return found


@dataclass(frozen=True)
class Filter:
    """The filter's place, as a kernel finds it.

    Attributes:
        range: Its bytes.
        geometry: The convolution with the filter's strides there.
        launches: The launches that repack it, if any do.
        nbytes: The bytes of the repacked filter, which lies in the persistent resource if ``kept``, else in temporary
            memory.
        kept: Whether that is done once, at initialisation.
    """

    range: Range
    geometry: Geometry
    launches: tuple[Launch, ...] = ()
    nbytes: int = 0
    kept: bool = False

    def plan(self, *dispatches: Launch, temporary_bytes: int = 0) -> Plan:
        """The plan of these dispatches, whose own temporary memory starts where ``scratch`` says."""
        if self.kept:
            return Plan(dispatches, temporary_bytes, self.nbytes, initialize=self.launches)
        return Plan((*self.launches, *dispatches), self.scratch + temporary_bytes)

    @property
    def scratch(self) -> int:
        """Bytes of temporary memory that it takes itself, a multiple of 256."""
        return 0 if self.kept else -(-self.nbytes // 256) * 256


def as_it_is(geometry: Geometry) -> Filter:
    """The filter where it is bound, in its own layout."""
    return Filter(input_range(1), geometry)


def repacked(
    desc: ops.Convolution, geometry: Geometry, strides: tuple[int, ...], elements: int, caps: Capabilities
) -> Filter:
    """The filter with other strides, in elements: {group, output of the group, input of the group, D, H, W}.

    An OWNED_BY_DML filter is repacked once, at initialisation; any other by a first dispatch of each execution.
    """
    tensor = desc.tensor("filter_tensor")
    bits = element_bits(tensor.data_type)
    nbytes = -(-elements * bits // 128) * 16
    place = Range(Source.PERSISTENT if tensor.owned_by_dml else Source.TEMPORARY, 0, 0, nbytes)
    sizes = (desc.group_count, geometry.group_outputs, geometry.group_channels, *geometry.window)
    problem = copy_problem(
        bits, sizes, ((geometry.filter_group_stride, *geometry.filter_strides), strides), (geometry.filter_offset, 0)
    )
    launch = copy_launch(problem, (input_range(1), place), caps)
    moved = dataclasses.replace(geometry, filter_offset=0, filter_group_stride=strides[0], filter_strides=strides[1:])
    return Filter(place, moved, (launch,), nbytes, tensor.owned_by_dml)


def dispatch_of(
    kernel: str,
    desc: ops.Convolution,
    filters: Filter,
    constants: Mapping[str, int],
    grid: tuple[int, int, int],
    *,
    variant: Mapping[str, int | str] | None = None,
    places: Mapping[str, Range] | None = None,
    subgroup_size: int = 0,
    **params: int | tuple[int, ...],
) -> Dispatch:
    """A launch of a kernel of the family, with what all of them are told. ``places`` are the buffers, by the names of the
    manifest, that are not the operator's tensors."""
    geometry = filters.geometry
    activation = fused(desc.fused_activation)
    has_bias = desc.bias_tensor is not None
    constants = {
        **constants,
        "ACTIVATION": activation.id,
        "HAS_BIAS": int(has_bias),
        "HAS_DIVISOR": int(geometry.divisor != (1, 1, 1)),
    }
    names = KERNELS[kernel].buffer_names
    adds = isinstance(desc, ConvolutionAdd)
    if "addend" in names:
        constants["HAS_ADDEND"] = int(adds)
    buffers = {
        "x": input_range(0),
        "w": filters.range,
        "bias": input_range(2) if has_bias else filters.range,
        "addend": input_range(3) if adds else filters.range,
        "y": output_range(),
        **(places or {}),
    }
    return make_dispatch(
        kernel,
        [buffers[name] for name in names],
        grid,
        subgroup_size,
        variant={**(variant or {}), "T": desc.tensor("input_tensor").data_type.name},
        constants=constants,
        **geometry.params,
        **activation.params,
        **params,
    )


def merge_dispatch(
    desc: ops.Convolution,
    filters: Filter,
    caps: Capabilities,
    partials: Range,
    *,
    pitch: int,
    splits: int,
    by_pixel: bool,
    quads: bool,
) -> Dispatch:
    """The launch that adds the parts of sums, rows of ``pitch`` numbers for each pixel or each channel; with ``quads`` four
    of a row lie in an aligned quad of the output, too."""
    geometry = filters.geometry
    rows = geometry.pixels if by_pixel else geometry.output_sizes[1]
    local = min(128, caps.workgroup_invocations)
    return dispatch_of(
        "convolution_merge",
        desc,
        filters,
        {"LOCAL_SIZE_X": local, "BY_PIXEL": int(by_pixel), "Y_QUADS": int(quads)},
        linear_grid(-(-rows * pitch // 4 // local), caps),
        places={"x": partials},
        pixels=geometry.pixels,
        splits=splits,
        partial_pitch=pitch,
    )


def one_tap(geometry: Geometry) -> bool:
    """Whether there is one tap, which every pixel meets inside the input."""
    ranges = zip(geometry.output_sizes[2:], geometry.position_step, geometry.position_start, strict=True)
    reach = ((start, start + (count - 1) * step) for count, step, start in ranges)
    is_inside = all(first >= 0 and last < size for (first, last), size in zip(reach, geometry.input_sizes, strict=True))
    return math.prod(geometry.window) == 1 and geometry.divisor == (1, 1, 1) and is_inside


def meets_itself(desc: ops.Convolution, geometry: Geometry) -> bool:
    """Whether each output position needs the input at that position alone."""
    return (
        one_tap(geometry)
        and geometry.position_step == (1, 1, 1)
        and geometry.input_sizes == geometry.output_sizes[2:]
        and not any(desc.output_padding)
    )


def whole_quads(sizes: tuple[int, ...], strides: tuple[int, ...], axis: int, size: int) -> bool:
    """Whether a tensor lies in aligned quads along a dimension, ``size`` elements of which follow each other."""
    return (
        strides[axis] == 1
        and size % 4 == 0
        and all(
            count == 1 or other == axis or step % 4 == 0
            for other, (count, step) in enumerate(zip(sizes, strides, strict=True))
        )
    )


def whole_planes(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether each channel's spatial elements follow each other in memory, in whole aligned quads."""
    size, step = 1, 1
    for count, own in zip(sizes[:1:-1], strides[:1:-1], strict=True):
        if count > 1 and own != step:
            return False
        size, step = size * count, step * count
    return size % 4 == 0 and all(count == 1 or step % 4 == 0 for count, step in zip(sizes[:2], strides[:2], strict=True))


def channels_last(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether channels are denser in memory than the last spatial dimension; ``sizes`` are the spatial ones."""
    return strides[1] < strides[4] if sizes[2] > 1 else strides[1] == 1
