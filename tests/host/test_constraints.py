"""Every constraint of every row is broken by a desc that breaks no earlier rule, and the error names it.

(Later rules may fail as a consequence: tensors of different dimension counts have different sizes, too.) The descs are
found, not listed: each case of the operator is changed in one field at a time, in every way that the field's own checks
let pass. What that cannot reach stands in BREAKERS.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from together import together

import dmlvk
from dmlvk.spec import ops as _ops
from dmlvk.spec.errors import InvalidArgumentError, spelled
from dmlvk.spec.schema import REGISTRY, Constraint, FieldKind, FieldSpec, OperatorDesc
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import Variation, build

_ATTENTION: dict[str, dict[str, Any]] = {
    "sources": {"value_tensor": None},
    "past": {"past_key_tensor": TensorDesc(dmlvk.TensorDataType.FLOAT32, (2, 3, 4, 8))},
    "unpadded_past": {
        "mask_type": dmlvk.MultiheadAttentionMaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END,
        "mask_tensor": TensorDesc(dmlvk.TensorDataType.INT32, (8,)),
        "past_key_tensor": TensorDesc(dmlvk.TensorDataType.FLOAT32, (2, 3, 4, 8)),
        "past_value_tensor": TensorDesc(dmlvk.TensorDataType.FLOAT32, (2, 3, 4, 8)),
    },
}

BREAKERS: dict[tuple[str, str], dict[str, Any]] = {
    **{("MultiheadAttention", label): fields for label, fields in _ATTENTION.items()},
    **{("MultiheadAttention1", label): fields for label, fields in _ATTENTION.items()},
    ("Gemm", "double_activation"): {
        **dict.fromkeys(("a_tensor", "b_tensor", "output_tensor"), TensorDesc(dmlvk.TensorDataType.FLOAT64, (2, 2))),
        "c_tensor": None,
        "fused_activation": _ops.ActivationRelu(),
    },
    ("MultiheadAttention1", "past_lengths"): {
        "past_sequence_lengths_tensor": TensorDesc(dmlvk.TensorDataType.INT32, (2,)),
    },
    **{
        (name, "some_output"): dict.fromkeys(outputs)
        for name, outputs in {
            "Rnn": ("output_sequence_tensor", "output_single_tensor"),
            "Gru": ("output_sequence_tensor", "output_single_tensor"),
            "Lstm": ("output_sequence_tensor", "output_single_tensor", "output_cell_single_tensor"),
        }.items()
    },
    ("LocalResponseNormalizationGrad", "slope"): {"alpha": 3e38, "beta": 3e38},
    ("Gemm", "softmax_axes"): {"fused_activation": _ops.ActivationSoftmax1(axes=(0,))},
    ("RoiAlignGrad", "some_output"): dict.fromkeys(("output_gradient_tensor", "output_roi_gradient_tensor")),
    ("RoiAlignGrad", "image_needed"): {"input_tensor": None},
}
"""(row, constraint label) -> fields to change in its first case, where no change of one field breaks that rule first."""

PAIRS = [
    (row, constraint)
    for row in sorted(REGISTRY.values(), key=lambda row: row.type)
    if row in all_cases()
    for constraint in row.constraints
]


def tensor_changes(spec: FieldSpec, tensor: TensorDesc) -> Iterator[TensorDesc]:
    for data_type in spec.all_types:
        yield TensorDesc(data_type, tensor.sizes)
    for axis, size in enumerate(tensor.sizes):
        for other in (size + 1, size * 2, max(size - 1, 1), 1):
            yield TensorDesc(tensor.data_type, (*tensor.sizes[:axis], other, *tensor.sizes[axis + 1 :]))
    if len(tensor.sizes) < 8:
        yield TensorDesc(tensor.data_type, (1, *tensor.sizes))
    yield TensorDesc(tensor.data_type, tensor.sizes[1:] or (1,))


def changes(spec: FieldSpec, value: Any) -> Iterator[Any]:
    """Other values that the field might hold."""
    if spec.kind.is_tensor and isinstance(value, TensorDesc):
        yield from tensor_changes(spec, value)
    elif spec.kind in (FieldKind.INPUT_TENSOR_ARRAY, FieldKind.OUTPUT_TENSOR_ARRAY):
        yield from (value[:-1], (*value, value[0]))
        for index, tensor in enumerate(value):
            for changed in tensor_changes(spec, tensor):
                yield (*value[:index], changed, *value[index + 1 :])
    elif spec.kind is FieldKind.ENUM:
        assert spec.enumeration is not None
        yield from spec.enumeration
    elif spec.kind is FieldKind.OPERATOR_DESC_ARRAY:
        yield from (value[:-1], (*value, value[0]))
    elif spec.kind is FieldKind.UINT:
        yield from (0, 1, 3, value + 1, 1000)
    elif spec.kind is FieldKind.FLOAT:
        yield from (0.0, float("inf"), -1.0)
    elif spec.kind is FieldKind.FLOAT_ARRAY:
        yield from ((), (*value, 0.0), (0.0, *value[1:]), (*value[:-1], float("inf")))
    elif spec.kind in (FieldKind.UINT_ARRAY, FieldKind.INT_ARRAY):
        yield from ((), value[:-1], (*value, 1), tuple(0 for _ in value), tuple(item + 1000 for item in value))
        yield (*value[:-1], *value[:1]) * 2
    elif spec.kind is FieldKind.SIZE_2D:
        yield from (value._replace(width=0), value._replace(height=value.height + 1), value._replace(height=2**32 - 1))


def bases(row: type[OperatorDesc]) -> Iterator[OperatorDesc]:
    entry = all_cases()[row]
    for case in entry.cases:
        data_type = (case.only or entry.crossed_types)[0]
        yield build(row, Variation(case, data_type, "packed")).desc


def broken(desc: OperatorDesc) -> list[Constraint]:
    """The first constraint that a desc breaks, as a list of at most one."""
    return next(([constraint] for constraint in desc.constraints if constraint.check(desc) is not None), [])


def passes_field_checks(desc: OperatorDesc) -> bool:
    unconstrained = type(desc).constraints
    try:
        type(desc).constraints = ()
        desc.validate()
    except InvalidArgumentError:
        return False
    finally:
        type(desc).constraints = unconstrained
    return True


@pytest.mark.slow
@together(PAIRS, lambda pair: f"{pair[0].__name__}, {pair[1].label}")
def test_constraint_is_broken_first(pair: tuple[type[OperatorDesc], Constraint]) -> None:
    row, constraint = pair
    for base in bases(row):
        assert broken(base) == [], f"a case breaks {broken(base)}"
        manual = BREAKERS.get((row.__name__, constraint.label))
        candidates: Iterator[OperatorDesc] = (
            iter([base.replace(**manual)])
            if manual is not None
            else (
                base.replace(**{spec.name: value})
                for spec in row.fields
                if getattr(base, spec.name) is not None
                for value in changes(spec, getattr(base, spec.name))
            )
        )
        for desc in candidates:
            if passes_field_checks(desc) and broken(desc) == [constraint]:
                with pytest.raises(InvalidArgumentError) as caught:
                    desc.validate()
                assert caught.value.operator == row.type.dml_name
                assert caught.value.rule == constraint.rule
                assert caught.value.field in {spec.dml_name for spec in row.fields}
                assert spelled(caught.value.value) in str(caught.value)
                return
    pytest.fail(f"no desc was found that first breaks {constraint.rule!r}")


def test_a_fused_activation_keeps_its_own_rules() -> None:
    base = next(bases(dmlvk.MeanVarianceNormalization1))
    with pytest.raises(InvalidArgumentError, match=r"NORMALIZATION1\.FusedActivation: ActivationCelu: alpha must not be 0"):
        base.replace(fused_activation=dmlvk.ActivationCelu(alpha=0.0)).validate()
    with pytest.raises(InvalidArgumentError, match="must have no tensors"):
        base.replace(fused_activation=dmlvk.ActivationRelu(input_tensor=base.input_slots()[0].tensor)).validate()
    with pytest.raises(InvalidArgumentError, match="must be a desc of one of"):
        base.replace(fused_activation=dmlvk.ActivationHardmax()).validate()
