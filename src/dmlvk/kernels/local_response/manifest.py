"""The kernels of local response normalization and its gradient."""

from __future__ import annotations

from dmlvk.kernels.common.kernel import KernelSpec
from dmlvk.kernels.common.terms import FLOATS, lanes

_OF_T = (("LANES T U", lanes((name, name) for name in FLOATS)),)
_IN_FLOAT32 = (("LANES T U", lanes((name, "FLOAT32") for name in FLOATS)),)


def _kernel(
    name: str,
    *buffers: str,
    variants: tuple[tuple[str, tuple[str, ...]], ...],
    params: tuple[str, ...] = (),
    constants: tuple[tuple[str, int], ...] = (),
) -> KernelSpec:
    """A kernel over ``glsl/include/local_response.glsl``; its last buffer is written."""
    *read, written = buffers
    return KernelSpec(
        name,
        f"{name}.comp",
        buffers=(*read, f"{written}:w"),
        params=(
            *("uint count", "uint run", "uint sizes[4]", "uint divisors[8]", "uint inner_size", "uint ends[2]"),
            *("uint before", "uint after", "float factor", "float beta", "float bias"),
            *(f"uint {tensor}_strides[4]" for tensor in ("a", "b", *buffers)),
            *(f"uint {tensor}_step" for tensor in buffers),
            *(f"uint {tensor}_neighbour[2]" for tensor in buffers),
            *params,
        ),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("RANK", 1), ("PLANE", 0), ("WHOLE", 0)),
            *((f"{tensor.upper()}_MODE", 0) for tensor in buffers),
            *constants,
        ),
        variants=variants,
    )


ROWS: tuple[KernelSpec, ...] = (
    _kernel("local_response_normalization", "x", "output", variants=_OF_T),
    _kernel(
        *("local_response_gradient", "x", "gradient", "output"),
        variants=_IN_FLOAT32,
        params=("float slope",),
        constants=(("SIZE", 1),),
    ),
    _kernel("local_response_terms", "x", "gradient", "terms", variants=_IN_FLOAT32),
    _kernel("local_response_gathered", "x", "gradient", "terms", "output", variants=_IN_FLOAT32, params=("float slope",)),
)
