"""Numbers of rules that no line of tests/data/choices.txt turns on: each is tried on both sides."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import choices
import pytest

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.block_quantized.rules import (
    BLOCK_GEMM,
    NORMALIZED_BLOCK_GEMM,
    BlockProblem,
    NormalizedProblem,
    StripParts,
    matrix_parts,
    strip_parts,
)
from dmlvk.kernels.common.rule import Rule
from dmlvk.kernels.common.shapes import Coalesced
from dmlvk.kernels.convolution.rules import CONVOLUTION
from dmlvk.kernels.elementwise.rules import tiles_pay
from dmlvk.kernels.integer.rules import INTEGER, IntegerProblem
from dmlvk.kernels.linear_attention.rules import LinearAttentionProblem
from dmlvk.kernels.lowering import explain
from dmlvk.kernels.normalization_gradient.rules import BatchGradientProblem
from dmlvk.kernels.pooling.rules import POOLING
from dmlvk.kernels.recurrent.rules import RecurrentProblem, block_shape, most_lanes, most_steps
from dmlvk.kernels.reduction.rules import ReductionProblem
from dmlvk.kernels.root_mean_square.rules import RootMeanSquareProblem
from dmlvk.kernels.scatter.rules import ScatterProblem
from dmlvk.kernels.softmax.lowering import _words_anywhere
from dmlvk.kernels.softmax.rules import SoftmaxProblem, SoftmaxUnit

GPU = Capabilities(
    features=Capabilities().features | SUBGROUPS | {"storage16", "subgroup_shuffle"},
    subgroup_size=32,
    minimum_subgroup_size=32,
    workgroup_invocations=1024,
    shared_memory_bytes=49152,
    storage_buffer_bytes=2**32 - 1,
    model=H200,
)
SHARE = H200.invocations(1 / 8)


def named(rules: tuple[Rule, ...], name: str) -> Rule:
    return next(rule for rule in rules if rule.name == name)


@pytest.mark.parametrize(
    ("apart", "window", "outputs", "holds"),
    [
        (8, 128, 10**9, True),
        (7, 128, 10**9, False),
        (0, 128, 10**9, True),  # one output a row
        (8, 127, 10**9, False),
        (8, 32, SHARE, True),
        (8, 31, SHARE, False),
        (8, 32, SHARE + 1, False),
    ],
)
def test_outputs_share_their_windows_where_these_are_large_or_few(
    apart: int, window: int, outputs: int, holds: bool
) -> None:
    assert SHARE == 128 * 2048 // 8
    problem = SimpleNamespace(rows_contiguous=True, apart=apart, window=window, outputs=outputs)
    assert named(POOLING, "window").when(problem, GPU) == holds


@pytest.mark.parametrize(("rows", "columns", "pays"), [(16, 16, True), (15, 1000, False), (1000, 15, False)])
def test_turned_tensors_go_in_tiles_that_are_half_full_at_least(rows: int, columns: int, pays: bool) -> None:
    walk, turned = SimpleNamespace(sizes=(rows, 3, columns)), SimpleNamespace(row=0)
    assert tiles_pay(SimpleNamespace(walk=walk, turned=turned)) == pays  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "lanes"), [(16, 1), (17, 2), (32, 2), (33, 4), (128, 8), (4096, 32)])
def test_a_column_of_a_state_is_shared_until_each_holds_sixteen_elements(size: int, lanes: int) -> None:
    assert LinearAttentionProblem(heads=1, rows=1, group=1, size=size, value_size=64).lanes(GPU) == lanes


def test_channels_of_any_length_are_normalized_in_runs_with_one_dimension_before_them() -> None:
    x, each = TensorDesc(TensorDataType.FLOAT32, (1, 8, 7, 7)), TensorDesc(TensorDataType.FLOAT32, (1, 8, 1, 1))
    desc = dmlvk.BatchNormalization(
        input_tensor=x, mean_tensor=each, variance_tensor=each, scale_tensor=each, bias_tensor=each, output_tensor=x,
        spatial=True, epsilon=1e-5,
    )  # fmt: skip
    assert next(rule.name for rule, holds in explain(desc, GPU) if holds) == "runs"


def test_rows_side_by_side_take_64_registers_of_a_gradient() -> None:
    """16 units of one element's word, or 8 of words with several."""
    for across, units in ((1, 16), (4, 8)):
        assert BatchGradientProblem.column_units(SimpleNamespace(across=across)) == units  # type: ignore[arg-type]


