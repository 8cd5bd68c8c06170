"""Inputs that a graph changes while something still needs what they held, and outputs that share memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dmlvk.torch

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


def _copied_then_changed(a: torch.Tensor, b: torch.Tensor) -> Any:
    kept = a.clone()
    a.add_(b, alpha=0.5)
    b.sub_(a)
    return kept


def _turned_then_changed(a: torch.Tensor, b: torch.Tensor) -> Any:
    kept = a.t().clone()
    a.add_(1)
    return kept, kept.t().reshape(-1), a * b


def _given_to_another(a: torch.Tensor, b: torch.Tensor) -> Any:
    kept = a.clone()
    a.mul_(2)
    b.copy_(kept)
    return kept


def _swapped(a: torch.Tensor, b: torch.Tensor) -> Any:
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)


def _part_then_cleared(a: torch.Tensor, b: torch.Tensor) -> Any:
    kept = a[1:].clone()
    a.zero_()
    return kept


FUNCTIONS = (_copied_then_changed, _turned_then_changed, _given_to_another, _swapped, _part_then_cleared)


@pytest.mark.parametrize("where", ["cpu", "dmlvk"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_an_input_held_is_returned_or_moved_though_it_is_changed(function: Function, where: str) -> None:
    compiled = torch.compile(function, backend=dmlvk.torch.backend)
    for run in range(2):
        own = [torch.arange(12.0).reshape(3, 4) + run, torch.linspace(-1, 1, 12).reshape(3, 4)]
        given = [item.clone().to(where) for item in own]
        wanted, found = function(*own), compiled(*given)
        pairs = [*zip(given, own, strict=True)]
        if wanted is not None:
            pairs += zip(*((item if isinstance(item, tuple) else (item,)) for item in (found, wanted)), strict=True)
        for item, other in pairs:
            assert torch.equal(item.cpu(), other)


def test_a_step_of_nesterov_leaves_the_momentum_that_pytorch_leaves() -> None:
    """The first step keeps a clone of each gradient as its momentum, and then changes the gradient."""
    torch.manual_seed(0)
    reference = torch.nn.Linear(4, 3)
    models = (reference, copy.deepcopy(reference).to("dmlvk"))
    optimisers = [torch.optim.SGD(own.parameters(), 0.1, momentum=0.9, nesterov=True) for own in models]
    steps = (optimisers[0].step, torch.compile(optimisers[1].step, backend=dmlvk.torch.backend))
    for _ in range(2):
        x = torch.randn(2, 4)
        for model, step in zip(models, steps, strict=True):
            model.zero_grad()
            model(x.to(model.weight.device)).square().sum().backward()
            step()
        for own, other in zip(models[1].parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(own.cpu(), other, rtol=1e-6, atol=1e-6)
    (momentum, *_) = (state["momentum_buffer"] for state in optimisers[1].state.values())
    (wanted, *_) = (state["momentum_buffer"] for state in optimisers[0].state.values())
    torch.testing.assert_close(momentum.cpu(), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("where", ["cpu", "dmlvk"])
def test_outputs_that_are_views_of_another_share_its_memory(where: str) -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        return y.t(), y, y[1:], y

    found = torch.compile(function, backend=dmlvk.torch.backend)(torch.arange(12.0).reshape(3, 4).to(where))
    wanted = function(torch.arange(12.0).reshape(3, 4))
    found[1].add_(1), wanted[1].add_(1)
    for own, other in zip(found, wanted, strict=True):
        assert (own.shape, own.stride()) == (other.shape, other.stride())
        assert torch.equal(own.cpu(), other)


@pytest.mark.parametrize("where", ["cpu", "dmlvk"])
@pytest.mark.parametrize("part", [(slice(None), slice(2, 5)), (slice(1, 3), slice(None)), (0, slice(1, None))])
def test_views_with_gaps_are_changed_where_they_lie(part: Any, where: str) -> None:
    whole = torch.arange(48.0).reshape(6, 8)
    own = whole.clone().to(where)
    whole[part].add_(1)
    compiled = torch.compile(lambda x: x.add_(1), backend=dmlvk.torch.backend)
    compiled(own[part])
    assert torch.equal(own.cpu(), whole)


@pytest.mark.parametrize("where", ["cpu", "dmlvk"])
def test_tensors_of_inference_mode_are_changed(where: str) -> None:
    compiled = torch.compile(lambda x: x.add_(1), backend=dmlvk.torch.backend)
    with torch.inference_mode():
        x = torch.arange(3.0).to(where)
        compiled(x), compiled(x)
        assert torch.equal(x.cpu(), torch.arange(3.0) + 2)
