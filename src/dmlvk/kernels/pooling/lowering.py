"""Lowering of ``ops.pooling``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, POSITIONS
from dmlvk.kernels.common.parts import chosen_plan
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.common.registry import integer_features, register
from dmlvk.kernels.common.shapes import check_rounds, divisors, linear_grid, part_starts, pooling_lanes
from dmlvk.kernels.common.window_lanes import WindowLanes, lane_access
from dmlvk.kernels.pooling.rules import MAX_UNPOOLING, POOLING, QUANTIZED_POOLING, MaxUnpoolingProblem, PoolingProblem
from dmlvk.spec.enums import ReduceFunction, TensorDataType
from dmlvk.spec.ops.pooling import AveragePooling1, LpPooling1, MaxPooling2, MaxUnpooling, QuantizedLinearAveragePooling
from dmlvk.spec.ops.reduction import Reduce
from dmlvk.spec.tensor import TensorDesc, element_bits

_Pooling = AveragePooling1 | LpPooling1 | MaxPooling2
_Windows = _Pooling | QuantizedLinearAveragePooling
_Five = tuple[int, int, int, int, int]

_MOST_ORDER = 2**29
"""The highest order of a norm that is computed as such; the norm of a higher one is the same to less than 0.4 ULP, since the
2**32 elements of the largest window add a factor of at most 2 ** (32 / p). From 2**31 on the largest element, which rounding
may have divided to 1 - 2**-24, would be 0 to that power."""
_MOST_EXTENT = 2**30
"""Positions along a dimension fit 31 bits with room for one more window."""

_LANE_WORKGROUP = 128
_LANE_REGISTERS = 160
"""Most registers an invocation of ``pooling_lanes`` spends on elements and results where more rows would share more."""
_MOST_GROUPS = 32
"""Groups of an input row, for each of which the constant INSIDE of ``pooling_lanes`` has a bit."""
_LANE_WAVE = 0.5
"""Share of a wave that fills a device: fewer rows each rather than fewer invocations."""


def _five(values: tuple[int, ...], absent: int) -> _Five:
    """Values of {N, C, H, W} as those of {N, C, D, H, W}."""
    n, c, *spatial = values
    d, h, w = spatial if len(spatial) == 3 else (absent, *spatial)
    return n, c, d, h, w


def three(values: tuple[int, ...], absent: int) -> tuple[int, int, int]:
    """Values of {H, W} as those of {D, H, W}."""
    d, h, w = values if len(values) == 3 else (absent, *values)
    return d, h, w


def _problem(desc: _Pooling) -> PoolingProblem:
    source, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    window = 1
    for size, full in zip(desc.window_size, source.sizes[2:], strict=True):
        window *= min(size, full)
    strides = source.effective_strides
    dilated = any(taps > 1 and step > 1 for taps, step in zip(desc.window_size[-2:], desc.dilations[-2:], strict=True))
    in_lanes = not dilated and not isinstance(desc, LpPooling1)
    form = _lanes_form(desc)
    return PoolingProblem(
        outputs=output.element_count,
        window=window,
        apart=0 if output.sizes[-1] == 1 else desc.strides[-1] * strides[-1],
        rows_contiguous=rows_contiguous(source),
        lane_words=form.words(1) if in_lanes and form.groups <= _MOST_GROUPS else None,
        reduces=_reduce_function(desc) is not None,
    )


def _reduce_function(desc: _Pooling) -> ReduceFunction | None:
    """The reduction that the pooling is where one window is the whole input, dilations aside; None for any other."""
    extents = zip(
        desc.tensor("input_tensor").sizes[2:],
        desc.tensor("output_tensor").sizes[2:],
        desc.window_size,
        desc.dilations,
        desc.start_padding,
        desc.end_padding,
        strict=True,
    )
    padded = False
    for size, count, window, dilation, start, end in extents:
        if count > 1 or window < start + size or (dilation > 1 and (size > 1 or start % dilation)):
            return None
        padded = padded or min(window, start + size + end) > size
    if isinstance(desc, AveragePooling1):
        return None if padded and desc.include_padding else ReduceFunction.AVERAGE
    if isinstance(desc, MaxPooling2):
        return ReduceFunction.MAX if desc.output_indices_tensor is None else None
    if desc.p == 2 and desc.tensor("input_tensor").data_type is TensorDataType.FLOAT16:
        return ReduceFunction.L2  # whose squares fit float32
    return ReduceFunction.L1 if desc.p == 1 else None


def _reduce(desc: _Pooling, problem: PoolingProblem, caps: Capabilities) -> Plan:
    function = _reduce_function(desc)
    assert function is not None, "the rule has shown it to be there"
    source = desc.tensor("input_tensor")
    reduce = Reduce(
        function=function,
        input_tensor=source,
        output_tensor=desc.output_tensor,
        axes=tuple(range(2, source.dimension_count)),
    )
    return chosen_plan(reduce, caps, desc.dml_name)


def rows_contiguous(source: TensorDesc) -> bool:
    """Whether W is denser in memory than the channels."""
    strides = source.effective_strides
    return source.sizes[1] == 1 or strides[-1] <= strides[1]


def check_extents(desc: _Windows) -> None:
    """Refuses positions that do not fit the kernels' 31 bits."""
    for size, output, window, stride, start, end, dilation in zip(
        desc.tensor("input_tensor").sizes[2:],
        desc.tensor("output_tensor").sizes[2:],
        desc.window_size,
        desc.strides,
        desc.start_padding,
        desc.end_padding,
        desc.dilations,
        strict=True,
    ):
        extent = max(start + size + end, (output - 1) * stride + (window - 1) * dilation + 1)
        if extent > _MOST_EXTENT or max(stride, dilation) > _MOST_EXTENT:
            raise POSITIONS.error(
                f"the padded input and its windows may have at most {_MOST_EXTENT} positions along a dimension; got "
                f"{extent} with stride {stride} and dilation {dilation}",
                desc.dml_name,
            )


