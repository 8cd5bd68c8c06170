"""Models of one of ONNX Runtime's own operators, and the comparison with its CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from dmlvk.onnx.registry import IN_BLOCKS, MICROSOFT

Array = np.ndarray[Any, Any]
f32, f16, i64, i32, u8, i8 = np.float32, np.float16, np.int64, np.int32, np.uint8, np.int8


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        op_type: The operator.
        inputs: Its inputs; None for one that is left out.
        attributes: Its attributes.
        types: The types of its outputs.
        skipped: Outputs that ONNX Runtime's CPU does not make, by index.
        compared: The outputs that are compared, the first so many; None for all.
        constants: Inputs that are initializers, by index.
        by_hand: What the outputs should be, of the inputs; None where ONNX Runtime's CPU says it.
        domain: The operator's domain in the file.
        relative: Tolerance over the largest magnitude.
        steps: For integers, by how much a few may differ: where a half is rounded depends on the order of operations.
        label: What tells the case from the others of its operator.
    """

    op_type: str
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    types: tuple[Any, ...] = (f32,)
    skipped: tuple[int, ...] = ()
    compared: int | None = None
    constants: tuple[int, ...] = ()
    by_hand: Callable[..., Any] | None = None
    domain: str = MICROSOFT
    relative: float = 1e-5
    steps: int = 0
    label: str = ""

    @property
    def name(self) -> str:
        attributes = "-".join(f"{key}={value}" for key, value in self.attributes.items())
        return f"{self.op_type}-{self.label}{attributes}".replace(" ", "")


def model_of(case: Case) -> ModelProto:
    names = [f"x{index}" if value is not None else "" for index, value in enumerate(case.inputs)]
    outputs = ["" if index in case.skipped else f"y{index}" for index in range(len(case.types))]
    node = helper.make_node(case.op_type, names, outputs, domain=case.domain, **case.attributes)

    def info(name: str, dtype: Any, shape: Sequence[int] | None) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    given = [(index, value) for index, value in enumerate(case.inputs) if value is not None]
    graph = helper.make_graph(
        [node],
        "test",
        [info(names[index], value.dtype, value.shape) for index, value in given if index not in case.constants],
        [info(name, dtype, None) for name, dtype in zip(outputs, case.types, strict=True) if name],
        [numpy_helper.from_array(value, names[index]) for index, value in given if index in case.constants],
    )
    opsets = [helper.make_opsetid("", 16), helper.make_opsetid(MICROSOFT, 1), helper.make_opsetid(IN_BLOCKS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def feeds_of(case: Case) -> dict[str, Array]:
    given = enumerate(case.inputs)
    return {f"x{index}": value for index, value in given if value is not None and index not in case.constants}


def random(*sizes: int, seed: int = 0, dtype: Any = f32) -> Array:
    return np.random.default_rng((seed, *sizes)).standard_normal(sizes).astype(dtype)


def whole(dtype: Any, *sizes: int, low: int = 0, high: int = 256, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *sizes)).integers(low, high, sizes).astype(dtype)


def check(
    case: Case, make_session: Callable[..., Any], reference: Callable[..., list[Array]], assert_close: Callable[..., None]
) -> None:
    """Asserts that a case's outputs are as they should be."""
    model, feeds = model_of(case), feeds_of(case)
    found = make_session(model).run(None, feeds)
    if case.by_hand is None:
        wanted = reference(model, feeds, "onnxruntime")
    else:
        made = case.by_hand(*(None if value is None else value.astype(np.float64) for value in case.inputs))
        made = made if isinstance(made, tuple) else (made,)
        wanted = [array.astype(dtype) for array, dtype in zip(made, case.types, strict=True)]
    assert len(found) == len(wanted)
    for mine, theirs in list(zip(found, wanted, strict=True))[: case.compared]:
        if case.steps and mine.dtype.kind != "f":
            differences = np.abs(mine.astype(i64) - theirs.astype(i64))
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            assert differences.max() <= case.steps and np.mean(differences > 0) <= 0.05
        else:
            assert_close(mine, theirs, case.relative)
