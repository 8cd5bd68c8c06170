"""What one model may cost the host, whatever its file says."""

from __future__ import annotations

from typing import Final, NamedTuple

from dmlvk.onnx.model import MOST_FUNCTION_NODES, Node
from dmlvk.onnx.node_facts import unsupported_node


class Limits(NamedTuple):
    """The fields of ``SessionOptions`` of the same names."""

    max_loop_rounds: int = 1 << 13
    max_sequence_length: int = 1 << 14
    max_host_elements: int = 1 << 28
    max_function_nodes: int = MOST_FUNCTION_NODES

    def check_host_elements(self, node: Node, elements: int, others: int = 0) -> None:
        """Refuses a node that makes too many elements on the host.

        Args:
            node: The node.
            elements: The elements that it makes.
            others: Those that other nodes have made.
        """
        if elements + others > self.max_host_elements:
            reason = (
                f"it makes {elements} elements before the run; SessionOptions.max_host_elements allows all such nodes "
                f"together {self.max_host_elements}"
            )
            raise unsupported_node(node, reason)

    def check_pieces(self, node: Node, pieces: int) -> None:
        """Refuses a node that has the host handle too many tensors one by one."""
        if pieces > self.max_sequence_length:
            reason = (
                f"{pieces} tensors one by one are too many; SessionOptions.max_sequence_length allows "
                f"{self.max_sequence_length}"
            )
            raise unsupported_node(node, reason)


LIMITS: Final = Limits()
"""Those of a session that says nothing."""
