"""Plans of the reductions, without a device: which rule is chosen, and that every element of every row is read once."""

from __future__ import annotations

import itertools
import math
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.common.plan import Dispatch, Plan, Source
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.reduction.rules import REDUCTION
from dmlvk.spec.enums import AxisDirection, ReduceFunction, TensorDataType
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.ops.reduction import Argmax, Argmin, Reduce
from dmlvk.spec.tensor import TensorDesc, calculate_strides, element_bits, packed_strides

T = TensorDataType
FLOAT32, FLOAT16, UINT8, INT64 = T.FLOAT32, T.FLOAT16, T.UINT8, T.INT64
SUM = ReduceFunction.SUM
FEATURES = SUBGROUPS | frozenset({"storage8", "storage16", "int64"})
LEAST = Capabilities(features=FEATURES)
GPU = Capabilities(
    features=FEATURES, workgroup_invocations=1024, shared_memory_bytes=49152, storage_buffer_bytes=2**32 - 1, model=H200
)
WIDE = replace(GPU, subgroup_size=64)
CPU = replace(GPU, subgroup_size=8, is_cpu=True)
IMAGES = (32, 256, 56, 56)
NHWC = calculate_strides("NHWC", IMAGES)

Reduction = Reduce | Argmax | Argmin


def reduction(
    sizes: Sequence[int],
    axes: Sequence[int],
    strides: Sequence[int] | None = None,
    *,
    data_type: TensorDataType = FLOAT32,
    function: ReduceFunction = SUM,
) -> Reduce:
    output = T.UINT32 if function in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN) else data_type
    desc = Reduce(
        function=function,
        input_tensor=TensorDesc(data_type, tuple(sizes), None if strides is None else tuple(strides)),
        output_tensor=TensorDesc(output, tuple(1 if axis in axes else size for axis, size in enumerate(sizes))),
        axes=tuple(axes),
    )
    desc.validate()
    return desc


def chosen(desc: Reduction, caps: Capabilities) -> str:
    return choose(REDUCTION, LOWERINGS[type(desc)].problem(desc), caps).name


def constants(dispatch: Dispatch) -> dict[str, Any]:
    return dict(KERNELS[dispatch.kernel.kernel].constants) | dict(dispatch.kernel.constants)


def params(dispatch: Dispatch) -> dict[str, Any]:
    values: dict[str, Any] = {}
    position = 0
    for member in KERNELS[dispatch.kernel.kernel].members:
        length = max(member.length, 1)
        items = struct.unpack_from(f"<{length}{ {'uint': 'I', 'float': 'f'}[member.type] }", dispatch.params, position)
        position += 4 * length
        values[member.name] = items if member.length else items[0]
    return values


# -- rules


@pytest.mark.parametrize(
    ("desc", "gpu", "cpu"),
    [
        (reduction((2**28,), (0,)), "split", "split"),
        (reduction((4, 2**24), (1,)), "split", "split"),
        (reduction((64, 64, 2**13), (0, 1, 2)), "split", "split"),
        (reduction((16384, 8192), (1,)), "subgroup", "subgroup"),
        (reduction((2**22, 8), (1,)), "subgroup", "subgroup"),
        (reduction((512, 8192), (1,)), "workgroup", "subgroup"),
        (reduction((16384, 8192), (0,)), "columns_split", "columns_split"),
        (reduction((2**20, 64), (0,)), "columns_split", "columns_split"),
        (reduction((8, 2**22), (0,)), "columns", "columns"),
        (reduction((200, 8192), (0,)), "columns", "columns"),
        (reduction((64, 1024, 2048), (1,)), "columns", "columns"),
        (reduction(IMAGES, (2, 3)), "subgroup", "subgroup"),
        (reduction(IMAGES, (0, 2, 3)), "split", "split"),
        (reduction(IMAGES, (0, 2, 3), NHWC), "columns_split", "columns_split"),
        (reduction(IMAGES, (1,), NHWC), "subgroup", "subgroup"),
        (reduction(IMAGES, (1,)), "columns", "columns"),
        (reduction((5, 7), ()), "subgroup", "subgroup"),
        (reduction((1, 1), (0, 1)), "subgroup", "subgroup"),
    ],
    ids=lambda value: str(getattr(value, "axes", value)),
)
def test_rule(desc: Reduce, gpu: str, cpu: str) -> None:
    assert (chosen(desc, GPU), chosen(desc, CPU)) == (gpu, cpu)


