"""Random graphs of supported operators: views of views, shared and dead tensors, outputs in the middle; what one node's
test cannot see, such as a tensor whose memory is taken over too early. Each gives what ONNX Runtime's CPU gives."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper
from onnx_models import close, make_model, reference

import dmlvk
from dmlvk.onnx import InferenceSession
from fuzz.answers import shared_device
from fuzz.campaign import Fault, Overtime

f32, i64 = np.float32, np.int64
Sizes = tuple[int, ...]

_UNARY = (
    *("Abs", "Asinh", "Atan", "Cos", "Elu", "Erf", "HardSwish", "Identity"),
    *("LeakyRelu", "Neg", "Relu", "Sigmoid", "Sin", "Softsign", "Tanh"),
)
_BINARY = ("Add", "Max", "Mean", "Min", "Mul", "Sub", "Sum")
_REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum")
_COMPARISONS = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_MOST_ELEMENTS = 3000


class Builder:
    """A graph under construction: every value with its sizes, so that each new node fits.

    Attributes:
        nodes, constants: The nodes and the constants of the graph.
        values: Computed ones by name, with their sizes; the inputs are the first.
    """

    def __init__(self, rng: np.random.Generator, inputs: dict[str, Sizes]) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.values = dict(inputs)

    def grow(self) -> None:
        """Adds a random operator to a random value."""
        steps = (
            *(self.unary, self.binary, self.choice, self.cast, self.move, self.move),
            *(self.reshape, self.along_axis, self.product, self.image, self.part, self.pieces, self.reduce, self.take),
        )
        steps[self.rng.integers(len(steps))](*self.pick())

    def pick(self) -> tuple[str, Sizes]:
        """A random value; late ones are likelier, so that graphs are deep."""
        names = list(self.values)
        name = names[max(self.rng.integers(len(names), size=2))]
        return name, self.values[name]

    def node(self, op_type: str, inputs: list[str], sizes: Sizes, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=f"{op_type}{len(self.nodes)}", **attributes))
        if math.prod(sizes) <= _MOST_ELEMENTS:
            self.values[name] = sizes
        return name

    def constant(self, *sizes: int, scale: float = 1.0) -> str:
        return self.known((self.rng.standard_normal(sizes) * scale).astype(f32))

    def known(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    # -- what a value can go through

    def unary(self, x: str, sizes: Sizes) -> None:
        self.node(str(self.rng.choice(_UNARY)), [x], sizes)

    def binary(self, x: str, sizes: Sizes) -> None:
        y, result = self.partner(sizes)
        self.node(str(self.rng.choice(_BINARY)), [x, y] if self.rng.random() < 0.5 else [y, x], result)

    def partner(self, sizes: Sizes) -> tuple[str, Sizes]:
        """Another value where the two broadcast, else a constant that does; and the common sizes."""
        y, other = self.pick()
        try:
            return y, np.broadcast_shapes(sizes, other)
        except ValueError:
            return self.constant(*(int(self.rng.choice([1, size])) for size in sizes)), sizes

    def choice(self, x: str, sizes: Sizes) -> None:
        """The larger or the smaller of two, by way of bools that an And and a Cast may have gone through: a comparison of
        almost equal values may go either way, and the choice is continuous nevertheless."""
        y, result = self.partner(sizes)
        truth = self.bools(str(self.rng.choice(_COMPARISONS)), [x, y])
        if self.rng.random() < 0.5:
            truth = self.bools("Not", [self.bools("Not", [truth])])
        if self.rng.random() < 0.5:
            truth = self.bools("Cast", [self.bools("Cast", [truth], to=onnx.TensorProto.FLOAT16)], to=onnx.TensorProto.BOOL)
        self.node("Where", [truth, x, y], result)

    def bools(self, op_type: str, inputs: list[str], **attributes: Any) -> str:
        """A node whose output no other operator picks."""
        name = f"b{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=f"{op_type}{len(self.nodes)}", **attributes))
        return name

    def cast(self, x: str, sizes: Sizes) -> None:
        """Adds a cast to another type and back, or a Trilu, which makes a triangle zero."""
        if len(sizes) >= 2 and self.rng.random() < 0.5:
            diagonal = self.known(np.array(self.rng.integers(-2, 3), i64))
            self.node("Trilu", [x, diagonal], sizes, upper=int(self.rng.integers(2)))
        else:
            doubles = self.bools("Cast", [x], to=onnx.TensorProto.DOUBLE)
            self.node("Cast", [doubles], sizes, to=onnx.TensorProto.FLOAT)

    def move(self, x: str, sizes: Sizes) -> None:
        permutation = [int(axis) for axis in self.rng.permutation(len(sizes))]
        kind = self.rng.integers(4)
        if kind == 0:
            wanted = (*self.rng.integers(1, 3, size=1), *(2 if size == 1 else 1 for size in sizes))
            shape = self.known(np.array(wanted, i64))
            self.node("Expand", [x, shape], np.broadcast_shapes(sizes, tuple(int(size) for size in wanted)))
        elif kind == 1 and len(sizes) < 6:
            axis = int(self.rng.integers(len(sizes) + 1))
            self.node("Unsqueeze", [x, self.known(np.array([axis], i64))], (*sizes[:axis], 1, *sizes[axis:]))
        else:
            self.node("Transpose", [x], tuple(sizes[axis] for axis in permutation), perm=permutation)

    def part(self, x: str, sizes: Sizes) -> None:
        """A slice, which may be a view, or more than all of it: padded or tiled."""
        kind, rank = self.rng.integers(3), len(sizes)
        if kind == 0:
            first = [int(self.rng.integers(max(size, 1))) if self.rng.random() < 0.5 else 0 for size in sizes]
            end = [int(self.rng.integers(start, size)) + 1 if size else 0 for start, size in zip(first, sizes, strict=True)]
            step = [int(count) for count in self.rng.integers(1, 3, rank)]
            found = [range(*own) for own in zip(first, end, step, strict=True)]
            inputs = [self.known(np.array(values, i64)) for values in (first, end, range(rank), step)]
            self.node("Slice", [x, *inputs], tuple(map(len, found)))
        elif kind == 1:
            pads = self.rng.integers(0, 3, 2 * rank)
            result = tuple(int(a + size + b) for a, size, b in zip(pads, sizes, pads[rank:], strict=False))
            mode = "constant" if 0 in sizes else str(self.rng.choice(["constant", "edge"]))
            self.node("Pad", [x, self.known(pads.astype(i64))], result, mode=mode)
        else:
            repeats = self.rng.integers(1, 3, rank)
            result = tuple(int(size * count) for size, count in zip(sizes, repeats, strict=True))
            self.node("Tile", [x, self.known(repeats.astype(i64))], result)

    def pieces(self, x: str, sizes: Sizes) -> None:
        """Two pieces, either of which may have no elements; and both joined in the other order."""
        axis = int(self.rng.integers(len(sizes)))
        cut = int(self.rng.integers(sizes[axis] + 1))
        lengths = cut, sizes[axis] - cut
        names = [f"p{len(self.nodes)}", f"q{len(self.nodes)}"]
        split = self.known(np.array(lengths, i64))
        self.nodes.append(helper.make_node("Split", [x, split], names, name=names[0], axis=axis))
        for name, length in zip(names, lengths, strict=True):
            self.values[name] = (*sizes[:axis], length, *sizes[axis + 1 :])
        self.node("Concat", names[::-1], sizes, axis=axis)

    def reshape(self, x: str, sizes: Sizes) -> None:
        """Adds a reshape: by a constant, by shape arithmetic, or to a matrix."""
        kind = self.rng.integers(3)
        axis = int(self.rng.integers(len(sizes) + 1))
        flat = (math.prod(sizes[:axis]), math.prod(sizes[axis:]))
        if kind == 0:
            self.node("Flatten", [x], flat, axis=axis)
        elif kind == 1 or 0 in sizes:  # of no elements, -1 says nothing
            self.node("Reshape", [x, self.known(np.array(flat[::-1], i64))], flat[::-1], allowzero=1)
        else:
            shape, tail = f"s{len(self.nodes)}", f"t{len(self.nodes)}"
            start, end = self.known(np.array([axis], i64)), self.known(np.array([len(sizes)], i64))
            self.nodes.append(helper.make_node("Shape", [x], [shape], name=shape))
            self.nodes.append(helper.make_node("Slice", [shape, start, end], [tail], name=tail))
            target = f"u{len(self.nodes)}"
            minus = self.known(np.array([-1], i64))
            self.nodes.append(helper.make_node("Concat", [minus, tail], [target], name=target, axis=0))
            self.node("Reshape", [x, target], (flat[0], *sizes[axis:]))

    def along_axis(self, x: str, sizes: Sizes) -> None:
        axis = int(self.rng.integers(len(sizes)))
        if self.rng.random() < 0.5 or 0 in sizes[axis:]:  # of which ONNX Runtime makes no mean
            self.node("Softmax", [x], sizes, axis=axis)
        else:
            scale, bias = self.constant(*sizes[axis:]), self.constant(*sizes[axis:])
            self.node("LayerNormalization", [x, scale, bias], sizes, axis=axis, epsilon=0.1)

    def product(self, x: str, sizes: Sizes) -> None:
        columns = int(self.rng.integers(1, 9))
        w = self.constant(sizes[-1], columns, scale=max(sizes[-1], 1) ** -0.5)
        if len(sizes) == 2 and self.rng.random() < 0.5:
            self.node("Gemm", [x, w, self.constant(columns)], (sizes[0], columns), alpha=0.7, beta=0.5)
        else:
            self.node("MatMul", [x, w], (*sizes[:-1], columns))

    def image(self, x: str, sizes: Sizes) -> None:
        """A convolution, a pooling or a normalization of channels, if the value has spatial dimensions."""
        if not 3 <= len(sizes) <= 4 or 0 in sizes[1:]:  # which ONNX Runtime refuses
            return self.unary(x, sizes)
        count, channels = len(sizes) - 2, sizes[1]
        same = {"kernel_shape": [3] * count, "pads": [1] * 2 * count}
        kind = self.rng.integers(4)
        if kind == 0:
            filters = int(self.rng.integers(1, 5))
            w = self.constant(filters, channels, *(3,) * count, scale=(channels * 3**count) ** -0.5)
            self.node("Conv", [x, w, self.constant(filters)], (sizes[0], filters, *sizes[2:]), **same)
        elif kind == 1:
            strided = tuple((size - 1) // 2 + 1 for size in sizes[2:])
            pool = str(self.rng.choice(["MaxPool", "AveragePool"]))
            self.node(pool, [x], (*sizes[:2], *strided), strides=[2] * count, **same)
        elif kind == 2:
            self.node("GlobalAveragePool", [x], sizes[:2] + (1,) * count)
        else:
            statistics = [self.constant(channels) for _ in range(3)]
            variance = self.known(self.rng.uniform(0.5, 2, channels).astype(f32))
            self.node("BatchNormalization", [x, *statistics, variance], sizes)
        return None

    def reduce(self, x: str, sizes: Sizes) -> None:
        """A reduction along some axes, whose function of nothing is a number."""
        kept = int(self.rng.integers(2))
        axes = [int(axis) for axis in np.flatnonzero(self.rng.random(len(sizes)) < 0.4)] or [0]
        result = tuple(1 if axis in axes else size for axis, size in enumerate(sizes) if kept or axis not in axes)
        if not result:
            kept, result = 1, (1,) * len(sizes)
        named = self.known(np.array(axes, i64))
        self.node(str(self.rng.choice(_REDUCTIONS)), [x, named], result, keepdims=kept)

    def take(self, x: str, sizes: Sizes) -> None:
        """Some slices along an axis, none of an empty one."""
        axis = int(self.rng.integers(len(sizes)))
        count = int(self.rng.integers(4)) if sizes[axis] else 0
        indices = self.known(self.rng.integers(max(sizes[axis], 1), size=count))
        self.node("Gather", [x, indices], (*sizes[:axis], count, *sizes[axis + 1 :]), axis=axis)


def random_graph(seed: int, choice: Sequence[int]) -> tuple[Builder, dict[str, Sizes], list[str]]:
    """A graph, the sizes of its inputs, each one of a choice, and some of its values as outputs, an input and a repetition
    possibly among them."""
    rng = np.random.default_rng(seed)
    inputs = {
        f"x{i}": tuple(int(size) for size in rng.choice(choice, size=rng.integers(1, 5))) for i in range(rng.integers(1, 3))
    }
    builder = Builder(rng, inputs)
    for _ in range(int(rng.integers(3, 14))):
        builder.grow()
    names = list(builder.values)
    return builder, inputs, [names[-1], *(names[i] for i in rng.integers(len(names), size=2))]


SIZES: Final = {"some": range(1, 8), "few": (0, 1, 1, 2, 5)}
"""The sizes that inputs have, by a name."""


def attempt(rng: random.Random) -> tuple[str, str]:
    """Runs a graph."""
    text = f"{rng.choice(tuple(SIZES))} {rng.getrandbits(32)}"
    return text, judged(text)


def judged(text: str) -> str:
    """Runs the graph of these sizes and this seed.

    Raises:
        Fault: the outputs are others than ONNX Runtime's, or there are none.
    """
    sizes, seed = text.split()
    try:
        compare(int(seed), SIZES[sizes], shared_device())
    except (Exception, Overtime) as error:
        raise Fault(text, f"{type(error).__name__}: {error}") from error
    return "right"


def compare(seed: int, choice: Sequence[int], device: dmlvk.Device) -> None:
    """Runs a random graph twice, and holds its outputs against ONNX Runtime's and its report against the nodes."""
    builder, inputs, wanted = random_graph(seed, choice)
    declared = {
        name: (f32, [f"{name}_{axis}" for axis in range(len(sizes))] if seed % 2 else sizes)
        for name, sizes in inputs.items()
    }
    model = make_model(builder.nodes, declared, list(dict.fromkeys(wanted)), builder.constants, opset=18)
    feeds = {name: builder.rng.standard_normal(sizes).astype(f32) for name, sizes in inputs.items()}

    session = InferenceSession(model.SerializeToString(), device)
    found = session.run(wanted, feeds)
    expected = dict(zip(dict.fromkeys(wanted), reference(model, feeds, "onnxruntime"), strict=True))
    for name, mine in zip(wanted, found, strict=True):
        close(mine, expected[name], 1e-4, 1e-5)
    for first, second in zip(found, session.run(wanted, feeds), strict=True):
        np.testing.assert_array_equal(first, second)
    report = session.report()
    records = [*report.gpu_nodes, *report.host_nodes, *report.removed_nodes]
    assert sorted(record.name for record in records) == sorted(node.name for node in builder.nodes)
