"""Formats that no tensor has, for converters that do not know them: other types stand for them.

Where a converter takes FLOAT32 and not bfloat16, what it reads is widened and what it makes is rounded, as by the casts that
ONNX Runtime's CPU puts there; so it is with 8-bit floats, where an operator takes these. Where it only moves elements, their
bits stand for them. ``Row.stands_in`` says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from dmlvk.graph.step import Storage
from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.formats import in_bytes, in_half_bytes, on_host, rounded
from dmlvk.onnx.model import FOUR_BITS, ElementKind, Node, data_type_of, element_code, element_type, format_of, kind_of
from dmlvk.onnx.registry import COUNTING, TAKING, Row
from dmlvk.onnx.types import infer_types
from dmlvk.onnx.values import Operand, Value
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.formats import NumberFormat

_FLOAT = np.dtype(np.float32)
_BITS: Final[Mapping[ElementKind, np.dtype[Any]]] = {
    TensorDataType.UINT16: np.dtype(np.uint16),
    TensorDataType.UINT8: np.dtype(np.uint8),
    TensorDataType.INT8: np.dtype(np.int8),
    TensorDataType.FLOAT32: _FLOAT,
}
_TYPED: Final = ("dtype", "value", "output_dtype")
"""Attributes that may give an output a type."""


class StandIns:
    """What stands for what in one trace.

    A number of bfloat16 may have two homes, its bits and a float32; what reads it takes the one that it needs, and a home
    that nothing needs costs nothing. So what one converter makes is not narrowed and widened on its way to the next, but
    only rounded.
    """

    def __init__(self) -> None:
        self._wide: dict[tuple[Storage, ElementKind | None], Storage] = {}  # bits may be read as several formats
        self._narrow: dict[Storage, Value] = {}
        self._views: dict[tuple[Storage, ElementKind | None, Sizes, Sizes], Value] = {}

    def read(self, row: Row, conversion: Conversion, operands: Sequence[Operand | None]) -> list[Operand | None]:
        """What a converter is given for its node's inputs.

        Args:
            row: The converter's.
            conversion: The node with its inputs as they are; what they take is launched in it.
            operands: These inputs.
        """
        given = [*operands]
        for index, operand in enumerate(operands):
            if not isinstance(operand, Value | np.ndarray):
                continue
            kind = conversion.kinds[index]
            other = row.stands_in(conversion.node, index, kind)
            if other is kind:
                continue
            assert isinstance(other, TensorDataType), "nothing stands for what converters know"
            dtype = _BITS[other]
            if isinstance(operand, np.ndarray) and index in row.host_inputs:
                given[index] = on_host(operand, dtype)
            else:
                given[index] = self._given(conversion, conversion[index], dtype)
        return given

    def _given(self, conversion: Conversion, x: Value, dtype: np.dtype[Any]) -> Value:
        if dtype == _FLOAT:
            return self._widened(conversion, x)
        return in_bytes(conversion, x, dtype) if x.data_type in FOUR_BITS else x.reinterpret(dtype)

    def _widened(self, conversion: Conversion, x: Value) -> Value:
        whole = (x.storage, kind_of(x.dtype))
        if whole not in self._wide:
            key = (*whole, x.sizes, x.strides)
            if key not in self._views:
                self._views[key] = y = cast_to(conversion, x, _FLOAT)
                if x.is_packed and x.storage.nbytes == conversion.new(x.sizes, x.dtype).storage.nbytes:
                    self._remember(x, y)
            return self._views[key]
        return Value(self._wide[whole], _FLOAT, x.sizes, x.strides)

    def _remember(self, x: Value, y: Value) -> None:
        """Notes two packed homes of the same numbers."""
        self._wide[x.storage, kind_of(x.dtype)], self._narrow[y.storage] = y.storage, x

    def made(
        self,
        conversion: Conversion,
        operands: Sequence[Operand | None],
        row: Row,
        results: Mapping[str, Operand],
    ) -> dict[str, Operand]:
        """What a node makes, of what its converter has made.

        Args:
            conversion: The node as its converter has it; what rounding takes is launched in it.
            operands: The node's own inputs.
            row: The converter's.
            results: What the converter has made, by name.
        """
        node = conversion.node
        own = {name: dtype for name, item in zip(node.inputs, operands, strict=False) if (dtype := _dtype(item)) is not None}
        formats = {name: dtype for name, dtype in own.items() if format_of(dtype) is not None}
        if not formats and not any(name in node.attributes for name in _TYPED):
            return dict(results)
        types = _types_made(node, own)
        stood = {}
        for index, name in enumerate(node.inputs):
            if name in formats:
                other = row.stands_in(node, index, kind_of(formats[name]))
                if isinstance(other, TensorDataType) and other is not kind_of(formats[name]):
                    stood[_BITS[other]] = formats[name]
        made: dict[str, Operand] = {}
        for name, item in results.items():
            found = _dtype(item)
            wanted = None if found is None else types.get(name, stood.get(found))
            if found is None or wanted is None or format_of(wanted) is None or kind_of(found) is kind_of(wanted):
                made[name] = item
                continue
            value = conversion.upload(item) if isinstance(item, np.ndarray) else item
            assert isinstance(value, Value), "sizes are of no format"
            made[name] = self._rounded(conversion, value, wanted)
        return made

    def _rounded(self, conversion: Conversion, y: Value, dtype: np.dtype[Any]) -> Value:
        """What a converter has made as a format."""
        if y.dtype != _FLOAT:
            half = data_type_of(dtype) in FOUR_BITS
            return in_half_bytes(conversion, y, dtype) if half else y.reinterpret(dtype)
        x = self._narrow.get(y.storage)
        if x is not None and kind_of(x.dtype) is kind_of(dtype):
            return Value(x.storage, dtype, y.sizes, y.strides)
        narrow = cast_to(conversion, y, dtype)
        if format_of(dtype) is NumberFormat.BFLOAT16:
            self._remember(narrow, rounded(conversion, y, NumberFormat.BFLOAT16))
        return narrow


def _dtype(operand: Operand | None) -> np.dtype[Any] | None:
    return operand.dtype if isinstance(operand, Value | np.ndarray) else None


def _types_made(node: Node, own: Mapping[str, np.dtype[Any]]) -> dict[str, np.dtype[Any]]:
    """numpy's types of what a node makes, as far as its definition says."""
    if node.domain in (COUNTING, TAKING):
        return {}
    codes = {name: code for name, dtype in own.items() if (code := element_code(dtype))}
    infer_types([node.proto], {node.domain: node.version}, codes)
    found = {name: element_type(codes[name])[1] for name in node.outputs if name in codes}
    return {name: dtype for name, dtype in found.items() if dtype is not None}
