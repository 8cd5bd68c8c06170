"""Which chains of several tensors become one launch, and in which order steps are then."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from named_steps import F32, Steps

from dmlvk.devices.capabilities import Capabilities
from dmlvk.graph.step import Step
from dmlvk.kernels.lowering import lower
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.ops.chain import MultiTensorChain, PointwiseChain, together
from dmlvk.spec.tensor import TensorDesc

_DEVICE = Capabilities(storage_buffers=64)
F16 = TensorDataType.FLOAT16
ADD, MULTIPLY, RELU = ops.ElementWiseAdd, ops.ElementWiseMultiply, ops.ActivationRelu
LINE = (1, 1, 1, 40)


def _joined(steps: Steps, *outputs: str) -> tuple[Step, ...]:
    """The steps after the passes, each behind those that write what it reads."""
    made = steps.optimized(*outputs, passes=("dead", "chain", "tensors"))
    written = {storage for step in made for storage in step.written()}
    known: set[Any] = set()
    for step in made:
        step.desc.validate()
        lower(step.desc, _DEVICE)
        assert all(storage in known or storage not in written for storage in step.read()), "reads what is not there yet"
        known.update(step.written())
    return made


def _sgd(count: int, *, interleaved: bool) -> tuple[Steps, list[str]]:
    """Steps of an optimiser with momentum, parameter by parameter, or operator by operator."""
    steps = Steps()
    for index in range(count):
        for name in "pgm":
            steps.tensor(f"{name}{index}", (1, 1, 1, 8 + index))
    steps.constant("rate", -0.5)
    todo = [(ADD, "g{0} m{0}", "n{0}"), (MULTIPLY, "n{0} rate", "s{0}"), (ADD, "p{0} s{0}", "q{0}")]
    if interleaved:
        order = [(item, index) for index in range(count) for item in todo]
    else:
        order = [(item, index) for item in todo for index in range(count)]
    for (row, inputs, output), index in order:
        steps.add(row, inputs.format(index), output.format(index), sizes=(1, 1, 1, 8 + index))
    return steps, [f"{name}{index}" for index in range(count) for name in "nq"]


@pytest.mark.parametrize("interleaved", [False, True])
def test_an_optimisers_step_is_a_few_launches(interleaved: bool) -> None:
    """Chains of two inputs: ten tensors a launch."""
    steps, outputs = _sgd(23, interleaved=interleaved)
    made = _joined(steps, *outputs)
    counts = [len(step.desc.output_tensors) for step in made if isinstance(step.desc, MultiTensorChain)]
    assert sorted(counts) == [3, 3, 10, 10, 10, 10] and len(made) == 6
    assert {storage for step in made for storage in step.outputs} == {steps.storages[name] for name in outputs}
    for step in made:
        assert len(step.inputs) == 2 * len(step.outputs)
        assert len(step.merged) >= len(step.outputs) - 1, "reports name all whose work a launch does"


@pytest.mark.parametrize(("count", "launches"), [(3, 6), (4, 2), (10, 2), (11, 4), (12, 4)])
def test_few_chains_stay_alone(count: int, launches: int) -> None:
    """Fewer than four are no list; what a full launch leaves is one if it is not alone."""
    assert len(_joined(*_flat(_sgd(count, interleaved=True)))) == launches


def _flat(made: tuple[Steps, list[str]]) -> tuple[Any, ...]:
    return made[0], *made[1]


def test_single_operators_are_joined_and_others_stay() -> None:
    steps = Steps()
    for index in range(5):
        steps.tensor(f"x{index}", LINE).add(RELU, f"x{index}", f"y{index}", sizes=LINE)
        steps.add(ops.ActivationSoftmax1, f"y{index}", f"z{index}", sizes=LINE, axes=(3,))
    made = _joined(steps, *(f"z{index}" for index in range(5)))
    assert [type(step.desc).__name__ for step in made] == ["MultiTensorChain", *["ActivationSoftmax1"] * 5]


def test_chains_that_need_each_other_stay_apart() -> None:
    """One behind the other, though they are alike."""
    steps = Steps().tensor("x0", LINE)
    for index in range(6):
        steps.add(ops.ActivationSoftmax1, f"x{index}", f"s{index}", sizes=LINE, axes=(3,))
        steps.add(RELU, f"s{index}", f"x{index + 1}", sizes=LINE)
    assert not any(isinstance(step.desc, MultiTensorChain) for step in _joined(steps, "x6"))


def test_numbers_and_operands_of_one_element_tell_kinds_apart() -> None:
    steps = Steps().tensor("one", (1, 1, 1, 1))
    for index in range(4):
        steps.tensor(f"x{index}", LINE).tensor(f"t{index}", LINE).constant(f"c{index}", index % 2)
        steps.add(MULTIPLY, f"x{index} c{index}", f"a{index}", sizes=LINE)
        steps.add(MULTIPLY, f"x{index} {'one' if index % 2 else f't{index}'}", f"b{index}", sizes=LINE)
    made = _joined(steps, *(f"{name}{index}" for index in range(4) for name in "ab"))
    assert not any(isinstance(step.desc, MultiTensorChain) for step in made)


def test_tensors_with_gaps_stay_alone() -> None:
    steps = Steps()
    for index in range(4):
        steps.tensor(f"x{index}", (4, 16)).add(RELU, f"x{index}", f"y{index}", sizes=(4, 16))
        last = steps.steps[-1]
        gaps = dataclasses.replace(last.desc.input_slots()[0].tensor, strides=(16, 1), sizes=(4, 8))
        steps.steps[-1] = dataclasses.replace(
            last, desc=last.desc.replace(input_tensor=gaps, output_tensor=TensorDesc(F32, (4, 8)))
        )
    made = _joined(steps, *(f"y{index}" for index in range(4)))
    assert not any(isinstance(step.desc, MultiTensorChain) for step in made)


def test_what_fills_a_tensor_is_a_number() -> None:
    """An optimiser's rate may come as a tensor of its own."""
    steps = Steps().tensor("x", LINE)
    fill = ops.FillValueConstant(output_tensor=TensorDesc(F32, LINE), value_data_type=F32, value=0.1)
    steps.tensor("rate", LINE)
    steps.steps.append(Step("rate", fill, (), (steps.storages["rate"],)))
    (step,) = _joined(steps.add(MULTIPLY, "x rate", "p", sizes=LINE).add(RELU, "p", "y", sizes=LINE), "y")
    assert step.desc.title == "PointwiseChain(ElementWiseMultiply, ActivationRelu)"
    assert len(step.inputs) == 1 and step.desc.numbers[0] == pytest.approx(0.1)


