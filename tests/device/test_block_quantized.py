"""Products with weights in blocks and rows of such tables, on the device: every format against numpy's float64."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.capabilities import Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.block_quantized import rules
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.spec.block_formats import BlockFormat
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.block_quantized import BlockQuantizedGather, BlockQuantizedGemm
from dmlvk.verify.cases.layouts import GuardedTensor, place
from dmlvk.verify.cases.problem import Problem
from dmlvk.verify.check import Execution
from dmlvk.verify.oracle.block_quantized import block_quantized_gather, block_quantized_gemm, numbers

F32, F16, U8, I8, U16, I64 = (TensorDataType[name] for name in ("FLOAT32", "FLOAT16", "UINT8", "INT8", "UINT16", "INT64"))
Array = NDArray[Any]
NUMPY = {F32: np.float32, F16: np.float16}


class Weights(NamedTuple):
    """Weights as an operator has them: the format, the codes, and of a format APART scales, zero points and the block."""

    format: BlockFormat
    codes: Array
    scales: Array | None = None
    points: Array | None = None
    block: int = 0

    @property
    def tensors(self) -> tuple[Array, Array | None, Array | None]:
        """The tensors, in the order of the slots."""
        return self.codes, self.scales, self.points


def of_file(format_: BlockFormat, rows: int, depth: int) -> Weights:
    """Random bytes, whose FLOAT16 are ordinary numbers."""
    rng, own = np.random.default_rng(0), format_.layout
    groups = rng.integers(0, 256, (rows, -(-depth // own.group), own.nbytes), dtype=np.uint8)
    halves = [own.factors, own.factors + 2] if own.scale.grouped else [own.scales, own.scales + 2]
    has_second = format_ in (BlockFormat.Q4_1, BlockFormat.Q5_1, BlockFormat.Q4_K, BlockFormat.Q5_K)
    for first in halves[: 1 + has_second]:
        numbers = (rng.standard_normal((*groups.shape[:-1], 1)) / 64).astype(np.float16)
        groups[..., first : first + 2] = numbers.view(np.uint8)
    return Weights(format_, groups.reshape(rows, -1))


def apart(
    bits: int, rows: int, depth: int, block: int, scale: TensorDataType, points: str = "", signed: bool = False
) -> Weights:
    """Codes with scales of their own, and zero points that are "codes", "real" or absent."""
    rng, count = np.random.default_rng(0), -(-depth // block)
    codes = np.int8 if signed else np.uint8

    def real(size: float) -> Array:
        numbers = rng.standard_normal((rows, count)).astype(np.float32) * np.float32(size)
        return (numbers.view(np.uint32) >> 16).astype(np.uint16) if scale is U16 else numbers.astype(NUMPY[scale])

    def packed(columns: int) -> Array:
        return rng.integers(0, 256, (rows, -(-columns * bits // 8)), dtype=np.uint8).view(codes)

    zero_points = {"": None, "codes": packed(count), "real": real(4.0)}[points]
    format_ = BlockFormat.APART_4 if bits == 4 else BlockFormat.APART_8
    return Weights(format_, packed(count * block), real(0.1), zero_points, block)


def placed(array: Array | None, layout: str = "packed") -> GuardedTensor | None:
    """A tensor with an array's numbers."""
    if array is None:
        return None
    tensor = place(TensorDataType[array.dtype.name.upper()], array.shape, layout, 0, is_output=False)
    tensor.view()[...] = array
    return tensor


def desc_of(tensor: GuardedTensor | None) -> TensorDesc | None:
    return None if tensor is None else tensor.desc


FORMATS = {
    **{format_.name: of_file(format_, 37, 512) for format_ in BlockFormat if not format_.is_apart},
    "half a group": of_file(BlockFormat.Q4_K, 9, 328),
    "a single column": of_file(BlockFormat.Q8_0, 1, 4096),
    "long": of_file(BlockFormat.Q5_K, 21, 2048),
    "16, codes": apart(4, 37, 75, 16, F32, "codes"),
    "32, signed": apart(4, 37, 104, 32, F16, "codes", signed=True),
    "128, real": apart(4, 37, 300, 128, U16, "real"),
    "gated": of_file(BlockFormat.Q4_K, 48, 512),
    "gated, codes": apart(4, 48, 304, 32, F16, "codes"),
    "gated, without offsets": of_file(BlockFormat.Q4_0, 208, 512),
    "of parts": of_file(BlockFormat.Q4_K, 200, 512),
    "64, bytes": apart(8, 37, 200, 64, F16),
    "256, bytes": apart(8, 6, 300, 256, F32, "codes"),
}
DEPTHS = {"long": 2048, "half a group": 328, "a single column": 4096, "16, codes": 75, "32, signed": 104, "128, real": 300}
DEPTHS |= {"gated, codes": 304, "64, bytes": 200, "256, bytes": 300}
QUICK = ("Q4_K", "16, codes")


