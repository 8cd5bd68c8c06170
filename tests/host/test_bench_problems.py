"""The measured problems: the same ones at every scale, with what the descs say about their bytes and operations."""

from __future__ import annotations

import collections
import json
import math
import pathlib

import numpy as np
import pytest

import dmlvk
from dmlvk.spec.enums import ConvolutionDirection, TensorDataType
from dmlvk.spec.ops.block_quantized import BlockQuantizedGather, BlockQuantizedGemm
from dmlvk.spec.ops.cached_attention import CachedAttention
from dmlvk.spec.ops.matmul import FormatGemm, GemmGate, GemmNormalization, NormalizedGemm
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import NUMPY_TYPES, distinct_indices, generator, indices_below, uniform
from dmlvk_bench.problems import FAMILIES, all_problems, twin
from dmlvk_bench.problems.data import BLOCK, memory, ordinary, tiled
from dmlvk_bench.problems.model import Problem, nbytes
from dmlvk_bench.problems.scale import FULL, MEDIUM, QUICK, SCALES, Scale

ON_RECORD = pathlib.Path(__file__).parents[2] / "bench" / "results" / "h200.json"

PARTLY_MOVED = {
    BlockQuantizedGather: "reads what is chosen",
    dmlvk.DynamicQuantizeLinear: "reads its input twice",
    dmlvk.Gather: "reads what is chosen",
    dmlvk.GatherNd1: "reads what is chosen",
    dmlvk.NonzeroCoordinates: "writes as many rows as it finds",
    dmlvk.RandomGenerator: "has a state of a few bytes",
    dmlvk.RoiAlign1: "has boxes of a few bytes",
    dmlvk.ScatterElements: "reads an element from the input or from the updates",
    dmlvk.ScatterNd: "reads an element from the input or from the updates",
    dmlvk.Slice1: "reads what is in the window",
}
"""Where ``bytes_moved`` is not every tensor once."""

ids = pytest.mark.parametrize("scale", SCALES, ids=lambda scale: scale.name)


def tensors(problem: Problem) -> list[TensorDesc]:
    slots = (*problem.desc.input_slots(), *problem.desc.output_slots())
    return [slot.tensor for slot in slots if slot.tensor is not None]


def operations(problem: Problem) -> int:
    """Additions and multiplications, from the sizes of the desc's tensors alone; 0 where bytes are what counts."""
    desc = problem.desc
    match desc:
        case dmlvk.Gemm() | FormatGemm() | GemmNormalization() | dmlvk.MatrixMultiplyInteger():
            return 2 * math.prod(desc.tensor("output_tensor").sizes) * desc.tensor("a_tensor").sizes[-1]
        case GemmGate():
            return 4 * math.prod(desc.tensor("output_tensor").sizes) * desc.tensor("a_tensor").sizes[-1]
        case BlockQuantizedGemm() | NormalizedGemm():
            return 2 * math.prod(desc.tensor("output_tensor").sizes) * desc.tensor("input_tensor").sizes[-1]
        case dmlvk.QuantizedLinearMatrixMultiply() | dmlvk.MatrixMultiplyIntegerToFloat():
            return 2 * math.prod(desc.tensor("output_tensor").sizes) * desc.tensor("a_tensor").sizes[-1]
        case dmlvk.Convolution(direction=ConvolutionDirection.BACKWARD):
            return 2 * math.prod(desc.tensor("input_tensor").sizes) * math.prod(desc.tensor("filter_tensor").sizes[1:])
        case dmlvk.Convolution() | dmlvk.ConvolutionInteger():
            return 2 * math.prod(desc.tensor("output_tensor").sizes) * math.prod(desc.tensor("filter_tensor").sizes[1:])
        case dmlvk.MultiheadAttention1():
            batch, queries, width = desc.tensor("query_tensor").sizes
            return 4 * batch * queries * width * desc.tensor("key_tensor").sizes[1]
        case CachedAttention():
            batch, rows, heads, size = desc.tensor("query_tensor").sizes
            return 2 * batch * rows * (rows + 1) * heads * size
        case dmlvk.Lstm() | dmlvk.Gru() | dmlvk.Rnn():
            steps, batch = desc.tensor("input_tensor").sizes[1:3]
            weights = (desc.tensor(f"{name}_tensor").element_count for name in ("weight", "recurrence"))
            return 2 * steps * batch * sum(weights)
    return 0


def test_the_problems_on_record_are_still_measured() -> None:
    names = {row["problem"] for row in json.loads(ON_RECORD.read_text())["problems"]}
    assert len(names) >= 534
    assert names <= {problem.name for problem in all_problems()}


def test_every_problem_is_there_at_every_scale() -> None:
    full = all_problems()
    assert len(full) == len({problem.key for problem in full}) == sum(p.family in FAMILIES for p in full)
    for scale in (MEDIUM, QUICK):
        small = {problem.name for problem in all_problems(scale)}
        for problem in full:
            own = twin(problem, scale)
            assert own.key == problem.key and own.name in small
            assert (type(own.desc), own.suite, own.tolerance > 0) == (
                type(problem.desc),
                problem.suite,
                problem.tolerance > 0,
            )
            kinds = [[tensor.data_type for tensor in tensors(one)] for one in (own, problem)]
            assert kinds[0] == kinds[1]
            assert max(t.element_count for t in tensors(own)) <= max(t.element_count for t in tensors(problem))