# -- the row


def _desc(count: int = 3, inputs: int = 2, **changes: Any) -> MultiTensorChain:
    lines = tuple(TensorDesc(F32, (8 + index,)) for index in range(count))
    desc = MultiTensorChain(
        input_tensors=tuple(line for line in lines for _ in range(inputs)),
        output_tensors=lines,
        operator_descs=(ops.ElementWiseAdd(),),
        operands=(0, inputs - 1, 15),
        numbers=(0.0, 0.0),
    )
    return desc.replace(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"output_tensors": (TensorDesc(F32, (8,)),) * 4},
        {"output_tensors": tuple(TensorDesc(F16, (8 + index,)) for index in range(3))},
        {"output_tensors": tuple(TensorDesc(F32, (9 + index,)) for index in range(3))},
        {"output_tensors": ()},
        {"operands": (0, 5, 15)},
        {"operands": (0,)},
    ],
    ids=["inputs left over", "types", "sizes", "no output", "no such operand", "operands missing"],
)
def test_what_is_no_chain_of_several(changes: dict[str, Any]) -> None:
    _desc().validate()
    with pytest.raises(InvalidArgumentError, match="Chain"):
        _desc(**changes).validate()


@pytest.mark.parametrize("inputs", range(1, 7))
def test_a_launch_has_as_many_tensors_as_metal_binds(inputs: int) -> None:
    """31 buffers, of which one has the parameters."""
    most = together(inputs)
    assert most * (inputs + 1) <= 30 < (most + 1) * (inputs + 1)
    _desc(most, inputs).validate()
    with pytest.raises(InvalidArgumentError):
        _desc(most + 1, inputs).validate()


def test_a_device_with_few_bindings_has_a_launch_each() -> None:
    desc = _desc()
    (launch,) = lower(desc, _DEVICE).dispatches
    assert launch.name == "multi_tensor_chain_2"
    few = dataclasses.replace(_DEVICE, storage_buffers=29)
    assert {launch.name for launch in lower(desc, few).dispatches} == {"pointwise_chain"}
    assert [launch.beside_previous for launch in lower(desc, few).dispatches] == [False, True, True]


def test_an_output_may_take_the_place_of_its_own_inputs_only() -> None:
    desc = _desc()
    assert [sorted(desc.overwritable(index)) for index in range(3)] == [[0, 1], [2, 3], [4, 5]]
    chain = desc.chains()[1]
    assert isinstance(chain, PointwiseChain) and chain.overwritable(0) == {0, 1}
    line = TensorDesc(F32, (8,))
    split = ops.Split(input_tensor=TensorDesc(F32, (16,)), output_tensors=(line, line), axis=0)
    assert not split.overwritable(0), "another output may be computed of it"
