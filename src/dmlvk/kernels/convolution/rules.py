"""The rules of convolution."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.devices.model import DeviceModel
from dmlvk.kernels.common.cooperative_matrix import cooperative_matrix, matrices_pay
from dmlvk.kernels.common.rule import Rule, always
from dmlvk.kernels.convolution.matrix_tiles import matrix_choice
from dmlvk.kernels.matmul.rules import GEMM_VECTOR_ROWS
from dmlvk.spec.size import decided

CONVOLUTION_LANE_REGISTERS = 208
"""Most registers of elements, weights and sums: with what else an invocation needs they stay below 255, the most that it
has."""


@dataclass(frozen=True)
class ConvolutionProblem:
    """A convolution, as its rules see it.

    Attributes:
        pixels: Output positions, all batch entries counted.
        groups, group_channels, group_outputs: Groups, and the input and output channels of each.
        taps: The taps of the window.
        element_bytes: The bytes of an element.
        line, lines: The terms of a sum, as ``convolution_tiled`` counts them: input channels and taps, or all in one line.
        lean: Whether all that a round of tiles adds to its products is to load them: one tap, whole quads of pixels.
        divided: Whether positions are divided: direction BACKWARD with a stride above 1.
        forward: Whether the direction is FORWARD.
        adds: Whether a tensor is added to the outputs.
        lane_registers: The registers of an invocation of the depthwise lanes; None where they do not fit the problem.
        cooperative: Whether it is float16 that the cooperative kernel takes, if no positions are divided.
        channels_last: Whether that kernel reads the input where it is, else it has a copy made.
        reads_quads: Whether each position of the input has aligned quads of channels.
        apart: How many times as long each product takes with weights in shared memory, because neighbouring positions are
            apart in memory.
        pointwise: Whether each output position needs the input at that position alone, and positions of either are as far
            apart as their neighbours.
        planes: Whether it is float16 with a window of one tap over planes.
        line_depth: The terms of all lines of a window, each in whole words, where a cooperative kernel may have such lines,
            else 0.
        lines_bytes: The bytes of an image of such lines.
        patches_bytes: The bytes of all windows, where they lie side by side; None where they do not.
        writes_channels: Whether the channels of an output position are neighbours.
        winograd_bytes: The largest range of memory that F(4x4, 3x3) needs; None where it does not compute the problem.
        segment: Inputs along W that a run of 4 outputs reads.
        phases: Where positions are divided, the remainders that they can have, else 1.
        phase_pixels, phase_taps: The most output positions and taps of one of them.
        is_product: Whether it is nothing but a matrix product of one pixel a batch entry: one group, one tap, no padding.
    """

    pixels: int
    groups: int
    group_channels: int
    group_outputs: int
    taps: int
    element_bytes: int
    line: int
    lines: int
    lean: bool
    divided: bool
    forward: bool
    adds: bool
    lane_registers: int | None
    cooperative: bool
    reads_quads: bool
    channels_last: bool
    apart: float
    pointwise: bool
    planes: bool
    line_depth: int
    lines_bytes: int
    patches_bytes: int | None
    writes_channels: bool
    winograd_bytes: int | None
    segment: int
    phases: int
    phase_pixels: int
    phase_taps: int
    is_product: bool


class ConvolutionTile(NamedTuple):
    """A workgroup's tile of output channels by pixels, and the block of each invocation; see ``product_tile.glsl``.

    ``speed`` is what share of a processor's peak such tiles reach where there are many, as measured on an H200; ``lean`` and
    ``lean_of_8`` are the same for a lean problem, in rounds of 16 terms and more and in rounds of 8.
    """

    rows: int
    columns: int
    block_rows: int
    block_columns: int
    speed: float
    lean: float
    lean_of_8: float

    @property
    def invocations(self) -> int:
        """The invocations of a workgroup."""
        return self.rows // self.block_rows * (self.columns // self.block_columns)

    def shared_bytes(self, depth: int) -> int:
        """The shared memory of two buffers of so much of the depth, and of the largest table."""
        return 2 * depth * (self.rows + self.columns + 8) * 4 + 16 * (256 + depth)


class TileChoice(NamedTuple):
    """Tiles for a problem.

    Attributes:
        shape: The shape of a tile.
        depth: Terms of the sums that a round multiplies.
        splits: Parts that the rounds are split into, whose sums another dispatch adds.
        microseconds: The time that this would take by the device's model.
    """

    shape: ConvolutionTile
    depth: int
    splits: int
    microseconds: float

    def rounds(self, problem: ConvolutionProblem) -> int:
        """The rounds of a sum."""
        return -(-problem.line // self.depth) * problem.lines


TILE_SHAPES = (
    ConvolutionTile(128, 128, 8, 16, 0.50, 0.62, 0.70),
    ConvolutionTile(128, 64, 8, 8, 0.60, 0.63, 0.65),
    ConvolutionTile(64, 128, 8, 8, 0.57, 0.65, 0.55),
    ConvolutionTile(64, 64, 8, 4, 0.50, 0.61, 0.51),
    ConvolutionTile(32, 128, 4, 8, 0.45, 0.49, 0.41),
    ConvolutionTile(32, 64, 4, 4, 0.40, 0.46, 0.38),
    ConvolutionTile(32, 32, 4, 4, 0.33, 0.36, 0.30),
)
_CPU_TILES = TileChoice(TILE_SHAPES[-1]._replace(rows=16), 4, 1, 0.0)
"""Small, because a CPU's driver takes seconds to compile a large block's unrolled loops, and no rule chooses tiles there."""
_SHORT_ROUND = 1.2
"""The factor on the time of a term in rounds of 8, where a problem is not lean."""
_ALONE = 0.5
"""Waves that few ones of blocks of 128 sums take longer: a processor has registers for two workgroups of them, and the last
waits for memory alone."""
_FEW_WAVES = 4
_TABLED = 1.2
"""The factor on the time of a term in blocks of 64 sums and more, where a table says what is read: they lack registers."""
_MERGE_DISPATCHES = 2
"""The time of the dispatch that adds parts, in dispatches, besides that of the memory that it moves."""
_MERGE_BANDWIDTH = 0.75
"""Share of the memory's bandwidth that it has."""
_MERGED_PART_LATENCIES = 0.155
"""The time that each part after the 32nd adds to that, in latencies."""
_MOST_TOGETHER = 4
"""The most input channels that the kernel of shared weights reads together: a quad."""
_LONG_SUM = 128
_ROUND_CHANNELS = 8
"""Terms above which tiles that are full are taken whatever the model says, and the fewest channels with which that is so."""
_SHORT_SUM = 16
"""Terms below which writing is most of the time."""
_WEIGHTS_BLOCKS = (16, 2), (16, 1), (8, 1)
_SHORT_WEIGHTS_BLOCKS = (32, 1), (16, 1), (8, 1)
"""The most output channels, and the pixels, of an invocation whose weights are in shared memory; the first of which there
are enough to have ``_WEIGHTS_WAVE`` of a wave. H200 (driver 580, 2026-11-30), float32, us with (16, 2), (32, 1) and (32, 2):
3x3 over 8x3x224x224 to 64 78, 78 and 87; over 3x1080x1920 to 32 194, 194 and 220; 6x6, steps of 2, over 3x640x640 to 16 23,
24 and 23; 10 taps, steps of 5, over 160,000 to 512 42, 33 and 41."""
_WEIGHTS_WAVE = 1 / 8
_WEIGHTS_ROUND_LATENCIES = 1 / 3
_WEIGHTS_ROUNDS = 6
"""The time that reading the inputs of a few terms takes where little else runs, in latencies, and how many such times a
workgroup takes longer."""
_WEIGHTS_SPEED = 0.5
_WEIGHTS_READS = 6
"""The share of a processor's peak that very many channels reach, and the channels that reach half of that."""
_SINGLE = 0.75
"""Share of that speed which an invocation of one pixel has, where sums are not short."""
_DIVIDED = 3
"""How many times as long a product takes where positions are divided."""
_MATRIX_EDGE = 16
"""Channels and outputs of a group with which matrices pay in any case."""
_MATRIX_SPEED = 0.5
"""Share of the rate of matrices that convolutions by them reach, as measured on an H200."""
_LINES_BANDWIDTH = 0.5
"""Share of the memory's bandwidth at which lines of windows are laid out and read back: a guess that the 107 us of an H100
for the 7x7 stem of ResNet-50, batch 32, allow."""
_BESIDE = 0.5
"""What a phase beside others adds to their time, in dispatches. H200 (driver 580, 2026-11-30), float32, us so, one after the
other, and by PyTorch: 128 channels of 1000 to 64, 16 taps, steps of 8, 20, 77 and 26; 256 of 500 to 128, 11 taps, of 5,
28, 54 and 25; 4x4, steps of 2, over 4x64x128x128 to 3 77, 189 and 50, over 8x64x32x32 to 32 31, 46 and 70."""
_WINOGRAD_GROWTH = 36 / 16
"""The elements of a transformed block of 4x4 outputs, for each of them."""
_WINOGRAD_BANDWIDTH = 0.9
"""Share of the memory's bandwidth at which the transforms and products of few channels move them."""
_DEPTHWISE_OUTPUTS = 4
"""The most outputs of a group for each of which its windows are read again."""
_PATCH_CHANNELS, _PATCH_PIXELS = 4, 32
_PATCH_TERMS = 128
_MATRIX_PATCH_TERMS, _WHOLE_TERMS = (512, 2048), 64
"""The most channels, the fewest windows and the fewest terms of those that are rows of a product; the fewest and the most by
matrices, and what they are a multiple of there. H200 (driver 580, 2026-11-30), us so and by the best other rule: 3 channels,
96 filters of 4x4 over 8x224x224 in float32 20 and 16; 96 channels, 192 filters of 2x2 over 56x56 17 and 12; in float16 3
channels, 1024 filters of 14x14 over 224x224 15 and 10, 768 of 32x32 13 and 11."""
_FEW_PHASES = 4
_PATCH_PRODUCTS = 1 << 28
_PATCH_COLUMNS = 32
"""Phases beyond which, multiply-adds from which and columns of the product from which on products are patches by matrices.
H200 (driver 580, 2026-11-30), 2x2 with strides of 2x2, contiguous channels, us so and in phases: 192 of 24x24 to 192 8.2
and 6.6, 64 of 128x128 to 32 11.6 and 10.7; in planes 64 of 256x256 to 4 25 and 20."""
_MOST_PHASES = 64
"""Most remainders that have launches of their own."""


