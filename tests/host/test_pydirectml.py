"""dmlvk.pydirectml has every name of PyDirectML, and runs scripts as Python does."""

from __future__ import annotations

import inspect
import json
import pathlib
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest

from dmlvk import pydirectml as dml
from dmlvk.pydirectml import __main__ as program
from dmlvk.pydirectml import functions, tensors
from dmlvk.spec.errors import InvalidArgumentError

PUBLISHED: dict[str, Any] = json.loads((pathlib.Path(__file__).parents[1] / "data" / "pydirectml.json").read_text())
METHODS = {
    "self + self": "__add__",
    "self - self": "__sub__",
    "self * self": "__mul__",
    "self / self": "__truediv__",
    "self % self": "__mod__",
    "float + self": "__radd__",
    "float - self": "__rsub__",
    "float * self": "__rmul__",
    "float / self": "__rtruediv__",
    "-self": "__neg__",
}


def words(signature: inspect.Signature) -> list[str]:
    """The arguments as the data spells them."""
    found = []
    for name, parameter in signature.parameters.items():
        default = parameter.default
        if default in (inspect.Parameter.empty, functions.REQUIRED):
            found.append(name)
        elif default is functions.NONE:
            found.append(f"{name}=FusedActivation(INVALID)")
        elif hasattr(default, "name"):
            found.append(f"{name}={type(default).__name__}.{default.name}")
        else:
            found.append(f"{name}={[] if default == () else default}")
    return found


@pytest.mark.parametrize("name", PUBLISHED["functions"])
def test_functions_have_the_published_arguments(name: str) -> None:
    assert words(inspect.signature(getattr(dml, name))) == PUBLISHED["functions"][name]


@pytest.mark.parametrize("name", PUBLISHED["enumerations"])
def test_enumerations_have_the_published_members(name: str) -> None:
    members = PUBLISHED["enumerations"][name]["members"]
    assert set(members) <= set(getattr(dml, name).__members__)


def test_members_are_names_of_the_module_too() -> None:
    last = {}
    for name, published in PUBLISHED["enumerations"].items():
        if published["exported"]:
            last |= {member: getattr(dml, name)[member] for member in published["members"]}
    assert last
    for member, value in last.items():
        assert getattr(dml, member) is value, member


@pytest.mark.parametrize("name", PUBLISHED["classes"])
def test_classes_have_the_published_members(name: str) -> None:
    published, found = PUBLISHED["classes"][name], getattr(dml, name)
    written = inspect.getsource(found)
    assert all(hasattr(found, method) for method in published["methods"])
    assert all(hasattr(found, attribute) or f"self.{attribute}" in written for attribute in published["attributes"])
    for operator in published["operators"]:
        method = METHODS.get(operator.replace("float", "self") if operator.startswith("self") else operator)
        if method is None:  # in place
            method = METHODS[operator.replace("=", "").replace("float", "self")].replace("__", "__i", 1)
        assert method in vars(found), operator
    if name == "TensorDesc":
        known = [[argument.split("=")[0] for argument in constructor] for constructor in published["constructors"]]
        assert known == [list(overload) for overload in tensors.OVERLOADS]
    elif not published["constructors"]:
        with pytest.raises(TypeError):
            found()
    elif published["constructors"] != [[]]:
        assert words(inspect.signature(found)) == published["constructors"][0]


def test_there_is_nothing_else() -> None:
    published = {*PUBLISHED["enumerations"], *PUBLISHED["classes"], *PUBLISHED["functions"]}
    assert set(dml.__all__) == published


def test_a_desc_is_told_by_its_arguments() -> None:
    f32, owned = dml.TensorDataType.FLOAT32, dml.TensorFlags.OWNED_BY_DML
    plain = dml.TensorDesc(f32, [1, 3, 4, 5])
    assert (plain.sizes, plain.strides, plain.flags, plain.total_tensor_size_in_bytes) == ([1, 3, 4, 5], None, 0, 240)
    assert dml.TensorDesc(data_type=f32, flags=owned, sizes=(2, 3)).flags == owned
    strided = dml.TensorDesc(f32, [1, 8, 28, 28], [8, 1, 0, 0])
    assert (strided.strides, strided.total_tensor_size_in_bytes) == ([8, 1, 0, 0], 32)
    assert dml.TensorDesc(f32, [2], None).strides is None
    whole = dml.TensorDesc(f32, owned, [2, 2], [2, 1], 64, 16)
    assert (whole.total_tensor_size_in_bytes, whole.guaranteed_base_offset_alignment) == (64, 16)
    interleaved = dml.TensorDesc(f32, [2, 3, 4, 5], dml.TensorPolicy.interleaved_channel)
    assert interleaved.strides == [60, 1, 15, 3]
    assert repr(strided) == "dml.TensorDesc of type 1 and shape [1,8,28,28] with flags 0"
    with pytest.raises(TypeError, match=r"fit none of its ways:\n    TensorDesc\(data_type, sizes, tensor_policy\)"):
        dml.TensorDesc(f32, [2], 5)