@pytest.mark.parametrize(
    ("rule", "axis", "least"), [("split", 1, 4 * 64), ("workgroup", 1, 4 * 2 * 32), ("columns_split", 0, 32)]
)
def test_a_rule_needs_rows_of_some_length(rule: str, axis: int, least: int) -> None:
    caps = Capabilities(features=SUBGROUPS, subgroup_size=32)
    for length in (least - 4, least):
        sizes = (64, length) if axis else (length, 64)
        output = tuple(1 if own == axis else size for own, size in enumerate(sizes))
        x, y = (TensorDesc(TensorDataType.FLOAT32, own) for own in (sizes, output))
        desc = Reduce(function=ReduceFunction.SUM, input_tensor=x, output_tensor=y, axes=(axis,))
        assert (rule in possible_rules(desc, caps)) == (length == least)


def test_few_workgroups_never_do_much_of_the_work() -> None:
    """However 2^26 elements are cut into rows, a GPU gets 2^15 invocations or more."""
    for power, inner in itertools.product(range(27), (True, False)):
        rows, length = 2**power, 2 ** (26 - power)
        desc = reduction((rows, length), (1,)) if inner else reduction((length, rows), (0,))
        first = lower(desc, GPU).dispatches[0]
        invocations = math.prod(first.grid) * constants(first)["LOCAL_SIZE_X"]
        assert invocations >= 2**15, (rows, inner)


