"""Operator rows: each is a class body that reads like DirectML's struct.

Each DirectML operator is a subclass of ``OperatorDesc``: a frozen, keyword-only, hashable dataclass. Its annotations are
the struct's fields in the struct's order, made by the field functions below, which record kind, data types, dimension
counts and optionality; the class statement's keywords give the in-place inputs, the constraints, the traits and whether the
operator may be fused. Everything else (validation, documentation, coverage, eager functions, listings) reads the row.

Names follow the mechanical rule: ``DML_ELEMENT_WISE_MODULUS_FLOOR_OPERATOR_DESC`` is ``ElementWiseModulusFloor``,
``BatchIndicesTensor`` is ``batch_indices_tensor``; counts that a tuple knows (``AxisCount``) go.

A desc is a value: building one makes members of the numbers in enum fields, and Python's numbers of numpy's, and checks
nothing. ``validate`` checks it against the row, as ``IDMLDevice::CreateOperator`` does.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import math
import numbers
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeGuard, dataclass_transform

from dmlvk.spec.enums import FeatureLevel, OperatorType, TensorDataType, TensorFlags, member_or_none, member_rule
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.size import Size, decided
from dmlvk.spec.tensor import TensorDesc

FLOATS = (TensorDataType.FLOAT32, TensorDataType.FLOAT16)
SIGNED = (TensorDataType.INT64, TensorDataType.INT32, TensorDataType.INT16, TensorDataType.INT8)
UNSIGNED = (TensorDataType.UINT64, TensorDataType.UINT32, TensorDataType.UINT16, TensorDataType.UINT8)
NUMERIC = FLOATS + SIGNED + UNSIGNED
DOUBLE = (TensorDataType.FLOAT64,)
"""The data types that a row's ``beyond`` may name."""


class FieldKind(enum.Enum):
    """The kind of value that a field of an operator's struct holds."""

    INPUT_TENSOR = "tensor_in"
    OUTPUT_TENSOR = "tensor_out"
    INPUT_TENSOR_ARRAY = "tensor_in_array"
    OUTPUT_TENSOR_ARRAY = "tensor_out_array"
    UINT = "uint"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    ENUM = "enum"
    UINT_ARRAY = "uint_array"
    INT_ARRAY = "int_array"
    FLOAT_ARRAY = "float_array"
    SCALE_BIAS = "scale_bias"
    SCALAR_UNION = "scalar_union"
    SIZE_2D = "size2d"
    FUSED_ACTIVATION = "fused_activation"
    OPERATOR_DESC_ARRAY = "operator_desc_array"

    @property
    def is_input(self) -> bool:
        """Whether the field is one input tensor or several."""
        return self in (FieldKind.INPUT_TENSOR, FieldKind.INPUT_TENSOR_ARRAY)

    @property
    def is_output(self) -> bool:
        """Whether the field is one output tensor or several."""
        return self in (FieldKind.OUTPUT_TENSOR, FieldKind.OUTPUT_TENSOR_ARRAY)

    @property
    def is_tensor(self) -> bool:
        """Whether the field holds tensor descs."""
        return self.is_input or self.is_output


@dataclass(frozen=True)
class FieldSpec:
    """One field of a row.

    Attributes:
        name: Python name, ``batch_indices_tensor``.
        dml_name: The struct's name, ``BatchIndicesTensor``.
        kind: The kind of value that it holds.
        optional: Whether None is allowed.
        data_types: The types that a tensor may have in DirectML; () for another kind.
        beyond: Further ones that the row's kernels take (``Traits``).
        dimension_counts: The fewest and the most dimensions of a tensor.
        enumeration: The class of an enum field, None for another kind.
    """

    name: str
    dml_name: str
    kind: FieldKind
    optional: bool = False
    data_types: tuple[TensorDataType, ...] = ()
    dimension_counts: tuple[int, int] = (0, 0)
    enumeration: type[enum.IntEnum] | None = None
    beyond: tuple[TensorDataType, ...] = ()

    @property
    def all_types(self) -> tuple[TensorDataType, ...]:
        """The types that a tensor may have at every door but ``directml``."""
        return self.beyond + self.data_types


class ScaleBias(NamedTuple):
    """``DML_SCALE_BIAS``: g(x) = x * scale + bias, applied to the input before the operator."""

    scale: float
    bias: float


