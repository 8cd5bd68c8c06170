"""Decoders as ONNX Runtime's model builder writes them, token by token against ONNX Runtime's CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx
import onnxruntime
import pytest
import tokenizers
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dmlvk
from dmlvk import TensorDataType
from dmlvk.engine.transfer import to_device
from dmlvk.llm import load
from dmlvk.llm.sampling import Sampling
from dmlvk.onnx import InferenceSession
from dmlvk.spec.errors import ModelError, StateError, UnsupportedError

Array = NDArray[Any]
WIDTH, HEADS, KEY_HEADS, SIZE, VOCABULARY, LAYERS, CAPACITY = 24, 4, 2, 16, 32, 2, 20
CACHES = [f"{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]


def decoder() -> onnx.ModelProto:
    """Embedding, layers of attention and SwiGLU with residuals, logits: {1, rows} of tokens, a cache with a row for each."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(name: str, *sizes: int) -> str:
        scale = 1 if len(sizes) == 1 else sizes[0] ** -0.5
        weights.append(numpy_helper.from_array((rng.standard_normal(sizes) * scale).astype(np.float32), name))
        return name

    def add(op: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    angles = np.arange(64)[:, None] * 0.5 ** np.arange(SIZE // 2)
    tables = [numpy_helper.from_array(f(angles).astype(np.float32), name) for f, name in ((np.cos, "cos"), (np.sin, "sin"))]
    stream = add("Gather", [weight("embedding", VOCABULARY, WIDTH), "tokens"], ["embedded"])
    y = add("SimplifiedLayerNormalization", [stream, weight("first", WIDTH)], ["normed"], axis=-1, epsilon=1e-5)
    for layer in range(LAYERS):
        packed = add("MatMul", [y, weight(f"{layer}.qkv", WIDTH, (HEADS + 2 * KEY_HEADS) * SIZE)], [f"{layer}.packed"])
        caches = [f"{layer}.key", f"{layer}.value"]
        y = add(
            "GroupQueryAttention",
            [packed, "", "", *(f"past.{name}" for name in caches), "seqlens_k", "total", "cos", "sin"],
            [f"{layer}.attended", *(f"present.{name}" for name in caches)],
            "com.microsoft",
            num_heads=HEADS,
            kv_num_heads=KEY_HEADS,
            do_rotary=1,
            local_window_size=6 if layer else -1,
        )
        for part, width in (("attention", HEADS * SIZE), ("feed", 2 * WIDTH)):
            if part == "feed":
                gate, up = (
                    add("MatMul", [y, weight(f"{layer}.{k}", WIDTH, width)], [f"{layer}.{k}d"]) for k in ("gate", "up")
                )
                sigmoid = add("Sigmoid", [gate], [f"{layer}.sigmoid"])
                y = add("Mul", [add("Mul", [gate, sigmoid], [f"{layer}.silu"]), up], [f"{layer}.product"])
            y = add("MatMul", [y, weight(f"{layer}.{part}.out", width, WIDTH)], [f"{layer}.{part}.added"])
            outputs = [f"{layer}.{part}.norm", "", "", f"{layer}.{part}.stream"]
            inputs = [stream, y, weight(f"{layer}.{part}.scale", WIDTH)]
            y = add("SkipSimplifiedLayerNormalization", inputs, outputs, "com.microsoft", epsilon=1e-5)
            stream = outputs[3]
    add("MatMul", [y, weight("head", WIDTH, VOCABULARY)], ["logits"])
    floats, ints = TensorProto.FLOAT, TensorProto.INT32
    cache = [1, KEY_HEADS, None, SIZE]
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, None]),
            helper.make_tensor_value_info("seqlens_k", ints, [1]),
            helper.make_tensor_value_info("total", ints, []),
            *(helper.make_tensor_value_info(f"past.{name}", floats, cache) for name in CACHES),
        ],
        [
            helper.make_tensor_value_info("logits", floats, [1, None, VOCABULARY]),
            *(helper.make_tensor_value_info(f"present.{name}", floats, cache) for name in CACHES),
        ],
        [*weights, *tables],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def scalars(tokens: Array, total: int) -> dict[str, Array]:
    return {"tokens": tokens[None], "seqlens_k": np.array([total - 1], np.int32), "total": np.array(total, np.int32)}


@pytest.fixture(scope="module")
def expected() -> tuple[onnx.ModelProto, Array, list[Array]]:
    """The model, its tokens, and ONNX Runtime's logits of a prompt of 5 and of each token behind it."""
    model = decoder()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, 13)
    caches = [np.zeros((1, KEY_HEADS, 0, SIZE), np.float32)] * len(CACHES)
    found = []
    for start, end in ((0, 5), *((at, at + 1) for at in range(5, 13))):
        past = {f"past.{name}": cache for name, cache in zip(CACHES, caches, strict=True)}
        logits, *caches = session.run(None, {**scalars(tokens[start:end], end), **past})
        found.append(logits)
    return model, tokens, found


