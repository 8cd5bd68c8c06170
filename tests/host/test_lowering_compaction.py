"""Plans of finding what is not zero, without a device."""

from __future__ import annotations

import pytest

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.tensor import element_bits

LARGE = Capabilities(
    features=SUBGROUPS | {"storage8", "storage16"},
    shared_memory_bytes=49152,
    workgroup_invocations=1024,
    workgroup_counts=(2**31 - 1, 65535, 65535),
    storage_buffer_bytes=2**32 - 1,
    model=H200,
)
LEAST = Capabilities(features=LARGE.features, storage_buffer_bytes=2**32 - 1)
OWN_SHARED_BYTES = 4 * (1024 + 2 * 256)
"""The bytes of the masks of a tile and of sums over subgroups, beside what is gathered."""


def nonzero(
    sizes: tuple[int, ...],
    data_type: TensorDataType = TensorDataType.FLOAT32,
    strides: tuple[int, ...] | None = None,
) -> dmlvk.NonzeroCoordinates:
    source = TensorDesc(data_type, sizes, strides)
    return dmlvk.NonzeroCoordinates(
        input_tensor=source,
        output_count_tensor=TensorDesc(TensorDataType.UINT32, (1,)),
        output_coordinates_tensor=TensorDesc(TensorDataType.UINT32, (source.element_count, len(sizes))),
    )


@pytest.mark.parametrize(
    ("sizes", "rule"), [((2**14,), "whole"), ((128, 129), "chunks"), ((1, 1, 1, 1), "whole"), ((2**28,), "chunks")]
)
def test_the_rule(sizes: tuple[int, ...], rule: str) -> None:
    assert next(found.name for found, holds in explain(nonzero(sizes), LARGE) if holds) == rule


@pytest.mark.parametrize(
    ("sizes", "strides", "data_type", "words"),
    [
        ((3, 37), None, TensorDataType.FLOAT32, True),
        ((3, 36), (40, 1), TensorDataType.FLOAT32, True),
        ((3, 36), (38, 1), TensorDataType.FLOAT32, False),
        ((3, 37), (40, 1), TensorDataType.FLOAT32, False),
        ((3, 36), (1, 3), TensorDataType.FLOAT32, False),
        ((3, 36), (0, 1), TensorDataType.FLOAT32, True),
        ((3, 36), (40, 1), TensorDataType.FLOAT16, False),
        ((15,), None, TensorDataType.INT8, False),
        ((17,), None, TensorDataType.INT8, True),
    ],
)
def test_whole_words_are_read_where_rows_are_made_of_them(
    sizes: tuple[int, ...], strides: tuple[int, ...] | None, data_type: TensorDataType, words: bool
) -> None:
    desc = nonzero(sizes, data_type, strides)
    for rule in possible_rules(desc, LARGE):
        variant = dict(lower(desc, LARGE, force=rule).dispatches[0].kernel.variant)
        assert variant["WORDS"] == str(int(words))


@pytest.mark.parametrize("caps", [LEAST, LARGE], ids=["least", "large"])
@pytest.mark.parametrize("data_type", [TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.UINT8])
@pytest.mark.parametrize("strides", [None, (1, 3)], ids=["words", "elements"])
@pytest.mark.parametrize("sizes", [(3, 5), (3, 2**12), (3, 2**14), (3, 2**24)])
def test_workgroups_are_the_devices(
    caps: Capabilities, data_type: TensorDataType, strides: tuple[int, ...] | None, sizes: tuple[int, ...]
) -> None:
    desc = nonzero(sizes, data_type, strides)
    for rule in possible_rules(desc, caps):
        for dispatch in lower(desc, caps, force=rule).dispatches:
            constants, variant = dict(dispatch.kernel.constants), dict(dispatch.kernel.variant)
            assert 128 <= constants["LOCAL_SIZE_X"] <= caps.workgroup_invocations
            assert 4 * constants.get("CAPACITY", 0) + OWN_SHARED_BYTES <= caps.shared_memory_bytes
            if "UNITS" in constants:
                unit_elements = 128 // element_bits(data_type) if variant["WORDS"] == "1" else 1
                assert constants["UNITS"] * unit_elements <= 32, "a tile has at most a mask an invocation"


@pytest.mark.parametrize("elements", [2**14 + 1, 2**20, 2**26 + 77, 2**30 - 1])
@pytest.mark.parametrize("caps", [LEAST, LARGE], ids=["least", "large"])
def test_chunks_cover_the_input_and_take_a_bit_an_element(caps: Capabilities, elements: int) -> None:
    plan = lower(nonzero((elements,), TensorDataType.UINT8), caps)
    first, second = plan.dispatches
    masks, counts = first.bindings[1:]
    assert (masks, counts) == second.bindings[:2]
    assert masks.nbytes == -(-elements // 32) * 4
    assert counts.offset >= masks.nbytes
    assert plan.temporary_bytes == counts.offset + counts.nbytes <= elements // 8 + 4 * 4096 + 512
    assert counts.nbytes <= 4 * 4096
    assert first.grid == second.grid
    assert first.grid[0] * first.grid[1] * 4 >= counts.nbytes


def test_more_rows_than_a_binding_holds_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="OutputCoordinatesTensor of 4294967296 bytes"):
        lower(nonzero((2**29, 1), TensorDataType.UINT8), LARGE)
