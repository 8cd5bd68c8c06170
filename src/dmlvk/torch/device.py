"""What PyTorch runs of tensors on its device ``dmlvk`` outside of ``torch.compile``: each operator as a graph of its own.

A few operators make and copy memory, and are here. Each other one becomes a graph of core operators, once for each set of
sizes, and runs as compiled ones do, by the same converters.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from dmlvk.engine.default_device import default_device
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.engine.single_operators import packed
from dmlvk.engine.transfer import tensor_bytes
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.tensor import packed_strides
from dmlvk.torch import keeping
from dmlvk.torch.calls import DeviceGraph
from dmlvk.torch.decompositions import decompositions
from dmlvk.torch.memory import (
    array_of,
    as_strided,
    device_tensor,
    held,
    is_on_device,
    lying,
    on_host,
    register,
    tensor_of,
    to_device,
    to_host,
)
from dmlvk.torch.types import stored_as

_KEPT: Final = 512
"""Graphs of single operators that are kept; the one unused longest goes first."""


def _empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: object = None,
    device: object = None,
    pin_memory: object = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    strides = packed_strides(tuple(size))
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        strides = torch.empty(tuple(size), device="meta", memory_format=memory_format).stride()
    return _empty_strided(size, strides, dtype=dtype)


def _empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: object = None,
    device: object = None,
    pin_memory: object = None,
) -> torch.Tensor:
    kind = dtype or torch.get_default_dtype()
    span = 0 if 0 in size else 1 + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    nbytes = tensor_bytes((span,), data_type_of(stored_as(kind)))
    opened = default_device()
    return device_tensor(opened, opened.create_buffer(nbytes), kind, size, stride, nbytes)


def _view(tensor: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta").view(size)
    return as_strided(tensor, tuple(meta.shape), meta.stride(), tensor.storage_offset())


def _reshape_alias(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    return as_strided(tensor, size, stride, tensor.storage_offset())


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copies elements, between the host and the device too."""
    if not is_on_device(target):
        target.copy_(to_host(source))
        return target
    if source.numel() == 0:
        return target
    if is_on_device(source):
        return _run(torch.ops.aten.copy_.default, (target, source), {})
    source = source.detach().to(target.dtype).expand(target.shape)
    order, _, is_packed = lying(target)
    if is_packed:
        place = array_of(target)
        place.buffer.write(np.ascontiguousarray(on_host(source.permute(order))), place.offset)
        return target
    return _run(torch.ops.aten.copy_.default, (target, to_device(source, held(target).device)), {})


def _item(tensor: torch.Tensor) -> Any:
    return to_host(tensor).item()


# -- operators as graphs


class _Operator:
    """An operator for arguments of certain types and sizes.

    Args:
        device: The device.
        target: The operator.
        args, options: Its arguments; of tensors types and sizes matter.
    """

    def __init__(self, device: ComputeDevice, target: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        leaves, tree = pytree.tree_flatten((args, options))
        places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.returns_arguments = any(item.alias_info is not None for item in target._schema.returns)

        def function(*tensors: torch.Tensor) -> Any:
            own = [*leaves]
            for index, tensor in zip(places, tensors, strict=True):
                own[index] = tensor
            given, named = pytree.tree_unflatten(own, tree)
            made = target(*given, **named)
            return () if self.returns_arguments else made

        tensors = [leaves[place] for place in places]
        samples = [torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device="meta") for own in tensors]
        self.shape: Any = None
        module = _traced(function, samples, self)
        self.graph = DeviceGraph(device, module, "operator", 0, binds=True)


def _traced(function: Callable[..., Any], samples: Sequence[torch.Tensor], operator: _Operator) -> fx.GraphModule:
    """The graph of a function of tensors, in which only inputs are changed; its outputs in one list."""

    def flat(*tensors: torch.Tensor) -> list[Any]:
        leaves, operator.shape = pytree.tree_flatten(function(*tensors))
        return list(leaves)

    whole = torch.func.functionalize(flat, remove="mutations_and_views")
    module: fx.GraphModule = make_fx(whole, decomposition_table=decompositions(), tracing_mode="fake")(*samples)
    return module


class _Operators(NamedTuple):
    """The operators of a device that have run."""

    device: ComputeDevice
    known: OrderedDict[Any, _Operator]


_operators: list[_Operators] = []
"""Those of the default device: one, once there is one."""


def _known_operators() -> _Operators:
    """Of the default device's; after a loss that is another one, and none are known."""
    device = default_device()
    if not _operators or _operators[0].device is not device:
        _operators[:] = [_Operators(device, OrderedDict())]
    return _operators[0]


def _key(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return (torch.Tensor, leaf.dtype, tuple(leaf.shape), tuple(leaf.stride()))
    return (type(leaf), leaf)


def _run(target: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Runs an operator on the device."""
    options = {name: value for name, value in options.items() if name not in ("device", "pin_memory", "layout")}
    leaves, tree = pytree.tree_flatten((args, options))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    written = _written(target, args, options)
    gapped = {id(tensor): packed_copy(tensor) for tensor in written if not _is_whole(tensor)}
    given = [gapped.get(id(tensor), tensor) for tensor in tensors]
    substitute = iter(given)
    key = (target, tree, *(_key(next(substitute) if isinstance(leaf, torch.Tensor) else leaf) for leaf in leaves))
    device, operators = _known_operators()
    known = operators.get(key)
    if known is None:
        substitute = iter(given)
        replaced = [next(substitute) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        known = _Operator(device, target, *pytree.tree_unflatten(replaced, tree))
        operators[key] = known
        while len(operators) > _KEPT:
            operators.popitem(last=False)
    operators.move_to_end(key)
    results = known.graph([*given])
    for tensor in written:
        if id(tensor) in gapped:
            array_of(tensor)[...] = array_of(gapped[id(tensor)])
    if known.returns_arguments:
        return written[0] if len(written) == 1 else tuple(written)
    return pytree.tree_unflatten(results, known.shape)


def packed_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A packed copy of a tensor of the device, there."""
    return tensor_of(packed(array_of(tensor)), tensor.dtype)


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether a graph can be bound to a tensor's memory."""
    return not is_on_device(tensor) or (lying(tensor).is_packed and array_of(tensor).is_bindable)


def _written(target: Any, args: tuple[Any, ...], options: dict[str, Any]) -> list[torch.Tensor]:
    """The arguments that an operator changes."""
    found = []
    for place, argument in enumerate(target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else options.get(argument.name)
            found += [value] if isinstance(value, torch.Tensor) else list(value or ())
    return found


def _fallback(target: Any, *args: Any, **options: Any) -> Any:
    return _run(target, args, options)


@functools.cache
def install() -> tuple[torch.library.Library, ...]:
    """Makes ``dmlvk`` a device of PyTorch on which operators run; the libraries are to be kept."""
    register()
    own, rest = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    kernels: dict[str, Callable[..., Any]] = {
        "empty.memory_format": _empty,
        "empty_strided": _empty_strided,
        "as_strided": as_strided,
        "view": _view,
        "_reshape_alias": _reshape_alias,
        "_copy_from": _copy_from,
        "_copy_from_and_resize": _copy_from,
        "_local_scalar_dense": _item,
    }
    for name, function in kernels.items():
        own.impl(name, function, "PrivateUse1")
    rest.fallback(_fallback, "PrivateUse1")
    keeping.install()
    return own, rest
