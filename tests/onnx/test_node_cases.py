"""ONNX's own node cases: all 1288 of them go through the session. Those made of operators that have converters must
give what the case says, but for the limitations declared here; all others must be refused when they are loaded.

``-rP`` prints how many there are of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx.backend.test import loader

import dmlvk
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network

CASES = {case.name: case for case in loader.load_model_tests(kind="node")}

AT_RANDOM = {
    name for name in CASES if name.startswith(("test_bernoulli", "test_training_dropout")) and "zero_ratio" not in name
}
"""Cases whose numbers are another generator's: of these only types and shapes can agree (see ``test_random.py``)."""
_REDUCING_SCATTERS = (
    "test_scatter_elements_with_duplicate_indices",
    *(f"test_scatter_elements_with_reduction_{name}" for name in ("max", "min")),
    *(f"test_scatternd_{name}" for name in ("add", "max", "min", "multiply")),
)
LIMITATIONS = {
    "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True": (
        "the case counts what hangs over the padding with ceil_mode, onnxruntime's CPU and this session do not"
    ),
    "test_identity_opt": "optional types",
    "test_identity_sequence": "sequence types",
    "test_max_float64": "no arithmetic in float64",
    "test_min_float64": "no arithmetic in float64",
    "test_mod_mixed_sign_float64": "no arithmetic in float64",
    **{
        name: "DirectML has no cubic interpolation" for name in CASES if name.startswith("test_resize_") and "_cubic" in name
    },
    **{
        f"test_qlinearmatmul_{rank}D_int8_{scale}": "the case wraps -236 round to 20, the specification saturates it"
        for rank in (2, 3)
        for scale in ("float16", "float32")
    },
    "test_roialign_mode_max": "ONNX takes the largest weighted pixel, DirectML the largest interpolated sample",
    **dict.fromkeys(_REDUCING_SCATTERS, "DirectML has no scatter that adds, multiplies or compares"),
}


def _read(name: str) -> onnx.ModelProto:
    return onnx.load(Path(CASES[name].model_dir) / "model.onnx")


def _is_claimed(name: str) -> bool:
    """Whether every node of the case has a converter, or inputs that are known before the run."""
    try:
        Network(load_model(_read(name)))
    except dmlvk.UnsupportedError:
        return False
    return True


CLAIMED = {name for name in CASES if _is_claimed(name)}


def _tensors(folder: Path, kind: str, count: int) -> list[np.ndarray]:
    paths = [folder / f"{kind}_{index}.pb" for index in range(count)]
    return [onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())) for path in paths]


def _run(name: str, make_session: Callable[..., Any]) -> None:
    case, model = CASES[name], _read(name)
    session = make_session(model)
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        inputs = _tensors(folder, "input", len(model.graph.input))
        wanted = _tensors(folder, "output", len(model.graph.output))
        found = session.run(None, {info.name: array for info, array in zip(model.graph.input, inputs, strict=True)})
        for mine, theirs in zip(found, wanted, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            if name not in AT_RANDOM:
                np.testing.assert_allclose(mine, theirs, rtol=case.rtol, atol=case.atol)
    report = session.report()
    assert len(report.gpu_nodes) + len(report.removed_nodes) + len(report.host_nodes) == len(model.graph.node)
    assert bool(report.gpu_nodes) == (report.dispatches > 0)


@pytest.mark.parametrize("name", sorted(CLAIMED - LIMITATIONS.keys()))
def test_claimed_case(name: str, make_session: Callable[..., Any]) -> None:
    _run(name, make_session)


@pytest.mark.parametrize("name", sorted(LIMITATIONS))
def test_limitation_still_holds(name: str, make_session: Callable[..., Any]) -> None:
    """A limitation that no longer holds must be deleted from the table above."""
    with pytest.raises((dmlvk.UnsupportedError, AssertionError)):
        _run(name, make_session)


def test_other_cases_are_refused_at_load(make_session: Callable[..., Any]) -> None:
    for name in sorted(CASES.keys() - CLAIMED - LIMITATIONS.keys()):
        with pytest.raises(dmlvk.UnsupportedError):
            make_session(_read(name))


def test_number_of_cases() -> None:
    passing = len(CLAIMED - LIMITATIONS.keys() - AT_RANDOM)
    print(f"{passing} of {len(CASES)} node cases pass, {len(LIMITATIONS)} are declared limitations, {len(AT_RANDOM)} random")
    assert len(CASES) >= 1288
    assert passing >= 528
