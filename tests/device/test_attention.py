"""Multi-head attention against ONNX Runtime's and PyTorch's, and what the runner of the cases cannot show: a past in the
present tensors, sequences without padding, rows that see nothing, the same result by every rule."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dmlvk
from dmlvk import MultiheadAttentionMaskType as MaskType
from dmlvk import TensorDataType, TensorDesc, eager
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.attention import lowering as attention_lowering
from dmlvk.kernels.attention import tiles
from dmlvk.kernels.attention.matrix_tiles import ATTENTION_SHAPES
from dmlvk.kernels.attention.tiles import ATTENTION_BLOCKS, AttentionBlock
from dmlvk.kernels.lowering import possible_rules
from dmlvk.onnx.session import InferenceSession
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec.errors import UnsupportedNodeError

Array = NDArray[Any]
BATCH, QUERIES, KEYS, HEADS, SIZE, WIDTH = 2, 5, 7, 3, 8, 6
HIDDEN = HEADS * SIZE
BLOCKS = pytest.param("blocks", marks=pytest.mark.full)
"""The rule whose kernel a CPU's driver compiles for longer than those of all others together."""


def random(*sizes: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *sizes)).standard_normal(sizes).astype(np.float32)


def bits(*sizes: int) -> Array:
    return np.random.default_rng(sizes).integers(0, 2, sizes).astype(np.int32)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


Inputs = tuple[Array | None, ...]
"""The inputs of a node in order; None for an absent one."""


def make_model(
    op_type: str, inputs: Inputs, outputs: int, attributes: dict[str, Any], constants: tuple[int, ...] = ()
) -> Any:
    """A model of one node of ONNX Runtime's own; the inputs of these indices are constants of the model."""
    names = [f"input{index}" if value is not None else "" for index, value in enumerate(inputs)]
    node = helper.make_node(
        op_type, names, ["y", "p", "q"][:outputs], domain="com.microsoft", **({"num_heads": HEADS} | attributes)
    )
    graph = helper.make_graph(
        [node],
        "attention",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for index, (name, value) in enumerate(zip(names, inputs, strict=True))
            if value is not None and index not in constants
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output],
        [numpy_helper.from_array(np.asarray(inputs[index]), names[index]) for index in constants],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def feeds(inputs: Inputs, constants: tuple[int, ...] = ()) -> dict[str, Array]:
    """What a session of such a model is given."""
    return {f"input{index}": value for index, value in enumerate(inputs) if value is not None and index not in constants}


def run_both(
    device: dmlvk.Device,
    op_type: str,
    inputs: Inputs,
    outputs: int,
    attributes: dict[str, Any],
    constants: tuple[int, ...] = (),
) -> tuple[list[Array], list[Array]]:
    """What dmlvk and what ONNX Runtime's CPU give."""
    model, given = make_model(op_type, inputs, outputs, attributes, constants), feeds(inputs, constants)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return InferenceSession(model, device=device).run(None, given), session.run(None, given)


QUERY, KEY, VALUE = random(BATCH, QUERIES, HIDDEN), random(BATCH, KEYS, HIDDEN), random(BATCH, KEYS, HIDDEN, seed=1)
NEW_KEY, NEW_VALUE = random(BATCH, QUERIES, HIDDEN, seed=2), random(BATCH, QUERIES, HIDDEN, seed=3)
PAST_KEY, PAST_VALUE = random(BATCH, HEADS, KEYS, SIZE), random(BATCH, HEADS, KEYS, SIZE, seed=1)
X, WEIGHTS, BIAS = random(BATCH, QUERIES, WIDTH), random(WIDTH, 3 * HIDDEN), random(3 * HIDDEN)

MULTI_HEAD: dict[str, tuple[Inputs, int, dict[str, Any]]] = {
    "plain": ((QUERY, KEY, VALUE), 1, {}),
    "narrow values and a bias": (
        (QUERY, KEY, random(BATCH, KEYS, HEADS * 4), random(2 * HIDDEN + HEADS * 4)),
        1,
        {"scale": 0.7},
    ),
    "lengths of keys": ((QUERY, KEY, VALUE, None, ints(3, 7)), 1, {}),
    "lengths and starts": ((QUERY, KEY, VALUE, None, ints(3, 7, 0, 5, 10, 0, 7, 14)), 1, {}),
    "a mask of keys": ((QUERY, KEY, VALUE, None, bits(BATCH, KEYS)), 1, {"mask_filter_value": -1000.0}),
    "a mask of scores": ((QUERY, KEY, VALUE, None, bits(BATCH, QUERIES, KEYS)), 1, {}),
    "a bias of scores": ((QUERY, KEY, VALUE, None, None, random(1, HEADS, QUERIES, KEYS)), 1, {}),
    "keys as the past comes": ((QUERY, PAST_KEY, PAST_VALUE), 1, {}),
    "past and present": ((QUERY, NEW_KEY, NEW_VALUE, BIAS, None, None, PAST_KEY, PAST_VALUE), 3, {}),
    "causal": ((QUERY, NEW_KEY, NEW_VALUE), 1, {"unidirectional": 1}),
    "causal after a past": (
        (QUERY, NEW_KEY, NEW_VALUE, None, None, None, PAST_KEY, PAST_VALUE),
        3,
        {"unidirectional": 1},
    ),
}

