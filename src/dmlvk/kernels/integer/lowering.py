"""Plans for integer and quantized products."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.cooperative_tile import CooperativeTile, cooperative_constants
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, POSITIONS
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Resource, Source, aligned, input_range, output_range
from dmlvk.kernels.common.registry import Schedule, register
from dmlvk.kernels.common.shapes import WORD_BITS, check_rounds, linear_grid, most_invocations, power_of_two
from dmlvk.kernels.integer.rules import (
    DEPTHWISE_PIXELS,
    INTEGER,
    NAIVE_BLOCK,
    PACKED_CHANNELS,
    PACKED_LINES,
    IntegerProblem,
    byte_matrix,
)
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.matmul.tiles import ProductTile
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits, packed_strides

_EXACT_TERMS = 33025
"""Products of two differences of 8-bit integers, at most 255 * 255, that 32 bits are sure to hold the sum of."""
_WORD = WORD_BITS // 8
"""Channels of a packed word."""
_TILED_WORDS = 2
_CPU_TILED_WORDS = 4
"""The words of a line that the tiled kernel stages at a time, the second on a CPU."""

Pair = tuple[int, int]
Six = tuple[int, int, int, int, int, int]


@dataclass(frozen=True)
class _Geometry:
    """A product in the shaders' terms; see ``glsl/include/integer.glsl``."""

    rows: int
    columns: int
    channels: int
    inner_groups: int
    output_sizes: Pair
    input_sizes: Pair
    window: Pair
    steps: Pair
    dilations: Pair
    starts: Pair
    x_strides: Six
    w_strides: Six
    y_strides: Six
    x_scale_stride: int
    x_zero_point_stride: int
    w_scale_strides: Pair
    w_zero_point_strides: Pair
    output_scale_stride: int
    output_zero_point_stride: int
    bias_strides: tuple[int, int, int, int]

    @property
    def is_plain(self) -> bool:
        """Whether rows are the lines of x: one tap that meets every position of the input."""
        one = self.window == self.steps == (1, 1)
        return one and self.starts == (0, 0) and self.output_sizes == self.input_sizes


def _slots(desc: OperatorDesc) -> dict[str, tuple[int, TensorDesc]]:
    """The present inputs in the shaders' terms: slot and tensor by buffer name."""
    names = {"a": "x", "input": "x", "b": "w", "filter": "w"}
    found = {}
    for index, slot in enumerate(desc.input_slots()):
        if slot.tensor is not None:
            operand, _, part = slot.field.name.removesuffix("tensor").rstrip("_").partition("_")
            name = names.get(operand, operand)
            found[f"{name}_{part}" if part else name] = (index, slot.tensor)
    return found


def _four(tensor: TensorDesc) -> tuple[int, int, int, int]:
    """Strides with leading dimensions of size 1 before them; 0 where a size is 1."""
    steps = tuple(step if size > 1 else 0 for size, step in zip(tensor.sizes, tensor.effective_strides, strict=True))
    outer, inner, row, column = (0,) * (4 - len(steps)) + steps
    return (outer, inner, row, column)


def _parameter_strides(tensors: dict[str, TensorDesc]) -> dict[str, tuple[int, int, int, int]]:
    """The strides of scales, zero points and the bias; 0 for absent ones."""
    names = ("x_scale", "x_zero_point", "w_scale", "w_zero_point", "output_scale", "output_zero_point", "bias")
    return {name: _four(tensors[name]) if name in tensors else (0, 0, 0, 0) for name in names}


def _matrices(desc: OperatorDesc, tensors: dict[str, TensorDesc]) -> _Geometry:
    x, w, y = (_four(tensor) for tensor in (tensors["x"], tensors["w"], desc.tensor("output_tensor")))
    _, inner, rows, columns = (1,) * (4 - desc.tensor("output_tensor").dimension_count) + desc.tensor("output_tensor").sizes
    steps = _parameter_strides(tensors)
    return _Geometry(
        rows=rows,
        columns=columns,
        channels=tensors["x"].sizes[-1],
        inner_groups=inner,
        output_sizes=(1, rows),
        input_sizes=(1, rows),
        window=(1, 1),
        steps=(1, 1),
        dilations=(1, 1),
        starts=(0, 0),
        x_strides=(x[0], x[1], 0, x[3], 0, x[2]),
        w_strides=(w[0], w[1], w[3], w[2], 0, 0),
        y_strides=(y[0], y[1], 0, y[3], 0, y[2]),
        x_scale_stride=steps["x_scale"][2],
        x_zero_point_stride=steps["x_zero_point"][2],
        w_scale_strides=(0, steps["w_scale"][3]),
        w_zero_point_strides=(0, steps["w_zero_point"][3]),
        output_scale_stride=steps["output_scale"][2],
        output_zero_point_stride=steps["output_zero_point"][2],
        bias_strides=steps["bias"],
    )


