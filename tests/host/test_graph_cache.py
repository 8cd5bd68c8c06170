"""Compiled graphs whose tensors lie elsewhere in the next run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.engine.graph_cache import CompiledGraphs
from dmlvk.engine.trace import Numbers


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


def test_short_whole_numbers_of_the_host_count_as_sizes() -> None:
    """At most eight: one for each dimension of a tensor. Others are what they are, and so are fractions."""
    tracer: Any = SimpleNamespace(region_count=1, refusal=None)
    device: Any = SimpleNamespace(capabilities=Capabilities())
    graphs = CompiledGraphs(device, tracer, 4)
    region: Any = "region"
    given = {
        "sizes": np.arange(8),
        "more": np.arange(9),
        "flags": np.zeros(1, np.bool_),
        "scales": np.ones(2, np.float32),
    }
    shapes, numbers = graphs._shapes_of(region, {}, given)
    assert numbers == {"sizes": Numbers(np.dtype(np.int64), (8,), tuple(range(8)))}
    assert graphs._shapes_of(region, {}, {**given, "sizes": np.arange(8) + 1})[0] is shapes
    assert graphs._shapes_of(region, {}, {**given, "more": np.arange(9) + 1})[0] is not shapes