PROJECTED: dict[str, tuple[Inputs, int, dict[str, Any]]] = {
    "plain": ((X, WEIGHTS, BIAS), 1, {}),
    "lengths": ((X, WEIGHTS, BIAS, ints(3, 5)), 1, {}),
    "ends and starts": ((X, WEIGHTS, BIAS, ints(3, 5, 1, 2)), 1, {}),
    "a mask of keys": ((X, WEIGHTS, BIAS, bits(BATCH, QUERIES)), 1, {}),
    "a mask of scores": ((X, WEIGHTS, BIAS, bits(BATCH, QUERIES, QUERIES)), 1, {}),
    "narrow values": (
        (X, random(WIDTH, 2 * HIDDEN + 12), random(2 * HIDDEN + 12)),
        1,
        {"qkv_hidden_sizes": [HIDDEN, HIDDEN, 12]},
    ),
    "causal after a past": ((X, WEIGHTS, BIAS, None, random(2, BATCH, HEADS, 4, SIZE)), 2, {"unidirectional": 1}),
    "a mask after a past": ((X, WEIGHTS, BIAS, bits(BATCH, QUERIES + 4), random(2, BATCH, HEADS, 4, SIZE)), 2, {}),
    "a bias of scores": ((X, WEIGHTS, BIAS, None, None, random(1, HEADS, QUERIES, QUERIES)), 1, {}),
}