def _spatial(values: tuple[int, ...], fill: int) -> Pair:
    """One value for H and one for W: ``fill`` for H where the desc has W alone."""
    height, width = (fill,) * (2 - len(values)) + values
    return (height, width)


def _images(desc: ops.ConvolutionInteger | ops.QuantizedLinearConvolution, tensors: dict[str, TensorDesc]) -> _Geometry:
    x, w, y = tensors["x"], tensors["w"], desc.tensor("output_tensor")
    if any(sum(sizes) >= 2**31 for sizes in zip(x.sizes[2:], desc.start_padding, desc.end_padding, strict=True)):
        raise POSITIONS.error("positions in the padded input must stay below 2**31", desc.dml_name)
    group_channels, group_columns = w.sizes[1], w.sizes[0] // desc.group_count
    x_steps, w_steps, y_steps = (tensor.effective_strides for tensor in (x, w, y))
    several = int(desc.group_count > 1)  # one group is not stepped by, and its step need not fit 32 bits
    output_sizes = _spatial(y.sizes[2:], 1)

    def by_channel(name: str) -> int:
        """The step from one output channel to the next."""
        tensor = tensors.get(name)
        return 0 if tensor is None or tensor.element_count == 1 else tensor.effective_strides[1]

    scale, zero_point, bias = (by_channel(name) for name in ("w_scale", "w_zero_point", "bias"))
    return _Geometry(
        rows=x.sizes[0] * math.prod(output_sizes),
        columns=group_columns,
        channels=group_channels,
        inner_groups=desc.group_count,
        output_sizes=output_sizes,
        input_sizes=_spatial(x.sizes[2:], 1),
        window=_spatial(w.sizes[2:], 1),
        steps=_spatial(desc.strides, 1),
        dilations=_spatial(desc.dilations, 1),
        starts=_spatial(desc.start_padding, 0),
        x_strides=(0, several * group_channels * x_steps[1], x_steps[0], x_steps[1], *_spatial(x_steps[2:], 0)),
        w_strides=(0, several * group_columns * w_steps[0], w_steps[0], w_steps[1], *_spatial(w_steps[2:], 0)),
        y_strides=(0, several * group_columns * y_steps[1], y_steps[0], y_steps[1], *_spatial(y_steps[2:], 0)),
        x_scale_stride=0,
        x_zero_point_stride=0,
        w_scale_strides=(group_columns * scale, scale),
        w_zero_point_strides=(group_columns * zero_point, zero_point),
        output_scale_stride=0,
        output_zero_point_stride=0,
        bias_strides=(0, group_columns * bias, 0, bias),
    )


def _geometry(desc: OperatorDesc) -> _Geometry:
    tensors = {name: tensor for name, (_, tensor) in _slots(desc).items()}
    if isinstance(desc, ops.ConvolutionInteger | ops.QuantizedLinearConvolution):
        return _images(desc, tensors)
    return _matrices(desc, tensors)


def _problem(desc: OperatorDesc) -> IntegerProblem:
    geometry = _geometry(desc)
    x = _slots(desc)["x"][1]
    taps = math.prod(geometry.window)
    to_float = isinstance(desc, ops.MatrixMultiplyIntegerToFloat)
    narrow = element_bits(x.data_type) == 8
    segment = 0
    if isinstance(desc, ops.ConvolutionInteger | ops.QuantizedLinearConvolution):
        segment = (DEPTHWISE_PIXELS - 1) * geometry.steps[1] + (geometry.window[1] - 1) * geometry.dilations[1] + 1
    return IntegerProblem(
        rows=geometry.rows,
        columns=geometry.columns,
        channels=geometry.channels,
        taps=taps,
        groups=math.prod(desc.tensor("output_tensor").sizes) // (geometry.rows * geometry.columns),
        input_lines=geometry.rows // math.prod(geometry.output_sizes) * math.prod(geometry.input_sizes),
        exact=narrow and (not to_float or geometry.channels <= _EXACT_TERMS),
        plain=geometry.is_plain,
        segment=segment,
    )


