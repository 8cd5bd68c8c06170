"""Train a convolutional network to read handwritten digits, with all of its arithmetic on the Vulkan device.

    python examples/train_digits.py [--epochs 20] [--check 10]

The data are scikit-learn's 1,797 digits of 8 x 8 pixels, a fifth of them kept for the test. The network is two
convolutions of 3 x 3, each with ReLU and maximum pooling, and one that sees all that is left; it is trained by ADAM on
the cross-entropy. A step (forward, gradients, optimiser) is recorded once into a command list and replayed. Images,
parameters and moments stay on the device; all that travels in a step is which 32 images it takes.

Exits with status 1 if the test accuracy ends below 97 %. With ``--check`` it does so many steps beside PyTorch in
float64 instead, and prints how far apart the parameters are after each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import dmlvk
from dmlvk import DeviceArray

Array = npt.NDArray[Any]

BATCH = 32
LEARNING_RATE, BETA1, BETA2, EPSILON = 0.005, 0.9, 0.999, 1e-8
FILTERS = ((16, 1, 3, 3), (32, 16, 3, 3), (10, 32, 2, 2))  # {channels out, channels in, height, width} of each layer
PADDING = (1, 1, 0)
POOLING = {"strides": (2, 2), "window_size": (2, 2), "start_padding": (0, 0), "end_padding": (0, 0)}


class Digits(NamedTuple):
    """Images {samples, 1, 8, 8} from 0 to 1, and the digits that they show."""

    images: Array
    labels: Array


def load() -> tuple[Digits, Digits]:
    """The digits to train with, and those to test with."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    train, test, *digits = train_test_split(images, labels, test_size=0.2, stratify=labels, random_state=0)
    return Digits(train, digits[0]), Digits(test, digits[1])


def batches(samples: int, random: np.random.Generator) -> Iterator[Array]:
    """The numbers of all samples in a new order, in whole batches."""
    order = random.permutation(samples)
    return iter(order[: samples - samples % BATCH].reshape(-1, BATCH))


# -- Operators on arrays of the device


class Program:
    """Operators, written down one after the other and then recorded into a command list.

    A call takes an operator's fields by name, with arrays where its desc has tensor descs. It returns the operator's
    output: the array given for it, or else a new one of FLOAT32.
    """

    def __init__(self, device: dmlvk.Device) -> None:
        self.device = device
        self.steps: list[tuple[dmlvk.CompiledOperator, list[Any], list[Any]]] = []

    def __call__(self, row: type[dmlvk.OperatorDesc], **fields: Any) -> DeviceArray:
        output = next(field.name for field in row.fields if field.kind.is_output)
        if output not in fields:
            (sizes,) = describe(row, fields).inferred_output_sizes()
            fields[output] = DeviceArray.from_numpy(np.zeros(sizes, np.float32), self.device)
        desc = describe(row, fields)
        inputs, outputs = (
            [fields[slot.field.name].binding() if slot.tensor else None for slot in slots]
            for slots in (desc.input_slots(), desc.output_slots())
        )
        self.steps.append((self.device.compile_operator(self.device.create_operator(desc)), inputs, outputs))
        return fields[output]

    def record(self) -> dmlvk.CommandList:
        """Initialises all operators together, and records them in order."""
        operators = [operator for operator, _, _ in self.steps]
        needs = [operator.get_binding_properties() for operator in operators]
        kept = [self._resource(need.persistent_resource_size) for need in needs]
        initializer = self.device.create_operator_initializer(operators)
        recorder, table = self.device.create_command_recorder(), self.device.create_binding_table(initializer)
        table.bind_outputs(kept)
        table.bind_temporary_resource(self._resource(initializer.get_binding_properties().temporary_resource_size))
        initialization, commands = self.device.create_command_list(), self.device.create_command_list()
        recorder.record_dispatch(initialization, initializer, table)
        self.device.execute(initialization)

        for (operator, inputs, outputs), need, persistent in zip(self.steps, needs, kept, strict=True):
            table.reset(operator)
            table.bind_inputs(inputs)
            table.bind_outputs(outputs)
            table.bind_temporary_resource(self._resource(need.temporary_resource_size))
            table.bind_persistent_resource(persistent)
            recorder.record_dispatch(commands, operator, table)
        return commands

    def _resource(self, size_in_bytes: int) -> dmlvk.BufferBinding | None:
        return dmlvk.BufferBinding(self.device.create_buffer(size_in_bytes)) if size_in_bytes else None


def describe(row: type[dmlvk.OperatorDesc], fields: dict[str, Any]) -> dmlvk.OperatorDesc:
    """The desc of an operator over arrays."""
    return row(**{name: value.desc if isinstance(value, DeviceArray) else value for name, value in fields.items()})


# -- The network


class Layer(NamedTuple):
    """Filters {out, in, height, width} and offsets {1, out, 1, 1} of a convolution, or the gradients of them."""

    filters: DeviceArray
    offsets: DeviceArray


