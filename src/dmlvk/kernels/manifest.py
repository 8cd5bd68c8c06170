"""One row a kernel. ``tools/build_kernels.py`` compiles every variant of every row; plans name rows.

Adding a kernel is its ``.comp`` file, its row here and its rule in ``select.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

from dmlvk.enums import TensorDataType
from dmlvk.kernels.shapes import group_lanes, pooling_lanes, tile_edge, tile_lanes
from dmlvk.kernels.spec import KernelSpec
from dmlvk.tensor import element_bits

_FLOATS = ("FLOAT32", "FLOAT16")
_NUMERIC = (
    "FLOAT32",
    "FLOAT16",
    "INT64",
    "INT32",
    "INT16",
    "INT8",
    "UINT64",
    "UINT32",
    "UINT16",
    "UINT8",
)


def _lanes(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The variants "LANES T U" of a pointwise kernel: one element at a time, and a group."""
    return tuple(f"{count} {t} {u}" for t, u in pairs for count in (1, group_lanes(_bits(t), _bits(u))))


def _tiles(*types: str) -> tuple[str, ...]:
    """The variants "TILE LANES T U" of a kernel that transposes."""
    return tuple(f"{tile_edge(_bits(name))} {tile_lanes(_bits(name))} {name} {name}" for name in types)


def _strides(*tensors: str) -> tuple[str, ...]:
    return tuple(f"uint {tensor}_strides[9]" for tensor in tensors)


def _steps(*tensors: str) -> tuple[str, ...]:
    return (*_strides(*tensors), *(f"uint {tensor}_step" for tensor in tensors))


def _bits(data_type: str) -> int:
    return element_bits(TensorDataType[data_type])


_UNSIGNED = ("UINT8", "UINT16", "UINT32", "UINT64")
_UNARY_TYPES = tuple(
    dict.fromkeys(
        (t, u)
        for t in ("FLOAT64", *_NUMERIC)
        for u in ("FLOAT64", *_NUMERIC)
        # Between integers only the source's sign tells, and a cast to another integer of its size is a copy.
        if t == u or "FLOAT" in t + u or (u in _UNSIGNED and _bits(t) != _bits(u))
    )
)
"""(input, output) of the unary kernel: every type to itself, every cast that is not another one's; predicates have them."""
_BINARY_TYPES = tuple(dict.fromkeys((t, u) for t in _NUMERIC for u in (t, "UINT8", "UINT32")))
"""(inputs, output) of the binary kernel: arithmetic and comparisons."""

# Eight dimensions, and the two halves of 64-bit elements whose bits alone matter.
_ITEM_PARAMS = ("uint count", "uint elements", "uint sizes[9]", "uint divisors[18]", "uint inner_size")
_TILE_PARAMS = ("uint count", "uint sizes[9]", "uint divisors[18]", "uint rows", "uint columns")
_OPERATOR_PARAMS = ("uint param0[2]", "uint param1[2]")
_UNARY_PARAMS = ("float scale", "float bias", *_OPERATOR_PARAMS)
_BINARY_PARAMS = (*_OPERATOR_PARAMS, "float activation_param0", "float activation_param1")
_UNARY_CONSTANTS = (("LOCAL_SIZE_X", 128), ("OPERATION", 0), ("HAS_SCALE_BIAS", 0), ("RANK", 1))
_BINARY_CONSTANTS = (("LOCAL_SIZE_X", 128), ("OPERATION", 0), ("ACTIVATION", 0), ("RANK", 1))

