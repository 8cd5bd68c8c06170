"""The optimizer against ONNX's and PyTorch's, in place in every combination, and training steps that the device counts."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

import dmlvk
from dmlvk import BindingError, BufferBinding, TensorDataType, TensorDesc, eager
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.spec import ops
from dmlvk.verify.cases.model import generator

Array = NDArray[Any]
SIZES = (2, 3, 5, 7)
ONE = TensorDesc(TensorDataType.UINT32, (1, 1, 1, 1))
INPUTS = ("x", "m", "v", "g")
OUTPUTS = ("new x", "new m", "new v")


def state(dtype: Any = np.float32) -> list[Array]:
    """Parameters, both moments and the gradient."""
    made = [generator("adam", name).standard_normal(SIZES).astype(dtype) for name in INPUTS]
    made[2] = np.square(made[2])
    return made


def step(number: int) -> Array:
    return np.full(ONE.sizes, number, np.uint32)


def adam(tensor: TensorDesc, *outputs: TensorDesc, **attributes: float) -> ops.AdamOptimizer:
    """A desc whose tensors are all the same but for outputs that are given."""
    written = dict(zip([field.name for field in ops.AdamOptimizer.fields[5:8]], outputs or (tensor,) * 3, strict=True))
    read = dict.fromkeys([field.name for field in ops.AdamOptimizer.fields[:4]], tensor)
    return ops.AdamOptimizer(**read, training_step_tensor=ONE, **written, **{"learning_rate": 0.1, **attributes})


@pytest.mark.quick
@pytest.mark.parametrize("number", [0, 1, 25])
def test_steps_are_onnxs(device: dmlvk.Device, number: int) -> None:
    x, m, v, g = (values.astype(np.float64) for values in state())
    names = ("r", "t", "x", "g", "v", "h")
    node = helper.make_node(
        *("Adam", names, ("new_x", "new_v", "new_h")),
        domain="ai.onnx.preview.training",
        alpha=0.75,
        beta=0.9375,
        epsilon=0.125,
        norm_coefficient=0.0,
        norm_coefficient_post=0.0,
    )
    infos = [helper.make_tensor_value_info(name, 1, None) for name in (*names, *node.output)]
    graph = helper.make_graph([node], "adam", infos[:6], infos[6:])
    imports = [helper.make_opsetid("ai.onnx.preview.training", 1)]
    reference = ReferenceEvaluator(helper.make_model(graph, opset_imports=imports, ir_version=8))
    expected = reference.run(None, dict(zip(names, (np.float64(0.5), np.int64(number), x, g, m, v), strict=True)))
    attributes = {"learning_rate": 0.5, "beta1": 0.75, "beta2": 0.9375, "epsilon": 0.125}
    found = eager.adam_optimizer(*state(), step(number), **attributes, device=device)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


def test_many_steps_are_torchs(torch: ModuleType, device: dmlvk.Device) -> None:
    """PyTorch adds epsilon to sqrt(v / (1 - beta2^T)): ours has the factor sqrt(1 - beta2^T)."""
    x, _, _, target = state()
    m, v = np.zeros_like(x), np.zeros_like(x)
    parameter = torch.nn.Parameter(torch.from_numpy(x).double())
    optimizer = torch.optim.Adam([parameter], lr=0.05, betas=(0.8, 0.95), eps=1e-3)
    for number in range(1, 41):
        optimizer.zero_grad()
        (0.5 * (parameter - torch.from_numpy(target)) ** 4).sum().backward()
        optimizer.step()
        gradient = (2 * (x - target) ** 3).astype(np.float32)
        epsilon = 1e-3 * float(np.sqrt(1 - 0.95**number))
        attributes = {"learning_rate": 0.05, "beta1": 0.8, "beta2": 0.95, "epsilon": epsilon}
        x, m, v = eager.adam_optimizer(x, m, v, gradient, step(number), **attributes, device=device)
    kept = optimizer.state[parameter]
    # Each step's roundings enter the next gradient; nothing amplifies them here.
    for mine, theirs in ((x, parameter.detach()), (m, kept["exp_avg"]), (v, kept["exp_avg_sq"])):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("strides", [None, (1, 2, 6, 30)], ids=["packed", "reversed"])
def test_each_output_takes_the_place_of_any_input(device: dmlvk.Device, strides: tuple[int, ...] | None) -> None:
    """Every way to give three outputs the memory of inputs or memory of their own."""
    desc = adam(TensorDesc(TensorDataType.FLOAT32, SIZES, strides))
    operator = ReadyOperator(device, desc)
    given = [values.ravel() for values in state()]
    expected: list[Array] = []
    places = [choice for choice in itertools.product(range(7), repeat=3) if len(set(choice)) == 3]
    for choice in sorted(places, key=lambda choice: choice != (4, 5, 6)):  # first the one that overwrites nothing
        buffers = [device.create_buffer(given[0].nbytes) for _ in range(7)]
        for buffer, values in zip(buffers, given, strict=False):
            buffer.write(values)
        count = device.create_buffer(4)
        count.write(step(3))
        commands = device.create_command_list()
        inputs = [BufferBinding(buffer) for buffer in (*buffers[:4], count)]
        operator.record(commands, inputs, [BufferBinding(buffers[place]) for place in choice])
        device.execute(commands)
        found = [buffers[place].read().view(np.float32) for place in choice]
        expected = expected or found
        for name, mine, first in zip(OUTPUTS, found, expected, strict=True):
            np.testing.assert_array_equal(mine, first, err_msg=f"{name}, outputs in the places of {choice}")
        for place in set(range(4)) - set(choice):
            np.testing.assert_array_equal(buffers[place].read().view(np.float32), given[place])


def test_what_an_output_may_not_share(device: dmlvk.Device) -> None:
    tensor = TensorDesc(TensorDataType.FLOAT32, (1, 1, 1, 1))
    turned = TensorDesc(TensorDataType.FLOAT32, SIZES, (1, 2, 6, 30))

    def run(desc: ops.AdamOptimizer, *places: int) -> None:
        nbytes = desc.tensor("gradient_tensor").total_tensor_size_in_bytes
        buffers = [BufferBinding(device.create_buffer(nbytes)) for _ in range(8)]
        operator = ReadyOperator(device, desc)
        operator.record(device.create_command_list(), buffers[:5], [buffers[place] for place in places])

    run(adam(tensor), 0, 1, 2)
    with pytest.raises(BindingError, match=r"OutputSecondMomentTensor: may not share bytes with OutputParametersTensor"):
        run(adam(tensor), 0, 1, 0)
    with pytest.raises(BindingError, match=r"TrainingStepTensor: may share bytes with OutputParametersTensor"):
        run(adam(tensor), 4, 1, 2)
    packed = TensorDesc(TensorDataType.FLOAT32, SIZES)
    with pytest.raises(BindingError, match=r"InputFirstMomentTensor: may share bytes with OutputFirstMomentTensor"):
        run(adam(packed, packed, turned, packed), 0, 1, 2)


def test_the_device_counts_the_steps(device: dmlvk.Device) -> None:
    """Five steps in one submission: T is read when each runs, and the sum that counts it follows the step."""
    tensor = TensorDesc(TensorDataType.FLOAT16, SIZES)
    optimizer = ReadyOperator(device, adam(tensor, beta1=0.5, beta2=0.75, epsilon=0.01))
    count = ReadyOperator(device, ops.ElementWiseAdd(a_tensor=ONE, b_tensor=ONE, output_tensor=ONE))
    given = state(np.float16)
    expected = given
    for number in range(5):
        updated = eager.adam_optimizer(
            *expected, step(number), learning_rate=0.1, beta1=0.5, beta2=0.75, epsilon=0.01, device=device
        )
        expected = [*updated, given[3]]
    buffers = [device.create_buffer(values.nbytes) for values in (*given, step(0), step(1))]
    for buffer, values in zip(buffers, (*given, step(0), step(1)), strict=True):
        buffer.write(values)
    bound = [BufferBinding(buffer) for buffer in buffers]
    commands = device.create_command_list()
    for _ in range(5):
        optimizer.record(commands, bound[:5], bound[:3])
        count.record(commands, bound[4:], bound[4:5])
    device.execute(commands)
    assert buffers[4].read().view(np.uint32)[0] == 5
    for buffer, values in zip(buffers[:3], expected, strict=False):
        np.testing.assert_array_equal(buffer.read()[: values.nbytes].view(np.float16), values.ravel())
