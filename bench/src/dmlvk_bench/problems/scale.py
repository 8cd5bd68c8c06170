"""The scales of the measured problems: for a GPU, for a CPU implementation of Vulkan, for a quick check."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

Sizes = tuple[int, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """The sizes to which the declared ones, which are those of a large GPU, are cut down.

    Attributes:
        name: "full", "medium" or "quick".
        elements: The most elements of a tensor; 0 leaves the declared sizes as they are.
        operations: The most additions and multiplications of a product.
    """

    name: str
    elements: int
    operations: int

    def fit(
        self,
        sizes: Sizes,
        *free: int,
        elements: Callable[[Sizes], int] = math.prod,
        operations: Callable[[Sizes], int] | None = None,
        least: int = 1,
    ) -> Sizes:
        """Sizes for which the scale allows what they take.

        Args:
            sizes: The declared ones.
            free: The dimensions that may become smaller; the largest of them is halved first, so that what chooses a kernel,
                which is how long rows are and what divides them, stays.
            elements: The elements of the largest tensor for given sizes, where it is not made of these sizes.
            operations: Additions and multiplications that they take, where that may be too many.
            least: The least that a free dimension gets.
        """
        found = list(sizes)
        while self.elements and (
            elements(tuple(found)) > self.elements or (operations is not None and operations(tuple(found)) > self.operations)
        ):
            axis = max(free, key=lambda axis: found[axis])
            if found[axis] < 2 * least:
                break
            found[axis] //= 2
        return tuple(found)

    def pick(self, full: T, medium: T, quick: T) -> T:
        """The one of three values that is for this scale, where halving does not do."""
        return {"full": full, "medium": medium, "quick": quick}[self.name]


FULL: Final = Scale("full", 0, 0)
"""Working sets several times as large as a GPU's caches; the names that the results on record use."""
MEDIUM: Final = Scale("medium", 1 << 23, 1 << 29)
"""A fraction of a second each on two cores."""
QUICK: Final = Scale("quick", 1 << 17, 4 * 10**7)
"""Small enough for the float64 oracle."""
SCALES: Final = (FULL, MEDIUM, QUICK)
