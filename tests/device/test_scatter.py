"""Scatters over random sizes, types, layouts, indices and rules, and against PyTorch and the ONNX reference.

DirectML's printed examples run in ``test_examples.py``."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import numpy as np
import onnx.reference
import pytest
from drawing import BROKEN_VALUES, Draw, broken_tensors, draw_sizes, draw_tensor, examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import InvalidArgumentError, TensorDataType, TensorDesc, eager
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.lowering import possible_rules
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec.schema import FieldSpec, OperatorDesc
from dmlvk.verify.cases import all_cases, scatter
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import Case, OperatorCases, any_bits, indices_around
from dmlvk.verify.cases.problem import Variation, build, variations
from dmlvk.verify.check import check, check_problem

Array = NDArray[Any]
Sizes = tuple[int, ...]

SIZES = st.sampled_from([1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33])
LENGTHS = st.sampled_from([1, 1, 2, 3, 8, 17, 40])
INDEX_TYPES = tuple(TensorDataType[name] for name in ("INT64", "INT32", "UINT64", "UINT32"))


# -- random problems


def draw_elements(draw: Draw) -> tuple[dict[str, Sizes], Sizes, dict[str, object]]:
    """Sizes of the inputs, the sizes that indices are for, and the attributes, of a ScatterElements."""
    sizes = draw_sizes(draw, 1, 8, 400, SIZES)
    axis = draw(st.integers(0, len(sizes) - 1))
    indices = (*sizes[:axis], draw(LENGTHS), *sizes[axis + 1 :])
    inputs = {"input_tensor": sizes, "indices_tensor": indices, "updates_tensor": indices}
    return inputs, (sizes[axis],), {"axis": axis}


def draw_tuples(draw: Draw) -> tuple[dict[str, Sizes], Sizes, dict[str, object]]:
    """The expected result of a ScatterNd, whose tensors have leading ones up to a common dimension count."""
    meant = draw_sizes(draw, 1, 6, 400, SIZES)
    length = draw(st.integers(1, len(meant)))
    rows = meant[length:]
    array = draw_sizes(draw, 0, 8 - max(len(rows), 1), 40, LENGTHS)
    found = {"input_tensor": meant, "indices_tensor": (*array, length), "updates_tensor": (*array, *rows)}
    count = draw(st.integers(max(map(len, found.values())), 8))
    inputs = {name: (*(1,) * (count - len(sizes)), *sizes) for name, sizes in found.items()}
    counts = {"input_dimension_count": len(meant), "indices_dimension_count": len(array) + 1}
    return inputs, meant[:length], dict(counts)


DRAWN = {dmlvk.ScatterElements: draw_elements, dmlvk.ScatterNd: draw_tuples}


@pytest.mark.parametrize("entry", scatter.CASES, ids=lambda entry: entry.operator.__name__)
@examples(25)
@given(data=st.data())
def test_random_scatters(device: dmlvk.Device, entry: OperatorCases, data: st.DataObject) -> None:
    inputs, chosen, attributes = DRAWN[entry.operator](data.draw)  # type: ignore[index]  # it has these two rows
    case = Case(
        f"drawn #{data.draw(st.integers(0, 2**32 - 1))}",
        inputs,
        attributes,
        data_types={"indices_tensor": data.draw(st.sampled_from(INDEX_TYPES))},
        domains={"": any_bits, "indices_tensor": indices_around(*chosen)},
    )
    variation = Variation(case, data.draw(st.sampled_from(entry.crossed_types)), "drawn")

    def place(kind: TensorDataType, sizes: Sizes, layout: str, turn: int, *, is_output: bool) -> GuardedTensor:
        return draw_tensor(data.draw, kind, sizes, is_output=is_output)

    problem = build(entry.operator, variation, place)
    with pytest.MonkeyPatch.context() as patch:
        is_cpu = data.draw(st.booleans())
        patch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, is_cpu=is_cpu))
        for rule in possible_rules(problem.desc, device.capabilities):
            outcome = check_problem(device, entry, dataclasses.replace(variation, rule=rule), problem)
            assert outcome.passed, f"{outcome.variation}: {outcome.detail}\n{problem.desc}"
            assert not outcome.unsupported, "the CI's device can do everything"


def broken_attributes(desc: OperatorDesc, spec: FieldSpec) -> tuple[object, ...]:
    count = desc.tensor("input_tensor").dimension_count
    return (
        (*BROKEN_VALUES[spec.kind], count, 2**32 - 1) if spec.name == "axis" else (*BROKEN_VALUES[spec.kind], 0, count + 1)
    )


@pytest.mark.parametrize("entry", scatter.CASES, ids=lambda entry: entry.operator.__name__)
@examples(5)
@given(data=st.data())
def test_every_mistake_in_a_desc_is_refused(device: dmlvk.Device, entry: OperatorCases, data: st.DataObject) -> None:
    inputs, _, attributes = DRAWN[entry.operator](data.draw)  # type: ignore[index]  # it has these two rows
    case = Case("drawn", inputs, attributes, data_types={"indices_tensor": TensorDataType.INT64})
    desc = build(entry.operator, Variation(case, TensorDataType.FLOAT32, "packed")).desc
    device.create_operator(desc)
    before = (device.dispatches, device.pipelines_created)
    for spec in desc.fields:
        for value in broken_tensors(desc, spec) if spec.kind.is_tensor else broken_attributes(desc, spec):
            with pytest.raises(InvalidArgumentError) as caught:
                device.create_operator(desc.replace(**{spec.name: value}))
                pytest.fail(f"{spec.name} = {value!r} is accepted in {desc}")
            assert (caught.value.operator, caught.value.field) == (desc.type.dml_name, spec.dml_name)
    assert (device.dispatches, device.pipelines_created) == before


# -- what a drawn problem is too small or too even for


def random(*sizes: int) -> Array:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


def run_rule(device: dmlvk.Device, desc: dmlvk.ScatterElements | dmlvk.ScatterNd, rule: str, *arrays: Array) -> Array:
    """The output, packed, of a scatter by a rule of the caller's choice."""
    assert rule in possible_rules(desc, device.capabilities)
    buffers = [device.create_buffer(-(-array.nbytes // 4) * 4) for array in (*arrays, arrays[0])]
    for buffer, array in zip(buffers, arrays, strict=False):
        buffer.write(array)
    *sources, output = map(BufferBinding, buffers)
    commands = device.create_command_list()
    ReadyOperator(device, desc, rule).record(commands, sources, [output])
    device.execute(commands)
    x = arrays[0]
    found: Array = buffers[-1].read()[: x.nbytes].view(x.dtype).reshape(x.shape)
    return found


def described(*arrays: Array) -> list[TensorDesc]:
    return [TensorDesc(dmlvk.engine.numpy_types.data_type_of(array.dtype), array.shape) for array in arrays]


def along_one_axis(x: Array, indices: Array, updates: Array) -> dmlvk.ScatterElements:
    names = ("input_tensor", "indices_tensor", "updates_tensor", "output_tensor")
    return dmlvk.ScatterElements(**dict(zip(names, described(x, indices, updates, x), strict=True)), axis=0)


@pytest.mark.parametrize("rule", ["sparse", "in_output", "table"])
def test_the_last_of_very_many_updates_of_one_element_counts(device: dmlvk.Device, rule: str) -> None:
    """The updates lie in thousands of workgroups; the last one is out of range."""
    x, count = random(3), 300_007
    indices = np.ones(count, np.int32)
    indices[-1] = 3
    updates = np.arange(count, dtype=np.float32)
    found = run_rule(device, along_one_axis(x, indices, updates), rule, x, indices, updates)
    assert found.tolist() == [x[0], count - 2, x[2]]


@pytest.mark.parametrize("rule", ["sparse", "in_output", "table"])
def test_the_last_of_updates_at_the_same_time_counts(device: dmlvk.Device, rule: str) -> None:
    """Each element has an update in either half of the workgroups, which meet it in opposite orders: where two threads of a
    CPU run a half each, half of the pairs come in the wrong order."""
    count = 2**20
    updates = np.arange(2 * count, dtype=np.float32)
    indices = np.concatenate([np.arange(count)[::-1], np.arange(count)]).astype(np.int32)
    x = np.full(count, -1, np.float32)
    found = run_rule(device, along_one_axis(x, indices, updates), rule, x, indices, updates)
    np.testing.assert_array_equal(found, updates[count:])


@pytest.mark.parametrize("rule", ["sparse", "table"])
@pytest.mark.parametrize("kind", [np.uint8, np.float16, np.float64])
def test_many_long_rows(device: dmlvk.Device, rule: str, kind: Any) -> None:
    """Rows have more 16-byte words than a workgroup has invocations, several times over."""
    rng = np.random.default_rng(3)
    x, updates = (rng.integers(0, 255, (rows, 2064)).astype(kind) for rows in (67, 101))
    indices = rng.integers(-67, 80, (101, 1))
    tensors = described(x, indices, updates, x)
    names = ("input_tensor", "indices_tensor", "updates_tensor", "output_tensor")
    counts = {"input_dimension_count": 2, "indices_dimension_count": 2}
    desc = dmlvk.ScatterNd(**dict(zip(names, tensors, strict=True)), **counts)
    expected = x.copy()
    for index, row in zip(indices[:, 0], updates, strict=True):
        if -67 <= index < 67:
            expected[index] = row
    np.testing.assert_array_equal(run_rule(device, desc, rule, x, indices, updates), expected)


# -- other implementations


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_agree_with_the_onnx_reference(device: dmlvk.Device, axis: int) -> None:
    x, updates = random(5, 6, 7), random(5, 6, 7)
    indices = np.argsort(random(5, 6, 7), axis).astype(np.int64)  # no index twice
    node = helper.make_node("ScatterElements", ["x", "indices", "updates"], ["y"], axis=axis)
    feeds = {"x": x, "indices": indices, "updates": updates}
    (expected,) = onnx.reference.ReferenceEvaluator(node).run(None, feeds)  # type: ignore[misc]
    found = eager.scatter_elements(x, indices, updates, axis=axis, device=device)
    np.testing.assert_array_equal(found, expected)


def test_tuples_agree_with_the_onnx_reference(device: dmlvk.Device) -> None:
    x, updates = random(4, 5, 6), random(1, 7, 6)
    places = np.random.default_rng(1).permutation(20)[:7]
    indices = np.stack([places // 5, places % 5], -1)[None]
    node = helper.make_node("ScatterND", ["x", "indices", "updates"], ["y"])
    feeds = {"x": x, "indices": indices[0], "updates": updates[0]}
    (expected,) = onnx.reference.ReferenceEvaluator(node).run(None, feeds)  # type: ignore[misc]
    counts = {"input_dimension_count": 3, "indices_dimension_count": 2}
    found = eager.scatter_nd(x, indices, updates, **counts, device=device)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8])
def test_agrees_with_torch(device: dmlvk.Device, torch: ModuleType, kind: Any) -> None:
    x, updates = (random(rows, 9) * 50 for rows in (31, 17))
    x, updates = x.astype(kind), updates.astype(kind)
    indices = np.argsort(random(31, 9), 0)[:17]
    expected = torch.from_numpy(x).scatter(0, torch.from_numpy(indices), torch.from_numpy(updates)).numpy()
    np.testing.assert_array_equal(eager.scatter_elements(x, indices, updates, axis=0, device=device), expected)
    rows = indices[:, :1]
    expected = torch.from_numpy(x).index_put((torch.from_numpy(rows[:, 0]),), torch.from_numpy(updates)).numpy()
    counts = {"input_dimension_count": 2, "indices_dimension_count": 2}
    np.testing.assert_array_equal(eager.scatter_nd(x, rows, updates, **counts, device=device), expected)


@pytest.mark.parametrize("row", [dmlvk.ScatterElements, dmlvk.ScatterNd], ids=lambda row: row.__name__)
def test_tables_in_parts(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, row: type[OperatorDesc]) -> None:
    """A binding that just holds the tensors holds the table of a part of narrow elements only."""
    entry = all_cases()[row]
    parts = []
    for variation in variations(entry):
        if variation.data_type != TensorDataType.FLOAT16:
            continue
        own = dataclasses.replace(variation, rule="table")
        slots = [*(desc := build(row, own).desc).input_slots(), *desc.output_slots()]
        most = max(slot.tensor.total_tensor_size_in_bytes for slot in slots if slot.tensor is not None)
        with monkeypatch.context() as patch:
            patch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, storage_buffer_bytes=most))
            outcome = check(device, entry, own)
        assert outcome.passed and not outcome.unsupported, (str(own), outcome.detail)
        parts.append(outcome.dispatches // 3)
    assert max(parts) > 1
