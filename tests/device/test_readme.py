"""README's Python examples run as they stand there."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest

import dmlvk

README = pathlib.Path(__file__).parent.parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_eager_example(device: dmlvk.Device) -> None:
    (example,) = (text for text in EXAMPLES if "dmlvk.eager" in text)
    names: dict[str, object] = {"x": np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)}
    exec(example, names)
    y = names["y"]
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(y.mean((2, 3)), 0, atol=1e-6)


def test_directml_example(device: dmlvk.Device, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = (text for text in EXAMPLES if "create_binding_table" in text)
    exec(example, {})
    assert capsys.readouterr().out.split() == ["[[", "1", "2", "-2]", "[-1", "0", "0]]"]


def test_graph_example(device: dmlvk.Device, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = (text for text in EXAMPLES if "dmlvk.Graph()" in text)
    names: dict[str, object] = {}
    exec(example, names)
    assert capsys.readouterr().out.count("0.1") == 32 * 10
    predict = names["predict"]
    assert isinstance(predict, dmlvk.Function)
    assert len(predict.operator.plan.dispatches) == 2, "as README says"
