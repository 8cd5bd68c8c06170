"""ONNX's backend suite over ``dmlvk.onnx.backend``, and the backend's own functions.

Every case runs through ``onnx.backend.test.BackendTest``: the node cases, those of PyTorch's exporter, simple models and
light ones (real topologies with constant weights). ``backend_exclusions.txt`` names those that do not pass as they are, each
with its reason; a line that is no longer true fails, so the list can only shrink.

The tests run with the release of onnx that the environment has, and once more with a newer one that stands before it in the
path: ``tools/run_tests.sh`` does both. Then the node cases run that the first does not have, or has with other versions of
operators or other numbers; the rest of the suite is the same files in both.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import onnx
import onnx.parser
import pytest
from node_cases import IS_BESIDE, node_cases
from onnx import TensorProto, helper
from onnx.backend.test import BackendTest, loader, runner

import dmlvk
from dmlvk.onnx import SessionOptions, SessionReport, backend
from dmlvk.onnx.backend import PreparedModel, VulkanBackend
from dmlvk.onnx.report import IN_ONNX_RUNTIME

KINDS = ("refused", "hosted", "differs", "random", "tie")
"""What an exclusion may say; ``backend_exclusions.txt`` explains them."""

TOLERANCES = {name: {"atol": 2e-7} for name in ("test_dft_inverse", "test_dft_inverse_opset19")}
"""Tolerances of cases whose own are below the rounding of what they want: these want 1.9e-7 where 0 is exact."""

RELEASE = ".".join(onnx.__version__.split(".")[:2])

SIZES = {
    "Node": {"1.17": 1288, "1.23": 1884}[RELEASE],
    "Real": 9,
    "Simple": 23,
    "PyTorchConverted": 82,
    "PyTorchOperator": 35,
}
"""How many cases of each category the release has."""

PASSING = {
    "Node": {"1.17": 1226, "1.23": 1833}[RELEASE],
    "Simple": 15,
    "PyTorchConverted": 82,
    "PyTorchOperator": 35,
    "Real": 9,
}
"""How many of them pass at least, on any device."""


class OnDevice(VulkanBackend):
    """The backend on the device under test, which keeps what it prepared.

    Attributes:
        device: Where cases run.
        options: The options of their sessions.
        prepared: The newest model; None where it was refused.
        nodes: How many nodes it has; 0 where a branch or the rounds of a loop decide.
    """

    device: ClassVar[dmlvk.Device]
    options: ClassVar[SessionOptions] = SessionOptions()
    prepared: ClassVar[PreparedModel | None]
    nodes: ClassVar[int]

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"  # the suite has each case a second time, for "CUDA"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, *args: Any, **kwargs: Any) -> bool:
        return True  # the suite would skip what is not, silently

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        bodies = any(attribute.HasField("g") for node in model.graph.node for attribute in node.attribute)
        cls.nodes = 0 if bodies else len(model.graph.node)
        cls.prepared = None
        cls.prepared = super().prepare(model, cls.device, cls.options, **kwargs)
        return cls.prepared


class Numbers(BackendTest):
    """The suite, which compares sequences tensor by tensor: its own comparison fails at scalars in them, and at nothing."""

    @classmethod
    def assert_similar_outputs(cls, ref_outputs: Any, outputs: Any, *args: Any, **kwargs: Any) -> None:
        assert len(outputs) == len(ref_outputs)
        for theirs, mine in zip(ref_outputs, outputs, strict=True):
            if isinstance(mine, list):
                assert isinstance(theirs, list)
                super().assert_similar_outputs(theirs, mine, *args, **kwargs)
                assert [item.shape for item in mine] == [item.shape for item in theirs]
            elif mine is None or theirs is None:
                assert mine is theirs
            else:
                super().assert_similar_outputs([theirs], [mine], *args, **kwargs)


class AnyNumbers(BackendTest):
    """The suite, without a look at the numbers."""

    @classmethod
    def assert_similar_outputs(cls, ref_outputs: Any, outputs: Any, *args: Any, **kwargs: Any) -> None:
        for theirs, mine in zip(ref_outputs, outputs, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)


NODE_CASES = node_cases()


def _loaded(kind: str) -> list[loader.TestCase]:
    return NODE_CASES.cases if kind == "node" else loader.load_model_tests(kind=kind)


def _cases(suite: type[BackendTest]) -> dict[str, dict[str, unittest.TestCase]]:
    """Category -> case -> what runs it."""
    found: dict[str, dict[str, unittest.TestCase]] = {}
    with mock.patch.object(runner, "load_model_tests", _loaded):
        test_cases = suite(OnDevice, __name__, TOLERANCES).test_cases
    for name, tests in test_cases.items():
        category = name.removeprefix("OnnxBackend").removesuffix("ModelTest")
        methods = [method for method in dir(tests) if method.startswith("test_") and method.endswith("_cpu")]
        found[category] = {method.removesuffix("_cpu"): tests(method) for method in methods}
    return found


def _exclusions() -> dict[str, tuple[str, ...]]:
    """Case -> its kinds, with this release of onnx."""
    lines = Path(__file__).with_name("backend_exclusions.txt").read_text().splitlines()
    given = [line.split(": ", 2) for line in lines if line and not line.startswith("#")]
    assert all(len(parts) == 3 and parts[2] for parts in given), "each line says case, kinds and reason"
    names = [name for name, _, _ in given]
    assert names == sorted(set(names)), "cases are in order, each once for a release"
    found = {}
    for called, kinds, _ in given:
        name, _, release = called.removesuffix(")").partition(" (")
        assert not release or name not in REPEATED, f"{name} is the same case in both releases"
        if release in ("", RELEASE):
            assert name not in found, f"{name} has a line for each release and one of all"
            found[name] = tuple(kinds.split(", "))
    return found


CATEGORIES = _cases(Numbers)
CASES = {name: case for cases in CATEGORIES.values() for name, case in cases.items()}
REPEATED = NODE_CASES.repeated.union(*(cases for name, cases in CATEGORIES.items() if name != "Node" and IS_BESIDE))
"""Cases that are the same with the environment's onnx: they run with that."""
SHAPES_ONLY = {name: case for cases in _cases(AnyNumbers).values() for name, case in cases.items()}
EXCLUSIONS = _exclusions()


