"""A network of the size and the parts of Stable Diffusion 1's, which takes noise out of pictures: 860 million parameters."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import torch
from torch.nn import functional

Tensor: TypeAlias = Any

_WIDTHS: Final = (320, 640, 1280, 1280)
"""Channels at each of four sizes, the largest first; all but the last size look at words."""
_CONTEXT: Final = 768
_HEADS: Final = 8
_TIME: Final = 1280
_GROUPS: Final = 32


class _Residual(torch.nn.Module):  # type: ignore[misc]  # of a class without types, where PyTorch is not installed
    """Two convolutions, between which the time is added."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.before, self.first = torch.nn.GroupNorm(_GROUPS, inputs), torch.nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = torch.nn.Linear(_TIME, outputs)
        self.between, self.second = torch.nn.GroupNorm(_GROUPS, outputs), torch.nn.Conv2d(outputs, outputs, 3, padding=1)
        self.around = torch.nn.Conv2d(inputs, outputs, 1) if inputs != outputs else torch.nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.first(functional.silu(self.before(x))) + self.time(functional.silu(time))[:, :, None, None]
        return self.around(x) + self.second(functional.silu(self.between(y)))


class _Attention(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.query = torch.nn.Linear(width, width, bias=False)
        self.key, self.value = (torch.nn.Linear(context, width, bias=False) for _ in range(2))
        self.back = torch.nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        heads = (own(given) for own, given in ((self.query, x), (self.key, context), (self.value, context)))
        query, key, value = (own.unflatten(-1, (_HEADS, -1)).transpose(1, 2) for own in heads)
        return self.back(functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


class _Words(torch.nn.Module):  # type: ignore[misc]
    """Pixels look at each other, then at words, and are fed forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.before = torch.nn.GroupNorm(_GROUPS, width), torch.nn.Conv2d(width, width, 1)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(3))
        self.own, self.others = _Attention(width, width), _Attention(width, _CONTEXT)
        self.wide, self.narrow = torch.nn.Linear(width, 8 * width), torch.nn.Linear(4 * width, width)
        self.after = torch.nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        pixels = self.before(self.norm(x)).flatten(2).transpose(1, 2)
        first, second, third = self.norms
        pixels = pixels + self.own(first(pixels), first(pixels))
        pixels = pixels + self.others(second(pixels), context)
        value, gate = self.wide(third(pixels)).chunk(2, -1)
        pixels = pixels + self.narrow(value * functional.gelu(gate))
        return x + self.after(pixels.transpose(1, 2).reshape(x.shape))


class UNet(torch.nn.Module):  # type: ignore[misc]
    """The noise in pictures {batch, 4, side, side}, given the embedding of a time {batch, 320} and words {batch, n, 768}."""

    def __init__(self) -> None:
        super().__init__()
        self.time = torch.nn.Sequential(torch.nn.Linear(_WIDTHS[0], _TIME), torch.nn.SiLU(), torch.nn.Linear(_TIME, _TIME))
        self.first = torch.nn.Conv2d(4, _WIDTHS[0], 3, padding=1)
        self.down, self.up = torch.nn.ModuleList(), torch.nn.ModuleList()
        kept, width = [_WIDTHS[0]], _WIDTHS[0]
        for level, wanted in enumerate(_WIDTHS):
            for _ in range(2):
                self.down.append(_level(width, wanted, words=level < len(_WIDTHS) - 1))
                width = wanted
                kept.append(width)
            if level < len(_WIDTHS) - 1:
                self.down.append(torch.nn.Conv2d(width, width, 3, stride=2, padding=1))
                kept.append(width)
        self.middle = torch.nn.ModuleList((_Residual(width, width), _Words(width), _Residual(width, width)))
        for level, wanted in reversed(list(enumerate(_WIDTHS))):
            for _ in range(3):
                self.up.append(_level(width + kept.pop(), wanted, words=level < len(_WIDTHS) - 1))
                width = wanted
            if level:
                self.up.append(torch.nn.Conv2d(width, width, 3, padding=1))
        self.norm, self.last = torch.nn.GroupNorm(_GROUPS, width), torch.nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
        time = self.time(time)
        x = self.first(x)
        kept = [x]
        for part in self.down:
            x = part(x) if isinstance(part, torch.nn.Conv2d) else _followed(part, x, time, context)
            kept.append(x)
        first, words, second = self.middle
        x = second(words(first(x, time), context), time)
        for part in self.up:
            if isinstance(part, torch.nn.Conv2d):
                x = part(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
            else:
                x = _followed(part, torch.cat([x, kept.pop()], dim=1), time, context)
        return self.last(functional.silu(self.norm(x)))


def _level(inputs: int, outputs: int, *, words: bool) -> Any:
    return torch.nn.ModuleList((_Residual(inputs, outputs), *([_Words(outputs)] if words else [])))


def _followed(parts: Any, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
    residual, *words = parts
    x = residual(x, time)
    return words[0](x, context) if words else x
