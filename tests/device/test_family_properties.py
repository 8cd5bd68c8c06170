"""Properties of reductions, softmax, normalization, optimizers, pooling, resampling, regions of interest, scans and sorts,
over random types, ranks, sizes, axes, windows, strides, offsets and schedules: what is valid equals the oracle and touches
nothing else, what is not is refused before the GPU sees it.

An operator takes part by having its cases in one of the families' files. Of a drawn case stay the values and the numbers
that its tolerance is for; everything else is drawn anew, by the names and kinds of the row's fields.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from drawing import BROKEN_VALUES, Draw, broken_tensors, draw_activation, draw_sizes, draw_tensor, examples
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import InvalidArgumentError, TensorDataType, TensorDesc
from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.spec import ops
from dmlvk.spec.enums import InterpolationMode, OperatorType, ReduceFunction
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.schema import FieldKind, FieldSpec, OperatorDesc, Size2D
from dmlvk.verify.cases import (
    local_response_gradient,
    normalization,
    normalization_gradient,
    optimizer,
    pooling,
    reduction,
    resample,
    resample_gradient,
    roi,
    roi_gradient,
    scan,
    softmax,
    sort,
)
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, normal
from dmlvk.verify.cases.problem import Problem, Variation, build
from dmlvk.verify.check import Outcome, check_problem

T = TensorDataType
Sizes = tuple[int, ...]
FAMILIES = (
    *(reduction, softmax, normalization, normalization_gradient, local_response_gradient, optimizer, pooling, resample),
    *(resample_gradient, roi, roi_gradient, scan, sort),
)
ENTRIES = tuple(entry for family in FAMILIES for entry in family.CASES if entry.operator.type is not OperatorType.INVALID)
"""Of DirectML's operators: what a user may ask for. Passes alone make the rows of our own in these families."""
PARAMETERS = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.operator.__name__)

SIZES = st.sampled_from([1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 37])
"""Ones, primes, whole groups of 16 bytes and one more."""
LONG = st.sampled_from([257, 1024, 1031, 4097])
"""Past what an invocation, a subgroup and a workgroup hold of a row."""
WEIGHTS = st.sampled_from([-2.0, -0.5, 0.0, 0.25, 0.5, 1.0])
SCALES = st.sampled_from([-1.5, -1.0, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 2.75, 4.0])
BATCH_GRADIENTS = (ops.BatchNormalizationGrad, ops.BatchNormalizationTrainingGrad)
PLACES = ("output_index_tensor", "output_indices_tensor", "indices_tensor", "batch_indices_tensor")
"""Tensors of indices, whose type no other tensor's has to equal."""


def of_any_sizes(domain: Domain) -> Domain:
    """The domain, or normal values for sizes that it is not for: some are for those of one case."""

    def values(rng: np.random.Generator, sizes: Sizes, data_type: TensorDataType) -> Array:
        try:
            found = domain(rng, sizes, data_type)
        except (IndexError, ValueError, OverflowError):
            found = None
        return normal(rng, sizes, data_type) if found is None or found.shape != sizes else found

    return values


def positions(rng: np.random.Generator, sizes: Sizes, data_type: TensorDataType) -> Array:
    """Indices around those of a small tensor."""
    return rng.integers(0, 300, sizes).astype(NUMPY_TYPES[data_type])