def _is_signed(data_type: TensorDataType) -> int:
    return int(not data_type.name.startswith("UINT"))


def _constants(desc: OperatorDesc) -> dict[str, int]:
    """The specialisation constants of ``glsl/include/integer.glsl``."""
    slots, geometry = _slots(desc), _geometry(desc)
    by_row = geometry.x_scale_stride or geometry.output_scale_stride or geometry.output_zero_point_stride
    return {
        "X_SIGNED": _is_signed(slots["x"][1].data_type),
        "W_SIGNED": _is_signed(slots["w"][1].data_type),
        "Y_SIGNED": _is_signed(desc.tensor("output_tensor").data_type),
        "HAS_X_ZERO_POINT": int("x_zero_point" in slots),
        "HAS_W_ZERO_POINT": int("w_zero_point" in slots),
        "HAS_OUTPUT_ZERO_POINT": int("output_zero_point" in slots),
        "HAS_BIAS": int("bias" in slots),
        "ROW_PARAMETERS": int(by_row != 0),
    }


def _dispatch(
    kernel: str,
    desc: OperatorDesc,
    problem: IntegerProblem,
    constants: dict[str, int],
    grid: tuple[int, int, int],
    params: dict[str, int],
    *,
    variant: Mapping[str, int] | None = None,
    places: dict[str, Range] | None = None,
    subgroup_size: int = 0,
) -> Dispatch:
    """A kernel that finishes sums: with ``params`` and ``variant`` beyond what all of them have, and ``places`` of buffers
    that are no tensors of the desc."""
    slots = _slots(desc)
    output = desc.tensor("output_tensor").data_type
    of_bytes = output in (TensorDataType.INT8, TensorDataType.UINT8)
    types = {
        "T": "UINT8" if of_bytes else output.name,
        "U": f"UINT{element_bits(slots['x'][1].data_type)}",
        "SUM": "int" if problem.exact else "float",
    }
    found = {name: input_range(index) for name, (index, _) in slots.items()} | {"y": output_range()} | (places or {})
    return make_dispatch(
        kernel,
        tuple(found.get(name, found["x"]) for name in KERNELS[kernel].buffer_names),
        grid,
        subgroup_size,
        variant={**types, **(variant or {})},
        constants=constants | _constants(desc),
        **vars(_geometry(desc)),
        **params,
    )


def _rows_inner(geometry: _Geometry) -> int:
    """Whether neighbouring rows, not columns, of the output are neighbours in memory: channels first."""
    return int(geometry.columns == 1 or 0 < geometry.y_strides[5] < geometry.y_strides[3])


