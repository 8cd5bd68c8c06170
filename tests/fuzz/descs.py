"""Descs of every operator, changed at random: a desc is refused with a typed error that says where and why, or it has a plan
on each device that keeps to that device, or a typed error says what the device lacks.

All is told from the rows and their cases: an operator that is new is tried with no line added.
"""

from __future__ import annotations

import enum
import functools
import pickle
import random
from collections.abc import Callable
from typing import Any, Final

import choices
import plans

from dmlvk.devices.capabilities import Capabilities
from dmlvk.devices.profiles import PROFILES
from dmlvk.kernels.lowering import check_data_types, lower, newest, possible_rules
from dmlvk.spec.enums import TensorDataType, TensorFlags
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.schema import FieldKind, FieldSpec
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import Variation, build
from fuzz.campaign import Fault, Overtime
from fuzz.drafts import ROWS, Call, Text, copied, draft_of, made, read, spelt

DEVICES: Final = {
    **choices.DEVICES,
    **plans.DEVICES,
    **{name: profile.capabilities for name, profile in PROFILES.items()},
}
"""Devices that descs are lowered for."""

_OPERATORS: Final = frozenset(row.dml_name for row in ROWS.values())
_LONGEST: Final = 5000
"""Characters of a message, which nobody could read more of."""

_INTEGERS: Final = (
    *(0, 1, 2, 3, 7, -1, -2, 255, 256, 65535, 65536, 2**20, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, -(2**31)),
    *(-(2**31) - 1, 2**62, 2**63, 2**64 - 1, 2**64, Text("10**400"), Text("10**5000")),
)
_FLOATS: Final = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-40, 1e-8, 3.4e38, 3.5e38, -3.5e38, 1e300, 65504.0, 65520.0, 2.0**31, 2.0**63),
    *(Text(text) for text in ("inf", "-inf", "nan")),
)
ODD: Final = (
    *(None, True, False, "", "1", "FLOAT32", b"1", (), ((),), (None,), ("a",), 1.5, 2.0),
    *map(
        Text,
        (
            *("[1, 2]", "[]", "{}", "{1: 2}", "{3}", "object()", "int", "...", "1j", "Fraction(1, 3)", "Decimal('NaN')"),
            *("Decimal(2)", "range(3)", "iter((1, 2))", "(n for n in (1, 1))", "np.int8(1)", "np.uint64(2**64 - 1)"),
            *("np.float16(1)", "np.float32('nan')", "np.float64(2)", "np.longdouble('1e4000')", "np.bool_(True)"),
            *("np.array(1)", "np.array([1, 2])", "np.array([])", "np.array([None, 'a'])", "np.array([[1], [2]])"),
            *("np.datetime64(1, 's')", "np.str_('1')", "np.nan", "TensorDataType", "TensorDataType.INT8", "10**5000"),
            *("TensorFlags(3)", "FeatureLevel(0x1000)", "Size2D(1, 1)", "ScaleBias(1, 1)", "(1, (2, 3))", "(1,) * 100"),
            *("TensorDesc(data_type=1, sizes=(1,))", "ActivationRelu()", "ActivationRelu", "[(1, 2), [3, 4]]"),
        ),
    ),
)
"""Values of which most fields take none."""
_SIZES: Final = (1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 100, 127, 129, 1000, 4096, 65536, 2**20 + 1, 2**24, 2**31)
_PACKED: Final[dict[str, Any]] = {"strides": None, "total_tensor_size_in_bytes": 0}


def attempt(rng: random.Random) -> tuple[str, str]:
    """Drafts a desc and judges it."""
    draft = drafted(rng, wild=rng.random() < 0.35)
    text = f"{rng.choice(tuple(DEVICES))}: {spelt(draft)}"
    return text, judged(text, rng.random())


def judged(text: str, chance: float = 1.0) -> str:
    """Makes a desc of a text, validates it and makes its plan.

    Args:
        text: The name of a device of ``DEVICES`` and the desc in Python, as ``drafts.read`` takes it, with ": " between.
        chance: From 0 to 1, which of the rules that might make the plan does; from 0.5 on the one that is chosen.

    Raises:
        Fault: what came of it may not be.
    """
    device, _, expression = text.partition(": ")
    try:
        return _outcome(expression, DEVICES[device], chance)
    except (Exception, Overtime) as error:
        raise Fault(text, f"{type(error).__name__}: {error}") from error


