"""The numbers up to which passes do what they do: each is tried on both sides."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from dmlvk.graph.passes import PASSES, optimized
from dmlvk.graph.passes.join import _starts
from dmlvk.graph.passes.match import Operand, product
from dmlvk.graph.step import Step, Storage
from dmlvk.graph.step_graph import StepGraph
from dmlvk.kernels.matmul.rules import GEMM_VECTOR_ROWS
from dmlvk.spec import ops
from dmlvk.spec.block_formats import BlockFormat
from dmlvk.spec.enums import MatrixTransform, TensorDataType, TensorFlags
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.block_quantized import BlockQuantizedGemm, NormalizedBlockGemm
from dmlvk.spec.ops.chain import PointwiseChain
from dmlvk.spec.ops.matmul import GemmAdd, GemmGate, GemmNormalization, NormalizedGemm
from dmlvk.spec.ops.root_mean_square import RootMeanSquare
from dmlvk.spec.ops.rotary import RotaryEmbedding
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

F16, F32 = TensorDataType.FLOAT16, TensorDataType.FLOAT32


def _after(name: str, steps: list[Step], outputs: list[Storage]) -> list[OperatorDesc]:
    """What one pass leaves."""
    return [step.desc for step in optimized(steps, outputs, without=[item.name for item in PASSES if item.name != name])]


def _storage(tensor: TensorDesc) -> Storage:
    return Storage(tensor.total_tensor_size_in_bytes)


def _products(
    columns: int, depth: int, *, turned: bool, data_type: TensorDataType = F32
) -> tuple[list[Step], list[Storage]]:
    """Two products of one row, with constant weights, and their outputs."""
    x, y = (TensorDesc(data_type, (1, 1, 1, size)) for size in (depth, columns))
    b = TensorDesc(data_type, (1, 1, columns, depth) if turned else (1, 1, depth, columns))
    desc = ops.Gemm(
        a_tensor=x, b_tensor=b, output_tensor=y, trans_b=MatrixTransform.TRANSPOSE if turned else MatrixTransform.NONE
    )
    source, results, dtype = _storage(x), [_storage(y), _storage(y)], np.float32 if data_type is F32 else np.float16
    # one zero, seen as often as wanted: weights take no memory here
    weights = [Storage(b.total_tensor_size_in_bytes, np.broadcast_to(np.zeros((), dtype), b.sizes)) for _ in results]
    return [Step("", desc, (source, own, None), (y,)) for own, y in zip(weights, results, strict=True)], results


def _with_readers(steps: list[Step], results: list[Storage]) -> tuple[list[Step], list[Storage]]:
    """The steps, and a pointwise reader of each of their outputs."""
    tensor = steps[0].desc.tensor("output_tensor")
    desc = ops.ActivationRelu(input_tensor=tensor, output_tensor=tensor)
    ends = [_storage(tensor) for _ in results]
    return [*steps, *(Step("", desc, (own,), (end,)) for own, end in zip(results, ends, strict=True))], ends


@pytest.mark.parametrize(
    ("columns", "depth", "turned", "joins"),
    [
        (2048, 2048, False, True),
        (2049, 2048, False, False),
        (2049, 2048, True, True),
        (8192, 2048, True, True),
        (8192, 2049, True, False),
    ],
    ids=["16 MiB on the host", "more", "more on the device", "128 MiB of both", "more of both"],
)
def test_products_join_up_to_a_size_of_their_weights(columns: int, depth: int, turned: bool, joins: bool) -> None:
    """The host joins weights of 16 MiB each, the device all that one binding holds: 128 MiB together."""
    found = _after("products", *_with_readers(*_products(columns, depth, turned=turned)))
    assert sum(isinstance(desc, ops.Gemm) for desc in found) == (1 if joins else 2)


@pytest.mark.parametrize(("columns", "joins"), [(2, False), (4, True)])
def test_products_of_weights_in_blocks_join_where_their_rows_are_whole_words(columns: int, joins: bool) -> None:
    x, y = TensorDesc(F32, (1, 512)), TensorDesc(F32, (1, columns))
    sizes = (columns, BlockFormat.Q8_0.row_bytes(512))
    weights = TensorDesc(TensorDataType.UINT8, sizes, flags=TensorFlags.OWNED_BY_DML)
    desc = BlockQuantizedGemm(input_tensor=x, weight_tensor=weights, output_tensor=y, format=BlockFormat.Q8_0)
    source, results, steps = _storage(x), [_storage(y), _storage(y)], []
    for result in results:
        own = Storage(weights.total_tensor_size_in_bytes, np.zeros(sizes, np.uint8))
        steps.append(Step.of("", desc, {"input_tensor": source, "weight_tensor": own, "output_tensor": result}))
    found = _after("products", *_with_readers(steps, results))
    assert sum(isinstance(item, BlockQuantizedGemm) for item in found) == (1 if joins else 2)


@pytest.mark.parametrize(
    ("rows", "columns", "gates"),
    [(1, 8, True), (1, 12, False), (1, 16, True), (1024, 2**14, True), (1025, 2**14, False)],
)
def test_a_product_gets_a_gate_of_eight_columns_and_up_to_128_mib(rows: int, columns: int, gates: bool) -> None:
    x, y = TensorDesc(F32, (1, 1, rows, 16)), TensorDesc(F32, (1, 1, rows, columns))
    b = TensorDesc(F32, (1, 1, 16, columns))
    desc = ops.Gemm(a_tensor=x, b_tensor=b, output_tensor=y)
    source, first, second, gated, result = _storage(x), *(_storage(y) for _ in range(4))
    weights = [Storage(b.total_tensor_size_in_bytes, np.zeros(b.sizes, np.float32)) for _ in range(2)]
    steps = [
        Step("", desc, (source, weights[0], None), (first,)),
        Step("", desc, (source, weights[1], None), (second,)),
        Step("", ops.ActivationSwish(input_tensor=y, output_tensor=y, sigmoid_input_scale=1.0), (first,), (gated,)),
        Step("", ops.ElementWiseMultiply(a_tensor=y, b_tensor=y, output_tensor=y), (gated, second), (result,)),
    ]
    found = [item for item in _after("gate", steps, [result]) if isinstance(item, GemmGate)]
    assert [item.output_tensor for item in found] == [y] * gates


class _Layer(NamedTuple):
    """A norm whose sum is read, too, and a product of what it makes.

    Attributes:
        steps: The norm, the product, and a reader of the sum behind them.
        outputs: The output of the product, and that of the reader.
        total: The sum.
    """

    steps: list[Step]
    outputs: list[Storage]
    total: Storage


def _layer(product: OperatorDesc, rows: int, depth: int, sizes: tuple[int, ...] = ()) -> _Layer:
    """Of FLOAT32, as a product of FLOAT16 is normalized from; the norm's tensors have other sizes where they are given."""
    wide, half = (TensorDesc(data_type, sizes or (rows, depth)) for data_type in (F32, F16))
    norm = RootMeanSquare(
        input_tensor=wide,
        addend_tensor=half,
        scale_tensor=TensorDesc(F32, (depth,)),
        output_tensor=half,
        sum_tensor=wide,
        epsilon=1e-5,
    )
    storages = {
        name: _storage(getattr(norm, name)) for name in ("input_tensor", "addend_tensor", "output_tensor", "sum_tensor")
    }
    scale = Storage(4 * depth, np.ones(depth, np.float32))
    y, end = product.tensor("output_tensor"), _storage(wide)
    result = _storage(y)
    known: dict[str, Storage | None] = {"input_tensor": storages["output_tensor"], "a_tensor": storages["output_tensor"]}
    own = {
        spec.name: known.get(spec.name)
        for spec in product.fields
        if spec.kind.is_input and getattr(product, spec.name, None)
    }
    for name in own:
        if own[name] is None:
            tensor = product.tensor(name)
            own[name] = Storage(tensor.total_tensor_size_in_bytes, np.broadcast_to(np.zeros((), np.uint8), tensor.sizes))
    steps = [
        Step.of("", norm, {**storages, "scale_tensor": scale}),
        Step.of("", product, {**own, "output_tensor": result}),
        Step("", ops.ActivationRelu(input_tensor=wide, output_tensor=wide), (storages["sum_tensor"],), (end,)),
    ]
    return _Layer(steps, [result, end], storages["sum_tensor"])