@pytest.mark.parametrize("name", MULTI_HEAD)
def test_multi_head_attention_agrees_with_onnx_runtime(device: dmlvk.Device, name: str) -> None:
    for found, wanted in zip(*run_both(device, "MultiHeadAttention", *MULTI_HEAD[name]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", PROJECTED)
def test_attention_agrees_with_onnx_runtime(device: dmlvk.Device, name: str) -> None:
    for found, wanted in zip(*run_both(device, "Attention", *PROJECTED[name]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["query, key and value", "key and value"])
def test_stacked_inputs_of_a_model(device: dmlvk.Device, kind: str) -> None:
    """Stacked inputs, which ONNX Runtime's CPU does not know, give the same as separate ones."""
    stacked = random(BATCH, QUERIES, HEADS, 3, SIZE)
    q, k, v = (np.ascontiguousarray(stacked[:, :, :, place]).reshape(BATCH, QUERIES, HIDDEN) for place in range(3))
    inputs: Inputs = (stacked,) if kind.startswith("query") else (q, np.ascontiguousarray(stacked[:, :, :, 1:]))
    found, apart = (
        InferenceSession(make_model("MultiHeadAttention", own, 1, {}), device=device).run(None, feeds(own))[0]
        for own in (inputs, (q, k, v))
    )
    np.testing.assert_array_equal(found, apart)


def grouped(queries: int, past: int, lengths: tuple[int, ...], total: int, *, packed: bool = False) -> Inputs:
    """Inputs of GroupQueryAttention with 4 heads of queries and 2 of keys; its lengths count the last new row's place."""
    batch = len(lengths)
    own: Inputs = (
        random(batch, queries, 4 * SIZE),
        random(batch, queries, 2 * SIZE),
        random(batch, queries, 2 * SIZE, seed=1),
    )
    if packed:
        own = (random(batch, queries, 8 * SIZE), None, None)
    before: Inputs = (None, None)
    if past:
        before = (random(batch, 2, past, SIZE), random(batch, 2, past, SIZE, seed=1))
    return (*own, *before, ints(*lengths), ints(total))


@pytest.mark.parametrize(
    ("inputs", "valid"),
    [
        (grouped(4, 0, (3, 3), 4), (4, 4)),
        (grouped(4, 0, (1, 3), 4), (2, 4)),
        (grouped(4, 0, (3, 3), 4, packed=True), (4, 4)),
        (grouped(1, 6, (6, 6), 7), (1, 1)),
        (grouped(1, 6, (3, 6), 7), (1, 1)),
        (grouped(1, 9, (3, 4), 5), (1, 1)),
        (grouped(4, 6, (9,), 10), (4,)),
    ],
    ids=["first rows", "padded", "packed", "one row", "lengths differ", "room behind", "several rows after a past"],
)
def test_group_query_attention_agrees_with_onnx_runtime(
    device: dmlvk.Device, inputs: Inputs, valid: tuple[int, ...]
) -> None:
    attributes = {"num_heads": 4, "kv_num_heads": 2}
    found, wanted = run_both(device, "GroupQueryAttention", inputs, 3, attributes, constants=(6,))
    for entry, rows in enumerate(valid):  # of the rest, padding, each makes what it likes
        np.testing.assert_allclose(found[0][entry, :rows], wanted[0][entry, :rows], rtol=1e-5, atol=2e-6)
    for own, other in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("Attention", (X, WEIGHTS, BIAS), {"do_rotary": 1}, "rotary"),
        ("MultiHeadAttention", (QUERY, PAST_KEY, PAST_VALUE, BIAS), {}, "a past or a bias beside them"),
        ("MultiHeadAttention", (QUERY, KEY, VALUE, None, ints(1, 2, 3)), {}, "a mask of sizes"),
        ("GroupQueryAttention", grouped(1, 6, (6,), 7), {"num_heads": 4, "kv_num_heads": 2, "qk_output": 1}, "qk_output"),
    ],
)
def test_what_a_model_asks_for_in_vain(
    device: dmlvk.Device, op_type: str, inputs: Inputs, attributes: dict[str, Any], message: str
) -> None:
    constants = (6,) if op_type.startswith("Group") else ()
    model = make_model(op_type, inputs, 1, attributes, constants)
    with pytest.raises(UnsupportedNodeError, match=message):
        InferenceSession(model, device=device).run(None, feeds(inputs, constants))


@pytest.mark.torch
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("batch", "heads", "queries", "keys", "size"),
    [(2, (4, 2), 33, 65, 40), (1, (2, 2), 64, 64, 64), (1, (6, 1), 3, 129, 16)],
)
def test_agrees_with_pytorch(
    device: dmlvk.Device,
    torch: ModuleType,
    kind: type[np.generic],
    batch: int,
    heads: tuple[int, int],
    queries: int,
    keys: int,
    size: int,
) -> None:
    q = random(batch, queries, heads[0] * size).astype(kind)
    k, v = (random(batch, keys, heads[1] * size, seed=seed).astype(kind) for seed in (1, 2))
    parts = [
        torch.from_numpy(x.astype(np.float64)).view(batch, -1, count, size).transpose(1, 2)
        for x, count in ((q, heads[0]), (k, heads[1]), (v, heads[1]))
    ]
    expected = torch.nn.functional.scaled_dot_product_attention(*parts, enable_gqa=True).transpose(1, 2).flatten(2).numpy()
    found = eager.multihead_attention1(
        q, k, v, scale=size**-0.5, query_head_count=heads[0], key_value_head_count=heads[1], device=device
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 if kind is np.float32 else 1e-3)


def bound_inputs(
    device: dmlvk.Device, desc: dmlvk.MultiheadAttention1, values: dict[str, Array]
) -> list[BufferBinding | None]:
    """A binding for each input slot, to buffers that hold these arrays."""
    inputs: list[BufferBinding | None] = []
    for slot in desc.input_slots():
        buffer = None
        if slot.tensor is not None:
            buffer = device.create_buffer(slot.tensor.total_tensor_size_in_bytes)
            buffer.write(values[slot.field.name])
        inputs.append(None if buffer is None else BufferBinding(buffer))
    return inputs


