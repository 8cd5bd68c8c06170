"""The backend of ``torch.compile``: graphs through AOTAutograd to the device, forward and backward."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.utils.checkpoint import CheckpointPolicy

from dmlvk.directml.device import Device
from dmlvk.engine.default_device import default_device
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.torch.calls import DeviceGraph
from dmlvk.torch.decompositions import decompositions
from dmlvk.torch.device import install
from dmlvk.torch.facts import device_nodes, is_foreign
from dmlvk.torch.fallback import MixedGraph
from dmlvk.torch.report import note
from dmlvk.torch.whole import kept_whole


class Options(NamedTuple):
    """The options of ``torch.compile(..., options=...)``.

    Attributes:
        device: A ``dmlvk.Device``, or what its constructor takes; ``dmlvk.default_device()`` where None.
        allow_fallback: Whether PyTorch runs operators that have no converter, on the host. Else they are an error.
    """

    device: Any = None
    allow_fallback: bool = False

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> Options:
        """Options as a user gives them.

        Raises:
            InvalidArgumentError: there is no such option.
        """
        for name in given or ():
            if name not in Options._fields:
                rule = f"must be one of {', '.join(Options._fields)}"
                raise InvalidArgumentError(rule, operator="torch.compile", field="options", value=name)
        return Options(**(given or {}))

    def opened(self) -> ComputeDevice:
        """The device."""
        if isinstance(self.device, ComputeDevice):
            return self.device
        return default_device() if self.device is None else _opened(self.device)

    @property
    def renews(self) -> bool:
        """Whether a new device takes the place of one that is lost: not of one that is given as such."""
        return not isinstance(self.device, ComputeDevice)


_devices: dict[Any, Device] = {}


def _opened(choice: Any) -> Device:
    """One device for all graphs that name the same one, and another one after it was lost."""
    found = _devices.get(choice)
    if found is None or found.native.lost:
        found = _devices[choice] = Device(choice)
    return found


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend ``dmlvk``, for ``torch.compile(model, backend="dmlvk", options={...})``; see ``Options``.

    Raises:
        UnsupportedError: the graph has operators without a converter, and ``allow_fallback`` is not set.
    """
    if mode is not None:
        raise InvalidArgumentError("must be left out", operator="torch.compile", field="mode", value=mode)
    install()
    chosen = Options.of(options)
    compiler = functools.partial(compiled, options=chosen)
    traced = aot_autograd(
        fw_compiler=functools.partial(compiler, kind="forward"),
        bw_compiler=functools.partial(compiler, kind="backward"),
        inference_compiler=functools.partial(compiler, kind="inference"),
        decompositions=decompositions(),
        partition_fn=_parted,
        keep_inference_input_mutations=True,
    )
    with kept_whole():
        made: Callable[..., Any] = traced(module, inputs)
    return made


def _parted(joint: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward graphs. Random numbers are saved, even where a checkpoint asks for all to be computed again: the
    backward graph would draw others."""
    for node in joint.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            for own in (node, *(user for user in node.users if user.target is operator.getitem)):
                if "recompute" in own.meta:
                    own.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    forward, backward = min_cut_rematerialization_partition(joint, inputs, **options)
    return forward, backward


def compiled(
    module: fx.GraphModule, inputs: Sequence[Any], *, options: Options, kind: str
) -> Callable[[list[Any]], list[Any]]:
    """A graph of core operators as a function of a list of tensors, which it empties. After its device was lost it is made
    anew on the one that has taken that one's place."""
    kept_from = _forward_outputs() if kind == "forward" else None
    is_backward = kind == "backward"
    fixed = () if is_backward else _fixed_inputs()
    is_mixed = options.allow_fallback and any(map(is_foreign, device_nodes(module.graph)))

    def made() -> DeviceGraph | MixedGraph:
        if is_mixed:
            return MixedGraph(options.opened(), module, kind, kept_from)
        graph = DeviceGraph(
            options.opened(),
            module,
            kind,
            kept_from,
            repeats=kind != "inference",
            lent_from=0 if is_backward else kept_from,
            fixed=fixed,
        )
        note(graph)
        return graph

    graph = made()

    def call(args: list[Any]) -> list[Any]:
        nonlocal graph
        if graph.device.native.lost and options.renews:
            graph = made()  # PyTorch need not trace anew what it has traced
        return graph(args)

    call._boxed_call = True  # type: ignore[attr-defined]  # PyTorch calls it with a list of all arguments, and not with each
    return call


def _fixed_inputs() -> list[int]:
    """The places of parameters and buffers among the inputs of a graph."""
    context = TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    return [] if known is None else [int(index) for index in known.static_input_indices]


def _forward_outputs() -> int | None:
    """The number of outputs of a forward graph that are its user's, and not kept for the backward one."""
    context = TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    return None if known is None else int(known.num_forward)
