"""Whole networks of torchvision and transformers, by the tool that fills the page of architectures."""

from __future__ import annotations

import pytest

torch_architectures = pytest.importorskip("torch_architectures", reason="tools/ is not on the path")
pytest.importorskip("transformers")


@pytest.mark.full
@pytest.mark.parametrize("kind", ["inference", "training"])
@pytest.mark.parametrize("name", ["BertModel", "LlamaForCausalLM", "T5Model", "ViTModel", "mobilenet_v2", "convnext_tiny"])
def test_an_architecture_is_right_and_one_graph(name: str, kind: str) -> None:
    torch_architectures.define_missing()
    if name.islower():
        pytest.importorskip("torchvision")
    found = torch_architectures.tried(name, kind)
    assert (found["state"], found["graphs"]) == ("right", 1)
