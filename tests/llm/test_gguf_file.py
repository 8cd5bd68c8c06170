"""What is read of GGUF files, and what is refused. No device is needed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from language_models import MODELS, dequantized, write_model

import dmlvk
from dmlvk.llm.gguf_file import load_gguf
from dmlvk.llm.tensors import check_tensors

PLAIN = (5000.0 ** -(np.arange(8) / 8)).tolist()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_each_architecture_is_read(tmp_path: Path, name: str) -> None:
    weights = load_gguf(write_model(tmp_path / "model.gguf", name))
    check_tensors(weights)
    config, keys = weights.config, MODELS[name]
    assert (config.architecture.name, config.layers, config.width) == (name, keys["block_count"], keys["embedding_length"])
    assert config.head_size == keys.get("attention.key_length", 16)
    assert len(config.windows) == len(config.rotations) == config.layers


def test_windows_and_rotations_are_those_of_a_layer(tmp_path: Path) -> None:
    assert load_gguf(write_model(tmp_path / "two.gguf", "gemma2")).config.windows == (5, 0)
    assert load_gguf(write_model(tmp_path / "phi.gguf", "phi3")).config.windows == (6, 6)
    three = load_gguf(write_model(tmp_path / "three.gguf", "gemma3")).config
    assert three.windows == (4, 4, 4, 4, 4, 0, 4)
    bases = [rotation.frequencies[1] ** -16 for rotation in three.rotations]
    np.testing.assert_allclose(bases, [1e4] * 5 + [1e6 * 8**16] + [1e4], rtol=1e-6)


@pytest.mark.parametrize(
    ("keys", "frequencies", "scale"),
    [
        pytest.param({"type": "linear", "factor": 4.0}, np.array(PLAIN) / 4, 1.0, id="linear"),
        pytest.param(  # as transformers has them
            {"type": "yarn", "factor": 4.0, "original_context_length": 32},
            [1.0, 0.21553053, 0.029730178, 0.010252417, 0.003535534, 0.0012192247, 0.0004204482, 0.00014499106],
            1.138629436111989,
            id="yarn",
        ),
    ],
)
def test_rotations_are_scaled(tmp_path: Path, keys: dict[str, Any], frequencies: list[float], scale: float) -> None:
    more = {f"rope__scaling__{key}": value for key, value in keys.items()}
    rotation = load_gguf(write_model(tmp_path / "model.gguf", "llama", **more)).config.rotations[0]
    np.testing.assert_allclose(rotation.frequencies, frequencies, rtol=1e-6)
    assert rotation.scale == pytest.approx(scale)


def test_factors_of_rotations_are_tensors(tmp_path: Path) -> None:
    factors = np.linspace(1, 8, 8, dtype=np.float32)
    path = write_model(tmp_path / "model.gguf", "llama", rope_freqs=factors)
    np.testing.assert_allclose(load_gguf(path).config.rotations[0].frequencies, PLAIN / factors, rtol=1e-6)
    short, long = np.full(6, 2, np.float32), np.full(6, 5, np.float32)
    more = {"rope__scaling__original_context_length": 16, "rope_factors_short": short, "rope_factors_long": long}
    rotation = load_gguf(write_model(tmp_path / "phi.gguf", "phi3", **more)).config.rotations[0]
    for capacity, factor in ((16, 2), (17, 5)):
        cosines, _ = rotation.tables(capacity)
        np.testing.assert_allclose(cosines[1], np.cos(10000.0 ** -(np.arange(6) / 6) / factor), rtol=1e-6)


def test_a_model_in_several_files_is_one(tmp_path: Path) -> None:
    whole = load_gguf(write_model(tmp_path / "whole.gguf", "llama", "Q4_0"))
    names = [*whole.tensors]
    for part, own in enumerate((names[:5], names[5:]), 1):
        writer = gguf.GGUFWriter(tmp_path / f"model-{part:05}-of-00002.gguf", "llama")
        for key, value in whole.metadata.items() if part == 1 else ():
            if key.startswith("llama."):
                (writer.add_uint32 if isinstance(value, int) else writer.add_float32)(key, value)
        for name in own:
            tensor = whole.tensors[name]
            data = tensor.data.reshape(tensor.sizes[0], -1) if len(tensor.sizes) > 1 else tensor.data.view(np.float32)
            writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[tensor.type])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    parts = load_gguf(tmp_path / "model-00001-of-00002.gguf")
    check_tensors(parts)
    for name in names:
        np.testing.assert_array_equal(dequantized(parts.tensors[name]), dequantized(whole.tensors[name]))


def test_a_vocabulary_is_read_as_the_package_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["a", "Ġthe", "", "日本"])
    writer.add_token_scores([0.5, -1.0, 2.0, 0.0])
    writer.add_array("nothing", [])
    for key, value in MODELS["llama"].items():
        (writer.add_uint32 if isinstance(value, int) else writer.add_float32)(f"llama.{key}", value)
    writer.add_tensor("token_embd.weight", np.zeros((4, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    theirs = gguf.GGUFReader(path)
    assert dict(load_gguf(path).metadata) == {key: field.contents() for key, field in theirs.fields.items()}


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_gguf(tmp_path / "none.gguf")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(write_model(tmp_path / "model.gguf", "llama").read_bytes()[:700])
    with pytest.raises(dmlvk.ModelError, match="no GGUF file that can be read"):
        load_gguf(broken)
    with pytest.raises(dmlvk.UnsupportedError, match="'llama' with experts is not supported"):
        load_gguf(write_model(tmp_path / "model.gguf", "llama", expert_count=8))
    text = (tmp_path / "model.gguf").read_bytes().replace(b"llama", b"alpac")
    broken.write_bytes(text)
    with pytest.raises(dmlvk.UnsupportedError, match="architecture 'alpac' is not supported, only llama, qwen2"):
        load_gguf(broken)


def test_a_tensor_too_many_or_too_few_is_refused(tmp_path: Path) -> None:
    more = load_gguf(write_model(tmp_path / "more.gguf", "llama", other=np.zeros(4, np.float32)))
    with pytest.raises(dmlvk.UnsupportedError, match=r"architecture llama with other\.weight"):
        check_tensors(more)
    fewer = load_gguf(write_model(tmp_path / "fewer.gguf", "qwen3"))
    del fewer.tensors["blk.1.attn_q_norm.weight"]  # type: ignore[attr-defined]
    with pytest.raises(dmlvk.ModelError, match=r"has no tensor blk\.1\.attn_q_norm\.weight"):
        check_tensors(fewer)
    other = load_gguf(write_model(tmp_path / "other.gguf", "llama", feed_forward_length=64))
    del other.tensors["output.weight"]  # type: ignore[attr-defined]
    object.__setattr__(other.config, "hidden", 96)
    with pytest.raises(dmlvk.ModelError, match=r"ffn_down\.weight must have the sizes \(64, 96\); got \(64, 64\)"):
        check_tensors(other)


def test_a_type_without_a_kernel_is_refused(tmp_path: Path) -> None:
    weights = load_gguf(write_model(tmp_path / "model.gguf", "llama"))
    name = "blk.0.ffn_up.weight"
    for kind, wrong in (("IQ4_XS", name), ("Q4_0", "output_norm.weight")):
        tensors = weights.tensors | {wrong: dataclasses.replace(weights.tensors[wrong], type=kind)}  # type: ignore[operator]
        with pytest.raises(dmlvk.UnsupportedError, match=f"tensor {wrong} has the format {kind}; there are kernels for"):
            check_tensors(dataclasses.replace(weights, tensors=tensors))