def _blocks(rows: int, **fields: Any) -> OperatorDesc:
    weights = TensorDesc(TensorDataType.UINT8, (64, BlockFormat.Q8_0.row_bytes(32)), flags=TensorFlags.OWNED_BY_DML)
    tensors = {"input_tensor": TensorDesc(F16, (rows, 32)), "output_tensor": TensorDesc(F16, (rows, 64))}
    return BlockQuantizedGemm(**tensors, weight_tensor=weights, format=BlockFormat.Q8_0, **fields)


def _normalized(layer: _Layer) -> list[OperatorDesc]:
    found = _after("normalized_products", layer.steps, layer.outputs)
    return [desc for desc in found if isinstance(desc, NormalizedBlockGemm | NormalizedGemm)]


def test_a_product_normalizes_up_to_31_rows_itself() -> None:
    (found,) = _normalized(_layer(_blocks(31), 31, 32))
    found.validate()
    assert not _normalized(_layer(_blocks(32), 32, 32))


@pytest.mark.parametrize("halves", [False, True])
def test_a_product_that_normalizes_may_round_what_it_might_before(halves: bool) -> None:
    (found,) = _normalized(_layer(_blocks(6, half_factors=halves), 6, 32))
    assert isinstance(found, NormalizedBlockGemm)
    assert found.half_factors == found.product.half_factors == halves


