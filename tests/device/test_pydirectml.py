"""PyDirectML's functions compute what DirectML's operators do, and what is OWNED_BY_DML is initialised when it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dmlvk import pydirectml as dml
from dmlvk.spec.errors import InvalidArgumentError, StateError

F32 = dml.TensorDataType.FLOAT32
OWNED = dml.TensorFlags.OWNED_BY_DML
RANDOM = np.random.default_rng(28)


class Network:
    """A graph with its bindings."""

    def __init__(self) -> None:
        self.device = dml.Device(True, True)
        self.builder = dml.GraphBuilder(self.device)
        self.bindings: list[dml.Binding] = []

    def input(self, data: npt.ArrayLike, *words: Any) -> dml.Expression:
        array = np.asarray(data, np.float32)
        made = dml.input_tensor(self.builder, len(self.bindings), dml.TensorDesc(*(words or (F32, list(array.shape)))))
        self.bindings.append(dml.Binding(made, array))
        return made

    def compute(self, *outputs: dml.Expression) -> list[npt.NDArray[Any]]:
        model = self.builder.build(dml.ExecutionFlags.NONE, list(outputs))
        return [np.array(item) for item in self.device.compute(model, self.bindings, list(outputs))]


@pytest.fixture
def network() -> Network:
    return Network()


A, B = RANDOM.uniform(0.5, 2, (2, 1, 1, 2, 3)).astype(np.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a * b + a / b - b,
        lambda a, b: 3 - (2 * a - 1.5) / 4 + 2 / b,
        lambda a, b: -a + 1 - b * 2,
    ],
)
def test_arithmetic(network: Network, function: Callable[[Any, Any], Any]) -> None:
    (result,) = network.compute(function(network.input(A), network.input(B)))
    np.testing.assert_allclose(result, function(A, B), rtol=1e-6, atol=1e-6)


def test_the_remainder_truncates(network: Network) -> None:
    (result,) = network.compute(network.input(-A * 3) % network.input(B))
    np.testing.assert_allclose(result, np.fmod(-A * 3, B), rtol=1e-5)


def test_arithmetic_in_place_changes_the_object(network: Network) -> None:
    a = network.input(A)
    other = a
    a += 1
    a *= network.input(B)
    assert other is a
    (result,) = network.compute(other)
    np.testing.assert_allclose(result, (A + 1) * B, rtol=1e-6)


def test_a_number_or_an_expression(network: Network) -> None:
    a = network.input(A)
    with pytest.raises(TypeError):
        a + "1"
    with pytest.raises(TypeError):
        A + a
    with pytest.raises(StateError, match="empty"):
        dml.activation_relu(dml.Expression())


def test_weights_are_initialised_when_they_change(network: Network) -> None:
    """And a tensor's data may be as little as its strides reach."""
    x = network.input(np.ones((1, 2, 3, 3)))
    weight = network.input(np.ones((1, 2, 3, 3)), F32, OWNED, [1, 2, 3, 3])
    bias = network.input([[[4.0]]], F32, [1, 1, 3, 3], [1, 1, 0, 0])
    y = dml.convolution(x, weight, start_padding=[1, 1], end_padding=[1, 1]) + bias
    model = network.builder.build(dml.ExecutionFlags.NONE, [y])

    def middle(bindings: list[dml.Binding]) -> float:
        (result,) = network.device.compute(model, bindings, [y])
        return float(np.array(result)[0, 0, 1, 1])

    assert middle(network.bindings) == middle(network.bindings) == 22
    other = dml.Binding(weight, np.full((1, 2, 3, 3), 2.0))
    assert middle([network.bindings[0], other, network.bindings[2]]) == 40
    assert middle(network.bindings) == 22
    with pytest.raises(InvalidArgumentError, match="input 1"):
        middle(network.bindings[:1])
    with pytest.raises(InvalidArgumentError, match="same tensor"):
        middle([other, *network.bindings[1:]])


