"""Every rule of the binding table, broken by exactly one case, and the five drawn examples of ranges that share memory.

The operators are made up: an elementwise one that runs in place for its first input, one with every kind of slot, and
targets of an initialiser. Nothing here needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dmlvk.directml.binding import Binding, BindingTable, BufferArrayBinding
from dmlvk.directml.command import CommandList, CommandRecorder
from dmlvk.directml.operator import CompiledOperator, OperatorInitializer, Signature, TensorSlot
from dmlvk.kernels.common.plan import Dispatch, KernelVariant, Plan, Range, Source, input_range, output_range
from dmlvk.runtime.memory import Buffer, BufferBinding
from dmlvk.spec.enums import ExecutionFlags, TensorDataType, TensorFlags
from dmlvk.spec.errors import BindingError, StateError
from dmlvk.spec.tensor import TensorDesc

F32 = TensorDataType.FLOAT32
TENSOR = TensorDesc(F32, (4, 4))
OWNED = TensorDesc(F32, (4, 4), flags=TensorFlags.OWNED_BY_DML)


def dispatch(read: Range, written: Range) -> Dispatch:
    return Dispatch(KernelVariant("fake"), (read, written), b"", (1, 1, 1))


RUN = dispatch(input_range(0), output_range())


def slots(*named: tuple[str, TensorDesc | None]) -> tuple[TensorSlot, ...]:
    return tuple(TensorSlot(*pair) for pair in named)


def compiled(device: Any, signature: Signature, plan: Plan) -> CompiledOperator:
    return CompiledOperator(device, signature, plan, ExecutionFlags.NONE)


class Bench:
    """A device with a table for one operator that is initialised already, and buffers to bind."""

    def __init__(self, device: Any, signature: Signature, plan: Plan) -> None:
        self.device = device
        self.operator = compiled(device, signature, plan)
        self.operator.initialized = True
        self.table = BindingTable(device, self.operator)
        self.buffers = [device.create_buffer(4096) for _ in range(4)]
        self.operator.persistent_home = None

    def at(self, buffer: int, offset: int = 0, size: int | None = None) -> BufferBinding:
        return BufferBinding(self.buffers[buffer], offset, size)

    def record(self) -> None:
        CommandRecorder(self.device).record_dispatch(CommandList(self.device), self.operator, self.table)

    def bind(self, inputs: Sequence[Binding], outputs: Sequence[Binding], *, outputs_first: bool = False) -> None:
        calls = [lambda: self.table.bind_inputs(inputs), lambda: self.table.bind_outputs(outputs)]
        for call in reversed(calls) if outputs_first else calls:
            call()


@pytest.fixture
def unary(fake_device: Callable[[], Any]) -> Bench:
    """y = f(x, mask), in place for x."""
    signature = Signature(
        "UNARY",
        slots(("InputTensor", TENSOR), ("MaskTensor", TENSOR)),
        slots(("OutputTensor", TENSOR)),
        in_place=frozenset({0}),
    )
    return Bench(fake_device(), signature, Plan((RUN,)))


@pytest.fixture
def rich(fake_device: Callable[[], Any]) -> Bench:
    """Inputs: one plain, one absent, one owned, one with a guaranteed alignment. Outputs: two and an absent one. 512
    bytes of scratch and of persistent memory."""
    signature = Signature(
        "RICH",
        slots(
            ("InputTensor", TENSOR),
            ("BiasTensor", None),
            ("FilterTensor", OWNED),
            ("ScaleTensor", TensorDesc(F32, (4,), guaranteed_base_offset_alignment=64)),
        ),
        slots(("OutputTensor", TENSOR), ("SecondTensor", TENSOR), ("ThirdTensor", None)),
        in_place=frozenset(),
    )
    bench = Bench(fake_device(), signature, Plan((RUN,), temporary_bytes=300, persistent_bytes=512))
    bench.table.bind_inputs([bench.at(0), None, None, bench.at(0, 64)])
    bench.table.bind_outputs([bench.at(1), bench.at(1, 64), None])
    bench.table.bind_temporary_resource(bench.at(2))
    bench.table.bind_persistent_resource(bench.at(3))
    assert bench.table.bindings is not None
    bench.operator.persistent_home = bench.table.bindings.persistent
    bench.record()
    return bench


class InitializerBench:
    """An initialiser of two operators: the first owns its second input, the second one only has a persistent range."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.first = compiled(
            device,
            Signature(
                "FIRST",
                slots(("InputTensor", TENSOR), ("FilterTensor", OWNED)),
                slots(("OutputTensor", TENSOR)),
                in_place=frozenset({1}),
            ),
            Plan(
                (dispatch(input_range(1), output_range()),),
                temporary_bytes=100,
                persistent_bytes=100,
                initialize=(dispatch(input_range(1), Range(Source.TEMPORARY, 0, 0, 64)),),
            ),
        )
        self.second = compiled(
            device,
            Signature("SECOND", slots(("InputTensor", TENSOR)), slots(("OutputTensor", TENSOR)), frozenset()),
            Plan((RUN,), persistent_bytes=256),
        )
        self.initializer = OperatorInitializer(device, [self.first, self.second])
        self.table = BindingTable(device, self.initializer)
        self.filter, self.home, self.scratch = (device.create_buffer(4096) for _ in range(3))

    def owned(self, buffer: Buffer, offset: int = 0) -> BufferArrayBinding:
        return BufferArrayBinding([None, BufferBinding(buffer, offset)])

    def bind(self, inputs: Sequence[Binding], outputs: Sequence[Binding], *, outputs_first: bool = False) -> None:
        calls = [lambda: self.table.bind_inputs(inputs), lambda: self.table.bind_outputs(outputs)]
        for call in reversed(calls) if outputs_first else calls:
            call()
        self.table.bind_temporary_resource(BufferBinding(self.scratch))

    def bind_well(self) -> None:
        self.bind(
            [self.owned(self.filter), BufferArrayBinding([])], [BufferBinding(self.home), BufferBinding(self.home, 512)]
        )

    def record(self) -> None:
        CommandRecorder(self.device).record_dispatch(CommandList(self.device), self.initializer, self.table)