@dataclass(frozen=True)
class Walk:
    """Sizes and strides as {N, C, D, H, W}; N counts as part of C where it continues it in every tensor.

    Attributes:
        input_sizes, output_sizes: The sizes of the input and the output.
        strides: The strides of the input, the output and the indices (the output's again where there are none).
        volumes: Whether there is a D.
    """

    input_sizes: _Five
    output_sizes: _Five
    strides: tuple[_Five, _Five, _Five]
    volumes: bool

    def order(self, sizes: tuple[int, ...], channels_fastest: bool) -> tuple[int, ...]:
        """These sizes of {N, C, D, H, W} in the order of a kernel's walk, less what is absent."""
        batch, channels, spatial = sizes[:1] * (sizes[0] > 1), sizes[1:2], sizes[3 - self.volumes :]
        return (*batch, *spatial, *channels) if channels_fastest else (*batch, *channels, *spatial)


def walk_of(desc: _Windows) -> Walk:
    """The sizes and strides of a desc's tensors."""
    source, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    indices: TensorDesc | None = getattr(desc, "output_indices_tensor", None)
    sizes, walk = _five(source.sizes, 1), _five(output.sizes, 1)
    x, y, z = (_five(t.effective_strides, 0) for t in (source, output, output if indices is None else indices))
    if all(n == c * sizes[1] for n, c, *_ in (x, y, z)):
        # N continues C in every tensor, and the logical positions of elements run on too.
        sizes, walk = (1, sizes[0] * sizes[1], *sizes[2:]), (1, walk[0] * walk[1], *walk[2:])
    return Walk(sizes, walk, (x, y, z), len(desc.window_size) == 3)


def _index_words(desc: _Windows) -> int:
    indices: TensorDesc | None = getattr(desc, "output_indices_tensor", None)
    return 0 if indices is None else 2 if indices.data_type == TensorDataType.UINT64 else 1


