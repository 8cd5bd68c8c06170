"""The methods of ``dmlvk.Graph`` that add an operator. ``tools/generate_stubs.py`` writes their types beside this file."""

from __future__ import annotations

import functools
import inspect
import types
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
        return types.MethodType(_method(name), self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *rows_by_name()})


@functools.cache
def _method(name: str) -> Callable[..., Any]:
    """The method of the operator whose function has this name.

    Raises:
        AttributeError: there is none; the message suggests names that are near.
    """
    row = row_named(name, "a Graph")

    def method(self: GraphMethods, *args: Any, **named: Any) -> Any:
        return self._node(Arguments(row, args, named, GRAPH_OPTIONS))

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    shown = signature(row, GRAPH_OPTIONS)
    method.__name__ = method.__qualname__ = function_name(row)
    method.__doc__ = documentation(row, GRAPH_OPTIONS)
    method.__signature__ = shown.replace(parameters=[own, *shown.parameters.values()])  # type: ignore[attr-defined]  # for help()
    return method
