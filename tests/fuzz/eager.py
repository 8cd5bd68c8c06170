"""Calls of ``dmlvk.eager``: arrays of any layout, on the host and on the device, lists, numbers, other types and keywords.

A call ends in a typed error or in arrays, and these are those of the same call with packed arrays of the host.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import dmlvk
from dmlvk import DeviceArray
from dmlvk import eager as functions
from dmlvk.eager_calls import Call as EagerCall
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.spec.errors import DmlvkError
from dmlvk.spec.functions import function_name, row_named
from dmlvk.spec.schema import FieldKind
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import NUMPY_TYPES
from fuzz import descs
from fuzz.answers import shared_device
from fuzz.campaign import Fault, Overtime
from fuzz.drafts import NAMES, ROWS, Call, Text, spelt

Array = NDArray[Any]
_MOST_ELEMENTS: Final = 1 << 14
"""Of an array: more is not run."""


def numbers(*sizes: int, dtype: str) -> Array:
    """Small numbers: valid where an operator takes indices or lengths."""
    kind = np.dtype(dtype)
    counted = np.arange(np.prod(sizes, dtype=int)) % 7
    return (counted * 0.37 - 1 if kind.kind == "f" else counted % 3).astype(kind).reshape(sizes)


def _sliced(array: Array) -> Array:
    return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array


def _backwards(array: Array) -> Array:
    return np.ascontiguousarray(array[::-1])[::-1] if array.ndim else array


def _unaligned(array: Array) -> Array:
    """In the middle of bytes, at no multiple of the element."""
    data = np.zeros(array.nbytes + 1, np.uint8)
    view = data[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


_LAYOUTS: Final[dict[str, Callable[..., Any]]] = {
    "sliced": _sliced,
    "backwards": _backwards,
    "unaligned": _unaligned,
    "read_only": _read_only,
    "fortran": np.asfortranarray,
    "masked": np.ma.masked_array,
}
"""Other ways to have the same array."""
_OTHERS: Final = (
    *(
        "None",
        "3",
        "2.5",
        "True",
        "'text'",
        "[1, [2, 3]]",
        "[]",
        "{}",
        "object()",
        "np.float64(2)",
        "np.array(1)",
        "np.array('a')",
    ),
    *(
        "np.zeros((2, 0, 3), 'f4')",
        "np.zeros(3, 'c8')",
        "np.zeros(3, 'M8[s]')",
        "np.zeros(3, object)",
        "np.zeros(3, 'f4, i4')",
    ),
    *("np.zeros((1,) * 9, 'f4')", "range(3)", "iter([1, 2])", "[[1.0, 2.0], [3.0, 4.0]]", "memoryview(b'abcd')", "b'abcd'"),
    *("np.longdouble(1)", "np.zeros(2, bool)", "np.float16(1)", "np.broadcast_to(np.float32(1), (2**40,))"),
)
"""Operands that are no arrays, or such as no tensor is."""


_OPTIONS: Final = (
    *("unknown=1", "output_sizes=(2, 3)", "output_sizes=[[2, 3], [1]]", "output_sizes=3", "output_sizes=(2**40,)"),
    *("output_sizes=()", "output_sizes=(0,)", "output_sizes=(-1,)", "output_sizes=[[2.5]]", "output_sizes='12'"),
    *("output_data_types=1", "output_data_types=TensorDataType.INT8", "output_data_types=[1, 2]", "output_data_types='x'"),
    *("output_data_types=99", "output_data_types=1.5", "output_data_types=np.array([1, 2])", "outputs=()", "outputs=None"),
    *("outputs=['a']", "outputs=3", "outputs='output_tensor'", "outputs=[[1]]", "outputs=[None, 'a']"),
    *("device=0", "device='lavapipe'", "device=None"),
)
"""Arguments beside an operator's own, most of them wrong."""


def attempt(rng: random.Random) -> tuple[str, str]:
    """Drafts a call and makes it."""
    text = _drafted(rng)
    return text, judged(text) if text else "large"


def judged(text: str) -> str:
    """Makes a call, given in Python, twice: as it is, and with packed arrays of the host.

    Raises:
        Fault: the error has no type of dmlvk's, or the two differ.
    """
    device = shared_device()
    layouts = {**_LAYOUTS, "on_device": lambda array: DeviceArray.from_numpy(array, device)}
    try:
        found, error = _results(text, device, layouts)
        if error is None and found is None:
            return "large"
        wanted, refusal = _results(text, device, dict.fromkeys(layouts, lambda array: array))
        if (error is None) != (refusal is None):
            raise AssertionError(f"{error!r}, and with plain arrays {refusal!r}")
        if found is None or wanted is None:
            return "refused"
        defined = 1 if text.startswith("nonzero_coordinates") else None  # rows behind the last are undefined
        for mine, plain in zip(found[:defined], wanted[:defined], strict=True):
            assert mine.dtype == plain.dtype and mine.shape == plain.shape, f"{mine.dtype} {mine.shape}"
            assert _are_close(mine, plain), "other numbers than with plain arrays"
    except (Exception, Overtime) as error:
        raise Fault(text, f"{type(error).__name__}: {error}") from error
    return "right"