def test_inputs_in_any_order_and_one_that_nothing_reads(network: Network) -> None:
    second = dml.input_tensor(network.builder, 2, dml.TensorDesc(F32, [1, 1, 2, 3]))
    dml.input_tensor(network.builder, 1, dml.TensorDesc(F32, OWNED, [4]))
    first = dml.input_tensor(network.builder, 0, dml.TensorDesc(F32, [1, 1, 2, 3]))
    difference = dml.subtract(first, second)
    model = network.builder.build(dml.ExecutionFlags.NONE, [difference])
    bindings = [dml.Binding(first, A), None, dml.Binding(second, B)]
    (result,) = network.device.compute(model, bindings, [difference])
    np.testing.assert_array_equal(result, A - B)


def test_indices_come_as_bits(network: Network) -> None:
    pooled = dml.max_pooling(network.input(np.arange(16.0).reshape(1, 1, 4, 4)), [2, 2], strides=[2, 2], output_indices=True)
    values, indices = network.compute(pooled.values, pooled.indices)
    assert values.tolist() == [[[[5, 7], [13, 15]]]]
    assert indices.view(np.uint32).tolist() == [[[[5, 7], [13, 15]]]]


def test_views_are_of_the_same_memory(network: Network) -> None:
    """As an operand, and as an output with other strides."""
    x = dml.activation_identity(network.input(np.arange(6.0).reshape(1, 1, 2, 3)))
    turned = dml.reinterpret(x, F32, [1, 1, 3, 2], [6, 6, 1, 3])
    column = dml.reinterpret(x, F32, [1, 1, 6, 1], None)
    result, product = network.compute(turned, dml.gemm(column, column, trans_a=dml.MatrixTransform.TRANSPOSE))
    assert result.tolist() == [[[[0, 3], [1, 4], [2, 5]]]] and product.tolist() == [[[[55]]]]


def test_indices_may_be_given_as_they_are(network: Network) -> None:
    """Of their own type; and as bits, which is all that PyDirectML takes."""
    x = network.input(np.arange(8.0).reshape(1, 1, 4, 2))
    desc = dml.TensorDesc(dml.TensorDataType.UINT32, [1, 1, 1, 3])
    indices = dml.input_tensor(network.builder, 1, desc)
    numbers = np.array([3, 0, 2], np.uint32)
    rows = dml.gather(x, indices, 2, 1)
    model = network.builder.build(dml.ExecutionFlags.NONE, [rows])
    for given in (numbers, numbers.view(np.float32)):
        (result,) = network.device.compute(model, [network.bindings[0], dml.Binding(indices, given)], [rows])
        assert np.array(result).tolist() == [[[[6, 7], [0, 1], [4, 5]]]]