def _naive(desc: OperatorDesc, problem: IntegerProblem, caps: Capabilities) -> Plan:
    blocks = -(-problem.channels // NAIVE_BLOCK)
    check_rounds(problem.taps * (problem.channels + blocks + 2), caps, desc.dml_name)
    local = min(128, caps.workgroup_invocations)
    count = problem.groups * problem.rows * problem.columns
    constants = {"LOCAL_SIZE_X": local, "ROWS_INNER": _rows_inner(_geometry(desc))}
    grid = linear_grid(-(-count // local), caps)
    return Plan((_dispatch("integer_naive", desc, problem, constants, grid, {"count": count}),))


def _depthwise(desc: OperatorDesc, problem: IntegerProblem, caps: Capabilities) -> Plan:
    geometry = _geometry(desc)
    local = min(128, caps.workgroup_invocations)
    width = geometry.output_sizes[1]
    row_runs = -(-width // DEPTHWISE_PIXELS)
    runs = geometry.rows // width * row_runs
    channels = problem.groups * problem.columns
    by_group = geometry.y_strides[1] if problem.columns == 1 else geometry.y_strides[3]
    constants = {
        "LOCAL_SIZE_X": local,
        "ROWS_INNER": int(channels == 1 or 0 < geometry.y_strides[5] < by_group),
        "PIXELS": DEPTHWISE_PIXELS,
        "WINDOW_H": geometry.window[0],
        "WINDOW_W": geometry.window[1],
        "STRIDE_W": geometry.steps[1],
        "DILATION_W": geometry.dilations[1],
    }
    params = {"row_runs": row_runs, "runs": runs, "channels_of_all": channels, "count": runs * channels}
    grid = linear_grid(-(-runs * channels // local), caps)
    return Plan((_dispatch("integer_depthwise", desc, problem, constants, grid, params),))


# -- packed operands


@dataclass(frozen=True)
class _Packed:
    """Operands made ready for the kernels that multiply packed ones.

    Attributes:
        launches: The launches that pack the operands at every execution.
        initialize: The launches that pack the filter once.
        temporary_bytes, persistent_bytes: The memory of both.
        places: The ranges by buffer name.
        constants, params: Their part of such kernels' constants and parameters.
    """

    launches: tuple[Dispatch, ...]
    initialize: tuple[Dispatch, ...]
    temporary_bytes: int
    persistent_bytes: int
    places: dict[str, Range]
    constants: dict[str, int]
    params: dict[str, int]

    def plan(self, product: Dispatch) -> Plan:
        """The plan of a product and of all that has to come before it."""
        return Plan(
            (*self.launches, product),
            temporary_bytes=self.temporary_bytes,
            persistent_bytes=self.persistent_bytes,
            initialize=self.initialize,
        )


def _is_packed(strides: Six, sizes: tuple[int, int, int, int, int], channels: int) -> bool:
    """Whether lines of so many channels follow each other without gaps; sizes are those of all coordinates of a line."""
    lines = (*strides[:3], *strides[4:])
    found = (step for size, step in zip(sizes, lines, strict=True) if size > 1)
    wanted = (channels * step for size, step in zip(sizes, packed_strides(sizes), strict=True) if size > 1)
    return strides[3] == 1 and tuple(found) == tuple(wanted)


def _packing(desc: OperatorDesc, problem: IntegerProblem, caps: Capabilities, multiple: int) -> _Packed:
    """Packs both operands, lines filled up to a multiple of so many channels, but for those that lie in memory as if they
    were. A filter that is OWNED_BY_DML, and whose zero point is too if there is one, is packed at initialisation."""
    slots, geometry = _slots(desc), _geometry(desc)
    channels = problem.padded_channels(multiple)
    tiles = -(-channels // PACKED_CHANNELS)
    temporary, persistent = Resource(Source.TEMPORARY), Resource(Source.PERSISTENT)
    launches: list[Dispatch] = []
    initialize: list[Dispatch] = []
    places: dict[str, Range] = {}
    signed = {name: _is_signed(slots[name][1].data_type) for name in ("x", "w")}
    # An operand's sums are what the other one's zero points are multiplied with.
    needed = {name: int(not signed[other] or f"{other}_zero_point" in slots) for name, other in (("x", "w"), ("w", "x"))}
    for name in ("x", "w"):
        fills = name == "w" and "w_zero_point" in slots
        read = ("w", "w_zero_point") if fills else (name,)
        once = name == "w" and all(slots[part][1].owned_by_dml for part in read)
        memory = persistent if once else temporary
        lines = problem.input_lines if name == "x" else problem.filter_lines
        strides = geometry.x_strides if name == "x" else geometry.w_strides
        inner_sizes = geometry.input_sizes if name == "x" else geometry.window
        groups = (problem.groups // geometry.inner_groups, geometry.inner_groups)
        coordinates = (*groups, lines // math.prod(inner_sizes), *inner_sizes)
        source = input_range(slots[name][0])
        if signed[name] and not needed[name] and channels == problem.channels and _is_packed(strides, coordinates, channels):
            places[name] = places[f"{name}_sums"] = source
            continue
        places[name] = memory.take(problem.groups * lines * channels)
        places[f"{name}_sums"] = memory.take(4 * problem.groups * tiles * lines) if needed[name] else places[name]
        constants = {
            "LOCAL_SIZE_X": min(256, most_invocations(caps)),
            "FLIP": 1 - signed[name],
            "ALONG_CHANNELS": int(strides[3] <= max(strides[5], 1)),
            "HAS_ZERO_POINT": int(fills),
            "HAS_SUMS": needed[name],
        }
        launch = make_dispatch(
            "integer_pack",
            (source, input_range(slots[read[-1]][0]), places[name], places[f"{name}_sums"]),
            (-(-lines // PACKED_LINES), tiles, problem.groups),
            variant={"U": "UINT8"},
            constants=constants,
            channels=problem.channels,
            words=channels // _WORD,
            lines=lines,
            inner_groups=geometry.inner_groups,
            sizes=inner_sizes,
            strides=strides,
            zero_point_strides=geometry.w_zero_point_strides,
        )
        (initialize if once else launches).append(launch)
    return _Packed(
        tuple(launches),
        tuple(initialize),
        aligned(temporary.end),
        aligned(persistent.end),
        places,
        {"HAS_X_SUMS": needed["x"], "HAS_W_SUMS": needed["w"], "ROWS_INNER": _rows_inner(geometry)},
        {"words": channels // _WORD, "input_lines": problem.input_lines, "tiles": tiles},
    )


_TILE_SHAPES = (ProductTile(16, 8, 8, 8), ProductTile(8, 8, 8, 8), ProductTile(8, 8, 4, 4))
"""Largest first. In each the words of an operand's tile are a multiple of the invocations."""
_CPU_TILE_SHAPE = ProductTile(8, 4, 2, 2)
"""Small, because a CPU's driver takes seconds to compile a large block's unrolled loops."""


def _tile_shape(rows: int, columns: int, groups: int, caps: Capabilities) -> ProductTile:
    """The largest shape that still gives the device enough workgroups, else the smallest."""
    if caps.is_cpu:
        return _CPU_TILE_SHAPE
    for shape in _TILE_SHAPES[:-1]:
        fits = shape.local_x * shape.local_y <= caps.workgroup_invocations
        if fits and shape.tiles(rows, columns) * groups >= caps.model.workgroups(1):
            return shape
    return _TILE_SHAPES[-1]


def _tiled(desc: OperatorDesc, problem: IntegerProblem, caps: Capabilities) -> Plan:
    words = _CPU_TILED_WORDS if caps.is_cpu else _TILED_WORDS
    packed = _packing(desc, problem, caps, words * _WORD)
    inner, outer = (problem.columns, problem.rows)[:: -1 if packed.constants["ROWS_INNER"] else 1]
    shape = _tile_shape(outer, inner, problem.groups, caps)
    block = ("THREAD_C", "THREAD_R")[:: -1 if packed.constants["ROWS_INNER"] else 1]
    constants = {
        "LOCAL_SIZE_X": shape.local_x,
        "LOCAL_SIZE_Y": shape.local_y,
        **dict(zip(block, (shape.block_columns, shape.block_rows), strict=True)),
        "WORDS": words,
    }
    grid = (-(-inner // shape.columns), -(-outer // shape.rows), problem.groups)
    return packed.plan(_multiplying("integer_tiled", desc, problem, caps, packed, constants, grid))


def _multiplying(
    kernel: str,
    desc: OperatorDesc,
    problem: IntegerProblem,
    caps: Capabilities,
    packed: _Packed,
    constants: dict[str, int],
    grid: tuple[int, int, int],
) -> Dispatch:
    """A kernel of packed operands, with the device's products of four pairs of bytes where it has them."""
    has_dot = "integer_dot_product" in caps.features
    return _dispatch(
        kernel if has_dot else f"{kernel}_plain",
        desc,
        problem,
        constants | packed.constants,
        grid,
        packed.params,
        variant={"DOT": has_dot},
        places=packed.places,
    )


def _vector(desc: OperatorDesc, problem: IntegerProblem, caps: Capabilities) -> Plan:
    packed = _packing(desc, problem, caps, _WORD)
    local = min(128, most_invocations(caps))
    lanes = min(power_of_two(max(packed.params["words"] // 2, 1)), 32)
    constants = {"LOCAL_SIZE_X": local, "LANES": lanes, "ROWS": problem.rows}
    x, y, _ = linear_grid(-(-problem.columns // (local // lanes)), caps)
    return packed.plan(_multiplying("integer_vector", desc, problem, caps, packed, constants, (x, y, problem.groups)))


class _ByteTile(CooperativeTile):
    """A tile of factors of a byte, with three numbers for each row and column beside it."""

    __slots__ = ()

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a GPU's tile: lines padded by a word. Sums of 16 rows of each block, which later lie there,
        take less."""
        lines = self.rows + self.columns
        return self.buffers * lines * (self.depth + _WORD) + 3 * 4 * lines

    def fits(self, caps: Capabilities) -> bool:
        """Whether the device has the invocations and the shared memory."""
        few = self.subgroups * caps.subgroup_size <= caps.workgroup_invocations
        return few and self.shared_bytes <= caps.shared_memory_bytes


_COOPERATIVE_TILES = (
    _ByteTile(128, 128, 128, 64, 64),
    _ByteTile(128, 128, 64, 64, 64, 2),
    _ByteTile(64, 128, 128, 32, 32),
    _ByteTile(64, 64, 128, 32, 32),
    _ByteTile(64, 64, 64, 32, 32),
)
"""Largest first. On an H200, TOP/s: at 4096^3 643 with the first, 496 with the second, 517 with 256 x 128 x 96; at 1024^3
207 with the third, 196 with the fourth, 151 with the first."""
_CPU_COOPERATIVE_TILE = _ByteTile(32, 32, 32, 16, 16)


def _cooperative_tile(problem: IntegerProblem, caps: Capabilities) -> _ByteTile:
    """The largest that fits and gives the device enough workgroups, else the smallest: in its deepest form that does not
    fill up lines by more than a quarter."""
    if caps.is_cpu:
        return _CPU_COOPERATIVE_TILE
    least = min(problem.padded_channels(tile.depth) for tile in _COOPERATIVE_TILES)
    fitting = [
        tile for tile in _COOPERATIVE_TILES if tile.fits(caps) and problem.padded_channels(tile.depth) * 4 <= least * 5
    ]
    for tile in fitting:
        if tile.tiles(problem.rows, problem.columns) * problem.groups >= caps.model.workgroups(1):
            return tile
    return next(tile for tile in fitting if (tile.rows, tile.columns) == (fitting[-1].rows, fitting[-1].columns))


def _cooperative(desc: OperatorDesc, problem: IntegerProblem, caps: Capabilities) -> Plan:
    matrix, tile, geometry = byte_matrix(caps), _cooperative_tile(problem, caps), _geometry(desc)
    assert matrix is not None, "the rule has shown it to be there"
    packed = _packing(desc, problem, caps, tile.depth)
    steps = geometry.y_strides
    constants = {
        **cooperative_constants(tile, matrix, caps),
        "A_ALONG_K": 1,
        "B_ALONG_K": 1,
        "PLAIN": int(geometry.is_plain),
        "VECTOR_Y": int(steps[3] == 1 and not any(step % 4 for step in (*steps[:3], *steps[4:]))),
    }
    return packed.plan(
        _dispatch(
            "integer_cooperative",
            desc,
            problem,
            constants | packed.constants,
            (tile.tiles(problem.rows, problem.columns), 1, problem.groups),
            packed.params,
            places=packed.places,
            subgroup_size=caps.subgroup_size,
        )
    )


_SCHEDULES: dict[str, Schedule] = {
    "depthwise": _depthwise,
    "vector": _vector,
    "cooperative": _cooperative,
    "tiled": _tiled,
    "naive": _naive,
}
register(
    ops.MatrixMultiplyInteger,
    ops.MatrixMultiplyIntegerToFloat,
    ops.QuantizedLinearMatrixMultiply,
    problem=_problem,
    rules=INTEGER,
    schedules=_SCHEDULES,
    limitations=(LOOP_ROUNDS,),
)
register(
    ops.ConvolutionInteger,
    ops.QuantizedLinearConvolution,
    problem=_problem,
    rules=INTEGER,
    schedules=_SCHEDULES,
    limitations=(LOOP_ROUNDS, POSITIONS),
)
