"""A run of a model: what the functions that drive nodes need of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.engine.run import Account, Run
from dmlvk.engine.tensors import Item, Tensor
from dmlvk.onnx.limits import Limits
from dmlvk.onnx.model import Node, data_type_of
from dmlvk.onnx.node_facts import invalid_node, unsupported_node
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.enums import TensorDataType


class ModelRun(Run):
    """One run of a model.

    Args:
        device, graphs, account: The arguments of ``Run``.
        limits: What the model may cost the host.

    Attributes:
        limits: As given.
    """

    def __init__(self, device: ComputeDevice, graphs: CompiledGraphs, account: Account, limits: Limits) -> None:
        super().__init__(device, graphs, account, data_type_of)
        self.limits = limits
        self._rounds = 0

    def count_round(self, node: Node) -> None:
        """Counts a round of a loop that the host drives.

        Raises:
            UnsupportedNodeError: there were as many as may be.
        """
        most = self.limits.max_loop_rounds
        if self._rounds == most:
            raise unsupported_node(node, f"it goes on after {most} rounds; SessionOptions.max_loop_rounds allows no more")
        self._rounds += 1

    def required(self, node: Node, index: int, item: Item) -> Tensor:
        """An operand that must be a tensor.

        Raises:
            ModelError: it is a sequence or an empty optional value.
        """
        if not isinstance(item, Tensor):
            raise invalid_node(node, f"value {index} must be a tensor", None if item is None else type(item))
        return item

    def number(self, node: Node, index: int, item: Item) -> Any:
        """The only element of an operand, which the host reads.

        Raises:
            ModelError: there is not just one.
        """
        tensor = self.required(node, index, item)
        if math.prod(tensor.shape) != 1:
            raise invalid_node(node, f"value {index} must have one element", tensor.shape)
        if not tensor.is_on_host:
            self.read(tensor)
        return tensor.on_host().item()


def known_data_type(dtype: np.dtype[Any]) -> TensorDataType:
    """The type on the device of elements that a model may have."""
    data_type = data_type_of(dtype)
    assert data_type is not None, f"{dtype} came past the registry"
    return data_type
