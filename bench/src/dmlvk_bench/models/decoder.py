"""A language model's decoder as an exporter writes it: small, with all the shape arithmetic and a cache that grows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCKS: Final = 2
HEADS: Final = 4
WIDTH: Final = 64
WORDS: Final = 256
LONGEST: Final = 2048
_OPSET: Final = 17


def decoder() -> onnx.ModelProto:
    """The model, of random weights. Inputs: "ids" {batch, new words}, and for each block "past_key_0", "past_value_0", ...
    {batch, heads, words before, width of a head}. Outputs: "logits", and "present_key_0", ...: the past with the new words
    behind it. The positions and the mask follow from the sizes."""
    return _Writer().model()


class _Writer:
    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def model(self) -> onnx.ModelProto:
        head = WIDTH // HEADS
        past = [f"past_{kind}_{block}" for block in range(BLOCKS) for kind in ("key", "value")]
        sizes: list[str | int | None] = ["batch", HEADS, "past", head]
        inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "words"])]
        inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name in past]
        longer: list[str | int | None] = ["batch", HEADS, "all", head]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "words", WORDS])]
        outputs += [
            helper.make_tensor_value_info(name.replace("past", "present"), TensorProto.FLOAT, longer) for name in past
        ]
        self._write()
        graph = helper.make_graph(self._nodes, "decoder", inputs, outputs, list(self._constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)

    # -- what nodes are made of

    def _node(self, op_type: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        output = to or f"/{op_type}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, inputs, [output], name=output, **attributes))
        return output

    def _constant(self, array: Any, dtype: type = np.float32) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants[name] = numpy_helper.from_array(np.asarray(array, dtype), name)
        return name

    def _weight(self, *sizes: int) -> str:
        return self._constant(self._rng.standard_normal(sizes) * sizes[0] ** -0.5)

    def _index(self, *values: int) -> str:
        return self._constant(values, np.int64)

    def _size(self, x: str, axis: int) -> str:
        """One size of a tensor, a scalar."""
        return self._node("Gather", self._node("Shape", x), self._constant(axis, np.int64), axis=0)

    def _sizes(self, *parts: str) -> str:
        """Sizes for a Reshape: scalars that are computed, side by side with lists that are constant."""
        lists = [name if name in self._constants else self._node("Unsqueeze", name, self._index(0)) for name in parts]
        return self._node("Concat", *lists, axis=0)

    def _linear(self, x: str, inner: int, outer: int) -> str:
        return self._node("Add", self._weight(outer), self._node("MatMul", x, self._weight(inner, outer)))

    def _normalized(self, x: str) -> str:
        centred = self._node("Sub", x, self._node("ReduceMean", x, axes=[-1]))
        squares = self._node("Pow", centred, self._constant(2.0))
        variance = self._node("Add", self._node("ReduceMean", squares, axes=[-1]), self._constant(1e-5))
        scaled = self._node("Mul", self._node("Div", centred, self._node("Sqrt", variance)), self._constant(np.ones(WIDTH)))
        return self._node("Add", scaled, self._constant(np.zeros(WIDTH)))

    # -- the model

    def _write(self) -> None:
        words, before = self._size("ids", 1), self._size("past_key_0", 2)
        total = self._node("Add", before, words)
        one = self._constant(1, np.int64)
        positions = self._node("Range", before, total, one)
        row = self._node("Unsqueeze", positions, self._index(0))
        token = self._node("Gather", self._weight(WORDS, WIDTH), "ids", axis=0)
        x = self._node("Add", token, self._node("Gather", self._weight(LONGEST, WIDTH), row, axis=0))
        seen = self._node("Unsqueeze", self._node("Range", self._constant(0, np.int64), total, one), self._index(0))
        later = self._node("Greater", seen, self._node("Unsqueeze", positions, self._index(1)))
        mask = self._node("Where", later, self._constant(-1e4), self._constant(0.0))
        mask = self._node("Unsqueeze", mask, self._index(0, 1))
        for block in range(BLOCKS):
            x = self._node("Add", x, self._attention(self._normalized(x), mask, block))
            x = self._node("Add", x, self._perceptron(self._normalized(x)))
        self._node("MatMul", self._normalized(x), self._weight(WIDTH, WORDS), to="logits")

    def _attention(self, x: str, mask: str, block: int) -> str:
        head = WIDTH // HEADS
        batch, words = self._size(x, 0), self._size(x, 1)
        sizes = self._sizes(batch, words, self._index(HEADS), self._index(head))
        query, key, value = (
            self._node("Transpose", self._node("Reshape", self._linear(x, WIDTH, WIDTH), sizes), perm=[0, 2, 1, 3])
            for _ in range(3)
        )
        key = self._node("Concat", f"past_key_{block}", key, to=f"present_key_{block}", axis=2)
        value = self._node("Concat", f"past_value_{block}", value, to=f"present_value_{block}", axis=2)
        scores = self._node("MatMul", query, self._node("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self._node("Add", self._node("Div", scores, self._constant(head**0.5)), mask)
        mixed = self._node("MatMul", self._node("Softmax", scores, axis=-1), value)
        rows = self._node("Transpose", mixed, perm=[0, 2, 1, 3])
        return self._linear(self._node("Reshape", rows, self._sizes(batch, words, self._index(WIDTH))), WIDTH, WIDTH)

    def _perceptron(self, x: str) -> str:
        x = self._linear(x, WIDTH, 4 * WIDTH)
        error = self._node("Erf", self._node("Div", x, self._constant(2**0.5)))
        gated = self._node("Mul", x, self._node("Add", error, self._constant(1.0)))
        return self._linear(self._node("Mul", gated, self._constant(0.5)), 4 * WIDTH, WIDTH)
