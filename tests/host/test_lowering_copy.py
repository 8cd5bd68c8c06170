"""Copies, and the operators that are copies, as plans."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import BlockCopy, Dispatch, Launch, Range, Source, input_range, output_range
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.copy.lowering import _sectors, copy, copy_problem
from dmlvk.kernels.copy.rules import COPY, words_pay
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec import ops
from dmlvk.spec.enums import DepthSpaceOrder, TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, packed_strides

FLOAT32, FLOAT16, INT8, INT64 = (TensorDataType[name] for name in ("FLOAT32", "FLOAT16", "INT8", "INT64"))
GPU = Capabilities(workgroup_invocations=1024, features=frozenset({"storage8", "storage16"}))
CPU = dataclasses.replace(GPU, is_cpu=True)


def identity(
    data_type: TensorDataType, sizes: tuple[int, ...], source: Any = None, target: Any = None
) -> ops.ElementWiseIdentity:
    x, output = TensorDesc(data_type, sizes, source), TensorDesc(data_type, sizes, target)
    return ops.ElementWiseIdentity(input_tensor=x, output_tensor=output)


def chosen(desc: OperatorDesc, caps: Capabilities = GPU) -> str:
    desc.validate()
    return next(rule.name for rule, holds in explain(desc, caps) if holds)


def only(desc: OperatorDesc, caps: Capabilities = GPU, force: str = "") -> Launch:
    desc.validate()
    (launch,) = lower(desc, caps, force=force).dispatches
    return launch


def dispatch(desc: OperatorDesc, caps: Capabilities = GPU, force: str = "") -> Dispatch:
    launch = only(desc, caps, force)
    assert isinstance(launch, Dispatch)
    return launch


def variant(launch: Dispatch) -> tuple[str, str]:
    """ROWS and T."""
    pairs = dict(launch.kernel.variant)
    return pairs["ROWS"], pairs["T"]


def parameter(launch: Dispatch, name: str) -> tuple[int, ...]:
    offset = 0
    for member in KERNELS[launch.kernel.kernel].members:
        length = max(member.length, 1)
        if member.name == name:
            words = launch.params[offset : offset + 4 * length]
            return tuple(int.from_bytes(words[i : i + 4], "little") for i in range(0, len(words), 4))
        offset += 4 * length
    raise KeyError(name)


def test_what_is_contiguous_in_both_is_a_copy_command_on_a_cpu_and_a_kernel_elsewhere() -> None:
    desc = identity(INT8, (3, 15))
    assert only(desc, CPU) == BlockCopy((Range(Source.INPUT, 0, 0, 45), Range(Source.OUTPUT, 0, 0, 45)))
    assert chosen(desc) == "rows"


def test_blocks_of_any_length_share_a_pipeline() -> None:
    for data_type, unit in ((INT8, "UINT8"), (FLOAT16, "UINT16"), (INT64, "UINT32")):
        made = {dispatch(identity(data_type, sizes)).kernel for sizes in ((1,), (5,), (4, 8), (3, 1, 64))}
        assert len(made) == 1
        assert dict(made.pop().variant) == {"ROWS": "1", "T": unit}


@pytest.mark.parametrize(("source", "target"), [("INT8", "UINT8"), ("UINT64", "INT64"), ("FLOAT16", "FLOAT16")])
def test_a_cast_that_keeps_all_bits_is_a_copy(source: str, target: str) -> None:
    tensors = [TensorDesc(TensorDataType[name], (5, 3)) for name in (source, target)]
    assert dispatch(ops.Cast(input_tensor=tensors[0], output_tensor=tensors[1])).kernel.kernel == "copy"


@pytest.mark.parametrize("data_type", ops.ElementWiseIdentity.fields[0].data_types, ids=lambda data_type: data_type.name)
def test_copies_need_no_arithmetic_features(data_type: TensorDataType) -> None:
    for rule in ("rows", "units"):
        assert dispatch(identity(data_type, (5, 3), (3, 1), (4, 1)), force=rule).kernel.kernel == "copy"


def test_copy_is_there_for_other_lowerings() -> None:
    made = copy(input_range(1), output_range(), FLOAT16, (3, 4), ((1, 3), (4, 1)), GPU)
    assert made.bindings == (input_range(1), Range(Source.OUTPUT, 0, 0, 3 * 4 * 2))


# -- the width of a unit


@pytest.mark.parametrize(
    ("data_type", "sizes", "source", "unit"),
    [
        (INT8, (3, 16), (32, 1), "BITS128"),
        (INT8, (3, 8), (24, 1), "BITS64"),
        (INT8, (3, 12), (36, 1), "UINT32"),
        (INT8, (3, 6), (36, 1), "UINT16"),
        (INT8, (3, 6), (35, 1), "UINT8"),
        (FLOAT16, (3, 8), (0, 1), "BITS128"),
        (INT64, (3, 3), (4, 1), "BITS64"),
        (INT64, (3, 2), (4, 1), "BITS128"),
        (FLOAT32, (3, 8), (16, 2), "UINT32"),
    ],
)
def test_units_are_as_wide_as_every_place_allows(
    data_type: TensorDataType, sizes: tuple[int, ...], source: tuple[int, ...], unit: str
) -> None:
    assert variant(dispatch(identity(data_type, sizes, source), force="units")) == ("0", unit)


def test_a_start_narrows_units_too() -> None:
    for start, unit in ((0, 128), (4, 64), (2, 32), (1, 16)):
        assert copy_problem(16, (3, 8), ((16, 1), (8, 1)), (start, 0)).bits == unit
        assert copy_problem(16, (3, 8), ((16, 1), (8, 1)), (0, start)).bits == unit


def test_rows_move_at_most_32_bits_a_unit() -> None:
    launch = dispatch(identity(INT64, (3, 5), (6, 1)), force="rows")
    assert variant(launch) == ("1", "UINT32")
    assert parameter(launch, "inner_size") == (10,)
    assert parameter(launch, "count") == (-(-3 * 10 // 4),)


# -- rules


def test_more_dimensions_around_rows_make_words_pay_earlier() -> None:
    """A word finds its place once, 129 single elements do it 129 times."""
    for sizes, rule in (((64, 129), "units"), ((4, 4, 4, 4, 129), "rows")):
        gaps = tuple(step + 3 * (len(sizes) - axis) for axis, step in enumerate(packed_strides(sizes)[:-1]))
        assert chosen(identity(FLOAT32, sizes, (*gaps, 1))) == rule


@pytest.mark.parametrize(
    ("data_type", "least", "of_a_cpu"),
    [(INT8, 25, 17), (FLOAT16, 25, 9), (FLOAT32, 193, 5), (INT64, None, 3)],
    ids=lambda value: getattr(value, "name", None),
)
def test_rows_are_moved_in_words_from_a_length_on(data_type: TensorDataType, least: int | None, of_a_cpu: int) -> None:
    """The shortest odd rows of so many elements; on a GPU never those of 8 bytes."""
    for caps, first in ((GPU, least), (CPU, of_a_cpu)):
        rules = {size: chosen(identity(data_type, (5, size), (size + 2, 1)), caps) for size in range(1, 1001, 2)}
        assert [size for size, rule in rules.items() if rule == "rows"] == list(range(first or 1001, 1001, 2))


@pytest.mark.parametrize(
    ("sizes", "source", "target", "rule"),
    [
        ((64, 64), (64, 1), (1, 64), "tiles"),
        ((64, 4), (1, 64), (4, 1), "strips_shared"),
        ((64, 16), (1, 64), (16, 1), "strips_shared"),
        ((64, 17), (1, 64), (17, 1), "tiles"),
        ((64, 4), (1, 64), (8, 2), "units"),
        ((64, 195), (196, 1), None, "rows"),
        ((64, 195), (195, 1), (196, 1), "rows"),
        ((64, 196), (200, 1), (208, 1), "units"),
        ((64, 195), (390, 2), None, "units"),
        ((64, 67), (68, 1), None, "units"),
    ],
)
def test_layouts_choose(sizes: tuple[int, ...], source: Any, target: Any, rule: str) -> None:
    assert chosen(identity(FLOAT32, sizes, source, target)) == rule


def test_a_transpose_goes_through_tiles_but_on_a_cpu() -> None:
    desc = identity(FLOAT16, (3, 100, 80), (100 * 80, 1, 100))
    made = dispatch(desc)
    assert made.kernel.kernel == "elementwise_unary_tiles"
    assert math.prod(made.grid) == 3 * 2 * 2
    assert dict(made.kernel.constants)["ROW_DIMENSION"] == 1
    assert variant(dispatch(desc, CPU)) == ("0", "UINT16")


# -- strips


def channels(data_type: TensorDataType, count: int, pixels: int, last_to_first: bool = True) -> ops.ElementWiseIdentity:
    """Two images whose channels become first, or last."""
    first, last = (count * pixels, pixels, 1), (count * pixels, 1, count)
    return identity(data_type, (2, count, pixels), *((last, first) if last_to_first else (first, last)))


@pytest.mark.parametrize(
    ("data_type", "pixels", "bits", "word"),
    [
        (INT8, 48, "8", "BITS128"),
        (INT8, 40, "8", "BITS64"),
        (INT8, 12, "8", "UINT32"),
        (INT8, 6, "8", "UINT16"),
        (INT8, 7, "8", "UINT8"),
        (FLOAT16, 24, "16", "BITS128"),
        (FLOAT16, 7, "16", "UINT16"),
        (FLOAT32, 6, "32", "BITS64"),
        (INT64, 6, "64", "BITS128"),
        (INT64, 7, "64", "BITS64"),
    ],
)
@pytest.mark.parametrize("last_to_first", [True, False])
def test_strips_move_in_words_on_which_runs_start(
    data_type: TensorDataType, pixels: int, bits: str, word: str, last_to_first: bool
) -> None:
    made = dispatch(channels(data_type, 3, pixels, last_to_first), force="strips")
    assert dict(made.kernel.variant) == {"BITS": bits, "T": word}
    assert dict(made.kernel.constants)["INTERLEAVES"] == int(not last_to_first)
    units = int(word.removeprefix("UINT").removeprefix("BITS")) // int(bits)
    assert parameter(made, "count") == (2 * pixels // units,)
    assert parameter(made, "run_step") == (pixels // units,)
    runs, strips = ("output_strides", "x_strides") if last_to_first else ("x_strides", "output_strides")
    assert (parameter(made, runs)[1], parameter(made, strips)[1]) == (1, 3)


def test_strips_need_no_arithmetic_features_beyond_their_word() -> None:
    made = dispatch(channels(INT8, 3, 16), force="strips")
    assert KERNELS["copy_strips"].required_features(made.kernel.variant) == ()


def test_strips_narrower_than_4_bytes_are_moved_by_units_but_on_a_cpu() -> None:
    narrow = channels(INT8, 3, 18)
    assert (chosen(narrow), chosen(narrow, CPU)) == ("units", "strips")
    assert (chosen(channels(INT8, 3, 20)), chosen(channels(INT8, 3, 20), CPU)) == ("strips_shared", "strips")


@pytest.mark.parametrize(("count", "possible"), [(2, True), (16, True), (17, False)])
def test_a_strip_interleaves_at_most_16(count: int, possible: bool) -> None:
    found = possible_rules(channels(INT8, count, 32), GPU)
    assert ("strips" in found) == ("strips_shared" in found) == possible


def test_a_start_or_an_outer_step_narrows_a_strips_words() -> None:
    def word(start: int, outer: int) -> int:
        strip = copy_problem(8, (5, 3, 64), ((outer, 1, 3), (192, 64, 1)), (start, 0)).strip
        assert strip is not None
        return strip.word_bits

    assert [word(0, 192), word(8, 192), word(0, 196), word(2, 192), word(0, 193)] == [128, 64, 32, 16, 8]


def test_units_of_several_elements_have_strips_too() -> None:
    """Pairs of float16: what is left of their dimension has one unit, whose step does not matter."""
    problem = copy_problem(16, (3, 64, 2), ((2, 6, 1), (128, 2, 1)))
    assert problem.bits == 32
    assert problem.strip is not None and problem.strip.word_bits == 128


def test_a_run_that_goes_back_is_a_run() -> None:
    strip = copy_problem(32, (64, 3), ((1, -64), (3, 1)), (128, 0)).strip
    assert strip is not None and (strip.size, strip.interleaves) == (3, True)


@pytest.mark.parametrize("count", range(2, 17))
def test_a_workgroups_strips_fit_the_least_shared_memory(count: int) -> None:
    least = Capabilities()
    for data_type in (INT8, FLOAT32, INT64):
        constants = dict(dispatch(channels(data_type, count, 64), least, "strips_shared").kernel.constants)
        workgroup = int(constants["LOCAL_SIZE_X"])
        assert workgroup % 32 == 0 and workgroup <= least.workgroup_invocations
        assert (workgroup * count * 9 // 8 + 1) * 16 + workgroup * 4 <= least.shared_memory_bytes


# -- rows


def test_rows_of_a_packed_output_are_one_line_of_words() -> None:
    packed = dispatch(identity(FLOAT16, (64, 67), (68, 1)))
    apart = dispatch(identity(FLOAT16, (64, 67), None, (68, 1)))
    assert [dict(made.kernel.constants)["PACKED"] for made in (packed, apart)] == [1, 0]
    assert parameter(packed, "count") == (64 * 67 // 8,)
    assert parameter(apart, "count") == (64 * parameter(apart, "row_words")[0],)


@pytest.mark.parametrize("size", range(2, 40))
def test_a_row_touches_at_most_row_words(size: int) -> None:
    """8-bit units, rows that start anywhere."""
    made = dispatch(identity(INT8, (3, size), None, (51, 1)), force="rows")
    assert variant(made) == ("1", "UINT8")
    assert parameter(made, "row_words") == (max((start + size - 1) // 16 + 1 for start in range(16)),)


def test_pieces_of_a_packed_output_bind_only_their_bytes() -> None:
    """Joined pieces that bind only their own bytes have no barrier between them."""
    parts = (TensorDesc(FLOAT16, (3, 8), (9, 1)), TensorDesc(FLOAT16, (2, 8), (9, 1)))
    desc = ops.Join(input_tensors=parts, output_tensor=TensorDesc(FLOAT16, (5, 8)), axis=0)
    for rule in ("rows", "units"):
        first, second = lower(desc, GPU, force=rule).dispatches
        assert first.bindings[1] == Range(Source.OUTPUT, 0, 0, 3 * 16)
        assert second.bindings[1] == Range(Source.OUTPUT, 0, 3 * 16, 2 * 16)


# -- operators


def test_an_identity_slice_is_a_block() -> None:
    x = TensorDesc(FLOAT32, (4, 6))
    whole = ops.Slice1(
        input_tensor=x,
        output_tensor=TensorDesc(FLOAT32, (2, 6)),
        input_window_offsets=(1, 0),
        input_window_sizes=(2, 6),
        input_window_strides=(1, 1),
    )
    assert only(whole, CPU) == BlockCopy((Range(Source.INPUT, 0, 24, 48), Range(Source.OUTPUT, 0, 0, 48)))


def test_a_negative_stride_starts_at_the_windows_end() -> None:
    desc = ops.Slice1(
        input_tensor=TensorDesc(FLOAT32, (4, 6)),
        output_tensor=TensorDesc(FLOAT32, (2, 3)),
        input_window_offsets=(1, 1),
        input_window_sizes=(3, 5),
        input_window_strides=(-2, -2),
    )
    made = dispatch(desc)
    assert parameter(made, "x_start") == (3 * 6 + 5,)
    assert parameter(made, "x_step") == (2**32 - 2,)


def test_blocks_side_by_side_are_read_in_the_inputs_order() -> None:
    """Neighbours of the space tensor go to two places of the depth tensor, less memory than every other neighbour."""
    space, depth = TensorDesc(FLOAT32, (1, 2, 8, 64)), TensorDesc(FLOAT32, (1, 8, 4, 32))
    order = DepthSpaceOrder.DEPTH_COLUMN_ROW
    gathers = ops.SpaceToDepth1(input_tensor=space, output_tensor=depth, block_size=2, order=order)
    spreads = ops.DepthToSpace1(input_tensor=depth, output_tensor=space, block_size=2, order=order)
    for desc in (gathers, spreads):
        assert parameter(dispatch(desc, force="units"), "inner_size") == (2,)


@pytest.mark.parametrize(("data_type", "beside"), [(FLOAT32, True), (FLOAT16, False)])
def test_joined_pieces_run_beside_each_other(data_type: TensorDataType, beside: bool) -> None:
    """Their ranges overlap, their elements do not; but half a word of one may lie in a word of another."""
    parts = tuple(TensorDesc(data_type, (64, size)) for size in (3, 5, 1))
    desc = ops.Join(input_tensors=parts, output_tensor=TensorDesc(data_type, (64, 9)), axis=1)
    launches = lower(desc, GPU).dispatches
    assert [isinstance(launch, Dispatch) and launch.beside_previous for launch in launches] == [False, beside, beside]


def test_every_piece_is_copied_by_the_rule_that_suits_it() -> None:
    parts = tuple(TensorDesc(FLOAT32, (64, size)) for size in (256, 1))
    desc = ops.Join(input_tensors=parts, output_tensor=TensorDesc(FLOAT32, (64, 257)), axis=1)
    large, small = lower(desc, GPU).dispatches
    assert isinstance(large, Dispatch) and isinstance(small, Dispatch)
    assert (variant(large)[0], variant(small)[0]) == ("1", "0")
    for piece, name in ((256, "rows"), (1, "units")):
        problem = copy_problem(32, (64, piece), ((piece, 1), (257, 1)))
        assert choose(COPY, problem, GPU).name == name


def test_a_tile_reads_each_element_for_every_repeat() -> None:
    x = TensorDesc(FLOAT32, (3, 8))
    made = dispatch(ops.Tile(input_tensor=x, output_tensor=TensorDesc(FLOAT32, (6, 24)), repeats=(2, 3)))
    assert variant(made) == ("0", "BITS128")
    assert parameter(made, "count") == (6 * 24 // 4,)
    assert parameter(made, "sizes")[:3] == (2, 3, 3)
    assert parameter(made, "x_strides")[:3] == (0, 2, 0)


def test_eight_dimensions_tiled_and_strided_fit_the_parameters() -> None:
    sizes = (2,) * 8
    x = TensorDesc(INT64, sizes, tuple(3 * step for step in packed_strides(sizes)))
    desc = ops.Tile(input_tensor=x, output_tensor=TensorDesc(INT64, tuple(3 * size for size in sizes)), repeats=(3,) * 8)
    assert parameter(dispatch(desc), "count") == (6**8,)


@pytest.mark.parametrize(
    ("bits", "around", "least"),
    [
        *((8, around, 24) for around in (0, 3)),
        *((16, around, least) for around, least in enumerate((48, 48, 48, 32, 32))),
        *((32, around, least) for around, least in enumerate((768, 768, 768, 512, 256, 256))),
    ],
)
def test_rows_are_moved_in_words_from_so_many_bytes_on(bits: int, around: int, least: int) -> None:
    assert words_pay(bits, least, around, Capabilities())
    assert not words_pay(bits, least - 1, around, Capabilities())


@pytest.mark.parametrize(
    ("bits", "sizes", "steps", "sectors"),
    [
        (32, (64,), (1,), 4),
        (32, (64,), (7,), 28),
        (32, (64,), (8,), 32),
        (32, (64,), (0,), 1),
        (8, (100, 4), (64, 1), 8),
        (8, (100, 4), (4, 1), 1),
    ],
)
def test_32_neighbours_touch_sectors_of_32_bytes(
    bits: int, sizes: tuple[int, ...], steps: tuple[int, ...], sectors: int
) -> None:
    assert _sectors(bits, sizes, (steps, steps)) == 2 * sectors


def test_strips_are_of_units_up_to_64_bits() -> None:
    problem = copy_problem(64, (3, 1000), ((1, 3), (1000, 1)))
    assert problem.bits == 64 and problem.strip is not None
    assert dataclasses.replace(problem, bits=128).strip is None