@pytest.fixture
def initializing(fake_device: Callable[[], Any]) -> InitializerBench:
    return InitializerBench(fake_device())


def refused(rule: str, call: Callable[[], Any], *, operator: str, field: str) -> None:
    """The call breaks the rule, and the error says where."""
    with pytest.raises(BindingError, match=rule) as caught:
        call()
    assert (caught.value.operator, caught.value.field) == (operator, field)


# -- the five drawn examples

both_orders = pytest.mark.parametrize("outputs_first", [False, True])


@both_orders
def test_different_resources_valid(unary: Bench, initializing: InitializerBench, outputs_first: bool) -> None:
    unary.bind([unary.at(0), unary.at(1)], [unary.at(2)], outputs_first=outputs_first)
    unary.record()
    initializing.bind_well()
    initializing.record()


@both_orders
def test_same_resource_disjoint_valid_for_execution_not_initialization(
    unary: Bench, initializing: InitializerBench, outputs_first: bool
) -> None:
    unary.bind([unary.at(0, 0), unary.at(0, 64)], [unary.at(0, 128)], outputs_first=outputs_first)
    unary.record()
    home = BufferBinding(initializing.home)
    initializing.bind(
        [initializing.owned(initializing.home, 2048), None],
        [home, BufferBinding(initializing.home, 512)],
        outputs_first=outputs_first,
    )
    refused("may not share a buffer", initializing.record, operator="OperatorInitializer", field="FIRST.FilterTensor")


@both_orders
def test_overlapping_reads_valid(unary: Bench, initializing: InitializerBench, outputs_first: bool) -> None:
    unary.bind([unary.at(0, 0), unary.at(0, 32)], [unary.at(1)], outputs_first=outputs_first)
    unary.record()
    unary.bind([unary.at(0, 16), unary.at(0, 16)], [unary.at(1)], outputs_first=outputs_first)
    unary.record()
    device = initializing.device
    twins = [compiled(device, initializing.first.signature, initializing.first.plan) for _ in range(2)]
    table = BindingTable(device, initializer := OperatorInitializer(device, twins))
    table.bind_inputs([initializing.owned(initializing.filter), initializing.owned(initializing.filter, 32)])
    table.bind_outputs([BufferBinding(initializing.home), BufferBinding(initializing.home, 512)])
    table.bind_temporary_resource(BufferBinding(initializing.scratch))
    CommandRecorder(device).record_dispatch(CommandList(device), initializer, table)


@both_orders
def test_identical_ranges_valid_only_in_place_at_execution(
    unary: Bench, initializing: InitializerBench, outputs_first: bool
) -> None:
    unary.bind([unary.at(0, 64), unary.at(1)], [unary.at(0, 64)], outputs_first=outputs_first)
    unary.record()
    unary.bind([unary.at(1), unary.at(0, 64)], [unary.at(0, 64)], outputs_first=outputs_first)
    refused("only as the same range", unary.record, operator="UNARY", field="MaskTensor")
    homes = [BufferBinding(initializing.filter), BufferBinding(initializing.home)]
    initializing.bind([initializing.owned(initializing.filter), None], homes, outputs_first=outputs_first)
    refused("may not share a buffer", initializing.record, operator="OperatorInitializer", field="FIRST.FilterTensor")