def _excluded(*kinds: str) -> list[str]:
    """The cases to run that have one of some kinds of exclusions."""
    return [name for name, own in EXCLUSIONS.items() if not {*kinds}.isdisjoint(own) and name not in REPEATED]


@pytest.fixture
def run_case(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """A function that runs a case."""
    monkeypatch.setenv("ONNX_MODELS", str(tmp_path))  # where the suite writes the light models' inputs

    def run(name: str, cases: dict[str, unittest.TestCase] = CASES) -> None:
        OnDevice.device = device
        case = cases[name]
        getattr(case, case._testMethodName)()

    return run


def _report() -> SessionReport:
    """The report of the case that ran last; one with nodes on the device has dispatches."""
    assert OnDevice.prepared is not None
    report = OnDevice.prepared.session.report()
    assert bool(report.gpu_nodes) == (report.dispatches > 0)
    return report


REAL = ("test_shufflenet", "test_squeezenet")
"""The real models that are always run: the others are of the same operators, and take five minutes."""


def _of_light(name: str) -> Any:
    if name not in CATEGORIES["Real"]:
        return name
    return pytest.param(name, marks=pytest.mark.slow if name in REAL else pytest.mark.full)


@pytest.mark.parametrize("name", [_of_light(name) for name in sorted(CASES.keys() - EXCLUSIONS.keys() - REPEATED)])
def test_case(name: str, run_case: Callable[..., None]) -> None:
    run_case(name)
    report = _report()
    if OnDevice.nodes:
        assert len(report.gpu_nodes) + len(report.removed_nodes) + len(report.host_nodes) == OnDevice.nodes


@pytest.mark.parametrize("name", _excluded("refused", "hosted"))
def test_case_is_refused(name: str, run_case: Callable[..., None]) -> None:
    """A case is refused when it is loaded, not when it runs."""
    with pytest.raises(dmlvk.UnsupportedError):
        run_case(name)
    assert OnDevice.prepared is None


@pytest.mark.parametrize("name", _excluded("hosted"))
def test_case_runs_on_the_host(name: str, run_case: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnDevice, "options", SessionOptions(on_unsupported="host"))
    run_case(name)
    assert any(node.reason.startswith(IN_ONNX_RUNTIME) for node in _report().host_nodes)


@pytest.mark.parametrize("name", _excluded("differs"))
def test_case_still_asks_for_something_else(name: str, run_case: Callable[..., None]) -> None:
    with pytest.raises(AssertionError):
        run_case(name)
    run_case(name, SHAPES_ONLY)


@pytest.mark.parametrize("name", _excluded("random"))
def test_random_case(name: str, run_case: Callable[..., None]) -> None:
    run_case(name, SHAPES_ONLY)


@pytest.mark.parametrize("name", _excluded("tie"))
def test_case_with_a_tie(name: str, run_case: Callable[..., None], device: dmlvk.Device) -> None:
    run_case(name, CASES if device.info.type == "cpu" else SHAPES_ONLY)


def test_exclusions() -> None:
    assert EXCLUSIONS.keys() <= CASES.keys(), "an exclusion names no case"
    assert {kind for kinds in EXCLUSIONS.values() for kind in kinds} <= set(KINDS)
    assert len(CASES) == sum(map(len, CATEGORIES.values())), "names are unique over the categories"
    passing = {name: len(cases.keys() - EXCLUSIONS.keys()) for name, cases in CATEGORIES.items()}
    print(", ".join(f"{passing[name]} of {len(cases)} {name}" for name, cases in CATEGORIES.items()))
    assert {name: len(cases) for name, cases in CATEGORIES.items()} == SIZES
    assert all(passing[name] >= count for name, count in PASSING.items()), passing


# -- the backend's own functions


@pytest.fixture(scope="module")
def sum_model() -> onnx.ModelProto:
    """y = (a + b) * c, z = -y; c is an initializer."""
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["a", "b"], ["s"]),
            helper.make_node("Mul", ["s", "c"], ["y"]),
            helper.make_node("Neg", ["y"], ["z/0"]),
        ],
        "sum",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "abc"],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("y", "z/0")],
        [helper.make_tensor("c", TensorProto.FLOAT, [3], [2.0, 3.0, 4.0])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


A, B = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)