def _outcome(expression: str, caps: Capabilities, chance: float) -> str:
    try:
        desc = read(expression)
        desc.validate(beyond=chance < 0.7)
    except InvalidArgumentError as error:
        assert not error.operator or error.operator in _OPERATORS, "an error names the operator, if one is concerned"
        assert error.field and error.rule, "an error names field and rule"
        _check_message(error)
        return "refused"
    except TypeError as error:
        if not str(error).startswith(f"{expression.partition('(')[0]} "):  # Python's own, for an argument that is missing
            raise
        return "refused"
    assert repr(pickle.loads(pickle.dumps(desc))) == repr(desc) and hash(desc) is not None, "and can be kept and sent"
    assert desc.flops() is None or desc.flops() >= 0
    desc.prefers_channels_last()
    new = newest(desc)
    try:
        check_data_types(new, caps)
        rules = ("", *possible_rules(new, caps))
        plan = lower(desc, caps, force=rules[int(chance * 2 * len(rules))] if chance < 0.5 else "")
    except UnsupportedError as error:
        assert error.operator in (desc.dml_name, new.dml_name), "the error names the operator"
        assert error.reason and error.limitation, "the error names what the device lacks"
        _check_message(error)
        return "beyond the device"
    plans.check_plan(plan, caps)
    return "planned"


def _check_message(error: Exception) -> None:
    assert len(str(error)) < _LONGEST, "a message that can be read"


# -- drafts


def drafted(rng: random.Random, *, wild: bool) -> Call:
    """A desc of some case, changed: in ways that a caller may want and, if wild, in one that none can."""
    draft = changed(rng.choice(bases(rng.choice(tuple(ROWS)))), rng)
    if wild:
        rng.choice(_WILD)(draft, rng)
    return draft


def changed(base: Call, rng: random.Random) -> Call:
    """A desc like another one."""
    draft = copied(base)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        rng.choice(_TAME)(draft, rng)
    if rng.random() < 0.7:
        _fit_outputs(draft)
    if rng.random() < 0.3:
        _restride(draft, rng)
    return draft


@functools.cache
def bases(name: str) -> tuple[Call, ...]:
    """The descs of an operator's cases, each with one of its data types."""
    entry = all_cases()[ROWS[name]]
    found = []
    for number, case in enumerate(entry.cases):
        types = case.only or entry.crossed_types
        found.append(draft_of(build(entry.operator, Variation(case, types[number % len(types)], "packed")).desc))
    return tuple(found)


def tensors_of(draft: Call) -> list[Call]:
    """The tensors of a draft, those of an array too, in the order of the slots."""
    found: list[Call] = []
    for value in draft.arguments.values():
        items = value if isinstance(value, tuple) else (value,)
        found += (item for item in items if isinstance(item, Call) and item.name == "TensorDesc")
    return found


def _fields(draft: Call, *kinds: FieldKind) -> list[FieldSpec]:
    """The fields of these kinds, or all."""
    return [spec for spec in ROWS[draft.name].fields if not kinds or spec.kind in kinds]


def _fit_outputs(draft: Call) -> None:
    """Gives outputs the sizes that inputs and attributes imply, where they do."""
    specs = [spec for spec in _fields(draft) if spec.kind is FieldKind.OUTPUT_TENSOR]
    try:
        sizes = made(draft).inferred_output_sizes()
    except Exception:  # of what is still a draft; validation has the word
        return
    for spec, own in zip(specs, sizes, strict=False):
        if isinstance(draft.arguments.get(spec.name), Call):
            draft.arguments[spec.name].arguments.update(_PACKED, sizes=own)


def _rename_size(draft: Call, rng: random.Random) -> None:
    """Another number for a size, wherever it stands."""
    tensors = tensors_of(draft)
    if not tensors:
        return
    old, new = rng.choice(rng.choice(tensors).arguments["sizes"]), rng.choice(_SIZES)
    everywhere = rng.random() < 0.7
    for tensor in tensors if everywhere else (rng.choice(tensors),):
        tensor.arguments["sizes"] = tuple(new if size == old else size for size in tensor.arguments["sizes"])
        tensor.arguments.update(_PACKED)
    for spec in _fields(draft, FieldKind.UINT_ARRAY, FieldKind.UINT) if everywhere else ():
        value = draft.arguments.get(spec.name)
        if isinstance(value, tuple):
            draft.arguments[spec.name] = tuple(new if item == old else item for item in value)
        elif value == old and rng.random() < 0.5:
            draft.arguments[spec.name] = new


def _retype(draft: Call, rng: random.Random) -> None:
    """Another data type for one, wherever it stands."""
    tensors = tensors_of(draft)
    if not tensors:
        return
    old, new = rng.choice(tensors).arguments["data_type"], rng.choice(tuple(TensorDataType)[1:])
    for tensor in tensors if rng.random() < 0.7 else (rng.choice(tensors),):
        if tensor.arguments["data_type"] == old:
            tensor.arguments.update(_PACKED, data_type=new)
    for spec in _fields(draft, FieldKind.ENUM):
        if draft.arguments.get(spec.name) is old:
            draft.arguments[spec.name] = new