def in_place_past(
    device: dmlvk.Device, arrays: dict[str, Array], lengths: Array, capacity: int, rule: str = ""
) -> tuple[Array, Array, Array]:
    """Attention whose present tensors hold the past when it starts: output, present keys, present values."""
    float32, int32 = TensorDataType.FLOAT32, TensorDataType.INT32
    q, k = arrays["query"], arrays["key"]
    present = TensorDesc(float32, (BATCH, 1, capacity, SIZE))
    desc = dmlvk.MultiheadAttention1(
        query_tensor=TensorDesc(float32, q.shape),
        key_tensor=TensorDesc(float32, k.shape),
        value_tensor=TensorDesc(float32, k.shape),
        past_sequence_lengths_tensor=TensorDesc(int32, lengths.shape),
        output_tensor=TensorDesc(float32, q.shape),
        output_present_key_tensor=present,
        output_present_value_tensor=present,
        scale=SIZE**-0.5,
        query_head_count=2,
        key_value_head_count=1,
    )
    desc.validate()
    values = {"query_tensor": q, "key_tensor": k, "value_tensor": arrays["value"], "past_sequence_lengths_tensor": lengths}
    inputs = bound_inputs(device, desc, values)
    outputs = [device.create_buffer(q.nbytes), *(device.create_buffer(present.total_tensor_size_in_bytes) for _ in range(2))]
    outputs[1].write(arrays["past_key"])
    outputs[2].write(arrays["past_value"])
    commands = device.create_command_list()
    ReadyOperator(device, desc, rule).record(commands, inputs, list(map(BufferBinding, outputs)))
    device.execute(commands)
    y, keys, past_values = (buffer.read().view(np.float32) for buffer in outputs)
    return y.reshape(q.shape), keys.reshape(present.sizes), past_values.reshape(present.sizes)


@pytest.mark.parametrize("rule", [BLOCKS, "tiles", "split", "naive"])
@pytest.mark.parametrize("queries", [1, 3])
def test_the_past_in_the_present_tensors(device: dmlvk.Device, rule: str, queries: int) -> None:
    """Past and present share memory, as ONNX Runtime's GroupQueryAttention binds them. Rows behind the new ones stay, and
    take no part whatever they hold."""
    capacity = 70
    lengths = ints(2, capacity - queries)
    arrays = {
        "query": random(BATCH, queries, 2 * SIZE),
        "key": random(BATCH, queries, SIZE),
        "value": random(BATCH, queries, SIZE, seed=1),
        "past_key": random(BATCH, 1, capacity, SIZE),
        "past_value": random(BATCH, 1, capacity, SIZE, seed=1),
    }
    for name in ("past_key", "past_value"):
        arrays[name][0, :, 2 + queries :] = np.nan
    y, keys, values = in_place_past(device, arrays, lengths, capacity, rule)
    for name, found in (("key", keys), ("value", values)):
        wanted = arrays[f"past_{name}"].copy()
        for entry, length in enumerate(lengths):
            wanted[entry, 0, length : length + queries] = arrays[name][entry]
        np.testing.assert_array_equal(found, wanted)
    for entry, length in enumerate(lengths):
        for s in range(queries):
            seen = length + s + 1
            for head in range(2):
                q = arrays["query"][entry, s, head * SIZE : (head + 1) * SIZE].astype(np.float64)
                weights = np.exp(keys[entry, 0, :seen] @ q * SIZE**-0.5)
                expected = weights / weights.sum() @ values[entry, 0, :seen]
                np.testing.assert_allclose(y[entry, s, head * SIZE : (head + 1) * SIZE], expected, rtol=0, atol=1e-6)


def test_lengths_beyond_the_tensor_are_clamped(device: dmlvk.Device) -> None:
    arrays = {
        "query": random(BATCH, 1, 2 * SIZE),
        "key": random(BATCH, 1, SIZE),
        "value": random(BATCH, 1, SIZE, seed=1),
        "past_key": random(BATCH, 1, 9, SIZE),
        "past_value": random(BATCH, 1, 9, SIZE, seed=1),
    }
    for found, wanted in zip(
        in_place_past(device, arrays, ints(-5, 2**31 - 1), 9), in_place_past(device, arrays, ints(0, 8), 9), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_a_mask_of_minus_infinity(device: dmlvk.Device) -> None:
    """Masked keys take no part at all, and a row without any other is 0."""
    q, k, v = QUERY, KEY, VALUE
    mask = np.broadcast_to(np.arange(KEYS) < 4, (BATCH, HEADS, QUERIES, KEYS)).astype(np.int32)
    mask[0, 1, 2] = 0
    settings: dict[str, Any] = {"scale": 0.4, "query_head_count": HEADS, "key_value_head_count": HEADS, "device": device}
    found = eager.multihead_attention1(
        q, k, v, mask_tensor=mask, mask_type=MaskType.BOOLEAN, mask_filter_value=-np.inf, **settings
    )
    short = eager.multihead_attention1(q, np.ascontiguousarray(k[:, :4]), np.ascontiguousarray(v[:, :4]), **settings)
    nothing = found[0, 2, SIZE : 2 * SIZE].copy()
    np.testing.assert_array_equal(nothing, np.zeros(SIZE))
    found[0, 2, SIZE : 2 * SIZE] = short[0, 2, SIZE : 2 * SIZE]
    np.testing.assert_allclose(found, short, rtol=0, atol=1e-6)


def test_a_score_beyond_float32(device: dmlvk.Device, torch: ModuleType) -> None:
    """An infinite score makes its row NaN, one of -infinity leaves its key out, as in PyTorch."""
    q = np.array([[[1, 2], [-1, -2], [0.5, -1]]], np.float32)
    k, v = np.array([[[1, 1], [2, 0.5]]], np.float32), np.array([[[1, 2], [3, 4]]], np.float32)
    found = eager.multihead_attention1(q, k, v, scale=3e38, query_head_count=1, key_value_head_count=1, device=device)
    wanted = torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), scale=3e38).numpy()
    assert np.isnan(wanted[0, 0]).all() and not wanted[0, 1].any() and np.isfinite(wanted[0, 2]).all()
    np.testing.assert_array_equal(found, wanted)


