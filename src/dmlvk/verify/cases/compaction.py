"""Cases of ``ops.compaction``."""

from __future__ import annotations

import numpy as np

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.compaction import NonzeroCoordinates
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, special

_OTHER_TYPES = {
    "output_count_tensor": TensorDataType.UINT32,
    "output_coordinates_tensor": TensorDataType.UINT32,
}


def sparse(share: float) -> Domain:
    """A share of elements with a single bit set, anywhere but in a float's sign; the others 0, half of a float's -0."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        kind = NUMPY_TYPES[data_type]
        unsigned = np.dtype(f"u{kind.itemsize}")
        is_float = kind.kind == "f"
        bits = unsigned.type(1) << rng.integers(0, 8 * kind.itemsize - is_float, sizes).astype(unsigned)
        zeros = rng.integers(0, 1 + is_float, sizes).astype(unsigned) << unsigned.type(8 * kind.itemsize - 1)
        found: Array = np.where(rng.random(sizes) < share, bits, zeros).view(kind)
        return found

    return domain


def _case(
    name: str,
    sizes: tuple[int, ...],
    domain: Domain,
    *,
    columns: int = 0,
    layouts: bool = False,
    quick: bool = False,
) -> Case:
    """A case; its coordinates have fewer columns than dimensions where ``columns`` says so."""
    rows = int(np.prod(sizes))
    outputs = {"output_count_tensor": (1, 1), "output_coordinates_tensor": (1, rows, columns)} if columns else {}
    return Case(
        name,
        {"input_tensor": sizes},
        outputs=outputs,
        data_types=_OTHER_TYPES,
        domains={"": domain},
        layouts=layouts,
        quick=quick,
    )


CASES = (
    OperatorCases(
        NonzeroCoordinates,
        {},
        (
            _case("some of an image", (2, 3, 17, 19), sparse(0.3), layouts=True, quick=True),
            _case("whole words", (3, 5, 16), sparse(0.5), layouts=True, quick=True),
            _case("special values", (9, 41), special),
            _case("a vector", (1031,), sparse(0.5), layouts=True),
            _case("eight dimensions", (2, 1, 3, 2, 1, 5, 3, 2), sparse(0.7), layouts=True),
            _case("trailing coordinates", (1, 1, 13, 11), sparse(0.5), columns=2, layouts=True),
            _case("as many coordinates as the effective rank, and one more", (1, 1, 7, 6), sparse(0.5), columns=3),
            _case("one element", (1, 1), sparse(1.0), columns=1),
            _case("nothing", (3, 401), sparse(0.0)),
            _case("everything", (5, 1009), sparse(1.0)),
            _case("more than a tile", (3, 2731), sparse(0.1)),
            _case("more than one workgroup takes", (2, 16001), sparse(0.01)),
            _case("chunks of dense and of empty tiles", (16001, 2), sparse(0.9)),
        ),
    ),
)
