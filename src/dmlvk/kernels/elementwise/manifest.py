"""The kernels of pointwise operators and activations."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.shapes import tile_edge, tile_lanes
from dmlvk.kernels.common.terms import NUMERIC, bits, lanes


def _tiles(*types: str) -> tuple[str, ...]:
    """The variants "TILE LANES T U" of a kernel that transposes."""
    return tuple(f"{tile_edge(bits(name))} {tile_lanes(bits(name))} {name} {name}" for name in types)


def _strides(*tensors: str) -> tuple[str, ...]:
    return tuple(f"uint {tensor}_strides[9]" for tensor in tensors)


def steps(*tensors: str) -> tuple[str, ...]:
    """The parameters that say where elements of tensors lie: strides, and the step from lane to lane."""
    return (*_strides(*tensors), *(f"uint {tensor}_step" for tensor in tensors))


WORKGROUP = 128
"""The invocations of every workgroup: what the least device has. H200: 128 to 256 make no difference to whole groups; tiles
move 10 % faster than with 256."""
_UNSIGNED = ("UINT8", "UINT16", "UINT32", "UINT64")
_UNARY_TYPES = tuple(
    dict.fromkeys(
        (t, u)
        for t in ("FLOAT64", *NUMERIC)
        for u in ("FLOAT64", *NUMERIC)
        # Between integers only the source's sign tells, and a cast to another integer of its size is a copy.
        if t == u or "FLOAT" in t + u or (u in _UNSIGNED and bits(t) != bits(u))
    )
)
"""(input, output) of the unary kernel: every type to itself, every cast that is not another one's; predicates have them."""
_BINARY_TYPES = tuple(dict.fromkeys((t, u) for t in ("FLOAT64", *NUMERIC) for u in (t, "UINT8", "UINT32")))
"""(inputs, output) of the binary kernel: arithmetic and comparisons."""

# Eight dimensions, and the two halves of 64-bit elements whose bits alone matter.
ITEM_PARAMS = ("uint count", "uint elements", "uint inner_size", "uint sizes[9]", "uint divisors[18]")
_TILE_PARAMS = ("uint count", "uint sizes[9]", "uint divisors[18]", "uint rows", "uint columns")
_OPERATOR_PARAMS = ("uint param0[2]", "uint param1[2]")
_UNARY_PARAMS = ("uint scale[2]", "uint bias[2]", *_OPERATOR_PARAMS)
_BINARY_PARAMS = (*_OPERATOR_PARAMS, "float activation_param0", "float activation_param1")
_UNARY_CONSTANTS = (("LOCAL_SIZE_X", 128), ("OPERATION", 0), ("HAS_SCALE_BIAS", 0), ("RANK", 1))
_BINARY_CONSTANTS = (("LOCAL_SIZE_X", 128), ("OPERATION", 0), ("ACTIVATION", 0), ("RANK", 1))

ROWS: tuple[KernelSpec, ...] = (
    KernelSpec(
        name="elementwise_unary",
        source="elementwise_unary.comp",
        buffers=("x", "output:w"),
        params=(*ITEM_PARAMS, *steps("x", "output"), *_UNARY_PARAMS),
        constants=(*_UNARY_CONSTANTS, ("ITEMS", 1), ("RUNS", 0), ("X_MODE", 0), ("OUTPUT_MODE", 0)),
        variants=(("LANES T U", lanes(_UNARY_TYPES)),),
        selectors=("OPERATION",),
    ),
    KernelSpec(
        name="elementwise_unary_tiles",
        source="elementwise_unary_tiles.comp",
        buffers=("x", "output:w"),
        params=(
            *_TILE_PARAMS,
            *("uint x_start", "uint output_start"),
            *_strides("x", "output"),
            *("uint row_stride", "uint column_stride"),
            *_UNARY_PARAMS,
        ),
        constants=(*_UNARY_CONSTANTS, ("ROW_DIMENSION", 0), ("X_MODE", 0), ("OUTPUT_MODE", 0)),
        variants=(("TILE LANES T U", _tiles("FLOAT64", *NUMERIC)),),
        selectors=("OPERATION",),
    ),
    KernelSpec(
        name="elementwise_binary",
        source="elementwise_binary.comp",
        buffers=("a", "b", "output:w"),
        params=(*ITEM_PARAMS, *steps("a", "b", "output"), *_BINARY_PARAMS),
        constants=(*_BINARY_CONSTANTS, ("ITEMS", 1), ("RUNS", 0), ("A_MODE", 0), ("B_MODE", 0), ("OUTPUT_MODE", 0)),
        variants=(("LANES T U", lanes(_BINARY_TYPES)),),
        selectors=("OPERATION", "ACTIVATION"),
    ),
    KernelSpec(
        name="elementwise_binary_tiles",
        source="elementwise_binary_tiles.comp",
        buffers=("a", "b", "output:w"),
        params=(
            *_TILE_PARAMS,
            *_strides("a", "b", "output"),
            "uint a_steps[2]",
            "uint b_steps[2]",
            "uint row_stride",
            *_BINARY_PARAMS,
        ),
        constants=(
            *_BINARY_CONSTANTS,
            ("ROW_DIMENSION", 0),
            ("ODD", 0),
            ("A_MODE", 0),
            ("B_MODE", 0),
            ("OUTPUT_MODE", 0),
        ),
        shared=(("LEAST_INVOCATIONS", WORKGROUP),),
        variants=(("TILE LANES T U", _tiles("FLOAT64", *NUMERIC)),),
        selectors=("OPERATION", "ACTIVATION"),
    ),
)
