"""Lowering of ``ops.pooling``."""

from __future__ import annotations

from dmlvk.enums import ReduceFunction, TensorDataType
from dmlvk.errors import UnsupportedError
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering.registry import register
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import Dispatch, KernelVariant, Plan, input_range, output_range
from dmlvk.kernels.select import POOLING, PoolingProblem
from dmlvk.kernels.shapes import linear_grid
from dmlvk.ops.pooling import AveragePooling1, MaxPooling2
from dmlvk.tensor import TensorDesc

_Pooling = AveragePooling1 | MaxPooling2
_Five = tuple[int, int, int, int, int]

_MOST_EXTENT = 2**30
"""Positions along a dimension fit 31 bits with room for one more window."""


def _five(values: tuple[int, ...], absent: int) -> _Five:
    """Values of {N, C, H, W} as those of {N, C, D, H, W}."""
    n, c, *spatial = values
    d, h, w = spatial if len(spatial) == 3 else (absent, *spatial)
    return n, c, d, h, w


def _three(values: tuple[int, ...], absent: int) -> tuple[int, int, int]:
    d, h, w = values if len(values) == 3 else (absent, *values)
    return d, h, w


def _problem(desc: _Pooling) -> PoolingProblem:
    source, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    window = 1
    for size, full in zip(desc.window_size, source.sizes[2:], strict=True):
        window *= min(size, full)
    strides = source.effective_strides
    return PoolingProblem(
        outputs=output.element_count,
        window=window,
        apart=0 if output.sizes[-1] == 1 else desc.strides[-1] * strides[-1],
        rows_contiguous=source.sizes[1] == 1 or strides[-1] <= strides[1],
    )


def _check_extents(desc: _Pooling) -> None:
    for size, output, window, stride, start, end, dilation in zip(
        desc.tensor("input_tensor").sizes[2:],
        desc.tensor("output_tensor").sizes[2:],
        desc.window_size,
        desc.strides,
        desc.start_padding,
        desc.end_padding,
        desc.dilations,
        strict=True,
    ):
        extent = max(start + size + end, (output - 1) * stride + (window - 1) * dilation + 1)
        if extent > _MOST_EXTENT or max(stride, dilation) > _MOST_EXTENT:
            raise UnsupportedError(
                f"a padded input and windows of at most {_MOST_EXTENT} positions a dimension, got {extent} with stride "
                f"{stride} and dilation {dilation}",
                operator=desc.type.dml_name,
            )


def _plan(
    desc: _Pooling,
    kernel: str,
    constants: dict[str, int],
    channels_fastest: bool,
    workgroups: int,
    caps: Capabilities,
) -> Plan:
    _check_extents(desc)
    source, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    indices: TensorDesc | None = getattr(desc, "output_indices_tensor", None)
    tensors = [source, output, output if indices is None else indices]
    sizes, walk = _five(source.sizes, 1), _five(output.sizes, 1)
    strides = [_five(tensor.effective_strides, 0) for tensor in tensors]
    volumes = len(desc.window_size) == 3
    if all(n == c * sizes[1] for n, c, *_ in strides):
        # N continues C in every tensor, and the logical positions of elements run on too.
        sizes, walk = (1, sizes[0] * sizes[1], *sizes[2:]), (1, walk[0] * walk[1], *walk[2:])
    batch, channels, spatial = walk[:1] * (walk[0] > 1), walk[1:2], walk[3 - volumes :]
    order = (*batch, *spatial, *channels) if channels_fastest else (*batch, *channels, *spatial)
    index_words = 0 if indices is None else 2 if indices.data_type == TensorDataType.UINT64 else 1
    average = isinstance(desc, AveragePooling1)
    constants = {
        "FUNCTION": int(ReduceFunction.AVERAGE if average else ReduceFunction.MAX),
        "INDEX_WORDS": index_words,
        "INCLUDE_PADDING": int(isinstance(desc, AveragePooling1) and desc.include_padding),
        "DILATED": int(max(desc.dilations) > 1),
        "VOLUMES": int(volumes),
        "CHANNELS_FASTEST": int(channels_fastest),
        "RANK": len(order),
        **constants,
    }
    params = KERNELS[kernel].pack(
        outputs=output.element_count,
        walk_sizes=order,
        input_sizes=sizes,
        input_strides=strides[0],
        output_strides=strides[1],
        index_strides=strides[2],
        steps=_three(desc.strides, 1),
        window=_three(desc.window_size, 1),
        start_padding=_three(desc.start_padding, 0),
        end_padding=_three(desc.end_padding, 0),
        dilations=_three(desc.dilations, 1),
    )
    dispatch = Dispatch(
        KernelVariant(kernel, (("T", source.data_type.name),), tuple(constants.items())),
        bindings=(input_range(0), output_range(0), output_range(0 if indices is None else 1)),
        params=params,
        grid=linear_grid(workgroups, caps),
    )
    return Plan((dispatch,))


def _outputs(desc: _Pooling, problem: PoolingProblem, caps: Capabilities) -> Plan:
    size = min(256, caps.workgroup_invocations)
    height, width = desc.window_size[-2:]
    # Whole small windows, or pieces of a line.
    taps = min(width, 8)
    lines = min(height, 8 // taps + 1) if width == taps else 1
    constants = {"LOCAL_SIZE_X": size, "LINES": lines, "TAPS": taps}
    workgroups = -(-desc.tensor("output_tensor").element_count // size)
    return _plan(desc, "pooling", constants, not problem.rows_contiguous, workgroups, caps)


def _window(desc: _Pooling, problem: PoolingProblem, caps: Capabilities) -> Plan:
    size = 256 if caps.workgroup_invocations >= 256 else 128
    # About 8 elements an invocation: two rounds of reads, and fewer levels of the tree than elements.
    lanes = min(size, max(8, 1 << (problem.window // 8).bit_length()))
    workgroups = -(-desc.tensor("output_tensor").element_count // (size // lanes))
    return _plan(desc, "pooling_window", {"LOCAL_SIZE_X": size, "LANES": lanes}, False, workgroups, caps)


register(AveragePooling1, MaxPooling2, problem=_problem, rules=POOLING, schedules={"window": _window, "outputs": _outputs})
