"""Which pointwise operators become one, and what that one is."""

from __future__ import annotations

from typing import Any

import pytest
from named_steps import F32, SIZES, U8, Steps

import dmlvk
from dmlvk.devices.capabilities import Capabilities
from dmlvk.graph.step import Step
from dmlvk.kernels.common.plan import Dispatch, KernelVariant
from dmlvk.kernels.lowering import explain, lower
from dmlvk.spec import ops
from dmlvk.spec.enums import OperatorType, TensorDataType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.formats import NumberFormat
from dmlvk.spec.ops.chain import PointwiseChain
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.spec.schema import REGISTRY, OperatorDesc, ScaleBias
from dmlvk.spec.tensor import TensorDesc

_FEATURES = frozenset({"storage16", "storage8", "subgroup_arithmetic", "subgroup_shuffle"})
F16, I32 = TensorDataType.FLOAT16, TensorDataType.INT32
CHANNELS, GATE, ROW = (1, 4, 1, 1), (2, 4, 1, 1), (1, 1, 1, 6)


def optimized(steps: Steps, *outputs: str) -> tuple[Step, ...]:
    """The steps after the pass."""
    return steps.optimized(*outputs, passes=("dead", "chain"))


def merged(steps: Steps, *outputs: str) -> list[str]:
    """What the pass makes of steps, by the operators' names."""
    made = optimized(steps, *outputs)
    for step in made:
        step.desc.validate()
        lower(step.desc, Capabilities(features=_FEATURES))
    return [step.desc.title for step in made]


def steps(data_type: TensorDataType = F32) -> Steps:
    """Steps with inputs of several sizes, and a number."""
    found = Steps(data_type).tensor("x").tensor("y").constant("two", 2.0)
    return found.tensor("channels", CHANNELS).tensor("gate", GATE).tensor("row", ROW)


ADD, MULTIPLY, SUBTRACT = ops.ElementWiseAdd, ops.ElementWiseMultiply, ops.ElementWiseSubtract
GREATER, IF = ops.ElementWiseLogicalGreaterThan, ops.ElementWiseIf
SOFTMAX = ops.ActivationSoftmax1
NEGATE, ABS, TANH, RELU = ops.ElementWiseNegate, ops.ElementWiseAbs, ops.ElementWiseTanh, ops.ActivationRelu


def chain(*rows: type[OperatorDesc]) -> str:
    return f"PointwiseChain({', '.join(row.__name__ for row in rows)})"


MERGED: dict[str, tuple[Steps, list[str]]] = {
    "two": (steps().add(NEGATE, "x", "n").add(ABS, "n", "out"), [chain(NEGATE, ABS)]),
    "an affine function of channels": (
        steps().add(MULTIPLY, "x channels", "p").add(ADD, "p row", "s").add(RELU, "s", "out"),
        [chain(MULTIPLY, ADD, RELU)],
    ),
    "a scale, and an activation of its own": (
        steps()
        .add(ABS, "x", "a", scale_bias=ScaleBias(2.0, 1.0))
        .add(ops.ElementWiseAdd1, "a y", "out", fused_activation=RELU()),
        [chain(ops.ActivationLinear, ABS, ops.ElementWiseAdd1, RELU)],
    ),
    "read twice within": (
        steps().add(MULTIPLY, "x x", "p").add(MULTIPLY, "p x", "q").add(ADD, "q p", "out"),
        [chain(MULTIPLY, MULTIPLY, ADD)],
    ),
    "two that meet": (
        steps().add(NEGATE, "x", "n").add(ABS, "y", "a").add(ADD, "n a", "out"),
        [chain(NEGATE, ABS, ADD)],
    ),
    "under other sizes": (
        steps().add(NEGATE, "x", "n").add(ABS, "n", "a", sizes=(8, 30)).add(TANH, "a", "out", sizes=(2, 1, 120)),
        [chain(NEGATE, ABS, TANH)],
    ),
    "a gate of channels": (
        steps().add(ops.ActivationHardSigmoid, "gate", "g", sizes=GATE).add(MULTIPLY, "x g", "out"),
        [chain(ops.ActivationHardSigmoid, MULTIPLY)],
    ),
    "a choice": (
        steps().add(GREATER, "x two", "m").add(MULTIPLY, "x y", "p").add(IF, "m p x", "out"),
        [chain(GREATER, MULTIPLY, IF)],
    ),
    "logic": (
        steps()
        .add(GREATER, "x y", "m")
        .add(ops.ElementWiseIsNan, "x", "n")
        .add(ops.ElementWiseLogicalOr, "m n", "o")
        .add(IF, "o two x", "out"),
        [chain(GREATER, ops.ElementWiseIsNan, ops.ElementWiseLogicalOr, IF)],
    ),
    "a truth value as a number": (
        steps().add(GREATER, "x y", "m").add(ops.Cast, "m", "c").add(MULTIPLY, "c x", "out"),
        [chain(GREATER, ops.Cast, MULTIPLY)],
    ),
    "a sum of integers": (
        steps().tensor("i", SIZES, I32).add(ops.Cast, "i", "c").add(MULTIPLY, "c channels", "p").add(ADD, "p y", "out"),
        [chain(ops.Cast, MULTIPLY, ADD)],
    ),
    "float16": (
        steps(F16).add(MULTIPLY, "x channels", "p").add(TANH, "p", "t").add(ADD, "t y", "out"),
        [chain(MULTIPLY, TANH, ADD)],
    ),
    "float16, rounded first": (
        steps(F16).add(ops.ElementWiseFloor, "x", "f").add(SUBTRACT, "x f", "out"),
        [chain(ops.ElementWiseFloor, SUBTRACT)],
    ),
}