def layers_of(flat: DeviceArray) -> list[Layer]:
    """Views of one array that holds all layers. One array, so that a single ADAM operator does them all."""
    layers, start = [], 0
    for shape in FILTERS:
        middle = start + int(np.prod(shape))
        end = middle + shape[0]
        layers.append(Layer(flat[start:middle].reshape(*shape), flat[middle:end].reshape(1, -1, 1, 1)))
        start = end
    return layers


def initial_parameters(seed: int) -> Array:
    """Filters of a deviation that keeps the magnitude of what goes through them, and offsets of 0."""
    random = np.random.default_rng(seed)
    parts = []
    for shape in FILTERS:
        parts += [random.normal(0, np.sqrt(2 / np.prod(shape[1:])), np.prod(shape)), np.zeros(shape[0])]
    return np.concatenate(parts).astype(np.float32)


def steps_of_one(padding: int) -> dict[str, tuple[int, int]]:
    """The geometry of all convolutions here."""
    one, none, margin = (1, 1), (0, 0), (padding, padding)
    return {"strides": one, "dilations": one, "start_padding": margin, "end_padding": margin, "output_padding": none}


class Network:
    """Parameters on a device, and the command list of a training step.

    Attributes:
        parameters: Of all layers, one after the other.
        layers: Views of them.
        samples: UINT32 {1, 1, 1, BATCH}: which images the next step takes.
        step: The recorded step.
    """

    def __init__(self, device: dmlvk.Device, learn: Digits, seed: int = 0) -> None:
        self.device = device
        self.parameters = self._upload(initial_parameters(seed))
        self.layers = layers_of(self.parameters)
        self.samples = self._upload(np.zeros((1, 1, 1, BATCH), np.uint32))
        self.step = self._record_step(learn)

    def train(self, samples: Array) -> None:
        """One step with these of the images, as many as a batch has. Returns without waiting for it."""
        self.samples.buffer.write(samples.astype(np.uint32))
        self.step.submit()

    def reader(self, images: Array) -> tuple[dmlvk.CommandList, DeviceArray]:
        """A command list that reads images with the parameters of the moment, and where the digits will be."""
        do = Program(self.device)
        _, scores = self._forward(do, self._upload(images))[-1]
        digits = self._upload(np.zeros((len(images), 1, 1, 1), np.uint32))
        do(dmlvk.Argmax, input_tensor=scores, output_tensor=digits, axes=(1,))
        return do.record(), digits

    def _upload(self, array: Array) -> DeviceArray:
        return DeviceArray.from_numpy(array, self.device)

    def _forward(self, do: Program, x: DeviceArray) -> list[tuple[DeviceArray, DeviceArray]]:
        """What goes into the convolution of each layer, and what comes out: from the last the scores {n, 10, 1, 1}."""
        passed = []
        for layer, padding in zip(self.layers, PADDING, strict=True):
            is_last = layer is self.layers[-1]
            y = do(
                dmlvk.Convolution,
                input_tensor=x,
                filter_tensor=layer.filters,
                bias_tensor=layer.offsets,
                fused_activation=None if is_last else dmlvk.ActivationRelu(),
                **steps_of_one(padding),
            )
            passed.append((x, y))
            if not is_last:
                x = do(dmlvk.MaxPooling, input_tensor=y, **POOLING)
        return passed

    def _backward(
        self, do: Program, passed: list[tuple[DeviceArray, DeviceArray]], dy: DeviceArray, gradients: list[Layer]
    ) -> None:
        """Gradients of all layers, from what went through them and the gradient of the scores."""
        for index, (x, y) in reversed(list(enumerate(passed))):
            geometry = steps_of_one(PADDING[index])
            if index < len(passed) - 1:
                dy = do(dmlvk.MaxPoolingGrad, input_tensor=y, input_gradient_tensor=dy, dilations=(1, 1), **POOLING)
                # ReLU's output is positive where its input is, so it serves as well.
                dy = do(dmlvk.ActivationReluGrad, input_tensor=y, input_gradient_tensor=dy)
            offsets = gradients[index].offsets
            do(dmlvk.Reduce, function=dmlvk.ReduceFunction.SUM, input_tensor=dy, output_tensor=offsets, axes=(0, 2, 3))
            # A filter's gradient is a sum over samples and pixels: a convolution of x with the filter dy, in which the
            # samples take the place of the channels.
            do(
                dmlvk.Convolution,
                input_tensor=x.transpose(1, 0, 2, 3),
                filter_tensor=dy.transpose(1, 0, 2, 3),
                output_tensor=gradients[index].filters.transpose(1, 0, 2, 3),
                **geometry,
            )
            if index:
                filters, backward = self.layers[index].filters, dmlvk.ConvolutionDirection.BACKWARD
                dy = do(dmlvk.Convolution, input_tensor=dy, filter_tensor=filters, direction=backward, **geometry)

    def _record_step(self, learn: Digits) -> dmlvk.CommandList:
        do = Program(self.device)
        all_answers = np.eye(10, dtype=np.float32)[learn.labels].reshape(-1, 10, 1, 1)
        images, answers = (
            do(dmlvk.Gather, input_tensor=self._upload(part), indices_tensor=self.samples, axis=0, index_dimensions=1)
            for part in (learn.images, all_answers)
        )
        passed = self._forward(do, images)

        # The gradient of the batch's cross-entropies with respect to the scores.
        guesses = do(dmlvk.ActivationSoftmax1, input_tensor=passed[-1][1], axes=(1,))
        dy = do(dmlvk.ElementWiseSubtract, a_tensor=guesses, b_tensor=answers)
        zeros = np.zeros(self.parameters.shape, np.float32)
        gradients = self._upload(zeros)
        self._backward(do, passed, dy, layers_of(gradients))

        count, one = (self._upload(np.full((1, 1, 1, 1), value, np.uint32)) for value in (0, 1))
        do(dmlvk.ElementWiseAdd, a_tensor=count, b_tensor=one, output_tensor=count)
        parameters, first_moment, second_moment, gradients = (
            array.reshape(1, 1, 1, -1) for array in (self.parameters, self._upload(zeros), self._upload(zeros), gradients)
        )
        do(
            dmlvk.AdamOptimizer,
            input_parameters_tensor=parameters,
            input_first_moment_tensor=first_moment,
            input_second_moment_tensor=second_moment,
            gradient_tensor=gradients,
            training_step_tensor=count,
            output_parameters_tensor=parameters,
            output_first_moment_tensor=first_moment,
            output_second_moment_tensor=second_moment,
            learning_rate=LEARNING_RATE,
            beta1=BETA1,
            beta2=BETA2,
            epsilon=EPSILON,
        )
        return do.record()