class Size2D(NamedTuple):
    """``DML_SIZE_2D``: a count along W and one along H."""

    width: int
    height: int


class Violation(NamedTuple):
    """The field (Python name) and value that break a constraint, and the value that another field asks for, if one does."""

    field: str
    value: object
    expected: object = None


@dataclass(frozen=True)
class Constraint:
    """A labelled rule over several fields of a desc.

    Attributes:
        label: Short name.
        rule: The rule, as a sentence with "must" or "may".
        check: Returns what breaks it, or None.
        needs_tensors: Whether it reads tensors; one that does not also holds for fused activations, which have none.
    """

    label: str
    rule: str
    check: Callable[[Any], Violation | None]
    needs_tensors: bool = True


class Cut(NamedTuple):
    """A way to cut an operator into parts that do not know of each other. A part is the same operator on fewer elements.

    Attributes:
        dimensions: The fields whose tensors are cut, with the dimension: all have the same size there. Other tensors are
            read whole; one that is written is always cut.
        changes: The other fields of the part of so many elements (second argument) from one on (first argument); None where
            they are the whole operator's.
        packs: Whether a part may have copies of its tensors; not where an output holds something that the operator keeps.
    """

    dimensions: Mapping[str, int]
    changes: Callable[[int, int], Mapping[str, Any]] | None = None
    packs: bool = True


Separable = Callable[["OperatorDesc", int], Iterable[int]]
"""(desc, the most dimensions of its tensors) -> the dimensions along which its work is separable."""


def nowhere(desc: OperatorDesc, count: int) -> Iterable[int]:
    """No dimension: an operator that needs all of its tensors at once, or whose row says how it is cut."""
    return ()


def everywhere(desc: OperatorDesc, count: int) -> Iterable[int]:
    """Every dimension."""
    return range(count)


def along(*dimensions: int) -> Separable:
    """These dimensions."""
    return lambda desc, count: dimensions


def off_axes(desc: OperatorDesc, count: int) -> Iterable[int]:
    """The dimensions that the field ``axis`` or ``axes`` does not name."""
    axes = getattr(desc, "axes", None) or (getattr(desc, "axis", count),)
    return (dimension for dimension in range(count) if dimension not in axes)


@dataclass(frozen=True)
class Traits:
    """Facts about an operator beyond its struct, which passes and rules ask a row for.

    What depends on the desc is a method of the row: ``flops`` and ``prefers_channels_last``.

    Attributes:
        pointwise: Each element of the result is computed of the elements at its place, by one case of the shaders' switches
            over operators. Its kernels take any strides, without a loss where neighbours stay neighbours, and a chain may
            take it in.
        strided: The kernels of an operator that is not pointwise take any strides likewise.
        alike: The fields whose tensors may lie in any order of the dimensions, as long as all of these lie alike; for an
            operator that is not pointwise. Its other tensors may lie in any order, too. Without fields tensors stay as they
            lie.
        discontinuous: Inputs that differ by a rounding may give results that differ by much more.
        costly: The arithmetic takes so long that an invocation had better have two items in flight, and nothing is computed
            twice.
        beyond: Data types that the operator's kernels take and DirectML's do not, for each tensor that may be FLOAT32. Every
            door has them but ``directml``.
        separable: The dimensions along which an operator that is not pointwise can be cut: what it writes at a place along
            one of them follows from what is read at that place, or from a tensor that has size 1 there. Only tensors with
            the most dimensions are cut, those of one element aside.
    """

    pointwise: bool = False
    strided: bool = False
    alike: tuple[str, ...] = ()
    discontinuous: bool = False
    costly: bool = False
    beyond: tuple[TensorDataType, ...] = ()
    separable: Separable = dataclasses.field(
        default=nowhere, compare=False
    )  # older versions are upgraded before they are cut


class Slot(NamedTuple):
    """One binding slot: a tensor of the desc, or None where an optional tensor is absent; ``element`` counts in an array."""

    field: FieldSpec
    element: int
    tensor: TensorDesc | None


def input_tensor(
    data_types: tuple[TensorDataType, ...], dims: tuple[int, int] = (1, 8), *, optional: bool = False, dml_name: str = ""
) -> Any:
    """An input tensor of these types with dims[0] to dims[1] dimensions."""
    return _field(FieldKind.INPUT_TENSOR, None, optional, dml_name, data_types=data_types, dimension_counts=dims)


