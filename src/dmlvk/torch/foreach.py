"""PyTorch's operators on lists of tensors, which its optimisers use: one operator for each tensor of the lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

_SINGLE: Final[dict[str, Callable[..., Any]]] = {
    "_foreach_norm": torch.linalg.vector_norm,
    "_foreach_max": torch.ops.aten.max.default,
    "_foreach_clone": torch.ops.aten.clone.default,
    "_foreach_copy": lambda target, source, non_blocking=False: torch.ops.aten.copy.default(target, source),
    "_foreach_maximum": lambda x, y: torch.ops.aten.maximum(x, y) if isinstance(y, torch.Tensor) else x.clamp(min=y),
    "_foreach_minimum": lambda x, y: torch.ops.aten.minimum(x, y) if isinstance(y, torch.Tensor) else x.clamp(max=y),
    "_foreach_zero": torch.ops.aten.zeros_like.default,
    "_foreach_addcmul": lambda x, a, b, value=1: x + a * b * value,
    "_foreach_addcdiv": lambda x, a, b, value=1: x + a / b * value,
    "_foreach_add": lambda x, y, alpha=1: torch.ops.aten.add(x, y) if alpha == 1 else torch.ops.aten.add(x, y, alpha=alpha),
    "_foreach_sub": lambda x, y, alpha=1: torch.ops.aten.sub(x, y) if alpha == 1 else torch.ops.aten.sub(x, y, alpha=alpha),
}
"""Operators of one tensor that are no operator of the same name, or take their numbers by another."""


def _names() -> Iterator[str]:
    """The names of all operators on lists that change nothing."""
    schemas = torch._C._jit_get_all_schemas()
    names = {schema.name.removeprefix("aten::") for schema in schemas if schema.name.startswith("aten::_foreach_")}
    return iter(sorted(name for name in names if not name.endswith("_")))


def _each(name: str, has_numbers_in_tensor: bool) -> Callable[..., list[Any]]:
    single = _SINGLE.get(name)
    if single is None:
        single = getattr(torch.ops.aten, name.removeprefix("_foreach_"), None)
    assert single is not None, f"{name} has an operator of one tensor"

    def decomposed(*args: Any, **options: Any) -> list[Any]:
        count = next(len(given) for given in args if isinstance(given, list | tuple))

        def own(index: int, given: Any, place: int) -> Any:
            is_numbers = has_numbers_in_tensor and place == len(args) - 1 and isinstance(given, torch.Tensor)
            return given[index] if isinstance(given, list | tuple) or is_numbers else given

        return [single(*(own(index, given, place) for place, given in enumerate(args)), **options) for index in range(count)]

    return decomposed


def foreach_decompositions() -> dict[Any, Callable[..., Any]]:
    """A decomposition for each operator on lists that has an operator of one tensor."""
    table = {}
    for name in _names():
        packet = getattr(torch.ops.aten, name)
        if name in _SINGLE or hasattr(torch.ops.aten, name.removeprefix("_foreach_")):
            for overload in packet.overloads():
                if not overload.endswith("out"):
                    takes_numbers = name in ("_foreach_addcmul", "_foreach_addcdiv") and overload == "Tensor"
                    table[getattr(packet, overload)] = _each(name, takes_numbers)
    return table
