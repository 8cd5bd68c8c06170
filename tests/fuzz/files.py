"""Broken files of DirectML's own programs: DxDispatch's JSON and serialised graphs, of every operator.

A file is written for an operator as it is in its cases, and then a few members or bytes are others. It is read, or refused
with a typed error that names the part.
"""

from __future__ import annotations

import copy
import functools
import json
import pathlib
import random
from types import SimpleNamespace
from typing import Any, Final

import dispatch_files
import serialized_graphs

from dmlvk.directml.serialized_graph import read_serialized_graph
from dmlvk.dxdispatch.model import parse_model
from dmlvk.graph.wiring import wire
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.errors import DmlvkError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import build, variations
from fuzz.campaign import Fault, Overtime

_VALUES: Final = (
    *(None, True, -1, 0, 1, 3, 2**32 - 1, 2**32, 2**70, 0.5, 1e400, "", "FLOAT32", "NONE", "buffer", "nan", "GEMM"),
    *([], [1], [[]], [0] * 9, {}, {"name": "buffer"}, {"Type": "GEMM"}, {"value": 0, "valueCount": 2**32 - 1}),
)


class _Maker:
    """What a graph's reader needs of a device."""

    def create_operator(self, desc: OperatorDesc) -> Any:
        return SimpleNamespace(device=self, desc=desc)


@functools.cache
def _rows() -> tuple[type[OperatorDesc], ...]:
    return tuple(row for row in all_cases() if row.type is not OperatorType.INVALID)


@functools.cache
def _desc(row: type[OperatorDesc]) -> OperatorDesc:
    return build(row, next(variations(all_cases()[row]))).desc


def _document(desc: OperatorDesc) -> dict[str, Any]:
    names = [slot.field.dml_name for slot in desc.input_slots() + desc.output_slots() if slot.tensor is not None]
    commands: list[Any] = [
        {
            "type": "dispatch",
            "dispatchable": "it",
            "bindings": {name: {"name": "buffer", "elementOffset": 4} for name in names},
        },
        {"type": "print", "resource": "buffer", "verbose": False},
        {"type": "writeFile", "resource": "buffer", "targetPath": "x.npy", "dimensions": [1, 2]},
    ]
    return {
        "resources": {
            "buffer": {"initialValues": [1, 2, 3], "initialValuesDataType": "FLOAT16", "sizeInBytes": 64},
            "counted": {
                "initialValues": {"valueStart": 1, "valueDelta": 2, "valueCount": 3},
                "initialValuesDataType": "INT8",
            },
        },
        "dispatchables": {"it": {**dispatch_files.operator(desc), "executionFlags": ["NONE"], "bindings": {}}},
        "commands": commands,
    }


def _change(rng: random.Random, document: Any) -> None:
    """Gives one value of a document another one, or takes it out."""
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(place[key], dict | list) and rng.random() < 0.85:
            place = place[key]
        elif rng.random() < 0.15:
            del place[key]
            return
        else:
            place[key] = copy.deepcopy(rng.choice(_VALUES))
            return


def _break(rng: random.Random, data: bytes) -> bytes:
    broken = bytearray(data[: rng.randrange(len(data))] if rng.random() < 0.1 else data)
    for _ in range(rng.randrange(1, 4)):
        if broken:
            broken[rng.randrange(len(broken))] = rng.choice((0, 1, 255, rng.randrange(256)))
    return bytes(broken)


def attempt(rng: random.Random) -> tuple[str, str]:
    """Reads a broken file."""
    desc = _desc(rng.choice(_rows()))
    is_graph = rng.random() < 0.5
    if is_graph:
        data = _break(rng, serialized_graphs.single(desc, {}))
    else:
        document = _document(desc)
        for _ in range(rng.randrange(1, 4)):
            _change(rng, document)
        data = json.dumps(document).encode()
        if rng.random() < 0.2:
            data = _break(rng, data)
    try:
        if is_graph:
            wire(read_serialized_graph(_Maker(), data, lambda _: bytes(64)).desc)  # type: ignore[arg-type]
        else:
            parse_model(data, pathlib.Path())
    except DmlvkError as error:
        if not is_graph and "$" not in str(error):
            raise Fault(data.decode(errors="replace"), f"no path: {error}") from error
        return "", "refused"
    except (Exception, Overtime) as error:
        raise Fault(data.hex() if is_graph else data.decode(errors="replace"), f"{type(error).__name__}: {error}") from error
    return "", "read"
