"""The node cases of the installed release of onnx, and which of them the release of the environment has as well.

onnx 1.17 comes with its cases as files. Newer releases make them when asked, which takes half a minute, so that is
kept in .cache. As a program it does no more.
"""

from __future__ import annotations

import os
import pickle
import sysconfig
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnx.defs
import onnx.numpy_helper
from onnx.backend.test import loader

_ENVIRONMENT = Path(sysconfig.get_path("purelib"), "onnx")
ENVIRONMENT_OPSET = 22
"""The newest opset that the environment's onnx knows."""
IS_BESIDE = Path(onnx.__file__).parent != _ENVIRONMENT
"""Whether the installed onnx is another one, which stands before it in the path: what ran with that need not run again."""
_FILES = Path("backend", "test", "data", "node")
_CACHE = Path(__file__).parents[1] / ".cache" / f"node_cases-{onnx.__version__}.pickle"


class NodeCases(NamedTuple):
    """onnx's node cases.

    Attributes:
        cases: The cases, ``TestCase`` of onnx.
        repeated: Names of those that are cases of the environment's onnx too: the same versions of operators and the same
            numbers. Empty where that is the installed one, or has no files.
    """

    cases: list[loader.TestCase]
    repeated: frozenset[str]


def node_cases() -> NodeCases:
    """The cases of the installed release."""
    if (Path(onnx.__file__).parent / _FILES).is_dir():
        return NodeCases(loader.load_model_tests(kind="node"), frozenset())
    if not _CACHE.exists():
        cases = loader.load_model_tests(kind="node")
        repeated = frozenset(case.name for case in cases if _is_repeated(case))
        _CACHE.parent.mkdir(exist_ok=True)
        unfinished = _CACHE.with_suffix(f".{os.getpid()}")  # other processes may be at it
        unfinished.write_bytes(pickle.dumps((cases, repeated)))
        unfinished.replace(_CACHE)
    return NodeCases(*pickle.loads(_CACHE.read_bytes()))


def _is_repeated(case: loader.TestCase) -> bool:
    folder = _ENVIRONMENT / _FILES / case.name
    if not folder.is_dir() or _meaning(case.model) != _meaning(onnx.load(folder / "model.onnx")):
        return False
    return all(
        _is_same(value, folder / f"test_data_set_{number}" / f"{kind}_{index}.pb")
        for number, values in enumerate(case.data_sets)
        for kind, tensors in zip(("input", "output"), values, strict=True)
        for index, value in enumerate(tensors)
    )


def _meaning(model: onnx.ModelProto) -> tuple[object, ...]:
    """What a model says, with the versions of its operators in place of its opsets."""
    opsets = {item.domain: item.version for item in model.opset_import}
    versions = [
        onnx.defs.get_schema(node.op_type, opsets[node.domain], node.domain).since_version for node in model.graph.node
    ]
    return model.graph.SerializeToString(deterministic=True), versions


def _is_same(value: object, file: Path) -> bool:
    """Whether an array or a number is that of a file; what is neither, such as a sequence, never is."""
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "biuf":
        return False
    theirs = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes()))
    return theirs.dtype == value.dtype and theirs.shape == value.shape and theirs.tobytes() == value.tobytes()


if __name__ == "__main__":
    found = node_cases()
    print(f"{len(found.cases)} node cases of onnx {onnx.__version__}, {len(found.repeated)} of them the environment's too")
