"""THE rules: the one visible place that chooses kernels.

A family has an ordered tuple of rules. The first whose condition holds wins, and the last always holds. A rule reads
the problem and the device's capabilities and names the measurement that justifies it. ``python -m dmlvk explain``
prints each rule with yes or no; tests force every rule whose ``possible`` holds and compare it with the oracle.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmlvk.enums import OperatorType, TensorDataType
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.shapes import Coalesced, coalesce, group_lanes, tile_lanes
from dmlvk.tensor import element_bits, packed_strides

Condition = Callable[[Any, Capabilities], bool]


@dataclass(frozen=True)
class Rule:
    """One way to run a family's problems.

    Attributes:
        name: Of the schedule, which the family's lowering builds.
        when: Whether it is chosen, given that no earlier rule was.
        possible: Whether it would be right at all (chosen or not): what tests may force.
        because: The condition in words and the measurement behind it.
    """

    name: str
    when: Condition
    possible: Condition
    because: str


def always(problem: Any, caps: Capabilities) -> bool:
    """The condition of a family's last rule."""
    return True


def choose(rules: tuple[Rule, ...], problem: Any, caps: Capabilities) -> Rule:
    """The first rule that is possible and whose condition holds."""
    return next(rule for rule in rules if rule.possible(problem, caps) and rule.when(problem, caps))


# -- elementwise and activation


class Access(enum.IntEnum):
    """How an invocation reaches its lanes of a tensor; the modes of ``glsl/include/lanes.glsl``."""

    ELEMENTS = 0
    GROUPS = 1
    BROADCAST = 2


class Turned(NamedTuple):
    """A tensor that is contiguous in another dimension than the rest.

    Attributes:
        tensor: Which, counting the inputs and then the output; a lone input is the turned one, not its output.
        row: The dimension in which it is contiguous (where it is the output: in which the inputs are).
    """

    tensor: int
    row: int


_FUNCTIONS = (
    "ACOS",
    "ACOSH",
    "ASIN",
    "ASINH",
    "ATAN",
    "ATANH",
    "CONSTANT_POW",
    "COS",
    "COSH",
    "ERF",
    "LOG",
    "SIN",
    "SINH",
    "TAN",
)
_ACTIVATIONS = ("CELU", "ELU", "GELU", "PARAMETRIC_SOFTPLUS", "SCALED_ELU", "SCALED_TANH", "SIGMOID", "SOFTPLUS", "SWISH")
TRANSCENDENTAL = frozenset(
    {
        *(OperatorType[f"ELEMENT_WISE_{name}"] for name in (*_FUNCTIONS, "TANH")),
        *(OperatorType[f"ACTIVATION_{name}"] for name in (*_ACTIVATIONS, "TANH")),
    }
)
"""Operators whose arithmetic takes long enough that two items in flight hide more than they cost. H200, float32: sigmoid at
4124 GB/s against 3958 with one, erf 4092 against 3901, log 4045 against 3808; but relu 4003 against 4189."""


@dataclass(frozen=True)
class ElementwiseProblem:
    """Pointwise operators, as their kernels see them.

    Attributes:
        input_type, output_type: The kernel's: the tensors', or for what acts on bits the unsigned type of the same size.
        walk: The dimensions in the order in which the output lies in memory, merged; steps of the inputs and the output
            in elements.
        operation: The operator, where it is known.
    """

    input_type: TensorDataType
    output_type: TensorDataType
    walk: Coalesced
    operation: OperatorType = OperatorType.INVALID

    @property
    def group_lanes(self) -> int:
        """Elements that an invocation handles at once where rows are contiguous."""
        return group_lanes(element_bits(self.input_type), element_bits(self.output_type))

    @property
    def output_is_packed(self) -> bool:
        """Whether the output lies packed in the order of the walk."""
        return self.walk.strides[-1] == packed_strides(self.walk.sizes)

    def access(self, lanes: int, turned: Turned | None = None) -> tuple[Access, ...]:
        """How each tensor's lanes lie in memory: along the innermost dimension, but for what is turned."""
        found = []
        for tensor, steps in enumerate(self.walk.strides):
            is_input = tensor < len(self.walk.strides) - 1
            along_rows = turned is not None and is_input and turned.tensor in (tensor, len(self.walk.strides) - 1)
            found.append(_access(steps, turned.row if turned is not None and along_rows else len(steps) - 1, lanes))
        return tuple(found)

    @property
    def turned(self) -> Turned | None:
        """The only tensor that is contiguous in another dimension than the others, if there is one."""
        *inputs, output = self.walk.strides
        if output[-1] != 1:
            return None
        rows = {i: steps.index(1) for i, steps in enumerate(inputs) if steps[-1] > 1 and 1 in steps}
        if any(steps[-1] > 1 for i, steps in enumerate(inputs) if i not in rows):
            return None
        if len(rows) == 1:
            return Turned(*rows.popitem())
        return Turned(len(inputs), rows[0]) if len(set(rows.values())) == 1 else None


def _access(steps: tuple[int, ...], inner: int, lanes: int) -> Access:
    if lanes > 1 and steps[inner] == 0:
        return Access.BROADCAST
    others = steps[:inner] + steps[inner + 1 :]
    whole = lanes > 1 and steps[inner] == 1 and all(step % lanes == 0 for step in others)
    return Access.GROUPS if whole else Access.ELEMENTS


def _tiles_pay(problem: ElementwiseProblem) -> bool:
    """Whether most of a tile is there."""
    assert problem.turned is not None, "the rule has shown it to be there"
    return min(problem.walk.sizes[problem.turned.row], problem.walk.sizes[-1]) >= 16


ELEMENTWISE = (
    Rule(
        "tiles",
        when=lambda p, caps: not caps.is_cpu and _tiles_pay(p),
        possible=lambda p, caps: p.turned is not None and p.input_type == p.output_type,
        because="one tensor is contiguous in another dimension than the others: tiles through shared memory read and write "
        "whole cache lines. H200, 16384x8192 transposed in float32: 3870 GB/s against 1150 by elements; NCHW plus NHWC in "
        "float16: 4170 against 860. A CPU's caches do that by themselves",
    ),
    Rule(
        "groups",
        when=lambda p, caps: Access.ELEMENTS not in p.access(p.group_lanes),
        possible=always,
        because="rows lie contiguous and start on groups: one index and one access of up to 16 bytes for several elements. "
        "H200, float32: add at 4276 GB/s; a row broadcast at 4116, by elements at 3929; float16: 4088, by elements 2665",
    ),
    Rule(
        "runs",
        when=lambda p, caps: not caps.is_cpu,
        possible=lambda p, caps: p.output_is_packed and p.walk.sizes[-1] >= p.group_lanes,
        because="a packed output and rows that start anywhere: a group of the output takes its inputs from at most two "
        "rows: two indices serve it, and one store. H200, five dimensions in rows of 129: float16 at 2940 GB/s against 1630 "
        "by elements, float32 at 3940 against 3250",
    ),
    Rule(
        "elements",
        when=always,
        possible=always,
        because="any strides: one element at a time, several in flight. H200, five dimensions in float32: 3250 GB/s with "
        "four in flight, 1605 with one",
    ),
)

