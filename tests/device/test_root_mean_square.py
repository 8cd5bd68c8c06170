"""Normalization by the root mean square against float64, by both of its rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.lowering import lower
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.ops.root_mean_square import RootMeanSquare
from dmlvk.verify.oracle.root_mean_square import root_mean_square

Array = NDArray[Any]
TYPES = {np.float32: TensorDataType.FLOAT32, np.float16: TensorDataType.FLOAT16}
F32, F16 = np.float32, np.float16


@pytest.mark.parametrize("rule", ["held", "twice"])
@pytest.mark.parametrize(
    ("sizes", "kind", "addend_kind", "scaled"),
    [
        ((2, 3, 64), (F32, F16), F16, True),
        ((5, 33), (F32, F32), F32, True),
        ((1, 2, 2, 8), (F16, F16), None, False),
        ((2, 3, 64), (F32, F32), F16, True),
        ((2, 33), (F32, F32), F16, True),
    ],
    ids=["stream of floats, rows of halves", "odd rows", "heads", "halves are added", "halves are added to odd rows"],
)
def test_agrees_with_float64(
    device: dmlvk.Device, rule: str, sizes: tuple[int, ...], kind: Any, addend_kind: Any, scaled: bool
) -> None:
    rng = np.random.default_rng(0)
    own, out = (TYPES[item] for item in kind)
    x = rng.standard_normal(sizes).astype(kind[0])
    addend = None if addend_kind is None else rng.standard_normal(sizes).astype(addend_kind)
    scale = rng.standard_normal(sizes[-1]).astype(kind[0]) if scaled else None
    desc = RootMeanSquare(
        input_tensor=TensorDesc(own, sizes),
        addend_tensor=None if addend is None else TensorDesc(TYPES[addend_kind], sizes),
        scale_tensor=None if scale is None else TensorDesc(own, scale.shape),
        output_tensor=TensorDesc(out, sizes),
        sum_tensor=None if addend is None else TensorDesc(own, sizes),
        epsilon=1e-5,
    )
    desc.validate()
    inputs = [None if array is None else device.create_buffer(array.nbytes) for array in (x, addend, scale)]
    for buffer, array in zip(inputs, (x, addend, scale), strict=True):
        if buffer is not None and array is not None:
            buffer.write(array)
    outputs = [
        None if slot.tensor is None else device.create_buffer(slot.tensor.total_tensor_size_in_bytes)
        for slot in desc.output_slots()
    ]
    bindings = [[None if buffer is None else BufferBinding(buffer) for buffer in group] for group in (inputs, outputs)]
    commands = device.create_command_list()
    ReadyOperator(device, desc, rule).record(commands, *bindings)
    device.execute(commands)
    assert len(lower(desc, device.capabilities).dispatches) == 1
    expected = root_mean_square(desc, x, addend, scale)
    for buffer, wanted, dtype in zip(outputs, expected, (kind[1], kind[0]), strict=True):
        if buffer is not None:
            found = buffer.read()[: wanted.size * np.dtype(dtype).itemsize].view(dtype).reshape(sizes)
            np.testing.assert_allclose(found, wanted, rtol=2e-3 if dtype is F16 else 1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("field", "tensor"),
    [
        ("addend_tensor", TensorDesc(TensorDataType.FLOAT32, (2, 5))),
        ("addend_tensor", TensorDesc(TensorDataType.INT8, (2, 4))),
        ("scale_tensor", TensorDesc(TensorDataType.FLOAT32, (2,))),
        ("sum_tensor", TensorDesc(TensorDataType.FLOAT16, (2, 4))),
    ],
)
def test_tensors_that_do_not_fit(field: str, tensor: TensorDesc) -> None:
    whole = TensorDesc(TensorDataType.FLOAT32, (2, 4))
    with pytest.raises(InvalidArgumentError, match="RootMeanSquare"):
        RootMeanSquare(input_tensor=whole, output_tensor=whole, epsilon=0.0, **{field: tensor}).validate()