_ACCUMULATOR_PARAMS = ("uint decreasing", "uint index_words", "float divisor")
_REDUCE_PARAMS = (
    *_ACCUMULATOR_PARAMS,
    "uint row_elements",
    "uint chunks",
    "uint chunk_units",
    *("uint kept_rank", "uint kept_sizes[8]", "uint kept_divisors[16]", "uint kept_x[8]", "uint kept_output[8]"),
    *("uint row_rank", "uint row_sizes[8]", "uint row_divisors[16]", "uint row_x[8]"),
)
_REDUCE_CONSTANTS = (("LOCAL_SIZE_X", 128), ("FUNCTION", 10), ("SPLIT", 0))
_WORD_LANES = tuple(f"{count} {name}" for name in _NUMERIC for count in (1, 128 // _bits(name)))
"""The variants "LANES T" of a kernel of one data type: one element at a time, and 16 bytes."""

_ROW_PARAMS = (
    *("uint count", "uint units", "uint inner_size", "uint inner_divisor[2]", "uint row_words", "uint row_words_divisor[2]"),
    *("uint x_step", "uint output_step", "uint fill[2]"),
)
_ROW_CONSTANTS = (("LOCAL_SIZE_X", 128), ("ITEMS", 1), ("PACKED", 0))
_ROW_VARIANTS = ("1 UINT8", "1 UINT16", "1 UINT32", "0 UINT8", "0 UINT16", "0 UINT32", "0 BITS64", "0 BITS128")
"""Of a kernel that includes ``rows.glsl``."""

_UNITS = ("UINT8", "UINT16", "UINT32", "BITS64", "BITS128")
"""Types of what only moves."""
_SCATTER_PARAMS = ("uint count", "uint index_step", "uint chosen_sizes[8]", "uint chosen_entries[8]")
_SCATTER_CONSTANTS = (("LOCAL_SIZE_X", 128), ("RANK", 1), ("TUPLE", 1), ("INDEX_WORDS", 1), ("INDEX_SIGNED", 0))

_MEAN_VARIANCE_BUFFERS = ("x", "scale", "bias", "add", "y:w", "mean:w", "variance:w")
_MEAN_VARIANCE_PARAMS = (
    "uint rows",
    "uint row_units",
    "float epsilon",
    "float activation_param0",
    "float activation_param1",
    *("uint kept_rank", "uint side_rank"),
    *("uint kept_sizes[8]", "uint kept_divisors[16]"),
    *(f"uint kept_{name}[8]" for name in ("x", "scale", "bias", "add", "y", "mean", "variance")),
    *("uint row_sizes[8]", "uint row_divisors[16]"),
    *(f"uint row_{name}[8]" for name in ("x", "add", "y")),
    *("uint side_sizes[8]", "uint side_divisors[16]"),
    *(f"uint side_{name}[8]" for name in ("scale", "bias")),
    *(f"uint neighbour_{name}" for name in ("scale", "bias", "mean", "variance")),
)
_MEAN_VARIANCE_CONSTANTS = (
    ("LOCAL_SIZE_X", 128),
    ("UNITS", 1),
    ("ROW_RANK", 1),
    ("HAS_SCALE", 0),
    ("HAS_BIAS", 0),
    ("HAS_ADD", 0),
    ("HAS_STATISTICS", 0),
    ("SIDE_SHARED", 0),
    ("SIDE_WORDS", 0),
    ("USE_MEAN", 1),
    ("USE_VARIANCE", 1),
    ("ACTIVATION", 0),
)
_BATCH_TENSORS = ("x", "mean", "variance", "scale", "bias", "output")
_SUBGROUP_SUMS = ("GL_KHR_shader_subgroup_arithmetic", "GL_KHR_shader_subgroup_shuffle")

_SCAN_TYPES = ("FLOAT32", "FLOAT16", "UINT64", "UINT32")  # sums and products of integers have the same bits with a sign
_SCAN_BUFFERS = ("x", "y:w", "partials:w")
_SCAN_PARAMS = (
    *("uint rows", "uint units", "uint chunks", "uint chunk_units", "uint reverse", "uint exclusive"),
    *("uint x_step", "uint y_step", "uint kept_rank", "uint kept_sizes[8]", "uint kept_divisors[16]"),
    *("uint kept_x[8]", "uint kept_y[8]"),
)
_SCAN_CONSTANTS = (("LOCAL_SIZE_X", 128), ("PRODUCT", 0), ("PHASE", 0), ("UNITS", 1))

_TOP_K_TYPES = ("UINT8 1", "UINT16 1", "UINT32 1", "UINT32 2")
_TOP_K_BUFFERS = ("x", "values:w", "indices:w")
_TOP_K_PARAMS = (
    *("uint rows", "uint k", "uint flip[2]", "uint x_step", "uint value_step", "uint index_step", "uint index_words"),
    *("uint kept_rank", "uint kept_sizes[8]", "uint kept_divisors[16]"),
    *("uint kept_x[8]", "uint kept_values[8]", "uint kept_indices[8]"),
)
_TOP_K_CONSTANTS = (("LOCAL_SIZE_X", 128), ("IS_FLOAT", 0), ("CAPACITY", 512))

_SOFTMAX_PARAMS = (
    "uint groups",
    "uint row_units",
    "float epsilon",
    "uint kept_rank",
    "uint row_rank",
    *(f"uint {which}_{name}" for which in ("kept", "row") for name in ("sizes[8]", "divisors[16]", "x[8]", "y[8]")),
)
_SOFTMAX_CONSTANTS = (
    ("LOCAL_SIZE_X", 128),
    ("OPERATION", 0),
    ("POWER", 2),
    ("ROW_RUNS", 0),
    ("LANES", 1),
    ("COLUMNS", 1),
    ("UNITS", 1),
    ("MERGED", 1),
)

_ROI_BUFFERS = ("input", "roi", "batch", "output:w")
_ROI_PARAMS = (
    "uint roi_count",
    "uint batch_count",
    "uint channels",
    "uint input_height",
    "uint input_width",
    "uint output_height",
    "uint output_width",
    "uint input_strides[4]",
    "uint output_strides[4]",
    "uint roi_stride",
    "uint coordinate_stride",
    "uint batch_stride",
    "float scale_x",
    "float scale_y",
    "float input_pixel_offset",
    "float output_pixel_offset",
    "float out_of_bounds_input_value",
    "uint minimum_samples",
    "uint maximum_samples",
)
_ROI_CONSTANTS = (("LOCAL_SIZE_X", 128), ("NEAREST", 0), ("CORNERS", 0), ("MAXIMUM", 0), ("BATCH_WORDS", 1))

_POOLING_BUFFERS = ("input", "output:w", "indices:w")
_POOLING_PARAMS = (
    "uint outputs",
    "uint walk_sizes[5]",
    "uint walk_divisors[10]",
    "uint input_sizes[5]",
    "uint input_strides[5]",
    "uint output_strides[5]",
    "uint index_strides[5]",
    "uint steps[3]",
    "uint window[3]",
    "uint start_padding[3]",
    "uint end_padding[3]",
    "uint dilations[3]",
    "uint include_padding",
)
_POOLING_CONSTANTS = (
    ("LOCAL_SIZE_X", 128),
    ("DILATED", 0),
    ("VOLUMES", 0),
    ("CHANNELS_FASTEST", 0),
    ("RANK", 5),
)

_POOLING_LANES = tuple(f"{count} {name}" for name in _NUMERIC for count in pooling_lanes(_bits(name)))

_CONVOLUTION_PARAMS = (
    "uint output_sizes[5]",
    "uint output_strides[5]",
    "uint input_sizes[3]",
    "uint input_strides[5]",
    "uint window[3]",
    "uint filter_strides[5]",
    "uint filter_offset",
    "uint filter_group_stride",
    "uint bias_stride",
    "uint group_channels",
    "uint group_outputs",
    "uint computed_sizes[3]",
    "uint position_step[3]",
    "uint tap_step[3]",
    "uint position_start[3]",
    "uint divisor[3]",
    "float param0",
    "float param1",
)
"""What every convolution kernel reads; see ``glsl/include/convolution.glsl``."""

_GEMM_PARAMS = (
    "uint rows",
    "uint columns",
    "uint depth",
    "uint inner_batch",
    "uint a_strides[4]",
    "uint b_strides[4]",
    "uint c_strides[4]",
    "uint y_strides[4]",
    "float alpha",
    "float beta",
    "float param0",
    "float param1",
)
"""What every matrix product reads; see ``glsl/include/gemm.glsl``."""

_FILL_PARAMS = (
    "uint count",
    "uint sizes[8]",
    "uint divisors[16]",
    "uint inner_size",
    "uint position",
    "uint position_strides[8]",
    "uint source_strides[8]",
    "uint output_strides[8]",
    "uint position_step",
    "uint source_step",
)
_FILL_CONSTANTS = (("LOCAL_SIZE_X", 128), ("RANK", 1), ("HALVES", 1))
_FILL_VARIANTS = (("WORDS", ("0", "1")), ("T", ("UINT32", "UINT16", "UINT8")))
"""What every fill reads; see ``glsl/include/fill.glsl``."""

_QUANTIZE_TYPES = (("FLOAT32", "FLOAT32"), ("FLOAT16", "FLOAT16"), ("INT32", "FLOAT32"), ("FLOAT16", "FLOAT32"))
"""(input, scale) of quantizations; the last two are none to 4 bits."""
_QUANTIZATION_PARAMS = (
    "uint count",
    "uint inner_size",
    "uint sizes[16]",
    "uint divisors[32]",
    *(f"uint {tensor}_strides[16]" for tensor in ("x", "scale", "zero_point", "output")),
)
_QUANTIZATION_CONSTANTS = (
    ("LOCAL_SIZE_X", 128),
    ("SIGNED", 0),
    ("HAS_ZERO_POINT", 1),
    ("RANK", 1),
    ("ITEMS", 1),
    ("ROWS", 0),
    ("SCALE_MODE", 0),
    ("ZERO_POINT_MODE", 0),
)
"""What every quantization and its inverse reads; see ``glsl/include/blocks.glsl``."""

_RESAMPLE_PARAMS = (
    "uint count",
    "uint inner_size",
    "uint sizes[5]",
    "uint divisors[10]",
    "uint x_strides[5]",
    "uint y_strides[5]",
    "uint x_step",
    "uint y_step",
    "uint unit_size",
    "uint input_sizes[5]",
    "int start_whole[5]",
    "uint start_part[5]",
    "int step_whole[5]",
    "uint step_part[5]",
    "uint step_estimate[5]",
    "uint parts[5]",
    "float weight_of_part[5]",
    "float filter_scales[5]",
    "float filter_reaches[5]",
)
_RESAMPLE_CONSTANTS = (
    *(("LOCAL_SIZE_X", 128), ("RANK", 1), ("MAPPED", 0), ("LINEAR", 1)),
    *(("X_MODE", 0), ("Y_MODE", 0)),
)
_RESAMPLE_TYPES = (*_FLOATS, "INT8", "UINT8")
"""What every resampling reads; see ``glsl/include/resample.glsl``."""

_NONZERO_MASK_PARAMS = ("uint units", "uint tail", "uint sizes[8]", "uint divisors[16]", "uint strides[8]")
_NONZERO_MASK_CONSTANTS = (("LOCAL_SIZE_X", 128), ("UNITS", 1), ("RANK", 1), ("IS_FLOAT", 0))
_NONZERO_MASK_VARIANTS = (("T", ("UINT32", "UINT16", "UINT8")), ("WORDS", ("0", "1")))
"""What makes masks reads; see ``glsl/include/nonzero_masks.glsl``."""
_NONZERO_ROW_PARAMS = (
    *("uint columns", "uint column_sizes[8]", "uint column_divisors[16]", "uint step_divisors[16]"),
    *("uint row_step", "uint column_step"),
)
"""What writes rows of coordinates reads; see ``glsl/include/nonzero_rows.glsl``."""

_ROWS: tuple[KernelSpec, ...] = (
    # -- elementwise and activation
    KernelSpec(
        name="elementwise_unary",
        source="elementwise_unary.comp",
        buffers=("x", "output:w"),
        params=(*_ITEM_PARAMS, *_steps("x", "output"), *_UNARY_PARAMS),
        constants=(*_UNARY_CONSTANTS, ("ITEMS", 1), ("RUNS", 0), ("X_MODE", 0), ("OUTPUT_MODE", 0)),
        variants=(("LANES T U", _lanes(_UNARY_TYPES)),),
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
        variants=(("TILE LANES T U", _tiles("FLOAT64", *_NUMERIC)),),
    ),
    KernelSpec(
        name="elementwise_binary",
        source="elementwise_binary.comp",
        buffers=("a", "b", "output:w"),
        params=(*_ITEM_PARAMS, *_steps("a", "b", "output"), *_BINARY_PARAMS),
        constants=(*_BINARY_CONSTANTS, ("ITEMS", 1), ("RUNS", 0), ("A_MODE", 0), ("B_MODE", 0), ("OUTPUT_MODE", 0)),
        variants=(("LANES T U", _lanes(_BINARY_TYPES)),),
    ),
    KernelSpec(
        name="elementwise_quantized_add",
        source="elementwise_quantized_add.comp",
        buffers=(
            *("a", "b", "output:w"),
            *("a_scale", "a_zero_point", "b_scale", "b_zero_point", "output_scale", "output_zero_point"),
        ),
        params=(*_ITEM_PARAMS, *_steps("a", "b", "output")),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("RANK", 1), ("ITEMS", 1), ("RUNS", 0)),
            *(("A_MODE", 0), ("B_MODE", 0), ("OUTPUT_MODE", 0)),
            *(("A_SIGNED", 0), ("B_SIGNED", 0), ("OUTPUT_SIGNED", 0)),
            *(("HAS_A_ZERO_POINT", 1), ("HAS_B_ZERO_POINT", 1), ("HAS_OUTPUT_ZERO_POINT", 1)),
        ),
        variants=(("LANES T U", _lanes((("UINT8", "UINT8"),))),),
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
        variants=(("TILE LANES T U", _tiles(*_NUMERIC)),),
    ),
    KernelSpec(
        name="elementwise_power",
        source="elementwise_power.comp",
        buffers=("x", "exponent", "output:w"),
        params=(*_ITEM_PARAMS, *_steps("x", "exponent", "output"), "float scale", "float bias"),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("EXPONENT_BYTES", 4),
            ("EXPONENT_IS_FLOAT", 1),
            ("EXPONENT_IS_SIGNED", 1),
            ("HAS_SCALE_BIAS", 0),
            ("RANK", 1),
            ("ITEMS", 1),
            ("X_MODE", 0),
            ("EXPONENT_MODE", 0),
            ("OUTPUT_MODE", 0),
        ),
        variants=(("LANES T U", _lanes((name, name) for name in _NUMERIC if _bits(name) <= 32)),),
    ),
    KernelSpec(
        name="elementwise_select",
        source="elementwise_select.comp",
        buffers=("condition", "a", "b", "output:w"),
        params=(*_ITEM_PARAMS, *_steps("condition", "a", "b", "output")),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("RANK", 1),
            ("ITEMS", 1),
            ("CONDITION_MODE", 0),
            ("A_MODE", 0),
            ("B_MODE", 0),
            ("OUTPUT_MODE", 0),
        ),
        variants=(("LANES T U", _lanes(("UINT8", name) for name in ("UINT8", "UINT16", "UINT32"))),),
    ),
    # -- reductions
    KernelSpec(
        "reduce_rows",
        "reduce_rows.comp",
        buffers=("x", "output:w", "partials:w"),
        params=("uint rows", "uint row_units", *_REDUCE_PARAMS),
        constants=(*_REDUCE_CONSTANTS, ("TEAM", 1), ("UNITS", 1), ("ROW_RUNS", 0)),
        variants=(("LANES T", _WORD_LANES),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "reduce_columns",
        "reduce_columns.comp",
        buffers=("x", "output:w", "partials:w"),
        params=("uint columns", "uint inner_size", "uint output_step", *_REDUCE_PARAMS),
        constants=(*_REDUCE_CONSTANTS, ("COLUMNS", 1), ("ROW_RUNS", 0)),
        variants=(("LANES T", _WORD_LANES),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "reduce_partials",
        "reduce_partials.comp",
        buffers=("output:w", "partials"),
        params=(
            *_ACCUMULATOR_PARAMS,
            *("uint rows", "uint chunks"),
            *("uint kept_rank", "uint kept_sizes[8]", "uint kept_divisors[16]", "uint kept_output[8]"),
        ),
        constants=(*_REDUCE_CONSTANTS, ("TEAM", 1)),
        variants=(("LANES T", tuple(f"1 {name}" for name in _NUMERIC)),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    # -- normalization
    KernelSpec(
        "mean_variance_row",
        "mean_variance_row.comp",
        buffers=_MEAN_VARIANCE_BUFFERS,
        params=_MEAN_VARIANCE_PARAMS,
        constants=(*_MEAN_VARIANCE_CONSTANTS, ("LANES", 1)),
        variants=(("T", _FLOATS), ("WORDS", ("0", "1"))),
        extensions=_SUBGROUP_SUMS,
    ),
    KernelSpec(
        "mean_variance_split",
        "mean_variance_split.comp",
        buffers=(*_MEAN_VARIANCE_BUFFERS, "partials:w"),
        params=(*_MEAN_VARIANCE_PARAMS, "uint tiles", "uint chunks"),
        constants=_MEAN_VARIANCE_CONSTANTS,
        variants=(("T", _FLOATS), ("WORDS", ("0", "1")), ("APPLY", ("0", "1"))),
        extensions=_SUBGROUP_SUMS,
    ),
    KernelSpec(
        "mean_variance_column",
        "mean_variance_column.comp",
        buffers=_MEAN_VARIANCE_BUFFERS,
        params=_MEAN_VARIANCE_PARAMS,
        constants=(*_MEAN_VARIANCE_CONSTANTS, ("COLUMNS", 1)),
        variants=(("T", _FLOATS), ("WORDS", ("0", "1"))),
    ),
    KernelSpec(
        "mean_variance_column_split",
        "mean_variance_column_split.comp",
        buffers=(*_MEAN_VARIANCE_BUFFERS, "partials:w"),
        params=(*_MEAN_VARIANCE_PARAMS, "uint tiles", "uint chunks", "uint blocks"),
        constants=(*_MEAN_VARIANCE_CONSTANTS, ("COLUMNS", 1)),
        variants=(("T", _FLOATS), ("WORDS", ("0", "1")), ("STAGE", ("0", "1", "2"))),
    ),
    KernelSpec(
        "batch_normalization",
        "batch_normalization.comp",
        buffers=(*_BATCH_TENSORS[:-1], "output:w"),
        params=(
            "uint count",
            "float epsilon",
            "float activation_param0",
            "float activation_param1",
            *("uint sizes[8]", "uint divisors[16]", "uint inner_size"),
            *("uint repeated", "uint repeat_size", "uint repeat_step", "uint x_repeat", "uint output_repeat"),
            *("uint run_size", "uint run_divisor[2]", "uint run_steps[4]"),
            *(f"uint {name}_strides[8]" for name in _BATCH_TENSORS),
            *(f"uint {name}_step" for name in _BATCH_TENSORS),
        ),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("RANK", 1),
            ("ITEMS", 1),
            ("RUNS", 0),
            ("ACTIVATION", 0),
            *((f"{name.upper()}_MODE", 0) for name in _BATCH_TENSORS),
        ),
        variants=(("LANES T U", _lanes((name, name) for name in _FLOATS)),),
    ),
    KernelSpec(
        "local_response_normalization",
        "local_response_normalization.comp",
        buffers=("x", "output:w"),
        params=(
            *("uint count", "uint sizes[4]", "uint divisors[8]", "uint inner_size"),
            *("uint before", "uint after", "float factor", "float beta", "float bias"),
            *(f"uint {name}_strides[4]" for name in ("x", "output", "a", "b")),
            *("uint x_step", "uint output_step", "uint ends[2]", "uint x_neighbour[2]", "uint output_neighbour"),
        ),
        constants=(("LOCAL_SIZE_X", 128), ("RANK", 1), ("ITEMS", 1), ("PLANE", 0), ("X_MODE", 0), ("OUTPUT_MODE", 0)),
        variants=(("LANES T U", _lanes((name, name) for name in _FLOATS)),),
    ),
    # -- regions of interest
    KernelSpec(
        "roi_align_columns",
        "roi_align_columns.comp",
        buffers=_ROI_BUFFERS,
        params=(*_ROI_PARAMS, "uint block_channels"),
        constants=(
            *_ROI_CONSTANTS,
            ("SAMPLES", 0),
            ("ROWS", 256),
            ("COLUMNS", 512),
            ("PARTIALS", 2048),
            ("OUTPUT_ROWS", 1),
        ),
        variants=(("T", _FLOATS),),
    ),
    KernelSpec(
        "roi_align_outputs",
        "roi_align_outputs.comp",
        buffers=_ROI_BUFFERS,
        params=(*_ROI_PARAMS, "uint outputs"),
        constants=(*_ROI_CONSTANTS, ("CHANNELS_FASTEST", 0)),
        variants=(("T", _FLOATS),),
    ),
    KernelSpec(
        "roi_pooling",
        "roi_pooling.comp",
        buffers=("input", "roi", "output:w"),
        params=(
            "uint outputs",
            *(f"uint {name}" for name in ("roi_count", "batch_count", "channels", "input_height", "input_width")),
            *("uint output_height", "uint output_width", "uint input_strides[4]", "uint output_strides[4]"),
            *("uint roi_stride", "uint coordinate_stride", "float scale"),
        ),
        constants=(("LOCAL_SIZE_X", 128), ("CHANNELS_FASTEST", 0)),
        variants=(("T", _FLOATS),),
    ),
    # -- resampling
    KernelSpec(
        "resample",
        "resample.comp",
        buffers=("x", "y:w"),
        params=_RESAMPLE_PARAMS,
        constants=(*_RESAMPLE_CONSTANTS, ("CORNERS", 1), ("COLUMNS", 0), ("UNITS", 1)),
        variants=(("LANES T", tuple(f"{n} {t}" for t in _RESAMPLE_TYPES for n in (1, group_lanes(_bits(t))))),),
    ),
    KernelSpec(
        "resample_whole",
        "resample_whole.comp",
        buffers=("x", "y:w"),
        params=_RESAMPLE_PARAMS,
        constants=(
            *_RESAMPLE_CONSTANTS,
            *(("CORNERS", 1), ("FACTOR", 2), ("STEP", 1), ("START", 0), ("LEFT", 0), ("UNITS", 1)),
        ),
        variants=(("LANES T", tuple(f"{group_lanes(_bits(t))} {t}" for t in _RESAMPLE_TYPES)),),
    ),
    KernelSpec(
        "resample_antialiased",
        "resample_antialiased.comp",
        buffers=("x", "y:w"),
        params=_RESAMPLE_PARAMS,
        constants=_RESAMPLE_CONSTANTS,
        variants=(("LANES T", tuple(f"{n} {t}" for t in _RESAMPLE_TYPES for n in (1, group_lanes(_bits(t))))),),
    ),
    # -- convolution and pooling
    KernelSpec(
        "pooling",
        "pooling.comp",
        buffers=_POOLING_BUFFERS,
        params=(*_POOLING_PARAMS, "float norm_order"),
        constants=(*_POOLING_CONSTANTS, ("FUNCTION", 2), ("NORM_ORDER", 1), ("INDEX_WORDS", 0), ("LINES", 1), ("TAPS", 1)),
        variants=(("T", _NUMERIC),),
    ),
    KernelSpec(
        "pooling_quantized",
        "pooling_quantized.comp",
        buffers=("input", "output:w", "input_scale", "input_zero_point", "output_scale", "output_zero_point"),
        params=(*_POOLING_PARAMS, "uint channels", "uint side_strides[4]"),
        constants=(
            *_POOLING_CONSTANTS,
            ("TAPS", 1),
            ("INPUT_SIGNED", 0),
            ("OUTPUT_SIGNED", 0),
            ("HAS_INPUT_ZERO_POINT", 1),
            ("HAS_OUTPUT_ZERO_POINT", 1),
        ),
        variants=(("T", ("UINT8",)),),
    ),
    KernelSpec(
        "max_unpooling",
        "max_unpooling.comp",
        buffers=("input", "indices", "output:w", "table:w"),
        params=(
            "uint count",
            "uint output_count",
            "uint input_sizes[4]",
            "uint input_divisors[8]",
            "uint input_strides[4]",
            "uint index_strides[4]",
            "uint output_sizes[4]",
            "uint output_divisors[8]",
            "uint output_strides[4]",
        ),
        constants=(("LOCAL_SIZE_X", 128), ("PHASE", 0), ("WORDS", 1), ("INDEX_WORDS", 1), ("IN_OUTPUT", 0)),
        variants=(("T", ("UINT8", "UINT16", "UINT32")),),
    ),
    KernelSpec(
        "pooling_lanes",
        "pooling_lanes.comp",
        buffers=_POOLING_BUFFERS,
        params=(
            "uint count",
            "uint sizes[5]",
            "uint divisors[10]",
            "uint lanes",
            "uint output_rows",
            "uint input_sizes[5]",
            "uint input_strides[5]",
            "uint output_strides[5]",
            "uint index_strides[5]",
            "uint start_padding[3]",
            "uint end_padding[3]",
            "uint window_depth",
            "uint depth_stride",
            "uint depth_dilation",
            "uint include_padding",
        ),
        constants=(
            ("LOCAL_SIZE_X", 128),
            ("FUNCTION", 2),
            ("INDEX_WORDS", 0),
            ("VOLUMES", 0),
            ("RANK", 5),
            ("CHANNELS", 0),
            ("ROWS", 1),
            ("WINDOW_H", 3),
            ("WINDOW_W", 3),
            ("STRIDE_H", 1),
            ("STRIDE_W", 1),
            ("SHIFT", 0),
            ("INSIDE", 0),
            ("ROWS_REPEAT", 0),
            ("INPUT_MODE", 0),
            ("OUTPUT_MODE", 0),
            ("INDEX_MODE", 0),
        ),
        variants=(("LANES T", _POOLING_LANES),),
    ),
    KernelSpec(
        "pooling_window",
        "pooling_window.comp",
        buffers=_POOLING_BUFFERS,
        params=(*_POOLING_PARAMS, "float norm_order"),
        constants=(*_POOLING_CONSTANTS, ("FUNCTION", 2), ("NORM_ORDER", 1), ("INDEX_WORDS", 0), ("LANES", 32)),
        variants=(("T", _NUMERIC),),
    ),
    KernelSpec(
        "convolution_naive",
        "convolution_naive.comp",
        buffers=("x", "w", "bias", "y:w"),
        params=(*_CONVOLUTION_PARAMS, "uint count"),
        constants=(("LOCAL_SIZE_X", 128), ("ACTIVATION", 0), ("HAS_BIAS", 1), ("HAS_DIVISOR", 1)),
        variants=(("T", _FLOATS),),
    ),
    KernelSpec(
        "convolution_direct",
        "convolution_direct.comp",
        buffers=("x", "w", "bias", "y:w"),
        params=(*_CONVOLUTION_PARAMS, "uint pixels", "uint group_blocks"),
        constants=(("LOCAL_SIZE_X", 64), ("ACTIVATION", 0), ("HAS_BIAS", 1), ("HAS_DIVISOR", 1), ("CHANNELS", 8)),
        variants=(("T", _FLOATS),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "convolution_depthwise",
        "convolution_depthwise.comp",
        buffers=("x", "w", "bias", "y:w"),
        params=(*_CONVOLUTION_PARAMS, "uint runs", "uint row_runs"),
        constants=(
            ("LOCAL_SIZE_X", 64),
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_DIVISOR", 0),
            ("PIXELS", 4),
            ("WINDOW_W", 3),
            ("STRIDE_W", 1),
            ("DILATION_W", 1),
        ),
        variants=(("T", _FLOATS),),
    ),
    KernelSpec(
        "convolution_tiled",
        "convolution_tiled.comp",
        buffers=("x", "w", "bias", "y:w"),
        params=(*_CONVOLUTION_PARAMS, "uint pixels"),
        constants=(
            ("LOCAL_SIZE_X", 16),
            ("LOCAL_SIZE_Y", 8),
            ("ACTIVATION", 0),
            ("HAS_BIAS", 1),
            ("HAS_DIVISOR", 1),
            ("THREAD_K", 4),
            ("THREAD_P", 4),
            ("TILE_C", 16),
        ),
        variants=(("T", _FLOATS),),
    ),
    # -- blocks of images
    KernelSpec(
        "fold",
        "fold.comp",
        buffers=("x", "y:w"),
        params=(
            *("uint count", "uint sizes[8]", "uint divisors[16]", "uint y_strides[8]", "uint x_kept[2]"),
            *(f"uint {name}[6]" for name in ("window", "blocks", "start_padding", "dilation", "inverse")),
            *(f"uint {name}[6]" for name in ("divisor", "tap_step", "block_step", "x_tap", "x_block")),
            *(f"uint {name}_divisors[12]" for name in ("stride", "divisor", "tap_step", "block_step")),
        ),
        constants=(
            *(("LOCAL_SIZE_X", 128), ("KEPT", 2), ("RANK", 4)),
            *(("STRIDED", 0), ("DILATED", 0), ("LINES", 1), ("TAPS", 1)),
        ),
        variants=(("T", _FLOATS),),
    ),
    KernelSpec(
        "unfold",
        "unfold.comp",
        buffers=("x", "output:w"),
        params=(
            *_ROW_PARAMS,
            *("uint x_start", "uint sizes[13]", "uint divisors[26]", "uint x_strides[13]", "uint output_strides[13]"),
            *("uint moves[13]", "uint start_padding[6]", "uint image_sizes[6]", "uint stride", "uint stride_divisor[2]"),
        ),
        constants=(*_ROW_CONSTANTS, ("KEPT", 2), ("SPATIAL", 2)),
        variants=(("ROWS T", _ROW_VARIANTS),),
    ),
    # -- matrix multiplication and softmax
    KernelSpec(
        "gemm_naive",
        "gemm_naive.comp",
        buffers=("a", "b", "c", "y:w"),
        params=(*_GEMM_PARAMS, "uint count"),
        constants=(("LOCAL_SIZE_X", 128), ("ACTIVATION", 0), ("HAS_C", 1)),
        variants=(("T", _FLOATS),),
    ),
    KernelSpec(
        "gemm_rows",
        "gemm_rows.comp",
        buffers=("a", "b", "c", "y:w"),
        params=_GEMM_PARAMS,
        constants=(("LOCAL_SIZE_X", 64), ("ACTIVATION", 0), ("HAS_C", 1), ("ROWS", 8)),
        variants=(("T", _FLOATS),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "gemm_tiled",
        "gemm_tiled.comp",
        buffers=("a", "b", "c", "y:w"),
        params=_GEMM_PARAMS,
        constants=(
            ("LOCAL_SIZE_X", 16),
            ("LOCAL_SIZE_Y", 8),
            ("ACTIVATION", 0),
            ("HAS_C", 1),
            ("THREAD_M", 4),
            ("THREAD_N", 4),
            ("TILE_K", 16),
            ("A_ALONG_K", 1),
            ("B_ALONG_K", 0),
        ),
        variants=(("T", _FLOATS),),
    ),
    KernelSpec(
        "gemm_vector",
        "gemm_vector.comp",
        buffers=("a", "b", "c", "y:w"),
        params=_GEMM_PARAMS,
        constants=(("LOCAL_SIZE_X", 128), ("ACTIVATION", 0), ("HAS_C", 1), ("ROWS", 1), ("LANES", 32), ("ALONG_K", 1)),
        variants=(("T", _FLOATS),),
    ),
    KernelSpec(
        "softmax",
        "softmax.comp",
        buffers=("x", "y:w"),
        params=_SOFTMAX_PARAMS,
        constants=(*_SOFTMAX_CONSTANTS, ("WHOLE", 0)),
        variants=(("T", _FLOATS), ("UNIT", ("0", "1", "2"))),
        extensions=_SUBGROUP_SUMS,
    ),
    KernelSpec(
        "softmax_split",
        "softmax_split.comp",
        buffers=("x", "y:w", "partials:w"),
        params=(*_SOFTMAX_PARAMS, "uint tiles", "uint chunks"),
        constants=_SOFTMAX_CONSTANTS,
        variants=(("T", _FLOATS), ("UNIT", ("0", "1", "2")), ("APPLY", ("0", "1"))),
        extensions=_SUBGROUP_SUMS,
    ),
    # -- running sums and products
    KernelSpec(
        "scan_rows",
        "scan_rows.comp",
        buffers=_SCAN_BUFFERS,
        params=_SCAN_PARAMS,
        constants=(*_SCAN_CONSTANTS, ("LANES", 1)),
        variants=(("T", _SCAN_TYPES), ("WORDS", ("0", "1"))),
        extensions=_SUBGROUP_SUMS,
    ),
    KernelSpec(
        "scan_columns",
        "scan_columns.comp",
        buffers=_SCAN_BUFFERS,
        params=_SCAN_PARAMS,
        constants=(*_SCAN_CONSTANTS, ("COLUMNS", 1)),
        variants=(("T", _SCAN_TYPES), ("WORDS", ("0",))),
        extensions=_SUBGROUP_SUMS,
    ),
    # -- largest and smallest elements
    KernelSpec(
        "top_k_sort",
        "top_k_sort.comp",
        buffers=_TOP_K_BUFFERS,
        params=(*_TOP_K_PARAMS, "uint row_size", "uint side_by_side"),
        constants=(*_TOP_K_CONSTANTS, ("SEGMENT", 512)),
        variants=(("T HALVES", _TOP_K_TYPES),),
        extensions=_SUBGROUP_SUMS,
    ),
    KernelSpec(
        "top_k_select",
        "top_k_select.comp",
        buffers=(*_TOP_K_BUFFERS, "origins"),
        params=(*_TOP_K_PARAMS, "uint units", "uint chunks", "uint position_shift"),
        constants=(*_TOP_K_CONSTANTS, ("UNITS", 1), ("PHASE", 0)),
        variants=(("T HALVES", _TOP_K_TYPES), ("WORDS", ("0", "1"))),
        extensions=_SUBGROUP_SUMS,
    ),
    KernelSpec(
        "top_k_memory",
        "top_k_memory.comp",
        buffers=(*_TOP_K_BUFFERS, "entries:w"),
        params=(*_TOP_K_PARAMS, "uint row_size", "uint first_row", "uint items", "uint mirrored", "uint reach"),
        constants=(*_TOP_K_CONSTANTS, ("PHASE", 0)),
        variants=(("T HALVES", _TOP_K_TYPES),),
        extensions=_SUBGROUP_SUMS,
    ),
    # -- quantization
    KernelSpec(
        "quantize",
        "quantize.comp",
        buffers=("x", "scale", "zero_point", "output:w"),
        params=_QUANTIZATION_PARAMS,
        constants=(*_QUANTIZATION_CONSTANTS, ("PACKED", 1)),
        variants=(("LANES T S U", tuple(f"{n} {t} {s} UINT8" for t, s in _QUANTIZE_TYPES for n in (1, 16))),),
    ),
    KernelSpec(
        "quantization_range",
        "quantization_range.comp",
        buffers=("output:w", "zero_point:w", "partials"),
        params=(*_ACCUMULATOR_PARAMS, "uint chunks"),
        constants=(("LOCAL_SIZE_X", 128), ("FUNCTION", 256), ("TEAM", 128), ("SIGNED", 0)),
        variants=(("LANES T U", ("1 FLOAT32 UINT8",)),),
        extensions=("GL_KHR_shader_subgroup_shuffle",),
    ),
    KernelSpec(
        "quantize_to_4_bits",
        "quantize.comp",
        buffers=("x", "scale", "zero_point", "output:w"),
        params=_QUANTIZATION_PARAMS,
        constants=(*_QUANTIZATION_CONSTANTS, ("PACKED", 1)),
        variants=(("LANES T S", tuple(f"{group_lanes(_bits(t), 4)} {t} {s}" for t, s in _QUANTIZE_TYPES[:2])),),
    ),
    KernelSpec(
        "dequantize",
        "dequantize.comp",
        buffers=("x", "scale", "zero_point", "output:w"),
        params=_QUANTIZATION_PARAMS,
        constants=_QUANTIZATION_CONSTANTS,
        variants=(
            (
                "LANES T S U",
                tuple(
                    f"{n} {t} {t} {u}"
                    for t in _FLOATS
                    for u in ("UINT32", "UINT16", "UINT8")
                    for n in (1, group_lanes(_bits(t), _bits(u)))
                ),
            ),
        ),
    ),
    KernelSpec(
        "dequantize_from_4_bits",
        "dequantize.comp",
        buffers=("x", "scale", "zero_point", "output:w"),
        params=_QUANTIZATION_PARAMS,
        constants=_QUANTIZATION_CONSTANTS,
        variants=(("LANES T S", tuple(f"{n} {t} {t}" for t in _FLOATS for n in (1, group_lanes(_bits(t), 4)))),),
    ),
    # -- fills
    KernelSpec(
        "fill_value_constant",
        "fill_value_constant.comp",
        buffers=("output:w",),
        params=(*_FILL_PARAMS, "uint value[2]"),
        constants=_FILL_CONSTANTS,
        variants=_FILL_VARIANTS,
    ),
    KernelSpec(
        "fill_value_sequence",
        "fill_value_sequence.comp",
        buffers=("output:w",),
        params=(*_FILL_PARAMS, "uint start[2]", "uint delta[2]"),
        constants=(*_FILL_CONSTANTS, ("ARITHMETIC", 0)),
        variants=_FILL_VARIANTS,
    ),
    KernelSpec(
        "diagonal_matrix",
        "diagonal_matrix.comp",
        buffers=("input", "output:w"),
        params=(*_FILL_PARAMS, "uint value[2]", "uint begin", "uint end"),
        constants=(*_FILL_CONSTANTS, ("HAS_INPUT", 0), ("OUTSIDE", 0)),
        variants=_FILL_VARIANTS,
    ),
    KernelSpec(
        "one_hot",
        "one_hot.comp",
        buffers=("indices", "values", "output:w"),
        params=(*_FILL_PARAMS, "uint axis_size", "uint on"),
        constants=(*_FILL_CONSTANTS, ("INDEX_WORDS", 1), ("INDEX_SIGNED", 0)),
        variants=_FILL_VARIANTS,
    ),
    # -- copies
    KernelSpec(
        "copy",
        "copy.comp",
        buffers=("x", "output:w"),
        params=(
            *_ROW_PARAMS,
            *("uint x_start", "uint output_start", "uint sizes[16]", "uint divisors[32]"),
            *("uint x_strides[16]", "uint output_strides[16]"),
        ),
        constants=(*_ROW_CONSTANTS, ("RANK", 1)),
        variants=(("ROWS T", _ROW_VARIANTS),),
    ),
    KernelSpec(
        "padding",
        "padding.comp",
        buffers=("x", "output:w"),
        params=(
            *_ROW_PARAMS,
            *("uint x_start", "uint first", "uint last", "uint sizes[8]", "uint divisors[16]"),
            *("uint x_strides[8]", "uint output_strides[8]"),
            *("uint low[9]", "uint high[9]", "uint shift[9]"),
            *("uint period[9]", "uint period_divisors[18]", "uint mirror[9]"),
        ),
        constants=(*_ROW_CONSTANTS, ("RANK", 1), ("PADDED", 0), ("FILLED", 1)),
        variants=(("ROWS T", _ROW_VARIANTS),),
    ),
    KernelSpec(
        "reverse_subsequences",
        "reverse_subsequences.comp",
        buffers=("lengths", "x", "output:w"),
        params=(
            *_ROW_PARAMS,
            *("uint sizes[8]", "uint divisors[16]", "uint x_strides[8]", "uint output_strides[8]", "uint length_strides[8]"),
        ),
        constants=(*_ROW_CONSTANTS, ("RANK", 1), ("AXIS", 0), ("LENGTH_WORDS", 1)),
        variants=(("ROWS T", _ROW_VARIANTS),),
    ),
    KernelSpec(
        "gather",
        "gather.comp",
        buffers=("x", "indices", "output:w"),
        params=(
            *_ROW_PARAMS,
            *("uint sizes[8]", "uint divisors[16]", "uint x_strides[8]", "uint index_strides[8]", "uint output_strides[8]"),
            *("uint index_step", "uint chosen_sizes[8]", "uint chosen_strides[8]"),
        ),
        constants=(*_ROW_CONSTANTS, ("RANK", 1), ("TUPLE", 1), ("INDEX_WORDS", 1), ("INDEX_SIGNED", 0)),
        variants=(("ROWS T", _ROW_VARIANTS),),
    ),
    # -- scatters
    KernelSpec(
        "scatter_mark",
        "scatter_mark.comp",
        buffers=("indices", "table:w"),
        params=(
            *_SCATTER_PARAMS,
            *("uint sizes[8]", "uint divisors[16]", "uint index_strides[8]", "uint entry_strides[8]"),
            "uint position_strides[8]",
        ),
        constants=(*_SCATTER_CONSTANTS, ("PHASE", 0)),
    ),
    KernelSpec(
        "scatter_write",
        "scatter_write.comp",
        buffers=("indices", "updates", "table", "output:w"),
        params=(
            *_SCATTER_PARAMS,
            *("uint chosen_outputs[8]", "uint sizes[8]", "uint divisors[16]", "uint index_strides[8]"),
            *("uint update_strides[8]", "uint output_strides[8]", "uint entry_strides[8]", "uint position_strides[8]"),
        ),
        constants=(*_SCATTER_CONSTANTS, ("TABLE", 1)),
        variants=(("T", _UNITS),),
    ),
    KernelSpec(
        "scatter_merge",
        "scatter_merge.comp",
        buffers=("input", "updates", "table", "output:w"),
        params=(
            *("uint count", "uint sizes[8]", "uint divisors[16]", "uint input_strides[8]", "uint update_strides[8]"),
            *("uint output_strides[8]", "uint entry_strides[8]"),
            *("uint update_sizes[8]", "uint update_divisors[16]", "uint update_places[8]"),
        ),
        constants=(("LOCAL_SIZE_X", 128), ("ITEMS", 1), ("RANK", 1), ("UPDATE_RANK", 1)),
        variants=(("T", _UNITS),),
    ),
    # -- compaction
    KernelSpec(
        "nonzero_whole",
        "nonzero_whole.comp",
        buffers=("x", "count:w", "coordinates:w"),
        params=(*_NONZERO_MASK_PARAMS, *_NONZERO_ROW_PARAMS),
        constants=(*_NONZERO_MASK_CONSTANTS, ("CAPACITY", 2048)),
        variants=_NONZERO_MASK_VARIANTS,
        extensions=_SUBGROUP_SUMS,
    ),
    KernelSpec(
        "nonzero_masks",
        "nonzero_masks.comp",
        buffers=("x", "masks:w", "counts:w"),
        params=(*_NONZERO_MASK_PARAMS, "uint chunks", "uint chunk_units"),
        constants=_NONZERO_MASK_CONSTANTS,
        variants=_NONZERO_MASK_VARIANTS,
        extensions=_SUBGROUP_SUMS,
    ),
    KernelSpec(
        "nonzero_write",
        "nonzero_write.comp",
        buffers=("masks", "counts", "count:w", "coordinates:w"),
        params=(*_NONZERO_ROW_PARAMS, "uint masks", "uint chunks", "uint chunk_masks"),
        constants=(("LOCAL_SIZE_X", 128), ("CAPACITY", 2048)),
        extensions=_SUBGROUP_SUMS,
    ),
    # -- random numbers
    KernelSpec(
        "random_philox",
        "random_philox.comp",
        buffers=("state", "output:w", "output_state:w"),
        params=(
            *("uint elements", "uint blocks", "uint sizes[8]", "uint divisors[16]", "uint strides[8]"),
            *("uint state_step", "uint output_state_step"),
        ),
        constants=(("LOCAL_SIZE_X", 128), ("UNITS", 1), ("RANK", 1), ("HAS_OUTPUT_STATE", 0)),
        variants=(("WORDS", ("0", "1")),),
    ),
)

KERNELS: dict[str, KernelSpec] = {row.name: row for row in _ROWS}
"""Every kernel by name."""