def _function(desc: _Pooling) -> ReduceFunction:
    if isinstance(desc, LpPooling1):
        return ReduceFunction.L2
    return ReduceFunction.AVERAGE if isinstance(desc, AveragePooling1) else ReduceFunction.MAX


def _includes_padding(desc: _Windows) -> bool:
    return not isinstance(desc, LpPooling1 | MaxPooling2) and desc.include_padding


def _dispatch(
    desc: _Pooling,
    kernel: str,
    variant: Mapping[str, str | int],
    constants: Mapping[str, int],
    workgroups: int,
    caps: Capabilities,
    **params: Any,
) -> Plan:
    bindings = (input_range(0), output_range(0), output_range(1 if _index_words(desc) else 0))
    grid = linear_grid(workgroups, caps)
    return Plan((make_dispatch(kernel, bindings, grid, variant=variant, constants=constants, **params),))


def position_terms(desc: _Windows, channels_fastest: bool) -> tuple[dict[str, int], dict[str, Any]]:
    """The constants and parameters of ``glsl/include/pooling_positions.glsl``."""
    check_extents(desc)
    walk = walk_of(desc)
    order = walk.order(walk.output_sizes, channels_fastest)
    constants = {
        "VOLUMES": int(walk.volumes),
        "DILATED": int(max(desc.dilations) > 1),
        "CHANNELS_FASTEST": int(channels_fastest),
        "RANK": len(order),
    }
    params = {
        "outputs": math.prod(walk.output_sizes),
        "walk_sizes": order,
        "walk_divisors": divisors(order),
        "input_sizes": walk.input_sizes,
        "input_strides": walk.strides[0],
        "output_strides": walk.strides[1],
        "index_strides": walk.strides[2],
        "steps": three(desc.strides, 1),
        "window": three(desc.window_size, 1),
        "start_padding": three(desc.start_padding, 0),
        "end_padding": three(desc.end_padding, 0),
        "dilations": three(desc.dilations, 1),
        "include_padding": int(_includes_padding(desc)),
    }
    return constants, params


def _plan(
    desc: _Pooling,
    kernel: str,
    constants: dict[str, int],
    channels_fastest: bool,
    workgroups: int,
    caps: Capabilities,
) -> Plan:
    positions, params = position_terms(desc, channels_fastest)
    order = min(desc.p, _MOST_ORDER) if isinstance(desc, LpPooling1) else 1
    own = {
        "FUNCTION": int(_function(desc)),
        "NORM_ORDER": order if order <= 2 else 0,
        "INDEX_WORDS": _index_words(desc),
    }
    variant = {"T": desc.tensor("input_tensor").data_type.name}
    constants = {**positions, **own, **constants}
    return _dispatch(desc, kernel, variant, constants, workgroups, caps, **params, norm_order=float(order))


