"""Plans of recurrent networks, without a device."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import dmlvk
from dmlvk import RecurrentNetworkDirection, TensorDataType, TensorDesc, TensorFlags
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities, CooperativeMatrix
from dmlvk.devices.model import H200
from dmlvk.kernels.common.plan import Dispatch, Plan, Source
from dmlvk.kernels.lowering import explain, lower, possible_rules

LARGE = Capabilities(
    features=SUBGROUPS | {"storage16"},
    shared_memory_bytes=49152,
    workgroup_invocations=1024,
    workgroup_counts=(2**31 - 1, 65535, 65535),
    storage_buffer_bytes=2**32 - 1,
)
LEAST = Capabilities(features=LARGE.features)
NARROW = Capabilities(features=LARGE.features, subgroup_size=8, minimum_subgroup_size=4, maximum_subgroup_size=8)
MATRICES = dataclasses.replace(
    LARGE,
    features=LARGE.features
    | {"cooperative_matrix", "vulkan_memory_model", "float16", "int16", "subgroup_size_control", "full_subgroups"},
    cooperative_matrices=(CooperativeMatrix(16, 16, 16, "float16", "float32"),),
    model=H200,
)
SMALL_MATRICES = dataclasses.replace(MATRICES, shared_memory_bytes=32768)  # which one tile is too large for
GATES = {dmlvk.Rnn: 1, dmlvk.Lstm: 4, dmlvk.Gru: 3}
SIGMOID, TANH = dmlvk.ActivationSigmoid(), dmlvk.ActivationTanh()
FUNCTIONS: dict[Any, Any] = {dmlvk.Rnn: (TANH,), dmlvk.Lstm: (SIGMOID, TANH, TANH), dmlvk.Gru: (SIGMOID, TANH)}


def network(
    row: Any,
    steps: int,
    batch: int,
    inputs: int,
    hidden: int,
    data_type: TensorDataType = TensorDataType.FLOAT32,
    *,
    strides: tuple[int, ...] | None = None,
    directions: int = 1,
    **more: Any,
) -> Any:
    rows = GATES[row] * hidden
    return row(
        input_tensor=TensorDesc(data_type, (1, steps, batch, inputs), strides),
        weight_tensor=TensorDesc(data_type, (1, directions, rows, inputs)),
        recurrence_tensor=TensorDesc(data_type, (1, directions, rows, hidden)),
        output_sequence_tensor=TensorDesc(data_type, (steps, directions, batch, hidden)),
        activation_descs=FUNCTIONS[row] * directions,
        direction=RecurrentNetworkDirection.BIDIRECTIONAL if directions == 2 else RecurrentNetworkDirection.FORWARD,
        **more,
    )


def kernels(plan: Plan) -> list[str]:
    return [launch.kernel.kernel for launch in plan.dispatches if isinstance(launch, Dispatch)]


@pytest.mark.parametrize(
    ("desc", "rule"),
    [
        (network(dmlvk.Lstm, 100, 1, 512, 512), "step"),
        (network(dmlvk.Lstm, 100, 16, 64, 64), "whole"),
        (network(dmlvk.Gru, 100, 1, 64, 64), "whole"),
        (network(dmlvk.Rnn, 100, 1, 64, 128), "whole"),
        (network(dmlvk.Lstm, 100, 1, 128, 128), "whole"),
        (network(dmlvk.Lstm, 100, 1, 128, 160), "step"),
    ],
)
def test_the_rule(desc: Any, rule: str) -> None:
    assert next(found.name for found, holds in explain(desc, LARGE) if holds) == rule


@pytest.mark.parametrize(
    ("desc", "rule"),
    [
        (network(dmlvk.Lstm, 100, 16, 512, 512, TensorDataType.FLOAT16), "cooperative"),
        (network(dmlvk.Lstm, 100, 15, 512, 512, TensorDataType.FLOAT16), "step"),
        (network(dmlvk.Lstm, 100, 16, 512, 516, TensorDataType.FLOAT16), "step"),
        (network(dmlvk.Lstm, 100, 16, 512, 512), "step"),
        (network(dmlvk.Lstm, 2**16, 16, 512, 512, TensorDataType.FLOAT16), "block"),
        (network(dmlvk.Gru, 100, 16, 64, 64, TensorDataType.FLOAT16), "whole"),
    ],
)
def test_many_sequences_of_float16_are_multiplied_by_matrices(desc: Any, rule: str) -> None:
    """Where rows of R consist of words, and the host prepares a dispatch for each step."""
    assert next(found.name for found, holds in explain(desc, MATRICES) if holds) == rule


def test_states_that_may_be_too_large_for_float16_are_not_multiplied_by_its_matrices() -> None:
    desc = network(dmlvk.Rnn, 100, 16, 512, 512, TensorDataType.FLOAT16)
    assert "cooperative" in possible_rules(desc, MATRICES)
    for function in (dmlvk.ActivationRelu(), dmlvk.ActivationScaledTanh(alpha=1e5)):
        assert "cooperative" not in possible_rules(desc.replace(activation_descs=(function,)), MATRICES)


@pytest.mark.parametrize(
    ("batch", "hidden", "cover"),
    [(16, 512, (16, 8)), (16, 1024, (16, 8)), (64, 512, (16, 8)), (64, 1024, (32, 8)), (256, 512, (32, 8))],
)
def test_matrices_of_more_sequences_read_less_and_leave_fewer_workgroups(
    batch: int, hidden: int, cover: tuple[int, int]
) -> None:
    plan = lower(network(dmlvk.Lstm, 3, batch, 8, hidden, TensorDataType.FLOAT16), MATRICES, force="cooperative")
    launch = plan.dispatches[-1]
    assert isinstance(launch, Dispatch)
    constants = dict(launch.kernel.constants)
    assert (constants["ENTRIES"], constants["UNITS"]) == cover
    assert launch.grid == (hidden // cover[1], batch // cover[0], 1)


def test_nothing_of_float16_is_staged_for_matrices_but_the_states() -> None:
    """Nor for the input's products, by whatever rule, unless one number does not say where the next row is."""
    desc = network(dmlvk.Lstm, 3, 16, 40, 64, TensorDataType.FLOAT16)
    for rule, staged in (("cooperative", 2), ("step", 3)):
        found = kernels(lower(desc, MATRICES, force=rule))
        assert found.count("recurrent_stage") == staged and "gemm_cooperative" in found
    turned = network(dmlvk.Lstm, 3, 16, 40, 64, TensorDataType.FLOAT16, strides=(0, 40, 120, 1))
    found = kernels(lower(turned, MATRICES, force="cooperative"))
    assert found.count("recurrent_stage") == 4 and "gemm_cooperative" not in found