def output_tensor(
    data_types: tuple[TensorDataType, ...], dims: tuple[int, int] = (1, 8), *, optional: bool = False, dml_name: str = ""
) -> Any:
    """An output tensor of these types with dims[0] to dims[1] dimensions."""
    return _field(FieldKind.OUTPUT_TENSOR, None, optional, dml_name, data_types=data_types, dimension_counts=dims)


def input_tensor_array(data_types: tuple[TensorDataType, ...], dims: tuple[int, int] = (1, 8)) -> Any:
    """An array of input tensors, a tuple, each of these types with dims[0] to dims[1] dimensions."""
    return _field(FieldKind.INPUT_TENSOR_ARRAY, None, False, "", data_types=data_types, dimension_counts=dims)


def output_tensor_array(data_types: tuple[TensorDataType, ...], dims: tuple[int, int] = (1, 8)) -> Any:
    """An array of output tensors, a tuple, each of these types with dims[0] to dims[1] dimensions."""
    return _field(FieldKind.OUTPUT_TENSOR_ARRAY, None, False, "", data_types=data_types, dimension_counts=dims)


def uint(default: int | None = None, *, dml_name: str = "") -> Any:
    """``UINT``. Without a default the field must be given, here and below."""
    return _field(FieldKind.UINT, default, False, dml_name)


def integer(default: int | None = None, *, dml_name: str = "") -> Any:
    """``INT``."""
    return _field(FieldKind.INT, default, False, dml_name)


def floating(default: float | None = None, *, dml_name: str = "") -> Any:
    """``FLOAT``."""
    return _field(FieldKind.FLOAT, default, False, dml_name)


def boolean(default: bool | None = None, *, dml_name: str = "") -> Any:
    """``BOOL``."""
    return _field(FieldKind.BOOL, default, False, dml_name)


def enumeration(cls: type[enum.IntEnum], default: enum.IntEnum | None = None, *, dml_name: str = "") -> Any:
    """A member of a DirectML enumeration."""
    return _field(FieldKind.ENUM, default, False, dml_name, enumeration=cls)


def uint_array(default: tuple[int, ...] | None = None, *, optional: bool = False, dml_name: str = "") -> Any:
    """``const UINT*`` with its count: a tuple."""
    return _field(FieldKind.UINT_ARRAY, default, optional, dml_name)


def int_array(default: tuple[int, ...] | None = None, *, optional: bool = False, dml_name: str = "") -> Any:
    """``const INT*`` with its count: a tuple."""
    return _field(FieldKind.INT_ARRAY, default, optional, dml_name)


def float_array(default: tuple[float, ...] | None = None, *, optional: bool = False, dml_name: str = "") -> Any:
    """``const FLOAT*`` with its count: a tuple."""
    return _field(FieldKind.FLOAT_ARRAY, default, optional, dml_name)


def size_2d(default: Size2D | None = None) -> Any:
    """A ``DML_SIZE_2D``."""
    return _field(FieldKind.SIZE_2D, default, False, "")


def scale_bias() -> Any:
    """An optional ``DML_SCALE_BIAS*``."""
    return _field(FieldKind.SCALE_BIAS, None, True, "")


def scalar_union() -> Any:
    """A ``DML_SCALAR_UNION``: a number of the type that another field names."""
    return _field(FieldKind.SCALAR_UNION, None, False, "")


def fused_activation() -> Any:
    """An optional ``FusedActivation``: an activation desc without tensors."""
    return _field(FieldKind.FUSED_ACTIVATION, None, True, "")


def operator_desc_array() -> Any:
    """A ``const DML_OPERATOR_DESC*`` with its count: a tuple of activation descs, fusable ones, without tensors."""
    return _field(FieldKind.OPERATOR_DESC_ARRAY, None, False, "")


def _field(kind: FieldKind, default: object, optional: bool, dml_name: str, **spec: Any) -> Any:
    metadata = {"kind": kind, "optional": optional, "dml_name": dml_name, **spec}
    if default is None and not optional and not kind.is_tensor:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


REGISTRY: dict[OperatorType, type[OperatorDesc]] = {}
"""Every row, by operator; filled by the class statements in ``dmlvk.spec.ops``."""


def class_name(operator: OperatorType) -> str:
    """The mechanical class name: ``ElementWiseModulusFloor`` for ``ELEMENT_WISE_MODULUS_FLOOR``."""
    return "".join(part.capitalize() for part in operator.name.split("_"))