def tile_choice(problem: ConvolutionProblem, caps: Capabilities, *, split: bool) -> TileChoice:
    """The fastest tiles that the device takes, by its model: each processor has its share of the workgroups, and a round of
    one takes what its products take, or a latency, of which the multiplication of the round before hides a quarter.

    Within 15 % of what an H200 took for 1x1 layers of ResNet-50.
    """
    if caps.is_cpu:
        return _CPU_TILES._replace(splits=min(3, _CPU_TILES.rounds(problem))) if split else _CPU_TILES
    return min(possible_tiles(problem, caps, split=split), key=lambda choice: choice.microseconds)


def decided_tiles(problem: ConvolutionProblem, caps: Capabilities, *, split: bool) -> TileChoice:
    """``tile_choice`` for problems whose sizes may be symbolic too. The choice has no time."""
    if caps.is_cpu:
        return tile_choice(problem, caps, split=split)
    choice: TileChoice = decided(_timeless_choice, caps, split, _fields(problem))
    return choice


def _fields(problem: ConvolutionProblem) -> tuple[object, ...]:
    return tuple(vars(problem).values())


@functools.lru_cache(maxsize=1024)
def _timeless_choice(caps: Capabilities, split: bool, fields: tuple[Any, ...]) -> TileChoice:
    return tile_choice(ConvolutionProblem(*fields), caps, split=split)._replace(microseconds=0.0)


