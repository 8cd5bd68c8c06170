"""Recurrent networks on the device: a layer an operator without gradients, what PyTorch documents with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import dmlvk.torch
from dmlvk.torch.device import _known_operators

NETWORKS = {
    "LSTM, both directions": (torch.nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "LSTM": (torch.nn.LSTM, {"bias": False}),
    "GRU, both directions": (torch.nn.GRU, {"bidirectional": True}),
    "GRU": (torch.nn.GRU, {"num_layers": 3, "batch_first": True, "bias": False}),
    "RNN": (torch.nn.RNN, {"bidirectional": True, "nonlinearity": "relu"}),
}


def leaves(value: Any) -> list[torch.Tensor]:
    return [value.cpu()] if isinstance(value, torch.Tensor) else [leaf for item in value for leaf in leaves(item)]


def assert_close(found: Any, wanted: Any, allowed: float = 1e-6) -> None:
    for own, exact in zip(leaves(found), leaves(wanted), strict=True):
        torch.testing.assert_close(own, exact, rtol=allowed, atol=allowed)


@pytest.mark.parametrize("learns", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", NETWORKS)
def test_sequences(name: str, learns: bool) -> None:
    make, options = NETWORKS[name]
    torch.manual_seed(0)
    model, x = make(6, 20, **options), torch.randn(3, 5, 6)
    with torch.set_grad_enabled(learns):
        wanted = model(x)
        gradients = torch.autograd.grad(wanted[0].square().sum(), list(model.parameters())) if learns else ()
        model.to("dmlvk")
        found = model(x.to("dmlvk"))
        assert_close(found, wanted)
        if learns:
            found[0].square().sum().backward()
            assert_close([own.grad for own in model.parameters()], gradients, 1e-5)


@pytest.mark.parametrize("make", [torch.nn.LSTM, torch.nn.GRU])
def test_a_sequence_without_gradients_is_a_layer_an_operator(make: Any) -> None:
    model, x = make(6, 20, num_layers=2).to("dmlvk"), torch.randn(17, 2, 6).to("dmlvk")
    with torch.no_grad():
        model(x)
    _, operators = _known_operators()
    own = getattr(torch.ops.dmlvk, make.__name__.lower()).default
    newest = list(operators.items())[-1]
    assert newest[0][0] is own, "nothing came after it"
    assert newest[1].graph.account.dispatches <= 2 * (17 + 8), "a step of a layer, and its weights in order"


def test_what_the_operator_has_not_is_computed_all_the_same() -> None:
    torch.manual_seed(0)
    x, lengths = torch.randn(5, 3, 6), torch.tensor([5, 3, 2])
    projected = torch.nn.LSTM(6, 20, proj_size=4)
    with torch.no_grad():
        wanted = projected(x)
        assert_close(projected.to("dmlvk")(x.to("dmlvk")), wanted)
        for make in (torch.nn.LSTM, torch.nn.GRU):
            model = make(6, 20, bidirectional=True)
            wanted = pad_packed_sequence(model(pack_padded_sequence(x, lengths))[0])[0]
            model.to("dmlvk")
            assert_close(pad_packed_sequence(model(pack_padded_sequence(x.to("dmlvk"), lengths))[0])[0], wanted)


def test_halves_and_a_sequence_alone() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.LSTM(6, 20), torch.randn(5, 6)
    with torch.inference_mode():
        wanted = model(x)
        assert_close(model.to("dmlvk").half()(x.to("dmlvk").half()), [own.half() for own in leaves(wanted)], 1e-3)


@pytest.mark.parametrize("make", [torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell])
def test_cells(make: Any) -> None:
    torch.manual_seed(0)
    cell, x = make(6, 20), torch.randn(3, 6)
    wanted = cell(x)
    cell.to("dmlvk")
    assert_close(cell(x.to("dmlvk")), wanted)
    assert_close(torch.compile(cell, backend=dmlvk.torch.backend)(x.to("dmlvk")), wanted)


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
def test_a_compiled_network_may_have_one(dynamic: bool) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.states, self.end = torch.nn.GRU(6, 20, batch_first=True), torch.nn.Linear(20, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.end(self.states(x * 2)[0][:, -1]))

    torch.manual_seed(0)
    model, x = Net(), torch.randn(3, 5, 6)
    with torch.no_grad():
        wanted = model(x)
        model.to("dmlvk")
        assert_close(torch.compile(model, backend=dmlvk.torch.backend)(x.to("dmlvk")), wanted)
        torch.compiler.reset()
        with torch._dynamo.config.patch(allow_rnn=True):
            whole = torch.compile(model, backend=dmlvk.torch.backend, fullgraph=True, dynamic=dynamic)
            assert_close(whole(x.to("dmlvk")), wanted)