def test_inputs_by_order_and_by_name(sum_model: onnx.ModelProto, device: dmlvk.Device) -> None:
    prepared = backend.prepare(sum_model, device)
    for inputs in ([A, B], (A, B), {"b": B, "a": A}):
        outputs = prepared.run(inputs)
        assert isinstance(outputs, tuple)
        np.testing.assert_array_equal(outputs[0], [10, 21, 36])
        np.testing.assert_array_equal(outputs["z/0"], [-10, -21, -36])
    assert prepared.session.device is device
    assert prepared.session.report().dispatches > 0


@pytest.mark.parametrize("inputs", [[A], [A, B, A], A, {"a": A}, {"a": A, "d": B}, [A, B.astype(np.float64)]])
def test_inputs_that_do_not_fit(inputs: Any, sum_model: onnx.ModelProto, device: dmlvk.Device) -> None:
    with pytest.raises(dmlvk.ModelError, match=r"'a'|'b'"):
        backend.run_model(sum_model, inputs, device)


def test_devices(sum_model: onnx.ModelProto, device: dmlvk.Device) -> None:
    info = device.info
    for name in ("CPU", "VULKAN", f"VULKAN:{info.index}", f"VULKAN:{info.uuid}", f"VULKAN:{info.name}"):
        assert backend.supports_device(name), name
    for name in ("CUDA", "CUDA:0", "VULKAN:", "VULKAN:no such device", "vulkan", ""):
        assert not backend.supports_device(name), name
    prepared = backend.prepare(sum_model, f"VULKAN:{info.uuid}")
    assert prepared.session.device.info == info
    with pytest.raises(dmlvk.InvalidArgumentError, match="'CUDA'"):
        backend.prepare(sum_model, "CUDA")
    with pytest.raises(dmlvk.NoDeviceError):
        backend.prepare(sum_model, "VULKAN:no such device")


