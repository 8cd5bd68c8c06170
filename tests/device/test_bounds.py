"""Kernels whose places are data, or that load ahead, stay within their bindings: the validation layer instruments every
access of their modules and reports those outside. A driver need not show them: lavapipe reads 0 there, and SwiftShader
crashes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_LAYER = {
    "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation",
    "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_EXT",
    "VK_LAYER_DISABLES": "VK_VALIDATION_FEATURE_DISABLE_CORE_CHECKS_EXT",
}


_OTHERS = ("ScatterNd", "GatherElements", "GatherNd1", "OneHot", "NonzeroCoordinates", "MaxUnpooling", "TopK1")


@pytest.mark.parametrize(
    ("operator", "runs"),
    [
        ("ScatterElements", "first dimension, INT32, FLOAT32, packed"),
        *(pytest.param(operator, "FLOAT32, packed", marks=pytest.mark.full) for operator in _OTHERS),
    ],
)
@pytest.mark.slow
def test_every_access_lies_in_its_binding(operator: str, runs: str) -> None:
    _check("-m", "dmlvk", "verify", operator, "--only", runs)


_SLICES = """
import numpy as np
from dmlvk import Device, Gemm, TensorDataType, TensorDesc
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.matmul import lowering
from dmlvk.kernels.matmul.tiles import ProductTile, Tiles
from dmlvk.runtime.memory import BufferBinding

lowering.fastest_tiles = lambda *_, **__: Tiles(ProductTile(8, 4, 4, 4), 4, 4, 1)
device = Device()
for depth in (4, 20):
    x, y = np.ones((36, depth), np.float32), np.ones((depth, 68), np.float32)
    tensors = [TensorDesc(TensorDataType.FLOAT32, sizes) for sizes in (x.shape, y.shape, (36, 68))]
    desc = Gemm(a_tensor=tensors[0], b_tensor=tensors[1], output_tensor=tensors[2])
    buffers = [device.create_buffer(tensor.total_tensor_size_in_bytes) for tensor in tensors]
    buffers[0].write(x), buffers[1].write(y)
    commands = device.create_command_list()
    places = [BufferBinding(buffer) for buffer in buffers]
    ReadyOperator(device, desc, "tiled").record(commands, [*places[:2], None], places[2:])
    device.execute(commands)
    assert (buffers[2].read().view(np.float32) == depth).all()
"""
"""Products of 1 and of 5 rounds, which four slices share: the last has none."""


@pytest.mark.full  # half a minute under the instrumenting layer
def test_a_slice_of_a_product_without_rounds_reads_nothing_outside() -> None:
    _check("-c", _SLICES)


def _check(*command: str) -> None:
    """Runs Python under the instrumenting layer, and sees that it comes to its end without a message."""
    if os.environ.get("DMLVK_VALIDATION") != "1":
        pytest.skip("it takes the validation layer to tell")
    environment = {key: value for key, value in os.environ.items() if key != "DMLVK_VALIDATION"} | _LAYER
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "access out of bounds" not in done.stdout, done.stdout[:2000]
