"""Neighbouring outputs of one invocation, each of which reads a window of the input: what pooling and convolution share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmlvk.kernels.common.access import Access


def lane_access(sizes: Sequence[int], strides: Sequence[int], axis: int, lanes: int) -> Access:
    """The way in which lanes along a dimension reach a tensor: in groups where it is contiguous there and every group is
    whole, else element by element."""
    whole = all(
        size == 1 or (step == 1 and size % lanes == 0 if own == axis else step % lanes == 0)
        for own, (size, step) in enumerate(zip(sizes, strides, strict=True))
    )
    return Access.GROUPS if whole and sizes[axis] > 1 else Access.ELEMENTS


@dataclass(frozen=True)
class WindowLanes:
    """The outputs of an invocation in a plane of {H, W}.

    Attributes:
        lanes: The number of neighbouring outputs.
        channels: Whether they are neighbouring channels, else neighbours in a row.
        modes: The access of lanes to the input, to the output and to what else there is.
        window, stride: The window and its stride, {H, W}.
        shift: Elements of a group before the first one that is read.
    """

    lanes: int
    channels: bool
    modes: tuple[Access, ...]
    window: tuple[int, int]
    stride: tuple[int, int]
    shift: int

    @property
    def span(self) -> int:
        """Elements of an input row that neighbours in a row read."""
        return (self.lanes - 1) * self.stride[1] + self.window[1]

    @property
    def groups(self) -> int:
        """Groups of lanes that are read of an input row."""
        return self.window[1] if self.channels else -(-(self.shift + self.span) // self.lanes)

    def constants(self, rows: int, start: int, width: int, input_width: int) -> dict[str, int]:
        """The constants that say what an invocation reads of a plane.

        Args:
            rows: Rows of the output that it makes.
            start: The column of the input at which the first window of a row starts.
            width: Columns of the output.
            input_width: Columns of the input.
        """
        # The first and the last column of each group that is read of a row, over all invocations.
        step, first = 1 if self.channels else self.lanes, start - self.shift
        last = first + ((width if self.channels else -(-width // self.lanes) * self.lanes) - step) * self.stride[1]
        read = range(self.groups if self.channels or self.modes[0] is Access.GROUPS else 0)
        inside = (g for g in read if first + g * step >= 0 and last + g * step < input_width)
        return {
            "CHANNELS": int(self.channels),
            "ROWS": rows,
            "WINDOW_H": self.window[0],
            "WINDOW_W": self.window[1],
            "STRIDE_H": self.stride[0],
            "STRIDE_W": self.stride[1],
            "SHIFT": self.shift,
            "INSIDE": sum(1 << g for g in inside),
        }