class Tensor:
    """What a binding asks an expression for."""

    def __init__(self, *words: Any) -> None:
        self.desc = dml.TensorDesc(*words)

    def get_output_desc(self) -> dml.TensorDesc:
        return self.desc


def test_a_binding_takes_bits_where_there_are_as_many() -> None:
    uint32, float16, float32 = dml.TensorDataType.UINT32, dml.TensorDataType.FLOAT16, dml.TensorDataType.FLOAT32
    numbers = np.array([1, 2, 2**31], np.uint32)
    for data in (numbers, numbers.view(np.float32), [1, 2, 2**31]):
        np.testing.assert_array_equal(dml.Binding(Tensor(uint32, [3]), data)._array(), numbers)
    halves = np.array([1, 0.5, -2, 3], np.float16)
    for given in (halves, halves.view(np.float32), halves.astype(np.float64), halves.astype(np.float32)):
        np.testing.assert_array_equal(dml.Binding(Tensor(float16, [4]), given)._array(), halves)
    broadcast = dml.Binding(Tensor(float32, [1, 2, 3], [2, 1, 0]), np.array([[5.0], [6.0]]))
    np.testing.assert_array_equal(broadcast._array(), [[[5, 5, 5], [6, 6, 6]]])
    with pytest.raises(InvalidArgumentError, match="must have the 16 bytes"):
        dml.Binding(Tensor(float32, [4]), np.zeros(3))


def test_tensor_data_is_an_array() -> None:
    data = dml.TensorData([[1, 2], [3, 4]])
    assert memoryview(data).format == "f" and np.array(data).tolist() == [[1, 2], [3, 4]]


def test_an_activation_takes_its_numbers_in_order() -> None:
    shrink = dml.FusedActivation(dml.OperatorType.ACTIVATION_SHRINK, 0.25, 2)._desc
    assert (shrink.bias, shrink.threshold) == (0.25, 2)
    assert dml.FusedActivation(dml.OperatorType.INVALID)._desc is None
    with pytest.raises(InvalidArgumentError, match="can be fused"):
        dml.FusedActivation(dml.OperatorType.GEMM)


def test_an_argument_behind_a_default_may_be_required() -> None:
    with pytest.raises(TypeError, match="missing 'epsilon'"):
        dml.mean_variance_normalization(dml.Expression(), normalize_variance=True)


SCRIPT = """
import os, sys
import pydirectml as dml
import beside

class Kept:
    number: int

assert Kept.__annotations__ == {"number": int}
assert __name__ == "__main__" and sys.modules["__main__"].Kept is Kept and beside.here
print(sys.argv, dml.GraphBuilder.__name__, os.path.basename(__file__))
if sys.argv[1] == "exit":
    sys.exit(7)
raise ValueError("of the script")
"""


@pytest.fixture
def script(tmp_path: pathlib.Path) -> str:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("here = True")
    return str(tmp_path / "script.py")


def test_a_script_fails_as_with_python(script: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "dmlvk.pydirectml", script, "--flag"], capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stdout == f"{[script, '--flag']} GraphBuilder script.py\n"
    first, second, *rest = ended.stderr.splitlines()
    assert first == "Traceback (most recent call last):" and second.endswith("in <module>") and "script.py" in second
    assert rest[-1] == "ValueError: of the script" and "dmlvk" not in ended.stderr


def test_a_script_ends_as_with_python(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("pydirectml", "__main__", "beside"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    del sys.modules["beside"]
    with pytest.raises(SystemExit, match="7"):
        program.main([script, "exit"])


def test_without_a_script(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    assert program.main([]) == 2 and program.main(["--help"]) == 0
    assert program.main([str(tmp_path / "none.py")]) == 2
    assert "FileNotFoundError" in capsys.readouterr().err