@pytest.mark.parametrize("case", MERGED.values(), ids=MERGED.keys())
def test_what_is_merged(case: tuple[Steps, list[str]]) -> None:
    written, wanted = case
    assert merged(written, "out") == wanted


def _kept(written: Steps) -> Steps:
    """The steps, and a state that one run leaves to the next: read first, then written."""
    written.constant("state", 0.0)
    written.add(ADD, "x state", "s").add(NEGATE, "s", "out")
    written.steps.append(
        Step(
            "state",
            ops.ElementWiseAbs(input_tensor=written.seen("x", SIZES), output_tensor=written.seen("y", SIZES)),
            (written.storages["x"],),
            (written.storages["state"],),
        )
    )
    return written


ALONE: dict[str, Steps] = {
    "one": steps().add(NEGATE, "x", "out"),
    "what others read, too": steps()
    .add(NEGATE, "x", "n")
    .add(ABS, "n", "out")
    .add(ops.ActivationSoftmax1, "n", "other", axes=(3,)),
    "an output": steps().add(NEGATE, "x", "other").add(ABS, "other", "out"),
    "a transcendental of a gate": (steps().add(ops.ActivationSigmoid, "gate", "g", sizes=GATE).add(MULTIPLY, "x g", "out")),
    "a gate of two tensors": steps().add(ADD, "gate channels", "g", sizes=GATE).add(MULTIPLY, "x g", "out"),
    "a comparison of what float16 would round": steps(F16).add(MULTIPLY, "x y", "p").add(ops.ElementWiseSign, "p", "out"),
    "truth from outside": steps().tensor("m", SIZES, U8).add(IF, "m x y", "out").add(SOFTMAX, "out", "other", axes=(3,)),
    "integers of FLOAT16": (
        steps(F16).tensor("i", SIZES, I32).add(ops.Cast, "i", "c").add(SOFTMAX, "c", "s", axes=(3,)).add(NEGATE, "s", "out")
    ),
    "integers below 32 bits": steps()
    .tensor("i", SIZES, TensorDataType.INT8)
    .add(ops.Cast, "i", "c")
    .add(NEGATE, "c", "out"),
    "bits": steps().add(NEGATE, "x", "n").add(ops.ElementWiseBitNot, "n", "out"),
    "integers": Steps(TensorDataType.INT32).tensor("x").add(NEGATE, "x", "n").add(ABS, "n", "out"),
    "a state": _kept(steps()),
}


@pytest.mark.parametrize("written", ALONE.values(), ids=ALONE.keys())
def test_what_is_left_alone(written: Steps) -> None:
    outputs = [name for name in ("out", "other") if name in written.storages]
    assert merged(written, *outputs) == [step.desc.title for step in written.steps]


def test_a_truth_value_from_outside_leaves_the_rest() -> None:
    written = (
        steps().tensor("m", SIZES, U8).add(NEGATE, "x", "n").add(ABS, "n", "a").add(IF, "m a y", "c").add(TANH, "c", "out")
    )
    assert merged(written, "out") == [chain(NEGATE, ABS), "ElementWiseIf", "ElementWiseTanh"]


def test_a_transposed_tensor_stays_where_tiles_move_it() -> None:
    written = steps().add(NEGATE, "x", "n").add(ABS, "n", "a").tensor("t", (2, 4, 6, 5))
    turned = TensorDesc(F32, SIZES, (120, 30, 1, 5))
    whole = TensorDesc(F32, SIZES)
    written.add(NEGATE, "y", "sum")
    desc = ADD(a_tensor=whole, b_tensor=turned, output_tensor=whole)
    operands = (written.storages["a"], written.storages["t"])
    written.steps[-1] = Step("sum", desc, operands, (written.storages["sum"],))
    written.add(TANH, "sum", "u").add(NEGATE, "u", "out")
    assert merged(written, "out") == [chain(NEGATE, ABS), "ElementWiseAdd", chain(TANH, NEGATE)]


