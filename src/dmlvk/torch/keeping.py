"""Tensors of the device in copies of objects, in files, and in modules that are moved.

PyTorch makes these of a tensor's storage, byte by byte, which it cannot read here. So a copy of an object gets a clone, a
file gets a tensor of the processor's memory with a note of the device, and a module that moves gets one new parameter for
one old.
"""

from __future__ import annotations

import copyreg
import functools
import threading
from collections.abc import Callable
from typing import Any, Final

import torch

from dmlvk.torch.memory import is_on_device, to_host


def install() -> None:
    """Has PyTorch's classes do so for tensors of the device; nothing changes for others."""
    deepcopy, apply = torch.Tensor.__deepcopy__, torch.nn.Module._apply

    @functools.wraps(deepcopy)
    def copied(tensor: torch.Tensor, memo: dict[int, Any]) -> Any:
        return _copied(tensor, memo) if is_on_device(tensor) else deepcopy(tensor, memo)

    @functools.wraps(apply)
    def applied(module: torch.nn.Module, *args: Any, **options: Any) -> Any:
        with _MOVED:
            return _MOVED.applied(module, functools.partial(apply, module, *args, **options))

    torch.Tensor.__deepcopy__ = copied
    torch.nn.Module._apply = applied
    copyreg.pickle(torch.Tensor, _reduced)


def _copied(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """A clone for a copy of an object, the same one wherever the object has the tensor."""
    if id(tensor) in memo:
        found: torch.Tensor = memo[id(tensor)]
        return found
    if not tensor.is_leaf:
        raise RuntimeError("only a tensor that the user has made can be copied by deepcopy; detach() it first")
    made = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    memo[id(tensor)] = made
    if tensor.grad is not None:
        made.grad = _copied(tensor.grad, memo)
    return made


def _reduced(tensor: torch.Tensor) -> Any:
    """What a file has of a tensor. Its function is one of those that ``torch.load`` takes from any file."""
    if type(tensor) is not torch.Tensor or not is_on_device(tensor):
        return tensor.__reduce_ex__(2)
    own = (to_host(tensor.detach()), tensor.dtype, str(tensor.device), tensor.requires_grad)
    return torch._utils._rebuild_device_tensor_from_cpu_tensor, own


class _Moved(threading.local):
    """The tensors that a module which is being moved had, each with what it has become."""

    def __init__(self) -> None:
        self._depth = 0
        self._pairs: dict[int, tuple[Any, Any]] = {}

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._pairs.clear()

    def applied(self, module: torch.nn.Module, apply: Callable[[], Any]) -> Any:
        """Moves a module, and then has it share the tensors that it shared with others before."""
        held = [(own, {**own}) for own in (module._parameters, module._buffers)]
        found = apply()
        for own, before in held:
            for name, old in before.items():
                new = own.get(name)
                if new is None or new is old or not (is_on_device(new) or is_on_device(old)):
                    continue
                _, shared = self._pairs.setdefault(id(old), (old, new))
                own[name] = shared
        return found


_MOVED: Final = _Moved()
