"""When products of kept weights stream, in which tiles, and what of them is kept, without a device."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from choices import DEVICES

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Dispatch, Plan, Source
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.matmul import streams
from dmlvk.kernels.matmul.streams import packed_bytes, streamed_parts, streams_pay
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform, TensorDataType, TensorFlags
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.matmul import GemmAdd, GemmGate, GemmNormalization
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

F16 = TensorDataType.FLOAT16
H200 = DEVICES["h200"]


def half(*sizes: int, strides: tuple[int, ...] | None = None, kept: bool = False) -> TensorDesc:
    return TensorDesc(F16, sizes, strides, flags=TensorFlags.OWNED_BY_DML if kept else TensorFlags.NONE)


def product(rows: int, columns: int, depth: int, *, kept: bool = True, **changes: Any) -> ops.Gemm:
    fields = {
        "a_tensor": half(rows, depth),
        "b_tensor": half(depth, columns, kept=kept),
        "output_tensor": half(rows, columns),
    }
    return ops.Gemm(**{**fields, **changes})


def kernels(plan: Plan) -> list[str]:
    return [launch.kernel.kernel for launch in plan.dispatches if isinstance(launch, Dispatch)]


def is_streamed(desc: OperatorDesc, caps: Capabilities = H200) -> bool:
    return "gemm_streamed" in kernels(lower(desc, caps))


def can_stream(desc: OperatorDesc, caps: Capabilities = H200) -> bool:
    return "streamed" in possible_rules(desc, caps)


def test_kept_weights_are_packed_once() -> None:
    plan = lower(product(197, 3072, 768), H200)
    assert kernels(plan) == ["gemm_streamed"]
    (pack,) = plan.initialize
    assert isinstance(pack, Dispatch) and pack.kernel.kernel == "gemm_pack"
    assert [(part.source, part.slot) for part in pack.bindings] == [(Source.INPUT, 1), (Source.PERSISTENT, 0)]
    assert plan.persistent_bytes == packed_bytes(3072, 768) == 2 * 3072 * 768 and plan.temporary_bytes == 0


def test_other_factors_are_packed_first_where_the_rule_is_asked_for() -> None:
    desc = product(197, 3072, 768, kept=False)
    assert not is_streamed(desc)
    plan = lower(desc, H200, force="streamed")
    assert kernels(plan) == ["gemm_pack", "gemm_streamed"]
    assert not plan.initialize and plan.temporary_bytes == packed_bytes(3072, 768)


def test_parts_lie_behind_what_is_packed() -> None:
    plan = lower(product(197, 768, 3072, kept=False), H200, force="streamed")
    assert kernels(plan) == ["gemm_pack", "gemm_streamed", "gemm_merge"]
    packed, sums = plan.dispatches[0].bindings[1], plan.dispatches[1].bindings[-1]
    assert packed.source is sums.source is Source.TEMPORARY and sums.offset >= packed.nbytes
    assert plan.temporary_bytes == sums.offset + sums.nbytes


@pytest.mark.parametrize(("columns", "depth", "nbytes"), [(16, 128, 4096), (17, 8, 8192), (40, 136, 3 * 8192)])
def test_what_is_packed_are_whole_matrices_and_rounds(columns: int, depth: int, nbytes: int) -> None:
    assert packed_bytes(columns, depth) == nbytes


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "streams_"),
    [
        *[(197, 3072, 768, True), (197, 768, 3072, True), (512, 3072, 768, True), (1576, 768, 768, True)],
        *[(128, 768, 768, False), (32, 3072, 768, False), (1024, 3072, 768, False), (1500, 2048, 512, False)],
        *[(64, 768, 768, False), (64, 3072, 768, True), (64, 768, 3072, True)],
    ],
)
def test_few_tiles_stream(rows: int, columns: int, depth: int, streams_: bool) -> None:
    """As measured on an H200."""
    assert streams_pay(rows, columns, depth, 1, H200) == is_streamed(product(rows, columns, depth)) == streams_


def test_large_weights_are_not_packed() -> None:
    assert is_streamed(product(256, 4096, 2048)) and not is_streamed(product(256, 4096, 2056))


@pytest.mark.parametrize(
    "changes",
    [
        {"a_tensor": half(197, 768, strides=(772, 1))},
        {"a_tensor": half(197, 768, strides=(1, 200))},
        {"a_tensor": half(768, 197), "trans_a": MatrixTransform.TRANSPOSE},
        {"output_tensor": half(197, 3072, strides=(1, 197))},
    ],
    ids=["rows start anywhere", "no rows", "transposed", "columns of the output are its lines"],
)
def test_rows_are_whole_words(changes: dict[str, Any]) -> None:
    assert not can_stream(product(197, 3072, 768, **changes))


def test_terms_are_whole_words() -> None:
    assert can_stream(product(197, 3072, 776)) and not can_stream(product(197, 3072, 772))


@pytest.mark.parametrize("step", [0, 768 * 3072])
def test_matrices_of_a_batch_have_one_second_factor(step: int) -> None:
    desc = ops.Gemm(
        a_tensor=half(2, 197, 768),
        b_tensor=half(2, 768, 3072, strides=(step, 3072, 1), kept=True),
        output_tensor=half(2, 197, 3072),
    )
    assert can_stream(desc) == (step == 0)


def test_either_way_that_weights_lie() -> None:
    turned = half(3072, 768, kept=True)
    plan = lower(product(197, 3072, 768, b_tensor=turned, trans_b=MatrixTransform.TRANSPOSE), H200)
    assert kernels(plan) == ["gemm_streamed"]


@pytest.mark.parametrize(
    "changes",
    [
        {"matrix_fragments": False},
        {"shared_memory_bytes": 32768},
        {"workgroup_invocations": 128},
        {"storage_buffer_bytes": packed_bytes(3072, 768) - 1},
        {"cooperative_matrices": tuple(own for own in H200.cooperative_matrices if own.n != 16)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_devices_that_cannot(changes: dict[str, Any]) -> None:
    assert can_stream(product(197, 3072, 768))
    assert not can_stream(product(197, 3072, 768), dataclasses.replace(H200, **changes))


def test_a_device_whose_rate_of_matrices_is_unknown_streams_only_if_asked() -> None:
    unknown = dataclasses.replace(H200, model=dataclasses.replace(H200.model, half_products_per_microsecond=None))
    assert can_stream(product(197, 3072, 768), unknown) and not is_streamed(product(197, 3072, 768), unknown)
    assert kernels(lower(product(197, 3072, 768), unknown, force="streamed")) == ["gemm_streamed"]


@pytest.mark.parametrize("depth", [8, 128, 136, 640, 768, 3072, 4104])
@pytest.mark.parametrize("columns", [16, 100, 3072])
@pytest.mark.parametrize("rows", [1, 77, 1576])
def test_rounds_are_those_of_what_is_packed(rows: int, columns: int, depth: int) -> None:
    """A round that reads past the packed terms would multiply whatever lies there."""
    for merged in (False, True):
        tile, parts = streamed_parts(rows, columns, depth, 1, H200, merged=merged)
        terms = -(-depth // streams.PACKED_DEPTH) * streams.PACKED_DEPTH
        assert terms % tile.depth == 0 and parts * tile.depth <= terms


def test_a_merge_that_is_there_anyway_makes_more_parts() -> None:
    apart, merged = (streamed_parts(197, 768, 3072, 1, H200, merged=merged)[1] for merged in (False, True))
    assert merged >= apart > 1 == streamed_parts(197, 768, 768, 1, H200)[1]


def test_every_tile_is_shared_evenly() -> None:
    for kind in streams._KINDS:
        words = kind.tile.rows * kind.tile.depth // streams.WORD
        assert words % kind.tile.constants(32)["LOCAL_SIZE_X"] == 0


def normalized(rows: int, columns: int, depth: int) -> GemmNormalization:
    return GemmNormalization(
        a_tensor=half(1, 1, rows, depth),
        b_tensor=half(1, 1, depth, columns, kept=True),
        output_tensor=half(1, 1, rows, columns),
        epsilon=1e-5,
    )


def test_a_product_that_streams_in_one_part_has_parts_of_other_tiles() -> None:
    """Where a normalization adds them."""
    assert is_streamed(product(197, 768, 768))
    assert kernels(lower(normalized(197, 768, 768), H200)) == ["gemm_cooperative", "gemm_merge_normalized"]


@pytest.mark.parametrize(("columns", "depth"), [(768, 3072), (3072, 768)], ids=["merged", "apart"])
def test_a_normalization_behind_it_keeps_what_is_packed(columns: int, depth: int) -> None:
    plan = lower(normalized(197, columns, depth), H200)
    assert ("gemm_merge_normalized" in kernels(plan)) == (columns == 768)
    assert kernels(plan)[0] == "gemm_streamed" and plan.persistent_bytes == packed_bytes(columns, depth)
    assert [launch.kernel.kernel for launch in plan.initialize if isinstance(launch, Dispatch)] == ["gemm_pack"]


def test_a_product_that_adds_twice_streams() -> None:
    """C and an addend, by the variant whose sums begin with it."""
    desc = GemmAdd(
        a_tensor=half(197, 768),
        b_tensor=half(768, 3072, kept=True),
        c_tensor=half(197, 3072, strides=(0, 1)),
        addend_tensor=half(197, 3072),
        output_tensor=half(197, 3072),
    )
    (launch,) = lower(desc, H200).dispatches
    assert isinstance(launch, Dispatch) and launch.kernel.kernel == "gemm_streamed"
    assert dict(launch.kernel.variant)["ADDS"] == "1"


def test_a_gate_behind_it_keeps_what_is_packed() -> None:
    desc = GemmGate(
        a_tensor=half(1, 1, 197, 768),
        b_tensor=half(1, 1, 768, 3072, kept=True),
        output_tensor=half(1, 1, 197, 1536),
        gate=Gate.SILU,
    )
    plan = lower(desc, H200)
    assert kernels(plan)[0] == "gemm_streamed" and len(plan.initialize) == 1
    assert plan.persistent_bytes == packed_bytes(3072, 768)