class Drawing:
    """A valid problem of an operator.

    Attributes:
        variation: Its case, data type, and the input that the output shares its bytes with.
        problem: The desc and its tensors.
    """

    def __init__(self, draw: Draw, entry: OperatorCases) -> None:
        self.draw = draw
        self.operator = entry.operator
        case = draw(st.sampled_from(entry.cases))
        self.data_type = draw(st.sampled_from(case.only or entry.crossed_types))
        self.function = case.attributes.get("function")
        self.sizes = self._sizes()
        self.attributes: dict[str, Any] = dict(case.attributes)
        for spec in self.operator.fields:
            if not spec.kind.is_tensor:
                self._draw_attribute(spec)
        self.regions = draw(st.integers(1, 4))
        self.inputs = inputs = self._inputs(frozenset(case.inputs))
        domains = {name: case.domains.get(name) or case.domains.get("") or normal for name in inputs}
        domains |= {"indices_tensor": positions} if "indices_tensor" in inputs else {}
        case = dataclasses.replace(
            case,
            name=f"{case.name} #{draw(st.integers(0, 2**32 - 1))}",  # other values than another example has
            inputs=inputs,
            outputs=self._outputs(),
            attributes=self.attributes,
            data_types={**case.data_types, **self._index_types()},
            domains={name: of_any_sizes(domain) for name, domain in domains.items()},
        )
        in_place = draw(st.sampled_from(["", *self.operator.in_place]))
        self.variation = Variation(case, self.data_type, "drawn", in_place)
        self.problem: Problem = build(self.operator, self.variation, self._place)

    def _place(self, kind: TensorDataType, sizes: Sizes, layout: str, turn: int, *, is_output: bool) -> GuardedTensor:
        return draw_tensor(self.draw, kind, sizes, is_output=is_output)

    def _sizes(self) -> Sizes:
        """The sizes of the input: at most one is long, where rows may be and no product of all of them is taken."""
        least, most = next(spec.dimension_counts for spec in self.operator.fields if spec.kind.is_input)
        sizes = draw_sizes(self.draw, least, most, self.draw(st.sampled_from([60, 400, 1500])), SIZES)
        names = {spec.name for spec in self.operator.fields}
        is_product = self.operator is ops.CumulativeProduct or self.function is ReduceFunction.MULTIPLY
        if names & {"axis", "axes"} and not is_product and self.draw(st.integers(0, 3)) == 0:
            at = self.draw(st.integers(0, len(sizes) - 1))
            short = tuple(min(size, 3) if math.prod(sizes) > 60 else size for size in sizes)
            sizes = (*short[:at], self.draw(LONG), *short[at + 1 :])
        if any(constraint.label == "effective_rank" for constraint in self.operator.constraints):
            return (*(1,) * (len(sizes) - 2), *sizes[-2:])
        return sizes

    # -- attributes, by name and kind

    def _draw_attribute(self, spec: FieldSpec) -> None:
        """Draws the attributes in the order of the row's fields: those that depend on others come after them."""
        draw, rank = self.draw, len(self.sizes)
        drawn: Any
        if spec.name in ("function", "reduction_function", "epsilon", "alpha", "beta", "bias"):
            return  # the case's values go with these
        if spec.name == "axes":
            drawn = tuple(draw(st.permutations(range(rank)))[: draw(st.integers(0, rank))])
        elif spec.name == "axis":
            drawn = draw(st.integers(0, rank - 1))
        elif spec.name == "k":
            size = self.sizes[self.attributes["axis"]]
            drawn = draw(st.sampled_from(sorted({1, min(2, size), -(-size // 3), size})))
        elif spec.name == "local_size":
            drawn = draw(st.integers(1, 9 if self.attributes["cross_channel"] else 5))
        elif spec.name == "window_size":
            drawn = tuple(draw(st.sampled_from([1, 2, 3, 5, size])) for size in self.sizes[2:])
            drawn = drawn if math.prod(drawn) <= 1200 else (3,) * (rank - 2)
        elif spec.name in ("strides", "dilations"):
            drawn = tuple(draw(st.sampled_from([1, 1, 2, 3])) for _ in self.sizes[2:])
        elif spec.name in ("start_padding", "end_padding"):
            drawn = tuple(draw(st.sampled_from([0, 0, 1, 2])) for _ in self.sizes[2:])
        elif spec.name == "scales":
            drawn = tuple(draw(SCALES) for _ in self.sizes)
        elif spec.name.endswith("_pixel_offsets"):
            drawn = tuple(draw(WEIGHTS) for _ in self.sizes)
        elif spec.kind is FieldKind.SIZE_2D:
            drawn = Size2D(draw(st.integers(1, 5)), draw(st.integers(1, 5)))
        elif spec.kind is FieldKind.BOOL:
            drawn = draw(st.booleans())
        elif spec.kind is FieldKind.ENUM:
            assert spec.enumeration is not None
            drawn = draw(st.sampled_from(list(spec.enumeration)))
        elif spec.kind is FieldKind.FUSED_ACTIVATION:
            drawn = draw_activation(draw)
        else:
            return
        self.attributes[spec.name] = drawn

    # -- sizes of the other tensors

    def _inputs(self, names: frozenset[str]) -> dict[str, Sizes]:
        """The sizes of the case's inputs, and of some of the optional ones that the row has."""
        found: dict[str, Sizes] = {}
        for spec in self.operator.fields:
            needed = self.operator is ops.RoiAlignGrad and self.attributes.get("reduction_function") == ReduceFunction.MAX
            if spec.kind.is_input and (needed or self.draw(st.booleans()) if spec.optional else spec.name in names):
                found[spec.name] = self._input(spec, found)
        return found

    def _input(self, spec: FieldSpec, others: dict[str, Sizes]) -> Sizes:
        draw, channels = self.draw, self.sizes[1] if len(self.sizes) > 1 else 1
        if spec.name == "roi_tensor":
            return (1, 1, self.regions, 5) if self.operator is ops.RoiPooling else (*self._ones(2), self.regions, 4)
        if spec.name == "batch_indices_tensor":
            return (*self._ones(3), self.regions)
        if self.operator is ops.RoiAlignGrad and spec.name == "input_gradient_tensor":
            # The case's samples at each output: the oracle lists them all.
            sides = st.integers(1, 9 if self.attributes.get("minimum_samples_per_output", 1) < 9 else 2)
            return (self.regions, channels, draw(sides), draw(sides))
        if self.operator is ops.QuantizedLinearAveragePooling and spec.name != "input_tensor":
            each = (1, channels, *(1,) * (len(self.sizes) - 2))
            return draw(st.sampled_from([each, (1, *self._ones(4))]))
        if self.operator is ops.BatchNormalizationTraining and spec.name == "bias_tensor":
            return others["scale_tensor"]
        if spec.name == "training_step_tensor":
            return (1, 1, 1, 1)
        if self.operator in BATCH_GRADIENTS and spec.name in ("variance_tensor", "scale_tensor"):
            return others["mean_tensor"]
        if spec.name in ("mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor"):
            return tuple(draw(st.sampled_from([1, size])) for size in self.sizes)
        return self.sizes

    def _ones(self, most: int) -> Sizes:
        return (1,) * self.draw(st.integers(0, most))

    def _outputs(self) -> dict[str, Sizes]:
        """The sizes of the outputs that the row does not infer, or that are optional."""
        names = [spec.name for spec in self.operator.fields if spec.kind.is_output]
        if "window_size" in self.attributes:
            sizes = self.sizes[:2] + self._windows()
            return {name: sizes for name in names if name == "output_tensor" or self.draw(st.booleans())}
        if self.operator in (ops.RoiAlign, ops.RoiAlign1):
            return {
                "output_tensor": (self.regions, self.sizes[1], self.draw(st.integers(1, 9)), self.draw(st.integers(1, 9)))
            }
        if self.operator is ops.RoiAlignGrad:
            own = (self.sizes, self.inputs["roi_tensor"])
            # What has no images cannot have the boxes' gradient.
            wanted = self.draw(st.sampled_from([1, 2, 3])) if "input_tensor" in self.inputs else 1
            return {name: size for at, (name, size) in enumerate(zip(names, own, strict=True)) if wanted >> at & 1}
        if self.operator is ops.MaxUnpooling or "scales" in self.attributes:
            return {names[0]: draw_sizes(self.draw, len(self.sizes), len(self.sizes), 1500, SIZES)}
        return {}

    def _windows(self) -> Sizes:
        """How many windows fit along each spatial dimension, rounded down or up; the end's padding makes room for one."""
        counts, arrays = [], self.attributes
        ends = list(arrays["end_padding"])
        for at, size in enumerate(self.sizes[2:]):
            reach = (arrays["window_size"][at] - 1) * arrays.get("dilations", (1,) * 3)[at] + 1
            room = size + arrays["start_padding"][at] - reach
            ends[at] = max(ends[at], -room)
            step = arrays["strides"][at]
            counts.append((room + ends[at]) // step + 1)
            counts[-1] += self.draw(st.booleans()) and (room + ends[at]) % step > 0
        arrays["end_padding"] = tuple(ends)
        return tuple(counts)

    def _index_types(self) -> dict[str, TensorDataType]:
        places = (*PLACES, "output_tensor") if self.operator in (ops.Argmin, ops.Argmax) else PLACES
        fields = (spec for spec in self.operator.fields if spec.name in places)
        return {spec.name: self.draw(st.sampled_from(spec.data_types)) for spec in fields}


def assert_passed(outcome: Outcome, what: object) -> None:
    assert outcome.passed, f"{outcome.variation}: {outcome.detail}\n{what}"
    assert not outcome.unsupported, "the CI's device can do everything"


@PARAMETERS
@examples(3)
@given(data=st.data())
def test_what_is_valid_equals_the_oracle(device: dmlvk.Device, entry: OperatorCases, data: st.DataObject) -> None:
    drawing = Drawing(data.draw, entry)
    desc = drawing.problem.desc
    with pytest.MonkeyPatch.context() as patch:
        is_cpu = data.draw(st.booleans())
        patch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, is_cpu=is_cpu))
        rule = data.draw(st.sampled_from(["", *possible_rules(desc, device.capabilities)]))
        outcome = check_problem(device, entry, dataclasses.replace(drawing.variation, rule=rule), drawing.problem)
    assert_passed(outcome, desc)


# -- loops longer than a CPU's driver lets them be


@pytest.mark.parametrize(
    ("operator", "side", "attributes"),
    [
        (ops.AveragePooling1, 310, {}),
        (ops.LpPooling1, 600, {"p": 3}),
        (ops.MaxPooling2, 601, {}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_windows_of_more_elements_than_a_loop_has_rounds(
    device: dmlvk.Device, operator: type[Any], side: int, attributes: dict[str, Any]
) -> None:
    """lavapipe ends the loops of an invocation after 65535 rounds in all, without an error."""
    entry = next(entry for entry in ENTRIES if entry.operator is operator)
    arrays = {"strides": (1, 2), "window_size": (side - 1, side - 2), "start_padding": (0, 0), "end_padding": (0, 0)}
    arrays |= {"dilations": (1, 1)}
    case = Case(
        "large windows", {"input_tensor": (1, 1, side, side)}, {**arrays, **attributes}, {"output_tensor": (1, 1, 2, 2)}
    )
    variation = Variation(case, T.FLOAT32, "packed")
    assert_passed(check_problem(device, entry, variation, build(operator, variation)), operator)


@pytest.mark.parametrize("is_cpu", [True, False])
def test_wide_windows_over_channels_last(device: dmlvk.Device, is_cpu: bool) -> None:
    """33 groups a row of the input: one more than a word of flags has bits."""
    entry = next(entry for entry in ENTRIES if entry.operator is ops.AveragePooling1)
    arrays = {"strides": (1, 1), "window_size": (1, 33), "start_padding": (0, 0), "end_padding": (0, 1), "dilations": (1, 1)}
    case = Case("wide windows", {"input_tensor": (1, 2, 1, 35)}, arrays, {"output_tensor": (1, 2, 1, 4)})
    variation = Variation(case, T.FLOAT32, "channels last")

    def place(kind: TensorDataType, sizes: Sizes, layout: str, turn: int, *, is_output: bool) -> GuardedTensor:
        return GuardedTensor(TensorDesc(kind, sizes, (2 * sizes[3], 1, 2 * sizes[3], 2)), 16)

    problem = build(entry.operator, variation, place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, is_cpu=is_cpu))
        assert_passed(check_problem(device, entry, variation, problem), problem.desc)


def test_what_a_cpu_would_compute_wrongly_is_refused() -> None:
    """Windows of kernels that have no schedule for large ones."""
    cpu = Capabilities(features=frozenset({"storage8", "storage16", "int8", "int16"}), is_cpu=True)
    square = TensorDesc(T.FLOAT32, (1, 1, 1000, 1000))
    bytes_ = TensorDesc(T.UINT8, (1, 1, 1000, 1000))
    one = TensorDesc(T.FLOAT32, (1,))
    descs = (
        ops.LocalResponseNormalization(input_tensor=square, output_tensor=square, cross_channel=False, local_size=300),
        ops.Resample3(
            input_tensor=square,
            output_tensor=TensorDesc(T.FLOAT32, (1, 1, 2, 2)),
            interpolation_mode=InterpolationMode.LINEAR,
            scales=(1, 1, 0.002, 0.002),
            input_pixel_offsets=(0.5,) * 4,
            output_pixel_offsets=(-0.5,) * 4,
            antialiased=True,
        ),
        ops.RoiPooling(
            input_tensor=square,
            roi_tensor=TensorDesc(T.FLOAT32, (1, 1, 3, 5)),
            output_tensor=TensorDesc(T.FLOAT32, (3, 1, 2, 2)),
            pooled_size=Size2D(2, 2),
        ),
        ops.QuantizedLinearAveragePooling(
            input_tensor=bytes_,
            input_scale_tensor=one,
            output_scale_tensor=one,
            output_tensor=TensorDesc(T.UINT8, (1, 1, 1, 1)),
            strides=(1, 1),
            window_size=(1000, 1000),
            start_padding=(0, 0),
            end_padding=(0, 0),
            dilations=(1, 1),
        ),
    )
    for desc in descs:
        with pytest.raises(UnsupportedError, match="65535 rounds"):
            lower(desc, cpu)
        assert lower(desc, dataclasses.replace(cpu, is_cpu=False)).dispatches


# -- descs that are not valid


def broken_attributes(desc: OperatorDesc, spec: FieldSpec) -> Iterator[object]:
    """What an attribute must not be: of its kind, and beside the tensors that this desc has."""
    yield from BROKEN_VALUES[spec.kind]
    sizes = next(slot.tensor.sizes for slot in desc.input_slots() if slot.tensor is not None)
    value = getattr(desc, spec.name)
    if spec.name == "axis":
        yield from (len(sizes), 2**32 - 1)
    elif spec.name == "axes":
        yield from ((len(sizes),), (0, 0), (2**32 - 1,))
    elif spec.name == "k":
        yield from (0, sizes[getattr(desc, "axis")] + 1)  # noqa: B009  # not every row has one
    elif spec.name in ("local_size", "p"):
        yield 0
    elif spec.name in ("strides", "dilations", "window_size", "scales"):
        yield (*value[:-1], 0)
    if spec.name in ("scales", "input_pixel_offsets", "output_pixel_offsets"):
        yield from ((*value[:-1], wrong) for wrong in (math.inf, math.nan))
    if spec.kind in (FieldKind.UINT_ARRAY, FieldKind.FLOAT_ARRAY) and spec.name != "axes":
        yield from ((*value, 1), value[:-1])


def work(device: dmlvk.Device) -> tuple[int, ...]:
    """Counts of all that the GPU or its driver were ever asked for."""
    return (device.dispatches, device.native.submissions, device.pipelines_created, device.memory()["live"])


@PARAMETERS
@examples(3)
@given(data=st.data())
def test_every_mistake_in_a_desc_is_refused(device: dmlvk.Device, entry: OperatorCases, data: st.DataObject) -> None:
    desc = Drawing(data.draw, entry).problem.desc
    before = work(device)
    device.create_operator(desc)
    for spec in desc.fields:
        for value in broken_tensors(desc, spec) if spec.kind.is_tensor else broken_attributes(desc, spec):
            with pytest.raises(InvalidArgumentError) as caught:
                device.create_operator(desc.replace(**{spec.name: value}))
                pytest.fail(f"{spec.name} = {value!r} is accepted in {desc}")
            error = caught.value
            assert error.operator == desc.type.dml_name
            assert error.field == spec.dml_name, f"{spec.name} = {value!r}: {error}"
            assert error.rule and error.rule in str(error)
    assert work(device) == before