# -- Training


def train(device: dmlvk.Device, epochs: int) -> float:
    """Trains and prints a line an epoch; returns the accuracy on the test digits at the end."""
    start = time.perf_counter()
    learn, test = load()
    network = Network(device, learn)
    reading, digits = network.reader(test.images)
    print(f"network     {network.parameters.size} parameters, ready in {time.perf_counter() - start:.2f} s", flush=True)

    random = np.random.default_rng(0)
    accuracy, seconds, steps, dispatches = 0.0, 0.0, 0, 0
    for epoch in range(1, epochs + 1):
        start, before = time.perf_counter(), device.dispatches
        for samples in batches(len(learn.labels), random):
            network.train(samples)
            steps += 1
        network.step.wait()
        seconds += time.perf_counter() - start
        dispatches += device.dispatches - before
        reading.submit()
        accuracy = float((digits.numpy().ravel() == test.labels).mean())
        print(f"epoch {epoch:2}    test accuracy {accuracy:.2%}, {seconds:6.2f} s of training", flush=True)
    print(f"a step      {dispatches // steps} dispatches, {seconds / steps * 1e3:.3f} ms")
    return accuracy


def distances(device: dmlvk.Device, steps: int, seed: int = 0) -> Iterator[float]:
    """Does steps here and in PyTorch in float64. Gives for each how far apart a parameter is at most, as a part of the
    learning rate, which is about how far a step moves one."""
    import torch
    from torch.nn.functional import conv2d, cross_entropy, max_pool2d

    learn, _ = load()
    network = Network(device, learn, seed)
    parts = [torch.from_numpy(part.numpy()).double().requires_grad_() for layer in network.layers for part in layer]
    optimizer = torch.optim.Adam(parts, LEARNING_RATE, (BETA1, BETA2))
    images, labels = torch.from_numpy(learn.images).double(), torch.from_numpy(learn.labels)
    random = np.random.default_rng(seed)
    every_batch = (samples for _ in range(steps) for samples in batches(len(learn.labels), random))
    for step, samples in zip(range(1, steps + 1), every_batch, strict=False):
        network.train(samples)

        x = images[samples]
        for index, padding in enumerate(PADDING):
            x = conv2d(x, parts[2 * index], parts[2 * index + 1].flatten(), padding=padding)
            if index < len(PADDING) - 1:
                x = max_pool2d(x.relu(), 2)
        optimizer.zero_grad()
        cross_entropy(x.flatten(1), labels[samples], reduction="sum").backward()
        # PyTorch adds epsilon to a root that has been divided by this; DirectML before the division.
        optimizer.param_groups[0]["eps"] = EPSILON / (1 - BETA2**step) ** 0.5
        optimizer.step()

        theirs = np.concatenate([part.detach().numpy().ravel() for part in parts])
        yield float(np.abs(network.parameters.numpy() - theirs).max()) / LEARNING_RATE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="how often to go through the digits")
    parser.add_argument("--check", type=int, metavar="STEPS", help="steps to do beside PyTorch instead")
    wanted = parser.parse_args()
    device = dmlvk.Device()
    print(f"device      {device.info.name} ({device.info.driver})")
    if wanted.check:
        for step, distance in enumerate(distances(device, wanted.check), 1):
            print(f"step {step:3}    parameters at most {distance:.1e} of the learning rate from PyTorch's")
        return 0
    return int(train(device, wanted.epochs) < 0.97)


if __name__ == "__main__":
    sys.exit(main())
