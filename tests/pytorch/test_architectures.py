"""Whole networks of torchvision and transformers, by the tool that fills the page of architectures."""

from __future__ import annotations

import pytest
import torch

torch_architectures = pytest.importorskip("torch_architectures", reason="tools/ is not on the path")


@pytest.mark.full
@pytest.mark.parametrize("kind", ["inference", "training"])
@pytest.mark.parametrize("name", ["BertModel", "LlamaForCausalLM", "T5Model", "ViTModel", "mobilenet_v2", "convnext_tiny"])
def test_an_architecture_is_right_and_one_graph(name: str, kind: str) -> None:
    pytest.importorskip("torchvision" if name.islower() else "transformers")
    torch_architectures.define_missing()
    found = torch_architectures.tried(name, kind)
    assert (found["state"], found["graphs"]) == ("right", 1)


def _step(rounding: float, fault: float = 1.0) -> list[torch.Tensor]:
    """The gradients of two weights: one passes if a number is above 0, which it is not in float64, and the other always."""
    return [torch.tensor([3.0, 1.0 if rounding > 0 else 0.0]), torch.tensor([2.0 * fault, 1.0]).double()]


def test_where_a_rounding_decides_the_bound_is_that_of_moved_numbers() -> None:
    """A result that one run of float32 does not explain is right if another one is as far, and it alone is."""
    judged = torch_architectures.judged
    exact = [item.double() for item in _step(0)]
    near, far = (torch_architectures.distances(_step(rounding), exact) for rounding in (-1, 1))
    assert judged(_step(-1), near, exact) == {"state": "right", "difference": 0.0}
    assert judged(_step(1), near, exact)["state"] == "wrong"
    assert judged(_step(1), near, exact, [near] * 3) == {"state": "wrong", "difference": 0.333, "moved": 3}
    asked = iter([near, far, far])
    assert judged(_step(1), near, exact, asked) == {"state": "right", "difference": 0.0, "moved": 2}
    assert len([*asked]) == 1  # no more are run than needed
    assert judged(_step(1, fault=1.002), near, exact, [far] * 3)["state"] == "wrong"


def test_moved_numbers_are_their_neighbours() -> None:
    x = torch.linspace(-3, 3, 64)
    made = torch_architectures.moved(x, 1)
    assert torch.equal(made, torch_architectures.moved(x, 1))
    assert 10 < int((made != x).sum()) < 60
    assert bool(((made - x).abs() <= 2 * (torch.nextafter(x.abs(), torch.tensor(9.0)) - x.abs())).all())
