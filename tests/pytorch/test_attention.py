"""Attention and the layers of transformers, compiled and not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import dmlvk.torch

attend = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


def _close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("where", ["cpu", "dmlvk"])
@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("is_added", [True, False], ids=["added", "bool"])
def test_a_row_that_sees_nothing_is_zero_and_so_are_its_gradients(where: str, is_compiled: bool, is_added: bool) -> None:
    mask = torch.rand(2, 1, 5, 5) > 0.4
    mask[0, 0, 2] = False
    if is_added:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    parts = [torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(3)]
    own = [part.detach().to(where).requires_grad_() for part in parts]
    function = torch.compile(attend, backend=dmlvk.torch.backend) if is_compiled else attend
    wanted, found = attend(*parts, attn_mask=mask), function(*own, attn_mask=mask.to(where))
    assert not found[0, :, 2].cpu().any()
    _close(found, wanted)
    weights = torch.randn(wanted.shape)
    wanted.backward(weights), found.backward(weights.to(where))
    for item, other in zip(own, parts, strict=True):
        assert item.grad is not None and other.grad is not None
        _close(item.grad, other.grad)


def test_attention_without_a_mask_is_few_launches() -> None:
    """One product, one softmax, one product, and with a mask of what comes later its number at each place."""
    parts = [torch.randn(2, 4, 5, 8).to("dmlvk") for _ in range(3)]
    launches = []
    for is_causal in (False, True):
        compiled = torch.compile(lambda q, k, v, is_causal=is_causal: attend(q, k, v, is_causal=is_causal), backend="dmlvk")
        _close(compiled(*parts), attend(*(part.cpu() for part in parts), is_causal=is_causal))
        launches.append(dmlvk.torch.report().graphs[-1].dispatches)
    assert launches == [3, 3]


@pytest.mark.parametrize("heads", [1, 2])
def test_shared_keys_and_dropout_are_taken(heads: int) -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, heads, 6, 8), torch.randn(2, heads, 6, 8)
    compiled = torch.compile(lambda *own: attend(*own, enable_gqa=True), backend="dmlvk")
    _close(compiled(*(item.to("dmlvk") for item in (q, k, v))), attend(q, k, v, enable_gqa=True))
    dropped = torch.compile(lambda *own: attend(*own, dropout_p=0.5), backend="dmlvk")
    assert dropped(*(item.to("dmlvk") for item in (q, q, q))).isfinite().all().item()


@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("kind", ["none", "bool", "added", "causal"])
@pytest.mark.parametrize(
    ("query", "key"),
    [
        pytest.param((2, 4, 5, 8), (2, 1, 5, 8), id="one head of keys"),
        pytest.param((2, 4, 5, 8), (1, 4, 5, 8), id="one batch of keys"),
        pytest.param((2, 5, 8), (2, 5, 8), id="no heads"),
        pytest.param((3, 2, 4, 5, 8), (3, 2, 4, 5, 8), id="two batches"),
        pytest.param((4, 2, 5, 8), (1, 5, 8), id="fewer dimensions"),
    ],
)
def test_sizes_that_broadcast_and_their_gradients(
    query: tuple[int, ...], key: tuple[int, ...], kind: str, is_compiled: bool
) -> None:
    mask = torch.rand(5, 5) > 0.4
    mask[:, 0] = True
    given: dict[str, Any] = {"is_causal": True} if kind == "causal" else {}
    if kind in ("bool", "added"):
        given["attn_mask"] = mask if kind == "bool" else torch.randn(5, 5)
    parts = [torch.randn(sizes, requires_grad=True) for sizes in (query, key, key)]
    own = [part.detach().to("dmlvk").requires_grad_() for part in parts]
    options = {name: item.to("dmlvk") if isinstance(item, torch.Tensor) else item for name, item in given.items()}
    function = torch.compile(attend, backend=dmlvk.torch.backend) if is_compiled else attend
    found, wanted = function(*own, **options), attend(*parts, **given)
    _close(found, wanted)
    weights = torch.randn(wanted.shape)
    wanted.backward(weights), found.backward(weights.to("dmlvk"))
    for item, other in zip(own, parts, strict=True):
        assert item.grad is not None and other.grad is not None
        _close(item.grad, other.grad)


@pytest.mark.parametrize("where", ["cpu", "dmlvk"])
@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu"}], ids=["after", "first"])
@pytest.mark.parametrize("kind", ["none", "words", "keys"])
def test_an_encoder_in_evaluation_is_pytorchs(where: str, options: dict[str, Any], kind: str) -> None:
    """PyTorch calls operators of a whole layer there, where nothing asks for gradients."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, **options)
    reference = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    model = copy.deepcopy(reference).to(where)
    masks: dict[str, torch.Tensor] = {}
    if kind == "words":
        masks["mask"] = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    if kind == "keys":
        masks["src_key_padding_mask"] = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        found = torch.compile(model, backend="dmlvk")(x.to(where), **{name: own.to(where) for name, own in masks.items()})
        _close(found, reference(x, **masks))


@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("is_asked", [True, False])
def test_multihead_attention_in_evaluation_is_pytorchs(is_asked: bool, is_compiled: bool) -> None:
    reference = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    model, x = copy.deepcopy(reference).to("dmlvk"), torch.randn(2, 5, 8)
    with torch.no_grad():
        own = x.to("dmlvk")
        function = torch.compile(model, backend="dmlvk") if is_compiled else model
        found, shares = function(own, own, own, need_weights=is_asked)
        wanted, parts = reference(x, x, x, need_weights=is_asked)
    _close(found, wanted)
    assert (shares is None) == (parts is None)
    if parts is not None:
        _close(shares, parts)