LSTM = RecurrentProblem(
    gates=4, products=1, directions=1, steps=10, batch=2, inputs=3, hidden=256, divisible=True, halves=False, bounded=True
)  # fmt: skip


def test_a_step_of_a_recurrent_network_needs_the_larger_of_its_input_and_of_its_products() -> None:
    assert LSTM.sequence_bytes == LSTM.step_bytes == 4 * 2 * 4 * 256
    assert dataclasses.replace(LSTM, inputs=10000).sequence_bytes == 4 * 2 * 10000


@pytest.mark.parametrize(("subgroup", "hidden", "lanes"), [(32, 256, 32), (64, 256, 32), (16, 256, 16), (64, 16, 4)])
def test_up_to_32_invocations_share_a_unit(subgroup: int, hidden: int, lanes: int) -> None:
    caps = dataclasses.replace(GPU, minimum_subgroup_size=subgroup, subgroup_size=subgroup)
    assert most_lanes(dataclasses.replace(LSTM, hidden=hidden), caps) == lanes


@pytest.mark.parametrize(("hidden", "local"), [(4, 32), (8, 32), (16, 64), (64, 512), (4096, 512)])
def test_a_block_of_steps_has_a_workgroup_of_32_to_512(hidden: int, local: int) -> None:
    assert block_shape(dataclasses.replace(LSTM, hidden=hidden), GPU).local == local


def test_a_dispatch_of_steps_is_done_before_it_counts_as_hung() -> None:
    """2^16 steps, or as many as read 4 GiB of the recurrence matrix, but one."""
    assert most_steps(LSTM, GPU, True) == 2**16
    assert most_steps(dataclasses.replace(LSTM, hidden=4), GPU, False) == 2**16
    assert most_steps(LSTM, GPU, False) == 2**32 // (16 * 64 * 4 * 256) == 4096
    assert most_steps(dataclasses.replace(LSTM, hidden=2**16), GPU, False) == 1


@pytest.mark.parametrize(("groups", "lanes"), [(2, 1), (3, 2), (64, 32), (65, 64), (1024, 512), (10**6, 512)])
def test_invocations_have_two_groups_of_a_row_each(groups: int, lanes: int) -> None:
    assert RootMeanSquareProblem(rows=1, groups=groups, quads=True).lanes(GPU) == lanes


@pytest.mark.parametrize(("elements", "sectors"), [(1, 5), (8, 5), (16, 7)])
def test_updates_are_sparse_where_they_move_less_than_a_table(elements: int, sectors: int) -> None:
    """Three sectors of 32 bytes for an entry, and two times those of a row, against twice 4 bytes a place."""
    problem = ScatterProblem(element_bytes=4, row_elements=elements, updates=100, places=sectors * 400 + 1, alone=False)
    assert problem.is_sparse
    assert not dataclasses.replace(problem, places=sectors * 400).is_sparse


def _softmax(units: int, elements: int) -> SoftmaxProblem:
    one = Coalesced((units * elements,), ((1,), (1,)))
    return SoftmaxProblem(
        side_by_side=False, unit=SoftmaxUnit.WORD_OF_A_ROW if elements > 1 else SoftmaxUnit.ELEMENT,
        unit_elements=elements, groups=1, row_units=units, row_elements=units * elements, kept=one, row=one,
        may_start_anywhere=False,
    )  # fmt: skip


@pytest.mark.parametrize(("elements", "each"), [(1, 52), (4, 13), (8, 13)])
def test_a_row_alone_on_a_processor_has_52_registers_of_each_invocation(elements: int, each: int) -> None:
    """Elements of FLOAT16 are held two in a register where they lie in words of eight."""
    assert _softmax(1024 * each, elements).fits_in_registers(GPU)
    assert not _softmax(1024 * each + 1, elements).fits_in_registers(GPU)


