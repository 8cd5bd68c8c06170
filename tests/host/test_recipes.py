"""A filled recipe equals a lowered desc, byte for byte, or it refuses: for every operator's cases, for several devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pytest

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities, CooperativeMatrix
from dmlvk.engine.recipe import FilledLaunch, FilledPlan, Recipe
from dmlvk.kernels.common.plan import BlockCopy, Dispatch, Launch, Plan
from dmlvk.kernels.common.registry import has_kernels
from dmlvk.kernels.lowering import lower
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.size import SizeTrace
from dmlvk.spec.tensor import TensorDesc, packed_strides
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import Case
from dmlvk.verify.cases.problem import fields_of, tensor_names

STORAGE = SUBGROUPS | {"storage8", "storage16", "int8", "int16", "int64", "float64", "float16", "integer_dot_product"}

DEVICES = {
    "CPU": Capabilities(
        features=STORAGE,
        subgroup_size=8,
        minimum_subgroup_size=8,
        maximum_subgroup_size=8,
        workgroup_invocations=1024,
        shared_memory_bytes=32768,
        is_cpu=True,
    ),
    "large": Capabilities(
        features=STORAGE | {"subgroup_size_control", "full_subgroups", "cooperative_matrix", "vulkan_memory_model"},
        workgroup_invocations=1024,
        shared_memory_bytes=49152,
        storage_buffer_bytes=2**32 - 1,
        workgroup_counts=(2**31 - 1, 65535, 65535),
        cooperative_matrices=(
            CooperativeMatrix(16, 16, 16, "float16", "float16"),
            CooperativeMatrix(16, 16, 16, "float16", "float32"),
            CooperativeMatrix(16, 16, 32, "int8", "int32"),
        ),
    ),
    "small": Capabilities(features=STORAGE, subgroup_size=16, minimum_subgroup_size=16, maximum_subgroup_size=16),
}

Resized = Callable[[int], int]
"""What a size of a case becomes."""


class Trial(NamedTuple):
    """A case with one type; strided where its rows are longer than what they hold."""

    operator: type[OperatorDesc]
    case: Case
    data_type: TensorDataType
    strided: bool


def desc_of(trial: Trial, resized: Resized) -> OperatorDesc:
    """The case's desc with other sizes."""
    operator, case, data_type, strided = trial

    def tensor(name: str, sizes: tuple[int, ...]) -> TensorDesc:
        strides = packed_strides((*sizes[:-1], sizes[-1] + 8)) if strided else None
        return TensorDesc(case.data_types.get(name, data_type), sizes, strides)

    def tensors(given: Mapping[str, tuple[int, ...]], *, outputs: bool) -> dict[str, TensorDesc]:
        names = tensor_names(operator, given, outputs=outputs)
        return {name: tensor(name, tuple(map(resized, given[name]))) for name in names if name in given}

    inputs = tensors(case.inputs, outputs=False)
    if case.outputs:
        outputs = tensors(case.outputs, outputs=True)
    else:
        inferred = operator(**fields_of(inputs), **case.attributes).inferred_output_sizes()
        names = tensor_names(operator, case.outputs, outputs=True)
        outputs = {name: tensor(name, sizes) for name, sizes in zip(names, inferred, strict=True)}
    desc = operator(**fields_of(inputs | outputs), **case.attributes)
    desc.validate()
    return desc


def shown(plan: Plan) -> FilledPlan:
    """A plan of plain sizes, as a recipe fills it."""

    def launch(item: Launch) -> FilledLaunch:
        return FilledLaunch(*((item.params, item.grid) if isinstance(item, Dispatch) else (None, None)), item.bindings)

    dispatches, initialize = tuple(map(launch, plan.dispatches)), tuple(map(launch, plan.initialize))
    return FilledPlan(dispatches, initialize, plan.temporary_bytes, plan.persistent_bytes, plan.persistent_inputs)


def kernels(plan: Plan) -> list[object]:
    return [None if isinstance(item, BlockCopy) else item.kernel for item in (*plan.initialize, *plan.dispatches)]


class Outcome(NamedTuple):
    """Of sizes beside a case's own: how many were filled, and how many have the same pipelines."""

    filled: int
    same: int


def outcome(trial: Trial, size: int, caps: Capabilities) -> Outcome:
    """Lowers a case with every size of a number symbolic, and holds what is filled against what other numbers lower to."""

    def lowered(number: int) -> Plan | None:
        try:
            return lower(desc_of(trial, lambda own: number if own == size else own), caps)
        except (InvalidArgumentError, UnsupportedError):
            return None

    trace = SizeTrace()
    plan = lowered(trace.symbol("n", size))
    if plan is None:
        assert lowered(size) is None, "what runs has a recipe"
        return Outcome(0, 0)
    recipe = Recipe(trace, [plan])
    filled = same = 0
    for number in (size, size + 1, size + 2, size - 1, size + 4, size * 2, size + 64):
        found, wanted = recipe.fill([number]), lowered(number)
        assert found is None or wanted is not None, f"{size} -> {number}: a size that is refused was filled"
        if found is not None and wanted is not None:
            assert kernels(wanted) == kernels(plan), f"{size} -> {number}"
            assert found.plans == (shown(wanted),), f"{size} -> {number}"
        if number == size:
            assert found is not None, "a recipe takes the sizes that it was made with"
        elif wanted is not None and kernels(wanted) == kernels(plan):
            same, filled = same + 1, filled + (found is not None)
    return Outcome(filled, same)


def check(trials: Iterable[Trial], most_sizes: int, devices: Iterable[str]) -> None:
    for trial in trials:
        sizes = sorted({size for tensor in trial.case.inputs.values() for size in tensor if size > 1})
        for size, device in itertools.product(sizes[-most_sizes:], devices):
            try:
                outcome(trial, size, DEVICES[device])
            except Exception as error:
                error.add_note(f"{device}: size {size} of {trial}")
                raise


OPERATORS = pytest.mark.parametrize(
    "operator", [row for row in all_cases() if has_kernels(row)], ids=lambda row: row.__name__
)


@OPERATORS
def test_a_filled_plan_is_the_lowered_one(operator: type[OperatorDesc]) -> None:
    entry = all_cases()[operator]
    chosen = [case for case in entry.cases if case.quick][:2] or entry.cases[:2]
    types = [(case, (case.only or entry.crossed_types)[0]) for case in chosen]
    check(
        (Trial(operator, *pair, strided) for pair, strided in zip(types, (False, True), strict=False)), 2, ("CPU", "large")
    )


@pytest.mark.slow
@OPERATORS
def test_every_filled_plan_is_the_lowered_one(operator: type[OperatorDesc]) -> None:
    entry = all_cases()[operator]
    types = ((case, data_type) for case in entry.cases for data_type in case.only or entry.crossed_types)
    check((Trial(operator, *pair, strided) for pair in types for strided in (False, True)), 8, DEVICES)
