"""Training through ``torch.compile``: each step leaves what PyTorch leaves on the CPU."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Any

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


class _Pair:
    """A small network on the device, and the same one on the processor."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.reference = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
        self.model = copy.deepcopy(self.reference).to("dmlvk")
        self.compiled = torch.compile(self.model, backend=dmlvk.torch.backend)

    def losses(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The device's, and the processor's."""
        return (self.compiled(x.to("dmlvk")) ** 2).mean(), (self.reference(x) ** 2).mean()

    def gradients(self) -> list[tuple[torch.Tensor | None, torch.Tensor | None]]:
        """The gradients of each parameter: the device's and the processor's."""
        return [
            (own.grad, other.grad) for own, other in zip(self.model.parameters(), self.reference.parameters(), strict=True)
        ]

    def forget(self) -> None:
        self.model.zero_grad()
        self.reference.zero_grad()


def _same(pairs: Iterable[tuple[torch.Tensor | None, torch.Tensor | None]]) -> None:
    for own, other in pairs:
        assert own is not None and other is not None
        torch.testing.assert_close(own.cpu(), other, rtol=1e-6, atol=1e-6)


def test_only_the_first_step_takes_memory_for_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used again once they are gone."""
    pair = _Pair()
    made: list[int] = []
    create = dmlvk.Device.create_buffer

    def counting(self: dmlvk.Device, size_in_bytes: int, **options: Any) -> Any:
        made.append(size_in_bytes)
        return create(self, size_in_bytes, **options)

    monkeypatch.setattr(dmlvk.Device, "create_buffer", counting)
    weights = {4 * own.numel() for own in pair.model.parameters() if own.dim() == 2}
    for step in range(4):
        made.clear()
        for loss in pair.losses(torch.randn(5, 4)):
            loss.backward()
        _same(pair.gradients())
        pair.forget()
        assert (step == 0) == (weights <= {*made})
        assert step == 0 or weights.isdisjoint(made)


def test_what_is_still_there_at_the_next_step_keeps_its_elements() -> None:
    """Gradients that the user keeps, and what two forward runs save before the first backward one."""
    pair = _Pair()
    kept = []
    for _ in range(6):
        losses = [pair.losses(torch.randn(5, 4)) for _ in range(2)]
        for both in reversed(losses):
            for loss in both:
                loss.backward()
        found = pair.gradients()
        _same(found)
        kept.append([(own, other.clone()) for own, other in found if other is not None])
        pair.forget()
    for gradients in kept:
        _same(gradients)


def test_gradients_add_up_where_they_are_not_forgotten() -> None:
    pair = _Pair()
    for _ in range(6):
        for loss in pair.losses(torch.randn(5, 4)):
            loss.backward()
        _same(pair.gradients())


_SIZES = [(16, 3, 3, 3), (16,), (32, 16), (10, 32), (10,), (1,)] * 4
OPTIMISERS: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], int]] = {
    "SGD": (lambda own: torch.optim.SGD(own, 0.1), 3),
    "SGD by lists": (lambda own: torch.optim.SGD(own, 0.1, momentum=0.9, weight_decay=0.01, foreach=True), 8),
    "Adam": (lambda own: torch.optim.Adam(own, 0.01), 25),
    "Adam by lists": (lambda own: torch.optim.Adam(own, 0.01, foreach=True), 25),
    "AdamW": (lambda own: torch.optim.AdamW(own, 0.01, amsgrad=True), 30),
    "RMSprop": (lambda own: torch.optim.RMSprop(own, 0.01), 9),
}
"""Optimisers, each with the most dispatches of a step of 24 parameters: what each would have of one, some times over."""
_ALWAYS = ("SGD by lists",)
"""Those of them that are not for the full run alone: others take half a minute."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in _ALWAYS else [pytest.mark.full]) for kind in OPTIMISERS]
)
def test_an_optimiser_is_few_dispatches(kind: str) -> None:
    make, most = OPTIMISERS[kind]
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(size)) for size in _SIZES]
    theirs = [torch.nn.Parameter(own.detach().clone()) for own in ours]
    optimisers = [make(ours), make(theirs)]
    step = torch.compile(optimisers[0].step, backend=dmlvk.torch.backend)
    for _ in range(3):
        for own, other in zip(ours, theirs, strict=True):
            own.grad = torch.randn_like(own)
            other.grad = own.grad.clone()
        step()
        optimisers[1].step()
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.detach(), other.detach(), rtol=1e-5, atol=1e-5)
    graph = dmlvk.torch.report().graphs[-1]
    assert 0 < graph.dispatches <= most, f"{graph.dispatches} dispatches for {len(ours)} parameters"


@pytest.mark.full
def test_a_scheduler_may_change_the_rate() -> None:
    """PyTorch then hands over the numbers that follow from it as tensors of FLOAT64."""
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(size)) for size in _SIZES[:5]]
    theirs = [torch.nn.Parameter(own.detach().clone()) for own in ours]
    optimisers = [torch.optim.AdamW(own, 0.1) for own in (ours, theirs)]
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(own, 0.5) for own in optimisers]
    step = torch.compile(optimisers[0].step, backend=dmlvk.torch.backend)
    for _ in range(4):
        for own, other in zip(ours, theirs, strict=True):
            own.grad = torch.randn_like(own)
            other.grad = own.grad.clone()
        step()
        optimisers[1].step()
        for scheduler in schedulers:
            scheduler.step()
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.detach(), other.detach(), rtol=1e-5, atol=1e-5)
    assert len(dmlvk.torch.report().graphs) == 2, "one for the first rate, and one for all others"


MODULES: dict[str, tuple[Callable[[], torch.nn.Module], torch.Tensor]] = {
    "weight_norm": (
        lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3)),
        torch.linspace(-1, 1, 8).view(2, 4),
    ),
    **{
        f"EmbeddingBag, {mode}": (
            functools.partial(torch.nn.EmbeddingBag, 6, 3, mode=mode, padding_idx=1),
            torch.tensor([[0, 1, 2], [5, 2, 2]]),
        )
        for mode in ("sum", "mean", "max")
    },
    "BatchNorm": (
        lambda: torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)),
        torch.linspace(-3, 3, 24).view(6, 4).cos(),
    ),
}


@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("name", MODULES)
def test_gradients_of_modules_are_pytorchs(name: str, is_compiled: bool) -> None:
    torch.manual_seed(0)
    make, x = MODULES[name]
    reference = make()
    model = copy.deepcopy(reference).to("dmlvk")
    function = torch.compile(model, backend=dmlvk.torch.backend) if is_compiled else model
    found, wanted = function(x.to("dmlvk")), reference(x)
    weights = torch.linspace(-1, 2, wanted.numel()).reshape(wanted.shape)
    found.backward(weights.to("dmlvk")), wanted.backward(weights)
    torch.testing.assert_close(found.detach().cpu(), wanted.detach())
    for own, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert own.grad is not None and other.grad is not None
        torch.testing.assert_close(own.grad.cpu(), other.grad, rtol=1e-4, atol=1e-5)
    for own, other in zip(model.buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(own.cpu(), other)


def test_gradients_of_bags_by_frequency_are_those_of_their_rows() -> None:
    """PyTorch's own on the processor takes the count of another row for some, so the rows are summed by hand here."""
    weight, places = torch.linspace(-1, 1, 18).reshape(6, 3), torch.tensor([[0, 1, 2], [5, 2, 2]])
    own, other = weight.to("dmlvk").requires_grad_(), weight.clone().requires_grad_()
    bag = torch.nn.functional.embedding_bag(places.to("dmlvk"), own, mode="sum", scale_grad_by_freq=True)
    bag.sum().backward()
    torch.nn.functional.embedding(places, other, scale_grad_by_freq=True).sum().backward()
    assert own.grad is not None and other.grad is not None
    torch.testing.assert_close(own.grad.cpu(), other.grad)


