"""The passes that save copies: identities that go, pieces that lie where they are read, constants that are computed once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import Expression, Graph
from dmlvk.graph.passes import PASSES

COPIES = ("identity", "constants", "layout", "split", "join")
OTHERS = tuple(item.name for item in PASSES if item.name not in COPIES)
F16, F32, I32 = (dmlvk.TensorDataType[name] for name in ("FLOAT16", "FLOAT32", "INT32"))
ALL = "all"
rng = np.random.default_rng(23)

Make = Callable[..., Expression | Sequence[Expression]]


def normal(*sizes: int) -> np.ndarray:
    return rng.standard_normal(sizes).astype(np.float32)


def compiled(device: dmlvk.Device, make: Make, shapes: Sequence[tuple[int, ...]], without: Sequence[str]) -> Any:
    graph = Graph(device)
    results = make(graph, *(graph.input(shape) for shape in shapes))
    return graph.compile(*([results] if isinstance(results, Expression) else results), without=without)


def launches(function: Any) -> int:
    return len(function.operator.plan.dispatches)


def negated(graph: Graph, *parts: Expression) -> list[Expression]:
    return [graph.element_wise_negate(part) for part in parts]


def two_joined(graph: Graph, a: Expression, b: Expression) -> Expression:
    return graph.element_wise_abs(graph.join(negated(graph, a, b), axis=1))


def joined_as_output(graph: Graph, a: Expression, b: Expression) -> Expression:
    return graph.join(negated(graph, a, b), axis=1)


def join_of_joins(graph: Graph, a: Expression, b: Expression) -> Expression:
    first = graph.join(negated(graph, a, b), axis=1)
    return graph.element_wise_abs(graph.join([*negated(graph, b), first, *negated(graph, a)], axis=1))


def columns_joined_twice(graph: Graph, a: Expression, b: Expression) -> Expression:
    parts = negated(graph, a, a, a)
    return graph.join([graph.join([parts[0], graph.join(parts[1:], axis=3)], axis=3), parts[2]], axis=3)


def columns_and_rows_joined(graph: Graph, a: Expression, b: Expression) -> Expression:
    parts = negated(graph, a, a, a)
    rows = graph.join(parts[1:], axis=2)
    return graph.join([graph.join([parts[0], parts[0]], axis=2), rows], axis=3)


def dense_block(graph: Graph, a: Expression, b: Expression) -> Expression:
    """Each layer reads all before it."""
    layers = negated(graph, a)
    for _ in range(3):
        layers.append(graph.element_wise_abs(graph.join(layers, axis=1) if len(layers) > 1 else layers[0]))
    return graph.join([*layers, *negated(graph, b)], axis=1)


def join_of_split(graph: Graph, a: Expression, b: Expression) -> Expression:
    """A bottleneck of YOLO: the halves of a tensor, and what is computed of one, side by side."""
    (whole,) = negated(graph, a)
    first, second = graph.split(whole, axis=1, output_sizes=[(1, 2, 6, 6), (1, 2, 6, 6)])
    return graph.element_wise_abs(graph.join([first, second, graph.element_wise_abs(second)], axis=1))


def halves_the_other_way_round(graph: Graph, a: Expression, b: Expression) -> Expression:
    (whole,) = negated(graph, a)
    halves = graph.split(whole, axis=1, output_sizes=[(1, 2, 6, 6), (1, 2, 6, 6)])
    return graph.element_wise_abs(graph.join(halves[::-1], axis=1))


def the_same_twice(graph: Graph, a: Expression, b: Expression) -> Expression:
    (part,) = negated(graph, a)
    return graph.element_wise_abs(graph.join([part, part], axis=1))


def one_is_an_input(graph: Graph, a: Expression, b: Expression) -> Expression:
    return graph.element_wise_abs(graph.join([*negated(graph, a), b, graph.constant(normal(1, 3, 6, 6))], axis=1))


def one_is_an_output(graph: Graph, a: Expression, b: Expression) -> list[Expression]:
    parts = negated(graph, a, b)
    return [graph.element_wise_abs(graph.join(parts, axis=1)), parts[0]]


def no_range(graph: Graph, a: Expression, b: Expression) -> Expression:
    return graph.element_wise_abs(graph.join(negated(graph, a, a), axis=2))


def another_layout(graph: Graph, a: Expression, b: Expression) -> Expression:
    turned = graph.element_wise_negate(a).transpose(0, 1, 3, 2)
    return graph.element_wise_abs(graph.join([turned, *negated(graph, b)], axis=1))


def split_of_input(graph: Graph, a: Expression, b: Expression) -> list[Expression]:
    return negated(graph, *graph.split(a, axis=1, output_sizes=[(1, 1, 6, 6), (1, 3, 6, 6)]))


def split_in_columns(graph: Graph, a: Expression, b: Expression) -> list[Expression]:
    return negated(graph, *graph.split(a, axis=3, output_sizes=[(1, 4, 6, 2), (1, 4, 6, 4)]))


def a_piece_is_an_output(graph: Graph, a: Expression, b: Expression) -> list[Expression]:
    first, second = graph.split(graph.element_wise_negate(a), axis=1, output_sizes=[(1, 1, 6, 6), (1, 3, 6, 6)])
    return [first, graph.element_wise_abs(second)]


def rows_of_a_slice(graph: Graph, a: Expression, b: Expression) -> Expression:
    window = {"input_window_sizes": (1, 2, 6, 6), "input_window_strides": (1, 1, 1, 1)}
    return graph.element_wise_abs(graph.slice1(a, input_window_offsets=(0, 1, 0, 0), **window))


def every_other_row(graph: Graph, a: Expression, b: Expression) -> Expression:
    window = {"input_window_sizes": (1, 3, 6, 6), "input_window_strides": (1, 2, 1, 1)}
    return graph.element_wise_abs(graph.slice1(a, input_window_offsets=(0, 1, 0, 0), **window))


def split_of_a_part(graph: Graph, a: Expression, b: Expression) -> list[Expression]:
    """Views of views of a join."""
    joined = graph.join(negated(graph, a, b), axis=1)
    _, middle = graph.split(joined, axis=1, output_sizes=[(1, 1, 6, 6), (1, 6, 6, 6)])
    first, second = graph.split(middle, axis=1, output_sizes=[(1, 2, 6, 6), (1, 4, 6, 6)])
    return [graph.element_wise_abs(part) for part in (first, second)]


def flat_pieces(graph: Graph, x: Expression, *lengths: int) -> Sequence[Expression]:
    pieces: Sequence[Expression] = graph.split(
        x.reshape(x.shape[1] * 36), axis=0, output_sizes=[(size,) for size in lengths]
    )
    return pieces


def odd_pieces(graph: Graph, a: Expression, b: Expression) -> list[Expression]:
    """The second and the third start between two words of 16 bytes, the last does not."""
    return negated(graph, *flat_pieces(graph, b, 3, 4, 1, 100))


def odd_pieces_joined(graph: Graph, a: Expression, b: Expression) -> Expression:
    """The first and the last start on words of 16 bytes, and the third does not."""
    return graph.element_wise_abs(graph.join(negated(graph, *flat_pieces(graph, b, 8, 5, 7, 88)), axis=0))


def no_work(graph: Graph, a: Expression, b: Expression) -> Expression:
    """Every way to say nothing."""
    x = graph.element_wise_identity(graph.element_wise_negate(a))
    x = graph.cast(graph.activation_identity(x), output_data_types=(F32,))
    x = graph.tile(x, repeats=(1, 1, 1, 1))
    zero = (0, 0, 0, 0)
    x = graph.padding1(x, padding_value_data_type=F32, padding_value=0.0, start_padding=zero, end_padding=zero)
    x = graph.slice1(x, input_window_offsets=zero, input_window_sizes=a.shape, input_window_strides=(1, 1, 1, 1))
    x = graph.join([x], axis=2)
    return graph.element_wise_abs(x)


def identities_of_an_output(graph: Graph, a: Expression, b: Expression) -> list[Expression]:
    x = graph.element_wise_negate(a)
    return [graph.element_wise_identity(x), graph.element_wise_identity(x), graph.element_wise_identity(b)]


def computed_constants(graph: Graph, a: Expression, b: Expression) -> Expression:
    table = graph.constant(normal(1, 4, 6, 6))
    return a * graph.element_wise_exp(table) + graph.element_wise_abs(graph.element_wise_exp(table))


def constant_output(graph: Graph, a: Expression, b: Expression) -> list[Expression]:
    table = graph.element_wise_exp(graph.constant(normal(1, 4, 6, 6)))
    return [graph.element_wise_abs(table), table * a]


def heads_side_by_side(graph: Graph, a: Expression, b: Expression) -> Expression:
    return (a @ a).transpose(0, 2, 1, 3)


def columns_as_rows(graph: Graph, a: Expression, b: Expression) -> Expression:
    return graph.element_wise_negate(a).transpose(0, 1, 3, 2)


def repeated(graph: Graph, a: Expression, b: Expression) -> Expression:
    return graph.element_wise_negate(a).broadcast_to(3, 4, 6, 6)


def read_twice(graph: Graph, a: Expression, b: Expression) -> list[Expression]:
    x = graph.element_wise_negate(a)
    return [x.transpose(0, 2, 1, 3), graph.element_wise_abs(x)]


def one_of_three(graph: Graph, a: Expression, parts: int) -> Expression:
    """Rows of three parts of two heads: part 1 as {1, heads, rows, 4}, copied."""
    heads = graph.element_wise_negate(a).reshape(6, 3, 2, 4).transpose(1, 2, 0, 3)
    window = {"input_window_sizes": (parts, 2, 6, 4), "input_window_strides": (1, 1, 1, 1)}
    return graph.slice1(heads, input_window_offsets=(1, 0, 0, 0), **window)


def heads_of_one(graph: Graph, a: Expression, b: Expression) -> Expression:
    part = one_of_three(graph, a, 1)
    return graph.gemm(part.transpose(0, 1, 3, 2), graph.element_wise_abs(part))


def odd_heads(graph: Graph, a: Expression, b: Expression) -> Expression:
    """Rows of four heads of 24 bytes."""
    window = {"input_window_sizes": (1, 6, 6), "input_window_strides": (1, 1, 1)}
    heads = graph.element_wise_negate(a).reshape(6, 4, 6).transpose(1, 0, 2)
    return graph.element_wise_abs(graph.slice1(heads, input_window_offsets=(1, 0, 0), **window))


def heads_shown(graph: Graph, a: Expression, b: Expression) -> list[Expression]:
    part = one_of_three(graph, a, 1)
    return [part, graph.element_wise_abs(part)]


def heads_repeated(graph: Graph, a: Expression, b: Expression) -> Expression:
    part = one_of_three(graph, a, 1)
    return graph.constant(normal(3, 2, 6, 4)) * part + part.broadcast_to(3, 2, 6, 4)


def heads_of_two(graph: Graph, a: Expression, b: Expression) -> list[Expression]:
    """One of two pieces goes to who cannot read it where it is."""
    pieces = graph.split(one_of_three(graph, a, 2), axis=0, output_sizes=[(1, 2, 6, 4)] * 2)
    mean = graph.reduce(pieces[0], function=dmlvk.ReduceFunction.AVERAGE, axes=(3,))
    return [mean, graph.element_wise_abs(pieces[1])]


A, B = (1, 4, 6, 6), (1, 3, 6, 6)
GRAPHS: dict[str, tuple[Make, str, int]] = {
    # what it makes of inputs of sizes A and B, the pass, and the launches that this saves
    "two joined": (two_joined, "join", 2),
    "a join is an output": (joined_as_output, "join", 2),
    "a join of joins": (join_of_joins, "join", 5),
    "columns joined twice": (columns_joined_twice, "join", 2),
    "columns and rows joined": (columns_and_rows_joined, "join", 0),
    "a dense block": (dense_block, "join", 10),
    "the halves the other way round": (halves_the_other_way_round, "join", 2),
    "the same twice": (the_same_twice, "join", 1),
    "one is an input, one a constant": (one_is_an_input, "join", 1),
    "one is an output": (one_is_an_output, "join", 1),
    "not ranges": (no_range, "join", 0),
    "another layout": (another_layout, "join", 1),
    "of an input": (split_of_input, "split", 2),
    "columns": (split_in_columns, "split", 0),
    "a piece is an output": (a_piece_is_an_output, "split", 1),
    "rows of a slice": (rows_of_a_slice, "split", 1),
    "every other row": (every_other_row, "split", 0),
    "pieces of a piece": (split_of_a_part, "split", 3),
    "odd pieces": (odd_pieces, "split", 2),
    "odd pieces joined": (odd_pieces_joined, "join", 2),
    "heads side by side": (heads_side_by_side, "layout", 1),
    "columns as rows": (columns_as_rows, "layout", 0),
    "repeated": (repeated, "layout", 0),
    "read twice": (read_twice, "layout", 0),
    "heads of one": (heads_of_one, "layout", 1),
    "odd heads": (odd_heads, "layout", 0),
    "heads shown": (heads_shown, "layout", 0),
    "heads repeated": (heads_repeated, "layout", 1),
    "heads of two": (heads_of_two, "layout", 0),
    "no work": (no_work, "identity", 7),
    "identities of an output": (identities_of_an_output, "identity", 1),
    "computed constants": (computed_constants, "constants", 3),
    "a constant output": (constant_output, "constants", 1),
}


@pytest.mark.parametrize("case", GRAPHS.values(), ids=GRAPHS.keys())
def test_a_pass_alone(device: dmlvk.Device, case: tuple[Make, str, int]) -> None:
    """A pass saves launches, and not a bit of the results changes, also when the graph runs again."""
    global rng
    make, name, saved = case
    functions = []
    for without in ([other.name for other in PASSES if other.name != name], [ALL]):
        rng = np.random.default_rng(5)
        functions.append(compiled(device, make, (A, B), without))
    assert launches(functions[1]) - launches(functions[0]) == saved
    arrays = normal(*A), normal(*B)
    wanted = results(functions[1], arrays)
    for _ in range(2):
        for mine, plain in zip(results(functions[0], arrays), wanted, strict=True):
            np.testing.assert_array_equal(mine, plain)


def test_what_is_joined_once_is_not_joined_again(device: dmlvk.Device) -> None:
    """Two constants, and what is joined to them in each run: two copies."""

    def make(graph: Graph, a: Expression) -> Expression:
        return graph.join([graph.join([graph.constant(normal(*A)) for _ in range(2)], axis=3), a], axis=3)

    function = compiled(device, make, (A,), OTHERS)
    assert launches(function) == 2


def test_what_follows_from_owned_inputs_is_computed_at_initialisation(device: dmlvk.Device) -> None:
    """Of a filter, which is then repacked if the convolution wants that, and of what is derived from it and a constant; a
    second result of both is read in each run."""
    image, weights, table = normal(2, 4, 9, 8), normal(8, 4, 3, 3), normal(8, 4, 3, 3)
    attributes: dict[str, Any] = {
        "mode": dmlvk.ConvolutionMode.CROSS_CORRELATION,
        "direction": dmlvk.ConvolutionDirection.FORWARD,
        **dict.fromkeys(("strides", "dilations"), (1, 1)),
        **dict.fromkeys(("start_padding", "end_padding", "output_padding"), (0, 0)),
        "group_count": 1,
    }
    found = []
    for without in (OTHERS, (ALL,)):
        graph = Graph(device)
        x, w = graph.input(image.shape), graph.input(weights.shape, owned_by_dml=True)
        derived = graph.element_wise_abs(graph.element_wise_negate(w) * graph.constant(table))
        y = graph.convolution(x, derived, output_sizes=(2, 8, 7, 6), **attributes)
        function = graph.compile(y, graph.element_wise_exp(derived), without=without)
        function.initialize({w: weights})
        arrays = [results(function, (image,)) for _ in range(2)]
        found.append((launches(function), arrays))
    (mine, arrays), (plain, wanted) = found
    assert plain - mine >= 3
    for array, other in zip([*arrays[0], *arrays[1]], [*wanted[0], *wanted[1]], strict=True):
        np.testing.assert_array_equal(array, other)


def results(function: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    found = function(*arrays)
    return [item.numpy() for item in (found if isinstance(found, tuple) else (found,))]


class Drawn:
    """A random graph of joins of joins, pieces of pieces and what computes between them, and the values to feed it.

    Args:
        seed: The seed of its random numbers.
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.data_type, self.dtype = [(F32, np.float32), (F16, np.float16)][int(self.random.integers(2))]
        # Rows of 16 bytes, so that pieces may lie anywhere, of fewer, so that some may not, and several in a dimension.
        self.row = [(1, 4), (1, 16), (3,), (2, 4)][int(self.random.integers(4))]
        self.inputs = [self.normal(int(length)) for length in self.random.integers(1, 6, size=2)]

    def normal(self, length: int) -> np.ndarray:
        return self.random.standard_normal((length, *self.row)).astype(self.dtype)

    def make(self, graph: Graph) -> list[Expression]:
        self.values = [graph.input(array.shape, self.data_type) for array in self.inputs]
        self.values.append(graph.constant(self.normal(3)))
        for _ in range(int(self.random.integers(6, 24))):
            grow = (self.join, self.join, self.split, self.part, self.pointwise, self.pointwise, self.turn, self.copy)
            grow[self.random.integers(len(grow))](graph)
        shown = {len(self.values) - 1, *(int(place) for place in self.random.integers(3, len(self.values), size=2))}
        return [self.values[place] for place in sorted(shown)]

    def pick(self) -> Expression:
        """Late ones are likelier, so that graphs are deep."""
        return self.values[max(self.random.integers(len(self.values), size=2))]

    def join(self, graph: Graph) -> None:
        parts = [self.pick() for _ in range(int(self.random.integers(1, 4)))]
        if sum(part.shape[0] for part in parts) < 60:
            self.values.append(graph.join(parts, axis=0))
        if parts[0].shape[0] < 20:
            x = parts[0]
            two = graph.join([x, x], axis=x.ndim - 1)
            three = graph.join([two, x], axis=x.ndim - 1)
            self.values += [part.reshape(-1, *self.row) for part in (two, three)]

    def split(self, graph: Graph) -> None:
        x = self.pick()
        cuts = sorted({0, x.shape[0], *(int(cut) for cut in self.random.integers(0, x.shape[0], size=2))})
        sizes = [(end - start, *self.row) for start, end in itertools.pairwise(cuts)]
        pieces = graph.split(x, axis=0, output_sizes=sizes)
        pieces = [pieces] if isinstance(pieces, Expression) else list(pieces)
        self.values += pieces
        if self.random.random() < 0.5:
            self.values.append(graph.join([*pieces, self.pick()][:: 1 if self.random.random() < 0.7 else -1], axis=0))

    def part(self, graph: Graph) -> None:
        x = self.pick()
        first = int(self.random.integers(x.shape[0]))
        window = (int(self.random.integers(first, x.shape[0])) + 1 - first, *self.row)
        none = (0,) * len(self.row)
        strides = (1,) * x.ndim
        part = graph.slice1(x, input_window_offsets=(first, *none), input_window_sizes=window, input_window_strides=strides)
        self.values.append(part)

    def pointwise(self, graph: Graph) -> None:
        x, y = self.pick(), self.pick()
        self.values.append(graph.element_wise_negate(x) if x.shape != y.shape else x + y)

    def turn(self, graph: Graph) -> None:
        """Rows of the first half and rows of the second, in turns."""
        x = self.pick()
        if x.shape[0] % 2 == 0:
            halves = x.reshape(2, x.shape[0] // 2, *self.row).transpose(1, 0, *range(2, x.ndim + 1))
            self.values.append(graph.element_wise_identity(halves).reshape(*x.shape))

    def copy(self, graph: Graph) -> None:
        self.values.append(graph.element_wise_identity(self.pick()))


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(device: dmlvk.Device, seed: int) -> None:
    """Not a bit is another one, whichever of the passes run."""
    wanted: list[np.ndarray] = []
    count = {}
    for off in (COPIES, (), *((name,) for name in COPIES)):
        drawn, graph = Drawn(seed), Graph(device)
        function = graph.compile(*drawn.make(graph), without=(*OTHERS, *off))
        count[off] = launches(function)
        found = results(function, drawn.inputs)
        wanted = wanted or found
        for again in (found, results(function, drawn.inputs)):
            for mine, plain in zip(again, wanted, strict=True):
                np.testing.assert_array_equal(mine, plain)
    assert count[()] <= count[COPIES]
