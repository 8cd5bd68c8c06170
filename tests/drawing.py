"""What the property tests draw: sizes, layouts, offsets, values and whole pointwise problems; and how many examples run.

DMLVK_EXAMPLES=20 runs twenty times as many examples, other ones each time: a soak.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.kernels.elementwise import lowering as elementwise
from dmlvk.kernels.elementwise.lowering import ROWS
from dmlvk.kernels.quantization import lowering as quantization
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorFlags
from dmlvk.spec.schema import REGISTRY, FieldKind, FieldSpec, OperatorDesc, ScaleBias, Size2D
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.elementwise import coarse
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import Case, OperatorCases, normal, special
from dmlvk.verify.cases.problem import Problem, Variation, build

Draw = Callable[[st.SearchStrategy[Any]], Any]
SIZES = st.sampled_from([1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 37])
MOST_ELEMENTS = 3000
SOAK = int(os.environ.get("DMLVK_EXAMPLES", "1"))


@contextmanager
def scheduled(device: dmlvk.Device, *, is_cpu: bool, items: int = 0) -> Iterator[None]:
    """Lowers as for a CPU or a GPU, and with so many items an invocation, which otherwise only large problems have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, is_cpu=is_cpu))
        if items:
            for lowering in (elementwise, quantization):
                patch.setattr(lowering, "_item_count", lambda *problem: items)
        yield


def examples(count: int) -> settings:
    """The same examples each time, unless it is a soak: nothing is kept between runs."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    derandomize = SOAK == 1
    return settings(
        max_examples=count * SOAK,
        deadline=None,
        derandomize=derandomize,
        database=None,
        suppress_health_check=checks,
        print_blob=not derandomize,
    )


def draw_sizes(
    draw: Draw, least: int = 1, most: int = 8, elements: int = MOST_ELEMENTS, each: st.SearchStrategy[int] = SIZES
) -> tuple[int, ...]:
    """Sizes of a random rank and at most so many elements."""
    sizes: list[int] = []
    for _ in range(draw(st.integers(least, most))):
        size = draw(each)
        sizes.append(size if math.prod(sizes) * size <= elements else 1)
    return tuple(draw(st.permutations(sizes)))


def draw_strides(
    draw: Draw, sizes: tuple[int, ...], *, is_output: bool, order: tuple[int, ...] = ()
) -> tuple[int, ...] | None:
    """Strides of a random layout, None for packed.

    The dimensions nest in any order: without gaps, with gaps that keep rows on 16-byte words, or with any. Of an input some
    may be broadcast. Or they do not nest: an input's elements may then overlap.

    Args:
        draw: Hypothesis's.
        sizes: The tensor's.
        is_output: Whether elements must not overlap.
        order: The dimensions from the innermost out; drawn where not given.
    """
    layout = draw(st.sampled_from(["packed", "dense", "dense", "rows", "gaps", "gaps", "woven"]))
    if layout == "packed":
        return None
    if layout == "woven":
        strides = [draw(st.integers(1, 40)) for _ in sizes]
        overlap = TensorDesc(TensorDataType.UINT8, sizes, tuple(strides)).has_overlapping_elements
        return None if is_output and overlap else tuple(strides)
    strides = [0] * len(sizes)
    step = draw(st.sampled_from([1, 2, 3])) if layout == "gaps" else 1
    broadcasts = not is_output and draw(st.booleans())
    for axis in order or draw(st.permutations(range(len(sizes)))):
        if broadcasts and draw(st.integers(0, 2)) == 0:
            continue
        strides[axis] = step
        step *= sizes[axis]
        if layout == "rows" and step > 1:
            step = -(-step // 16) * 16
        elif layout == "gaps":
            step += draw(st.sampled_from([0, 0, 0, 1, 3, 8]))
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return tuple(strides) if last < 20 * MOST_ELEMENTS else None


def draw_tensor(
    draw: Draw,
    data_type: TensorDataType,
    sizes: tuple[int, ...],
    *,
    is_output: bool = False,
    order: tuple[int, ...] = (),
) -> GuardedTensor:
    """A tensor of a random layout at a random offset, perhaps with bytes to spare behind it."""
    strides = draw_strides(draw, sizes, is_output=is_output, order=order)
    slack = draw(st.sampled_from([0, 0, 4, 12]))
    desc = TensorDesc(data_type, sizes, strides)
    desc = TensorDesc(data_type, sizes, strides, desc.total_tensor_size_in_bytes + slack)
    return GuardedTensor(desc, 16 * draw(st.integers(0, 20)))


def fill(draw: Draw, tensor: GuardedTensor, domain: Any = None) -> None:
    """Gives an input its values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    desc = tensor.desc
    values = (domain or draw(st.sampled_from([normal, special])))(rng, desc.sizes, desc.data_type)
    index = tuple(slice(0, 1) if step == 0 else slice(None) for step in desc.effective_strides)
    tensor.view()[...] = np.broadcast_to(values[index], desc.sizes)


