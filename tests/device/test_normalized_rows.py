"""Products that normalize their rows, on the device: in shapes of a large GPU, beside float64."""

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
from dmlvk.kernels.common.plan import Dispatch, Plan
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.spec.ops.matmul import GemmNormalization
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.layouts import GuardedTensor, place
from dmlvk.verify.cases.problem import Problem
from dmlvk.verify.check import Execution
from dmlvk.verify.oracle.matmul import gemm_normalization

F32, F16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
Array = NDArray[Any]


def gpu(device: dmlvk.Device) -> Capabilities:
    """The device's, as those of a large GPU."""
    return dataclasses.replace(device.capabilities, is_cpu=False, model=H200, workgroup_invocations=1024)


class Made:
    """A product whose rows are normalized, with its tensors.

    Args:
        data_type: The type of all.
        sizes: Rows, depth and columns, behind those of a batch.
        keeps: Whether the product is an output.
        plain: Whether nothing is added, and what is normalized is left as it is.
        mean: What the addend's numbers are around.
        attributes: Those of the operator.
    """

    def __init__(
        self,
        data_type: TensorDataType,
        sizes: tuple[int, ...],
        *,
        keeps: bool = False,
        plain: bool = False,
        mean: float = 0.0,
        **attributes: Any,
    ) -> None:
        *batch, rows, depth, columns = sizes
        rng = np.random.default_rng(1)
        made = {"a": (*batch, rows, depth), "b": (*batch, depth, columns)}
        if not plain:
            made |= dict.fromkeys(("c", "addend"), (*batch, rows, columns))
            made |= dict.fromkeys(("norm_scale", "norm_bias"), (columns,))
        self.inputs: list[GuardedTensor | None] = []
        self.arrays: list[Array | None] = []
        names = [spec.name for spec in GemmNormalization.fields if spec.kind.is_input]
        for name in names:
            wanted = made.get(name.removesuffix("_tensor"))
            tensor = None
            if wanted is not None:
                tensor = place(data_type, wanted, "packed", 0, is_output=False)
                tensor.view()[...] = rng.standard_normal(wanted) + (mean if name == "addend_tensor" else 0.0)
            self.inputs.append(tensor)
            self.arrays.append(None if tensor is None else tensor.view().copy())
        self.outputs = [
            place(data_type, (*batch, rows, columns), "packed", 0, is_output=True) if there else None
            for there in (True, keeps)
        ]
        fields = zip((*names, "output_tensor", "product_tensor"), (*self.inputs, *self.outputs), strict=True)
        descs = {name: None if tensor is None else tensor.desc for name, tensor in fields}
        self.desc = GemmNormalization(**descs, **{"epsilon": 1e-5, **attributes})
        self.desc.validate()

    def run(self, device: dmlvk.Device, caps: Capabilities, rule: str) -> list[Array]:
        """The outputs by a rule's plan for a device."""
        plan = lower(self.desc, caps, force=rule)
        problem = Problem(self.desc, tuple(self.inputs), tuple(self.outputs))
        found = []
        for output, buffer in zip(self.outputs, Execution(device, problem, rule, plan).run().buffers, strict=True):
            if output is not None:
                assert buffer is not None and output.stray_bytes(buffer) == 0
                found.append(output.view(buffer).copy())
        return found


def kernels(plan: Plan) -> list[str]:
    """The kernels of a plan's dispatches."""
    return [launch.kernel.kernel for launch in plan.dispatches if isinstance(launch, Dispatch)]


CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "lanes that span subgroups": ((5, 300, 1100), {"keeps": True, "alpha": 0.5}),
    "several rows a workgroup": ((70, 96, 24), {"beta": 2.0}),
    "lanes with more quads than one": ((3, 72, 8196), {"keeps": True}),
    "few columns": ((70, 96, 16), {}),
    "matrices": ((2, 3, 9, 200, 20), {"use_mean": False, "keeps": True}),
    "nothing added": ((7, 260, 64), {"plain": True}),
    "numbers far from 0": ((4, 64, 96), {"mean": 500.0}),
}


@pytest.mark.parametrize(("case", "data_type"), crossed(CASES, [F32, F16]))
def test_as_a_gpu_has_it(device: dmlvk.Device, case: str, data_type: TensorDataType) -> None:
    """Two dispatches; the same bits twice; and what is right within the roundings of the terms."""
    sizes, more = CASES[case]
    made, caps = Made(data_type, sizes, **more), gpu(device)
    assert kernels(lower(made.desc, caps, force="merged")) == ["gemm_tiled", "gemm_merge_normalized"]
    found = made.run(device, caps, "merged")
    for first, again in zip(found, made.run(device, caps, "merged"), strict=True):
        assert first.tobytes() == again.tobytes()
    wanted = gemm_normalization(made.desc, *made.arrays)
    unit = 2.0**-11 if data_type is F16 else 2.0**-22
    for own, right in zip(found, wanted, strict=False):
        error = np.abs(own.astype(np.float64) - right.value)
        assert (error <= 2 * unit * right.magnitude).all(), (error / right.magnitude).max()


def test_a_row_of_one_number_is_its_bias(device: dmlvk.Device) -> None:
    """Nothing varies in it, however large it is."""
    made = Made(F32, (6, 40, 32), mean=0.0)
    for tensor, name in zip(made.inputs, (spec.name for spec in GemmNormalization.fields), strict=False):
        if tensor is not None and name in ("a_tensor", "c_tensor", "addend_tensor"):
            tensor.view()[...] = 3e4 if name == "addend_tensor" else 0.0
    (found,) = made.run(device, gpu(device), "merged")
    bias = made.arrays[5]
    assert bias is not None
    np.testing.assert_array_equal(found, np.broadcast_to(bias, found.shape))


def test_the_rules_merge_what_is_in_parts_anyway(device: dmlvk.Device) -> None:
    caps = gpu(device)
    for sizes, wanted in (
        ((128, 768, 768), ["gemm_tiled", "gemm_merge_normalized"]),
        ((16384, 64, 64), ["gemm_tiled", "mean_variance_row"]),
    ):
        assert kernels(lower(Made(F32, sizes, plain=True).desc, caps)) == wanted


@pytest.mark.parametrize(
    ("columns", "wanted"), [(36, ["merged", "apart"]), (37, ["apart"]), (16384, ["merged", "apart"]), (16388, ["apart"])]
)
def test_rows_of_whole_quads_that_fit_a_workgroup_can_be_merged(
    device: dmlvk.Device, columns: int, wanted: list[str]
) -> None:
    assert possible_rules(Made(F32, (2, 40, columns)).desc, gpu(device)) == wanted


@pytest.mark.parametrize("name", ["output_tensor", "product_tensor", "norm_scale_tensor"])
def test_what_is_not_packed_is_normalized_apart(device: dmlvk.Device, name: str) -> None:
    desc = Made(F32, (2, 40, 36), keeps=True).desc
    tensor = desc.tensor(name)
    apart = TensorDesc(F32, tensor.sizes, tuple(2 * step for step in tensor.effective_strides))
    assert possible_rules(desc.replace(**{name: apart}), gpu(device)) == ["apart"]
