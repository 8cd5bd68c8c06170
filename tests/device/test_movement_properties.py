"""Properties of movement over random types, ranks, sizes, attributes, strides, offsets and schedules: what is valid has the
oracle's bits and touches nothing else, what is not is refused before the GPU sees it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from drawing import BROKEN_VALUES, POINTWISE_SIZES, Draw, broken_tensors, draw_sizes, draw_tensor, examples
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DepthSpaceOrder, InvalidArgumentError, PaddingMode, TensorDataType
from dmlvk.kernels.lowering import possible_rules
from dmlvk.spec import ops
from dmlvk.spec.schema import FieldKind, FieldSpec, OperatorDesc
from dmlvk.verify.cases import movement
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import Case, OperatorCases, any_bits, integer_limits
from dmlvk.verify.cases.problem import Problem, Variation, build
from dmlvk.verify.check import check_problem

Sizes = tuple[int, ...]
INPUT, LENGTHS = "input_tensor", "sequence_lengths_tensor"
MOST_ELEMENTS = 6000
PARAMETERS = pytest.mark.parametrize("entry", movement.CASES, ids=lambda entry: entry.operator.__name__)


@dataclasses.dataclass
class Drawn:
    """What makes a case of an operator.

    Attributes:
        inputs, outputs: Sizes by name; of outputs those that the row does not infer.
        attributes: The attributes of the desc.
    """

    inputs: dict[str, Sizes]
    attributes: dict[str, Any]
    outputs: dict[str, Sizes] = dataclasses.field(default_factory=dict)


def draw_any_sizes(draw: Draw, elements: int = MOST_ELEMENTS) -> Sizes:
    return draw_sizes(draw, 1, 8, draw(st.sampled_from([elements, elements, 300, 20])), POINTWISE_SIZES)


def draw_slice(draw: Draw) -> Drawn:
    sizes, found = draw_any_sizes(draw), []
    for size in sizes:
        offset = draw(st.sampled_from([0, 0, 1, size // 2, size - 1])) % size
        step = draw(st.sampled_from([1, 1, 1, 2, 3, size]))
        most = (size - offset - 1) // step + 1
        found.append((offset, draw(st.sampled_from([most, most, (most + 1) // 2, 1])), step))
    offsets, counts, steps = zip(*found, strict=True)
    return Drawn({INPUT: sizes}, {"offsets": offsets, "sizes": counts, "strides": steps})


def draw_slice1(draw: Draw) -> Drawn:
    """Like a Slice, in either direction, of windows that are larger than they need to be."""
    drawn = draw_slice(draw)
    offsets, counts, steps = (drawn.attributes[name] for name in ("offsets", "sizes", "strides"))
    whole = [size - offset for size, offset in zip(drawn.inputs[INPUT], offsets, strict=True)]
    least = [(count - 1) * step + 1 for count, step in zip(counts, steps, strict=True)]
    attributes = {
        "input_window_offsets": offsets,
        "input_window_sizes": tuple(draw(st.sampled_from(pair)) for pair in zip(whole, least, strict=True)),
        "input_window_strides": tuple(draw(st.sampled_from([step, step, -step])) for step in steps),
    }
    return Drawn(drawn.inputs, attributes, {"output_tensor": counts})


def draw_slice_grad(draw: Draw) -> Drawn:
    """What goes back to where a Slice1 took it from."""
    drawn = draw_slice1(draw)
    back = {"input_gradient_tensor": drawn.outputs["output_tensor"]}
    return Drawn(back, drawn.attributes, {"output_gradient_tensor": drawn.inputs[INPUT]})


def draw_pieces(draw: Draw, pieces: str, whole: str) -> tuple[dict[str, Sizes], dict[str, Sizes], dict[str, Any]]:
    sizes = draw_any_sizes(draw)
    axis = draw(st.sampled_from([axis for axis, size in enumerate(sizes) if size > 1] or [0]))
    size = sizes[axis]
    cuts = {draw(st.sampled_from([1, size // 2, size - 1, 16, 33])) for _ in range(draw(st.integers(0, 4)))}
    lengths = np.diff([0, *sorted(cut for cut in cuts if 0 < cut < size), size])
    own = {f"{pieces}[{i}]": (*sizes[:axis], int(length), *sizes[axis + 1 :]) for i, length in enumerate(lengths)}
    return own, {whole: sizes}, {"axis": axis}


def draw_split(draw: Draw) -> Drawn:
    pieces, whole, attributes = draw_pieces(draw, "output_tensors", INPUT)
    return Drawn(whole, attributes, pieces)


def draw_join(draw: Draw) -> Drawn:
    pieces, _, attributes = draw_pieces(draw, "input_tensors", "output_tensor")
    return Drawn(pieces, attributes)


def draw_padding(draw: Draw) -> Drawn:
    sizes = draw_any_sizes(draw, 400)
    pads: list[list[int]] = [[], []]
    elements = math.prod(sizes)
    for size in sizes:
        for own in pads:
            count = draw(st.sampled_from([0, 0, 0, 1, 2, size, 3 * size + 1, 17]))
            fits = elements * (1 + count / size) <= MOST_ELEMENTS
            own.append(count if fits else 0)
            elements *= 1 + own[-1] / size if fits else 1
    mode = draw(st.sampled_from(list(PaddingMode)))
    return Drawn({INPUT: sizes}, {"padding_mode": mode, "start_padding": tuple(pads[0]), "end_padding": tuple(pads[1])})


def draw_tile(draw: Draw) -> Drawn:
    sizes, repeats = draw_any_sizes(draw, 400), []
    elements = math.prod(sizes)
    for _ in sizes:
        count = draw(st.sampled_from([1, 1, 2, 3, 17]))
        repeats.append(count if elements * count <= MOST_ELEMENTS else 1)
        elements *= repeats[-1]
    return Drawn({INPUT: sizes}, {"repeats": tuple(repeats)})


def draw_blocks(draw: Draw, *, to_space: bool) -> Drawn:
    block = draw(st.integers(1, 5))
    batch, channels, height, width = draw_sizes(draw, 4, 4, MOST_ELEMENTS // block**2, POINTWISE_SIZES)
    sizes = (batch, channels * block**2, height, width) if to_space else (batch, channels, height * block, width * block)
    return Drawn({INPUT: sizes}, {"block_size": block})


def draw_reverse(draw: Draw) -> Drawn:
    sizes = draw_any_sizes(draw)
    axis = draw(st.integers(0, len(sizes) - 1))
    return Drawn({INPUT: sizes, LENGTHS: (*sizes[:axis], 1, *sizes[axis + 1 :])}, {"axis": axis})


DRAWN = {
    ops.Slice: draw_slice,
    ops.Slice1: draw_slice1,
    ops.SliceGrad: draw_slice_grad,
    ops.Split: draw_split,
    ops.Join: draw_join,
    ops.Padding: draw_padding,
    ops.Padding1: draw_padding,
    ops.Tile: draw_tile,
    ops.SpaceToDepth: lambda draw: draw_blocks(draw, to_space=False),
    ops.SpaceToDepth1: lambda draw: draw_blocks(draw, to_space=False),
    ops.DepthToSpace: lambda draw: draw_blocks(draw, to_space=True),
    ops.DepthToSpace1: lambda draw: draw_blocks(draw, to_space=True),
    ops.ReverseSubsequences: draw_reverse,
}


def draw_problem(draw: Draw, entry: OperatorCases) -> tuple[Variation, Problem]:
    """A valid problem. Some tensors nest their dimensions in one order, so that they have rows in common."""
    row = entry.operator
    data_type = draw(st.sampled_from(row.fields[0].data_types))
    drawn = DRAWN[row](draw)
    attributes = drawn.attributes
    if any(spec.name == "order" for spec in row.fields):
        attributes["order"] = draw(st.sampled_from(list(DepthSpaceOrder)))
    if row is ops.Padding:
        attributes["padding_value"] = draw(st.floats(width=32, allow_nan=False))
    if row is ops.Padding1:
        number = st.floats(width=32) if data_type.name.startswith("FLOAT") else st.integers(*integer_limits(data_type))
        attributes |= {"padding_value_data_type": data_type, "padding_value": draw(number)}
    case = Case(
        f"drawn #{draw(st.integers(0, 2**32 - 1))}",
        drawn.inputs,
        attributes,
        drawn.outputs,
        data_types={LENGTHS: draw(st.sampled_from([TensorDataType.UINT32, TensorDataType.UINT64]))},
        domains={"": any_bits, LENGTHS: movement.lengths},
    )
    order = draw(st.permutations(range(len(next(iter(drawn.inputs.values()))))))

    def place(kind: TensorDataType, sizes: Sizes, layout: str, turn: int, *, is_output: bool) -> GuardedTensor:
        common = tuple(order) if draw(st.booleans()) else ()
        return draw_tensor(draw, kind, sizes, is_output=is_output, order=common)

    variation = Variation(case, data_type, "drawn")
    return variation, build(row, variation, place)


@PARAMETERS
@examples(25)
@given(data=st.data())
def test_what_is_valid_has_the_oracles_bits(device: dmlvk.Device, entry: OperatorCases, data: st.DataObject) -> None:
    variation, problem = draw_problem(data.draw, entry)
    with pytest.MonkeyPatch.context() as patch:
        is_cpu = data.draw(st.booleans())
        patch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, is_cpu=is_cpu))
        rule = data.draw(st.sampled_from(["", *possible_rules(problem.desc, device.capabilities)]))
        outcome = check_problem(device, entry, dataclasses.replace(variation, rule=rule), problem)
    assert outcome.passed, f"{outcome.variation}: {outcome.detail}\n{problem.desc}"
    assert not outcome.unsupported, "the CI's device can do everything"


def broken_attributes(desc: OperatorDesc, spec: FieldSpec) -> Iterator[object]:
    """What an attribute must not be: of its kind, and beside the tensors that this desc has."""
    yield from BROKEN_VALUES[spec.kind]
    value = getattr(desc, spec.name)
    if spec.name == "axis":
        (sizes, *_) = (slot.tensor.sizes for slot in desc.input_slots() if slot.tensor is not None)
        yield from (len(sizes), 2**32 - 1)
    elif spec.name == "block_size":
        yield from (0, 61, 2**32 - 1)
    elif spec.kind in (FieldKind.UINT_ARRAY, FieldKind.INT_ARRAY):
        yield from ((*value, 1), value[:-1])
        if "padding" not in spec.name and "offsets" not in spec.name:
            yield (*value[:-1], 0)
        if "strides" not in spec.name and "window_sizes" not in spec.name:
            yield (*value[:-1], 2**32 - 1)
    elif spec.name == "padding_value_data_type":
        yield from (other for other in TensorDataType if other != value)
    elif spec.kind is FieldKind.SCALAR_UNION and not desc.tensor(INPUT).data_type.name.startswith("FLOAT"):
        least, most = integer_limits(desc.tensor(INPUT).data_type)
        yield from (least - 1, most + 1, 0.5, math.nan, math.inf)


@PARAMETERS
@examples(6)
@given(data=st.data())
def test_every_mistake_in_a_desc_is_refused(device: dmlvk.Device, entry: OperatorCases, data: st.DataObject) -> None:
    _, problem = draw_problem(data.draw, entry)
    desc = problem.desc
    before = (device.dispatches, device.native.submissions, device.pipelines_created)
    device.create_operator(desc)
    for spec in desc.fields:
        for value in broken_tensors(desc, spec) if spec.kind.is_tensor else broken_attributes(desc, spec):
            with pytest.raises(InvalidArgumentError) as caught:
                device.create_operator(desc.replace(**{spec.name: value}))
                pytest.fail(f"{spec.name} = {value!r} is accepted in {desc}")
            assert caught.value.operator == desc.type.dml_name
            # An output's sizes may be what is wrong about an attribute that implies them.
            implied = (
                {spec.dml_name, "OutputTensor"}
                if spec.name in ("start_padding", "end_padding", "repeats")
                else {spec.dml_name}
            )
            assert caught.value.field in implied, f"{spec.name} = {value!r}: {caught.value}"
    assert (device.dispatches, device.native.submissions, device.pipelines_created) == before
