"""Checks the caller's feeds against what the model declares, and chooses sizes to try where nobody has fed anything yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dmlvk.engine.device_array import DeviceArray
from dmlvk.graph.views import Sizes
from dmlvk.onnx.model import TEXT, Array, Model, ValueInfo, data_type_of
from dmlvk.onnx.ort_value import OrtValue
from dmlvk.spec.errors import InvalidArgumentError, ModelError, UnsupportedError, broken_rule

Feed = Array | DeviceArray
Fed = Feed | tuple[Feed, ...] | None
"""The value of one input: a tensor, a sequence of them, or None for an optional input that is empty."""


def check_feeds(model: Model, feeds: Mapping[str, Any]) -> dict[str, Fed]:
    """The feeds as arrays or tuples of them, in the order of the model's inputs; those that are on a device stay there.

    Sizes that share a name in the model may differ, as in ONNX Runtime: exporters give one name to sizes that are not equal.

    Raises:
        InvalidArgumentError: no mapping.
        ModelError: missing or unknown names, other types or other shapes than declared; names the inputs.
        UnsupportedError: an input with an initializer.
    """
    if not isinstance(feeds, Mapping):
        raise InvalidArgumentError("must be a mapping from input names to arrays", field="feeds", value=type(feeds))
    wanted = [info.name for info in model.inputs]
    fixed = [info.name for info in model.overridable if info.name in feeds]
    if fixed:
        what = f"input {fixed[0]!r} has an initializer, which is a constant here"
        raise UnsupportedError(f"{what}: SessionOptions.add_initializer gives it another value")
    missing = ", ".join(repr(name) for name in wanted if name not in feeds)
    unknown = ", ".join(repr(name) for name in feeds if name not in wanted)
    if missing or unknown:
        raise ModelError(
            f"the feeds must have exactly the model's inputs, {', '.join(wanted) or 'none'}; "
            f"missing: {missing or 'none'}, unknown: {unknown or 'none'}"
        )
    return {info.name: check_fed(info, feeds[info.name]) for info in model.inputs}


def check_fed(info: ValueInfo, feed: object) -> Fed:
    """One feed as an array, a tuple of arrays for a sequence, or None for an optional input that is to be empty.

    Raises:
        ModelError: it is not what the model declares.
    """
    if isinstance(feed, OrtValue):
        feed = feed.content
    if info.is_tensor:
        return check_feed(info, feed)
    if feed is None and info.type.startswith("optional("):
        return None
    inner = replace(info, type=info.type[info.type.index("tensor(") :].rstrip(")") + ")")
    if "seq(" not in info.type:
        return check_feed(inner, feed)
    if not isinstance(feed, (list, tuple)):
        rule = f"input {info.name!r} is a {info.type} and must be fed as a list or tuple of arrays"
        raise ModelError(broken_rule(rule, type(feed)))
    return tuple(check_feed(replace(inner, name=f"{info.name}[{at}]"), item) for at, item in enumerate(feed))


def check_feed(info: ValueInfo, feed: object) -> Feed:
    """One feed as an array, of the type and the number of dimensions and the sizes that the model declares. What is no array
    becomes one of the declared type, but no fraction an integer.

    Raises:
        ModelError: of another.
    """
    if isinstance(feed, OrtValue):
        feed = feed.content
    array = feed if isinstance(feed, DeviceArray) else _array(info, feed)
    if isinstance(array, DeviceArray):
        wanted = data_type_of(info.dtype)
        if array.data_type != wanted:
            rule = f"input {info.name!r} is a {info.type} and a DeviceArray for it must have that type"
            raise ModelError(broken_rule(rule, array.data_type, wanted))
    elif info.dtype == TEXT and array.dtype.kind == "U":
        array = array.astype(TEXT)
    elif array.dtype != info.dtype:
        rule = f"input {info.name!r} is a {info.type} and an array for it must have that type"
        raise ModelError(broken_rule(rule, array.dtype, info.dtype))
    if info.shape is not None:
        fits = array.ndim == len(info.shape) and all(
            not isinstance(wanted, int) or wanted == size for wanted, size in zip(info.shape, array.shape, strict=True)
        )
        if not fits:
            rule = f"input {info.name!r} must have the shape that the model declares"
            raise ModelError(broken_rule(rule, list(array.shape), list(info.shape)))
    return array


def _array(info: ValueInfo, feed: object) -> Array:
    try:
        array = np.asarray(feed)
        is_whole = array.dtype.kind in "biu" or not array.size
        if isinstance(feed, list | tuple | int | float) and (is_whole or (array.dtype.kind, info.dtype.kind) == ("f", "f")):
            return np.asarray(feed, info.dtype)
        return array
    except Exception as error:  # ragged lists, or whatever an object's own conversion raises
        rule = f"input {info.name!r} is a {info.type} and must be fed as an array ({error})"
        raise ModelError(broken_rule(rule, type(feed))) from error


def fixed_sizes(model: Model) -> dict[str, Sizes] | None:
    """The inputs' sizes, if the model leaves none of them open."""
    sizes = {}
    for info in model.inputs:
        known = tuple(size for size in info.shape or (None,) if isinstance(size, int))
        if info.shape is None or len(known) != len(info.shape):
            return None
        sizes[info.name] = known
    return sizes


def stand_in_sizes(model: Model) -> dict[str, Sizes] | None:
    """Sizes to try a model on: where it leaves one open, 1 for a first dimension and 64 for any other (8 beyond four
    dimensions, lest the tensors are larger than any real ones), the same for the same symbol. None where not even the
    number of dimensions is known."""
    named: dict[str, int] = {}
    sizes: dict[str, Sizes] = {}
    for info in model.inputs:
        if info.shape is None:
            return None
        chosen = []
        for axis, size in enumerate(info.shape):
            stand_in = 1 if axis == 0 else 64 if len(info.shape) <= 4 else 8
            if isinstance(size, str):
                stand_in = named.setdefault(size, stand_in)
            chosen.append(size if isinstance(size, int) else stand_in)
        sizes[info.name] = tuple(chosen)
    return sizes