@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16, UINT8, INT64])
def test_temporary_memory_stays_below_a_mebibyte_or_a_hundredth(data_type: TensorDataType) -> None:
    for power, rest, layout in itertools.product(range(0, 25, 2), range(0, 19, 3), range(3)):
        kept, reduced = 2**power + 1, 2**rest + 3
        sizes, axes = (((kept, reduced), (1,)), ((reduced, kept), (0,)), ((3, kept, 5, reduced), (0, 2)))[layout]
        if math.prod(sizes) * element_bits(data_type) // 8 >= 2**32 - 8:
            continue  # more than a binding
        desc = reduction(sizes, axes, data_type=data_type, function=ReduceFunction.MAX)
        nbytes = desc.tensor("input_tensor").total_tensor_size_in_bytes
        assert lower(desc, GPU).temporary_bytes <= max(2**20, nbytes // 100), (sizes, axes)


@settings(max_examples=100, deadline=None)
@given(
    power=st.integers(0, 16),
    rest=st.integers(-3, 3),
    runs=st.integers(1, 4),
    inner=st.booleans(),
    data_type=st.sampled_from([UINT8, FLOAT32, INT64]),
    caps=st.sampled_from([CPU, replace(CPU, subgroup_size=4, workgroup_invocations=128)]),
)
def test_loops_on_a_cpu_have_at_most_65535_rounds(
    power: int, rest: int, runs: int, inner: bool, data_type: TensorDataType, caps: Capabilities
) -> None:
    """In all, those within others included: llvmpipe 22 ends them then, and the result is wrong. A position in a row of
    several dimensions takes a loop over these."""
    rows = 2**power
    length = max(2 ** (30 - power) // element_bits(data_type) // 4 ** (runs - 1) + rest, 1)
    sizes, axes = [2] * 2 * (runs - 1), list(range(0, 2 * (runs - 1), 2))
    sizes += [rows, length] if inner else [length, rows]
    axes.append(len(sizes) - (1 if inner else 2))
    first = lower(reduction(sizes, axes, data_type=data_type, function=ReduceFunction.MAX), caps).dispatches[0]
    c, p = constants(first), params(first)
    of_a_unit = p["row_rank"] - 1
    if first.kernel.kernel == "reduce_columns":
        sharing, of_a_unit = c["LOCAL_SIZE_X"] // c["COLUMNS"], of_a_unit * together_in_columns(lanes_of(first))
    else:
        sharing = c["TEAM"]
    assert -(-p["chunk_units"] // sharing) * (1 + of_a_unit) + 100 <= 65535


# -- which elements are read

Visits = dict[int, list[tuple[int, int]]]
"""Position of a result -> (number of the element in its row, position in the input) of all that went into it."""


def decoded(index: int, rank: int, sizes: Sequence[int]) -> list[int]:
    """FOR_EACH_COORDINATE_FAST: the last dimension fastest, the first one takes what is left."""
    coordinates = [0] * rank
    for dimension in range(rank - 1, 0, -1):
        index, coordinates[dimension] = divmod(index, sizes[dimension])
    coordinates[0] = index
    return coordinates


def at(index: int, rank: int, sizes: Sequence[int], *strides: Sequence[int]) -> list[int]:
    coordinates = decoded(index, rank, sizes)
    return [sum(map(int.__mul__, coordinates, steps)) for steps in strides]


def lanes_of(dispatch: Dispatch) -> int:
    return int(dict(dispatch.kernel.variant)["LANES"])


def row_tasks(dispatch: Dispatch) -> Iterator[tuple[int, int, int, list[tuple[int, int]]]]:
    """reduce_rows.comp: (row, chunk, position of the result, elements) of every task."""
    p, c, lanes = params(dispatch), constants(dispatch), lanes_of(dispatch)
    team, together, runs = c["TEAM"], c["UNITS"], bool(c["ROW_RUNS"])
    tasks = p["rows"] * p["chunks"]
    assert c["LOCAL_SIZE_X"] % team == 0 and team & (team - 1) == 0
    assert math.prod(dispatch.grid) * (c["LOCAL_SIZE_X"] // team) >= tasks
    for task in range(tasks):
        row, chunk = divmod(task, p["chunks"])
        x_start, output = at(row, p["kept_rank"], p["kept_sizes"], p["kept_x"], p["kept_output"])
        shift = 0 if runs else x_start % lanes
        own_units = p["row_units"] if runs else -(-(p["row_elements"] + shift) // lanes)
        begin = chunk * p["chunk_units"]
        end = min(begin + p["chunk_units"], p["row_units"], own_units)
        whole_begin = max(begin, min(shift, 1))
        whole_end = end if runs else min(end, (p["row_elements"] + shift) // lanes)
        elements: list[tuple[int, int]] = []
        for member in range(team):
            unit = whole_begin + member
            while unit < whole_end:  # so many at once, and the rest one by one
                count = together if unit + (together - 1) * team < whole_end else 1
                for i in range(count):
                    elements += whole_unit(p, lanes, x_start, shift, unit + i * team, runs=runs)
                unit += count * team
        if begin < whole_begin:
            elements += unit_in_part(p, lanes, x_start, shift, begin)
        if whole_end < end:
            elements += unit_in_part(p, lanes, x_start, shift, whole_end)
        yield row, chunk, output, elements


def whole_unit(p: dict[str, Any], lanes: int, x_start: int, shift: int, unit: int, *, runs: bool) -> list[tuple[int, int]]:
    if runs:
        (offset,) = at(unit, p["row_rank"], p["row_sizes"], p["row_x"])
    else:
        offset = unit * p["row_x"][0] - shift
    assert (x_start + offset) % lanes == 0, "one access"
    return [(unit * lanes - shift + lane, x_start + offset + lane) for lane in range(lanes)]


def unit_in_part(p: dict[str, Any], lanes: int, x_start: int, shift: int, unit: int) -> list[tuple[int, int]]:
    first = unit * lanes - shift
    part = range(max(first, 0), min(first + lanes, p["row_elements"]))
    assert part, "an access without an element would be a place without one"
    return [(k, x_start + k) for k in part]


def together_in_columns(lanes: int) -> int:
    """The elements of a row that an invocation takes together, by the numbers that the shader has."""
    numbers = KERNELS["reduce_columns"].numbers
    return numbers["FEW_TOGETHER" if lanes > numbers["FEW_LANES"] else "MANY_TOGETHER"]


def column_tasks(dispatch: Dispatch) -> Iterator[tuple[int, int, int, list[tuple[int, int]]]]:
    """reduce_columns.comp, likewise."""
    p, c, lanes = params(dispatch), constants(dispatch), lanes_of(dispatch)
    together = together_in_columns(lanes)
    members = c["LOCAL_SIZE_X"] // c["COLUMNS"]
    blocks = (p["columns"] - 1) // c["COLUMNS"] + 1
    assert c["LOCAL_SIZE_X"] <= 256 and members & (members - 1) == 0, "the shared memory, and the tree"
    assert math.prod(dispatch.grid) >= blocks * p["chunks"]
    for chunk, column in itertools.product(range(p["chunks"]), range(p["columns"])):
        rank = p["kept_rank"]
        x_start, output = at(column, rank, p["kept_sizes"], p["kept_x"], p["kept_output"])
        inner = decoded(column, rank, p["kept_sizes"])[-1]
        here = min(p["inner_size"] - inner * lanes, lanes)
        first_row = column // p["kept_sizes"][rank - 1] * p["inner_size"] + inner * lanes
        end = min((chunk + 1) * p["chunk_units"], (p["row_elements"] - 1) // together + 1)
        elements: list[tuple[int, int]] = []
        for member in range(members):
            for unit in range(chunk * p["chunk_units"] + member, end, members):
                for k in range(unit * together, min((unit + 1) * together, p["row_elements"])):
                    (offset,) = at(k, p["row_rank"] if c["ROW_RUNS"] else 1, p["row_sizes"], p["row_x"])
                    assert lanes == 1 or here < lanes or (x_start + offset) % lanes == 0, "one access"
                    elements.append((k, x_start + offset))
        for lane in range(here):
            place = output + lane * p["output_step"]
            yield first_row + lane, chunk, place, [(k, position + lane) for k, position in elements]


TASKS: dict[str, Callable[[Dispatch], Iterator[tuple[int, int, int, list[tuple[int, int]]]]]] = {
    "reduce_rows": row_tasks,
    "reduce_columns": column_tasks,
}


def visits(plan: Plan) -> Visits:
    """What goes into each result; of split rows by way of the partial results that the second dispatch merges."""
    first = plan.dispatches[0]
    split = bool(constants(first)["SPLIT"])
    assert len(plan.dispatches) == 1 + split
    partials: dict[int, list[tuple[int, int]]] = {}
    found: Visits = {}
    chunks = params(first)["chunks"]
    for row, chunk, output, elements in TASKS[first.kernel.kernel](first):
        index, results = (row * chunks + chunk, partials) if split else (output, found)
        assert index not in results, "written once"
        results[index] = elements
    if not split:
        assert chunks == 1
        return found
    second = plan.dispatches[1]
    p, c = params(second), constants(second)
    (memory,) = {r for r in first.bindings if r.source is Source.TEMPORARY}
    assert memory in second.bindings and memory.nbytes <= plan.temporary_bytes
    words = 3 if dict(first.kernel.variant)["T"] in ("INT64", "UINT64") else 2
    assert 4 * words * len(partials) == memory.nbytes
    assert p["chunks"] == chunks
    assert math.prod(second.grid) * (c["LOCAL_SIZE_X"] // c["TEAM"]) >= p["rows"]
    for row in range(p["rows"]):
        (output,) = at(row, p["kept_rank"], p["kept_sizes"], p["kept_output"])
        merged = [chunk for member in range(c["TEAM"]) for chunk in range(member, chunks, c["TEAM"])]
        assert output not in found, "written once"
        found[output] = [element for chunk in merged for element in partials.pop(row * chunks + chunk)]
    assert not partials
    return found


def expected(desc: Reduction) -> Visits:
    """The visits that follow from the desc alone; elements are numbered row-major over the axes in the order of the
    dimensions."""
    x, y = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    rows: Visits = defaultdict(list)
    for index in itertools.product(*map(range, x.sizes)):
        kept = [0 if axis in desc.axes else i for axis, i in enumerate(index)]
        position = sum(map(int.__mul__, index, x.effective_strides))
        row = rows[sum(map(int.__mul__, kept, y.effective_strides))]
        row.append((len(row), position))
    return rows


@st.composite
def reductions(draw: st.DrawFn) -> Reduction:
    """Up to 4 dimensions in any order in memory, padded or broadcast; one of them may be long."""
    rank = draw(st.integers(1, 4))
    sizes = [draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16])) for _ in range(rank)]
    sizes[draw(st.integers(0, rank - 1))] = draw(st.sampled_from([1, 7, 33, 64, 127, 520, 1031]))
    while math.prod(sizes) > 5000:
        sizes[sizes.index(sorted(sizes)[-2])] = 1
    axes = draw(st.lists(st.integers(0, rank - 1), unique=True).map(tuple))
    strides, step = [0] * rank, 1
    for axis in draw(st.permutations(range(rank))):
        if draw(st.integers(0, 9)):
            strides[axis] = step
            step *= sizes[axis]
            step += draw(st.sampled_from([0, 0, 0, 0, 1, 3, 16 - step % 16]))
    data_type = draw(st.sampled_from([FLOAT32, FLOAT16, UINT8, INT64]))
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
    apart = draw(st.sampled_from([None, tuple(2 * step for step in packed_strides(kept))]))
    x = TensorDesc(data_type, tuple(sizes), tuple(strides))
    if draw(st.booleans()):
        direction = draw(st.sampled_from(list(AxisDirection)))
        y = TensorDesc(T.UINT32, kept, apart)
        desc: Reduction = Argmax(input_tensor=x, output_tensor=y, axes=axes, axis_direction=direction)
    else:
        y = TensorDesc(data_type, kept, apart)
        desc = Reduce(function=ReduceFunction.MIN, input_tensor=x, output_tensor=y, axes=axes)
    desc.validate()
    return desc


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(desc=reductions(), caps=st.sampled_from([LEAST, GPU, WIDE, CPU]))
def test_every_element_is_read_once(desc: Reduction, caps: Capabilities) -> None:
    wanted = expected(desc)
    for rule in possible_rules(desc, caps):
        plan = lower(desc, caps, force=rule)
        found = visits(plan)
        assert found.keys() == wanted.keys()
        for output, row in wanted.items():
            numbered = sorted(found[output])
            assert [number for number, _ in numbered] == list(range(len(row))), rule
            if isinstance(desc, Argmax):
                assert numbered == row, "an element's number is its place in the order of the dimensions"
            else:
                assert sorted(position for _, position in numbered) == sorted(position for _, position in row), rule
        for dispatch in plan.dispatches:
            assert constants(dispatch)["LOCAL_SIZE_X"] <= caps.workgroup_invocations


@pytest.mark.parametrize("rule", ["split", "columns_split"])
@pytest.mark.parametrize("length", [5000, 5001, 8191])
def test_chunks_of_one_long_row(rule: str, length: int) -> None:
    desc = reduction((length, 3), (0,)) if rule == "columns_split" else reduction((3, length), (1,))
    for caps in (LEAST, GPU, WIDE, CPU):
        plan = lower(desc, caps, force=rule)
        assert params(plan.dispatches[0])["chunks"] > 1
        assert {output: len(set(row)) for output, row in visits(plan).items()} == dict.fromkeys(range(3), length)


# -- features


def test_only_64_bit_elements_need_64_bit_integers() -> None:
    """An index of 64 bits is two words."""
    caps = replace(GPU, features=FEATURES - {"int64"})
    x, y = TensorDesc(FLOAT32, (5, 37)), TensorDesc(INT64, (5, 1))
    for row in (Argmax, Argmin):
        (dispatch,) = lower(row(input_tensor=x, output_tensor=y, axes=(1,)), caps).dispatches
        assert params(dispatch)["index_words"] == 2
    with pytest.raises(UnsupportedError, match="int64"):
        lower(reduction((5, 37), (1,), data_type=INT64), caps)


def test_a_device_without_subgroup_shuffles_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="subgroup_shuffle"):
        lower(reduction((5, 37), (1,)), replace(GPU, features=frozenset()))
