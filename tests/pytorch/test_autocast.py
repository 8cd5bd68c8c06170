"""Training in half precision: ``torch.autocast("dmlvk")`` and the scale of the loss; checkpoints with dropout."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dmlvk.torch


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_the_types_that_pytorch_documents(dtype: torch.dtype, is_compiled: bool) -> None:
    model = torch.nn.Linear(8, 4)
    own = copy.deepcopy(model).to("dmlvk")

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = own(x)
        return y, y.softmax(-1), y + y, torch.addcmul(x, x.to(y.dtype), x)

    x = torch.randn(3, 8)
    with torch.autocast("dmlvk", dtype=dtype):
        function = torch.compile(function, backend=dmlvk.torch.backend) if is_compiled else function
        found = function(x.to("dmlvk"))
    assert [item.dtype for item in found] == [dtype, torch.float32, dtype, torch.float32]
    y = torch.nn.functional.linear(x.to(dtype), model.weight.to(dtype), model.bias.to(dtype))
    torch.testing.assert_close(found[0].cpu(), y, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(found[1].cpu(), found[0].cpu().float().softmax(-1))
    assert own(x.to("dmlvk")).dtype is torch.float32  # outside


def test_autocast_trains_parameters_of_float32() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.LayerNorm(4)).to("dmlvk")
    with torch.autocast("dmlvk", dtype=torch.bfloat16):
        loss = torch.compile(model, backend=dmlvk.torch.backend)(torch.randn(3, 8).to("dmlvk")).square().mean()
    loss.backward()
    assert {item.grad.dtype for item in model.parameters() if item.grad is not None} == {torch.float32}


def test_the_scale_of_the_loss_shrinks_and_grows_and_infinite_gradients_change_nothing() -> None:
    model = torch.nn.Linear(8, 4).to("dmlvk")
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("dmlvk", init_scale=128.0, growth_interval=2)
    reference = copy.deepcopy(model).cpu()
    scales = []
    for factor in (1.0, float("inf"), 1.0, 1.0):
        x = torch.randn(3, 8)
        optimiser.zero_grad()
        scaler.scale((model(x.to("dmlvk")) * factor).square().mean()).backward()
        scaler.step(optimiser)
        scaler.update()
        scales.append(scaler.get_scale())
        if factor == 1.0:
            reference.zero_grad()
            reference(x).square().mean().backward()
            with torch.no_grad():
                for item in reference.parameters():
                    item -= 0.1 * item.grad
        torch.testing.assert_close(model.weight.cpu(), reference.weight, rtol=1e-5, atol=1e-6)
    assert scales == [128.0, 64.0, 64.0, 128.0]


@pytest.mark.parametrize("where", ["cpu", "dmlvk"])
def test_a_checkpoint_drops_out_the_same_in_the_backward_graph(where: str) -> None:
    layer = torch.nn.Linear(16, 16).to(where)

    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(layer(x), 0.5)

    compiled = torch.compile(lambda x: checkpoint(inner, x, use_reentrant=False), backend=dmlvk.torch.backend)
    x = torch.randn(8, 16).to(where).requires_grad_()
    y = compiled(x)
    y.backward(torch.ones_like(y))
    assert x.grad is not None
    kept = (y.detach().cpu() != 0).float() * 2
    torch.testing.assert_close(x.grad.cpu(), kept @ layer.weight.detach().cpu(), rtol=1e-5, atol=1e-5)