@both_orders
def test_partial_overlap_never_valid(unary: Bench, initializing: InitializerBench, outputs_first: bool) -> None:
    for own, other in ((0, 16), (48, 0)):
        unary.bind([unary.at(0, own), unary.at(1)], [unary.at(0, other)], outputs_first=outputs_first)
        refused("only as the same range", unary.record, operator="UNARY", field="InputTensor")
    homes = [BufferBinding(initializing.filter), BufferBinding(initializing.home)]
    initializing.bind([initializing.owned(initializing.filter, 16), None], homes, outputs_first=outputs_first)
    refused("may not share a buffer", initializing.record, operator="OperatorInitializer", field="FIRST.FilterTensor")


# -- in place: the same layout on both sides


@pytest.mark.parametrize(
    "output",
    [
        TensorDesc(TensorDataType.INT32, (4, 4)),
        TensorDesc(F32, (3, 4), (4, 1), total_tensor_size_in_bytes=64),
        TensorDesc(F32, (4, 4), (1, 4)),
        TensorDesc(F32, (4, 4), total_tensor_size_in_bytes=128),
    ],
    ids=["data type", "sizes", "strides", "total size"],
)
def test_in_place_needs_the_same_layout(fake_device: Callable[[], Any], output: TensorDesc) -> None:
    signature = Signature("UNARY", slots(("InputTensor", TENSOR)), slots(("OutputTensor", output)), frozenset({0}))
    bench = Bench(fake_device(), signature, Plan((RUN,)))
    bench.bind([bench.at(0)], [bench.at(0)])
    refused("both tensors have the same layout", bench.record, operator="UNARY", field="InputTensor")
    bench.bind([bench.at(0)], [bench.at(1)])
    bench.record()


def test_ranges_that_touch_do_not_intersect(unary: Bench) -> None:
    unary.bind([unary.at(0, 64), unary.at(0, 128)], [unary.at(0, 0)])
    unary.record()


# -- each rule of a compiled operator's table, broken once; every case leaves the table as good as before


def inputs(bench: Bench, changed: int, binding: Binding) -> Callable[[], None]:
    good: list[Binding] = [bench.at(0), None, None, bench.at(0, 64)]
    good[changed] = binding
    return lambda: bench.table.bind_inputs(good)


@pytest.mark.parametrize(
    ("rule", "field", "call"),
    [
        ("one binding for each tensor.*expected 4", "Inputs", lambda b: lambda: b.table.bind_inputs([b.at(0), None, None])),
        (
            "one binding for each tensor.*expected 4",
            "Inputs",
            lambda b: lambda: b.table.bind_inputs([b.at(0), None, None, b.at(0), None]),
        ),
        ("one binding for each tensor.*expected 3", "Outputs", lambda b: lambda: b.table.bind_outputs([b.at(0), b.at(1)])),
        ("must be a BufferBinding", "InputTensor", lambda b: inputs(b, 0, None)),
        ("must be a BufferBinding", "InputTensor", lambda b: inputs(b, 0, BufferBinding(None))),
        ("must be a BufferBinding", "InputTensor", lambda b: inputs(b, 0, BufferArrayBinding([b.at(0)]))),
        ("must be a BufferBinding", "OutputTensor", lambda b: lambda: b.table.bind_outputs([None, b.at(1), None])),
        ("desc does not have this optional tensor", "BiasTensor", lambda b: inputs(b, 1, b.at(2))),
        ("at initialisation only", "FilterTensor", lambda b: inputs(b, 2, b.at(2))),
        ("multiple of 16", "InputTensor", lambda b: inputs(b, 0, b.at(0, 8))),
        ("multiple of 16", "InputTensor", lambda b: inputs(b, 0, b.at(0, -16))),
        ("guaranteed base offset alignment, 64", "ScaleTensor", lambda b: inputs(b, 3, b.at(0, 16))),
        ("inside the buffer", "InputTensor", lambda b: inputs(b, 0, b.at(0, 4080, 64))),
        ("inside the buffer", "InputTensor", lambda b: inputs(b, 0, b.at(0, 8192))),
        ("at least 64 bytes", "InputTensor", lambda b: inputs(b, 0, b.at(0, 0, 60))),
        ("at least 64 bytes", "InputTensor", lambda b: inputs(b, 0, b.at(0, 4048))),
        (
            "may not share bytes with OutputTensor",
            "SecondTensor",
            lambda b: lambda: b.table.bind_outputs([b.at(1), b.at(1, 48), None]),
        ),
        ("multiple of 256", "TemporaryResource", lambda b: lambda: b.table.bind_temporary_resource(b.at(2, 128))),
        ("at least 512 bytes", "TemporaryResource", lambda b: lambda: b.table.bind_temporary_resource(b.at(2, 0, 500))),
        ("multiple of 256", "PersistentResource", lambda b: lambda: b.table.bind_persistent_resource(b.at(3, 64))),
        ("at least 512 bytes", "PersistentResource", lambda b: lambda: b.table.bind_persistent_resource(b.at(3, 3840))),
        (
            "must be a BufferBinding",
            "PersistentResource",
            lambda b: lambda: b.table.bind_persistent_resource(BufferArrayBinding([])),
        ),
    ],
)
def test_a_bind_call_that_breaks_a_rule_changes_nothing(
    rich: Bench, rule: str, field: str, call: Callable[[Bench], Callable[[], None]]
) -> None:
    refused(rule, call(rich), operator="RICH", field=field)
    rich.record()


