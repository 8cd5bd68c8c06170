"""A door of at most 150 lines reaches all of the engine: weights, replay, a second shape, reports and errors."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import toy_door

import dmlvk
from dmlvk.kernels.common.plan import BlockCopy
from dmlvk.runtime.recorder import Command, Recording

HERE = pathlib.Path(__file__).parent
GUIDE = HERE.parents[1] / "docs" / "adding-a-door.md"
TEXT = """
h = matmul x w
b = add h bias
r = relu b
y = matmul r v
"""


@pytest.mark.quick
def test_a_network_of_another_door(
    device: dmlvk.Device, count_dispatches: Callable[[], AbstractContextManager[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    sizes = {"w": (7, 12), "bias": (12,), "v": (12, 3)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
    session = toy_door.ToySession(device, TEXT, weights)
    recorded: list[str] = []
    add = Recording.add

    def adding(self: Recording, commands: Sequence[Command]) -> None:
        recorded.extend(kernel for command in commands for _, kernel in command.labels if kernel != BlockCopy.name)
        add(self, commands)

    monkeypatch.setattr(Recording, "add", adding)
    held = 0
    for rows, is_new in ((9, True), (9, False), (4, True), (9, False), (4, False)):
        x = rng.standard_normal((rows, 7)).astype(np.float32)
        recorded.clear()
        with count_dispatches() as counted:
            found = session.run(x=x)
        wanted = np.maximum(x @ weights["w"] + weights["bias"], 0) @ weights["v"]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        assert session.account.dispatches == 2, "bias and relu go into the products"
        assert counted.dispatches == 3, "and the result is copied out of the arena"
        assert bool(recorded) is is_new, "a shape seen before is replayed"
        held = held or session.graphs.weights_bytes
        assert session.graphs.weights_bytes == held, "weights are on the device once"
    assert [step.node for step in session.account.steps()] == ["h", "y"]
    assert {label.name for label in session.account.device_labels} == {"h", "b", "r", "y"}


def test_errors_name_the_line(device: dmlvk.Device) -> None:
    session = toy_door.ToySession(device, "y = sqrt x", {})
    with pytest.raises(dmlvk.InvalidArgumentError, match=r"y.*must be relu, add or matmul.*sqrt"):
        session.run(x=np.ones((2, 2), np.float32))


def test_the_guide_shows_this_door() -> None:
    """Each block of code in the guide is a part of the door, word for word, and all parts are shown."""
    source = (HERE.parent / "toy_door.py").read_text()
    assert len(source.splitlines()) <= 150
    parts = dict(re.findall(r"^# \[(\w+)\]\n(.*?)(?=^# \[|\Z)", source, re.MULTILINE | re.DOTALL))
    shown = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert [block.strip() for block in shown] == [part.strip() for part in parts.values()]


@pytest.mark.quick
def test_the_guide_says_where_a_door_goes() -> None:
    page = GUIDE.read_text().partition("## Where it goes")[2]
    architecture = (HERE.parent / "host" / "test_architecture.py").read_text()
    tables = re.findall(r"`([A-Z]+)`", page)
    assert set(tables) == {"LAYERS", "DOORS", "ALLOWED"}
    assert all(re.search(rf"^{name}\b.* = ", architecture, re.MULTILINE) for name in tables)
