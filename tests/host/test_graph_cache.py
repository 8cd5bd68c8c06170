"""Compiled graphs whose tensors lie elsewhere in the next run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dmlvk.engine.graph_cache import CompiledGraphs


class _Interrupted:
    """A trace that is asked at the moment of Ctrl-C, the first time."""

    def __init__(self, outside: frozenset[str]) -> None:
        self._outside, self._is_first = outside, True

    @property
    def outside(self) -> frozenset[str]:
        if self._is_first:
            self._is_first = False
            raise KeyboardInterrupt
        return self._outside


def test_a_tensor_that_moved_while_interrupted_has_moved() -> None:
    """The next run must not replay commands that read where it was."""
    graphs: Any = object.__new__(CompiledGraphs)
    graph = SimpleNamespace(trace=_Interrupted(frozenset({"x"})), recording="where it was")
    graphs.cached, graphs._bound = {"graph": graph}, {"x": "there"}
    with pytest.raises(KeyboardInterrupt):
        graphs.bind({"x": "here"})
    graphs.bind({"x": "here"})
    assert graph.recording is None and graphs._bound == {"x": "here"}