def _rerank(draft: Call, rng: random.Random) -> None:
    """One dimension more or fewer, of all tensors or one."""
    tensors, more, size = tensors_of(draft), rng.random() < 0.7, rng.choice((1, 1, 2, 3))
    for tensor in tensors if rng.random() < 0.8 else tensors[:1]:
        sizes = tensor.arguments["sizes"]
        tensor.arguments["sizes"] = (size, *sizes) if more else sizes[1:] or (1,)
        tensor.arguments.update(_PACKED)
    for spec in _fields(draft, FieldKind.UINT_ARRAY, FieldKind.INT_ARRAY):
        value = draft.arguments.get(spec.name)
        if isinstance(value, tuple) and value and rng.random() < 0.5:
            draft.arguments[spec.name] = (rng.choice((0, 1, size)), *value) if more else value[1:]


def _restride(draft: Call, rng: random.Random) -> None:
    """Strides for some tensors: another order of dimensions, gaps, broadcasts; sometimes overlapping or huge."""
    for tensor in tensors_of(draft):
        sizes = tensor.arguments["sizes"]
        if rng.random() < 0.5 or not isinstance(sizes, tuple):
            continue
        order, step, strides = rng.sample(range(len(sizes)), len(sizes)), rng.choice((1, 1, 1, 2, 3)), [0] * len(sizes)
        for axis in order:
            strides[axis] = step
            step = step * sizes[axis] + rng.choice((0, 0, 0, 1, 5))
        for axis in range(len(sizes)):
            if rng.random() < 0.1:
                strides[axis] = rng.choice((0, 0, 1, 2, strides[axis] + 1, 2**20, 2**31, 2**32 - 1))
        tensor.arguments.update(_PACKED, strides=tuple(strides))


def _flag(draft: Call, rng: random.Random) -> None:
    """Some inputs are OWNED_BY_DML, more bytes or a promised alignment."""
    for tensor in tensors_of(draft):
        if rng.random() < 0.4:
            tensor.arguments["flags"] = TensorFlags.OWNED_BY_DML
        if rng.random() < 0.1:
            tensor.arguments["total_tensor_size_in_bytes"] = rng.choice((64, 4096, 2**20, 2**32, 2**33))
        if rng.random() < 0.1:
            tensor.arguments["guaranteed_base_offset_alignment"] = rng.choice((1, 4, 16, 64, 2**20, 2**40))


def _leave_out(draft: Call, rng: random.Random) -> None:
    """Without an optional field, or with one that the case has not."""
    optional = [spec for spec in _fields(draft) if spec.optional]
    if not optional:
        return
    spec, tensors = rng.choice(optional), tensors_of(draft)
    if draft.arguments.get(spec.name) is not None:
        draft.arguments[spec.name] = None
    elif spec.kind.is_tensor and tensors:
        draft.arguments[spec.name] = copied(rng.choice(tensors))
        if rng.random() < 0.5:
            draft.arguments[spec.name].arguments["data_type"] = rng.choice(spec.all_types)
    elif not spec.kind.is_tensor:
        draft.arguments[spec.name] = _of_kind(spec, draft.arguments.get(spec.name), rng)


def _exchange(draft: Call, rng: random.Random) -> None:
    """A tensor in the place of another."""
    tensors = tensors_of(draft)
    if tensors:
        rng.choice(tensors).arguments.update(copied(rng.choice(tensors)).arguments)


def _array(draft: Call, rng: random.Random) -> None:
    """An element of an array more or fewer."""
    arrays = [spec for spec in _fields(draft) if isinstance(draft.arguments.get(spec.name), tuple)]
    if arrays:
        spec = rng.choice(arrays)
        value = list(draft.arguments[spec.name])
        if value and rng.random() < 0.5:
            value.insert(rng.randrange(len(value) + 1), copied(rng.choice(value)))
        elif value:
            del value[rng.randrange(len(value))]
        draft.arguments[spec.name] = tuple(value)


def _attribute(draft: Call, rng: random.Random) -> None:
    """Another value for an attribute."""
    specs = [spec for spec in _fields(draft) if not spec.kind.is_tensor]
    if specs:
        spec = rng.choice(specs)
        draft.arguments[spec.name] = _of_kind(spec, draft.arguments.get(spec.name), rng)


def _near(value: Any, rng: random.Random) -> Any:
    """A whole number that may do where ``value`` does."""
    old = value if isinstance(value, int) else 1
    return rng.choice((0, 1, 2, 3, 4, max(old - 1, 0), old + 1, old * 2, -old, rng.choice(_INTEGERS)))


