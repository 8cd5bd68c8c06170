"""Writes operators and problems as DxDispatch's files have them: the reader's counterpart, and independent of it."""

from __future__ import annotations

import enum
import json
import math
import pathlib
import re
from typing import Any

from dmlvk.spec.schema import FieldKind, OperatorDesc
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.problem import Problem


def constant(member: enum.Enum) -> str:
    """DirectML's constant of an enumeration's member."""
    return f"DML_{re.sub('(?<!^)(?=[A-Z])', '_', type(member).__name__).upper()}_{member.name}"


def number(value: float) -> float | str:
    """A number as JSON has it."""
    return value if math.isfinite(value) else str(value)


def tensor(desc: TensorDesc) -> dict[str, Any]:
    members: dict[str, Any] = {
        "DataType": constant(desc.data_type),
        "Sizes": desc.sizes,
        "DimensionCount": len(desc.sizes),
        "TotalTensorSizeInBytes": desc.total_tensor_size_in_bytes,
        "GuaranteedBaseOffsetAlignment": desc.guaranteed_base_offset_alignment,
        "Flags": ["OWNED_BY_DML"] if desc.owned_by_dml else "DML_TENSOR_FLAG_NONE",
    }
    if desc.strides is not None:
        members["Strides"] = desc.strides
    return {"Type": "DML_TENSOR_TYPE_BUFFER", "Desc": members}


def operator(desc: OperatorDesc) -> dict[str, Any]:
    """A ``DML_OPERATOR_DESC``."""
    return {"Type": desc.dml_name, "Desc": {spec.dml_name: field(desc, spec.name) for spec in desc.fields}}


def field(desc: OperatorDesc, name: str) -> Any:
    kind = next(spec.kind for spec in desc.fields if spec.name == name)
    value = getattr(desc, name)
    if value is None:
        return None
    if kind in (FieldKind.INPUT_TENSOR, FieldKind.OUTPUT_TENSOR):
        return tensor(value)
    if kind.is_tensor:
        return list(map(tensor, value))
    if kind is FieldKind.FUSED_ACTIVATION:
        return operator(value)
    if kind is FieldKind.OPERATOR_DESC_ARRAY:
        return list(map(operator, value))
    if kind is FieldKind.ENUM:
        return constant(value)
    if kind is FieldKind.SCALE_BIAS:
        return {"Scale": number(value.scale), "Bias": number(value.bias)}
    if kind is FieldKind.SIZE_2D:
        return {"Width": value.width, "Height": value.height}
    if kind in (FieldKind.FLOAT, FieldKind.SCALAR_UNION):
        return number(value)
    if kind is FieldKind.FLOAT_ARRAY:
        return list(map(number, value))
    return value


def problem_file(problem: Problem, folder: pathlib.Path) -> tuple[bytes, list[str | None]]:
    """A problem as a file, whose buffers' bytes are files of a folder.

    Returns:
        The JSON, and the resource of each output slot, None for one that is absent.
    """
    names: dict[GuardedTensor, str] = {}
    resources: dict[str, Any] = {}
    for item in problem.inputs + problem.outputs:
        if item is not None and item not in names:
            names[item] = name = f"buffer {len(names)}"
            (folder / f"{len(names)}.bin").write_bytes(item.data.tobytes())
            values = {"sourcePath": f"{len(names)}.bin"}
            resources[name] = {"initialValues": values, "initialValuesDataType": "UINT8"}
    bindings: dict[str, dict[str, Any]] = {"execute": {}, "initialize": {}}
    for slots, tensors in ((problem.desc.input_slots(), problem.inputs), (problem.desc.output_slots(), problem.outputs)):
        for slot, item in zip(slots, tensors, strict=True):
            if item is None:
                continue
            source = {"name": names[item], "elementOffset": item.offset}
            when = bindings["initialize" if item.desc.owned_by_dml else "execute"]
            if slot.field.kind.name.endswith("ARRAY"):
                when.setdefault(slot.field.dml_name, []).append(source)
            else:
                when[slot.field.dml_name] = source
    document = {
        "resources": resources,
        "dispatchables": {"problem": {**operator(problem.desc), "bindings": bindings["initialize"]}},
        "commands": [{"type": "dispatch", "dispatchable": "problem", "bindings": bindings["execute"]}],
    }
    return json.dumps(document).encode(), [None if item is None else names[item] for item in problem.outputs]