def test_a_limit_of_several_tensors_at_once_is_pytorchs() -> None:
    """Optimisers ask for it, and what limits the size of gradients."""
    x = torch.linspace(-1, 1, 6)
    compiled = torch.compile(
        lambda x: torch._foreach_maximum([x], -0.25) + torch._foreach_minimum([x, x], 0.25), backend=dmlvk.torch.backend
    )
    for found, wanted in zip(
        compiled(x.to("dmlvk")), (x.clamp(min=-0.25), x.clamp(max=0.25), x.clamp(max=0.25)), strict=True
    ):
        assert torch.equal(found.cpu(), wanted)


def test_rows_of_an_embedding_are_no_longer_than_asked() -> None:
    model = torch.nn.Embedding(5, 3, max_norm=1.0)
    own, places = copy.deepcopy(model).to("dmlvk"), torch.tensor([0, 3, 3])
    torch.testing.assert_close(own(places.to("dmlvk")).cpu(), model(places))
    torch.testing.assert_close(own.weight.cpu(), model.weight)


def test_random_leaks_are_within_their_limits() -> None:
    x = -torch.ones(500)
    made = torch.compile(lambda x: torch.nn.functional.rrelu(x, 0.1, 0.3, training=True), backend="dmlvk")(
        x.to("dmlvk")
    ).cpu()
    assert -0.3 <= float(made.min()) < -0.28
    assert -0.12 < float(made.max()) <= -0.1
