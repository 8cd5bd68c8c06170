"""The methods of ``dmlvk.Graph`` that add an operator. ``tools/generate_stubs.py`` writes their types beside this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dmlvk.arguments import Arguments
from dmlvk.spec.functions import GRAPH_OPTIONS, documentation, function_name, row_named, rows_by_name, signature


class GraphMethods:
    """One method for each operator, made when it is asked for."""

    def _node(self, call: Arguments) -> Any:
        """Adds a node to the graph; returns its outputs."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Callable[..., Any]:
        row = row_named(name, "a Graph")

        def node(*args: Any, **named: Any) -> Any:
            return self._node(Arguments(row, args, named, GRAPH_OPTIONS))

        node.__name__ = node.__qualname__ = function_name(row)
        node.__doc__ = documentation(row)
        node.__signature__ = signature(row, GRAPH_OPTIONS)  # type: ignore[attr-defined]  # for help()
        return node

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *rows_by_name()})