def test_a_row_of_masked_keys_keeps_its_order(device: dmlvk.Device) -> None:
    """MaskFilterValue is added, not set: with all keys masked the weights are those of no mask, but for the rounding of
    scores near -10000, half a unit of 2^-10."""
    settings: dict[str, Any] = {"scale": 0.4, "query_head_count": HEADS, "key_value_head_count": HEADS, "device": device}
    found = eager.multihead_attention1(
        QUERY, KEY, VALUE, mask_tensor=ints(0, 0).reshape(1, 2), mask_type=MaskType.KEY_SEQUENCE_LENGTH, **settings
    )
    np.testing.assert_allclose(found, eager.multihead_attention1(QUERY, KEY, VALUE, **settings), rtol=0, atol=5e-3)


def test_sequences_without_padding(device: dmlvk.Device) -> None:
    """Each sequence as if it were alone, wherever it lies among the rows; rows of none are 0."""
    lengths, query_bounds, key_bounds = (5, 2, 4), (1, 4, 4, 11), (0, 6, 9, 15)
    q, k, v = random(3, 5, HIDDEN), random(3, 6, HIDDEN), random(3, 6, HIDDEN, seed=1)
    settings: dict[str, Any] = {"scale": 0.4, "query_head_count": HEADS, "key_value_head_count": HEADS, "device": device}
    found = eager.multihead_attention1(
        q,
        k,
        v,
        mask_tensor=ints(*lengths, *query_bounds, *key_bounds),
        mask_type=MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END,
        **settings,
    ).reshape(15, HIDDEN)
    rows, keys, values = q.reshape(15, HIDDEN), k.reshape(18, HIDDEN), v.reshape(18, HIDDEN)
    expected = np.zeros_like(rows)
    for entry, length in enumerate(lengths):
        first = query_bounds[entry]
        last, start = min(query_bounds[entry + 1], first + 5), key_bounds[entry]
        if first < last:
            own = (rows[first:last], keys[start : start + length], values[start : start + length])
            expected[first:last] = eager.multihead_attention1(*(x[None] for x in own), **settings)[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", ["split", BLOCKS, "tiles", "naive"])
def test_one_tensor_for_queries_keys_and_values(device: dmlvk.Device, rule: str) -> None:
    """The very same desc, bound to the same bytes."""
    x = random(1, 130, 16)
    tensor = TensorDesc(TensorDataType.FLOAT32, x.shape)
    desc = dmlvk.MultiheadAttention(
        query_tensor=tensor, key_tensor=tensor, value_tensor=tensor, output_tensor=tensor, scale=0.25, head_count=1
    )
    assert rule in possible_rules(desc, device.capabilities)
    source, output = device.create_buffer(x.nbytes), device.create_buffer(x.nbytes)
    source.write(x)
    slots = [None if slot.tensor is None else BufferBinding(source) for slot in desc.input_slots()]
    commands = device.create_command_list()
    ReadyOperator(device, desc, rule).record(commands, slots, [BufferBinding(output), None, None])
    device.execute(commands)
    scores = np.exp(x[0].astype(np.float64) @ x[0].T * 0.25)
    expected = scores / scores.sum(axis=1, keepdims=True) @ x[0]
    np.testing.assert_allclose(output.read().view(np.float32).reshape(130, 16), expected, rtol=0, atol=2e-6)


class OfWords:
    """A rule for float16 rows of {heads, rows, size}, of one entry, that runs as often as wanted."""

    def __init__(
        self, device: dmlvk.Device, rule: str, q: Array, k: Array, v: Array, scale: float, added: Array | None = None
    ) -> None:
        heads, queries, _ = q.shape

        def joined(x: Array) -> Array:
            return np.ascontiguousarray(x.astype(np.float16).transpose(1, 0, 2)).reshape(1, x.shape[1], -1)

        given = [joined(x) for x in (q, k, v)] + ([] if added is None else [added.astype(np.float16)[None]])
        tensors = [TensorDesc(TensorDataType.FLOAT16, x.shape) for x in given]
        desc = dmlvk.MultiheadAttention1(
            query_tensor=tensors[0],
            key_tensor=tensors[1],
            value_tensor=tensors[2],
            relative_position_bias_tensor=None if added is None else tensors[3],
            output_tensor=TensorDesc(TensorDataType.FLOAT16, (1, queries, heads * v.shape[2])),
            scale=scale,
            query_head_count=heads,
            key_value_head_count=heads,
        )
        if rule not in possible_rules(desc, device.capabilities):
            pytest.skip(f"{rule} is not possible here")
        buffers = [device.create_buffer(x.nbytes) for x in given]
        for buffer, x in zip(buffers, given, strict=True):
            buffer.write(x)
        left = iter(buffers)
        slots = [None if slot.tensor is None else BufferBinding(next(left)) for slot in desc.input_slots()]
        self._device, self._sizes = device, (queries, heads, v.shape[2])
        self._output = device.create_buffer(2 * heads * queries * v.shape[2])
        self._commands = device.create_command_list()
        outputs = [BufferBinding(self._output), None, None]
        ReadyOperator(device, desc, rule).record(self._commands, slots, outputs)

    def run(self) -> Array:
        """What it makes, in place of NaN."""
        self._output.write(np.full(self._sizes, np.nan, np.float16))
        self._device.execute(self._commands)
        return self._output.read().view(np.float16).reshape(self._sizes).transpose(1, 0, 2)


def of_words(
    device: dmlvk.Device, rule: str, q: Array, k: Array, v: Array, scale: float, added: Array | None = None
) -> tuple[Array, Array]:
    """What a rule makes of float16 rows of {heads, rows, size}, of one entry, and what is right."""
    return OfWords(device, rule, q, k, v, scale, added).run(), exactly(q, k, v, scale, added)


def exactly(q: Array, k: Array, v: Array, scale: float, added: Array | None = None) -> Array:
    """What is right for float16 rows of {heads, rows, size}."""
    wide = [x.astype(np.float16).astype(np.float64) for x in (q, k, v)]
    scores = scale * wide[0] @ wide[1].transpose(0, 2, 1)
    if added is not None:
        scores += added.astype(np.float16)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    quotient: Array = weights / weights.sum(axis=2, keepdims=True) @ wide[2]
    return quotient


OF_MATRICES = tuple(name for way in ATTENTION_SHAPES for name in (way, f"{way} split"))


@pytest.mark.parametrize("rule", [*OF_MATRICES, "blocks", "tiles", "split"])
@pytest.mark.parametrize("added", [False, True])
def test_scores_that_rise_from_tile_to_tile(device: dmlvk.Device, rule: str, added: bool) -> None:
    """Each tile of keys has scores far above those before it, up to 2^36 times the weight, more than float16 holds: peaks
    are raised, or all is done again with the highest. Where a bias rises so, and not the products, that is the same."""
    rise = np.linspace(0, 25, 200)
    q, k, v = np.abs(random(2, 70, 24)), random(2, 200, 24, seed=1), random(2, 200, 24, seed=2)
    if added:
        found, expected = of_words(device, rule, q, k, v, 0.1, random(2, 70, 200) + rise)
    else:
        q[:, :, 0], k[:, :, 0] = 1.0, rise
        found, expected = of_words(device, rule, q, k, v, 1.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("rule", [*OF_MATRICES, "blocks", "tiles", "split"])
@pytest.mark.parametrize("first", [5, 70, 190])
def test_first_keys_that_a_finite_mask_leaves_out(device: dmlvk.Device, rule: str, first: int) -> None:
    """As a tokenizer pads on the left: float16's lowest number is added to scores, and makes no peak that others are held
    to. Of one head all keys are so."""
    q, k, v, relative = random(2, 70, 32), random(2, 200, 32, seed=1), random(2, 200, 32, seed=2), random(2, 70, 200, seed=3)
    relative[:, :, :first] = relative[1] = -65504
    found, expected = of_words(device, rule, q, k, v, 1.0, relative)
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=2e-3 * np.abs(expected[0]).max())
    # Powers of 2 near 94,500 are 2^-7 apart in float32, and a score is rounded to that up to three times.
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-2 * np.abs(expected[1]).max())


