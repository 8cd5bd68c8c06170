"""What four devices are given for the benchmark's problems and for ladders of sizes, as text: ``data/choices.txt``.

``python tests/choices.py`` writes the file again; its difference shows what a change of a rule does on each device.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from dmlvk.devices.capabilities import FEATURE_NAMES, SUBGROUPS, Capabilities, CooperativeMatrix
from dmlvk.devices.model import CPU, GENERIC_GPU, H200, PHONE
from dmlvk.kernels.common.plan import BlockCopy, Launch
from dmlvk.kernels.common.registry import lowering_of
from dmlvk.kernels.common.rule import Rule, choose
from dmlvk.kernels.convolution.rules import TileChoice, possible_tiles, untiled_microseconds
from dmlvk.kernels.lowering import explain, lower, newest, possible_rules
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, RecurrentNetworkDirection, ReduceFunction, TensorDataType, TensorFlags
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.ops.cached_attention import CachedAttention
from dmlvk.spec.ops.root_mean_square import RootMeanSquare
from dmlvk.spec.ops.sample_token import CONTROL_WORDS, SampleToken
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk_bench.problems import all_problems

FILE = pathlib.Path(__file__).parent / "data" / "choices.txt"
FLOAT32, FLOAT16, INT8, UINT8 = (TensorDataType[name] for name in ("FLOAT32", "FLOAT16", "INT8", "UINT8"))

_ALL = frozenset(FEATURE_NAMES)
_WITHOUT_MATRICES = _ALL - {"cooperative_matrix", "matrix_reductions", "bfloat16"}
_H200 = Capabilities(
    features=_ALL,
    shared_memory_bytes=49152,
    workgroup_invocations=1024,
    workgroup_counts=(2**31 - 1, 65535, 65535),
    storage_buffer_bytes=2**32 - 1,
    storage_buffers=2**20,
    cooperative_matrices=(
        CooperativeMatrix(16, 16, 16, "float16", "float32"),
        CooperativeMatrix(16, 16, 16, "bfloat16", "float32"),
        CooperativeMatrix(16, 16, 32, "int8", "int32"),
    ),
    matrix_fragments=True,
    model=H200,
)
DEVICES = {
    "h200": _H200,
    "20 processors": dataclasses.replace(
        _H200,
        features=_ALL - {"matrix_reductions"},
        model=dataclasses.replace(GENERIC_GPU, processors=20, bytes_per_microsecond=1e5),
    ),
    "phone": Capabilities(
        features=SUBGROUPS | {"float16", "int8", "int16", "storage8", "storage16", "integer_dot_product"},
        subgroup_size=16,
        minimum_subgroup_size=16,
        maximum_subgroup_size=16,
        workgroup_invocations=512,
        storage_buffer_bytes=2**32 - 1,
        storage_buffers=24,
        model=PHONE,
    ),
    "lavapipe": Capabilities(
        features=_WITHOUT_MATRICES,
        subgroup_size=8,
        minimum_subgroup_size=8,
        maximum_subgroup_size=8,
        shared_memory_bytes=32768,
        workgroup_invocations=1024,
        storage_buffer_bytes=2**32 - 1,
        storage_buffers=2**20,
        is_cpu=True,
        model=CPU,
    ),
}
"""What each of the four can do, and is like."""


def rule_of(desc: OperatorDesc, caps: Capabilities) -> str:
    """The rule that is chosen."""
    return next(rule.name for rule, holds in explain(desc, caps) if holds)


_NO_SIZES = re.compile(
    "MODE|RANK|VECTOR_|ALONG|HAS_|_BIAS|ADDEND|MASK_|LENGTHS|QUADS|ACTIVATION|OPERATION|RUNS|MAT_|CHANNELS|FUNCTION|SIGNED|PADD|DILATED"
    "|TAP|INSIDE|WHOLE|SHORT|INNER|PARAMETERS|PLAIN|FLIP|WINDOW_|STRIDE_|VOLUMES|NORM_|INDEX_WORDS|SHIFT|REPEAT"
)
"""Constants that say what is computed and how tensors lie, and not how work is cut."""


def _without_grid(text: str) -> str:
    return re.sub(r"\) x[0-9x]+", ")", text)


def _launch(launch: Launch) -> str:
    if isinstance(launch, BlockCopy):
        return f"{launch.name}()"
    own = (item for item in launch.kernel.constants if not _NO_SIZES.search(item[0]))
    constants = " ".join(f"{name}={int(value)}" for name, value in own)
    return f"{launch.kernel.kernel}({constants}) x{'x'.join(map(str, launch.grid)).removesuffix('x1x1')}"


def choice(desc: OperatorDesc, caps: Capabilities, rule: str = "") -> str:
    """The rule, or the one that is chosen, and each kind of launch, with how many are alike; or why there is none."""
    try:
        launches = lower(desc, caps, force=rule).dispatches
    except UnsupportedError as error:
        return f"unsupported: {error.limitation}"
    kinds: dict[str, list[str]] = {}
    for text in map(_launch, launches):
        kinds.setdefault(_without_grid(text), []).append(text)
    found = (texts[0] + (f" {len(texts)} times" if len(texts) > 1 else "") for texts in kinds.values())
    return f"{rule or rule_of(desc, caps)}: {' + '.join(found)}"


def _float32(*sizes: int) -> TensorDesc:
    return TensorDesc(FLOAT32, sizes)


def _product(rows: int, columns: int, depth: int, data_type: TensorDataType = FLOAT32) -> OperatorDesc:
    a, b, y = (TensorDesc(data_type, (1, 1, *sizes)) for sizes in ((rows, depth), (depth, columns), (rows, columns)))
    return ops.Gemm(a_tensor=a, b_tensor=b, output_tensor=y)


def _kept_product(rows: int, columns: int, depth: int) -> OperatorDesc:
    """By FLOAT16 weights that are OWNED_BY_DML."""
    weights = TensorDesc(FLOAT16, (1, 1, depth, columns), flags=TensorFlags.OWNED_BY_DML)
    return _product(rows, columns, depth, FLOAT16).replace(b_tensor=weights)


def _reduction(rows: int, axis: int, elements: int = 2**26) -> OperatorDesc:
    sizes = [rows, elements // rows] if axis == 1 else [elements // rows, rows]
    output = [1 if own == axis else size for own, size in enumerate(sizes)]
    return ops.Reduce(
        function=ReduceFunction.SUM, input_tensor=_float32(*sizes), output_tensor=_float32(*output), axes=(axis,)
    )


def _softmax(rows: int, axis: int) -> OperatorDesc:
    sizes = (rows, 2**26 // rows) if axis == 1 else (2**26 // rows, rows)
    return ops.ActivationSoftmax1(input_tensor=_float32(*sizes), output_tensor=_float32(*sizes), axes=(axis,))


def _scan(rows: int, axis: int) -> OperatorDesc:
    tensor = _float32(*((rows, 2**24 // rows) if axis == 1 else (2**24 // rows, rows)))
    return ops.CumulativeSummation(
        input_tensor=tensor,
        output_tensor=tensor,
        axis=axis,
        axis_direction=AxisDirection.INCREASING,
        has_exclusive_sum=False,
    )


def _normalization(rows: int, axis: int) -> OperatorDesc:
    tensor = _float32(*((rows, 2**22 // rows) if axis == 1 else (2**22 // rows, rows)))
    return ops.MeanVarianceNormalization1(
        input_tensor=tensor, output_tensor=tensor, axes=(axis,), normalize_variance=True, epsilon=1e-5
    )


def _sine(count: int) -> OperatorDesc:
    return ops.ElementWiseSin(input_tensor=_float32(count), output_tensor=_float32(count))


def _pooling(edge: int, window: int, step: int) -> OperatorDesc:
    outputs = (edge - window) // step + 1
    return ops.AveragePooling1(
        input_tensor=_float32(1, 8, edge, edge),
        output_tensor=_float32(1, 8, outputs, outputs),
        strides=(step, step),
        window_size=(window, window),
        start_padding=(0, 0),
        end_padding=(0, 0),
        dilations=(1, 1),
        include_padding=False,
    )


def _convolution(channels: int, outputs: int, edge: int, window: int = 1, step: int = 1, images: int = 1) -> OperatorDesc:
    around = window // 2
    made = (edge + 2 * around - window) // step + 1
    return ops.Convolution(
        input_tensor=_float32(images, channels, edge, edge),
        filter_tensor=_float32(outputs, channels, window, window),
        output_tensor=_float32(images, outputs, made, made),
        strides=(step, step),
        dilations=(1, 1),
        start_padding=(around, around),
        end_padding=(around, around),
        output_padding=(0, 0),
        group_count=1,
    )


def _depthwise(channels: int, edge: int, window: int, layout: str) -> OperatorDesc:
    around, sizes = window // 2, (1, channels, edge, edge)
    image = TensorDesc(FLOAT32, sizes, calculate_strides(layout, sizes))
    return ops.Convolution(
        input_tensor=image,
        filter_tensor=_float32(channels, 1, window, window),
        output_tensor=image,
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(around, around),
        end_padding=(around, around),
        output_padding=(0, 0),
        group_count=channels,
    )


def _attention(rows: int, keys: int, head: int, data_type: TensorDataType, heads: int = 4) -> OperatorDesc:
    query, key = (TensorDesc(data_type, (1, count, heads * head)) for count in (rows, keys))
    return ops.MultiheadAttention1(
        query_tensor=query,
        key_tensor=key,
        value_tensor=key,
        output_tensor=query,
        scale=1.0,
        query_head_count=heads,
        key_value_head_count=heads,
    )


def _slice(data_type: TensorDataType, *sizes: int) -> OperatorDesc:
    """Rows that start anywhere, in more dimensions that cannot be merged."""
    return ops.Slice1(
        input_tensor=TensorDesc(data_type, tuple(size + 1 for size in sizes)),
        output_tensor=TensorDesc(data_type, sizes),
        input_window_offsets=(1,) * len(sizes),
        input_window_sizes=sizes,
        input_window_strides=(1,) * len(sizes),
    )


def _from_channels_last(data_type: TensorDataType, channels: int, pixels: int) -> OperatorDesc:
    sizes = (1, channels, 1, pixels)
    image = TensorDesc(data_type, sizes, calculate_strides("NHWC", sizes))
    return ops.ElementWiseIdentity(input_tensor=image, output_tensor=TensorDesc(data_type, sizes))


def _integer_product(rows: int, columns: int, depth: int) -> OperatorDesc:
    a, b = (TensorDesc(INT8, sizes) for sizes in ((rows, depth), (depth, columns)))
    return ops.MatrixMultiplyInteger(a_tensor=a, b_tensor=b, output_tensor=TensorDesc(TensorDataType.INT32, (rows, columns)))


def _largest(count: int, rows: int, length: int) -> OperatorDesc:
    return ops.TopK1(
        input_tensor=_float32(rows, length),
        output_value_tensor=_float32(rows, count),
        output_index_tensor=TensorDesc(TensorDataType.UINT32, (rows, count)),
        axis=1,
        k=count,
    )


def _lstm(units: int) -> OperatorDesc:
    return ops.Lstm(
        input_tensor=_float32(1, 10, 1, units),
        weight_tensor=_float32(1, 1, 4 * units, units),
        recurrence_tensor=_float32(1, 1, 4 * units, units),
        output_single_tensor=_float32(1, 1, 1, units),
        activation_descs=(ops.ActivationSigmoid(), ops.ActivationTanh(), ops.ActivationTanh()),
        direction=RecurrentNetworkDirection.FORWARD,
    )


def cached_attention(capacity: int, head: int, data_type: TensorDataType, rows: int = 1, groups: int = 1) -> OperatorDesc:
    """Steps of a language model over a cache of so many rows, of 8 heads that so many heads of queries share."""
    query = TensorDesc(data_type, (1, rows, 8 * groups, head))
    new, cache = TensorDesc(data_type, (1, rows, 8, head)), TensorDesc(data_type, (1, 8, capacity, head))
    return CachedAttention(
        query_tensor=query,
        key_tensor=new,
        value_tensor=new,
        lengths_tensor=TensorDesc(TensorDataType.INT32, (1,)),
        output_tensor=query,
        cache_key_tensor=cache,
        cache_value_tensor=cache,
        scale=1.0,
    )


def _root_mean_square(width: int) -> OperatorDesc:
    return RootMeanSquare(input_tensor=_float32(1, width), output_tensor=_float32(1, width), epsilon=1e-5)


def _token(vocabulary: int) -> OperatorDesc:
    integers = TensorDesc(TensorDataType.INT32, (1,))
    return SampleToken(
        logits_tensor=_float32(1, vocabulary),
        controls_tensor=TensorDesc(TensorDataType.UINT32, (1, CONTROL_WORDS)),
        history_tensor=TensorDesc(TensorDataType.INT32, (1, 64)),
        lengths_tensor=integers,
        output_tensor=integers,
    )


LADDERS: dict[str, tuple[range, Callable[[int], OperatorDesc]]] = {
    "sines of 2^k numbers": (range(10, 27), lambda k: _sine(2**k)),
    "product of 2^k": (range(4, 13), lambda k: _product(2**k, 2**k, 2**k)),
    "product of 2^k, FLOAT16": (range(4, 13), lambda k: _product(2**k, 2**k, 2**k, FLOAT16)),
    "product of 96 x 64 k by 512": (range(1, 40), lambda k: _product(96, 64 * k, 512)),
    "product of 64 x 64 k by 1024": (range(1, 140, 2), lambda k: _product(64, 64 * k, 1024)),
    "product of 16 x 128 k by 1024": (range(1, 300, 4), lambda k: _product(16, 128 * k, 1024)),
    "product of 1 x 2^k by 4096": (range(4, 15), lambda k: _product(1, 2**k, 4096)),
    "product of 256 x 256 by 2^k": (range(4, 15), lambda k: _product(256, 256, 2**k)),
    "sums of 2^k rows of 2^26 numbers": (range(27), lambda k: _reduction(2**k, 1)),
    "sums of 2^k columns of 2^26 numbers": (range(27), lambda k: _reduction(2**k, 0)),
    "softmax of 2^k rows of 2^26 numbers": (range(27), lambda k: _softmax(2**k, 1)),
    "softmax of 2^k columns of 2^26 numbers": (range(27), lambda k: _softmax(2**k, 0)),
    "running sums of 2^k rows of 2^24 numbers": (range(25), lambda k: _scan(2**k, 1)),
    "running sums of 2^k columns of 2^24 numbers": (range(25), lambda k: _scan(2**k, 0)),
    "normalization of 2^k rows of 2^22 numbers": (range(23), lambda k: _normalization(2**k, 1)),
    "normalization of 2^k columns of 2^22 numbers": (range(23), lambda k: _normalization(2**k, 0)),
    "1x1 of 16 k channels to 8 of 28x28": (range(1, 64), lambda k: _convolution(16 * k, 8, 28)),
    "1x1 of 2^k channels to 256 of 14x14": (range(4, 14), lambda k: _convolution(2**k, 256, 14)),
    "product of 2^k x 4096 by 4096, FLOAT16": (range(2, 13), lambda k: _product(2**k, 4096, 4096, FLOAT16)),
    "product of 32 k x 768 by 768, kept": (range(1, 50), lambda k: _kept_product(32 * k, 768, 768)),
    "product of 32 k x 3072 by 768, kept": (range(1, 50), lambda k: _kept_product(32 * k, 3072, 768)),
    "product of 197 x 1024 by 2^k, kept": (range(6, 14), lambda k: _kept_product(197, 1024, 2**k)),
    "product of 4096 x 64 by 2^k, FLOAT16": (range(2, 13), lambda k: _product(4096, 2**k, 64, FLOAT16)),
    "sums of 16 rows of 2^k numbers": (range(2, 20), lambda k: _reduction(16, 1, 2 ** (k + 4))),
    "sums of 16 columns of 2^k numbers": (range(2, 20), lambda k: _reduction(16, 0, 2 ** (k + 4))),
    "means of windows of 2^k beside each other in 1024 x 1024": (range(11), lambda k: _pooling(1024, 2**k, 2**k)),
    "means of all windows of 2^k in 64 x 64": (range(7), lambda k: _pooling(64, 2**k, 1)),
    "1x1 of 256 channels to 16 k of 28x28": (range(1, 40, 3), lambda k: _convolution(256, 16 * k, 28)),
    "1x1 of k channels to 64 of 28x28": (range(1, 20), lambda k: _convolution(k, 64, 28)),
    "1x1 of 64 channels to 64 of k pixels": (range(1, 9), lambda k: _convolution(64, 64, 1, images=k)),
    "1x1 of 2^k channels to 64 of 4x4": (range(6, 19), lambda k: _convolution(2**k, 64, 4)),
    "3x3 of 64 channels of 2^k x 2^k alone": (range(2, 10), lambda k: _depthwise(64, 2**k, 3, "NCHW")),
    "k x k of 64 channels of 64x64 alone": (range(1, 34, 2), lambda k: _depthwise(64, 64, k, "NCHW")),
    "k x k of 64 channels of 64x64 side by side": (range(1, 46, 2), lambda k: _depthwise(64, 64, k, "NHWC")),
    "slices of k bytes": (range(4, 68, 4), lambda k: _slice(UINT8, 2**20, k)),
    "slices of k numbers, FLOAT16": (range(8, 64, 4), lambda k: _slice(FLOAT16, 2**20, k)),
    "slices of 32 k numbers": (range(1, 14), lambda k: _slice(FLOAT32, 2**14, 32 * k)),
    "slices of 32 k numbers in 4 dimensions": (range(1, 14), lambda k: _slice(FLOAT32, 8, 8, 8, 32 * k)),
    "slices of 32 k numbers in 5 dimensions": (range(1, 14), lambda k: _slice(FLOAT32, 4, 8, 4, 8, 32 * k)),
    "2^20 pixels of k bytes side by side": (range(2, 19), lambda k: _from_channels_last(UINT8, k, 2**20)),
    "2^20 pixels of k numbers side by side": (range(2, 19), lambda k: _from_channels_last(FLOAT32, k, 2**20)),
    "3 x 2^k pixels of 3 bytes side by side": (range(8), lambda k: _from_channels_last(UINT8, 3, 3 * 2**k)),
    "integer product of 2^k": (range(3, 13), lambda k: _integer_product(2**k, 2**k, 2**k)),
    "16 largest of 256 rows of 2^k numbers": (range(4, 20), lambda k: _largest(16, 256, 2**k)),
    "10 steps of an LSTM of 2^k units": (range(10), lambda k: _lstm(2**k)),
    "mean squares of a row of 2^k numbers": (range(8, 17), lambda k: _root_mean_square(2**k)),
    "choice of one of 2^k tokens": (range(10, 20, 9), lambda k: _token(2**k)),
    "sorted rows of 2^k numbers": (range(13), lambda k: _largest(2**k, 256, 2**k)),
}
"""Problems of growing k: where along it a device is given something else."""
SHARES: dict[str, tuple[range, Callable[[int], OperatorDesc]]] = {
    "attention of 2^k rows and 2048 keys of 128, FLOAT16": (range(13), lambda k: _attention(2**k, 2048, 128, FLOAT16)),
    "attention of 2^k rows and 2048 keys of 64, FLOAT16": (range(13), lambda k: _attention(2**k, 2048, 64, FLOAT16)),
    "attention of 2^k rows and 2048 keys of 64": (range(13), lambda k: _attention(2**k, 2048, 64, FLOAT32)),
    "attention of 2^k rows and 256 keys of 128, FLOAT16": (range(3, 6), lambda k: _attention(2**k, 256, 128, FLOAT16)),
    "attention of 512 heads of 2^k rows and keys": (range(2, 8), lambda k: _attention(2**k, 2**k, 64, FLOAT32, 512)),
    "attention of a row and 2^k keys of 128, FLOAT16": (range(5, 17), lambda k: _attention(1, 2**k, 128, FLOAT16)),
    "attention of a row and 2^k keys of 128": (range(5, 17), lambda k: _attention(1, 2**k, 128, FLOAT32)),
    "attention of 256 rows and keys of 32 k, FLOAT16": (range(1, 10), lambda k: _attention(256, 256, 32 * k, FLOAT16)),
    "attention of 256 rows and keys of 32 k": (range(1, 10), lambda k: _attention(256, 256, 32 * k, FLOAT32)),
    "integer product of 1024 x 2^k by 1024": (range(3, 11), lambda k: _integer_product(1024, 1024, 2**k)),
    "4 largest of a row of 2^k numbers": (range(18, 24), lambda k: _largest(4, 1, 2**k)),
    "200 largest of a row of 2^k numbers": (range(18, 22), lambda k: _largest(200, 1, 2**k)),
    "step over a cache of 2^k rows of 128, FLOAT16": (range(5, 17), lambda k: cached_attention(2**k, 128, FLOAT16)),
    "step over a cache of 1024 rows of 8 k, FLOAT16": (range(1, 33), lambda k: cached_attention(1024, 8 * k, FLOAT16)),
    "2^k rows over a cache of 1024 rows of 64": (range(5), lambda k: cached_attention(1024, 64, FLOAT32, 2**k)),
    "2^k heads a cache of 1024 rows of 128, FLOAT16": (range(5), lambda k: cached_attention(1024, 128, FLOAT16, 1, 2**k)),
    "product of 16 x 2^k by 16": (range(8, 20), lambda k: _product(16, 16, 2**k)),
    "product of 16 x 2^k by 16, FLOAT16": (range(8, 20), lambda k: _product(16, 16, 2**k, FLOAT16)),
}
"""The same of problems that are shared out among processors, with their grids."""


TILED: dict[str, OperatorDesc] = {
    "1x1 of 256 channels to 256 of 28x28": _convolution(256, 256, 28),
    "1x1 of 2^18 channels to 32 of 8x8": _convolution(2**18, 32, 8),
    "3x3 of 64 channels to 64 of 56x56": _convolution(64, 64, 56, 3),
    "7x7 of 3 channels to 64 of 224x224, every other": _convolution(3, 64, 224, 7, 2),
    "1x1 of 256 channels to 256 of 27x27": _convolution(256, 256, 27),
    "1x1 of 64 channels to 512 of 129x129": _convolution(64, 512, 129),
    "1x1 of 64 channels to 8 of 512x512": _convolution(64, 8, 512),
}
"""Convolutions whose tiles have times: lean ones, one of whole taps, one that reads by a table, one of odd lines, one of 4
tiles for each processor, and one of few outputs."""
LIMITED: dict[str, OperatorDesc] = {
    "3x3 of 61 channels to 61 of 16x16": _convolution(61, 61, 16, 3),
    "1x1 of 2048 channels to 64 of 8x8": _convolution(2048, 64, 8),
    "1x1 of 64 channels to 512 of 129x129": _convolution(64, 512, 129),
    "product of 64 x 64 by 2048": _product(64, 64, 2048),
    "product of 1024 x 1024 by 1024": _product(1024, 1024, 1024),
    "product of 512 x 512 by 512, FLOAT16": _product(512, 512, 512, FLOAT16),
}
LIMITS: dict[str, tuple[int, ...]] = {
    "workgroup_invocations": (64, 127, 128, 255, 256, 512),
    "shared_memory_bytes": (16384, 20736, 24576, 32768, 38144, 49152, 65536),
}
"""Limits of devices, and what they may be: numbers that a need of these problems is, too, so that it is met exactly."""


def _binding_limits(desc: OperatorDesc) -> tuple[int, ...]:
    """The same of the bytes of a storage binding, from those on that hold each tensor whole."""
    tensors = [slot.tensor for slot in desc.input_slots() + desc.output_slots() if slot.tensor is not None]
    least = max(tensor.total_tensor_size_in_bytes for tensor in tensors)
    return tuple(sorted(own for k in range(16, 28) for own in (2**k, 3 * 2**k, 9 * 2**k) if own >= least))


def _times() -> Iterator[str]:
    """The lines of how long an H200, with 64 KiB of shared memory, takes with each shape of tiles, by so many invocations,
    by the model of its time: for each number of terms of a round, in one part and in the number of parts that is fastest."""
    device = dataclasses.replace(_H200, shared_memory_bytes=2**16)
    for title, desc in TILED.items():
        yield f"{title}, times of tiles"
        lowering = lowering_of(desc)
        assert lowering is not None
        found: dict[str, dict[str, TileChoice]] = {}
        for split in (False, True):
            for tiles in possible_tiles(lowering.problem(desc), device, split=split):
                best = found.setdefault(f"{tiles.shape.rows}x{tiles.shape.columns} by {tiles.shape.invocations}", {})
                key = f"{tiles.depth} terms{', split' * split}"
                best[key] = min(best.get(key, tiles), tiles, key=lambda own: own.microseconds)
        yield f"  without tiles: {untiled_microseconds(lowering.problem(desc), H200):.4g} us"
        for shape, best in found.items():
            texts = (f"{key} in {own.splits}: {own.microseconds:.4g} us" for key, own in best.items())
            yield f"  {shape}: {', '.join(texts)}"


def _problems() -> Iterator[str]:
    """The lines of those problems of the benchmark on which some device is given what it was not given before."""
    seen: set[tuple[str, str]] = set()
    for problem in all_problems():
        found = {name: choice(problem.desc, caps) for name, caps in DEVICES.items()}
        new = {(name, _without_grid(text)) for name, text in found.items()} - seen
        seen |= new
        if new:
            yield problem.name
            for text in dict.fromkeys(found.values()):
                yield f"  {', '.join(name for name, own in found.items() if own == text)}: {text}"


def _other_rules() -> Iterator[str]:
    """The lines of the first problem of the benchmark for which a rule is possible, chosen or not."""
    seen: set[tuple[tuple[Rule, ...], str, str]] = set()
    for problem in all_problems():
        lowering = lowering_of(newest(problem.desc))
        rules = () if lowering is None else lowering.rules
        found: dict[str, list[str]] = {}
        for name, caps in DEVICES.items():
            for rule in possible_rules(problem.desc, caps) if rules else ():
                if (rules, rule, name) not in seen:
                    seen.add((rules, rule, name))
                    found.setdefault(choice(problem.desc, caps, rule), []).append(name)
        if found:
            yield f"{problem.name}, each rule"
            yield from (f"  {', '.join(names)}: {text}" for text, names in found.items())


def _ladders() -> Iterator[str]:
    for title, (steps, make) in (LADDERS | SHARES).items():
        yield title
        descs = {k: make(k) for k in steps}
        for name, caps in DEVICES.items():
            before = ""
            for k, desc in descs.items():
                text = choice(desc, caps)
                counts = text if title in SHARES else _without_grid(text)
                if counts != before:
                    before = counts
                    yield f"  {name}, k={k}: {text}"


def _under_limits() -> Iterator[str]:
    """The lines of what a device is given that is like an H200 but for one limit: where along it that changes."""
    for title, desc in LIMITED.items():
        for limit, steps in (("storage_buffer_bytes", _binding_limits(desc)), *LIMITS.items()):
            before = ""
            for most in steps:
                text = choice(desc, dataclasses.replace(_H200, **{limit: most}))
                if text != before:
                    before = text
                    yield f"{title}, {limit}={most}: {text}"


def _fields() -> Iterator[str]:
    """The lines of the first problem that a rule is chosen for: where along each of its numbers that changes, or how many
    rules are possible."""
    seen: set[tuple[tuple[Rule, ...], str]] = set()
    for problem in all_problems():
        lowering = lowering_of(newest(problem.desc))
        if lowering is None or len(lowering.rules) == 1:
            continue
        rule = rule_of(problem.desc, DEVICES["h200"])
        if (lowering.rules, rule) not in seen:
            seen.add((lowering.rules, rule))
            base = lowering.problem(newest(problem.desc))
            for field in dataclasses.fields(base):
                if type(getattr(base, field.name)) in (int, bool):
                    yield from _along(problem.name, lowering.rules, base, field.name)


def _along(title: str, rules: tuple[Rule, ...], base: Any, field: str) -> Iterator[str]:
    is_flag = type(getattr(base, field)) is bool
    powers = tuple(2**k for k in (range(3, 7) if field == "bits" else range(22)))
    near = sorted({power + step for power in (*powers[2:11], *powers[16:17]) for step in (-1, 0, 1)} | set(powers))
    steps = (False, True) if is_flag else powers if field == "bits" else near
    found: dict[str, list[str]] = {}
    for name, caps in DEVICES.items():
        text, before = "", ""
        for value in steps:
            problem = dataclasses.replace(base, **{field: value})
            try:
                possible = [rule for rule in rules if rule.possible(problem, caps)]
                own = f"{choose(rules, problem, caps).name} of {len(possible)}"
            except (ArithmeticError, LookupError, ValueError):  # a number that does not go with the others
                own = "none"
            text, before = text if own == before else f"{text}, {value}: {own}", own
        if text.count(":") > 1:
            found.setdefault(text, []).append(name)
    if found:
        yield f"{title}, {field}"
        yield from (f"  {', '.join(names)}{text}" for text, names in found.items())


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "ladders": _ladders,
    "times": _times,
    "problems": _problems,
    "other rules": _other_rules,
    "limits": _under_limits,
    "fields": _fields,
}
"""The parts of the table, each with its lines."""


def expected(part: str) -> list[str]:
    """The lines of a part in the file."""
    _, _, rest = FILE.read_text().partition(f"= {part}\n")
    return rest.partition("\n= ")[0].splitlines()


if __name__ == "__main__":
    FILE.write_text("".join(f"= {part}\n" + "".join(f"{line}\n" for line in lines()) for part, lines in PARTS.items()))