def test_a_product_normalizes_rows_that_it_sees_under_other_sizes() -> None:
    (found,) = _normalized(_layer(_blocks(6), 6, 32, (2, 3, 32)))
    assert found.tensor("sum_tensor").sizes == (6, 32)
    assert not _normalized(_layer(_blocks(6), 6, 16, (2, 6, 16))), "a mean of other elements"


def test_a_product_to_which_something_is_added_does_not_normalize() -> None:
    assert not _normalized(_layer(_blocks(1, addend_tensor=TensorDesc(F16, (1, 64))), 1, 32))


def test_a_product_normalizes_what_nothing_else_reads_before_it() -> None:
    layer = _layer(_blocks(1), 1, 32)
    norm, product, reader = layer.steps
    assert _normalized(layer)
    assert not _normalized(layer._replace(steps=[norm, reader, product])), "the sum would come too late"
    assert not _normalized(layer._replace(outputs=[*layer.outputs, norm.outputs[0]])), "the caller reads what is normalized"


def _plain(rows: int, leading: tuple[int, ...] = (), **fields: Any) -> OperatorDesc:
    """A product of rows of 32 elements with a constant that is transposed."""
    tensors = {"a_tensor": (*leading, rows, 32), "b_tensor": (*leading, 64, 32), "output_tensor": (*leading, rows, 64)}
    own = {name: TensorDesc(F16, sizes) for name, sizes in tensors.items()} | {"trans_b": MatrixTransform.TRANSPOSE}
    return ops.Gemm(**own | fields)


def test_a_product_without_blocks_normalizes_as_many_rows_as_its_kernel_has() -> None:
    most = GEMM_VECTOR_ROWS
    (found,) = _normalized(_layer(_plain(most), most, 32))
    found.validate()
    assert isinstance(found, NormalizedGemm) and found.product == _plain(most)
    assert not _normalized(_layer(_plain(most + 1), most + 1, 32))


def test_a_product_normalizes_rows_of_the_only_matrix() -> None:
    (found,) = _normalized(_layer(_plain(2, (1, 1)), 2, 32, (1, 1, 2, 32)))
    assert found.tensor("output_tensor").sizes == (2, 64)
    assert not _normalized(_layer(_plain(2, (3,)), 6, 32, (3, 2, 32))), "three matrices"


