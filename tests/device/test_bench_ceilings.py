"""The kernels of the ceilings do as much arithmetic as is counted for them, and only where the device has it; launches are
measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk.devices.capabilities import Capabilities, CooperativeMatrix
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.peak.arithmetic import Arithmetic, chains, matrices
from dmlvk_bench import launches
from dmlvk_bench.ceilings import measure, prepared
from dmlvk_bench.timing import recorded

WORKGROUPS = 3
Values = NDArray[Any]


def numbers(device: dmlvk.Device, way: Arithmetic, rounds: int) -> Values:
    """What the kernel writes, as bytes of so many workgroups."""
    output = device.create_buffer(WORKGROUPS * way.output_bytes)
    device.execute(recorded(device, prepared(device, way, output, rounds)))
    return output.read()


def steps(way: Arithmetic, rounds: int) -> tuple[Values, int]:
    """The numbers with which the invocations' chains begin, and how often each is multiplied and added."""
    constants = {**dict(KERNELS[way.kernel].constants), **way.constants}
    lanes = np.arange(int(constants["LOCAL_SIZE_X"]))[:, None] + np.arange(int(constants["CHAINS"]))
    return lanes, rounds * int(constants["STEPS"])


def kernel(device: dmlvk.Device, name: str, operations: int) -> Arithmetic:
    way = chains(device.capabilities, name, operations)
    if not way.is_possible(device.capabilities):
        pytest.skip(f"the device lacks a feature of {name}")
    return way


@pytest.mark.quick
@pytest.mark.parametrize(("name", "operations", "tolerance"), [("peak_float32", 2, 1e-5), ("peak_float16", 4, 3e-2)])
@pytest.mark.parametrize("rounds", [0, 1])
def test_chains_of_multiply_adds(device: dmlvk.Device, name: str, operations: int, tolerance: float, rounds: int) -> None:
    way = kernel(device, name, operations)
    lanes, count = steps(way, rounds)
    factor, addend, step = (way.params[key] for key in ("factor", "addend", "step"))
    apart = lanes[:, :1] * step
    sums = np.zeros(len(lanes))
    for half in range(operations // 2):
        values = lanes * addend
        for _ in range(count):
            values = values * factor + addend + apart if half else values * (factor - apart) + addend
        sums += values.sum(axis=1)
    np.testing.assert_allclose(numbers(device, way, rounds).view(np.float32), np.tile(sums, WORKGROUPS), rtol=tolerance)


@pytest.mark.quick
@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_chains_of_products_of_bytes(device: dmlvk.Device, rounds: int) -> None:
    way = kernel(device, "peak_int8", 8)
    lanes, count = steps(way, rounds)
    factor = np.array([way.params["factor"]], np.uint32)
    values = (lanes * int(factor[0])).astype(np.uint32).view(np.int32)
    for _ in range(count):
        values = values + (values[..., None].view(np.int8).astype(np.int32) * factor.view(np.int8)).sum(
            axis=-1, dtype=np.int32
        )
    expected = np.tile(values.sum(axis=1, dtype=np.int32), WORKGROUPS)
    np.testing.assert_array_equal(numbers(device, way, rounds).view(np.int32), expected)


@pytest.mark.parametrize(("operands", "sums"), [("float16", "float32"), ("int8", "int32")])
def test_sums_of_products_of_matrices(device: dmlvk.Device, operands: str, sums: str) -> None:
    ways = [way for way in matrices(device.capabilities, operands, sums) if way.is_possible(device.capabilities)]
    if not ways:
        pytest.skip(f"the device multiplies no matrices of {operands}")
    for way in ways:
        constants = {**dict(KERNELS[way.kernel].constants), **way.constants}
        expected = sum(7 * (7 + i) for i in range(int(constants["SUMS"]))) * int(constants["MAT_K"] * constants["STEPS"]) * 2
        assert set(numbers(device, way, 2).view(sums).tolist()) == {expected}


def test_every_shape_is_counted_by_its_own_sizes() -> None:
    shapes = [(16, 16, 16, "float16", "float32"), (16, 16, 16, "float16", "float16"), (16, 8, 32, "int8", "int32")]
    caps = Capabilities(cooperative_matrices=tuple(CooperativeMatrix(*shape) for shape in shapes))
    (halves,), (bytes_,) = matrices(caps, "float16", "float32"), matrices(caps, "int8", "int32")
    assert halves.constants["LOCAL_SIZE_X"] == bytes_.constants["LOCAL_SIZE_X"] == 4 * 32
    assert halves.operations == 4 * 4 * 16 * 2 * 16 * 16 * 16
    assert bytes_.operations == 4 * 4 * 16 * 2 * 16 * 8 * 32
    assert (halves.output_bytes, bytes_.output_bytes) == (4 * 16 * 16 * 4, 4 * 16 * 8 * 4)
    assert not halves.is_possible(caps)


def test_what_the_device_lacks_is_0_and_all_else_is_not(device: dmlvk.Device) -> None:
    found = measure(device, quick=True)
    features = device.capabilities.features
    wanted = {
        "float16_tflop_per_s": "float16" in features,
        "int8_top_per_s": "integer_dot_product" in features,
        "matrix_float16_tflop_per_s": bool(matrices(device.capabilities, "float16", "float32")),
        "matrix_int8_top_per_s": bool(matrices(device.capabilities, "int8", "int32")),
    }
    for name, value in vars(found).items():
        assert (value > 0) == wanted.get(name, True), name


def test_launches_are_named_by_how_many_they_are(device: dmlvk.Device) -> None:
    found = launches.measure(device, quick=True)
    lists = [f"{count} {kind}" for kind in ("dependent", "independent") for count in (1, 10, 100, 1000)]
    assert list(found) == [*lists, launches.RECORDED, launches.EAGER]
    assert all(microseconds > 0 for microseconds in found.values())
    assert found["1000 dependent"] > 5 * found["1 dependent"]