def _outputs(desc: _Pooling, problem: PoolingProblem, caps: Capabilities) -> Plan:
    size = min(256, caps.workgroup_invocations)
    height, width = desc.window_size[-2:]
    # Whole small windows, or pieces of a line; of a power, which is long code, one element at a time.
    most = 1 if isinstance(desc, LpPooling1) and desc.p > 2 else 8
    taps = min(width, most)
    lines = min(height, most // taps + 1) if width == taps and most > 1 else 1
    constants = {"LOCAL_SIZE_X": size, "LINES": lines, "TAPS": taps}
    workgroups = -(-desc.tensor("output_tensor").element_count // size)
    return _plan(desc, "pooling", constants, not problem.rows_contiguous, workgroups, caps)


def _window(desc: _Pooling, problem: PoolingProblem, caps: Capabilities) -> Plan:
    size = 256 if caps.workgroup_invocations >= 256 else 128
    # About 8 elements an invocation: two rounds of reads, and fewer levels of the tree than elements.
    lanes = min(size, max(8, 1 << (problem.window // 8).bit_length()))
    workgroups = -(-desc.tensor("output_tensor").element_count // (size // lanes))
    return _plan(desc, "pooling_window", {"LOCAL_SIZE_X": size, "LANES": lanes}, False, workgroups, caps)


@dataclass(frozen=True)
class _LanesForm(WindowLanes):
    """A problem as ``pooling_lanes`` sees it. The third of its modes is that of the indices.

    Attributes:
        words_of_element, words_of_group: Registers that one element and a group of lanes take.
    """

    words_of_element: int
    words_of_group: int

    def rows_read(self, rows: int) -> int:
        """Rows of the input that rows of the output take."""
        return (rows - 1) * self.stride[0] + self.window[0]

    @property
    def row_words(self) -> int:
        """Registers that what is read of an input row takes."""
        if self.modes[0] is Access.ELEMENTS:
            return (self.lanes * self.window[1] if self.channels else self.span) * self.words_of_element
        if self.channels:
            return self.groups * self.words_of_group
        # The first and the last group may have one word that is read.
        per_word = self.lanes // self.words_of_group
        ends = [self.lanes - self.shift, (self.shift + self.span - 1) % self.lanes + 1]
        partial = sum(0 < count <= per_word for count in ends) if self.groups > 1 else 0
        return (self.groups - partial) * self.words_of_group + partial

    def words(self, rows: int) -> int:
        """Registers for the elements read and the results, for so many rows of the output."""
        return self.rows_read(rows) * self.row_words + rows * self.lanes * self.words_of_element


def _lanes_form(desc: _Pooling) -> _LanesForm:
    """The form with the most lanes of those in which input and output lie in groups, or else with the fewest lanes."""
    bits = element_bits(desc.tensor("input_tensor").data_type)
    forms = [_form_of_lanes(desc, lanes, bits) for lanes in pooling_lanes(bits)]
    return next((form for form in forms if Access.ELEMENTS not in form.modes[:2]), forms[-1])


def _form_of_lanes(desc: _Pooling, lanes: int, bits: int) -> _LanesForm:
    walk = walk_of(desc)
    channels = not rows_contiguous(desc.tensor("input_tensor"))
    lane_axis = 1 if channels else 4

    of_input = lane_access(walk.input_sizes, walk.strides[0], lane_axis, lanes)
    of_output, of_indices = (lane_access(walk.output_sizes, strides, lane_axis, lanes) for strides in walk.strides[1:])
    return _LanesForm(
        lanes=lanes,
        channels=channels,
        modes=(of_input, of_output, Access.ELEMENTS if lanes * _index_words(desc) % 4 else of_indices),
        window=(desc.window_size[-2], desc.window_size[-1]),
        stride=(desc.strides[-2], desc.strides[-1]),
        shift=-desc.start_padding[-1] % lanes if of_input is Access.GROUPS and not channels else 0,
        words_of_element=max(bits // 32, 1),
        words_of_group=lanes * bits // 32,
    )


def _rows_each(form: _LanesForm, row_count: int, rest: int, caps: Capabilities) -> int:
    """Rows of the output an invocation makes: those that fit the registers, but not so many that the device idles, and one
    where windows have less than half of their rows in common: H200, 3x3 with a step of 2 over 32x256x56x56 in float32 at
    3750 GB/s so, 3460 with two. (On a CPU the cache serves those, and longer code only takes longer to compile.)

    Args:
        form: The problem.
        row_count: Rows of the output.
        rest: Invocations for one row each.
    """
    if caps.is_cpu or 2 * form.stride[0] > form.window[0]:
        return 1
    fit = (rows for rows in (4, 2) if form.words(rows) <= _LANE_REGISTERS)
    return next((rows for rows in fit if -(-row_count // rows) * rest >= caps.model.invocations(_LANE_WAVE)), 1)


def _lanes(desc: _Pooling, problem: PoolingProblem, caps: Capabilities) -> Plan:
    check_extents(desc)
    walk, form = walk_of(desc), _lanes_form(desc)
    n, c, d, h, w = walk.output_sizes
    lane_groups = -(-(c if form.channels else w) // form.lanes)
    columns = w if form.channels else 1
    rows = _rows_each(form, h, (n if form.channels else n * c) * d * columns * lane_groups, caps)
    row_groups = -(-h // rows)
    counts = (n, lane_groups, d, row_groups, w) if form.channels else (n, c, d, row_groups, lane_groups)
    order = walk.order(counts, form.channels)
    reaches = (
        desc.start_padding[-2] < form.window[0] and (h - 1) * form.stride[0] - desc.start_padding[-2] < walk.input_sizes[3]
    )
    size = min(_LANE_WORKGROUP, caps.workgroup_invocations)
    constants = {
        "LOCAL_SIZE_X": size,
        "FUNCTION": int(_function(desc)),
        "INDEX_WORDS": _index_words(desc),
        "VOLUMES": int(walk.volumes),
        "RANK": len(order),
        **form.constants(rows, -desc.start_padding[-1], w, walk.input_sizes[4]),
        "ROWS_REPEAT": int(reaches),
        "INPUT_MODE": int(form.modes[0]),
        "OUTPUT_MODE": int(form.modes[1]),
        "INDEX_MODE": int(form.modes[2]),
    }
    return _dispatch(
        desc,
        "pooling_lanes",
        {"LANES": form.lanes, "T": desc.tensor("input_tensor").data_type.name},
        constants,
        -(-math.prod(order) // size),
        caps,
        count=math.prod(order),
        sizes=order,
        divisors=divisors(order),
        lanes=c if form.channels else w,
        output_rows=h,
        input_sizes=walk.input_sizes,
        input_strides=walk.strides[0],
        output_strides=walk.strides[1],
        index_strides=walk.strides[2],
        start_padding=three(desc.start_padding, 0),
        end_padding=three(desc.end_padding, 0),
        window_depth=three(desc.window_size, 1)[0],
        depth_stride=three(desc.strides, 1)[0],
        depth_dilation=three(desc.dilations, 1)[0],
        include_padding=int(_includes_padding(desc)),
    )


# -- quantized


def _quantized_problem(desc: QuantizedLinearAveragePooling) -> PoolingProblem:
    source = desc.tensor("input_tensor")
    window = math.prod(min(size, full) for size, full in zip(desc.window_size, source.sizes[2:], strict=True))
    return PoolingProblem(
        outputs=desc.tensor("output_tensor").element_count,
        window=window,
        apart=desc.strides[-1] * source.effective_strides[-1],
        rows_contiguous=rows_contiguous(source),
        lane_words=None,
        reduces=False,
    )


def _rounds(desc: QuantizedLinearAveragePooling, taps: int) -> int:
    """Rounds of the loops over a window inside the input, taps of a line at a time."""
    full = desc.tensor("input_tensor").sizes[2:]
    *outer, line = map(min, desc.window_size, full)
    return math.prod(outer) * (-(-line // taps) + 1) + outer[0]


def _quantized(desc: QuantizedLinearAveragePooling, problem: PoolingProblem, caps: Capabilities) -> Plan:
    positions, params = position_terms(desc, not problem.rows_contiguous)
    slots = {slot.field.name: (index, slot.tensor) for index, slot in enumerate(desc.input_slots())}
    constants: dict[str, int] = {}
    bindings: list[Range] = []
    strides: list[int] = []
    for side in ("input", "output"):
        scale_slot, scale = slots[f"{side}_scale_tensor"]
        zero_slot, zero_point = slots[f"{side}_zero_point_tensor"]
        present = zero_point is not None
        constants[f"{side.upper()}_SIGNED"] = int(desc.tensor(f"{side}_tensor").data_type is TensorDataType.INT8)
        constants[f"HAS_{side.upper()}_ZERO_POINT"] = int(present)
        bindings += [input_range(scale_slot), input_range(zero_slot if present else scale_slot)]
        # One element, or one a channel.
        strides += [0 if t is None or t.element_count == 1 else t.effective_strides[1] for t in (scale, zero_point)]
    size, taps = min(256, caps.workgroup_invocations), min(desc.window_size[-1], 4)
    check_rounds(_rounds(desc, taps), caps, desc.dml_name)
    constants |= {**positions, "LOCAL_SIZE_X": size, "TAPS": taps}
    dispatch = make_dispatch(
        "pooling_quantized",
        (input_range(0), output_range(), *bindings),
        linear_grid(-(-problem.outputs // size), caps),
        variant={"T": "UINT8"},
        constants=constants,
        **params,
        channels=desc.tensor("input_tensor").sizes[1],
        side_strides=tuple(strides),
    )
    return Plan((dispatch,))


# -- unpooling


def _unpooling_problem(desc: MaxUnpooling) -> MaxUnpoolingProblem:
    return MaxUnpoolingProblem(bits=element_bits(desc.tensor("input_tensor").data_type))


def _unpooling(desc: MaxUnpooling, in_output: bool, caps: Capabilities) -> Plan:
    source, indices, output = (desc.tensor(f"{name}_tensor") for name in ("input", "indices", "output"))
    bits, outputs = element_bits(source.data_type), output.element_count
    # Parts of the output whose tables a binding holds.
    part = outputs if in_output else min(outputs, caps.storage_buffer_bytes // 4)
    temporary = 0 if in_output else 4 * part
    table = output_range() if in_output else Range(Source.TEMPORARY, 0, 0, temporary)
    size = min(256, caps.workgroup_invocations)

    def dispatch(first: int, phase: int) -> Dispatch:
        places = min(part, outputs - first)
        count = source.element_count if phase == 1 else places
        constants = {
            "LOCAL_SIZE_X": size,
            "PHASE": phase,
            "WORDS": 2 if bits == 64 else 1,
            "INDEX_WORDS": element_bits(indices.data_type) // 32,
            "IN_OUTPUT": int(in_output),
        }
        return make_dispatch(
            "max_unpooling",
            (input_range(0), input_range(1), output_range(), table),
            linear_grid(-(-count // size), caps),
            variant={"T": f"UINT{min(bits, 32)}"},
            constants=constants,
            count=count,
            first=first,
            places=places,
            input_sizes=source.sizes,
            input_divisors=divisors(source.sizes),
            input_strides=source.effective_strides,
            index_strides=indices.effective_strides,
            output_sizes=output.sizes,
            output_divisors=divisors(output.sizes),
            output_strides=output.effective_strides,
        )

    dispatches = (dispatch(first, phase) for first in part_starts(outputs, part) for phase in range(3))
    return Plan(tuple(dispatches), temporary_bytes=temporary)


def _unpooling_in_output(desc: MaxUnpooling, problem: MaxUnpoolingProblem, caps: Capabilities) -> Plan:
    return _unpooling(desc, True, caps)


def _unpooling_in_table(desc: MaxUnpooling, problem: MaxUnpoolingProblem, caps: Capabilities) -> Plan:
    return _unpooling(desc, False, caps)


register(
    AveragePooling1,
    LpPooling1,
    MaxPooling2,
    problem=_problem,
    rules=POOLING,
    schedules={"reduce": _reduce, "lanes": _lanes, "window": _window, "outputs": _outputs},
    limitations=(POSITIONS,),
    features=integer_features,
)
register(
    QuantizedLinearAveragePooling,
    problem=_quantized_problem,
    rules=QUANTIZED_POOLING,
    schedules={"outputs": _quantized},
    limitations=(LOOP_ROUNDS, POSITIONS),
)
register(
    MaxUnpooling,
    problem=_unpooling_problem,
    rules=MAX_UNPOOLING,
    schedules={"in_output": _unpooling_in_output, "table": _unpooling_in_table},
)