def test_a_product_that_normalizes_keeps_its_row_of_c() -> None:
    row = TensorDesc(F16, (2, 64), (0, 1))
    (found,) = _normalized(_layer(_plain(2, c_tensor=row), 2, 32))
    assert isinstance(found, NormalizedGemm) and found.product == _plain(2, c_tensor=row)
    assert not _normalized(_layer(_plain(2, c_tensor=TensorDesc(F16, (2, 64))), 2, 32)), "C has a row for each"
    assert not _normalized(_layer(_plain(2, c_tensor=row, beta=2.0), 2, 32))


@pytest.mark.parametrize("fields", [{"alpha": 2.0}, {"fused_activation": ops.ActivationRelu()}], ids=["alpha", "activation"])
def test_a_product_that_does_more_does_not_normalize(fields: dict[str, Any]) -> None:
    assert not _normalized(_layer(_plain(1, **fields), 1, 32))


def test_a_product_that_a_device_may_have_to_cut_does_not_normalize() -> None:
    """What 2 ** 27 bytes hold, every device binds; a larger factor is bound part by part, which a Gemm can be."""
    for columns, fused in ((2**21, 1), (2**21 + 8, 0)):
        sizes = {"b_tensor": (columns, 32), "output_tensor": (1, columns)}
        product = _plain(1, **{name: TensorDesc(F16, own) for name, own in sizes.items()})
        assert len(_normalized(_layer(product, 1, 32))) == fused


def test_a_product_of_normalized_rows_with_themselves_does_not_normalize() -> None:
    """Its second factor is what is normalized, too, which nobody would write any more."""
    tensors = {"a_tensor": (2, 32), "b_tensor": (2, 32), "output_tensor": (2, 2)}
    layer = _layer(_plain(2, **{name: TensorDesc(F16, sizes) for name, sizes in tensors.items()}), 2, 32)
    norm, product, reader = layer.steps
    squared = Step.of("", product.desc, product.storages() | {"b_tensor": norm.outputs[0]})
    assert _normalized(layer)
    assert not _normalized(layer._replace(steps=[norm, squared, reader]))


def test_a_product_with_a_gate_normalizes() -> None:
    plain = _plain(1)
    names = ("a_tensor", "b_tensor", "trans_b")
    gated = GemmGate(
        **{name: getattr(plain, name) for name in names}, output_tensor=TensorDesc(F16, (1, 32)), gate=Gate.GELU
    )
    (found,) = _normalized(_layer(gated, 1, 32))
    assert isinstance(found, NormalizedGemm) and found.product == gated


def _before_a_norm(
    product: OperatorDesc, sizes: tuple[int, ...] = (6, 64), *, keeps: bool = False, **fields: Any
) -> list[OperatorDesc]:
    """What becomes of a product and a normalization of what it makes, seen in some sizes; ``keeps``: the caller reads the
    product, too."""
    made = TensorDesc(F16, sizes)
    norm = ops.MeanVarianceNormalization2(
        **{"input_tensor": made, "output_tensor": made, "axes": (len(sizes) - 1,), "epsilon": 1e-5, **fields}
    )
    between, end = _storage(made), _storage(made)
    inputs = [None if slot.tensor is None else _storage(slot.tensor) for slot in product.input_slots()]
    sides = [None if slot.tensor is None else _storage(slot.tensor) for slot in norm.input_slots()[1:]]
    steps = [Step("", product, tuple(inputs), (between,)), Step("", norm, (between, *sides), (end,))]
    return _after("rows_of_products", steps, [end, between] if keeps else [end])