def test_a_cache_that_is_bound_once_is_written_in_place(
    device: dmlvk.Device, expected: tuple[onnx.ModelProto, Array, list[Array]]
) -> None:
    """Past and present are one buffer with room for every row, as onnxruntime-genai binds them: a token makes no plan, and
    copies no cache."""
    model, tokens, wanted = expected
    session = InferenceSession(model, device=device)
    binding = session.io_binding()
    caches = {
        name: to_device(device, np.full((1, KEY_HEADS, CAPACITY, SIZE), np.nan, np.float32), TensorDataType.FLOAT32)
        for name in CACHES
    }
    reports = []
    for start, logits in zip((0, *range(5, 13)), wanted, strict=True):
        end = start + logits.shape[1]
        for name, array in scalars(tokens[start:end], end).items():
            binding.bind_cpu_input(name, array)
        for name, array in caches.items():
            binding.bind_input(f"past.{name}", array)
            binding.bind_output(f"present.{name}", array)
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.results["logits"].numpy(), logits, rtol=1e-4, atol=1e-4)
        reports.append(session.report())
    assert {report.plans for report in reports[1:]} == {2}
    assert len({report.dispatches for report in reports[1:]}) == 1
    assert {report.host_reads for report in reports} == {0}
    attention = [step.kernels for step in session.report().steps if step.operator == "CachedAttention"]
    assert attention == [("attention_step",)] * LAYERS, "nothing is copied to the cache"
    assert session.report().largest_live_bytes < caches["0.key"].nbytes, "no cache lies in the arena"
    assert not np.isnan(caches["1.value"].numpy()[:, :, :13]).any() and np.isnan(caches["1.value"].numpy()[:, :, 13:]).all()


@pytest.mark.parametrize("bound", [False, True])
def test_a_cache_that_grows(device: dmlvk.Device, expected: tuple[onnx.ModelProto, Array, list[Array]], bound: bool) -> None:
    """Present tensors of their own have one row more for each token, or room for all."""
    model, tokens, wanted = expected
    session = InferenceSession(model, device=device)
    caches = [np.zeros((1, KEY_HEADS, CAPACITY if bound else 0, SIZE), np.float32)] * len(CACHES)
    for start, logits in list(zip((0, *range(5, 13)), wanted, strict=True))[: 9 if bound else 3]:
        end = start + logits.shape[1]
        past = {f"past.{name}": cache for name, cache in zip(CACHES, caches, strict=True)}
        found, *caches = session.run(None, {**scalars(tokens[start:end], end), **past})
        np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-4)
        assert caches[0].shape[2] == (CAPACITY if bound else end)


def builders_folder(folder: Path) -> Path:
    """The model with the names and the inputs of ONNX Runtime's builder: lengths follow from a mask."""
    model = decoder()
    names = {"tokens": "input_ids"} | {f"past.{name}": f"past_key_values.{name}" for name in CACHES}
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    inputs = [item for item in model.graph.input if item.name not in ("seqlens_k", "total")]
    del model.graph.input[:]
    for item in inputs:
        item.name = names.get(item.name, item.name)
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, [1, None])
    model.graph.input.extend([*inputs, mask])
    for name, value in (("one", np.array([1])), ("index", np.array(1))):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    before = [
        helper.make_node("ReduceSum", ["attention_mask", "one"], ["sums"], keepdims=0),
        helper.make_node("Sub", ["sums", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["seqlens_k"], to=TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "index"], ["rows"]),
        helper.make_node("Cast", ["rows"], ["total"], to=TensorProto.INT32),
    ]
    nodes = [*before, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, folder / "model.onnx")
    own = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    own |= {f"past_{part}_names": f"past_key_values.%d.{part}" for part in ("key", "value")}
    said = {
        "filename": "model.onnx",
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KEY_HEADS,
        "head_size": SIZE,
        "inputs": own,
        "outputs": {"logits": "logits", **{f"present_{part}_names": f"present.%d.{part}" for part in ("key", "value")}},
    }
    config = {"vocab_size": VOCABULARY, "context_length": 40, "eos_token_id": VOCABULARY - 1, "decoder": said}
    (folder / "genai_config.json").write_text(json.dumps({"model": config}))
    words = {f"w{number}": number for number in range(VOCABULARY)}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}))
    return folder


def test_a_folder_of_the_model_builder(
    device: dmlvk.Device,
    expected: tuple[onnx.ModelProto, Array, list[Array]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its logits are ONNX Runtime's, it chooses the best tokens, what it has read it does not read again, and a step that
    was interrupted has chosen none."""
    _, tokens, wanted = expected
    model = load(builders_folder(tmp_path), device, capacity=20)
    prompt = tokens.tolist()
    np.testing.assert_allclose(model.logits(prompt), np.concatenate(wanted, axis=1)[0], rtol=1e-4, atol=1e-4)
    first = list(model.generate(prompt, 4, ignore_ends=True))
    assert model.usage.reused_tokens == 0  # logits leave nothing in the cache
    assert list(model.generate(prompt, 4, ignore_ends=True)) == first
    assert model.usage.reused_tokens == len(prompt) - 1
    assert first[0] == wanted[-1][0, -1].argmax()
    for index, token in enumerate(first):
        assert token == model.logits([*prompt, *first[:index]])[-1].argmax()
    drawn = [list(model.generate(prompt, 4, ignore_ends=True, temperature=2.0, seed=seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    own: Any = model.decoder
    assert own._session.report().plans <= 3 and own._session.report().host_reads == 0, "a token makes no plan"
    chat = list(model.chat([{"role": "user", "content": "w5"}], 1, ignore_ends=True))
    assert chat == list(model.generate("w5", 1, ignore_ends=True))
    with monkeypatch.context() as patched:
        patched.setattr("dmlvk.llm.onnx_decoder.sampling_words", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            own.step([Sampling()], [5])
    with pytest.raises(StateError, match="needs tokens"):
        own.step([Sampling()])
    assert list(model.generate(prompt, 4, ignore_ends=True)) == first


def test_folders_that_are_refused(device: dmlvk.Device, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"genai_config\.json"):
        load(tmp_path, device)
    with pytest.raises(UnsupportedError, match="one sequence"):
        load(tmp_path, device, sequences=2)