def _results(
    text: str, device: dmlvk.Device, layouts: dict[str, Callable[..., Any]]
) -> tuple[list[Array] | None, Exception | None]:
    """The arrays of a call, or the error that it ends in; neither of a call that is too large to be run."""
    name = text.partition("(")[0]
    arguments = lambda *args, **named: (args, named)  # noqa: E731
    try:
        args, named = eval(text, {**NAMES, **layouts, name: arguments, "numbers": numbers, "device": device})
        named.setdefault("device", device)
        if _is_large(name, args, named):
            return None, None
        result = getattr(functions, name)(*args, **named)
    except DmlvkError as error:
        return None, error
    except TypeError as error:
        if not str(error).startswith((f"{name}() ", *ROWS)):  # Python's own, for missing arguments
            raise
        return None, error
    results = result if isinstance(result, tuple) else (result,)
    return [np.asarray(array) for array in results], None


def _are_close(mine: Array, plain: Array) -> bool:
    """Whether results are equal or, of floats, which other kernels add in another order, almost."""
    if mine.dtype.kind != "f":
        return bool(np.array_equal(mine, plain))
    size = np.abs(plain[np.isfinite(plain)]).max(initial=1e-6).astype(float)
    share = 0.02 if mine.dtype == np.float16 else 1e-4
    return bool(np.allclose(mine.astype(float), plain.astype(float), share, share * size, equal_nan=True))


def _is_large(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    try:
        call = EagerCall(row_named(name, "dmlvk.eager"), args, dict(named))
        shapes = [(operand.shape, data_type_of(operand.dtype)) for operand in call.operands if operand is not None]
        desc = call.describe(TensorDesc(kind, shape or (1,)) for shape, kind in shapes)
    except Exception:  # of which the call itself has to make a typed error
        return False
    tensors = [slot.tensor for slot in desc.input_slots() + desc.output_slots() if slot.tensor is not None]
    return any(tensor.element_count > _MOST_ELEMENTS for tensor in tensors) or (desc.flops() or 0) > 1 << 22


def _is_long(tensor: Call) -> bool:
    return math.prod(tensor.arguments["sizes"]) > _MOST_ELEMENTS


def _drafted(rng: random.Random) -> str:
    """A call as text; "" where its arrays would be large."""
    row = rng.choice([row for row in ROWS.values() if row.type])
    draft = descs.changed(rng.choice(descs.bases(row.__name__)), rng)
    if any(_is_long(tensor) for tensor in descs.tensors_of(draft)):
        return ""
    positional, named = [], []
    wild = rng.random()
    for spec in row.fields:
        value = draft.arguments.get(spec.name)
        if spec.kind.is_output:
            continue
        if spec.kind is FieldKind.INPUT_TENSOR_ARRAY and isinstance(value, tuple):
            text = f"[{', '.join(_operand(item, rng, wild) for item in value)}]"
        elif spec.kind.is_input:
            text = _operand(value, rng, wild)
        else:
            value = rng.choice(descs.ODD) if wild > 0.9 and rng.random() < 0.3 else value
            text = spelt(value)
            if isinstance(value, tuple) and rng.random() < 0.2:
                text = rng.choice((f"list({text})", f"np.array({text})"))
        if spec.kind.is_input and not named:
            positional.append(text)
        elif text != "None":
            named.append(f"{spec.name}={text}")
    if wild > 0.8:
        named.append(rng.choice(_OPTIONS))
        rng.shuffle(named)
    if rng.random() < 0.5 and wild < 0.8:
        optional = [spec.name for spec in row.fields if spec.kind.is_output and spec.optional]
        if optional:
            named.append(f"outputs={optional[: rng.randrange(len(optional) + 1)]!r}")
    needs_type = any(spec.kind.is_output and len(spec.data_types) > 1 for spec in row.fields)
    output = next((tensor for tensor in descs.tensors_of(draft)[::-1]), None)
    if needs_type and output is not None and rng.random() < 0.2:
        named.append(f"output_data_types={int(output.arguments['data_type'])}")
    if not any(spec.kind.is_input for spec in row.fields) and output is not None:
        named += [
            f"output_sizes={output.arguments['sizes']!r}",
            f"output_data_types={int(output.arguments['data_type'])}",
        ]
    named = list({text.partition("=")[0]: text for text in named}.values())
    return f"{function_name(row)}({', '.join([*positional, *named])})"


def _operand(value: Any, rng: random.Random, wild: float) -> str:
    """A tensor as an argument."""
    if wild < 0.15 and rng.random() < 0.4:
        return rng.choice(_OTHERS)
    if not isinstance(value, Call):
        return "None" if value is None else spelt(Text(value))
    sizes, kind = value.arguments["sizes"], NUMPY_TYPES[value.arguments["data_type"]]
    text = f"numbers({', '.join(map(str, sizes))}, dtype={kind.str!r})"
    if rng.random() < 0.4:
        text = f"{rng.choice(tuple(_LAYOUTS))}({text})"
    if rng.random() < 0.3:
        text = f"on_device({text})"
    elif rng.random() < 0.05:
        text = f"{text}.tolist()"
    return text
