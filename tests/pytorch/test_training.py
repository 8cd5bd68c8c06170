"""Training through ``torch.compile``: each step leaves what PyTorch leaves on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch

import dmlvk.torch


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize("where", ["cpu", "dmlvk"])
def test_forward_backward_and_optimiser_are_a_graph_each(where: str) -> None:
    torch.manual_seed(0)
    reference = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    model = copy.deepcopy(reference).to(where)
    models = (reference, model)
    optimisers = [torch.optim.SGD(own.parameters(), 0.1, momentum=0.9) for own in models]
    compiled = torch.compile(model, backend=dmlvk.torch.backend)
    step = torch.compile(optimisers[1].step, backend=dmlvk.torch.backend)
    for _ in range(2):
        x = torch.randn(5, 4)
        losses = [(own(batch) ** 2).mean() for own, batch in ((reference, x), (compiled, x.to(where)))]
        for loss, optimiser in zip(losses, optimisers, strict=True):
            optimiser.zero_grad()
            loss.backward()
        optimisers[0].step()
        step()
        for own, other in zip(model.parameters(), reference.parameters(), strict=True):
            assert own.device.type == where
            torch.testing.assert_close(own.cpu(), other, rtol=1e-6, atol=1e-6)


def test_what_forward_saves_stays_on_the_device() -> None:
    compiled = torch.compile(lambda x: torch.relu(x) * x, backend=dmlvk.torch.backend)
    x = torch.linspace(-1, 1, 5, requires_grad=True)
    y = compiled(x)
    assert y.device.type == "cpu"
    saved = [own for own in y.grad_fn.saved_tensors if own is not x]
    assert all(own.device.type == "dmlvk" for own in saved)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, 2 * torch.relu(x.detach()))