def test_without_subgroups_or_with_more_than_a_binding_holds_the_simplest_rule_remains() -> None:
    desc = network(dmlvk.Lstm, 64, 64, 512, 512)
    assert possible_rules(desc, Capabilities(features=frozenset())) == ["naive"]
    assert possible_rules(desc, Capabilities(storage_buffer_bytes=2**24)) == ["block", "naive"]
    shorter = network(dmlvk.Lstm, 16, 64, 512, 512)  # of which no 8 steps' products fit beside room for 8 more
    assert possible_rules(shorter, Capabilities(storage_buffer_bytes=2**22)) == ["naive"]
    assert possible_rules(desc, LEAST) == ["step", "block", "naive"]


@pytest.mark.parametrize(
    "caps", [LEAST, LARGE, NARROW, MATRICES, SMALL_MATRICES], ids=["least", "large", "narrow", "matrices", "small"]
)
@pytest.mark.parametrize("data_type", [TensorDataType.FLOAT32, TensorDataType.FLOAT16])
@pytest.mark.parametrize("row", [dmlvk.Rnn, dmlvk.Lstm, dmlvk.Gru])
@pytest.mark.parametrize(("batch", "hidden"), [(1, 1), (3, 7), (1, 33), (20, 512), (100, 100), (33, 136)])
def test_every_plan_fits_the_device(
    caps: Capabilities, data_type: TensorDataType, row: Any, batch: int, hidden: int
) -> None:
    lengths = TensorDesc(TensorDataType.UINT32, (1, 1, 1, batch))
    desc = network(row, 3, batch, 11, hidden, data_type, directions=2, sequence_lengths_tensor=lengths)
    for rule in possible_rules(desc, caps):
        plan = lower(desc, caps, force=rule)
        for launch in plan.dispatches:
            assert isinstance(launch, Dispatch)
            for part in launch.bindings:
                assert part.source is not Source.TEMPORARY or part.offset + part.nbytes <= plan.temporary_bytes
            if launch.kernel.kernel == "recurrent_cooperative":
                sizes = dict(launch.kernel.constants)
                assert launch.grid[0] * sizes["UNITS"] >= hidden and launch.grid[1] * sizes["ENTRIES"] >= batch
                columns = -(-GATES[row] * sizes["UNITS"] // sizes["MAT_N"]) * sizes["MAT_N"]
                assert (2 * sizes["ENTRIES"] + columns) * (2 * sizes["DEPTH"] + 16) <= caps.shared_memory_bytes
                subgroups = sizes["LOCAL_SIZE_X"] // sizes["SUBGROUP"]
                assert subgroups * sizes["ENTRIES"] * (4 * columns + 16) <= caps.shared_memory_bytes
            if launch.kernel.kernel not in ("recurrent_step", "recurrent_whole", "recurrent_block"):
                continue
            constants = dict(launch.kernel.constants)
            assert constants["LOCAL_SIZE_X"] <= caps.workgroup_invocations
            assert constants["LANES"] <= caps.minimum_subgroup_size
            if launch.kernel.kernel == "recurrent_step":
                assert constants["ENTRIES"] <= constants["LANES"]
                words = constants["ENTRIES"] * constants["LANES"] * constants["IN_FLIGHT"]
                assert 16 * words <= caps.shared_memory_bytes
                assert launch.grid[0] * constants["LOCAL_SIZE_X"] >= hidden * constants["LANES"]
                assert launch.grid[1] * constants["ENTRIES"] >= batch
            elif launch.kernel.kernel == "recurrent_block":
                assert 4 * constants["CAPACITY"] >= hidden
                assert 3 * 16 * constants["CAPACITY"] <= caps.shared_memory_bytes
            else:
                assert constants["LOCAL_SIZE_X"] >= hidden * constants["LANES"]
                assert 4 * constants["SHARE"] * constants["LANES"] >= hidden
                assert 5 * 16 * constants["CAPACITY"] <= caps.shared_memory_bytes


def test_only_what_needs_it_is_staged() -> None:
    """Besides the states: what is FLOAT16, no multiple of 16 bytes or not in order."""

    def staged(desc: Any) -> int:
        return kernels(lower(desc, LARGE, force="step")).count("recurrent_stage")

    assert staged(network(dmlvk.Rnn, 3, 2, 5, 8)) == 1
    assert staged(network(dmlvk.Lstm, 3, 2, 5, 8)) == 2
    assert staged(network(dmlvk.Rnn, 3, 2, 5, 7)) == 2
    assert staged(network(dmlvk.Rnn, 3, 2, 5, 8, strides=(0, 5, 15, 1))) == 2
    assert staged(network(dmlvk.Rnn, 3, 2, 5, 8, TensorDataType.FLOAT16)) == 4


def test_weights_that_are_owned_are_staged_once() -> None:
    desc = network(dmlvk.Lstm, 3, 2, 5, 7, TensorDataType.FLOAT16)
    for name in ("weight_tensor", "recurrence_tensor"):
        tensor = dataclasses.replace(getattr(desc, name), flags=TensorFlags.OWNED_BY_DML)
        desc = desc.replace(**{name: tensor})
    plan = lower(desc, LARGE, force="step")
    assert [launch.bindings[1].nbytes for launch in plan.initialize] == [4 * 28 * 8, 4 * 28 * 5]
    read = {part for launch in plan.dispatches for part in launch.bindings if part.source is Source.PERSISTENT}
    assert read == {launch.bindings[1] for launch in plan.initialize}
    assert not any(part.source is Source.INPUT and part.slot in (1, 2) for d in plan.dispatches for part in d.bindings)


def test_packed_shapes_share_their_pipelines() -> None:
    """Sizes are parameters: two networks of a kind differ in no constant of the kernel that takes their steps."""
    plans = [lower(network(dmlvk.Lstm, steps, 4, 100, hidden), LARGE) for steps, hidden in ((5, 300), (9, 511))]
    step = [{launch.kernel for launch in plan.dispatches if launch.kernel.kernel == "recurrent_step"} for plan in plans]  # type: ignore[union-attr]
    assert step[0] == step[1] and len(step[0]) == 1


def test_a_cpu_takes_a_long_sequence_in_blocks() -> None:
    """Where one loop over all steps would be cut: one of 4 units takes 5 rounds a step, of 60,000 in all."""

    def launches(steps: int, caps: Capabilities) -> int:
        plan = lower(network(dmlvk.Rnn, steps, 1, 4, 4), caps, force="whole")
        return sum(isinstance(launch, Dispatch) and launch.kernel.kernel == "recurrent_whole" for launch in plan.dispatches)

    cpu = dataclasses.replace(LARGE, is_cpu=True)
    assert (launches(12_000, cpu), launches(12_001, cpu), launches(12_001, LARGE)) == (1, 2, 1)


def test_a_long_input_is_refused_on_a_cpu_where_a_loop_would_be_cut() -> None:
    caps = Capabilities(features=frozenset(), is_cpu=True)
    with pytest.raises(dmlvk.UnsupportedError, match="ends the loops of a shader"):
        lower(network(dmlvk.Rnn, 1, 1, 70000, 4), caps, force="naive")
