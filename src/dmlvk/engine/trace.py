"""The trace that a door hands to the engine: steps for certain sizes, what they read and make, and labels for reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from dmlvk.engine.transfer import Array
from dmlvk.graph.step import Origin, Step, Storage
from dmlvk.graph.views import Sizes
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import UnsupportedError

Spec = tuple[np.dtype[Any], Sizes]
"""The description of a tensor: numpy's type of an element, and its sizes."""


@dataclass(frozen=True, eq=False)
class Region:
    """A part of a network that one compiled graph runs.

    Attributes:
        inputs: Names of the values that it reads and others make.
        host_inputs: The inputs that are read before a graph is compiled, not by the device.
        outputs: Names of what is read outside.
    """

    inputs: tuple[str, ...]
    host_inputs: frozenset[str]
    outputs: tuple[str, ...]


class Numbers(NamedTuple):
    """A tensor of whole numbers that the host knows: plain ones, or sizes that record what is computed of them.

    Attributes:
        dtype: numpy's type of an element.
        sizes: Elements a dimension.
        values: The elements, row by row.
    """

    dtype: np.dtype[Any]
    sizes: Sizes
    values: tuple[int, ...]


class Label(NamedTuple):
    """The name that a door gives a part of its network in reports.

    Attributes:
        name, op_type: Its name and that of its operator.
        reason: Why it did not run on the device; "" where it did, or that the host read back computed values for it.
        from_device, to_device: Bytes that the host read from the device and wrote to it for a part that another runtime ran
            there; 0 for any other.
    """

    name: str
    op_type: str
    reason: str = ""
    from_device: int = 0
    to_device: int = 0


class TracedTensor(Protocol):
    """A tensor of a trace on the device, packed from the start of its storage on.

    Attributes:
        storage: Its bytes.
        data_type: The type of an element on the device.
        dtype: numpy's type of an element.
        sizes: Elements a dimension.
    """

    @property
    def storage(self) -> Storage: ...

    @property
    def data_type(self) -> TensorDataType: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def sizes(self) -> Sizes: ...


class PackedTensor(NamedTuple):
    """A ``TracedTensor`` of a door that needs no more."""

    storage: Storage
    data_type: TensorDataType
    dtype: np.dtype[Any]
    sizes: Sizes


@dataclass(frozen=True, eq=False)
class Trace:
    """The steps of a region for one set of sizes, with all that a run of them needs.

    Attributes:
        steps: Operators in order, after all passes.
        inputs: The tensors that a run is fed, by name; those that no step reads are there too.
        outputs: The tensors that a run makes, by name: on the device, or arrays that are known before the run.
        given: Storages that are written once, before the first run, and kept: as weights are that come later.
        outside: Storages that lie in memory which others have: arrays that each run names anew and that are bound as they
            are, or what outlives runs, such as a language model's cache. Steps may write to them.
        device_labels: The labels of the parts that became operators.
        host_labels: The labels of the parts that the host computed, each with why.
        removed_labels: The labels of the parts that needed no work, each with why.
        numbers: Further outputs of a trace whose sizes are symbols: what the host knows once it knows these.
    """

    steps: tuple[Step, ...]
    inputs: Mapping[str, TracedTensor]
    outputs: Mapping[str, TracedTensor | Array]
    given: frozenset[Storage] = frozenset()
    outside: frozenset[Storage] = frozenset()
    device_labels: Mapping[Any, Label] = field(default_factory=dict)
    host_labels: Mapping[Any, Label] = field(default_factory=dict)
    removed_labels: Mapping[Any, Label] = field(default_factory=dict)
    numbers: Mapping[str, Numbers] = field(default_factory=dict)

    def results(self) -> list[Storage]:
        """The storages of the outputs that are on the device."""
        return [result.storage for result in self.outputs.values() if not isinstance(result, np.ndarray)]


class Tracer(Protocol):
    """A network as a door gives it to the engine."""

    @property
    def region_count(self) -> int:
        """Regions, each of which has compiled graphs of its own; at least 1."""

    def trace(self, region: Region, specs: Mapping[str, Spec], host_values: Mapping[str, Array | Numbers]) -> Trace:
        """The trace of a region for given sizes.

        Args:
            region: A region of the network.
            specs: The type and sizes of every input on the device.
            host_values: The values of the host's inputs; a few whole numbers may be ``Numbers``.
        """

    def refusal(self, origin: Origin, error: UnsupportedError) -> UnsupportedError:
        """The error to raise for an operator that the device cannot run, naming what asked for it."""
