"""onnx's node cases through ONNX Runtime, on the provider alone: what it leaves to the processor is a failure."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from node_cases import IS_BESIDE, node_cases
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import TestCase

import dmlvk
import dmlvk.ort

pytestmark = pytest.mark.full

PASSING = 1170
"""How many of the 1288 cases of onnx 1.17 pass at least: as many as with ONNX Runtime's own kernels for the processor. The
others ask for text, hand on sequences, draw random numbers, or are of operators that ONNX Runtime does not know."""
EXACT = 2e-7
"""What a result may be off where a case wants 0 exactly, or all but."""


class Raw(NamedTuple):
    """A tensor of a type that ONNX Runtime takes from Python, and gives to it, as bytes in memory only.

    Attributes:
        code: ONNX's number of the type.
        shape: Its sizes.
        data: Its bytes.
    """

    code: int
    shape: tuple[int, ...]
    data: np.ndarray


def read(path: Path, kind: onnx.TypeProto) -> Any:
    """A value of a case."""
    match kind.WhichOneof("value"):
        case "sequence_type":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
        case "optional_type":
            return numpy_helper.to_optional(onnx.OptionalProto.FromString(path.read_bytes()))
    tensor = TensorProto.FromString(path.read_bytes())
    if TensorProto.BFLOAT16 <= tensor.data_type <= TensorProto.INT4:
        bits = 16 if tensor.data_type == TensorProto.BFLOAT16 else 8
        data = tensor.raw_data or np.array(tensor.int32_data, f"uint{bits}").tobytes()
        return Raw(tensor.data_type, tuple(tensor.dims), np.frombuffer(data, np.uint8).copy())
    return numpy_helper.to_array(tensor)


def run(session: onnxruntime.InferenceSession, feeds: dict[str, Any], wanted: list[Any]) -> list[Any]:
    """The outputs of a session; those that shall be raw come so."""
    if not any(isinstance(item, Raw) for item in (*feeds.values(), *wanted)):
        return session.run(None, feeds)
    binding = session.io_binding()
    for name, item in feeds.items():
        if isinstance(item, Raw):
            binding.bind_input(name, "cpu", 0, item.code, item.shape, item.data.ctypes.data)
        else:
            binding.bind_cpu_input(name, item)
    made: list[Any] = []
    for info, item in zip(session.get_outputs(), wanted, strict=True):
        if isinstance(item, Raw):
            made.append(item._replace(data=np.zeros_like(item.data)))
            binding.bind_output(info.name, "cpu", 0, item.code, item.shape, made[-1].data.ctypes.data)
        else:
            made.append(None)
            binding.bind_output(info.name)
    session.run_with_iobinding(binding)
    values = binding.get_outputs()
    return [own or value.numpy() for own, value in zip(made, values, strict=True)]


def compare(case: TestCase, found: Any, wanted: Any) -> None:
    if isinstance(wanted, Raw):
        np.testing.assert_array_equal(found.data, wanted.data)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for mine, theirs in zip(found, wanted, strict=True):
            compare(case, mine, theirs)
    elif wanted is None:
        assert found is None
    else:
        assert found.shape == wanted.shape
        if wanted.dtype.kind in "biuOUS":
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, case.rtol, max(case.atol, EXACT))


def passes(case: TestCase, device: Any) -> str:
    """ "passes", or what went wrong: "opening", "running" or "numbers", and how."""
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices([device], {"on_unsupported": "error"})
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    except Exception as error:  # its own classes, which have no common base
        return f"opening: {error}"
    for data in sorted(folder.glob("test_data_set_*")):
        inputs = [read(data / f"input_{at}.pb", item.type) for at, item in enumerate(model.graph.input)]
        wanted = [read(data / f"output_{at}.pb", item.type) for at, item in enumerate(model.graph.output)]
        feeds = {item.name: value for item, value in zip(model.graph.input, inputs, strict=True)}
        try:
            for found, expected in zip(run(session, feeds, wanted), wanted, strict=True):
                compare(case, found, expected)
        except AssertionError as error:
            return f"numbers: {error}"
        except Exception as error:
            return f"running: {error}"
    return "passes"


@pytest.mark.skipif(IS_BESIDE, reason="the cases of the environment's onnx are files, and those run")
def test_node_cases(device: dmlvk.Device) -> None:
    dmlvk.ort.register()
    (chosen,) = [item for item in dmlvk.ort.get_devices() if item.ep_metadata["device_uuid"] == device.info.uuid]
    cases = node_cases().cases
    count: Counter[str] = Counter()
    for case in cases:
        outcome = passes(case, chosen)
        count[outcome.partition(":")[0]] += 1
        if outcome != "passes":
            print(case.name, outcome.replace("\n", " ")[:300])
    print(f"{dict(count)} of {len(cases)}")
    assert count["passes"] >= PASSING
