"""THE rules: the one visible place that chooses kernels.

A family has an ordered tuple of rules. The first whose condition holds wins, and the last always holds. A rule reads
the problem and the device's capabilities and names the measurement that justifies it. ``python -m dmlvk explain``
prints each rule with yes or no; tests force every rule whose ``possible`` holds and compare it with the oracle.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmlvk.enums import OperatorType, TensorDataType
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.shapes import Coalesced, group_lanes
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


ELEMENTWISE = (
    Rule(
        "tiles",
        when=lambda p, caps: not caps.is_cpu and min(p.walk.sizes[p.turned.row], p.walk.sizes[-1]) >= 16,
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

# -- normalization


@dataclass(frozen=True)
class MeanVarianceProblem:
    """Mean-variance normalization as its kernels see it: rows of units (include/mean_variance.glsl has the terms).

    Attributes:
        rows: Sets of elements that share a mean.
        row_units: Units in a row.
        unit_elements: Elements in a unit: those of a 16-byte word, or 1.
        side_by_side: Whether neighbours in memory belong to different rows.
        kept: The kept dimensions, merged: steps of x, scale, bias, y.
        row: The reduced dimensions, merged: steps of x, y.
        side: The reduced dimensions, merged: steps of scale, bias.
    """

    rows: int
    row_units: int
    unit_elements: int
    side_by_side: bool
    kept: Coalesced
    row: Coalesced
    side: Coalesced

    def units_in_registers(self, caps: Capabilities) -> int:
        """The longest row that one workgroup holds: 64 registers an invocation, 32 where there are more than 512."""
        return min(caps.workgroup_invocations, 512) * (16 if self.unit_elements > 1 else 64)


MEAN_VARIANCE_NORMALIZATION = (
    Rule(
        "columns",
        when=always,
        possible=lambda p, caps: p.side_by_side,
        because="neighbours in memory belong to different rows: neighbouring invocations take neighbouring rows, so that "
        "reads and writes touch whole cache lines. H200, over the channels of 32x256x56x56: 85 us, 397 by rows",
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
class BatchNormalizationProblem:
    """Batch normalization as its kernel sees it.

    Attributes:
        walk: The merged dimensions; steps of x, mean, variance, scale, bias, y in elements.
        unit_elements: Elements of a 16-byte word, if x and y consist of whole words.
    """

    walk: Coalesced
    unit_elements: int


BATCH_NORMALIZATION = (
    Rule(
        "words",
        when=always,
        possible=lambda p, caps: p.unit_elements > 1,
        because="x and y are runs of whole 16-byte words: fewest instructions a byte. H200, 32x256x56x56 in float32: 3800 "
        "GB/s against 1830 by elements",
    ),
    Rule("elements", when=always, possible=always, because="any strides and sizes: one element at a time"),
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

# -- convolution and pooling


@dataclass(frozen=True)
class PoolingProblem:
    """What the pooling rules read.

    Attributes:
        outputs: Elements of the output.
        window: Elements of a window.
        apart: Elements of memory between the windows of neighbouring outputs in a row; 0 where rows have one output.
        rows_contiguous: Whether the input's W is denser in memory than its channels.
    """

    outputs: int
    window: int
    apart: int
    rows_contiguous: bool


POOLING = (
    Rule(
        "window",
        when=lambda problem, caps: (
            not caps.is_cpu
            and problem.rows_contiguous
            and (problem.apart == 0 or problem.apart >= 8)
            and (problem.window >= 128 or (problem.window >= 32 and problem.outputs <= 32768))
        ),
        possible=always,
        because="large windows at least 8 elements apart, on a GPU: an output's invocations read its window together. On an "
        "H200, 8192 planes of 7x7 took 4.9 us (outputs: 6.9), 65536 of them 17 us (12); 16384 of 16x16 24 us (49)",
    ),
    Rule(
        "outputs",
        when=always,
        possible=always,
        because="neighbours read side by side, and windows that overlap meet in the cache: 3x3 at stride 2 over "
        "32x64x112x112 took 68 us on an H200, 104 us in PyTorch",
    ),
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


@dataclass(frozen=True)
class SoftmaxProblem:
    """Softmax as its kernel sees it.

    Attributes:
        rows: Sets of elements that are normalized together.
        row_units: Units in a row.
        unit_elements: Elements in a unit: those of a 16-byte word, or 1.
        side_by_side: Whether neighbours in memory belong to different rows.
        kept, row: The kept and the reduced dimensions, merged: steps of x, y.
    """

    rows: int
    row_units: int
    unit_elements: int
    side_by_side: bool
    kept: Coalesced
    row: Coalesced

    def units_in_registers(self, caps: Capabilities) -> int:
        """The longest row that one workgroup holds: 32 registers an invocation."""
        return min(caps.workgroup_invocations, 1024) * 32 // self.unit_elements


SOFTMAX = (
    Rule(
        "columns",
        when=lambda problem, caps: problem.side_by_side and (problem.row_units <= 32 or problem.rows >= 4096),
        possible=lambda problem, caps: problem.unit_elements == 1,
        because="neighbours in memory belong to different rows: an invocation a row, so that reads touch whole cache lines; "
        "8x1000x64x64 over the channels on an H200 in 0.39 ms against 0.65 with a workgroup a row",
    ),
    Rule(
        "registers",
        when=always,
        possible=lambda problem, caps: problem.row_units <= problem.units_in_registers(caps),
        because="a row fits into the registers of one workgroup: one read and one write; 16384x8192 on an H200 at 3.6 TB/s "
        "in float32 and 4.0 in float16, 65536x1000 at 3.6 against 1.6 in tiles",
    ),
    Rule("looped", when=always, possible=always, because="rows longer than a workgroup's registers: read three times"),
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