FUSABLE = sorted((cls for cls in REGISTRY.values() if cls.fusable), key=lambda cls: cls.__name__)


def draw_activation(draw: Draw) -> OperatorDesc | None:
    """A fused activation, or none."""
    cls = draw(st.sampled_from([None, None, *FUSABLE]))
    return None if cls is None else cls()


# -- pointwise problems

_FAMILY = (
    *ROWS,
    *(ops.ElementWiseClip, ops.ElementWiseClipGrad, ops.ElementWiseIf, ops.ElementWisePow, ops.ValueScale2d),
    *(ops.FillValueConstant, ops.FillValueSequence, ops.DiagonalMatrix, ops.DiagonalMatrix1, ops.OneHot),
    *(ops.ElementWiseQuantizeLinear, ops.ElementWiseDequantizeLinear, ops.ElementWiseQuantizedLinearAdd),
    *(ops.Quantize, ops.Dequantize),
)
POINTWISE = tuple(all_cases()[row] for row in _FAMILY)
"""The cases of every operator whose elements do not mix, fills and quantization included."""

POINTWISE_SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 257])
"""Around groups of elements, tiles and workgroups."""

NUMBERS = st.one_of(
    st.sampled_from([-math.inf, -(2.0**63), -(2.0**31), -32769.0, -129.0, -0.0, 0.5, 256.0, 65535.0, 2.0**32, math.inf]),
    st.floats(-300, 300, width=32),
)
"""Attributes in and around the ranges of the integer types."""

SCALE_BIASES = (None, ScaleBias(1.0, 0.0), ScaleBias(0.75, 0.3125), ScaleBias(-0.5, 2.0), ScaleBias(0.0, -1.0))


class Pointwise(NamedTuple):
    """A drawn problem with what ``verify.check_problem`` wants to know about it."""

    entry: OperatorCases
    variation: Variation
    problem: Problem


def draw_pointwise(draw: Draw, entries: tuple[OperatorCases, ...] = POINTWISE, *, aliases: bool = True) -> Pointwise:
    """A valid problem of a random operator: attributes, types and values are those of one of its cases; sizes, layouts,
    offsets and, where wanted, the input that the output shares its bytes with are drawn."""
    entry = draw(st.sampled_from(entries))
    case = draw(st.sampled_from(entry.cases))
    data_type = draw(st.sampled_from(case.only or entry.crossed_types))
    inputs, outputs = _draw_sizes_of(draw, entry.operator, case)
    name = f"{case.name} #{draw(st.integers(0, 2**32 - 1))}"  # other values than another example has
    case = dataclasses.replace(_draw_attributes(draw, entry, case, data_type), name=name, inputs=inputs, outputs=outputs)
    rank = len(next(iter((inputs | outputs).values())))
    order = draw(st.permutations(range(rank)))  # which some tensors share

    def place(kind: TensorDataType, sizes: tuple[int, ...], layout: str, turn: int, *, is_output: bool) -> GuardedTensor:
        common = len(sizes) == rank and draw(st.booleans())
        return draw_tensor(draw, kind, sizes, is_output=is_output, order=order if common else ())

    shared = draw(st.sampled_from(["", *_sharing(entry.operator, case, data_type)])) if aliases else ""
    variation = Variation(case, data_type, "drawn", shared)
    problem = build(entry.operator, variation, place)
    if shared and draw(st.booleans()):
        problem = _share_all(problem, _sharing(entry.operator, case, data_type))
    return Pointwise(entry, variation, problem)