def test_a_product_takes_the_normalization_of_its_rows() -> None:
    side = TensorDesc(F16, (1, 64))
    added = GemmAdd(**{name: getattr(_plain(6), name) for name in _NAMES}, addend_tensor=TensorDesc(F16, (6, 64)))
    for plain in (_plain(6), _plain(6, alpha=2.0, c_tensor=TensorDesc(F16, (6, 64), (0, 1))), added):
        (found,) = _before_a_norm(plain, scale_tensor=side, use_mean=False)
        found.validate()
        assert isinstance(found, GemmNormalization) and found.product == plain
        assert found.tensor("norm_scale_tensor").sizes == (64,) and found.norm_bias_tensor is None and not found.use_mean


def test_a_product_that_is_read_stays_an_output() -> None:
    for keeps in (False, True):
        (found,) = _before_a_norm(_plain(6), keeps=keeps)
        assert isinstance(found, GemmNormalization)
        assert found.product_tensor == (TensorDesc(F16, (6, 64)) if keeps else None)


_NAMES = ("a_tensor", "b_tensor", "output_tensor", "trans_b")


@pytest.mark.parametrize(
    ("sizes", "axes", "fused"),
    [
        ((2, 3, 64), (2,), True),
        ((6, 64, 1), (1, 2), True),
        ((6, 8, 8), (1, 2), True),
        ((6, 1, 64), (2,), True),
        ((6, 64), (0, 1), False),
        ((6, 64), (), False),
        ((12, 32), (1,), False),
        ((6, 8, 8), (2,), False),
        ((6, 8, 8), (1,), False),
        ((64, 6), (0,), False),
    ],
)
def test_what_is_normalized_is_a_row(sizes: tuple[int, ...], axes: tuple[int, ...], fused: bool) -> None:
    found = _before_a_norm(_plain(6), sizes, axes=axes)
    assert len(found) == (1 if fused else 2)


@pytest.mark.parametrize(
    ("product", "norm"),
    [
        (_plain(6, fused_activation=ops.ActivationRelu()), {}),
        (_plain(6), {"fused_activation": ops.ActivationRelu()}),
        (_plain(6), {"use_variance": False}),
        (_plain(6), {"scale_tensor": TensorDesc(F16, (6, 64))}),
        (_plain(6), {"scale_tensor": TensorDesc(F16, (6, 1))}),
    ],
    ids=["activated product", "activation", "no variance", "a scale each", "a scale for each row"],
)
def test_a_product_and_a_normalization_that_do_more_stay_two(product: OperatorDesc, norm: dict[str, Any]) -> None:
    assert len(_before_a_norm(product, **norm)) == 2


def test_a_product_that_a_device_may_have_to_cut_takes_no_normalization() -> None:
    for columns, left in ((2**21, 1), (2**21 + 8, 2)):
        sizes = {"b_tensor": (columns, 32), "output_tensor": (1, columns)}
        product = _plain(1, **{name: TensorDesc(F16, own) for name, own in sizes.items()})
        assert len(_before_a_norm(product, (1, columns))) == left


SLOPE = math.sqrt(8 / math.pi)
CURVE = SLOPE * 0.044715


@pytest.mark.parametrize(
    ("curve", "slope", "is_gelu"),
    [
        (CURVE, SLOPE, True),
        (1.0009 * CURVE, 0.9991 * SLOPE, True),
        (1.0012 * CURVE, SLOPE, False),
        (CURVE, 1.0012 * SLOPE, False),
        (0.9988 * CURVE, SLOPE, False),
    ],
)
def test_a_gate_is_gelu_of_numbers_that_models_print(curve: float, slope: float, is_gelu: bool) -> None:
    """x sigmoid(x (slope + curve x^2)) is GELU by its tanh; float16 and printed digits are off by less than a thousandth."""
    x, y, b = (TensorDesc(F32, sizes) for sizes in ((1, 1, 1, 16), (1, 1, 1, 8), (1, 1, 16, 8)))
    desc = ops.Gemm(a_tensor=x, b_tensor=b, output_tensor=y)
    source, first, second, square, line, angle, sigmoid, gated, result = _storage(x), *(_storage(y) for _ in range(8))
    weights = [Storage(b.total_tensor_size_in_bytes, np.zeros(b.sizes, np.float32)) for _ in range(2)]
    multiply = ops.ElementWiseMultiply(a_tensor=y, b_tensor=y, output_tensor=y)
    steps = [
        Step("", desc, (source, weights[0], None), (first,)),
        Step("", desc, (source, weights[1], None), (second,)),
        Step("", multiply, (first, first), (square,)),
        Step("", ops.ActivationLinear(input_tensor=y, output_tensor=y, alpha=curve, beta=slope), (square,), (line,)),
        Step("", multiply, (first, line), (angle,)),
        Step("", ops.ActivationSigmoid(input_tensor=y, output_tensor=y), (angle,), (sigmoid,)),
        Step("", multiply, (first, sigmoid), (gated,)),
        Step("", multiply, (gated, second), (result,)),
    ]
    gates = [item.gate for item in _after("gate", steps, [result]) if isinstance(item, GemmGate)]
    assert gates == ([Gate.GELU] if is_gelu else [])