def _dml_field_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


_TYPE_OF_CLASS_NAME = {class_name(operator): operator for operator in OperatorType}


def _beyond(traits: Traits, data_types: tuple[TensorDataType, ...]) -> tuple[TensorDataType, ...]:
    """The types that a tensor of these types may have beyond them."""
    is_real = TensorDataType.FLOAT32 in data_types
    return tuple(item for item in traits.beyond if is_real and item not in data_types)


_Enumerations = dict[str, type[enum.IntEnum]]  # inside a row ``type`` is its operator


class _Missing:
    """Stands for the default of a field that has none."""


class _Signature:
    """The signature of a row's constructor, for ``inspect`` and ``help``: all fields by keyword."""

    def __get__(self, row: object, owner: type[OperatorDesc]) -> inspect.Signature:
        return inspect.Signature(
            inspect.Parameter(
                item.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if item.default is dataclasses.MISSING else item.default,
                annotation=item.type,
            )
            for item in dataclasses.fields(owner)  # type: ignore[arg-type]  # __init_subclass__ makes it a dataclass
        )


# Without field_specifiers a type checker takes every field for optional: what is missing is found by ``validate`` (tensors)
# or by the constructor (attributes without a default).
@dataclass_transform(kw_only_default=True, frozen_default=True)
class OperatorDesc:
    """Base of every row; see the module's text.

    Class attributes, all read from the class statement:
        type: The operator; INVALID for a row of our own that a pass makes (the class statement's ``internal``). It is not
            in ``REGISTRY``, and so in no listing.
        dml_name: The DirectML constant, which errors name; of such a row its class.
        fields: Its fields in the struct's order.
        in_place: Names of the inputs whose exact range an output may share.
        constraints: Rules over several fields.
        fusable: Whether the operator may be another's ``FusedActivation``.
        accepts: Other operators this one additionally accepts as ``FusedActivation`` (``ElementWiseClip`` into
            ``Gemm``), by type.
        traits: The facts that passes and rules ask for.
    """

    __signature__: ClassVar[inspect.Signature] = _Signature()  # type: ignore[assignment]
    type: ClassVar[OperatorType]
    dml_name: ClassVar[str]
    _defaults: ClassVar[dict[str, Any]]
    _enumerations: ClassVar[_Enumerations]
    _tensors: ClassVar[frozenset[str]]
    fields: ClassVar[tuple[FieldSpec, ...]]
    in_place: ClassVar[tuple[str, ...]]
    constraints: ClassVar[tuple[Constraint, ...]]
    fusable: ClassVar[bool]
    accepts: ClassVar[tuple[OperatorType, ...]]
    traits: ClassVar[Traits]

    def __init_subclass__(
        cls,
        *,
        in_place: tuple[str, ...] = (),
        constraints: tuple[Constraint, ...] = (),
        fusable: bool = False,
        accepts: tuple[OperatorType, ...] = (),
        internal: bool = False,
        traits: Traits = Traits(),  # it is frozen
    ) -> None:
        cls.type = OperatorType.INVALID if internal else _TYPE_OF_CLASS_NAME[cls.__name__]
        cls.dml_name = cls.__name__ if internal else cls.type.dml_name
        cls.in_place, cls.constraints, cls.fusable, cls.accepts = in_place, constraints, fusable, accepts
        cls.traits = traits
        # Compiling methods for each of 177 rows would be a third of the time that the package takes to import.
        dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
        cls.fields = tuple(
            FieldSpec(
                item.name,
                item.metadata["dml_name"] or _dml_field_name(item.name),
                **{key: value for key, value in item.metadata.items() if key != "dml_name"},
                beyond=_beyond(traits, item.metadata.get("data_types", ())),
            )
            for item in dataclasses.fields(cls)  # type: ignore[arg-type]  # the line above made it a dataclass
        )
        cls._defaults = {
            item.name: _Missing() if item.default is dataclasses.MISSING else item.default
            for item in dataclasses.fields(cls)  # type: ignore[arg-type]
        }
        cls._enumerations = {spec.name: spec.enumeration for spec in cls.fields if spec.enumeration is not None}
        cls._tensors = frozenset(spec.name for spec in cls.fields if spec.kind.is_tensor)
        if not internal:
            REGISTRY[cls.type] = cls

    def __init__(self, **values: Any) -> None:
        defaults = self._defaults
        state = {**defaults, **values}
        if len(state) > len(defaults) or _Missing in map(type, state.values()):
            try:
                type(self).__signature__.bind(**values)
            except TypeError as error:
                raise TypeError(f"{type(self).__name__} {error}") from None
        for name, value in values.items():
            if type(value) not in _PYTHON and name not in self._tensors:
                state[name] = _as_python(value)
        for name, enumeration in self._enumerations.items():
            if type(state[name]) is not enumeration:
                member = member_or_none(enumeration, state[name])
                state[name] = state[name] if member is None else member  # which ``validate`` refuses
        self.__dict__.update(state)

    def _values(self) -> tuple[Any, ...]:
        return tuple(map(self.__dict__.__getitem__, self._defaults))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values()))

    def __repr__(self) -> str:
        fields = zip(self._defaults, self._values(), strict=True)
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    @property
    def title(self) -> str:
        """The name in reports."""
        return type(self).__name__

    @classmethod
    def feature_level(cls) -> FeatureLevel:
        """The level that introduced the operator."""
        return cls.type.feature_level

    def upgrade(self) -> OperatorDesc:
        """The equal desc of the newest re-issue, which is the one that has kernels; self where there is none newer."""
        return self

    def flops(self) -> int | None:
        """Multiplications and additions, on padding too, of an operator whose time they may decide; None of others."""
        return None

    def cuts(self) -> Sequence[Cut]:
        """The ways to cut the operator into parts that do not know of each other: along each dimension that the row's trait
        ``separable`` names, unless a row says more."""
        separable = everywhere if self.traits.pointwise else self.traits.separable
        tensors = [
            (slot.field.name, slot.tensor.sizes)
            for slot in self.input_slots() + self.output_slots()
            if slot.tensor is not None and slot.tensor.element_count > 1
        ]
        count = max((len(sizes) for _, sizes in tensors), default=0)
        cuts = []
        for dimension in separable(self, count):
            found = {name: sizes[dimension] for name, sizes in tensors if len(sizes) == count and sizes[dimension] != 1}
            first, *others = found.values() or (1,)
            if first != 1 and all(size == first for size in others):
                cuts.append(Cut(dict.fromkeys(found, dimension)))
        return cuts

    def prefers_channels_last(self) -> bool:
        """Whether kernels are faster where the first input's channels lie side by side."""
        return False

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Sizes of each output slot, from the inputs and attributes: those of the first input unless a row says more.

        Raises:
            InvalidArgumentError: where the operator cannot know them, so that the caller must state them.
        """
        first = next((slot.tensor for slot in self.input_slots()), None)
        if first is None:
            raise self.error(self.fields[0].name, "must be given", None)
        return (first.sizes,) * len(self.output_slots())

    def input_slots(self) -> tuple[Slot, ...]:
        """Input binding slots in the struct's order; each element of a tensor array is a slot of its own."""
        return self._input_slots

    def output_slots(self) -> tuple[Slot, ...]:
        """Output binding slots in the struct's order."""
        return self._output_slots

    @cached_property  # asked for at every step of a plan's making
    def _input_slots(self) -> tuple[Slot, ...]:
        return tuple(self._slots(lambda kind: kind.is_input))

    @cached_property
    def _output_slots(self) -> tuple[Slot, ...]:
        return tuple(self._slots(lambda kind: kind.is_output))

    def in_place_slots(self) -> frozenset[int]:
        """Indices of the input slots that may share an output's exact range."""
        return frozenset(i for i, slot in enumerate(self.input_slots()) if slot.field.name in self.in_place)

    def overwritable(self, output: int) -> frozenset[int]:
        """Indices of the input slots whose exact range one of the outputs may be written over: none where there are several
        outputs, of which another may be computed of these, unless the row says more."""
        return self.in_place_slots() if len(self.output_slots()) == 1 else frozenset()

    def _slots(self, wanted: Callable[[FieldKind], bool]) -> Iterator[Slot]:
        for spec in self.fields:
            if wanted(spec.kind):
                value = getattr(self, spec.name)
                for index, tensor in enumerate(value if isinstance(value, tuple) else (value,)):
                    yield Slot(spec, index, tensor)

    def tensor(self, name: str) -> TensorDesc:
        """The tensor of a required field, which validation has shown to be there."""
        tensor = getattr(self, name)
        assert isinstance(tensor, TensorDesc), f"{self.dml_name}.{name} used before validation"
        return tensor

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]  # __init_subclass__ makes it a dataclass

    def error(self, field: str, rule: str, value: object, expected: object = None) -> InvalidArgumentError:
        """The exception for a field (by Python name) that breaks a rule."""
        dml_name = next((spec.dml_name for spec in self.fields if spec.name == field), field)
        return InvalidArgumentError(rule, operator=self.dml_name, field=dml_name, value=value, expected=expected)

    def broken(self, constraint: Constraint, violation: Violation) -> InvalidArgumentError:
        """The exception for a constraint that does not hold."""
        return self.error(violation.field, constraint.rule, violation.value, violation.expected)

    def validate(self, *, beyond: bool = True) -> None:
        """Checks the desc against its row: fields first, then the constraints in order.

        Args:
            beyond: Whether tensors may have data types that DirectML's operator does not take (``Traits.beyond``), and
                sizes of 0.

        Raises:
            InvalidArgumentError: naming operator, field, rule and value of the first rule broken.
        """
        for spec in self.fields:
            self._validate_field(spec, beyond)
        for constraint in self.constraints:
            violation = constraint.check(self)
            if violation is not None:
                raise self.broken(constraint, violation)

    def validate_given(self) -> None:
        """Checks every field but the outputs, each by itself: what the inference of outputs takes for granted.

        Raises:
            InvalidArgumentError: as ``validate``.
        """
        for spec in self.fields:
            if not spec.kind.is_output:
                self._validate_field(spec, beyond=True)

    def _validate_field(self, spec: FieldSpec, beyond: bool) -> None:
        value = getattr(self, spec.name)
        if value is None:
            if not spec.optional:
                raise self.error(spec.name, "must be given", None)
        elif spec.kind in (FieldKind.INPUT_TENSOR, FieldKind.OUTPUT_TENSOR):
            self._validate_tensor(spec, value, beyond)
        elif spec.kind.is_tensor:
            if not isinstance(value, tuple) or not value:
                raise self.error(spec.name, "must be a tuple of at least one TensorDesc", value)
            for tensor in value:
                self._validate_tensor(spec, tensor, beyond)
        elif spec.kind is FieldKind.FUSED_ACTIVATION:
            self._validate_activation(spec, value)
        elif spec.kind is FieldKind.OPERATOR_DESC_ARRAY:
            if not isinstance(value, tuple):
                raise self.error(spec.name, "must be a tuple of operator descs", value)
            for activation in value:
                self._validate_activation(spec, activation)
        else:
            self._validate_attribute(spec, value)

    def _validate_tensor(self, spec: FieldSpec, tensor: object, beyond: bool) -> None:
        if not isinstance(tensor, TensorDesc):
            raise self.error(spec.name, "must be a TensorDesc", tensor)
        least, most = spec.dimension_counts
        if not least <= tensor.dimension_count <= most:
            rule = f"must have {least} dimensions" if least == most else f"must have {least} to {most} dimensions"
            raise self.error(spec.name, rule, tensor.sizes)
        if not beyond and 0 in tensor.sizes:
            raise self.error(spec.name, "every size must be at least 1", tensor.sizes)
        allowed = spec.all_types if beyond else spec.data_types
        if tensor.data_type not in allowed:
            names = ", ".join(data_type.name for data_type in allowed)
            raise self.error(spec.name, f"must have one of the data types {names}", tensor.data_type)
        if spec.kind.is_output:
            if tensor.flags & TensorFlags.OWNED_BY_DML:
                raise self.error(spec.name, "an output must not be OWNED_BY_DML", tensor.flags)
            if tensor.has_overlapping_elements:
                raise self.error(spec.name, "no two elements of an output may share memory", tensor.strides)

    def _validate_attribute(self, spec: FieldSpec, value: object) -> None:
        kind = spec.kind
        if kind is FieldKind.ENUM:
            assert spec.enumeration is not None, "an enum field names its class"
            if type(value) is not spec.enumeration:
                raise self.error(spec.name, member_rule(spec.enumeration), value)
        elif kind is FieldKind.BOOL:
            if not isinstance(value, bool):
                raise self.error(spec.name, "must be True or False", value)
        elif kind is FieldKind.UINT:
            if not _is_integer(value, 0, 2**32):
                raise self.error(spec.name, "must be an integer from 0 to 2**32 - 1", value)
        elif kind is FieldKind.INT:
            if not _is_integer(value, -(2**31), 2**31):
                raise self.error(spec.name, "must be an integer from -2**31 to 2**31 - 1", value)
        elif kind is FieldKind.FLOAT:
            if not fits_float32(value):
                raise self.error(spec.name, "must be a number that fits a FLOAT32, not NaN", value)
        elif kind is FieldKind.SCALAR_UNION:
            if not _is_number(value):
                raise self.error(spec.name, "must be a number", value)
        elif kind is FieldKind.UINT_ARRAY:
            if not isinstance(value, tuple) or not all(_is_integer(item, 0, 2**32) for item in value):
                raise self.error(spec.name, "must be a tuple of integers from 0 to 2**32 - 1", value)
        elif kind is FieldKind.INT_ARRAY:
            if not isinstance(value, tuple) or not all(_is_integer(item, -(2**31), 2**31) for item in value):
                raise self.error(spec.name, "must be a tuple of integers from -2**31 to 2**31 - 1", value)
        elif kind is FieldKind.FLOAT_ARRAY:
            if not isinstance(value, tuple) or not all(map(fits_float32, value)):
                raise self.error(spec.name, "must be a tuple of numbers that fit a FLOAT32, not NaN", value)
        elif kind is FieldKind.SIZE_2D:
            if not isinstance(value, Size2D) or not all(_is_integer(item, 0, 2**32) for item in value):
                raise self.error(spec.name, "must be a Size2D of two integers from 0 to 2**32 - 1", value)
        elif kind is FieldKind.SCALE_BIAS:
            if not isinstance(value, ScaleBias) or not all(fits_float32(item) for item in value):
                raise self.error(spec.name, "must be a ScaleBias of two numbers that fit a FLOAT32, not NaN", value)
        else:
            raise AssertionError(f"no check for fields of kind {kind}")

    def _validate_activation(self, spec: FieldSpec, value: object) -> None:
        if not isinstance(value, OperatorDesc) or not (value.fusable or value.type in self.accepts):
            names = sorted(cls.__name__ for kind, cls in REGISTRY.items() if cls.fusable or kind in self.accepts)
            raise self.error(spec.name, f"must be a desc of one of {', '.join(names)}", value)
        for inner in value.fields:
            item = getattr(value, inner.name)
            if inner.kind.is_tensor:
                if item is not None:
                    raise self.error(spec.name, f"must have no tensors, so {inner.dml_name} must be None", item)
            elif item is not None:
                try:
                    value._validate_attribute(inner, item)
                except InvalidArgumentError as error:
                    raise self.error(spec.name, f"{type(value).__name__}.{inner.dml_name} {error.rule}", item) from None
        for constraint in value.constraints:
            if not constraint.needs_tensors and (violation := constraint.check(value)) is not None:
                raise self.error(spec.name, f"{type(value).__name__}: {constraint.rule}", violation.value)