def lesser(device: dmlvk.Device, nbytes: int) -> Capabilities:
    """The device's, with smaller bindings."""
    return dataclasses.replace(device.capabilities, storage_buffer_bytes=nbytes)


def gpu(device: dmlvk.Device) -> Capabilities:
    """The device's, as those of a large GPU."""
    return dataclasses.replace(device.capabilities, is_cpu=False, model=H200, workgroup_invocations=1024)


def check_product(
    device: dmlvk.Device,
    name: str,
    rows: int,
    data_type: TensorDataType,
    layout: str = "packed",
    caps: Capabilities | None = None,
    gate: Gate = Gate.NONE,
) -> None:
    """A product with a bias and something added, or with a gate, by every rule that is possible or with the plan of others,
    twice."""
    weights, depth, rng = FORMATS[name], DEPTHS.get(name, 512), np.random.default_rng(1)
    columns, dtype = len(weights.codes), NUMPY[data_type]
    arrays: list[Any] = [rng.standard_normal((rows, depth)).astype(dtype), *weights.tensors]
    arrays += [rng.standard_normal(sizes).astype(dtype) for sizes in ((columns,), (rows, columns))]
    if gate:
        columns, arrays[-1] = columns // 2, None
    inputs = [placed(array, layout if index == 0 else "packed") for index, array in enumerate(arrays)]
    output = place(data_type, (rows, columns), layout, 0, is_output=True)
    fields = [spec.name for spec in BlockQuantizedGemm.fields if spec.kind.is_input]
    desc = BlockQuantizedGemm(
        **dict(zip(fields, map(desc_of, inputs), strict=True)),
        output_tensor=output.desc,
        format=weights.format,
        block_size=weights.block,
        gate=gate,
    )
    desc.validate()
    expected = block_quantized_gemm(desc, *arrays)
    possible = possible_rules(desc, caps or device.capabilities)
    for rule in possible if caps is None else [rule for rule in possible if rule in ("dot", "vector")]:
        plan = None if caps is None else lower(desc, caps, force=rule)
        problem = Problem(desc, tuple(inputs), (output,))
        buffers = [Execution(device, problem, rule, plan).run().buffers[0] for _ in range(2)]
        assert buffers[0] is not None and np.array_equal(buffers[0], buffers[1]), rule
        assert output.stray_bytes(buffers[0]) == 0, rule
        error = np.abs(output.view(buffers[0]).astype(np.float64) - expected.value)
        # Cooperative matrices have factors of float16.
        unit = 2.0**-11 if data_type is F16 or rule in ("cooperative", "strips") else 2.0**-22
        assert (error <= 2 * unit * expected.magnitude).all(), (rule, (error / expected.magnitude).max())


def check_rows(device: dmlvk.Device, name: str, data_type: TensorDataType, caps: Capabilities | None = None) -> None:
    """Rows, chosen by indices of which some are negative and some out of range: the format's numbers, rounded once."""
    weights, depth = FORMATS[name], DEPTHS.get(name, 512)
    count = len(weights.codes)
    indices = np.array([0, count - 1, -1, 2, count + 7, -count - 9, 2**40, -(2**40)], np.int64)
    inputs = [placed(array) for array in (indices, *weights.tensors)]
    output = place(data_type, (len(indices), depth), "packed", 0, is_output=True)
    fields = [spec.name for spec in BlockQuantizedGather.fields if spec.kind.is_input]
    desc = BlockQuantizedGather(
        **dict(zip(fields, map(desc_of, inputs), strict=True)),
        output_tensor=output.desc,
        format=weights.format,
        block_size=weights.block,
    )
    desc.validate()
    plan = None if caps is None else lower(desc, caps)
    found = Execution(device, Problem(desc, tuple(inputs), (output,)), plan=plan).run().buffers[0]
    expected = block_quantized_gather(desc, indices, *weights.tensors).astype(NUMPY[data_type])
    np.testing.assert_array_equal(output.view(found), expected)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in FORMATS])
def test_one_row(device: dmlvk.Device, name: str) -> None:
    check_product(device, name, 1, F32)
    check_rows(device, name, F32)


