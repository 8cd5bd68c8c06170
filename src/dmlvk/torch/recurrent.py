"""Recurrent networks of tensors on the device.

PyTorch knows two kinds of devices here: those whose cells are made of products, and those with fused cells of their own, for
which it takes each other device. A sequence without gradients is one operator of the device for each layer instead; with
gradients, and single cells, are the operators that PyTorch's documentation writes down.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import linear

_LAYERS: Final = (
    "(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, bool bidirectional, bool batch_first)"
)
_TYPES: Final = (torch.float32, torch.float16)


def _is_one_operator(input: Tensor, states: Sequence[Tensor], params: Sequence[Tensor], dropped: bool) -> bool:
    """Whether a sequence is the device's own operator: nothing asks for gradients, nothing is dropped at random between
    layers, states are as wide as what a step makes, and there is something to compute."""
    given = (input, *states, *params)
    needs_gradients = torch.is_grad_enabled() and any(own.requires_grad for own in given)
    is_plain = len({own.dtype for own in given}) == 1 and input.dtype in _TYPES and input.dim() == 3 and input.numel() > 0
    are_alike = all(own.shape == states[0].shape for own in states)
    return is_plain and are_alike and not needs_gradients and not dropped


def _sequence(
    name: str,
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """PyTorch's operator of a name, whose one state is a tensor, and whose several are a list."""
    states = [hx] if isinstance(hx, Tensor) else hx
    if _is_one_operator(input, states, params, dropout > 0 and train):
        own = getattr(torch.ops.dmlvk, name)
        return own(input, states, params, has_biases, num_layers, bidirectional, batch_first)
    taken_apart = getattr(torch.ops.aten, name).input.decompose
    return taken_apart(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def _lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    opened, kept, new, shown = (linear(input, w_ih, b_ih) + linear(hx[0], w_hh, b_hh)).chunk(4, -1)
    cell = kept.sigmoid() * hx[1] + opened.sigmoid() * new.tanh()
    return shown.sigmoid() * cell.tanh(), cell


def _gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    reset, update, new = linear(input, w_ih, b_ih).chunk(3, -1)
    own_reset, own_update, own_new = linear(hx, w_hh, b_hh).chunk(3, -1)
    candidate = (new + (reset + own_reset).sigmoid() * own_new).tanh()
    return candidate + (update + own_update).sigmoid() * (hx - candidate)


def _made(count: int) -> Callable[..., tuple[Tensor, ...]]:
    """What a sequence gives, without elements: all states of the last layer, and the last ones of all layers."""

    def made(
        input: Tensor,
        hx: Sequence[Tensor],
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        states = input.new_empty((*input.shape[:2], hx[0].shape[-1] * (2 if bidirectional else 1)))
        return states, *(input.new_empty(hx[0].shape) for _ in range(count))

    return made


def install() -> tuple[torch.library.Library, ...]:
    """Gives PyTorch's device its own functions of these; the libraries are to be kept."""
    defined, own = torch.library.Library("dmlvk", "DEF"), torch.library.Library("aten", "IMPL")
    defined.define(f"lstm{_LAYERS} -> (Tensor, Tensor, Tensor)")
    defined.define(f"gru{_LAYERS} -> (Tensor, Tensor)")
    defined.impl("lstm", _made(2), "Meta")
    defined.impl("gru", _made(1), "Meta")
    functions = {
        "lstm.input": functools.partial(_sequence, "lstm"),
        "gru.input": functools.partial(_sequence, "gru"),
        "lstm.data": torch.ops.aten.lstm.data.decompose,
        "gru.data": torch.ops.aten.gru.data.decompose,
        "lstm_cell": _lstm_cell,
        "gru_cell": _gru_cell,
    }
    for name, function in functions.items():
        for key in ("AutogradPrivateUse1", "PrivateUse1"):
            own.impl(name, function, key)
    return defined, own
