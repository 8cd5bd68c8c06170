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
import torch._dynamo
from torch import fx
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from dmlvk.engine.default_device import default_device
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.engine.transfer import tensor_bytes
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.tensor import packed_strides
from dmlvk.torch import autocast, backward, keeping, recurrent
from dmlvk.torch.attention import attention
from dmlvk.torch.calls import DeviceGraph
from dmlvk.torch.composites import composites
from dmlvk.torch.counted import KERNELS, whole_indices
from dmlvk.torch.decompositions import decompositions
from dmlvk.torch.memory import (
    array_of,
    as_strided,
    device_tensor,
    held,
    is_on_device,
    lying,
    on_host,
    packed_copy,
    register,
    set_memory,
    to_device,
    to_host,
)
from dmlvk.torch.types import stored_as
from dmlvk.torch.whole import kept_whole

_GENERATOR: Final = "random numbers of a generator are not supported; they follow from torch.manual_seed"
_TELLS_SIZES: Final = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
"""The keys of kernels that PyTorch's compiler learns sizes from. Without one it would run the operator to see them."""
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


def _unfold(tensor: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    if not tensor.dim():
        return as_strided(tensor, [size], [1], tensor.storage_offset())
    axis = dimension % tensor.dim()
    sizes, strides = list(tensor.shape), list(tensor.stride())
    sizes[axis], strides[axis] = (sizes[axis] - size) // step + 1, step * strides[axis]
    return as_strided(tensor, [*sizes, size], [*strides, tensor.stride(axis)], tensor.storage_offset())


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
        if source.dtype == target.dtype and source.shape == target.shape:
            array_of(target)[...] = array_of(source)  # without a graph: PyTorch copies a program's constants while it traces
            return target
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
    try:
        with kept_whole():
            module: fx.GraphModule = make_fx(whole, decomposition_table=decompositions(), tracing_mode="fake")(*samples)
    except (DynamicOutputShapeException, DataDependentOutputException) as error:
        raise UnsupportedError(
            f"no converter for the operators {error.func}: what they make follows from numbers"
        ) from error
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
    plain = _without_out(target)
    if plain is not None and not all(item.numel() for item in _written(target, args, options)):
        return _run_into(target, plain, args, options)
    options = {name: value for name, value in options.items() if name not in ("device", "pin_memory", "layout")}
    if options.get("generator") is not None:
        raise UnsupportedError(_GENERATOR)
    args = tuple(
        torch.tensor(given) if isinstance(given, bool | int | float) and str(item.type) == "Tensor" else given
        for item, given in zip(target._schema.arguments, args, strict=False)
    )  # PyTorch hands over as a number what it has made a tensor of
    if target._schema.name in _INDEXED and args[1:]:
        args = (args[0], whole_indices(args[1]), *args[2:])
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
        count = len(target._schema.returns)
        return written[0] if count == 1 else tuple(written[:count])
    return pytree.tree_unflatten(results, known.shape)


_INDEXED: Final = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
"""Operators whose second argument is a list of places, which may be masks."""


@functools.cache
def _without_out(target: Any) -> Any:
    """The operator that makes what another writes into tensors which are given as outputs; None of one that does not."""
    outs = {item.name for item in target._schema.arguments if item.is_out}
    if not outs:
        return None
    rest = [(item.name, str(item.type)) for item in target._schema.arguments if item.name not in outs]
    packet = getattr(torch.ops.aten, target._schema.name.removeprefix("aten::"))
    for name in packet.overloads():
        own = getattr(packet, name)
        arguments = [(item.name, str(item.type)) for item in own._schema.arguments if item.name not in _FACTORY]
        if not own._schema.is_mutable and arguments == rest:
            return own
    return None


_FACTORY: Final = ("dtype", "layout", "device", "pin_memory")


def _run_into(target: Any, plain: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Runs an operator whose outputs are given, and get the sizes of what it makes."""
    outs = [item.name for item in target._schema.arguments if item.is_out]
    given = [options[name] for name in outs]
    rest = {name: value for name, value in options.items() if name not in outs}
    if any(item.name in _FACTORY for item in plain._schema.arguments):
        rest = {**rest, "dtype": given[0].dtype, "device": given[0].device}
    name = plain._schema.name.removeprefix("aten::") + (
        f".{plain._overloadname}" if plain._overloadname != "default" else ""
    )
    made = KERNELS[name](*args, **rest) if name in KERNELS else _run(plain, args, rest)
    for own, result in zip(given, made if isinstance(made, list | tuple) else [made], strict=True):
        own.resize_(result.shape).copy_(result)
    return given[0] if len(given) == 1 else tuple(given)


def _resize(tensor: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    """Gives a tensor other sizes; of its elements stay as many as have room."""
    if tuple(tensor.shape) == tuple(size):
        return tensor
    made = _empty(size, dtype=tensor.dtype, memory_format=memory_format)
    kept = min(tensor.numel(), made.numel())
    if kept:
        made.view(-1)[:kept].copy_(tensor.reshape(-1)[:kept])
    set_memory(tensor, made)
    return tensor


def _random(tensor: torch.Tensor, low: int = 0, high: int | None = None, *, generator: Any = None) -> torch.Tensor:
    """Whole numbers; by a name that graphs can have. Without limits, those that the type holds exactly."""
    if generator is not None:
        raise UnsupportedError(_GENERATOR)
    if high is None:
        bits = torch.finfo(tensor.dtype).eps if tensor.dtype.is_floating_point else 0
        high = int(2 / bits) + 1 if bits else min(torch.iinfo(tensor.dtype).max, 2**24 - 1) + 1
    kind = torch.int64 if tensor.dtype.is_floating_point else tensor.dtype
    made = _run(torch.ops.aten.randint.low, (low, min(high, low + 2**24), list(tensor.shape)), {"dtype": kind})
    return tensor.copy_(made)


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


def _without_modes(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that computes with the tensors it gets, though PyTorch may be tracing: constants of a program are made then.
    Its compiler takes no frame of it for one of the user's."""

    @functools.wraps(kernel)
    def run(*args: Any, **options: Any) -> Any:
        if not torch._C._len_torch_dispatch_stack():
            return kernel(*args, **options)
        with _disable_current_modes():
            return kernel(*args, **options)

    found: Callable[..., Any] = torch._dynamo.disable(run)
    return found


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
        "unfold": _unfold,
        "_copy_from": _copy_from,
        "_copy_from_and_resize": _copy_from,
        "_local_scalar_dense": _item,
        "resize_": _resize,
        "random_": _random,
        "random_.from": _random,
        "random_.to": lambda tensor, high, *, generator=None: _random(tensor, 0, high, generator=generator),
        **KERNELS,
    }
    for name, function in kernels.items():
        own.impl(name, _without_modes(function), "PrivateUse1")
    own.impl("scaled_dot_product_attention", attention, "AutogradPrivateUse1")
    rest.fallback(_without_modes(_fallback), "PrivateUse1")
    for target, function in composites().items():
        if not any(torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key) for key in _TELLS_SIZES):
            own.impl(target, function, "Meta")
    keeping.install()
    backward.install()
    return own, rest, *recurrent.install(), *autocast.install()