def _sharing(operator: type[OperatorDesc], case: Case, data_type: TensorDataType) -> list[str]:
    """The inputs whose bytes the output may share: those that the row lists and that are of its type."""
    output = next(spec.name for spec in operator.fields if spec.kind is FieldKind.OUTPUT_TENSOR)
    written = case.data_types.get(output, data_type)
    return [name for name in operator.in_place if case.data_types.get(name, data_type) == written]


def _share_all(problem: Problem, names: list[str]) -> Problem:
    """The problem with every one of the inputs in the output's bytes."""
    (output,) = problem.outputs
    assert output is not None
    inputs = [
        output if slot.field.name in names else tensor
        for slot, tensor in zip(problem.desc.input_slots(), problem.inputs, strict=True)
    ]
    return Problem(problem.desc.replace(**dict.fromkeys(names, output.desc)), tuple(inputs), problem.outputs)


def _draw_attributes(draw: Draw, entry: OperatorCases, case: Case, data_type: TensorDataType) -> Case:
    """The case with other attributes where the operator is exact: where it computes, what they round would be enlarged by
    the function's slope. Of floats that is a ScaleBias, of integers also every number."""
    if entry.tolerance:
        return case
    attributes, domains = dict(case.attributes), case.domains
    kinds = {spec.name: spec.kind for spec in entry.operator.fields}
    scale_bias = draw(st.sampled_from(SCALE_BIASES)) if FieldKind.SCALE_BIAS in kinds.values() else None
    if scale_bias is not None:
        attributes["scale_bias"] = scale_bias
        domains = dict.fromkeys(("", *domains), coarse(normal))
    if not data_type.name.startswith("FLOAT"):
        attributes |= {name: draw(NUMBERS) for name, kind in kinds.items() if kind is FieldKind.FLOAT}
    return dataclasses.replace(case, attributes=attributes, domains=domains)


Sizes = dict[str, tuple[int, ...]]


def _draw_sizes_of(draw: Draw, operator: type[OperatorDesc], case: Case) -> tuple[Sizes, Sizes]:
    """Sizes of the case's inputs and of its outputs: equal ones, but for the operators whose tensors differ."""
    elements = draw(st.sampled_from([40, 400, 400, 400, 4000, 12000]))

    def sizes_of(least: int = 1, most: int = 8) -> tuple[int, ...]:
        return draw_sizes(draw, least, most, elements, POINTWISE_SIZES)

    if operator in (ops.DiagonalMatrix, ops.DiagonalMatrix1):
        sizes = sizes_of(2, 4)
    elif operator is ops.ValueScale2d:
        count, height, width = sizes_of(3, 3)
        sizes = (count, len(case.attributes["bias"]), height, width)  # type: ignore[arg-type]
    elif operator in (ops.Quantize, ops.Dequantize):
        return _draw_blocks(draw, case, sizes_of())
    else:
        sizes = sizes_of()
    inputs, outputs = dict.fromkeys(case.inputs, sizes), dict.fromkeys(case.outputs, sizes)
    if operator is ops.OneHot:
        axis = case.attributes["axis"]
        assert isinstance(axis, int)
        sizes = sizes_of(axis + 1)
        ones = (1,) * (len(sizes) - 1)
        inputs = {
            "indices_tensor": (*sizes[:axis], 1, *sizes[axis + 1 :]),
            "values_tensor": (*ones, draw(st.integers(2, 5))),
        }
        outputs = {"output_tensor": sizes}
    if operator is ops.ElementWiseQuantizedLinearAdd:
        inputs |= {name: (1,) * draw(st.integers(1, 8)) for name in inputs if name not in ("a_tensor", "b_tensor")}
    return inputs, outputs


