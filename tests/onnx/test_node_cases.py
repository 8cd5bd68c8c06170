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
from dmlvk.onnx import SessionOptions
from dmlvk.onnx.model import NarrowFloat, element_type, kind_of, load_model
from dmlvk.onnx.network import Network

CASES = {case.name: case for case in loader.load_model_tests(kind="node")}

AT_RANDOM = {
    name for name in CASES if name.startswith(("test_bernoulli", "test_training_dropout")) and "zero_ratio" not in name
}
"""Cases whose numbers are another generator's: of these only types and shapes can agree (see ``test_random.py``)."""
LIMITATIONS = {
    **dict.fromkeys(
        ("test_cast_FLOAT_to_BFLOAT16", "test_castlike_FLOAT_to_BFLOAT16", "test_castlike_FLOAT_to_BFLOAT16_expanded"),
        "the cases cut numbers off to bfloat16, where onnx since 1.18, onnxruntime and this session round to the nearest",
    ),
    "test_adam_multiple": "the case takes an epsilon of 0.01, its node has none and the operator's default is 1e-6",
    "test_identity_opt": "optional types",
    "test_identity_sequence": "sequence types",
    **{
        f"test_qlinearmatmul_{rank}D_int8_{scale}": "the case wraps -236 round to 20, the specification saturates it"
        for rank in (2, 3)
        for scale in ("float16", "float32")
    },
}

ABSOLUTE = dict.fromkeys(("test_dft_inverse", "test_dft_inverse_opset19"), 2e-7)
"""Absolute tolerances of cases whose own are below the rounding of what they want: these want 1.9e-7 where 0 is exact."""


def _read(name: str) -> onnx.ModelProto:
    return onnx.load(Path(CASES[name].model_dir) / "model.onnx")


def _refusal(name: str, **options: bool) -> str:
    """Why the case is refused; "" where every node of it has a converter, or inputs that are known before the run."""
    try:
        Network(load_model(_read(name), **options))
    except dmlvk.UnsupportedError as error:
        return str(error)
    return ""


REFUSALS = {name: _refusal(name) for name in CASES}
IN_FLOAT32 = {
    *(name for name, reason in REFUSALS.items() if "FLOAT64" in reason and not _refusal(name, float64_as_float32=True)),
    *(f"test_einsum_{name}" for name in ("batch_matmul", "inner_prod", "sum")),  # refused when their sizes are known
}
"""Cases of arithmetic with 64-bit floats: they run with the session's option for it, and are refused without."""
CLAIMED = {name for name, reason in REFUSALS.items() if not reason} | IN_FLOAT32


def _tensors(folder: Path, kind: str, count: int) -> list[np.ndarray]:
    paths = [folder / f"{kind}_{index}.pb" for index in range(count)]
    return [_array(onnx.TensorProto.FromString(path.read_bytes())) for path in paths]


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    """The tensor's elements, of narrow floats the bits, in the session's types."""
    _, dtype = element_type(tensor.data_type)
    if dtype is None or not isinstance(kind_of(dtype), NarrowFloat):
        return onnx.numpy_helper.to_array(tensor)
    bits = np.dtype(f"u{dtype.itemsize}")
    given = np.frombuffer(tensor.raw_data, bits) if tensor.raw_data else np.array(tensor.int32_data).astype(bits)
    return given.reshape(tuple(tensor.dims)).view(dtype)


def _run(name: str, make_session: Callable[..., Any]) -> None:
    case, model = CASES[name], _read(name)
    session = make_session(model, options=SessionOptions(float64_as_float32=name in IN_FLOAT32))
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        inputs = _tensors(folder, "input", len(model.graph.input))
        wanted = _tensors(folder, "output", len(model.graph.output))
        found = session.run(None, {info.name: array for info, array in zip(model.graph.input, inputs, strict=True)})
        for mine, theirs in zip(found, wanted, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            if isinstance(kind_of(mine.dtype), NarrowFloat):
                np.testing.assert_array_equal(*(array.view(f"u{mine.dtype.itemsize}") for array in (mine, theirs)))
            elif name not in AT_RANDOM:
                np.testing.assert_allclose(mine, theirs, rtol=case.rtol, atol=ABSOLUTE.get(name, case.atol))
    report = session.report()
    if name not in IN_FLOAT32:  # where there are casts besides
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


@pytest.mark.parametrize("name", sorted(IN_FLOAT32))
def test_float64_is_refused_unless_asked_for(name: str, make_session: Callable[..., Any]) -> None:
    model = _read(name)
    with pytest.raises(dmlvk.UnsupportedError, match="FLOAT64"):
        session = make_session(model)
        folder = next(Path(CASES[name].model_dir).glob("test_data_set_*"))
        inputs = _tensors(folder, "input", len(model.graph.input))
        session.run(None, {info.name: array for info, array in zip(model.graph.input, inputs, strict=True)})


def test_number_of_cases() -> None:
    passing = CLAIMED - LIMITATIONS.keys() - AT_RANDOM
    print(
        f"{len(passing)} of {len(CASES)} node cases pass, {len(passing & IN_FLOAT32)} of them with float64_as_float32; "
        f"{len(LIMITATIONS)} are declared limitations, {len(AT_RANDOM)} random"
    )
    assert len(CASES) >= 1288
    assert len(passing) >= 1165