_PYTHON: Final = frozenset((bool, int, float, Size, type(None), TensorDesc))
"""The types whose values a desc holds as they are."""


def _as_python(value: Any) -> Any:
    """numpy's scalars as Python's numbers, alone and in tuples; anything else as it is. Kernels compute with sizes and
    numbers, and 8 bits would wrap around."""
    if isinstance(value, tuple):
        if all(map(_PYTHON.__contains__, map(type, value))):
            return value
        items = map(_as_python, value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _is_integer(value: object, least: int, end: int) -> bool:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        return False
    return least <= (value if isinstance(value, Size) else int(value)) < end


def _is_number(value: object) -> TypeGuard[numbers.Real]:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    if isinstance(value, Size):  # whose range is the row's to check
        return True
    try:
        float(value)
    except OverflowError:  # an integer beyond every floating type
        return False
    return True


def fits_float32(value: object) -> bool:
    """Whether a value is a number, not NaN, and no finite one that float32 would make infinite."""
    return bool(decided(_fits_float32, value))


def _fits_float32(value: object) -> bool:
    if not _is_number(value) or math.isnan(value):
        return False
    try:
        struct.pack("<f", float(value))
    except OverflowError:
        return False
    return True


def is_zero_in_float32(value: float) -> bool:
    """Whether a FLOAT32 cannot tell a number from 0: half of its least number, and what is smaller, are rounded to it."""
    return abs(value) <= 2.0**-150