def _of_kind(spec: FieldSpec, value: Any, rng: random.Random) -> Any:
    """A value of a field's kind."""
    kind = spec.kind
    if kind in (FieldKind.UINT, FieldKind.INT):
        return _near(value, rng)
    if kind in (FieldKind.FLOAT, FieldKind.SCALAR_UNION):
        return rng.choice((*_FLOATS, *_INTEGERS))
    if kind is FieldKind.BOOL:
        return rng.random() < 0.5
    if kind is FieldKind.ENUM:
        assert spec.enumeration is not None, "an enum field names its class"
        member: enum.IntEnum = rng.choice(list(spec.enumeration))
        return member if rng.random() < 0.7 else int(member)
    if kind in (FieldKind.UINT_ARRAY, FieldKind.INT_ARRAY):
        return tuple(_near(item, rng) if rng.random() < 0.4 else item for item in value or (0, 1, 2)[: rng.randrange(4)])
    if kind is FieldKind.FLOAT_ARRAY:
        return tuple(rng.choice(_FLOATS) if rng.random() < 0.4 else item for item in value or (1.0,))
    if kind is FieldKind.SIZE_2D:
        return Call("Size2D", positional=tuple(rng.choice((0, 1, 2, 3, *_INTEGERS)) for _ in range(2)))
    if kind is FieldKind.SCALE_BIAS:
        return Call("ScaleBias", positional=tuple(rng.choice((*_FLOATS, *_INTEGERS)) for _ in range(2)))
    if kind is FieldKind.OPERATOR_DESC_ARRAY:
        return tuple(_activation(rng) for _ in range(rng.randrange(4)))
    return _activation(rng)


def _activation(rng: random.Random) -> Call:
    """An operator without tensors, most often one that may be fused."""
    fusable = [
        name for name, row in ROWS.items() if row.fusable or row.__name__ in ("ElementWiseClip", "ActivationSoftmax1")
    ]
    name = rng.choice(fusable if rng.random() < 0.9 else tuple(ROWS))
    draft = copied(rng.choice(bases(name)))
    for spec in _fields(draft):
        if spec.kind.is_tensor:
            draft.arguments[spec.name] = None
    if rng.random() < 0.4:
        _attribute(draft, rng)
    return draft


_TAME: Final[tuple[Callable[[Call, random.Random], None], ...]] = (
    *(_rename_size, _rename_size, _rename_size, _retype, _rerank, _restride, _flag, _leave_out, _exchange, _array),
    *(_attribute, _attribute, _attribute),
)


def _odd_field(draft: Call, rng: random.Random) -> None:
    spec = rng.choice(_fields(draft))
    value, odd = draft.arguments.get(spec.name), rng.choice(ODD)
    if isinstance(value, tuple) and value and rng.random() < 0.5:
        position = rng.randrange(len(value))
        odd = (*value[:position], odd, *value[position + 1 :])
    draft.arguments[spec.name] = odd


def _extreme_attribute(draft: Call, rng: random.Random) -> None:
    specs = [spec for spec in _fields(draft) if not spec.kind.is_tensor]
    if specs:
        spec = rng.choice(specs)
        value, extreme = draft.arguments.get(spec.name), rng.choice((*_INTEGERS, *_FLOATS))
        draft.arguments[spec.name] = tuple(extreme for _ in value) if isinstance(value, tuple) else extreme


def _odd_tensor(draft: Call, rng: random.Random) -> None:
    if tensors := tensors_of(draft):
        arguments = rng.choice(tensors).arguments
        arguments[rng.choice(tuple(arguments))] = rng.choice((*ODD, *_INTEGERS, *_FLOATS))


def _extreme_size(draft: Call, rng: random.Random) -> None:
    if tensors := tensors_of(draft):
        tensor, name = rng.choice(tensors), rng.choice(("sizes", "strides"))
        numbers = list(tensor.arguments[name] or tensor.arguments["sizes"] or (1,))
        numbers[rng.randrange(len(numbers))] = rng.choice((*_INTEGERS, *ODD))
        tensor.arguments[name] = rng.choice((tuple(numbers), Text(f"[{', '.join(map(spelt, numbers))}]")))


def _other_fields(draft: Call, rng: random.Random) -> None:
    del draft.arguments[rng.choice(tuple(draft.arguments))]
    if rng.random() < 0.2:
        draft.arguments["unknown"] = 1


_WILD: Final[tuple[Callable[[Call, random.Random], None], ...]] = (
    *(_odd_field, _odd_field, _extreme_attribute, _extreme_attribute, _odd_tensor, _extreme_size, _other_fields),
)