def test_compatible_models(sum_model: onnx.ModelProto) -> None:
    assert backend.is_compatible(sum_model)
    unknown, broken = onnx.ModelProto(), onnx.ModelProto()
    unknown.CopyFrom(sum_model)
    unknown.graph.node[2].op_type = "NoSuchOperator"
    broken.CopyFrom(sum_model)
    broken.graph.node[0].input[0] = "nobody"
    assert not backend.is_compatible(unknown)
    assert not backend.is_compatible(broken)
    double = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (double[1, 3, 1] x) => (double[1, 3, 1] y) { y = LRN <size = 3> (x) }'
    )
    assert not backend.is_compatible(double)
    assert backend.is_compatible(double, options=SessionOptions(float64_as_float32=True))


def test_node(device: dmlvk.Device) -> None:
    node = helper.make_node("ReduceSum", ["x", ""], ["y"], keepdims=0)
    (y,) = backend.run_node(node, [A], device)
    assert (y.dtype, y.shape, y.item()) == (np.float32, (), 6)
    node = helper.make_node("TopK", ["x", "k"], ["values", "indices"])
    outputs = backend.run_node(node, {"k": np.array([2]), "x": A}, device, opset_version=11)
    np.testing.assert_array_equal(outputs["values"], [3, 2])
    np.testing.assert_array_equal(outputs["indices"], [2, 1])
    np.testing.assert_array_equal(backend.run_node(helper.make_node("Mul", ["x", "x"], ["y"]), A, device).y, A * A)


def test_node_with_outputs_info(device: dmlvk.Device) -> None:
    names = ["a", "b", "a_scale", "b_scale"]
    node = helper.make_node("MatMulIntegerToFloat", names, ["y"], domain="com.microsoft")
    inputs = [np.array([[1, 2]], np.uint8), np.array([[3], [4]], np.uint8), np.float32([0.5]), np.float32([2])]
    with pytest.raises(dmlvk.ModelError, match="outputs_info"):
        backend.run_node(node, inputs, device)
    info = (np.dtype(np.float32), (1, 1))
    (y,) = backend.run_node(node, inputs, device, [info])
    np.testing.assert_array_equal(y, np.float32([[11]]))
    with pytest.raises(dmlvk.ModelError, match="outputs_info describes 2"):
        backend.run_node(node, inputs, device, [info, info])


def test_node_of_a_sequence(device: dmlvk.Device) -> None:
    node = helper.make_node("SequenceAt", ["s", "i"], ["y"])
    (y,) = backend.run_node(node, [[A, B], np.array(1)], device, [(np.float32, (3,))])
    np.testing.assert_array_equal(y, B)
    with pytest.raises(dmlvk.ModelError, match="'x' is fed what is no array"):
        backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [[[1.0], [2.0, 3.0]]], device)


@pytest.mark.parametrize(
    ("node", "inputs"),
    [
        (helper.make_node("Relu", ["x"], ["y"]), []),
        (helper.make_node("Relu", ["x"], ["y"], no_such_attribute=1), [A]),
        (helper.make_node("Relu", ["x"], ["y"]), [A > 0]),
        (helper.make_node("NoSuchOperator", ["x"], ["y"]), [A]),
        (helper.make_node("Einsum", ["x"], ["y"], equation=")("), [A]),
    ],
)
def test_broken_nodes(node: onnx.NodeProto, inputs: list[np.ndarray], device: dmlvk.Device) -> None:
    with pytest.raises((dmlvk.ModelError, dmlvk.UnsupportedError), match=node.op_type):
        backend.run_node(node, inputs, device)