def test_no_workgroup_of_softmax_has_more_than_1024() -> None:
    many = dataclasses.replace(GPU, workgroup_invocations=2048)
    assert _softmax(10, 1).most_invocations(many) == _softmax(10, 1).most_invocations(GPU) == 1024


def test_rows_that_start_anywhere_are_read_in_words_from_24_on() -> None:
    kept = Coalesced((5,), ((193,), (193,)))
    for word in (4, 8):
        row = Coalesced((24 * word,), ((1,), (1,)))
        assert _words_anywhere(row, kept, word)
        assert not _words_anywhere(Coalesced((24 * word - 1,), ((1,), (1,))), kept, word)


@pytest.mark.parametrize(("elements", "lanes"), [(15, 1), (16, 4)])
def test_a_row_that_starts_anywhere_is_reduced_in_words_from_four_on(elements: int, lanes: int) -> None:
    row, kept = Coalesced((elements,), ((1,),)), Coalesced((5,), ((elements + 1,),))
    problem = SimpleNamespace(lanes=4, rows=5, row_elements=elements, row=row, kept=kept)
    assert ReductionProblem.row_lanes.fget(problem) == lanes  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("data_type", "nbytes"), [(TensorDataType.FLOAT32, 8), (TensorDataType.INT64, 12), (TensorDataType.FLOAT64, 16)]
)
def test_an_accumulator_in_memory_is_a_number_with_its_compensation_or_place(data_type: TensorDataType, nbytes: int) -> None:
    problem = SimpleNamespace(data_type=data_type)
    assert ReductionProblem.partial_bytes.fget(problem) == nbytes  # type: ignore[attr-defined]


WITH_DOT = dataclasses.replace(GPU, features=GPU.features | {"integer_dot_product"})


def _blocks(rows: int, columns: int, depth: int) -> BlockProblem:
    """A product with weights in Q4_0."""
    return BlockProblem(
        rows,
        columns,
        depth,
        nbytes=columns * depth * 9 // 16,
        is_half=False,
        half_factors=False,
        whole=True,
        totals=0,
        quad_words=20,
    )


@pytest.mark.parametrize(
    ("columns", "depth", "dot", "vector"), [(4096, 4096, 8, 6), (1024, 1024, 41, 35), (8192, 128, 9, 8)]
)
def test_matrices_unpack_weights_from_so_many_rows(columns: int, depth: int, dot: int, vector: int) -> None:
    """Fewer without dot products, and more where parts of sums wait to be added; sums of 128 terms have no parts."""
    pays = named(BLOCK_GEMM, "cooperative").when
    for caps, rows in ((WITH_DOT, dot), (GPU, vector)):
        assert pays(_blocks(rows, columns, depth), caps)
        assert not pays(_blocks(rows - 1, columns, depth), caps)


WITH_FRAGMENTS = choices.DEVICES["h200"]


@pytest.mark.parametrize(
    ("columns", "depth", "least", "least_float32"),
    [(28672, 4096, 3, 4), (4096, 14336, 3, 4), (4096, 4096, 4, 6), (128256, 4096, 3, 3)],
)
def test_strips_are_for_few_rows(columns: int, depth: int, least: int, least_float32: int) -> None:
    """Those of float32 are rounded by a dispatch before."""
    strips = named(BLOCK_GEMM, "strips")
    for is_half, first in ((True, least), (False, least_float32)):
        problems = {rows: dataclasses.replace(_blocks(rows, columns, depth), is_half=is_half) for rows in range(1, 40)}
        assert strips.possible(problems[16], WITH_FRAGMENTS) == is_half
        assert [rows for rows, own in problems.items() if strips.when(own, WITH_FRAGMENTS)] == [*range(first, 33)]