@pytest.mark.parametrize(
    ("rule", "field", "change"),
    [
        ("InputTensor, ScaleTensor must be bound before recording", "Inputs", lambda b: b.table.bind_inputs(None)),
        ("OutputTensor, SecondTensor must be bound before recording", "Outputs", lambda b: b.table.bind_outputs([])),
        ("must be bound, with at least 512 bytes", "TemporaryResource", lambda b: b.table.bind_temporary_resource(None)),
        ("must be bound, with at least 512 bytes", "PersistentResource", lambda b: b.table.bind_persistent_resource(None)),
        (
            "only as the same range",
            "ScaleTensor",
            lambda b: b.table.bind_inputs([b.at(0), None, None, b.at(1, 64)]),
        ),
        ("may not share bytes with InputTensor", "TemporaryResource", lambda b: b.table.bind_temporary_resource(b.at(0))),
        ("may not share bytes with OutputTensor", "TemporaryResource", lambda b: b.table.bind_temporary_resource(b.at(1))),
        (
            "may not share bytes with PersistentResource",
            "TemporaryResource",
            lambda b: b.table.bind_temporary_resource(b.at(3, 256)),
        ),
        ("may not share bytes with OutputTensor", "PersistentResource", lambda b: b.table.bind_persistent_resource(b.at(1))),
        (
            "the range that the initialiser wrote",
            "PersistentResource",
            lambda b: b.table.bind_persistent_resource(b.at(3, 512)),
        ),
    ],
)
def test_what_takes_several_calls_is_refused_when_recorded(
    rich: Bench, rule: str, field: str, change: Callable[[Bench], None]
) -> None:
    change(rich)
    refused(rule, rich.record, operator="RICH", field=field)
    rich.table.bind_inputs([rich.at(0), None, None, rich.at(0, 64)])
    rich.table.bind_outputs([rich.at(1), rich.at(1, 64), None])
    rich.table.bind_temporary_resource(rich.at(2))
    rich.table.bind_persistent_resource(rich.at(3))
    rich.record()


def test_bindings_may_come_from_a_generator(rich: Bench, initializing: InitializerBench) -> None:
    rich.table.bind_inputs(part for part in (rich.at(0), None, None, rich.at(0, 64)))
    rich.table.bind_outputs(iter((rich.at(1), rich.at(1, 64), None)))
    rich.record()
    for bind in (rich.table.bind_inputs, rich.table.bind_outputs):
        with pytest.raises(BindingError, match="must be a sequence of bindings, or None; got 3"):
            bind(3)  # type: ignore[arg-type]
    initializing.table.bind_inputs(iter((initializing.owned(initializing.filter), BufferArrayBinding(iter(())))))


def test_the_persistent_resource_may_be_read_by_others(rich: Bench) -> None:
    rich.table.bind_inputs([rich.at(3), None, None, rich.at(3, 128)])
    rich.record()


# -- each rule of an initialiser's table