@pytest.mark.parametrize("rows", [7, 100])
def test_products_in_blocks_of_queries(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Of 23 queries, which are no whole number of blocks of 7: with a bias, of one head of keys for two of queries, and in
    float16 where there are matrices."""
    monkeypatch.setattr(attention_lowering, "_SCORES_BYTES", 4 * 2 * 40 * rows)
    monkeypatch.setattr(attention_lowering, "_LEAST_BLOCK", 1)
    q, k, v, added = random(1, 23, 2 * 24), random(1, 40, 24, seed=1), random(1, 40, 24, seed=2), random(1, 2, 23, 40)
    scores = np.einsum("qhd,kd->hqk", q.reshape(23, 2, 24).astype(np.float64), k[0]) * 0.2 + added[0]
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    expected = np.einsum("hqk,kd->qhd", weights / weights.sum(axis=2, keepdims=True), v[0]).reshape(1, 23, 48)
    tensors = [TensorDesc(TensorDataType.FLOAT32, x.shape) for x in (q, k, v, added)]
    desc = dmlvk.MultiheadAttention1(
        query_tensor=tensors[0],
        key_tensor=tensors[1],
        value_tensor=tensors[2],
        relative_position_bias_tensor=tensors[3],
        output_tensor=tensors[0],
        scale=0.2,
        query_head_count=2,
        key_value_head_count=1,
    )
    buffers = [device.create_buffer(x.nbytes) for x in (q, k, v, added)]
    for buffer, x in zip(buffers, (q, k, v, added), strict=True):
        buffer.write(x)
    left = iter(buffers)
    slots = [None if slot.tensor is None else BufferBinding(next(left)) for slot in desc.input_slots()]
    output = device.create_buffer(q.nbytes)
    operator = ReadyOperator(device, desc, "products")
    assert len(operator.compiled.plan.dispatches) == 3 * (4 if rows == 7 else 1)
    commands = device.create_command_list()
    operator.record(commands, slots, [BufferBinding(output), None, None])
    commands.submit()
    np.testing.assert_allclose(output.read().view(np.float32).reshape(expected.shape), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("keys", [64, 131])
def test_products_of_wide_heads_in_float16(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    """Scores are float32: of float16 ones up to 40 a weight would be 2 % off."""
    q, k, v = 2 * random(2, 50, 264), 2 * random(2, keys, 264, seed=1), random(2, keys, 264, seed=2)
    monkeypatch.setattr(attention_lowering, "_LEAST_BLOCK", 1)
    for block in (1 << 28, 4 * 2 * keys * 17):
        monkeypatch.setattr(attention_lowering, "_SCORES_BYTES", block)
        found, expected = of_words(device, "products", q, k, v, 264**-0.5)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("rule", OF_MATRICES)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("size", [24, 64, 80, 128, 160, 192])
def test_every_shape_of_matrices(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, rule: str, added: bool, size: int
) -> None:
    """Each shape that the device has room for, chosen or not, and the same bits each time."""
    q, k, v = random(2, 75, size), random(2, 300, size, seed=1), random(2, 300, size, seed=2)
    relative = random(2, 75, 300, seed=3) if added else None
    expected = exactly(q, k, v, size**-0.5, relative)
    run = 0
    way = rule.split()[0]
    for shape in ATTENTION_SHAPES[way]:
        with monkeypatch.context() as patch:
            patch.setitem(ATTENTION_SHAPES, way, (shape,))
            try:
                operator = OfWords(device, rule, q, k, v, size**-0.5, relative)
            except pytest.skip.Exception:
                continue
        found = operator.run()
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3 * np.abs(expected).max(), err_msg=str(shape))
        for _ in range(3):
            np.testing.assert_array_equal(operator.run(), found, err_msg=str(shape))
        run += 1
    if not run:
        pytest.skip(f"{rule} is not possible here")


@pytest.mark.parametrize(
    "shape",
    [
        *ATTENTION_BLOCKS,
        pytest.param(AttentionBlock(48, 16, widest=128, time=1.0), marks=pytest.mark.full),
        AttentionBlock(64, 32, widest=128, time=1.0),
    ],
    ids=lambda shape: f"{shape.rows}x{shape.keys}",
)
@pytest.mark.parametrize(
    ("size", "value_size"),
    [
        (15, 15),
        *(
            pytest.param(*sizes, marks=pytest.mark.full)
            for sizes in [(8, 8), (12, 16), *((n, n) for n in (24, 64, 90, 128))]
        ),
    ],
)
def test_every_shape_of_blocks(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, shape: AttentionBlock, size: int, value_size: int
) -> None:
    """Rows, keys and elements that are whole tiles and that are not, and scores that rise from tile to tile."""
    monkeypatch.setattr(tiles, "ATTENTION_BLOCKS", (shape,))
    keys = 2 * shape.keys + 7
    q, k, v = random(1, 150, 2 * size), random(1, keys, 2 * size, seed=1), random(1, keys, 2 * value_size, seed=2)
    k *= np.linspace(0.1, 5, keys)[:, np.newaxis]
    desc = dmlvk.MultiheadAttention1(
        query_tensor=TensorDesc(TensorDataType.FLOAT32, q.shape),
        key_tensor=TensorDesc(TensorDataType.FLOAT32, k.shape),
        value_tensor=TensorDesc(TensorDataType.FLOAT32, v.shape),
        output_tensor=TensorDesc(TensorDataType.FLOAT32, (1, 150, 2 * value_size)),
        scale=size**-0.5,
        query_head_count=2,
        key_value_head_count=2,
    )
    if "blocks" not in possible_rules(desc, device.capabilities):
        pytest.skip("this shape is not possible here")
    values = {"query_tensor": q, "key_tensor": k, "value_tensor": v}
    inputs = bound_inputs(device, desc, values)
    output = device.create_buffer(desc.tensor("output_tensor").total_tensor_size_in_bytes)
    commands = device.create_command_list()
    ReadyOperator(device, desc, "blocks").record(commands, inputs, [BufferBinding(output), None, None])
    device.execute(commands)
    found = output.read().view(np.float32).reshape(150, 2, value_size)
    heads = [x.astype(np.float64).reshape(x.shape[1], 2, -1).swapaxes(0, 1) for x in (q, k, v)]
    scores = heads[0] @ heads[1].swapaxes(1, 2) * size**-0.5
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    expected = (weights / weights.sum(axis=2, keepdims=True) @ heads[2]).swapaxes(0, 1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    "ends", [None, (1.0, 0.0, 400.0), (1000.0, 700.0, 1000.0), (-1000.0, 700.0, 1000.0), (-1000.0, 1000.0, 700.0)], ids=str
)
@pytest.mark.parametrize("sizes", [(64, 64), (96, 96), (128, 128), (32, 64), (128, 96)])
@pytest.mark.parametrize("rule", OF_MATRICES)
def test_peaks_far_from_the_first_tiles(
    device: dmlvk.Device, rule: str, ends: tuple[float, float, float] | None, sizes: tuple[int, int]
) -> None:
    """Rows and keys that are no whole tiles, with peaks behind the first tile whose weights no float16 holds, or so high or
    low that one number of float16 does not say them, and the same bits each time."""
    q, k = random(3, 150, sizes[0]), random(3, 203, sizes[0], seed=1)
    v = random(3, 203, sizes[1], seed=2)
    if ends is not None:
        q[:, :, 0], k[:, :, 0] = ends[0], np.linspace(*ends[1:], 203)
    operator, expected = OfWords(device, rule, q, k, v, sizes[0] ** -0.5), exactly(q, k, v, sizes[0] ** -0.5)
    found = operator.run()
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3 * np.abs(expected).max())
    for _ in range(3):
        np.testing.assert_array_equal(operator.run(), found)


@pytest.mark.parametrize("rule", [*OF_MATRICES, "blocks", "tiles", "split"])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("size", [64, pytest.param(128, marks=pytest.mark.full)])
def test_the_same_bits_where_all_processors_are_busy(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, rule: str, added: bool, size: int
) -> None:
    """Several workgroups for each processor: what depends on how they take turns has other bits in one of 30 runs. With as
    few workgroups as the other tests have, it may not. A CPU's driver is slow, and gets little of it."""
    heads, runs = (2, 2) if device.capabilities.is_cpu else (2 * device.capabilities.model.processors, 30)
    q, k, v = random(heads, 256, size), random(heads, 320, size, seed=1), random(heads, 320, size, seed=2)
    relative = random(heads, 256, 320, seed=3) if added else None
    shapes = ATTENTION_SHAPES[rule.split()[0]] if rule in OF_MATRICES else (None,)
    run = 0
    for shape in shapes:
        with monkeypatch.context() as patch:
            if shape is not None:
                patch.setitem(ATTENTION_SHAPES, rule.split()[0], (shape,))
            try:
                operator = OfWords(device, rule, q, k, v, size**-0.5, relative)
            except pytest.skip.Exception:
                continue
        first = operator.run().view(np.uint16)
        assert not np.isnan(first.view(np.float16)).any(), shape
        for _ in range(runs - 1):
            np.testing.assert_array_equal(operator.run().view(np.uint16), first, err_msg=str(shape))
        run += 1
    if not run:
        pytest.skip(f"{rule} is not possible here")
