"""The gradient of pooling by tiles: what ``glsl/pooling_gradient_lanes.comp`` is given."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.shapes import WORD_BITS, divisors, linear_grid
from dmlvk.kernels.common.window_lanes import lane_access
from dmlvk.kernels.pooling.lowering import Walk, check_extents, rows_contiguous, walk_of
from dmlvk.kernels.pooling_gradient.rules import GRADIENT_TILE_WORDS
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.ops.pooling import MaxPooling2
from dmlvk.spec.ops.pooling_gradient import AveragePoolingGrad, MaxPoolingGrad
from dmlvk.spec.tensor import element_bits

_WORKGROUP = 128
_MOST_EDGE = 4
"""Rows of a tile, or columns, unless a window's step is larger."""
_WAVE = 0.5
"""Share of a wave that fills a device: smaller tiles rather than fewer invocations."""


@dataclass(frozen=True)
class _Side:
    """A tile along one dimension.

    Attributes:
        edge: Elements of dx: a multiple of the step.
        window, step, padding: The size, the stride and the padding of the windows.
    """

    edge: int
    window: int
    step: int
    padding: int

    @property
    def first(self) -> int:
        """The first window around the tile that starts at 0."""
        return -((self.window - 1 - self.padding) // self.step)

    @property
    def windows(self) -> int:
        """The number of windows that overlap a tile, along one dimension."""
        return (self.edge - 1 + self.padding) // self.step - self.first + 1

    @property
    def lead(self) -> int:
        """Elements from the start of the first window to the tile's."""
        return self.padding - self.first * self.step

    @property
    def extent(self) -> int:
        """Elements from the start of the first window to the end of the last."""
        return (self.windows - 1) * self.step + self.window


@dataclass(frozen=True)
class LaneTile:
    """A problem as the kernel sees it.

    Attributes:
        channels: Whether lanes are neighbouring channels.
        lanes: The number of lanes.
        rows, columns: The tile's.
        modes: The access to x, dy and dx.
        bits: The bits of an element.
        is_max: Whether x is read.
    """

    channels: bool
    lanes: int
    rows: _Side
    columns: _Side
    modes: tuple[Access, Access, Access]
    bits: int
    is_max: bool

    def _slots(self, mode: Access, unit: int, shift: int, extent: int) -> int:
        """Words that are read of a row of x or dy: elements, or those of groups of ``unit``, ``shift`` elements left out."""
        if mode is Access.ELEMENTS:
            return extent * (self.lanes if self.channels else 1)
        if self.channels:
            return extent * unit * self.bits // 32
        return ((shift + extent) * self.bits - 1) // 32 - shift * self.bits // 32 + 1

    @property
    def in_groups(self) -> bool:
        """Whether x and dx are read and written in groups."""
        return Access.ELEMENTS not in self.modes[::2]

    @property
    def words(self) -> int:
        """Registers that an invocation spends on elements, windows and results."""
        unit = self.lanes if self.channels else self.lanes // self.columns.step
        windows = self.rows.windows * self.columns.windows
        words = self.rows.windows * self._slots(self.modes[1], unit, self.columns.first % unit, self.columns.windows)
        words += windows + self.rows.edge * self.columns.edge * (self.lanes if self.channels else 1) * self.bits // 32
        if self.is_max:
            words += self.rows.extent * self._slots(
                self.modes[0], self.lanes, -self.columns.lead % self.lanes, self.columns.extent
            )
            words += windows if self.bits == 32 else 0
        return words

    @property
    def repeated(self) -> float:
        """The times that an element of x, or of an average a window, is looked at, on average over a tile."""
        looked_at = self.rows.extent * self.columns.extent if self.is_max else self.rows.windows * self.columns.windows
        return looked_at / (self.rows.edge * self.columns.edge)


def _walk(desc: AveragePoolingGrad | MaxPoolingGrad) -> Walk:
    """The forward operator's walk, with x in the place of the indices: sizes of dx and dy; strides of dx, dy and x."""
    forward = desc.forward()
    if isinstance(desc, MaxPoolingGrad) and isinstance(forward, MaxPooling2):
        return walk_of(forward.replace(output_indices_tensor=desc.input_tensor))
    return walk_of(forward)


def _edges(step: int) -> tuple[int, ...]:
    """Edges that a tile may have: multiples of the step."""
    return tuple(step * times for times in (1, 2, 4) if step * times <= _MOST_EDGE) or (step,)


def tiles(desc: AveragePoolingGrad | MaxPoolingGrad) -> list[LaneTile]:
    """Every tile that the kernel takes; none where there is depth or windows have gaps."""
    forward = desc.forward()
    gaps = any(taps > 1 and gap > 1 for taps, gap in zip(forward.window_size, forward.dilations, strict=True))
    if gaps or len(desc.window_size) == 3:
        return []
    dx = desc.tensor("output_gradient_tensor")
    bits, channels = element_bits(dx.data_type), not rows_contiguous(dx)
    walk = _walk(desc)
    of_dx, of_dy, of_x = walk.strides
    axis = 1 if channels else 4

    def mode(sizes: tuple[int, ...], strides: tuple[int, ...], unit: int) -> Access:
        return lane_access(sizes, strides, axis, unit) if unit * bits in (32, 64, 128) else Access.ELEMENTS

    def of_lanes(lanes: int) -> list[LaneTile]:
        unit = lanes if channels else lanes // desc.strides[1]
        # Where a row takes several accesses, neighbours are far apart: H200, the average's 3x3 with a step of 2 over
        # 32x256x55x55 in float32 took 75 us by 2 columns, 144 by 4; the maximum's in float16 97 by 4, 172 by 8.
        edge = _MOST_EDGE if isinstance(desc, MaxPoolingGrad) else _MOST_EDGE // 2
        most = WORD_BITS // bits if lanes * bits >= 64 else edge
        along = tuple(lanes * times for times in (1, 2, 4) if lanes * times <= most) or (lanes,)
        edges_w = _edges(desc.strides[1]) if channels else along
        modes = (
            mode(walk.input_sizes, of_x, lanes),
            mode(walk.output_sizes, of_dy, unit),
            mode(walk.input_sizes, of_dx, lanes),
        )
        if not isinstance(desc, MaxPoolingGrad):
            modes = (modes[2], *modes[1:])
        found = []
        for edges in itertools.product(_edges(desc.strides[0]), edges_w):
            rows, columns = (
                _Side(edge, window, step, padding)
                for edge, window, step, padding in zip(
                    edges, desc.window_size, desc.strides, desc.start_padding, strict=True
                )
            )
            found.append(LaneTile(channels, lanes, rows, columns, modes, bits, isinstance(desc, MaxPoolingGrad)))
        return found

    if channels:
        return [tile for words in (4, 2, 1) for tile in of_lanes(words * 32 // bits) if words == 1 or tile.in_groups]
    step = desc.strides[1]
    groups = [of_lanes(words * 32 // bits) for words in (4, 2, 1) if words * 32 // bits % step == 0]
    whole = next((form for form in groups if form[0].in_groups), None)
    return whole or of_lanes(step)


def chosen_tile(desc: AveragePoolingGrad | MaxPoolingGrad, caps: Capabilities) -> LaneTile:
    """The tile that shares most of those that fit the registers, but not so large that the device idles. (On a CPU the
    smallest: the cache serves what is read again, and longer code only takes longer to compile.)"""
    fit = [tile for tile in tiles(desc) if tile.words <= GRADIENT_TILE_WORDS]
    elements = desc.tensor("output_gradient_tensor").element_count

    def size(tile: LaneTile) -> int:
        return tile.rows.edge * tile.columns.edge * (tile.lanes if tile.channels else 1)

    filling = [tile for tile in fit if elements // size(tile) >= caps.model.invocations(_WAVE)]
    if caps.is_cpu or not filling:
        return min(fit, key=size)
    if not filling[0].is_max:  # little is repeated: H200, 3x3 with channels last in float16 took 37 us by 8 lanes, 50 by 4
        return min(filling, key=lambda tile: (-tile.lanes, tile.repeated, -size(tile)))
    return min(filling, key=lambda tile: (tile.repeated, -tile.lanes, -size(tile)))


def tiled(desc: AveragePoolingGrad | MaxPoolingGrad, caps: Capabilities) -> Plan:
    """The plan in which an invocation makes a tile of dx."""
    check_extents(desc.forward())
    walk, tile = _walk(desc), chosen_tile(desc, caps)
    rows, columns = tile.rows, tile.columns
    n, c, _, h, w = walk.input_sizes
    tiles_h, tiles_w = -(-h // rows.edge), -(-w // columns.edge)
    order = walk.order((n, -(-c // tile.lanes) if tile.channels else c, 1, tiles_h, tiles_w), tile.channels)
    size = min(_WORKGROUP, caps.workgroup_invocations)
    constants = {
        "LOCAL_SIZE_X": size,
        "FUNCTION": int(ReduceFunction.MAX if tile.is_max else ReduceFunction.AVERAGE),
        "CHANNELS": int(tile.channels),
        "LANES": tile.lanes,
        "ROWS": rows.edge,
        "COLUMNS": columns.edge,
        "WINDOW_H": rows.window,
        "WINDOW_W": columns.window,
        "STRIDE_H": rows.step,
        "STRIDE_W": columns.step,
        "WINDOWS_H": rows.windows,
        "WINDOWS_W": columns.windows,
        "FIRST_H": rows.first % 2**32,
        "FIRST_W": columns.first % 2**32,
        "LEAD_H": rows.lead % 2**32,
        "LEAD_W": columns.lead % 2**32,
        "COLUMNS_WHOLE": int(w % columns.edge == 0),
        "INPUT_MODE": int(tile.modes[0]),
        "GRADIENT_MODE": int(tile.modes[1]),
        "OUTPUT_MODE": int(tile.modes[2]),
        "RANK": len(order),
    }
    plane = (0, 1, 3, 4)  # of {N, C, D, H, W}
    of_dx, of_dy, of_x = (tuple(strides[axis] for axis in plane) for strides in walk.strides)
    dispatch = make_dispatch(
        "pooling_gradient_lanes",
        (input_range(0), input_range(int(tile.is_max)), output_range()),
        linear_grid(-(-math.prod(order) // size), caps),
        variant={"T": desc.tensor("output_gradient_tensor").data_type.name},
        constants=constants,
        count=math.prod(order),
        sizes=order,
        divisors=divisors(order),
        channels=c,
        height=h,
        width=w,
        windows=walk.output_sizes[3:],
        end_padding=desc.end_padding,
        include_padding=int(isinstance(desc, AveragePoolingGrad) and desc.include_padding),
        input_strides=of_x,
        gradient_strides=of_dy,
        output_strides=of_dx,
    )
    return Plan((dispatch,))