def test_a_recurrent_network_has_the_outputs_that_are_wanted(network: Network) -> None:
    steps, batch, size, hidden = 3, 2, 4, 5
    x, w, r = (
        RANDOM.normal(size=shape)
        for shape in ((1, steps, batch, size), (1, 1, 3 * hidden, size), (1, 1, 3 * hidden, hidden))
    )
    activations = [
        dml.FusedActivation(dml.OperatorType.ACTIVATION_SIGMOID),
        dml.FusedActivation(dml.OperatorType.ACTIVATION_TANH),
    ]
    operands = [network.input(array) for array in (x, w, r)]
    forward = dml.RecurrentNetworkDirection.FORWARD
    both, last = (
        dml.gru(*operands, activation_descs=activations, direction=forward, output_options=options)
        for options in (dml.OutputOptions.Both, dml.OutputOptions.Single)
    )
    sequence, single, alone = network.compute(both.sequence, both.single, last.single)
    state = np.zeros((batch, hidden))
    for step in range(steps):
        z, reset, n = np.split(x[0, step] @ w[0, 0].T, 3, -1)
        rz, rr, rn = np.split(state @ r[0, 0].T, 3, -1)
        update, gate = 1 / (1 + np.exp(-z - rz)), 1 / (1 + np.exp(-reset - rr))
        state = (1 - update) * np.tanh(n + gate * rn) + update * state
        np.testing.assert_allclose(sequence[step, 0], state, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(single, alone)
    np.testing.assert_allclose(single[0, 0], state, rtol=1e-5, atol=1e-6)
    with pytest.raises(StateError, match="empty"):
        last.sequence.get_output_desc()


def test_weights_may_lie_in_any_way(network: Network) -> None:
    """With interleaved channels, and with more bytes than they need."""
    x, w = RANDOM.normal(size=(1, 3, 2, 2)).astype(np.float32), RANDOM.normal(size=(2, 3, 1, 1)).astype(np.float32)
    policy = dml.TensorPolicy.interleaved_channel
    image = network.input(x.transpose(0, 2, 3, 1), F32, list(x.shape), policy)
    weight = network.input(w.transpose(0, 2, 3, 1), F32, OWNED, list(w.shape), policy)
    bias = network.input(np.arange(16.0), F32, OWNED, [1, 2, 1, 1], [4, 2, 1, 1], 64, 16)
    (result,) = network.compute(dml.convolution(image, weight, bias))
    wanted = np.einsum("oc,nchw->nohw", w[:, :, 0, 0], x) + np.array([0, 2]).reshape(1, 2, 1, 1)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_outputs_are_the_models(network: Network) -> None:
    """In its order, some of them, and under any view that fits."""
    x = network.input(A)
    two, three = x * 2, x * 3
    model = network.builder.build(dml.ExecutionFlags.NONE, [two, three])
    (alone,) = network.device.compute(model, network.bindings, [None, dml.reinterpret(three, F32, [6, 1], None)])
    np.testing.assert_array_equal(alone, (A * 3).reshape(6, 1))
    larger = dml.up_sample_2d(two, dml.Size2D(2, 2), dml.InterpolationMode.NEAREST_NEIGHBOR)
    with pytest.raises(InvalidArgumentError, match="output 0: must be the model's output, which has 24 bytes"):
        network.device.compute(model, network.bindings, [larger])
    with pytest.raises(InvalidArgumentError, match="no more than"):
        network.device.compute(model, network.bindings, [two, three, x])


def test_each_function_has_its_arguments_where_they_belong(network: Network) -> None:
    """Those that the published samples do not call, or not with these arguments."""
    image = RANDOM.uniform(0.5, 2, (1, 3, 4, 4)).astype(np.float32)
    x = network.input(image)
    mean, variance, scale, bias = (network.input(np.full((1, 3, 1, 1), number)) for number in (0.5, 4, 2, 3))
    relu = dml.FusedActivation(dml.OperatorType.ACTIVATION_RELU)
    above = np.pad(image, ((0, 0), (0, 0), (1, 0), (0, 0)), constant_values=7)
    around = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1))).reshape(1, 3, 3, 2, 3, 2)
    up = dml.up_sample_2d(x, dml.Size2D(1, 2), dml.InterpolationMode.NEAREST_NEIGHBOR)
    made = {
        "sigmoid": (dml.activation_sigmoid(x), 1 / (1 + np.exp(-image))),
        "tanh": (dml.activation_tanh(x), np.tanh(image)),
        "subtract": (dml.subtract(x, dml.multiply(x, x)), image - image**2),
        "divide": (dml.divide(x, x), np.ones_like(image)),
        "linear": (dml.activation_linear(x, 2, 1), image * 2 + 1),
        "scale": (dml.value_scale_2d(x, 2, [1, 2, 3]), image * 2 + np.arange(1, 4).reshape(1, 3, 1, 1)),
        "up": (up, image.repeat(2, 2)),
        "pad": (dml.padding(x, dml.PaddingMode.CONSTANT, 7, [0, 0, 1, 0], [0] * 4), above),
        "slice": (dml.slice(x, [0, 1, 0, 1], [1, 2, 4, 3], [1, 1, 2, -2]), image[:, 1:, ::2, [3, 1]]),
        "pool": (dml.average_pooling(x, [2, 2], [2, 2], [1, 1], [1, 1], True), around.mean((3, 5))),
        "batch": (dml.batch_normalization(x, mean, variance, scale, bias, True, 0, relu), (image - 0.5) + 3),
        "local": (dml.local_response_normalization(x, False, 1, 1, 1, 1), image / (1 + image**2)),
        "added": (dml.add(x, -x * 2, relu), np.zeros_like(image)),
    }
    results = network.compute(*(expression for expression, _ in made.values()))
    for name, result, (_, wanted) in zip(made, results, made.values(), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5, err_msg=name)