@pytest.mark.parametrize(
    ("number", "moves"),
    [(2.0**16, True), (2.0**16 + 1, False), (2.0**-16, True), (0.9 * 2.0**-16, False), (-(2.0**16), True)],
)
def test_a_number_of_ordinary_size_goes_from_a_factor_into_a_product(number: float, moves: bool) -> None:
    a, b, y = (TensorDesc(F32, sizes) for sizes in ((1, 1, 2, 4), (1, 1, 4, 3), (1, 1, 2, 3)))
    one = TensorDesc(F32, a.sizes, (0, 0, 0, 0))
    x, scaled, other, result = _storage(a), _storage(a), _storage(b), _storage(y)
    steps = [
        Step(
            "",
            ops.ElementWiseMultiply(a_tensor=a, b_tensor=one, output_tensor=a),
            (x, Storage(4, np.array([number], np.float32))),
            (scaled,),
        ),
        Step("", ops.Gemm(a_tensor=a, b_tensor=b, output_tensor=y), (scaled, other, None), (result,)),
    ]
    found = _after("operand_scale", steps, [result])
    assert len(found) == (1 if moves else 2)
    product = found[-1]
    assert isinstance(product, ops.Gemm) and product.alpha == (number if moves else 1.0)


@pytest.mark.parametrize(("channels", "moves"), [(8, True), (12, False), (16, True)])
def test_images_of_whole_words_of_channels_move(channels: int, moves: bool) -> None:
    """Of FLOAT16, between convolutions: a word holds eight channels."""
    image = TensorDesc(F16, (1, channels, 4, 4))
    filters = TensorDesc(F16, (channels, channels, 1, 1))
    ones = {"strides": (1, 1), "dilations": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0), "output_padding": (0, 0)}
    desc = ops.Convolution(input_tensor=image, filter_tensor=filters, output_tensor=image, **ones)
    tensors = [_storage(image) for _ in range(3)]
    weights = _storage(filters)
    steps = [Step("", desc, (tensors[i], weights, None), (tensors[i + 1],)) for i in range(2)]
    first, _ = _after("channels_last", steps, [tensors[2]])
    assert (first.tensor("output_tensor").strides is not None) == moves


@pytest.mark.parametrize(("count", "is_followed"), [(15, True), (16, True), (17, False)])
def test_a_product_is_followed_through_sixteen_multiplications(count: int, is_followed: bool) -> None:
    """What the first of 17 computes stays one operand."""
    x = TensorDesc(F32, (4, 4))
    desc = ops.ElementWiseMultiply(a_tensor=x, b_tensor=x, output_tensor=x)
    last, steps = _storage(x), []
    for _ in range(count):
        made = _storage(x)
        steps.append(Step("", desc, (last, _storage(x)), (made,)))
        last = made
    graph = StepGraph(steps, [last])
    operands = product(graph, Operand(last, x)).operands
    assert len(operands) == min(count, 16) + 1
    assert (not any(graph.writer(own.storage) for own in operands)) == is_followed