@pytest.mark.parametrize(
    ("rule", "operator", "field", "call"),
    [
        (
            "one binding for each tensor.*expected 2",
            "OperatorInitializer",
            "Inputs",
            lambda b: b.table.bind_inputs([b.owned(b.filter)]),
        ),
        (
            "one binding for each tensor.*expected 2",
            "OperatorInitializer",
            "Outputs",
            lambda b: b.table.bind_outputs([BufferBinding(b.home)]),
        ),
        ("must be a BufferArrayBinding", "FIRST", "Inputs", lambda b: b.table.bind_inputs([BufferBinding(b.filter), None])),
        ("one binding for each tensor.*expected 2", "FIRST", "Inputs", lambda b: b.table.bind_inputs([None, None])),
        (
            "one binding for each tensor.*expected 2",
            "FIRST",
            "Inputs",
            lambda b: b.table.bind_inputs([BufferArrayBinding([BufferBinding(b.filter)]), None]),
        ),
        (
            "must be a BufferBinding",
            "FIRST",
            "FilterTensor",
            lambda b: b.table.bind_inputs([BufferArrayBinding([None, None]), None]),
        ),
        (
            "only OWNED_BY_DML",
            "FIRST",
            "InputTensor",
            lambda b: b.table.bind_inputs([BufferArrayBinding([BufferBinding(b.filter)] * 2), None]),
        ),
        ("multiple of 16", "FIRST", "FilterTensor", lambda b: b.table.bind_inputs([b.owned(b.filter, 4), None])),
        (
            "must be a BufferBinding",
            "OperatorInitializer",
            "SECOND.PersistentResource",
            lambda b: b.table.bind_outputs([BufferBinding(b.home), None]),
        ),
        (
            "multiple of 256",
            "OperatorInitializer",
            "SECOND.PersistentResource",
            lambda b: b.table.bind_outputs([BufferBinding(b.home), BufferBinding(b.home, 528)]),
        ),
        (
            "may not share bytes with FIRST.PersistentResource",
            "OperatorInitializer",
            "SECOND.PersistentResource",
            lambda b: b.table.bind_outputs([BufferBinding(b.home), BufferBinding(b.home)]),
        ),
        (
            "at least 256 bytes",
            "OperatorInitializer",
            "TemporaryResource",
            lambda b: b.table.bind_temporary_resource(BufferBinding(b.scratch, 0, 128)),
        ),
    ],
)
def test_an_initializer_bind_call_that_breaks_a_rule_changes_nothing(
    initializing: InitializerBench, rule: str, operator: str, field: str, call: Callable[[InitializerBench], None]
) -> None:
    initializing.bind_well()
    refused(rule, lambda: call(initializing), operator=operator, field=field)
    initializing.record()


@pytest.mark.parametrize(
    ("rule", "field", "change"),
    [
        ("the OWNED_BY_DML inputs of FIRST", "Inputs", lambda b: b.table.bind_inputs(None)),
        ("FIRST.PersistentResource", "Outputs", lambda b: b.table.bind_outputs(None)),
        ("must be bound, with at least 256 bytes", "TemporaryResource", lambda b: b.table.bind_temporary_resource(None)),
        (
            "may not share bytes with FIRST.FilterTensor",
            "TemporaryResource",
            lambda b: b.table.bind_temporary_resource(BufferBinding(b.filter)),
        ),
        (
            "may not share bytes with SECOND.PersistentResource",
            "TemporaryResource",
            lambda b: b.table.bind_temporary_resource(BufferBinding(b.home, 512)),
        ),
    ],
)
def test_an_incomplete_initializer_is_refused_when_recorded(
    initializing: InitializerBench, rule: str, field: str, change: Callable[[InitializerBench], None]
) -> None:
    initializing.bind_well()
    change(initializing)
    refused(rule, initializing.record, operator="OperatorInitializer", field=field)
    initializing.bind_well()
    initializing.record()


def test_an_input_shares_no_buffer_with_the_output_of_another_target(initializing: InitializerBench) -> None:
    homes = [BufferBinding(initializing.home), BufferBinding(initializing.filter, 2048)]
    initializing.bind([initializing.owned(initializing.filter), None], homes)
    refused("SECOND.PersistentResource", initializing.record, operator="OperatorInitializer", field="FIRST.FilterTensor")


def test_an_initializer_without_targets_needs_nothing(fake_device: Callable[[], Any]) -> None:
    device: Any = fake_device()
    table = BindingTable(device, initializer := OperatorInitializer(device, []))
    table.bind_inputs([])
    table.bind_outputs(None)
    CommandRecorder(device).record_dispatch(CommandList(device), initializer, table)
    assert initializer.get_binding_properties() == (0, 0, 0)


# -- devices


def test_buffers_of_another_device_are_refused(unary: Bench, fake_device: Callable[[], Any]) -> None:
    foreign = BufferBinding(fake_device().create_buffer(4096))
    with pytest.raises(StateError, match="must belong to the same Device"):
        unary.table.bind_inputs([foreign, unary.at(1)])
    with pytest.raises(StateError, match="must belong to the same Device"):
        unary.table.bind_temporary_resource(foreign)
    unary.bind([unary.at(0), unary.at(1)], [unary.at(2)])
    unary.record()