def test_strips_need_to_know_where_elements_lie_and_leave_to_round() -> None:
    possible, problem = named(BLOCK_GEMM, "strips").possible, _blocks(16, 4096, 4096)
    assert not possible(problem, WITH_FRAGMENTS), "FLOAT32 is not rounded"
    assert possible(dataclasses.replace(problem, half_factors=True), WITH_FRAGMENTS)
    lacking = dataclasses.replace(WITH_FRAGMENTS, matrix_fragments=False)
    assert not possible(dataclasses.replace(problem, half_factors=True), lacking)


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "parts"),
    [
        (16, 28672, 4096, StripParts(16, 32, 2, 896, 1, 16)),
        (17, 28672, 4096, StripParts(32, 64, 2, 448, 1, 16)),
        (16, 4096, 14336, StripParts(16, 32, 8, 128, 1, 14)),
        (32, 4096, 14336, StripParts(32, 32, 8, 128, 1, 14)),
        (16, 4096, 4096, StripParts(16, 32, 8, 128, 1, 4)),
        (16, 2048, 256, StripParts(16, 32, 2, 64, 1, 1)),
    ],
)
def test_strips_share_the_depth_before_it_comes_in_parts(rows: int, columns: int, depth: int, parts: StripParts) -> None:
    assert strip_parts(rows, columns, depth, GPU) == parts


def test_up_to_32_rows_each_processor_has_eight_workgroups_of_weights() -> None:
    assert matrix_parts(32, 128 * 132, 4096, GPU).parts == 3


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "tile", "parts"),
    [
        (33, 4096, 14336, (64, 128), 8),
        (128, 4096, 14336, (64, 128), 4),
        (192, 4096, 14336, (128, 128), 4),
        (512, 4096, 14336, (128, 128), 2),
        (128, 6144, 4096, (128, 128), 4),
        (64, 28672, 4096, (64, 128), 1),
        (96, 28672, 4096, (128, 128), 1),
    ],
)
def test_more_rows_have_the_fastest_tiles_of_blocks(
    rows: int, columns: int, depth: int, tile: tuple[int, int], parts: int
) -> None:
    """Those that were fastest on an H100, or within a tenth of them."""
    found = matrix_parts(rows, columns, depth, GPU)
    assert ((found.tile.rows, found.tile.columns), found.parts) == (tile, parts)
    assert found.parts * found.rounds * found.tile.depth >= depth


def test_tiles_of_blocks_without_a_known_rate_are_those_of_others() -> None:
    unknown = dataclasses.replace(GPU, model=dataclasses.replace(GPU.model, half_products_per_microsecond=None))
    found = matrix_parts(64, 4096, 14336, unknown)
    assert (found.tile.rows, found.tile.columns, found.parts) == (32, 64, 8)


@pytest.mark.parametrize(("halves", "joins"), [(1, False), (2, True)])
def test_a_gate_leaves_half_as_many_workgroups_that_normalize(halves: int, joins: bool) -> None:
    """The columns behind the gate are as many, and those of both halves share the invocations."""
    problem = NormalizedProblem(
        product=_blocks(1, 3840, 8192), quads=960, halves=halves, packed=True, row_bytes=8, bound=2**20
    )
    assert named(NORMALIZED_BLOCK_GEMM, "joined").when(problem, WITH_DOT) == joins


def test_weights_that_no_binding_holds_are_not_normalized_for() -> None:
    problem = NormalizedProblem(
        product=_blocks(1, 3840, 4096), quads=960, halves=1, packed=True, row_bytes=4, bound=GPU.storage_buffer_bytes
    )
    possible = named(NORMALIZED_BLOCK_GEMM, "joined").possible
    assert possible(problem, WITH_DOT)
    assert not possible(dataclasses.replace(problem, bound=problem.bound + 1), WITH_DOT)
    assert not possible(dataclasses.replace(problem, packed=False), WITH_DOT)


@pytest.mark.parametrize(("registers", "possible"), [(208, True), (209, False), (None, False)])
def test_depthwise_lanes_take_208_registers_at_most(registers: int | None, possible: bool) -> None:
    problem = SimpleNamespace(lane_registers=registers)
    assert named(CONVOLUTION, "depthwise_lanes").possible(problem, GPU) == possible


@pytest.mark.parametrize(("lines", "groups", "possible"), [(64, 2, True), (65, 2, False), (64, 3, False)])
def test_packing_has_32_lines_a_workgroup_and_groups_along_z(lines: int, groups: int, possible: bool) -> None:
    problem = IntegerProblem(lines, 64, 64, taps=1, groups=groups, input_lines=64, exact=True, plain=True, segment=0)
    caps = dataclasses.replace(GPU, workgroup_counts=(4, 2, 2))
    assert named(INTEGER, "tiled").possible(problem, caps) == possible