@pytest.mark.parametrize("format_", [BlockFormat.Q4_0, BlockFormat.Q5_0, BlockFormat.Q8_0])
def test_unit_rows_give_the_numbers(device: dmlvk.Device, format_: BlockFormat) -> None:
    """By every rule: each number is rounded once to FLOAT16, however small it is."""
    depth, weights = 64, of_file(format_, 24, 64)
    groups = weights.codes.reshape(len(weights.codes), -1, format_.layout.nbytes)
    scales = (
        np.random.default_rng(2).standard_normal((*groups.shape[:2], 1))
        * np.where(np.arange(24) % 2, 3e-5, 0.1)[:, None, None]
    )
    groups[..., format_.layout.scales : format_.layout.scales + 2] = scales.astype(np.float16).view(np.uint8)
    inputs = [placed(np.eye(depth, dtype=np.float16)), placed(weights.codes), None, None, None, None]
    output = place(F16, (depth, len(weights.codes)), "packed", 0, is_output=True)
    fields = [spec.name for spec in BlockQuantizedGemm.fields if spec.kind.is_input]
    tensors = dict(zip(fields, map(desc_of, inputs), strict=True))
    desc = BlockQuantizedGemm(**tensors, output_tensor=output.desc, format=format_)
    desc.validate()
    expected = numbers(desc, weights.codes, None, None).T.astype(np.float16)
    for rule in possible_rules(desc, device.capabilities):
        found = Execution(device, Problem(desc, tuple(inputs), (output,)), rule).run().buffers[0]
        np.testing.assert_array_equal(output.view(found), expected, err_msg=rule)


@pytest.mark.parametrize("gate", [Gate.SILU, Gate.GELU])
def test_gates(device: dmlvk.Device, gate: Gate) -> None:
    """As a chain behind the product; rows in parts, where bindings are small."""
    check_product(device, "gated", 11, F32, caps=lesser(device, 20_000), gate=gate)


@pytest.mark.full
@pytest.mark.parametrize("gate", [Gate.SILU, Gate.GELU])
@pytest.mark.parametrize("name", ["gated", "gated, codes"])
def test_gates_at_the_end_of_a_gpus_product(device: dmlvk.Device, name: str, gate: Gate) -> None:
    check_product(device, name, 3, F16, caps=gpu(device), gate=gate)
    check_product(device, name, 3, F32, "strided", gate=gate)


@pytest.mark.parametrize("name", ["of parts", pytest.param("64, bytes", marks=pytest.mark.full)])
def test_rows_that_a_gpu_stages(device: dmlvk.Device, name: str) -> None:
    """Rows in shared memory, where they fit it, and where a word of eight numbers is past the depth."""
    check_product(device, name, 2, F32, caps=gpu(device))
    check_product(device, name, 2, F32, caps=dataclasses.replace(gpu(device), shared_memory_bytes=4096))


@pytest.mark.parametrize(("name", "gate"), [("of parts", Gate.NONE), ("gated, without offsets", Gate.SILU)])
@pytest.mark.parametrize("invocations", [1024, 64])
def test_a_processors_only_workgroup_and_several(device: dmlvk.Device, name: str, gate: Gate, invocations: int) -> None:
    """Teams that share digits, of which the last workgroup has too many."""
    model = dataclasses.replace(H200, processors=4)
    caps = dataclasses.replace(gpu(device), model=model, workgroup_invocations=invocations)
    check_product(device, name, 1, F16, caps=caps, gate=gate)


def test_parts_that_bindings_hold(device: dmlvk.Device) -> None:
    """Of weights, of rows, and of both; a row of the table is found in the part that has it."""
    caps = lesser(device, 20_000)
    check_product(device, "of parts", 11, F32, caps=caps)
    check_rows(device, "of parts", F32, caps)


@pytest.mark.full
@pytest.mark.parametrize("layout", ["packed", "strided"])
@pytest.mark.parametrize("name", ["Q6_K", "Q5_0", "128, real", "64, bytes"])
def test_rows_of_float16(device: dmlvk.Device, name: str, layout: str) -> None:
    check_product(device, name, 11, F16, layout)
    check_rows(device, name, F16)


@pytest.mark.parametrize(("name", "rows"), [("long", 3), ("half a group", 17), ("64, bytes", 40), ("a single column", 16)])
@pytest.mark.parametrize("deep", [8, 1])
def test_strips(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, name: str, rows: int, deep: int) -> None:
    """Columns that fill no strip, depths that fill no round, tiles of 16 rows, of 32 and two of these; subgroups that share
    the depth, and parts of it."""
    if not device.capabilities.matrix_fragments:
        pytest.skip("the device has no matrices whose elements lie where strips fill them")
    monkeypatch.setattr(rules, "_MOST_DEEP", deep)
    check_product(device, name, rows, F16)


@pytest.mark.full
@pytest.mark.parametrize("name", ["long", "a single column"])
def test_lanes_of_a_gpu(device: dmlvk.Device, name: str) -> None:
    """The plan of a large GPU, whose lanes share columns through shared memory."""
    check_product(device, name, 3, F16, caps=gpu(device))