def test_what_is_too_long_becomes_several() -> None:
    written = steps()
    for index in range(19):
        written.add((ADD, MULTIPLY)[index % 2], f"{f'v{index - 1}' if index else 'x'} y", f"v{index}")
    assert [title.count("ElementWise") for title in merged(written, "v18")] == [3, 8, 8]


def test_no_more_inputs_than_the_kernel_has() -> None:
    written = steps()
    last = "x"
    for index in range(8):
        last = written.tensor(f"t{index}").add(ADD, f"{last} t{index}", f"s{index}") and f"s{index}"
    assert all(len(step.desc.input_slots()) <= 6 for step in optimized(written, last))
    assert len(optimized(written, last)) == 2


def test_numbers_are_parameters() -> None:
    written = steps().add(MULTIPLY, "two x", "p").add(ADD, "p two", "out")
    (step,) = optimized(written, "out")
    assert isinstance(step.desc, PointwiseChain)
    assert step.inputs == (written.storages["x"],)
    assert step.desc.numbers == (2.0, 0.0, 2.0, 0.0)
    assert step.origin == "out" and step.outputs == (written.storages["out"],)


@pytest.mark.parametrize("value", [-0.0, float("nan")])
def test_what_does_not_equal_itself_alone_stays_a_tensor(value: float) -> None:
    written = steps().constant("odd", value).add(MULTIPLY, "x odd", "p").add(ADD, "p two", "out")
    (step,) = optimized(written, "out")
    assert step.inputs == (written.storages["x"], written.storages["odd"])


def _variant(desc: OperatorDesc) -> KernelVariant:
    (launch,) = lower(desc, Capabilities()).dispatches
    assert isinstance(launch, Dispatch)
    return launch.kernel


def test_another_shape_or_number_is_the_same_pipeline() -> None:
    variants = set()
    for rows, number in ((64, 2.0), (96, 3.0)):
        written = Steps().tensor("x", (rows, 32)).tensor("row", (1, 32)).constant("number", number)
        written.sizes["number"] = (1, 1)
        written.add(MULTIPLY, "x row", "p", sizes=(rows, 32)).add(ADD, "p number", "out", sizes=(rows, 32))
        (step,) = optimized(written, "out")
        variants.add(_variant(step.desc))
    assert len(variants) == 1


def test_rules() -> None:
    def chosen(sizes: tuple[int, ...], channels: tuple[int, ...]) -> str:
        written = Steps().tensor("x", sizes).tensor("s", channels)
        (step,) = optimized(written.add(MULTIPLY, "x s", "p", sizes=sizes).add(RELU, "p", "out", sizes=sizes), "out")
        return next(rule.name for rule, holds in explain(step.desc, Capabilities()) if holds)

    assert chosen((7, 8, 64), (1, 8, 1)) == "groups"
    assert chosen((7, 8, 49), (1, 8, 1)) == "runs"
    assert chosen((7, 8, 3), (1, 8, 1)) == "elements"


def test_it_is_no_operator_of_directml() -> None:
    assert PointwiseChain.type is OperatorType.INVALID
    assert PointwiseChain not in REGISTRY.values()
    assert not hasattr(dmlvk, "PointwiseChain") and not hasattr(ops, "PointwiseChain")


BROKEN: dict[str, dict[str, Any]] = {
    "a result that is not there yet": {"operands": (8, 15, 15)},
    "an input that is not there": {"operands": (1, 15, 15)},
    "no first operand": {"operands": (15, 0, 15)},
    "operands are missing": {"operands": (0, 15)},
    "numbers are missing": {"numbers": (0.0,)},
    "no operation": {"operator_descs": (), "operands": (), "numbers": ()},
    "not pointwise": {"operator_descs": (ops.OneHot(axis=0),)},
    "not without tensors": {"operator_descs": (RELU(input_tensor=TensorDesc(F32, (4,))),)},
    "integers that are no cast's": {"input_tensors": (TensorDesc(I32, (4,)),)},
    "integers of FLOAT16": {
        "input_tensors": (TensorDesc(I32, (4,)),),
        "output_tensor": TensorDesc(F16, (4,)),
        "operator_descs": (ops.Cast(),),
    },
    "rounded to bytes": {"operator_descs": (FormatCast(format=NumberFormat.FLOAT8E5M2),)},
    "a chain in a chain": {"operator_descs": (PointwiseChain(operator_descs=(), input_tensors=()),)},
    "another type": {"output_tensor": TensorDesc(F16, (4,))},
}


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_program_is_refused(changes: dict[str, Any]) -> None:
    line = TensorDesc(F32, (4,))
    desc = PointwiseChain(
        input_tensors=(line,), output_tensor=line, operator_descs=(RELU(),), operands=(0, 15, 15), numbers=(0.0, 0.0)
    )
    desc.validate()
    with pytest.raises(InvalidArgumentError, match="PointwiseChain"):
        desc.replace(**changes).validate()