@ids
def test_problems_say_what_their_descs_do(scale: Scale) -> None:
    found = all_problems(scale)
    assert len(found) == len({problem.name for problem in found})
    for problem in found:
        problem.desc.validate()
        assert problem.operations == operations(problem), problem.name
        every = nbytes(*tensors(problem))
        if type(problem.desc) not in PARTLY_MOVED:
            assert problem.bytes_moved == every, problem.name
        assert 0 < problem.bytes_moved <= 2 * every, problem.name


def test_small_problems_are_small() -> None:
    for scale, least in ((MEDIUM, 2**26), (QUICK, 2**23)):
        for problem in all_problems(scale):
            assert max(nbytes(tensor) for tensor in tensors(problem)) <= least, problem.name
            assert problem.operations <= scale.operations, problem.name


def test_suites_and_words_choose_problems() -> None:
    suites = collections.Counter(problem.suite for problem in all_problems())
    assert suites.keys() == {"ops", "matmul", "conv"}
    assert {p.suite for p in all_problems(only="integer") if p.family == "integer"} == {"matmul", "conv"}
    assert {p.family for p in all_problems(only="softmax")} == {"softmax"}
    assert [p.name for p in all_problems(only="depth 4093 FLOAT32")] == ["GEMM depth 4093 FLOAT32 4093x4093"]
    assert all(p.suite == "conv" for p in all_problems(QUICK, suite="conv"))


@pytest.mark.slow
def test_inputs_are_the_memory_of_the_slots_and_the_same_each_time() -> None:
    for problem in all_problems(QUICK):
        slots = [slot.tensor for slot in problem.desc.input_slots() if slot.tensor is not None]
        inputs = problem.inputs()
        for tensor, values, again in zip(slots, inputs, problem.inputs(), strict=True):
            span = 1 + sum((n - 1) * step for n, step in zip(tensor.sizes, tensor.effective_strides, strict=True))
            assert values.dtype == NUMPY_TYPES[tensor.data_type] and values.shape == (span,), problem.name
            assert values.tobytes() == again.tobytes(), problem.name
            assert values.any() or (isinstance(problem.desc, CachedAttention) and values.dtype == np.int32), problem.name
        alike = collections.Counter(values.tobytes() for values in inputs if values.size > 1000)
        assert max(alike.values(), default=1) == 1, f"{problem.name} has the same numbers twice"


@pytest.mark.parametrize("data_type", [TensorDataType.FLOAT32, TensorDataType.UINT8], ids=lambda kind: kind.name)
def test_large_inputs_repeat_what_was_drawn_from_different_places_on(data_type: TensorDataType) -> None:
    rows = TensorDesc(data_type, (1100, 8192))
    a, b = (memory(rows, ordinary, "test", name).reshape(rows.sizes) for name in "ab")
    assert len(np.unique(a[:, :64], axis=0)) == rows.sizes[0], "two rows begin alike"
    assert a.reshape(-1)[BLOCK] == a[0, 0] and not np.array_equal(a[0], b[0])
    assert np.sort(a.reshape(-1)[:BLOCK]).tobytes() == np.sort(b.reshape(-1)[:BLOCK]).tobytes()
    small = tiled(uniform(0, 3))(generator("x"), (1000,), data_type)
    assert small.tobytes() == uniform(0, 3)(generator("x"), (1000,), data_type).tobytes()


def test_indices_are_in_range_and_distinct_where_they_are_to_be() -> None:
    for axis in (0, 1, 2):
        found = distinct_indices(40, axis)(generator(axis), (7, 9, 11), TensorDataType.INT64)
        assert found.shape == (7, 9, 11) and found.min() >= 0 and found.max() < 40
        assert (np.diff(np.sort(found, axis=axis), axis=axis) > 0).all()
    pairs = indices_below(3, 100)(generator("pairs"), (50, 2), TensorDataType.UINT32)
    assert pairs.shape == (50, 2) and pairs[:, 0].max() == 2 and 2 < pairs[:, 1].max() < 100


def test_scales_keep_what_is_not_free() -> None:
    assert FULL.fit((16384, 8192), 0, 1) == (16384, 8192)
    assert QUICK.fit((16384, 8192), 0) == (16, 8192)
    assert MEDIUM.fit((32, 256, 56, 56), 0, 1) == (32, 64, 56, 56)
    assert QUICK.fit((4, 3), 0, elements=lambda own: 1 << 30) == (1, 3), "no dimension vanishes"
    assert QUICK.fit((64, 8), 0, elements=lambda own: 1 << 30, least=7) == (8, 8)
    cube = MEDIUM.fit(
        (4096, 4096, 4096), 0, 1, 2, elements=lambda own: own[0] ** 2, operations=lambda own: 2 * math.prod(own)
    )
    assert cube == (512, 512, 1024)
