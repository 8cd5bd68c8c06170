"""Quantization plans, without a device."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import Any

import pytest

import dmlvk
from dmlvk import QuantizationType, TensorDataType, TensorDesc
from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.common.plan import Dispatch, Range, Source, input_range, output_range
from dmlvk.kernels.elementwise.lowering import pointwise_problem
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.schema import OperatorDesc

FLOAT32, FLOAT16, INT32, INT8, UINT8, INT4, UINT4 = (
    TensorDataType[name] for name in ("FLOAT32", "FLOAT16", "INT32", "INT8", "UINT8", "INT4", "UINT4")
)
GPU = Capabilities(workgroup_invocations=1024, features=frozenset({"storage8", "storage16"}), storage_buffer_bytes=2**32 - 4)
ONE, TWO, ANY = range(3)
GROUPS, BROADCAST = 1, 2


def quantize(
    sizes: tuple[int, ...],
    blocks: tuple[int, ...],
    kind: TensorDataType = INT8,
    real: TensorDataType = FLOAT32,
    strides: tuple[int, ...] | None = None,
) -> OperatorDesc:
    return dmlvk.Quantize(
        input_tensor=TensorDesc(real, sizes, strides),
        quantization_type=QuantizationType.SCALE_ZERO_POINT,
        quantization_tensors=(TensorDesc(real, blocks), TensorDesc(kind, blocks)),
        output_tensor=TensorDesc(kind, sizes, strides),
    )


def dequantize(sizes: tuple[int, ...], blocks: tuple[int, ...], **options: Any) -> OperatorDesc:
    desc = quantize(sizes, blocks, **options)
    fields = {name: getattr(desc, name) for name in ("quantization_type", "quantization_tensors")}
    source, output = desc.input_slots()[0].tensor, desc.output_slots()[0].tensor
    return dmlvk.Dequantize(input_tensor=output, output_tensor=source, **fields)


def dispatch(desc: OperatorDesc, caps: Capabilities = GPU, force: str = "") -> Dispatch:
    desc.validate()
    (only,) = lower(desc, caps, force=force).dispatches
    return only


def constants(desc: OperatorDesc, force: str = "") -> dict[str, int]:
    return dict(dispatch(desc, force=force).kernel.constants)


def params(desc: OperatorDesc, force: str = "") -> dict[str, tuple[int, ...]]:
    made = dispatch(desc, force=force)
    words = list(struct.unpack(f"<{len(made.params) // 4}I", made.params))
    members = KERNELS[made.kernel.kernel].members
    return {member.name: tuple(words.pop(0) for _ in range(max(member.length, 1))) for member in members}


@pytest.mark.parametrize(
    ("sizes", "blocks", "rank", "rows", "mode"),
    [
        ((2, 3, 5, 7), (1, 1, 1, 1), 1, ONE, BROADCAST),
        ((2, 3, 4, 8), (1, 3, 1, 1), 3, ONE, BROADCAST),
        ((2, 3, 7, 7), (1, 3, 1, 1), 3, TWO, BROADCAST),
        ((2, 3, 1, 3), (1, 3, 1, 1), 3, ANY, BROADCAST),
        ((5, 48), (1, 48), 2, ONE, GROUPS),
        ((5, 47), (1, 47), 2, ANY, BROADCAST),
        ((4, 33), (4, 33), 1, ONE, GROUPS),
        ((3, 64), (3, 2), 2, ONE, BROADCAST),
        ((6, 16), (2, 16), 3, ONE, GROUPS),
    ],
)
def test_how_groups_meet_scales(sizes: tuple[int, ...], blocks: tuple[int, ...], rank: int, rows: int, mode: int) -> None:
    for desc in (quantize(sizes, blocks), dequantize(sizes, blocks)):
        made = constants(desc)
        found = (made["RANK"], made["ROWS"], made["SCALE_MODE"], made["ZERO_POINT_MODE"])
        assert found == (rank, rows, mode, mode)


@pytest.mark.parametrize(
    ("real", "kind", "lanes"),
    [(FLOAT32, INT8, (16, 4)), (FLOAT16, INT8, (16, 8)), (FLOAT32, INT4, (8, 8)), (FLOAT16, UINT4, (8, 8))],
)
def test_groups_share_a_scale_and_are_whole_words_of_both_types(
    real: TensorDataType, kind: TensorDataType, lanes: tuple[int, int]
) -> None:
    for make, count in zip((quantize, dequantize), lanes, strict=True):
        made = dispatch(make((1001,), (1,), kind=kind, real=real))
        assert dict(made.kernel.variant)["LANES"] == str(count)
        assert math.prod(made.grid) == -(-1001 // (128 * count))


def test_a_block_is_a_dimension_of_its_own() -> None:
    made = params(quantize((6, 10), (2, 5)))
    assert made["sizes"][:4] == (2, 3, 5, 2)
    assert made["scale_strides"][:4] == (5, 0, 1, 0)
    assert made["x_strides"][:4] == (30, 10, 2, 1)


def test_eight_dimensions_of_blocks_are_sixteen() -> None:
    sizes, blocks = (4,) * 8, (2,) * 8
    assert constants(quantize(sizes, blocks))["RANK"] == 16


def test_tensors_of_one_layout_are_packed_whatever_it_is() -> None:
    nhwc = (7 * 5 * 3, 1, 7 * 3, 3)
    desc = quantize((2, 3, 5, 7), (1, 1, 1, 1), strides=nhwc)
    assert possible_rules(desc, GPU) == ["groups", "elements"]
    assert constants(desc)["RANK"] == 1


def test_strided_tensors_go_by_elements() -> None:
    desc = quantize((4, 6), (1, 1), strides=(7, 1))
    assert possible_rules(desc, GPU) == ["elements"]
    assert dict(dispatch(desc).kernel.variant)["LANES"] == "1"
    packed = quantize((4, 6), (1, 1))
    for name in ("input_tensor", "output_tensor"):
        assert possible_rules(packed.replace(**{name: getattr(desc, name)}), GPU) == ["elements"], "one of both is enough"


def test_scales_that_start_anywhere_are_read_one_by_one() -> None:
    """Rows of a table of 4x48 that is part of a wider one: its groups of 16 are no words."""
    for pitch, found in ((64, (ONE, GROUPS)), (49, (ANY, 0))):
        desc = quantize((4, 48), (4, 48))
        wide = tuple(
            replace(tensor, strides=(pitch, 1), total_tensor_size_in_bytes=0) for tensor in desc.quantization_tensors
        )
        made = constants(desc.replace(quantization_tensors=wide))
        assert (made["ROWS"], made["SCALE_MODE"]) == found


@pytest.mark.parametrize(("elements", "items"), [(2**17, 2), (2**17 - 4, 1)])
def test_groups_of_four_go_two_by_two_from_four_waves_on(elements: int, items: int) -> None:
    assert GPU.model.invocations(4) == 2**17
    assert constants(dequantize((elements,), (1,)))["ITEMS"] == items


def test_a_word_of_a_4_bit_output_has_one_writer() -> None:
    desc = quantize((5, 7), (1, 1), kind=UINT4, strides=(9, 1))
    span = 4 * 9 + 7
    assert constants(desc)["PACKED"] == 0
    assert params(desc)["count"] == (-(-span // 8),)
    assert params(desc)["inner_size"] == (span,)
    assert params(quantize((5, 7), (1, 1), kind=UINT4))["count"] == (-(-35 // 8),)


@pytest.mark.parametrize(("sizes", "strides"), [((2, 3), (3, 2)), ((3, 2), (2, 3)), ((2, 2, 2), (5, 4, 7))])
def test_4_bit_outputs_that_do_not_nest_go_element_by_element(sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    blocks = (1,) * len(sizes)
    desc = quantize(sizes, blocks, kind=INT4, strides=strides)
    assert dict(dispatch(desc).kernel.variant)["LANES"] == "1"
    assert "PACKED" not in constants(desc)
    assert params(desc)["count"] == (math.prod(sizes),)
    dispatch(quantize(sizes, blocks, kind=INT8, strides=strides))
    dispatch(dequantize(sizes, blocks, kind=INT4, strides=strides))


def test_features_are_those_of_the_types() -> None:
    dispatch(quantize((5,), (1,), kind=INT4), Capabilities())
    with pytest.raises(UnsupportedError, match="storage8"):
        lower(quantize((5,), (1,), kind=INT8), Capabilities())
    with pytest.raises(UnsupportedError, match="storage16"):
        lower(quantize((5,), (1,), kind=INT4, real=FLOAT16), Capabilities())


def test_the_largest_tensors_fit_a_grid() -> None:
    columns, rows, _ = dispatch(dequantize((2**32 - 8,), (1,), kind=INT4), Capabilities(storage_buffer_bytes=2**40)).grid
    assert columns <= 65535 and columns * rows * 128 * 8 * 2 >= 2**32 - 8


def test_an_absent_zero_point_binds_the_input() -> None:
    tensor = TensorDesc(INT32, (5,))
    scale, output = TensorDesc(FLOAT32, (5,)), TensorDesc(UINT8, (5,))
    desc = dmlvk.ElementWiseQuantizeLinear(input_tensor=tensor, scale_tensor=scale, output_tensor=output)
    made = dispatch(desc)
    assert made.bindings == (input_range(0), input_range(1), input_range(0), output_range())
    assert dict(made.kernel.variant) == {"LANES": "16", "T": "INT32", "S": "FLOAT32", "U": "UINT8"}
    assert constants(desc)["HAS_ZERO_POINT"] == 0


@pytest.mark.parametrize("strides", [(5000, 1), (10000, 2)])
@pytest.mark.parametrize(("real", "integer"), [(FLOAT32, UINT8), (FLOAT16, INT8)])
def test_a_dynamic_quantization_reads_twice(strides: tuple[int, int], real: TensorDataType, integer: TensorDataType) -> None:
    """The range of chunks in temporary memory, scale and zero point in the outputs, from where the last step takes them."""
    desc = dmlvk.DynamicQuantizeLinear(
        input_tensor=TensorDesc(real, (3, 5000), strides),
        output_tensor=TensorDesc(integer, (3, 5000)),
        output_scale_tensor=TensorDesc(FLOAT32, (1, 1, 1)),
        output_zero_point_tensor=TensorDesc(integer, (1,)),
    )
    desc.validate()
    caps = replace(GPU, features=GPU.features | SUBGROUPS)
    assert possible_rules(desc, caps) == (["groups", "elements"] if strides[1] == 1 else ["elements"])
    plan = lower(desc, caps)
    reading, merging, quantizing = plan.dispatches
    partials = Range(Source.TEMPORARY, 0, 0, plan.temporary_bytes)
    assert reading.bindings == (input_range(0), partials, partials)
    assert dict(reading.kernel.constants)["SPLIT"] == 1
    assert merging.bindings == (output_range(1), output_range(2), partials)
    chunks = struct.unpack("<4I", merging.params)[3]
    assert chunks > 1 and plan.temporary_bytes == 8 * chunks
    assert merging.grid == (1, 1, 1) and dict(merging.kernel.constants)["SIGNED"] == int(integer is INT8)
    assert quantizing.bindings == (input_range(0), output_range(1), output_range(2), output_range(0))
    assert dict(quantizing.kernel.variant)["S"] == "FLOAT32"


def test_a_quantized_sum_is_a_pointwise_operator() -> None:
    tensor, one = TensorDesc(INT8, (64,)), TensorDesc(FLOAT32, (1,))
    desc = dmlvk.ElementWiseQuantizedLinearAdd(
        a_tensor=tensor,
        a_scale_tensor=one,
        a_zero_point_tensor=TensorDesc(INT8, (1,)),
        b_tensor=TensorDesc(UINT8, (64,)),
        b_scale_tensor=one,
        output_scale_tensor=one,
        output_tensor=tensor,
    )
    made = dispatch(desc)
    found = constants(desc)
    assert [found[f"{name}_SIGNED"] for name in ("A", "B", "OUTPUT")] == [1, 0, 1]
    assert [found[f"HAS_{name}_ZERO_POINT"] for name in ("A", "B", "OUTPUT")] == [1, 0, 0]
    slots = (0, 3, None, 1, 2, 4, 4, 6, 6)
    assert made.bindings == tuple(output_range() if slot is None else input_range(slot) for slot in slots)
    assert pointwise_problem(UINT8, UINT8, (64,), [(1,)] * 3).group_lanes == int(dict(made.kernel.variant)["LANES"])


def test_quantization_needs_a_scale() -> None:
    base = quantize((4,), (1,))
    with pytest.raises(dmlvk.InvalidArgumentError, match=r"QUANTIZE\.QuantizationType"):
        base.replace(quantization_type=QuantizationType.NONE).validate()
    with pytest.raises(dmlvk.InvalidArgumentError, match=r"QUANTIZE\.QuantizationTensors"):
        base.replace(quantization_tensors=()).validate()
