"""Products that normalize their rows themselves, on the device: in shapes of a large GPU, beside float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from crossed import crossed
from numpy.typing import NDArray

import dmlvk
from dmlvk import TensorDataType
from dmlvk.devices.capabilities import Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.lowering import lower
from dmlvk.spec.block_formats import BlockFormat
from dmlvk.spec.enums import MatrixTransform
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.block_quantized import NormalizedBlockGemm
from dmlvk.spec.ops.matmul import NormalizedGemm
from dmlvk.verify.cases.layouts import GuardedTensor, place
from dmlvk.verify.cases.problem import Problem
from dmlvk.verify.check import Execution
from dmlvk.verify.oracle import oracle

Row = type[NormalizedBlockGemm | NormalizedGemm]
F32, F16, U8 = TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.UINT8
Array = NDArray[Any]
NUMPY = {F32: np.float32, F16: np.float16}


def gpu(device: dmlvk.Device) -> Capabilities:
    """The device's, as those of a large GPU."""
    return dataclasses.replace(device.capabilities, is_cpu=False, model=H200, workgroup_invocations=1024)


def placed(array: Array) -> GuardedTensor:
    """A tensor with an array's numbers."""
    tensor = place(TensorDataType[array.dtype.name.upper()], array.shape, "packed", 0, is_output=False)
    tensor.view()[...] = array
    return tensor


def weights(format_: BlockFormat, columns: int, depth: int) -> Array:
    """Random codes, whose scales are ordinary numbers."""
    rng, own = np.random.default_rng(0), format_.layout
    groups = rng.integers(0, 256, (columns, depth // own.group, own.nbytes), dtype=np.uint8)
    scales = (rng.standard_normal((*groups.shape[:2], 1)) / 64).astype(np.float16)
    groups[..., own.scales : own.scales + 2] = scales.view(np.uint8)
    return groups.reshape(columns, -1)


class Made:
    """A product, with its inputs by field and its outputs."""

    def __init__(self, row: Row, rows: int, depth: int, columns: int, kind: str, gate: Gate) -> None:
        """``kind``: of the stream, of the rest, and of what is added where that is another, as "32 16"."""
        wide, narrow, *others = (F32 if bits == "32" else F16 for bits in kind.split())
        (added,) = others or (narrow,)
        rng = np.random.default_rng(1)

        def normal(data_type: TensorDataType, *sizes: int) -> Array:
            return rng.standard_normal(sizes).astype(NUMPY[data_type])

        self.arrays: dict[str, Array | None] = {"input_tensor": 3 * normal(wide, rows, depth)}
        attributes: dict[str, Any] = {"epsilon": 1e-5, "gate": gate}
        if row is NormalizedBlockGemm:
            self.arrays |= {
                "weight_tensor": weights(BlockFormat.Q4_0, columns, depth),
                "bias_tensor": normal(narrow, columns),
            }
            attributes["format"] = BlockFormat.Q4_0
        else:
            is_turned = columns % 8 != 0
            sizes = (columns, depth) if is_turned else (depth, columns)
            self.arrays |= {"b_tensor": normal(narrow, *sizes), "bias_tensor": None if gate else normal(narrow, columns)}
            attributes["trans_b"] = MatrixTransform(int(is_turned))
        self.arrays |= {"norm_addend_tensor": normal(added, rows, depth), "norm_scale_tensor": normal(wide, depth)}
        fields = [spec.name for spec in row.fields if spec.kind.is_input]
        self.inputs = [None if (own := self.arrays.get(name)) is None else placed(own) for name in fields]
        self.outputs = [
            place(narrow, (rows, columns // 2 if gate else columns), "packed", 0, is_output=True),
            place(wide, (rows, depth), "packed", 0, is_output=True),
        ]
        descs = {name: None if own is None else own.desc for name, own in zip(fields, self.inputs, strict=True)}
        self.desc: Any = row(**descs, output_tensor=self.outputs[0].desc, sum_tensor=self.outputs[1].desc, **attributes)
        self.desc.validate()
        expected: Any = oracle(row)
        self.expected, self.total = expected(self.desc, *(self.arrays.get(name) for name in fields))

    def run(self, device: dmlvk.Device, caps: Capabilities, rule: str) -> list[Array]:
        """The outputs by a rule's plan for a device."""
        plan = lower(self.desc, caps, force=rule)
        problem = Problem(self.desc, tuple(self.inputs), tuple(self.outputs))
        found = []
        for output, buffer in zip(self.outputs, Execution(device, problem, rule, plan).run().buffers, strict=True):
            assert buffer is not None and output.stray_bytes(buffer) == 0
            found.append(output.view(buffer).copy())
        return found


BOTH = pytest.mark.parametrize("row", [NormalizedBlockGemm, NormalizedGemm])
SHAPES = {
    "lanes that span subgroups": (1, 2048, 37, Gate.NONE),
    "rows": (3, 96, 200, Gate.NONE),
    "a gate": (2, 288, 48, Gate.SILU),
}
"""Rows, depth, columns, and what becomes of them."""
KINDS = "32 16", "32 32 16", "32 32", "16 16"


@pytest.mark.parametrize(
    ("shape", "kind", "row"), crossed(SHAPES, KINDS, [NormalizedBlockGemm, NormalizedGemm], each_value_once=True)
)
def test_as_a_gpu_has_it(device: dmlvk.Device, shape: str, kind: str, row: Row) -> None:
    """One dispatch; the sum as a norm by itself rounds it, the product within what the rounding of its terms allows, and the
    same bits twice."""
    rows, depth, columns, gate = SHAPES[shape]
    made = Made(row, rows, depth, columns, kind, gate)
    caps = gpu(device)
    found, total = made.run(device, caps, "joined")
    for first, again in zip((found, total), made.run(device, caps, "joined"), strict=True):
        assert first.tobytes() == again.tobytes()
    launched = [getattr(launch, "kernel", None) for launch in lower(made.desc, caps, force="joined").dispatches]
    assert sum("normalized" in str(own) for own in launched) == 1 and "root_mean_square" not in str(launched)
    np.testing.assert_array_equal(total, made.total.astype(total.dtype))
    np.testing.assert_array_equal(total, made.run(device, caps, "apart")[1])
    unit = 2.0**-11 if found.dtype == np.float16 else 2.0**-22
    error = np.abs(found.astype(np.float64) - made.expected.value)
    assert (error <= 2 * unit * made.expected.magnitude).all(), (error / made.expected.magnitude).max()


@BOTH
def test_a_row_of_zeros_is_zeros(device: dmlvk.Device, row: Row) -> None:
    made = Made(row, 1, 64, 16, "32 16", Gate.NONE)
    for tensor, name in zip(made.inputs, (spec.name for spec in row.fields if spec.kind.is_input), strict=True):
        if tensor is not None and name in ("input_tensor", "norm_addend_tensor", "bias_tensor"):
            tensor.view()[...] = 0
    found, total = made.run(device, gpu(device), "joined")
    assert not found.any() and not total.any()