def _speed(problem: ConvolutionProblem, shape: ConvolutionTile, depth: int) -> float:
    if problem.lean:
        return shape.lean_of_8 if depth == 8 else shape.lean
    is_tabled = problem.lines == 1 < problem.taps and shape.block_rows * shape.block_columns >= 64
    return shape.speed / (_SHORT_ROUND if depth == 8 else 1.0) / (_TABLED if is_tabled else 1.0)


def possible_tiles(problem: ConvolutionProblem, caps: Capabilities, *, split: bool) -> Iterator[TileChoice]:
    """The tiles that a GPU can take, with the time of each by its model; ``split`` for sums in two parts or more."""
    model = caps.model
    for shape in TILE_SHAPES:
        if shape.invocations > caps.workgroup_invocations:
            continue
        tiles = -(-problem.group_outputs // shape.rows) * -(-problem.pixels // shape.columns) * problem.groups
        is_small = shape.block_rows * shape.block_columns <= 16
        for depth in (32, 16, 8) if is_small else (16, 32, 8):  # of those that seem as fast the first
            rounds = TileChoice(shape, depth, 1, 0.0).rounds(problem)
            if shape.shared_bytes(depth) > caps.shared_memory_bytes or (depth > 16 and shape.rows * shape.columns > 4096):
                continue
            busy = shape.rows * shape.columns * depth / (model.products_per_microsecond * _speed(problem, shape, depth))
            for parts in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128) if split else (1,):
                if parts > min(max(rounds // 2, 2), rounds):
                    continue
                if split and _partial_bytes(problem, parts) > caps.storage_buffer_bytes:
                    continue
                each = -(-rounds // parts)
                waves = float(-(-tiles * parts // model.processors))
                if shape.block_rows * shape.block_columns > 64 and waves <= _FEW_WAVES:
                    waves += _ALONE
                time = model.dispatch_microseconds + each * max(model.latency_microseconds + 0.75 * busy, waves * busy)
                if parts > 1:
                    moved = 2 * _partial_bytes(problem, parts) / (_MERGE_BANDWIDTH * model.bytes_per_microsecond)
                    time += _MERGE_DISPATCHES * model.dispatch_microseconds + moved
                    time += max(parts - 32, 0) * _MERGED_PART_LATENCIES * model.latency_microseconds
                yield TileChoice(shape, depth, -(-rounds // each), time)


def _divided(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.divided and problem.phases <= _MOST_PHASES


def _phases_pay(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return not caps.is_cpu and bool(decided(_phases_are_faster, caps, _fields(problem)))


@functools.lru_cache(maxsize=1024)
def _phases_are_faster(caps: Capabilities, fields: tuple[Any, ...]) -> bool:
    """Whether the phases beside each other are faster, each by matrices, tiles or with weights in shared memory."""
    problem = ConvolutionProblem(*fields)
    line = problem.line * problem.phase_taps // problem.taps if problem.lines == 1 else problem.line
    phase = dataclasses.replace(
        problem,
        pixels=problem.phases * problem.phase_pixels,
        taps=problem.phase_taps,
        line=max(line, 1),
        lines=min(problem.lines, problem.phase_taps),
        divided=False,
        phases=1,
    )
    started = (problem.phases - 1) * _BESIDE * caps.model.dispatch_microseconds
    return _microseconds(phase, caps) + started < _microseconds(problem, caps)


def _microseconds(problem: ConvolutionProblem, caps: Capabilities) -> float:
    if _cooperative_pays(problem, caps) and _cooperative(problem, caps):
        return _by_matrices(problem, problem.group_channels * problem.taps, caps)
    return _without_matrices(problem, caps)


def _without_matrices(problem: ConvolutionProblem, caps: Capabilities) -> float:
    whole = _whole_microseconds(problem, caps)
    return min(whole, tile_choice(problem, caps, split=True).microseconds) if _split(problem, caps) else whole


def _whole_microseconds(problem: ConvolutionProblem, caps: Capabilities) -> float:
    tiled = tiled_microseconds(problem, caps)
    return tiled if _fills_tiles(problem) else min(tiled, untiled_microseconds(problem, caps.model))


def _few_pixels(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.is_product and problem.pixels <= GEMM_VECTOR_ROWS


def _pointwise(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    fits = problem.group_outputs <= caps.workgroup_counts[1] and problem.pixels * problem.groups <= caps.workgroup_counts[2]
    return problem.pointwise and fits


def _depthwise(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    channels = problem.groups * problem.group_outputs
    single = problem.group_channels == 1 and problem.forward and not problem.adds
    return single and problem.segment <= 64 and channels <= caps.workgroup_counts[2]


def _depthwise_lanes(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.lane_registers is not None and problem.lane_registers <= CONVOLUTION_LANE_REGISTERS


def _direct(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.groups * problem.group_outputs <= caps.workgroup_counts[2]


def _fills_tiles(problem: ConvolutionProblem) -> bool:
    is_long = problem.line * problem.lines > _LONG_SUM and problem.group_channels >= _ROUND_CHANNELS
    return is_long and problem.group_outputs >= 16 and problem.pixels >= 32


def _cooperative(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    fits = problem.cooperative and not problem.divided
    return fits and cooperative_matrix(caps, "float16", "float32") is not None


def _cooperative_pays(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    enough = min(problem.group_channels, problem.group_outputs) >= _MATRIX_EDGE and problem.pixels >= 32
    return enough and matrices_pay(caps, "float16")


def _few_pay(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    """Whether matrices are faster though the outputs do not fill their columns, or the channels their depth."""
    few = min(problem.group_channels, problem.group_outputs) < _MATRIX_EDGE
    return few and matrices_pay(caps, "float16") and bool(decided(_few_are_faster, caps, _fields(problem)))


@functools.lru_cache(maxsize=1024)
def _few_are_faster(caps: Capabilities, fields: tuple[Any, ...]) -> bool:
    problem = ConvolutionProblem(*fields)
    model = caps.model
    depth = problem.group_channels * problem.taps
    found = matrix_choice(problem.pixels, problem.group_outputs, depth, problem.groups, caps)
    if found is None:
        return False
    image = 4 * problem.pixels * problem.groups * problem.group_channels  # read and written, as large as the output
    copied = 0.0 if problem.channels_last else model.dispatch_microseconds + image / model.bytes_per_microsecond
    return found.microseconds + copied < _without_matrices(problem, caps)


def _planes_pay(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    """Whether matrices are faster. Outputs that do not fill their rows cost little, because nothing is copied."""
    enough = problem.group_channels >= _MATRIX_EDGE and problem.group_outputs > 1 and problem.pixels >= 32
    return enough and matrices_pay(caps, "float16")


def _planes(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.planes and cooperative_matrix(caps, "float16", "float32") is not None


def _lines(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    fits = problem.line_depth > 0 and not problem.divided and problem.lines_bytes <= caps.storage_buffer_bytes
    return fits and cooperative_matrix(caps, "float16", "float32") is not None


def _lines_pay(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return matrices_pay(caps, "float16") and bool(decided(_lines_are_faster, caps, _fields(problem)))


@functools.lru_cache(maxsize=1024)
def _lines_are_faster(caps: Capabilities, fields: tuple[Any, ...]) -> bool:
    """Whether it is faster to lay out lines of windows, and to multiply those, than other rules are."""
    problem = ConvolutionProblem(*fields)
    model = caps.model
    moved = 2 * problem.lines_bytes / (_LINES_BANDWIDTH * model.bytes_per_microsecond)
    found = matrix_choice(problem.pixels, problem.group_outputs, problem.line_depth, 1, caps)
    multiplied = _by_matrices(problem, problem.line_depth, caps) if found is None else found.microseconds
    whole = _whole_microseconds(problem, caps)
    return model.dispatch_microseconds + moved + multiplied < whole


def _by_matrices(problem: ConvolutionProblem, depth: int, caps: Capabilities) -> float:
    """The time of so much of the depth at the share of the rate that most convolutions reach."""
    products = problem.pixels * problem.groups * problem.group_outputs * depth
    rate = caps.model.half_products_per_microsecond or caps.model.products_per_microsecond
    return caps.model.dispatch_microseconds + products / (_MATRIX_SPEED * rate * caps.model.processors)


def _winograd(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.winograd_bytes is not None and problem.winograd_bytes <= caps.storage_buffer_bytes


def _winograd_pays(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    if caps.is_cpu or problem.winograd_bytes is None:
        return False
    many = min(problem.group_channels, problem.group_outputs) >= 32 and problem.pixels >= 128
    return many or bool(decided(_winograd_is_faster, caps, _fields(problem)))


@functools.lru_cache(maxsize=1024)
def _winograd_is_faster(caps: Capabilities, fields: tuple[Any, ...]) -> bool:
    """Whether F(4x4, 3x3) of few channels is: the input and the output once, and the transformed ones twice.

    Within 20 % of what an H200 took for 11 convolutions of 1 to 320 channels.
    """
    problem = ConvolutionProblem(*fields)
    model = caps.model
    elements = problem.pixels * problem.groups * (problem.group_channels + problem.group_outputs)
    moved = elements * problem.element_bytes * (1 + 2 * _WINOGRAD_GROWTH)
    time = 3 * model.dispatch_microseconds + moved / (_WINOGRAD_BANDWIDTH * model.bytes_per_microsecond)
    return time < _without_matrices(problem, caps)


def _partial_bytes(problem: ConvolutionProblem, parts: int) -> int:
    """The bytes of the float32 sums of so many parts, rows of whole quads of pixels."""
    return 16 * parts * problem.groups * problem.group_outputs * -(-problem.pixels // 4)


def _split(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.line * problem.lines >= 64 and _partial_bytes(problem, 3) <= caps.storage_buffer_bytes


class WeightsBlock(NamedTuple):
    """The output channels and the pixels of an invocation of ``convolution_shared_weights``."""

    channels: int
    pixels: int


def channels_together(group_channels: int) -> int:
    """The input channels that ``convolution_shared_weights`` reads together."""
    return next(count for count in range(_MOST_TOGETHER, 0, -1) if group_channels % count == 0)


def decided_block(problem: ConvolutionProblem, caps: Capabilities) -> WeightsBlock:
    """The block for a problem whose sizes may be symbolic."""
    block: WeightsBlock = decided(_block_of_fields, caps, _fields(problem))
    return block


@functools.lru_cache(maxsize=1024)
def _block_of_fields(caps: Capabilities, fields: tuple[Any, ...]) -> WeightsBlock:
    return _weights_block(ConvolutionProblem(*fields), caps.model)


def _weights_block(problem: ConvolutionProblem, model: DeviceModel) -> WeightsBlock:
    is_short = problem.line * problem.lines < _SHORT_SUM
    for most, pixels in _SHORT_WEIGHTS_BLOCKS if is_short else _WEIGHTS_BLOCKS:
        blocks = -(-problem.group_outputs // most)
        channels = 4 * -(-problem.group_outputs // (4 * blocks))
        invocations = -(-problem.pixels // pixels) * problem.groups * -(-problem.group_outputs // channels)
        if invocations >= model.invocations(_WEIGHTS_WAVE):
            break
    return WeightsBlock(channels, pixels)


def untiled_microseconds(problem: ConvolutionProblem, model: DeviceModel) -> float:
    """The time with weights in shared memory: that of the products, or of as many reads one after the other; and of writing.

    Within 30 % of what an H200 took for 20 convolutions of 1 to 64 channels.
    """
    terms = problem.line * problem.lines
    channels, pixels = _weights_block(problem, model)
    outputs = problem.pixels * problem.groups * problem.group_outputs
    products = problem.pixels * problem.groups * channels * -(-problem.group_outputs // channels) * terms
    speed = _WEIGHTS_SPEED * channels / (channels + _WEIGHTS_READS)
    speed *= _SINGLE if pixels == 1 and terms >= _SHORT_SUM else 1
    busy = products / (model.processors * model.products_per_microsecond * speed)
    busy *= problem.apart * (_DIVIDED if problem.divided else 1)
    rounds = terms / channels_together(problem.group_channels) + _WEIGHTS_ROUNDS
    written = outputs * problem.element_bytes / model.bytes_per_microsecond
    return model.dispatch_microseconds + max(rounds * _WEIGHTS_ROUND_LATENCIES * model.latency_microseconds, busy) + written


def tiled_microseconds(problem: ConvolutionProblem, caps: Capabilities) -> float:
    """The time of the fastest tiles. Where a tile is few rounds, what comes before the first and after the last counts: as
    much as a round takes, where that finds taps. H200 (driver 580, 2026-11-30), us of 1 or 2 rounds by this and as
    measured: 3x3 over 8x3x224x224 to 64 88 and 98, over 3x1080x1920 to 32 243 and 281, over 512x512 to 64 40 and 46."""
    choice = tile_choice(problem, caps, split=False)
    return choice.microseconds * (1 if problem.lean else 1 + 1 / choice.rounds(problem))


def _tiles_pay(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return not caps.is_cpu and (_fills_tiles(problem) or bool(decided(_tiles_are_faster, caps, _fields(problem))))


@functools.lru_cache(maxsize=1024)
def _tiles_are_faster(caps: Capabilities, fields: tuple[Any, ...]) -> bool:
    problem = ConvolutionProblem(*fields)
    return tiled_microseconds(problem, caps) < untiled_microseconds(problem, caps.model)


def _split_pays(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return not caps.is_cpu and bool(decided(_parts_are_faster, caps, _fields(problem)))


@functools.lru_cache(maxsize=1024)
def _parts_are_faster(caps: Capabilities, fields: tuple[Any, ...]) -> bool:
    problem = ConvolutionProblem(*fields)
    return tile_choice(problem, caps, split=True).microseconds < _whole_microseconds(problem, caps)


def _patches(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    return problem.patches_bytes is not None and problem.patches_bytes <= caps.storage_buffer_bytes


def _patches_pay(problem: ConvolutionProblem, caps: Capabilities) -> bool:
    if caps.is_cpu:
        return True
    has_matrices = cooperative_matrix(caps, "float16", "float32") is not None and matrices_pay(caps, "float16")
    by_matrices = problem.element_bytes == 2 and has_matrices
    if problem.divided:
        if not by_matrices:
            return not problem.writes_channels
        copies = not (problem.channels_last and problem.writes_channels)
        products = problem.pixels * problem.group_outputs * problem.group_channels
        many = copies or problem.phases > _FEW_PHASES or products >= _PATCH_PRODUCTS
        return many and problem.group_outputs * problem.taps >= _PATCH_COLUMNS
    few = problem.group_channels <= _PATCH_CHANNELS and problem.pixels >= _PATCH_PIXELS
    terms = problem.group_channels * problem.taps
    least, most = _MATRIX_PATCH_TERMS
    if by_matrices:
        return few and least <= terms <= most and terms % _WHOLE_TERMS == 0
    return few and terms >= _PATCH_TERMS


CONVOLUTION = (
    Rule(
        "patches",
        when=_patches_pay,
        possible=_patches,
        because="windows side by side, as of a transformer's patches, are rows of a matrix product once they are copied; "
        "with direction BACKWARD what it makes are such windows of the output. H200 (driver 580, 2026-11-30), us so and by "
        "the best other rule, float32: 768 filters of 16x16 over 3x224x224 16 and 76, over 32 such images 248 and 818, over "
        "3x1024x1024 123 and 489; BACKWARD, 2x2 with strides of 2x2 over 8x128x128x128 to 64 305 and 483. float16: "
        "16x16 over 32x3x224x224, with contiguous channels, 38 and 46; BACKWARD, 4x4 over 96x24x24 to 96 10.5 and 14.2, 2x2 "
        "over 1024x28x28 to 512 28 and 35. lavapipe (Mesa 22.3, two cores), ms: 192 filters of 16x16 over 3x224x224 6 and "
        "27; BACKWARD, 4x4 over 32x64x64 to 3 2.5 and 43",
    ),
    Rule(
        "phases",
        when=_phases_pay,
        possible=_divided,
        because="direction BACKWARD with strides, on a GPU: a tap meets inputs at the outputs of one remainder by the "
        "stride alone. The outputs of each remainder are a convolution without strides, of the taps that they meet, by "
        "whatever rule suits it: with strides of 2x2 a quarter of the multiplications, and cooperative matrices where there "
        "are some; where the model of tile_choice() says that so many launches pay. H200, 4x4 with strides of 2x2 over "
        "8x256x64x64 to 128 channels: in float32 1040 us, without phases 4145; in float16 without phases 4110, on an H100 "
        "with them 185, with the copies of both images (163 where the output has contiguous channels), PyTorch 120",
    ),
    Rule(
        "vector",
        when=lambda problem, caps: not caps.is_cpu,
        possible=_few_pixels,
        because="one pixel of at most 4 images under a 1x1 window is a matrix times few vectors, which needs one read of "
        "the weights; see the rule of that name for Gemm",
    ),
    Rule(
        "depthwise_lanes",
        when=lambda problem, caps: not caps.is_cpu,
        possible=_depthwise_lanes,
        because="one channel in and out a group, planes without dilation, on a GPU: groups of neighbouring outputs whose "
        "windows' elements are read once and in 16-byte groups, in either layout. H200, 3x3 over 32x256x56x56 in float32 in "
        "57 us, with runs of outputs 130, PyTorch 241; channels contiguous in 70, PyTorch 71",
    ),
    Rule(
        "depthwise",
        when=lambda problem, caps: caps.is_cpu or problem.group_outputs <= _DEPTHWISE_OUTPUTS,
        possible=_depthwise,
        because="one input channel a group, FORWARD, where the rule before is not possible, and on CPUs: what windows of a "
        "run of outputs share is read once; 3x3 on 32x256x56x56 on an H200 in 0.13 ms against 0.50 with an invocation an "
        "output, on lavapipe 4 times faster, too. Not where a group has many outputs and taps, each of which would read its "
        "windows by itself: 768 filters of 16x16 over 1x1x128x1024 in 757 us there, 0.6 TFLOP/s",
    ),
    Rule(
        "planes",
        when=_planes_pay,
        possible=_planes,
        because="float16 with whole words of channels, one tap, planes in whole quads, on a device with such matrices: "
        "the product of the filter with the planes as they lie, where the rule after the next would copy the input first. "
        "H100, 512 channels of 32x28x28 to 512 in 54 us, with that copy 80; 256 of 32x14x14 to 1024 in 26.5 and 33.7",
    ),
    Rule(
        "lines",
        when=_lines_pay,
        possible=_lines,
        because="float16 of channels that do not fill words, on a device with cooperative matrices, where the model of "
        "_lines_are_faster() says that it pays: the terms of a line of the window are laid out side by side, as channels "
        "of an image whose windows have one column. H100, the 7x7 stem of ResNet-50, batch 32, in 107 us, with tiles 322, "
        "PyTorch 184",
    ),
    Rule(
        "cooperative",
        when=lambda problem, caps: _cooperative_pays(problem, caps) or _few_pay(problem, caps),
        possible=_cooperative,
        because="float16 with whole words of channels, on a device with cooperative matrices; an input whose channels are "
        "not contiguous is copied first. H200, 3x3 on 32x256x56x56 with contiguous channels in 375 us, 315 TFLOP/s, else "
        "in 452, with tiles 3390; 3x3x3 on 2x64x16x32x32 in 62 and 69, with tiles 202. Of few outputs (driver 580, "
        "2026-11-29), us so and by the best other rule: 3x3 over 128x512x512 to 3 135 and 519 (PyTorch 172), over "
        "2x320x64x64 to 4 17 and 59 (PyTorch 58), over 64x256x256 to 3 23 and 86, over 512x64x64 to 8 15 and 48, over "
        "4x256x80x80 to 12 33 and 138. Of few channels a group, contiguous (2026-11-30): 32 groups of 8 of 8x28x28, 3x3, 22 "
        "and 42 (PyTorch 16), 14 such groups 11 and 23",
    ),
    Rule(
        "winograd",
        when=_winograd_pays,
        possible=_winograd,
        because="3x3 windows of step 1 in float32: a quarter of the multiplications, for two transforms through temporary "
        "memory of up to 256 MiB; of few channels where the model of _winograd_is_faster() says that it pays. H200, 256 "
        "channels of 32x56x56 in 0.9 ms, with tiles 3.2, cuDNN 2.6; 256 of 14x14 in 20 us, split 33; 512 of 7x7, too few "
        "blocks to fill tiles, in 43, split 33. Rounding errors are those of plain "
        "sums, but an infinity or NaN reaches all outputs of its 6x6 block",
    ),
    Rule(
        "split",
        when=_split_pays,
        possible=_split,
        because="few tiles and long sums: parts of the sums fill the device, and a second dispatch adds them, where the "
        "model of tile_choice() says that it pays. H200, 1x1 on 1024x14x14 to 256 channels in 13 us with 8 parts, else 27; "
        "the gradient of 32 filters of 3x3 over 64 images of 28x28, 288 sums of 50176 terms, in 33 us with 121 parts, "
        "7273 with an invocation a pixel, PyTorch 28",
    ),
    Rule(
        "tiled",
        when=_tiles_pay,
        possible=always,
        because="enough channels and pixels to fill tiles in shared memory, on a GPU, or sums so long that tiles pay half "
        "empty; which tiles says tile_choice(). H200, "
        "1x1 on 32x256x56x56 to 64 channels in 87 us, cuDNN 115",
    ),
    Rule(
        "pointwise",
        when=lambda problem, caps: caps.is_cpu and problem.group_outputs > 1,
        possible=_pointwise,
        because="windows of one tap on a processor: the product of the filter with each image's planes, by the rule rows of "
        "Gemm. lavapipe (Mesa 22.3, two cores, 2026-11-30), ms so and by the rule after: 240 channels of 6x12x160 to 240 "
        "219 and 613, 64 of 24x320 to 64 14 and 49",
    ),
    Rule(
        "shared_weights",
        when=lambda problem, caps: (
            not caps.is_cpu and (problem.group_outputs > 1 or problem.reads_quads) and problem.pixels >= 8
        ),
        possible=_direct,
        because="few channels, outputs or terms, on a GPU: each input serves up to 32 channels, each weight, in shared "
        "memory, two pixels, with no barrier between terms. H200 (driver 580, 2026-11-30), float32, us so, by the best "
        "other rule and by PyTorch: 3x3 over 3x1080x1920 to 16, steps of 2, 30, 54 and 67; 10 taps, steps of 5, over "
        "160,000 to 512 33, 67 and 51; over 16x1080x1920 to 3 169, 282 and 733; 32 groups of 8 of 8x28x28 18, 28 and 142; "
        "over 2x16x16x64x64 to 8 49, 109 and 132",
    ),
    Rule(
        "direct",
        when=lambda problem, caps: problem.group_outputs > 1 and problem.pixels >= 8,
        possible=_direct,
        because="several output channels a group, on a processor, which reads from shared memory no faster than from "
        "any: each input value read serves 8 of them, or up to 32, without barriers",
    ),
    Rule("naive", when=always, possible=always, because="any convolution: one invocation an output"),
)