@pytest.mark.parametrize(("depth", "recognised"), [(1, True), (3, True), (4, False)])
def test_a_table_is_recognised_behind_three_operators(depth: int, recognised: bool) -> None:
    """x cos + turned(x) sin, by a table of one half twice and so many operators of it."""
    x, half, table = (TensorDesc(F32, sizes) for sizes in ((1, 2, 4, 8), (1, 2, 4, 4), (1, 1, 4, 8)))
    quarter = TensorDesc(F32, (1, 1, 4, 4))
    spread = TensorDesc(F32, x.sizes, (32, 0, 8, 1))
    fed, angles = _storage(x), _storage(quarter)
    first, second, negative, turned = _storage(half), _storage(half), _storage(half), _storage(x)
    twice = _storage(table)
    steps = [
        Step("", ops.Split(input_tensor=x, output_tensors=(half, half), axis=3), (fed,), (first, second)),
        Step("", ops.ElementWiseNegate(input_tensor=half, output_tensor=half), (second,), (negative,)),
        Step("", ops.Join(input_tensors=(half, half), output_tensor=x, axis=3), (negative, first), (turned,)),
        Step("", ops.Join(input_tensors=(quarter, quarter), output_tensor=table, axis=3), (angles, angles), (twice,)),
    ]

    def computed(rows: list[type[OperatorDesc]]) -> Storage:
        last = twice
        for row in rows:
            made = _storage(table)
            steps.append(Step("", row(input_tensor=table, output_tensor=table), (last,), (made,)))
            last = made
        return last

    cosines, sines = (computed([row] * depth) for row in (ops.ElementWiseCos, ops.ElementWiseSin))
    one, other, result = _storage(x), _storage(x), _storage(x)
    multiply = ops.ElementWiseMultiply(a_tensor=x, b_tensor=spread, output_tensor=x)
    steps += [
        Step("", multiply, (fed, cosines), (one,)),
        Step("", multiply, (turned, sines), (other,)),
        Step("", ops.ElementWiseAdd(a_tensor=x, b_tensor=x, output_tensor=x), (one, other), (result,)),
    ]
    assert any(isinstance(desc, RotaryEmbedding) for desc in _after("rotary", steps, [result])) == recognised


@pytest.mark.parametrize(
    ("data_type", "starts"),
    [(TensorDataType.UINT8, [0, 3, 6, 12]), (TensorDataType.UINT4, None), (F16, [0, 6, 12, 24])],
)
def test_pieces_lie_in_a_join_where_each_starts_on_a_byte(data_type: TensorDataType, starts: list[int] | None) -> None:
    """Pieces of three, three and five elements; the end is that of a word."""
    pieces = tuple(TensorDesc(data_type, (1, size)) for size in (3, 3, 5))
    assert _starts(ops.Join(input_tensors=pieces, output_tensor=TensorDesc(data_type, (1, 11)), axis=1)) == starts


def test_an_operator_of_two_tensors_and_numbers_stays_out_of_chains() -> None:
    """Operands of a chain are tensors or numbers, two at most."""
    x = TensorDesc(F32, (4, 8))
    clip = ops.ElementWiseClipGrad(input_tensor=x, input_gradient_tensor=x, output_gradient_tensor=x, min=0.0, max=1.0)
    storages = [_storage(x) for _ in range(4)]
    relu = ops.ActivationRelu(input_tensor=x, output_tensor=x)
    steps = [Step("", clip, tuple(storages[:2]), (storages[2],)), Step("", relu, (storages[2],), (storages[3],))]
    assert [type(desc) for desc in _after("chain", steps, storages[3:])] == [ops.ElementWiseClipGrad, ops.ActivationRelu]
    half = ops.ElementWiseAdd(a_tensor=x, b_tensor=x, output_tensor=x)
    steps[0] = Step("", half, tuple(storages[:2]), (storages[2],))
    assert [type(desc) for desc in _after("chain", steps, storages[3:])] == [PointwiseChain]
