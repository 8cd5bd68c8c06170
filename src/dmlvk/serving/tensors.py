"""Tensors as the open inference protocol writes them: numbers of JSON, or bytes behind it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.serving.fields import json_object
from dmlvk.serving.refusals import Refusal

Array = npt.NDArray[Any]

LENGTH_HEADER: Final = "inference-header-content-length"
"""The header that says how many bytes of a body are JSON; the rest are tensors."""
DATA_TYPES: Final[dict[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}
"""The protocol's names of types. Its BYTES, strings, are none that a device computes with."""
NAMES: Final = {data_type: name for name, data_type in DATA_TYPES.items()}
_MOST_DIMENSIONS: Final = 32


class Inference:
    """A request for an inference.

    Attributes:
        id: What the client calls it, None where it does not.
        inputs: Its tensors, by name.
        outputs: The names of those that it wants, in order; none where it wants all.
    """

    def __init__(self, body: bytes, json_bytes: int | None) -> None:
        """Reads a request.

        Args:
            body: JSON, and behind it the bytes of tensors.
            json_bytes: How much of it is JSON; all where None.

        Raises:
            Refusal: it is not as the protocol says.
        """
        if json_bytes is not None and not 0 <= json_bytes <= len(body):
            raise _wrong(LENGTH_HEADER, f"must be 0 to {len(body)}, the bytes of the body")
        said = json_object(body if json_bytes is None else body[:json_bytes])
        self.id = said.get("id")
        if self.id is not None and not isinstance(self.id, str):
            raise _wrong("id", "must be a string")
        self._rest = memoryview(b"" if json_bytes is None else body[json_bytes:])
        self.inputs: dict[str, Array] = {}
        for index, item in enumerate(_objects("inputs", said.get("inputs"))):
            name = _name(f"inputs[{index}]", item)
            if name in self.inputs:
                raise _wrong(f"inputs[{index}].name", f"{name[:100]!r} is there twice")
            self.inputs[name] = self._tensor(f"inputs[{index}]", item)
        if self._rest:
            raise _wrong("inputs", f"{len(self._rest)} bytes behind the JSON are no input's")
        all_binary = bool(_parameters("parameters", said).get("binary_data_output", False))
        self._binary: dict[str, bool] = {}
        self.outputs: list[str] = []
        for index, item in enumerate(_objects("outputs", said.get("outputs", []))):
            name = _name(f"outputs[{index}]", item)
            self.outputs.append(name)
            self._binary[name] = bool(_parameters(f"outputs[{index}].parameters", item).get("binary_data", all_binary))
        self._all_binary = all_binary

    def _tensor(self, where: str, item: Mapping[str, Any]) -> Array:
        kind, shape = item.get("datatype"), item.get("shape")
        data_type = DATA_TYPES.get(kind) if isinstance(kind, str) else None
        if data_type is None:
            raise _wrong(f"{where}.datatype", f"must be one of {', '.join(DATA_TYPES)}")
        if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS or not all(map(_is_size, shape)):
            raise _wrong(f"{where}.shape", f"must be a list of at most {_MOST_DIMENSIONS} whole numbers, 0 or more")
        count = math.prod(shape)
        nbytes = _parameters(f"{where}.parameters", item).get("binary_data_size")
        if nbytes is not None:
            if type(nbytes) is not int or nbytes != count * data_type.itemsize or nbytes > len(self._rest):
                there = len(self._rest)
                rule = f"must be {count * data_type.itemsize}, as the shape and type say, of {there} bytes that are there"
                raise _wrong(f"{where}.parameters.binary_data_size", rule)
            data, self._rest = self._rest[:nbytes], self._rest[nbytes:]
            if data_type == np.bool_ and bytes(data).strip(b"\0\1"):
                raise _wrong(f"{where}", "bytes of BOOL must be 0 or 1")
            return np.frombuffer(data, data_type.newbyteorder("<")).astype(data_type).reshape(shape)
        return _numbers(where, item.get("data"), data_type, count).reshape(shape)

    def written(self, model: str, outputs: Mapping[str, Array]) -> tuple[bytes, int | None]:
        """The response: its bytes, and how many of them are JSON where not all are."""
        described, parts = [], []
        for name, array in outputs.items():
            item: dict[str, Any] = {"name": name, "shape": [*array.shape], "datatype": NAMES[array.dtype]}
            if self._binary.get(name, self._all_binary):
                parts.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
                item["parameters"] = {"binary_data_size": len(parts[-1])}
            else:
                item["data"] = [_number(value) for value in array.reshape(-1).tolist()]
            described.append(item)
        answer = {"model_name": model, **({} if self.id is None else {"id": self.id}), "outputs": described}
        head = json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
        return b"".join((head, *parts)), len(head) if parts else None


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _number(value: Any) -> Any:
    """A number as JSON has it, which knows neither infinities nor what is none: null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(where: str, data: Any, data_type: np.dtype[Any], count: int) -> Array:
    """Numbers of JSON, flat or nested."""
    if not isinstance(data, list):
        raise _wrong(f"{where}.data", "must be a list of numbers")
    flat: list[Any] = []
    try:
        _flatten(data, flat, count)
    except RecursionError as error:
        raise _wrong(f"{where}.data", "is nested too deeply") from error
    if len(flat) != count:
        raise _wrong(f"{where}.data", f"must have {count} numbers, as the shape says")
    allowed = (bool,) if data_type == np.bool_ else (int, float) if data_type.kind == "f" else (int,)
    if not all(type(value) in allowed for value in flat):
        raise _wrong(f"{where}.data", f"must be what {NAMES[data_type]} can be")
    try:
        with np.errstate(over="ignore"):  # beyond what a float can be is infinity
            return np.array(flat, data_type)
    except OverflowError as error:
        raise _wrong(f"{where}.data", f"must be what {NAMES[data_type]} can be") from error


def _flatten(data: Sequence[Any], flat: list[Any], most: int) -> None:
    for value in data:
        if isinstance(value, list):
            _flatten(value, flat, most)
        else:
            flat.append(value)
        if len(flat) > most:
            return


def _objects(where: str, value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise _wrong(where, "must be a list of objects")
    return value


def _name(where: str, item: Mapping[str, Any]) -> str:
    name = item.get("name")
    if not isinstance(name, str):
        raise _wrong(f"{where}.name", "must be a string")
    return name


def _parameters(where: str, item: Mapping[str, Any]) -> Mapping[str, Any]:
    found = item.get("parameters", {})
    if not isinstance(found, dict):
        raise _wrong(where, "must be an object")
    return found


def _wrong(where: str, rule: str) -> Refusal:
    return Refusal(400, f"{where}: {rule}", field=where, code="invalid_value")