def _draw_blocks(draw: Draw, case: Case, sizes: tuple[int, ...]) -> tuple[Sizes, Sizes]:
    """Sizes of a block-wise quantization: each size of the data is a multiple of the scale's."""
    blocks = tuple(draw(st.sampled_from([count for count in (1, 2, 3, 4, size) if size % count == 0])) for size in sizes)
    return {name: sizes if name == "input_tensor" else blocks for name in case.inputs}, {}


# -- mistakes

NO_NUMBERS: tuple[object, ...] = (None, "1", 1j, True)
BROKEN_VALUES: dict[FieldKind, tuple[object, ...]] = {
    FieldKind.ENUM: (99, None, "LINEAR", 1.5, (1,)),
    FieldKind.BOOL: (0, 1, None, "yes"),
    FieldKind.UINT: (-1, 2**32, 0.5, *NO_NUMBERS),
    FieldKind.INT: (-(2**31) - 1, 2**31, 0.5, *NO_NUMBERS),
    FieldKind.FLOAT: (math.nan, 1e39, -(10**400), *NO_NUMBERS),
    FieldKind.SCALAR_UNION: (10**400, *NO_NUMBERS),
    FieldKind.SCALE_BIAS: ((1.0, 0.0), 1.0, ScaleBias(math.nan, 0.0), ScaleBias(1.0, 1e39), ScaleBias(True, 0.0)),
    FieldKind.UINT_ARRAY: (None, 1, (-1,), (2**32,), (0.5,), (True,), [1], (1,) * 9),
    FieldKind.INT_ARRAY: (None, 1, (-(2**31) - 1,), (2**31,), (0.5,), (True,), [1], (1,) * 9),
    FieldKind.SIZE_2D: (None, 1, (1, 1), Size2D(-1, 1), Size2D(1, 2**32), Size2D(0.5, 1)),  # type: ignore[arg-type]
    FieldKind.FLOAT_ARRAY: (None, 1.0, (), [0.5], (math.nan,), (1e39,), ("1",), (0.0,) * 7),
    FieldKind.FUSED_ACTIVATION: (
        *("relu", 3, ops.ActivationRelu),
        *(ops.ElementWiseAdd(), ops.ActivationElu(alpha=math.nan), ops.ElementWiseNegate()),
        ops.ActivationRelu(input_tensor=TensorDesc(TensorDataType.FLOAT32, (1,))),
    ),
    FieldKind.OPERATOR_DESC_ARRAY: (
        *(None, 3, ops.ActivationRelu(), [ops.ActivationRelu()], (3,), (None,), ("relu",)),
        *((ops.ElementWiseAdd(),), (ops.ActivationElu(alpha=math.nan),), (ops.ElementWiseNegate(),)),
        (ops.ActivationRelu(input_tensor=TensorDesc(TensorDataType.FLOAT32, (1,))),),
    ),
}
"""What a field of each kind must not be."""


def broken_tensors(desc: OperatorDesc, spec: FieldSpec) -> Iterator[object]:
    """What a tensor field must not be, whatever the others are."""
    value = getattr(desc, spec.name)
    yield from (3, "tensor", np.zeros(3), TensorDesc, (), (3,), *(() if spec.optional else (None,)))
    if isinstance(value, tuple):
        yield (*value, value[0])
        yield list(value)
    if not isinstance(value, TensorDesc):
        return
    yield (value, value)
    for data_type in TensorDataType:
        if data_type not in (TensorDataType.UNKNOWN, *spec.data_types):
            yield TensorDesc(data_type, value.sizes)
    least, most = spec.dimension_counts
    for count in range(1, 9):
        if not least <= count <= most:
            yield TensorDesc(value.data_type, (1,) * count)
    if spec.kind.is_output:
        yield dataclasses.replace(value, flags=TensorFlags.OWNED_BY_DML)
        yield TensorDesc(value.data_type, (*value.sizes[:-1], 2), (*value.effective_strides[:-1], 0))
        yield TensorDesc(value.data_type, (3, 3), (1, 2))