ELEMENTWISE_ITEMS = tuple(rule for rule in ELEMENTWISE if rule.name in ("groups", "elements"))
"""Those of ElementWiseIf, ElementWisePow and ElementWiseQuantizedLinearAdd, whose kernels have no other forms."""

VALUE_SCALE_2D = (
    Rule("channels", when=always, possible=always, because="a launch a channel, each as a unary operator with its own bias"),
)

# -- reductions


@dataclass(frozen=True)
class ReductionProblem:
    """Reductions as their kernels see them.

    Attributes:
        data_type: Of the input.
        kept: The kept dimensions in the order of memory, merged: strides of the input and the output in elements.
        row: The reduced dimensions, merged: strides of the input.
    """

    data_type: TensorDataType
    kept: Coalesced
    row: Coalesced

    @property
    def rows(self) -> int:
        """Results."""
        return math.prod(self.kept.sizes)

    @property
    def row_elements(self) -> int:
        """Elements of a result."""
        return math.prod(self.row.sizes)

    @property
    def lanes(self) -> int:
        """Elements of 16 bytes."""
        return 128 // element_bits(self.data_type)

    @property
    def row_lanes(self) -> int:
        """Elements of a row in one access: those of 16 bytes where rows are contiguous, else 1."""
        lanes = self.lanes
        *outer, inner = self.row.strides[0]
        if inner != 1:
            return 1
        if not outer and self.row_elements >= 4 * lanes:
            return lanes  # wherever it starts
        around = (*outer, *self.kept.strides[0]) if self.rows > 1 else outer
        return lanes if self.row.sizes[-1] % lanes == 0 and all(step % lanes == 0 for step in around) else 1

    @property
    def row_shift(self) -> int:
        """The most elements by which a row starts after a whole access."""
        steps = self.kept.strides[0] if self.rows > 1 else ()
        return 0 if all(step % self.row_lanes == 0 for step in steps) else self.row_lanes - 1

    @property
    def row_units(self) -> int:
        """Accesses of a row."""
        return -(-self.row_elements // self.row_lanes)

    @property
    def column_lanes(self) -> int:
        """Neighbouring rows in one access: those of 16 bytes where they are contiguous, else 1."""
        lanes = self.lanes
        *outer, inner = self.kept.strides[0]
        around = (*outer, *self.row.strides[0])
        whole = inner == 1 and self.kept.sizes[-1] >= lanes and all(step % lanes == 0 for step in around)
        return lanes if whole else 1

    @property
    def side_by_side(self) -> bool:
        """Whether neighbours in memory belong to different rows."""
        return self.kept.sizes[-1] > 1 and self.kept.strides[0][-1] < self.row.strides[0][-1]

    @property
    def partial_bytes(self) -> int:
        """Of an accumulator in memory."""
        return 12 if element_bits(self.data_type) == 64 else 8


def _few(problem: ReductionProblem, lanes: int) -> bool:
    """Whether the rows, so many to an invocation, and up to 8 invocations a row or column leave most of a GPU idle."""
    return problem.rows // lanes < 2**13


REDUCTION = (
    Rule(
        "columns_split",
        when=lambda p, caps: p.row_elements >= 2**14 if caps.is_cpu else _few(p, p.column_lanes) and p.row_elements >= 256,
        possible=lambda p, caps: p.side_by_side and p.row_elements >= 32,
        because="neighbours in memory belong to different rows, and these are few and long: chunks of them in as many "
        "workgroups, and a second dispatch that merges; on a CPU because its driver may end the loops of an invocation "
        "after 65535 rounds in all, those within others included. H200, 8192 columns of 16384 summed in float32: 4085 GB/s "
        "against 2096 in one dispatch",
    ),
    Rule(
        "columns",
        when=always,
        possible=lambda p, caps: p.side_by_side,
        because="neighbours in memory belong to different rows: neighbouring invocations take neighbouring rows, 16 bytes "
        "of them each. H200, over the channels of 64x256x128x64 in float32: 4010 GB/s",
    ),
    Rule(
        "split",
        when=lambda p, caps: p.row_units >= 2**14 if caps.is_cpu else p.rows < 512 and p.row_units >= 2**13,
        possible=lambda p, caps: p.row_units >= 64,
        because="few long rows: chunks of them in as many workgroups, and a second dispatch that merges; on a CPU as above. "
        "H200, 2^28 float32 summed: 4268 GB/s against 22 by one workgroup",
    ),
    Rule(
        "workgroup",
        when=lambda p, caps: not caps.is_cpu and p.rows * caps.subgroup_size < 2**18,
        possible=lambda p, caps: p.row_units >= 2 * caps.subgroup_size,
        because="too few rows to fill a GPU with a subgroup each",
    ),
    Rule(
        "subgroup",
        when=always,
        possible=always,
        because="a subgroup, or a part of one, for each row: no barriers. H200, 16384 rows of 8192 float32: 4342 GB/s, by "
        "workgroups 4155; their arg-max 4013 against 3366",
    ),
)

# -- normalization


@dataclass(frozen=True)
class MeanVarianceProblem:
    """Mean-variance normalization as its kernels see it: rows of units (include/mean_variance.glsl has the terms).

    Attributes:
        rows: Sets of elements that share a mean.
        row_units: Units in a row.
        unit_elements: Elements in a unit: those of a 16-byte word, or 1.
        side_by_side: Whether neighbours in memory belong to different rows.
        across: Of rows side by side: how many of them move together, one element each: those of a word, or 1.
        kept: The kept dimensions, merged: steps of x, scale, bias, add, y, mean, variance.
        row: The reduced dimensions, merged: steps of x, add, y.
        side: The reduced dimensions, merged: steps of scale, bias.
    """

    rows: int
    row_units: int
    unit_elements: int
    side_by_side: bool
    across: int
    kept: Coalesced
    row: Coalesced
    side: Coalesced

    def units_in_registers(self, caps: Capabilities) -> int:
        """The longest row that one workgroup holds: 64 registers an invocation, 32 where there are more than 512."""
        return min(caps.workgroup_invocations, 512) * (16 if self.unit_elements > 1 else 64)

    def lanes_side_by_side(self, caps: Capabilities) -> int:
        """Most invocations of a workgroup that share a row side by side with others: four neighbours fill an access."""
        return 1 << (min(caps.workgroup_invocations, 256).bit_length() - 1 - 2)


MEAN_VARIANCE_COLUMN_UNITS = 16
"""Most units that an invocation holds of rows side by side: 64 registers where they are words."""


MEAN_VARIANCE_NORMALIZATION = (
    Rule(
        "columns",
        when=always,
        possible=lambda p, caps: p.side_by_side and p.row_units <= MEAN_VARIANCE_COLUMN_UNITS * p.lanes_side_by_side(caps),
        because="neighbours in memory belong to different rows: neighbouring invocations take neighbouring rows, so that "
        "reads and writes touch whole cache lines. H200, over the channels of 32x256x56x56 in float32: 59 us, 397 by rows",
    ),
    Rule(
        "columns_split",
        when=always,
        possible=lambda p, caps: p.side_by_side,
        because="rows side by side that are too long for the registers of their lanes: cut into chunks, too, so that few "
        "columns occupy the whole device; two reads and one write of each byte. H200, each channel of each image of "
        "32x256x56x56 in NHWC, float32: 99 us, PyTorch 344",
    ),
    Rule(
        "rows",
        when=always,
        possible=lambda p, caps: p.row_units <= p.units_in_registers(caps),
        because="a row fits into the registers of one workgroup: one read and one write of each byte. H200, 16384x8192 in "
        "float32: 4050 GB/s against 2700 split",
    ),
    Rule(
        "split",
        when=always,
        possible=always,
        because="a row is too long for one workgroup's registers: two dispatches, rows cut into chunks. H200, 32 rows "
        "of 16 MiB: 2690 GB/s, 95 % of what two reads and a write can reach; normalizing a group of rows while the next is "
        "gathered, to find it in the cache, gave 1550 to 2450",
    ),
)


@dataclass(frozen=True)
class BatchNormalizationProblem(ElementwiseProblem):
    """Batch normalization with given statistics: the tensors x, mean, variance, scale, bias and output."""

    def data_in_groups(self) -> bool:
        """Whether x and the output move in groups, however the other tensors lie."""
        x, *_, output = self.access(self.group_lanes)
        return Access.ELEMENTS not in (x, output)

    @property
    def in_line(self) -> BatchNormalizationProblem | None:
        """The problem whose last dimension is this one's last two, if x and the output lie in one line and the other tensors
        stand still along the last: these are given for it as if they stood still along both."""
        sizes, strides = self.walk.sizes, self.walk.strides
        if len(sizes) < 2 or sizes[-1] < self.group_lanes or any(steps[-1] for steps in strides[1:-1]):
            return None
        if any(steps[-2:] != (sizes[-1], 1) for steps in (strides[0], strides[-1])):
            return None
        merged = Coalesced((*sizes[:-2], sizes[-2] * sizes[-1]), tuple((*steps[:-2], steps[-1]) for steps in strides))
        whole = merged.sizes[-1] % self.group_lanes == 0
        return dataclasses.replace(self, walk=merged) if whole else None


BATCH_NORMALIZATION = (
    Rule(
        "groups",
        when=always,
        possible=lambda p, caps: p.data_in_groups(),
        because="rows of the data lie contiguous and start on groups: accesses of 16 bytes, fewest instructions a byte. "
        "H200, 32x256x56x56 in float32: 3760 GB/s, 1830 by elements",
    ),
    Rule(
        "runs",
        when=always,
        possible=lambda p, caps: p.in_line is not None and p.in_line.data_in_groups(),
        because="channels of any length, one after the other: a group of the data has the statistics of at most two, and "
        "moves in one access. H200, 64x2048x7x7 in float16: 10 us, PyTorch 93",
    ),
    Rule("elements", when=always, possible=always, because="any strides and sizes: one element at a time"),
)

LOCAL_RESPONSE_NORMALIZATION = (
    Rule(
        "groups",
        when=always,
        possible=lambda p, caps: (
            Access.ELEMENTS not in p.access(p.group_lanes) and not any(steps[-1] for steps in p.walk.strides[1:-1])
        ),
        because="contiguous rows across which regions do not reach: accesses of 16 bytes, and the elements of a region are "
        "read from memory once and then from the nearest cache. H200, across 5 channels of 32x256x56x56 in float32: 72 us, "
        "PyTorch 920",
    ),
    Rule("elements", when=always, possible=always, because="any strides: one element at a time, neighbours by neighbours"),
)

# -- regions of interest

ROI_TABLE_ROWS, ROI_TABLE_COLUMNS = 256, 512
"""Most entries in the tables of ``roi_align_columns``: with its partial results 16 KiB in all, which is the least shared
memory that a device has."""


@dataclass(frozen=True)
class RoiAlignProblem:
    """What the ROI align rules read.

    Attributes:
        rows, columns: Fewest table entries: samples down, and pixels read across, by all outputs of a region that takes
            the minimum of samples.
        rows_contiguous: Whether the input's W is denser in memory than its channels.
    """

    rows: int
    columns: int
    rows_contiguous: bool


ROI_ALIGN = (
    Rule(
        "columns",
        when=lambda problem, caps: problem.rows_contiguous and not caps.is_cpu,
        possible=lambda problem, caps: problem.rows <= ROI_TABLE_ROWS and problem.columns <= ROI_TABLE_COLUMNS,
        because="rows run along memory, on a GPU: neighbours read one image row. On an H200, 1000 regions of 4x256x200x304 "
        "to 7x7 took 179 us in float32 and 166 us in float16; outputs took 381 and 315 us, torchvision 395 and 457 us",
    ),
    Rule(
        "outputs",
        when=always,
        possible=always,
        because="any layout and number of samples; neighbours read neighbouring channels where those are contiguous",
    ),
)

ROI_POOLING = (
    Rule(
        "outputs",
        when=always,
        possible=always,
        because="an output an invocation: neighbours read neighbouring cells, of which each pixel belongs to one or two",
    ),
)

# -- resampling


class SampledDimension(NamedTuple):
    """A dimension of a resampling: output o lies at ``(step * o + start) / parts`` of the input, all of them exact.

    Attributes:
        outputs, inputs: Its sizes.
        output_step, input_step: Elements of memory between neighbours.
        mapped: Whether positions must be worked out: where not, output o is input element o, input_step 0 included.
        step, start, parts: See above. Of NEAREST_NEIGHBOR, such that rounding down gives the element.
        filter_scale: |Scale| where that antialiases, else 1.
    """

    outputs: int
    inputs: int
    output_step: int
    input_step: int
    mapped: bool = False
    step: int = 1
    start: int = 0
    parts: int = 1
    filter_scale: float = 1.0


@dataclass(frozen=True)
class ResampleProblem:
    """Resampling as its kernels see it.

    Attributes:
        data_type: Of both tensors.
        linear: Whether the mode is LINEAR.
        dimensions: In the order in which the output lies in memory, the last the densest; those not mapped merged.
    """

    data_type: TensorDataType
    linear: bool
    dimensions: tuple[SampledDimension, ...]

    @property
    def group_lanes(self) -> int:
        """Elements of a 16-byte word."""
        return group_lanes(element_bits(self.data_type))

    @property
    def inner(self) -> SampledDimension:
        """The dimension along which the output is densest."""
        return self.dimensions[-1]

    @property
    def antialiased(self) -> bool:
        """Whether any dimension antialiases."""
        return any(dimension.filter_scale < 1 for dimension in self.dimensions)

    @property
    def whole_factor(self) -> int:
        """How many outputs of the innermost dimension each input element has, where that is 2 or 4 and each output reads
        elements next to its own only; else 0."""
        inner = self.inner
        if not inner.mapped or inner.step <= 0 or inner.parts % inner.step or inner.parts // inner.step not in (2, 4):
            return 0
        factor = inner.parts // inner.step
        first = inner.start // inner.parts
        last = (inner.start + (factor - 1) * inner.step) // inner.parts + self.linear
        return factor if first in (-1, 0) and last <= 1 else 0


def _dense_rows(problem: ResampleProblem, caps: Capabilities) -> bool:
    return problem.inner.output_step == 1 and problem.inner.outputs >= problem.group_lanes


RESAMPLE = (
    Rule(
        "whole",
        when=_dense_rows,
        possible=lambda p, caps: p.whole_factor > 0 and not p.antialiased,
        because="rows enlarged by 2 or 4: an invocation makes a 16-byte group of outputs from the few columns under them, "
        "which it combines in registers, and has the weights along the row as constants. H200, bilinear to 32x64x512x512 "
        "in float32: 3796 GB/s; with the outputs of a 16-byte group of inputs each, 2241",
    ),
    Rule(
        "shared",
        when=lambda p, caps: p.inner.input_step == 1 and _dense_rows(p, caps),
        possible=lambda p, caps: not p.inner.mapped,
        because="neighbours in memory, such as the channels of NHWC, lie at one position: 16-byte groups share it, its "
        "weights and its index arithmetic. H200, the same in NHWC: 3837 GB/s",
    ),
    Rule(
        "groups",
        when=_dense_rows,
        possible=lambda p, caps: p.inner.mapped and not p.antialiased,
        because="rows scaled by any factor: the outputs of a 16-byte group share the position in all other dimensions, "
        "each has a column of its own one step after its neighbour's, and one store writes them. H200, 1.5 times, float32: "
        "2440 GB/s",
    ),
    Rule("elements", when=always, possible=always, because="any strides and antialiased rows: one output at a time"),
)

# -- convolution and pooling


@dataclass(frozen=True)
class PoolingProblem:
    """What the pooling rules read.

    Attributes:
        outputs: Elements of the output.
        window: Elements of a window.
        apart: Elements of memory between the windows of neighbouring outputs in a row; 0 where rows have one output.
        rows_contiguous: Whether the input's W is denser in memory than its channels.
        lane_words: Registers that an invocation takes which makes one row of neighbouring outputs; None where the plane's
            dilations are not 1 or a row is more than 32 groups, and of a norm.
        reduces: Whether a single window is the whole input and Reduce computes the same.
    """

    outputs: int
    window: int
    apart: int
    rows_contiguous: bool
    lane_words: int | None
    reduces: bool


POOLING_LANE_WORDS = 160
"""Most registers of elements and results: with what else an invocation needs they stay below 255, the most that it has."""

POOLING = (
    Rule(
        "reduce",
        when=always,
        possible=lambda problem, caps: problem.reduces,
        because="whole planes: a reduction over the spatial dimensions, whose schedules suit few long rows, many short ones "
        "and any layout. H200, the average of 32x256x128x128 in float32: 4204 GB/s",
    ),
    Rule(
        "lanes",
        when=lambda problem, caps: problem.apart != 0 or not problem.rows_contiguous,
        possible=lambda problem, caps: problem.lane_words is not None and problem.lane_words <= POOLING_LANE_WORDS,
        because="small windows: an invocation makes a group of neighbouring outputs and reads in groups, each element once "
        "for all windows that share it: fewest instructions a byte. H200, 3x3 over 32x256x56x56 in float32: 54 us, PyTorch "
        "333",
    ),
    Rule(
        "window",
        when=lambda problem, caps: (
            problem.window >= 2**14
            if caps.is_cpu
            else problem.rows_contiguous
            and (problem.apart == 0 or problem.apart >= 8)
            and (problem.window >= 128 or (problem.window >= 32 and problem.outputs <= 32768))
        ),
        possible=always,
        because="large windows at least 8 elements apart: an output's invocations read its window together. On an H200, "
        "16384 of 16x16 took 24 us, by outputs 49. On a CPU only those so large that an invocation's loops could exceed the "
        "65535 rounds after which the driver may end them",
    ),
    Rule(
        "outputs",
        when=always,
        possible=always,
        because="any window: neighbours read side by side, and windows that overlap meet in the cache",
    ),
)


QUANTIZED_POOLING = (Rule("outputs", when=always, possible=always, because="any window: one invocation an output"),)


@dataclass(frozen=True)
class MaxUnpoolingProblem:
    """What the unpooling rules read: bits of an element."""

    bits: int


MAX_UNPOOLING = (
    Rule(
        "in_output",
        when=always,
        possible=lambda problem, caps: problem.bits >= 32,
        because="elements have room for a position: the output itself is the table of which input goes where",
    ),
    Rule("table", when=always, possible=always, because="narrow elements: the table is temporary memory"),
)


@dataclass(frozen=True)
class ConvolutionProblem:
    """What the convolution rules read.

    Attributes:
        pixels: Output positions, all batch entries counted.
        groups, group_channels, group_outputs: Groups, and the input and output channels of each.
        taps: Of the window.
        divided: Whether positions are divided: direction BACKWARD with a stride above 1.
        forward: Whether the direction is FORWARD.
        segment: Inputs along W that a run of 4 outputs reads.
        is_product: Whether it is a plain matrix product of one pixel a batch entry: one group, one tap, no padding.
    """

    pixels: int
    groups: int
    group_channels: int
    group_outputs: int
    taps: int
    divided: bool
    forward: bool
    segment: int
    is_product: bool


def _few_pixels(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.is_product and problem.pixels <= GEMM_VECTOR_ROWS


def _depthwise(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    channels = problem.groups * problem.group_outputs
    single = problem.group_channels == 1 and problem.forward
    return single and problem.segment <= 64 and channels <= caps.workgroup_counts[2]


def _direct(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.groups * problem.group_outputs <= caps.workgroup_counts[2]


def _tiled(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.groups <= caps.workgroup_counts[2] and problem.pixels <= caps.workgroup_counts[0]


CONVOLUTION = (
    Rule(
        "vector",
        when=lambda problem, caps: not caps.is_cpu,
        possible=_few_pixels,
        because="one pixel of at most 4 images under a 1x1 window is a matrix times few vectors, which needs one read of "
        "the weights; see the rule of that name for Gemm",
    ),
    Rule(
        "depthwise",
        when=always,
        possible=_depthwise,
        because="one input channel a group, FORWARD: overlapping windows of a run of outputs are read once; 3x3 on "
        "32x256x56x56 on an H200 in 0.13 ms against 0.50 with an invocation an output, on lavapipe 4 times faster, too",
    ),
    Rule(
        "tiled",
        when=lambda problem, caps: (
            not caps.is_cpu and problem.group_channels >= 8 and problem.group_outputs >= 16 and problem.pixels >= 32
        ),
        possible=_tiled,
        because="enough channels and pixels to fill tiles in shared memory, on a GPU: on an H200 3x3 on 1x256x14x14 in 77 "
        "us against 352 with the direct schedule; below 8 channels a group (7x7, 3 channels) the direct one is as fast",
    ),
    Rule(
        "direct",
        when=lambda problem, caps: problem.group_outputs > 1 and problem.pixels >= 8,
        possible=_direct,
        because="several output channels a group: each input value read serves 8 of them, without barriers; the 1x1 layers "
        "of a MobileNet run 5 times faster on lavapipe than with an invocation an output",
    ),
    Rule("naive", when=always, possible=always, because="any convolution: one invocation an output"),
)

# -- blocks of images


@dataclass(frozen=True)
class BlockDimension:
    """A spatial dimension of an image and its blocks, or several that are as one.

    Attributes:
        size: Of the image.
        window, stride, dilation, start: The sliding window; the padding before the image.
        blocks: How many windows.
        step: Of the image in memory.
    """

    size: int
    window: int
    stride: int
    dilation: int
    start: int
    blocks: int
    step: int

    @property
    def whole(self) -> bool:
        """Whether blocks are the image's elements, one for one."""
        return self.window == 1 and self.start == 0 and self.stride == 1 and self.blocks == self.size


@dataclass(frozen=True)
class FoldProblem:
    """Blocks of images as the kernels see them.

    Attributes:
        bits: Of an element.
        kept: N and C, or both as one; steps of the image and of its columns.
        dimensions: The spatial ones, merged.
        tap_step, block_step: Of the columns, from one element of a window to the next and from one block to the next.
    """

    bits: int
    kept: Coalesced
    dimensions: tuple[BlockDimension, ...]
    tap_step: int
    block_step: int

    @property
    def in_rows(self) -> bool:
        """Whether a line of blocks is contiguous in the columns, and what it takes in the image."""
        line = self.dimensions[-1]
        return line.blocks == 1 or (line.stride == 1 and line.step == 1 and self.block_step == 1)

    @property
    def columns(self) -> Coalesced:
        """The columns' dimensions, merged, and their steps."""
        window, blocks = (math.prod(getattr(own, name) for own in self.dimensions) for name in ("window", "blocks"))
        steps = (*self.kept.strides[1], self.tap_step, self.block_step)
        return coalesce((*self.kept.sizes, window, blocks), [steps])

    @property
    def packed(self) -> bool:
        """Whether the columns' elements follow each other."""
        return self.columns.strides == ((1,),)


FOLD = (
    Rule(
        "outputs",
        when=always,
        possible=always,
        because="any blocks: an invocation adds what covers its output, without atomics; one read and one write of each "
        "byte, neighbours side by side",
    ),
)

UNFOLD = (
    Rule(
        "rows",
        when=lambda p, caps: _words_pay(p.bits, p.dimensions[-1].blocks * p.bits // 8, caps),
        possible=lambda p, caps: p.in_rows,
        because="lines of blocks are contiguous runs of the image's: words of the output, each shifted together from two of "
        "the image",
    ),
    Rule("elements", when=always, possible=always, because="any strides: one element at a time"),
)

# -- matrix multiplication and softmax

GEMM_VECTOR_ROWS = 4
"""Most rows (or columns) of a product that the schedule for vectors takes: it keeps one sum a row in registers."""


@dataclass(frozen=True)
class GemmProblem:
    """What the matrix product rules read: rows and columns of the output, terms of each sum, matrices."""

    rows: int
    columns: int
    depth: int
    batch: int


def _few_rows(problem: GemmProblem, caps: Capabilities) -> bool:
    return min(problem.rows, problem.columns) <= GEMM_VECTOR_ROWS and problem.batch <= caps.workgroup_counts[2]


def _rows(problem: GemmProblem, caps: Capabilities) -> bool:
    return problem.rows <= caps.workgroup_counts[1] and problem.batch <= caps.workgroup_counts[2]


GEMM = (
    Rule(
        "vector",
        when=lambda problem, caps: not caps.is_cpu,
        possible=_few_rows,
        because="at most 4 rows or columns, on a GPU: bound by one read of the other operand; 1x4096 by 4096x4096 on an "
        "H200 in 25 us, 2.7 TB/s (28 us with the columns contiguous)",
    ),
    Rule(
        "tiled",
        when=lambda problem, caps: not caps.is_cpu and problem.rows >= 16 and problem.columns >= 16,
        possible=_rows,
        because="rows and columns enough for tiles in shared memory, on a GPU: on an H200 30 TFLOP/s at 4096^3 and 23 at "
        "1024^3, in float32",
    ),
    Rule(
        "rows",
        when=lambda problem, caps: caps.is_cpu,
        possible=_rows,
        because="each value of B read serves 8 rows, without barriers: on lavapipe 256^3 in 7 ms of one core against 22 "
        "with tiles and 40 with an invocation an output",
    ),
    Rule("naive", when=always, possible=always, because="any product: one invocation an output"),
)


class SoftmaxUnit(enum.IntEnum):
    """What an invocation of the softmax kernels moves at once; ``glsl/include/row_tiles.glsl``."""

    ELEMENT = 0
    WORD_OF_A_ROW = 1
    WORD_OF_ROWS = 2


SOFTMAX_HELD = 32
"""Elements that an invocation holds in registers at most: with what else it needs, four workgroups of 256 share a core of
65,536 registers. Words of rows side by side are 8 at most, though that be 64 elements: fewer make the workgroups larger than
the device likes. H200, 8x1000x64x64 over the channels in float16: 98 us, 206 with 4 words."""


@dataclass(frozen=True)
class SoftmaxProblem:
    """Softmax and its relatives, as their kernels see them.

    Attributes:
        side_by_side: Whether neighbours in memory belong to different rows.
        unit: What moves at once.
        unit_elements: Elements in a unit.
        groups: Groups of rows: single ones, or with ``WORD_OF_ROWS`` as many as elements in a unit.
        row_units: Units in a row.
        kept, row: The kept and the reduced dimensions, merged: steps of x, y in elements.
    """

    side_by_side: bool
    unit: SoftmaxUnit
    unit_elements: int
    groups: int
    row_units: int
    kept: Coalesced
    row: Coalesced

    @property
    def least_columns(self) -> int:
        """Neighbouring groups of a workgroup, at least: as many as a memory sector of 32 bytes has."""
        if not self.side_by_side:
            return 1
        return 2 if self.unit is SoftmaxUnit.WORD_OF_ROWS else 8

    def most_invocations(self, caps: Capabilities) -> int:
        """The largest workgroup, a power of two. Merging takes 16 bytes of shared memory for each row of a group, of each of
        up to 8 columns of a subgroup."""
        most = min(caps.workgroup_invocations, 1024)
        if self.unit is SoftmaxUnit.WORD_OF_ROWS:
            most = min(most, caps.shared_memory_bytes * max(caps.minimum_subgroup_size, 8) // (16 * self.unit_elements * 8))
        return 1 << (most.bit_length() - 1)

    def fits_in_registers(self, caps: Capabilities) -> bool:
        """Whether a workgroup can hold the rows that it cannot do without."""
        invocations = self.most_invocations(caps) // self.least_columns
        return self.row_units <= invocations * self.units_held

    @property
    def units_held(self) -> int:
        """Units that an invocation holds in registers at most."""
        least = 8 if self.unit is SoftmaxUnit.WORD_OF_ROWS else 1
        return max(SOFTMAX_HELD // self.unit_elements, least)


SOFTMAX = (
    Rule(
        "whole",
        when=always,
        possible=lambda problem, caps: problem.fits_in_registers(caps),
        because="rows fit into the registers of a workgroup: one read and one write of each byte. H200, 16384x8192 in "
        "float32: 4061 GB/s",
    ),
    Rule(
        "looped",
        when=lambda problem, caps: problem.groups >= (4096 if problem.side_by_side else 512),
        possible=always,
        because="rows longer than that, but enough of them to fill the device with a workgroup each: two reads, the second "
        "of which finds the ends of rows in the cache, and one write. H200, 1024 rows of 131072 float32: 418 us, PyTorch "
        "526",
    ),
    Rule(
        "split",
        when=always,
        possible=always,
        because="few long rows: two reads and one write by as many workgroups as the device can use. H200, 4 rows of 2^24 "
        "float32: 227 us, PyTorch 6030",
    ),
)

# -- running sums and products


@dataclass(frozen=True)
class ScanProblem:
    """Running sums and products as their kernels see them.

    Attributes:
        rows: Sets of elements that are summed together.
        units: Units in a row.
        unit_elements: Elements in a unit: those of a 16-byte word, or 1.
        side_by_side: Whether neighbours in memory belong to different rows.
        kept: The dimensions beside the axis, merged: steps of x, y.
        steps: Of x and y along the axis.
    """

    rows: int
    units: int
    unit_elements: int
    side_by_side: bool
    kept: Coalesced
    steps: tuple[int, int]

    @property
    def length(self) -> int:
        """Elements of a row."""
        return self.units * self.unit_elements


SCAN = (
    Rule(
        "column chunks",
        when=lambda problem, caps: problem.rows < (64 if caps.is_cpu else 4096) and problem.length >= 4096,
        possible=lambda problem, caps: problem.side_by_side and problem.length >= 256,
        because="few rows side by side, and long: cut into chunks, or too few workgroups would have work; two reads and a "
        "write of each byte",
    ),
    Rule(
        "columns",
        when=always,
        possible=lambda problem, caps: problem.side_by_side,
        because="neighbours in memory belong to different rows: neighbouring invocations take neighbouring rows, so that "
        "reads and writes touch whole cache lines; one read and one write of each byte. H200, along the first axis of "
        "16384x8192 in float32: 3027 GB/s",
    ),
    Rule(
        "chunks",
        when=lambda problem, caps: problem.rows < 128 and problem.length >= 2**17,
        possible=lambda problem, caps: problem.length >= 4096,
        because="few rows, and long: cut into chunks, or too few workgroups would have work, and a loop would exceed the "
        "65535 rounds after which a CPU's driver may end it; two reads and a write of each byte. H200, 10^8 float32: 356 "
        "us, PyTorch 312",
    ),
    Rule(
        "rows",
        when=always,
        possible=always,
        because="invocations share a row: one read and one write of each byte. H200, 16384x8192 in float32: 4091 GB/s",
    ),
)

# -- largest and smallest elements


@dataclass(frozen=True)
class TopKProblem:
    """The K largest or smallest elements of rows, as their kernels see them.

    Attributes:
        bits: Of an element.
        rows: Sets of elements that are compared.
        length: Elements of a row.
        k: How many of them are wanted.
        unit_elements: Elements of a 16-byte word where rows consist of whole words, else 1.
        side_by_side: Whether neighbours in memory belong to different rows.
        kept: The dimensions beside the axis, merged: steps of x, values, indices.
        steps: Of the three along the axis.
    """

    bits: int
    rows: int
    length: int
    k: int
    unit_elements: int
    side_by_side: bool
    kept: Coalesced
    steps: tuple[int, int, int]

    def most_sorted(self, caps: Capabilities, *, used: int = 0) -> int:
        """The largest power of two of elements, keys and positions, in shared memory of which so many bytes are used."""
        return 1 << ((caps.shared_memory_bytes - used) // (max(self.bits, 32) // 8 + 4)).bit_length() - 1

    def most_selected(self, caps: Capabilities) -> int:
        """The same where the kernel counts in shared memory as well."""
        return self.most_sorted(caps, used=TOP_K_COUNT_BYTES)


TOP_K_COUNT_BYTES = 10304
"""Shared memory of ``top_k_select`` besides its candidates."""

TOP_K = (
    Rule(
        "sort",
        when=lambda problem, caps: problem.length <= 128 or (problem.length <= 1024 and problem.length <= 4 * problem.k),
        possible=lambda problem, caps: problem.length <= problem.most_sorted(caps),
        because="short rows, or most of their elements wanted: sorted whole in shared memory; one read of each byte",
    ),
    Rule(
        "chunks",
        when=lambda problem, caps: problem.rows < 128 and problem.length >= 2**18,
        possible=lambda problem, caps: (
            problem.k <= problem.most_selected(caps) and problem.length >= max(4096, 512 * problem.k)
        ),
        because="few rows, and long: each is cut into chunks that choose their own K first, or too few workgroups would "
        "have work, and a loop would exceed the 65535 rounds after which a CPU's driver may end it. H200, 100 of 64 rows of "
        "2^20 float32: 218 us, PyTorch 837",
    ),
    Rule(
        "select",
        when=always,
        possible=lambda problem, caps: problem.k <= problem.most_selected(caps),
        because="K elements fit into shared memory: counts by digits find the K-th, and only what is not behind it is "
        "sorted; two reads of each byte. H200, 100 of 4096 rows of 32768 float32: 428 us, PyTorch 1610",
    ),
    Rule(
        "memory",
        when=always,
        possible=always,
        because="K too large for shared memory: whole rows sorted in temporary memory, 8 or 12 bytes an element. H200, "
        "8192 of 1024 rows of 8192 float32: 837 us, PyTorch 985",
    ),
)

# -- quantization


@dataclass(frozen=True)
class QuantizationProblem:
    """Quantizations and their inverses, as their kernels see them.

    Attributes:
        bits: Of an element of the input and of the output.
        walk: The dimensions in the order in which the output lies in memory, those of blocks split in two, merged; steps
            of the input, the scale, the zero point and the output in elements.
    """

    bits: tuple[int, int]
    walk: Coalesced

    @property
    def lanes(self) -> int:
        """Elements that an invocation handles at once where it can: 16 to make bytes of, so that what it makes of one scale
        serves many."""
        return 16 if self.bits[1] == 8 else group_lanes(*self.bits)

    @property
    def packed(self) -> bool:
        """Whether input and output lie packed, in the order of the walk."""
        packed = packed_strides(self.walk.sizes)
        return self.walk.strides[0] == packed and self.walk.strides[-1] == packed


QUANTIZATION = (
    Rule(
        "groups",
        when=always,
        possible=lambda p, caps: p.packed,
        because="input and output lie packed in one order: whole words of both move, whatever the blocks of the scales are",
    ),
    Rule("elements", when=always, possible=always, because="any strides: one element, or one word of 4-bit ones, at a time"),
)

# -- fills


@dataclass(frozen=True)
class FillProblem:
    """Fills, as their kernels see them.

    Attributes:
        data_type: The kernel's T: the unsigned type of the output's element size, UINT32 for 64-bit elements.
        halves: Elements of T in an element of the output.
        walk: The dimensions in the order in which the output lies in memory, merged; steps of the position, the source
            and the output, all in elements.
    """

    data_type: TensorDataType
    halves: int
    walk: Coalesced

    @property
    def word_elements(self) -> int:
        """Elements of the output in a 16-byte word."""
        return 128 // (element_bits(self.data_type) * self.halves)

    @property
    def whole_words(self) -> bool:
        """Whether every row of the output is contiguous and starts on a word."""
        *outer, inner = self.walk.strides[-1]
        return inner == 1 and all(step % self.word_elements == 0 for step in outer)


FILL = (
    Rule(
        "words",
        when=always,
        possible=lambda p, caps: p.whole_words,
        because="rows of the output lie contiguous and start on 16-byte words: fewest instructions a byte written",
    ),
    Rule("elements", when=always, possible=always, because="any strides: one element at a time"),
)

# -- copies


@dataclass(frozen=True)
class CopyProblem:
    """A copy as its kernels see it: units, each an element's bits or several elements'.

    Attributes:
        bits: Of a unit.
        walk: The dimensions in the order in which the output lies in memory, merged; strides of the input, which may be
            negative, and the output in units.
        starts: The first unit of either.
    """

    bits: int
    walk: Coalesced
    starts: tuple[int, int]

    @property
    def in_rows(self) -> bool:
        """Whether the innermost dimension is contiguous in both."""
        return all(steps[-1] == 1 for steps in self.walk.strides)

    @property
    def is_block(self) -> bool:
        """Whether all of it is contiguous in both."""
        return self.in_rows and len(self.walk.sizes) == 1

    @property
    def is_even(self) -> bool:
        """Whether units of twice the size have places of their own."""
        places = (self.walk.sizes[-1], *self.starts, *(step for steps in self.walk.strides for step in steps[:-1]))
        return self.in_rows and all(place % 2 == 0 for place in places)

    @property
    def output_is_packed(self) -> bool:
        """Whether the output's rows follow each other."""
        return self.walk.strides[1] == packed_strides(self.walk.sizes)

    @property
    def row_bytes(self) -> int:
        """Of a row that is contiguous in both."""
        return self.walk.sizes[-1] * self.bits // 8

    @property
    def elementwise(self) -> ElementwiseProblem | None:
        """The problem for the kernel that moves tiles; None where that cannot serve it."""
        if self.bits > 32:
            return None
        unsigned = TensorDataType[f"UINT{self.bits}"]
        problem = ElementwiseProblem(unsigned, unsigned, self.walk)
        lanes = tile_lanes(self.bits)
        return problem if problem.turned is not None and all(start % lanes == 0 for start in self.starts) else None


_LEAST_ROWS = {8: 24, 16: 48, 32: 768}
"""Bytes of a row from which on it is moved faster in words than in units of so many bits."""


def _words_pay(bits: int, row_bytes: int, caps: Capabilities) -> bool:
    """Whether rows that start anywhere are moved faster in words than in units of so many bits."""
    if caps.is_cpu:
        return bits < 128 and row_bytes >= 16
    return bits in _LEAST_ROWS and row_bytes >= _LEAST_ROWS[bits]


_WORDS_BECAUSE = (
    "rows are contiguous but do not start on 16-byte words, and are long enough: words of the output, each shifted together "
    "from two of the input. H200, slices that start at 1: 8191 float16 a row at 3960 GB/s against 2660 by units, 61 at 3340 "
    "against 2650; 61 float32 at 3670 against 3980; 29 uint8 at 2290 against 1490, 13 at 1420 against 1480"
)
_UNITS_BECAUSE = "any strides: units as wide as sizes, strides and starts allow, 16 bytes at most"

COPY = (
    Rule(
        "block",
        when=lambda p, caps: caps.is_cpu,
        possible=lambda p, caps: p.is_block,
        because="contiguous in both, on a CPU, whose driver's own copy command is memcpy: lavapipe, 64 MiB, 4 times as fast "
        "as a kernel. H200: vkCmdCopyBuffer moves 1 GiB at 850 GB/s, and 213 where the length is odd; kernels at 4240",
    ),
    Rule(
        "tiles",
        when=lambda p, caps: not caps.is_cpu and _tiles_pay(p.elementwise),
        possible=lambda p, caps: p.elementwise is not None,
        because="the input is contiguous in another dimension than the output: tiles through shared memory read and write "
        "whole cache lines. H200, 16384x8192 transposed in float32: 3870 GB/s against 1150 by units. A CPU's caches do that "
        "by themselves",
    ),
    Rule(
        "rows",
        when=lambda p, caps: _words_pay(p.bits, p.row_bytes, caps),
        possible=lambda p, caps: p.in_rows,
        because=_WORDS_BECAUSE,
    ),
    Rule("units", when=always, possible=always, because=_UNITS_BECAUSE),
)

# -- padding and reversal


class PaddedDimension(NamedTuple):
    """A dimension of a padding, or several that are as one: the input's size, what is added, steps of input and output."""

    size: int
    start: int
    end: int
    x_step: int
    output_step: int

    @property
    def padded(self) -> bool:
        """Whether there is anything before or after the input."""
        return self.start > 0 or self.end > 0

    @property
    def output_size(self) -> int:
        """Of input and padding."""
        return self.start + self.size + self.end


@dataclass(frozen=True)
class PaddingProblem:
    """A padding as its kernel sees it.

    Attributes:
        bits: Of a unit: an element, or several.
        filled: Whether padding is one value (mode CONSTANT), or comes from the input.
        dimensions: In the order in which the output lies in memory, merged; in units.
    """

    bits: int
    filled: bool
    dimensions: tuple[PaddedDimension, ...]

    @property
    def mirrors_units(self) -> bool:
        """Whether units of a row come from elsewhere in the row."""
        return not self.filled and self.dimensions[-1].padded

    @property
    def in_rows(self) -> bool:
        """Whether rows are contiguous in both."""
        return self.dimensions[-1][-2:] == (1, 1) and not (self.mirrors_units and self.bits > 32)

    @property
    def is_even(self) -> bool:
        """Whether units of twice the size have places of their own."""
        *outer, inner = self.dimensions
        places = (*inner[:3], *(step for own in outer for step in own[-2:]))
        return self.in_rows and not self.mirrors_units and all(place % 2 == 0 for place in places)

    @property
    def output_is_packed(self) -> bool:
        """Whether the output's units follow each other."""
        steps = tuple(own.output_step for own in self.dimensions)
        return steps == packed_strides([own.output_size for own in self.dimensions])

    @property
    def row_bytes(self) -> int:
        """Of a row of the output."""
        return self.dimensions[-1].output_size * self.bits // 8


@dataclass(frozen=True)
class ReversalProblem:
    """Reversals of beginnings of subsequences as their kernel sees them.

    Attributes:
        bits: Of a unit: an element, or several.
        walk: The dimensions over which rows are counted, in the order in which the output lies in memory, merged; steps of
            the input and the output in units, and of the lengths in elements.
        axis: Which of them is the subsequences'.
        size: Units of a row: those that follow the axis where they share their length.
        steps: From one of them to the next in the input and in the output.
    """

    bits: int
    walk: Coalesced
    axis: int
    size: int
    steps: tuple[int, int]

    @property
    def in_rows(self) -> bool:
        """Whether rows are contiguous in both."""
        return self.steps == (1, 1)

    @property
    def is_even(self) -> bool:
        """Whether units of twice the size have places of their own."""
        places = (self.size, *self.walk.strides[0], *self.walk.strides[1])
        return self.in_rows and all(place % 2 == 0 for place in places)

    @property
    def output_is_packed(self) -> bool:
        """Whether the output's rows follow each other."""
        return (*self.walk.strides[1], self.steps[1]) == packed_strides((*self.walk.sizes, self.size))

    @property
    def row_bytes(self) -> int:
        """Of a row that is contiguous in both."""
        return self.size * self.bits // 8


PADDING = (
    Rule(
        "rows",
        when=lambda p, caps: p.mirrors_units or _words_pay(p.bits, p.row_bytes, caps),
        possible=lambda p, caps: p.in_rows,
        because=f"{_WORDS_BECAUSE}; images of 112x112 padded by 1, float16: 35 us against 56, float32: 59 against 57; "
        "reflected 41 against 86 and 63 against 85",
    ),
    Rule("units", when=always, possible=always, because=_UNITS_BECAUSE),
)

REVERSAL = (
    Rule(
        "rows",
        when=lambda p, caps: _words_pay(p.bits, p.row_bytes, caps),
        possible=lambda p, caps: p.in_rows,
        because=f"what follows the axis shares its length; {_WORDS_BECAUSE}",
    ),
    Rule("units", when=always, possible=always, because=_UNITS_BECAUSE),
)

# -- scatters


@dataclass(frozen=True)
class ScatterProblem:
    """A scatter as its kernels see it: updates, each of a row of elements, and places in the output that they may have.

    Attributes:
        element_bytes: Of an element.
        row_elements: Elements of an update.
        updates: Their number.
        places: Rows of the output.
        alone: Whether no two updates can have one place.
    """

    element_bytes: int
    row_elements: int
    updates: int
    places: int
    alone: bool

    @property
    def table_bytes(self) -> int:
        """Of the table that says which update each place gets."""
        return 4 * self.places

    @property
    def is_sparse(self) -> bool:
        """Whether a table that is only touched where there are updates saves more memory traffic than these cost: a read
        and a write of every entry against, for an update, two writes and a read of its entry and a read and a write of its
        row, in sectors of 32 bytes."""
        sectors = 3 * 32 + 2 * max(self.row_elements * self.element_bytes, 32)
        return sectors * self.updates < 2 * self.table_bytes


SCATTER = (
    Rule(
        "alone",
        when=always,
        possible=lambda p, caps: p.alone,
        because="one update along the indexed dimensions, so none has a place that another has: a copy of the input, over "
        "which the updates are written; no table and no temporary memory",
    ),
    Rule(
        "sparse",
        when=lambda p, caps: p.is_sparse,
        possible=lambda p, caps: p.table_bytes <= caps.storage_buffer_bytes,
        because="few updates of many places: a copy of the input, over which are written those updates that a table calls "
        "the last ones; nothing else of it is touched. Its temporary memory is 4 bytes a row of the output",
    ),
    Rule(
        "in_output",
        when=always,
        possible=lambda p, caps: p.row_elements == 1 and p.element_bytes >= 4,
        because="single elements with room for an update's position: the output itself is the table, and then in one pass "
        "becomes the input or the update; no temporary memory",
    ),
    Rule(
        "table",
        when=always,
        possible=always,
        because="a table says which update each row of the output gets, and one pass makes the output of the input and the "
        "updates: one read and one write of each byte of it. The temporary memory is 4 bytes a row of the output, of single "
        "elements of 8 or 16 bits more than the output itself",
    ),
)

# -- gathers


class ChosenDimension(NamedTuple):
    """A dimension of an input that indices are for: its size, and its stride in units."""

    size: int
    stride: int


@dataclass(frozen=True)
class GatherProblem:
    """A gather as its kernel sees it: rows of units, each of an element's bits or several elements'.

    Attributes:
        bits: Of a unit.
        rows: The dimensions of the output that each have a place of their own, in the order in which it lies in memory,
            merged; strides of the input in units, of the indices in elements, and of the output in units.
        size: Units of a row, all of them beside the place that its indices name.
        steps: From one of them to the next in the input and in the output.
        chosen: For each index of a tuple, what it is an index of.
        index_step: From an index of a tuple to the next, in elements.
    """

    bits: int
    rows: Coalesced
    size: int
    steps: tuple[int, int]
    chosen: tuple[ChosenDimension, ...]
    index_step: int

    @property
    def in_rows(self) -> bool:
        """Whether rows are contiguous in both."""
        return self.steps == (1, 1)

    @property
    def is_even(self) -> bool:
        """Whether units of twice the size have places of their own."""
        x, _, output = self.rows.strides
        places = (self.size, *x, *output, *(dimension.stride for dimension in self.chosen))
        return self.in_rows and all(place % 2 == 0 for place in places)

    @property
    def output_is_packed(self) -> bool:
        """Whether the output's rows follow each other."""
        return (*self.rows.strides[2], self.steps[1]) == packed_strides((*self.rows.sizes, self.size))

    @property
    def row_bytes(self) -> int:
        """Of a row that is contiguous in both."""
        return self.size * self.bits // 8


GATHER = (
    Rule(
        "rows",
        when=lambda p, caps: _words_pay(p.bits, p.row_bytes, caps),
        possible=lambda p, caps: p.in_rows,
        because=f"{_WORDS_BECAUSE}; rows of 773 float16: 241 us against 378",
    ),
    Rule("units", when=always, possible=always, because=_UNITS_BECAUSE),
)

# -- compaction


@dataclass(frozen=True)
class NonzeroProblem:
    """A search for what is not zero, as its kernels see it.

    Attributes:
        bits: Of an element.
        elements: Of the input.
        unit_elements: Elements of a 16-byte word where the input's rows consist of whole words, else 1.
        walk: The dimensions of the input, merged, and its strides, in elements.
    """

    bits: int
    elements: int
    unit_elements: int
    walk: Coalesced


_MOST_IN_ONE_WORKGROUP = 2**16

NONZERO = (
    Rule(
        "whole",
        when=lambda problem, caps: problem.elements <= 2**14,
        possible=lambda problem, caps: problem.elements <= _MOST_IN_ONE_WORKGROUP,
        because="so few elements that one workgroup is done before a second dispatch would start",
    ),
    Rule(
        "chunks",
        when=always,
        possible=always,
        because="each chunk of the input is a workgroup's: one read of each byte, which leaves a bit an element (a 32nd of "
        "FLOAT32 input) in temporary memory, from which a second dispatch writes the rows",
    ),
)

# -- random numbers


@dataclass(frozen=True)
class RandomProblem:
    """A generator of random words, as its kernel sees it.

    Attributes:
        elements: Of the output.
        walk: The dimensions of the output, merged, and its strides, in elements.
    """

    elements: int
    walk: Coalesced

    @property
    def whole_blocks(self) -> bool:
        """Whether every row of the output is contiguous and starts on 16 bytes, and several rows are whole blocks."""
        *outer, inner = self.walk.strides[0]
        return inner == 1 and not any(step % 4 for step in (*outer, *self.walk.sizes[-1:] * bool(outer)))


RANDOM = (
    Rule(
        "words",
        when=always,
        possible=lambda problem, caps: problem.whole_blocks,
        because="rows of the output lie contiguous and start on 16 bytes: a block is written in one access",
    ),
    Rule("elements", when=always, possible=always, because="any strides: the four words of a block one by one"),
)
