"""What ``SessionOptions`` sets in a model: symbolic sizes that are fixed, and other values of initializers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dmlvk.onnx.model import Model, ValueInfo
from dmlvk.onnx.ort_value import OrtValue
from dmlvk.spec.errors import ModelError, broken_rule


def overridden(model: Model, sizes: Mapping[str, int], initializers: Mapping[str, OrtValue]) -> Model:
    """A model with other sizes and initializers.

    Args:
        model: The model.
        sizes: Numbers in place of symbolic sizes, by name.
        initializers: Tensors in place of its initializers, by name.

    Raises:
        ModelError: it has no initializer of a name, or one of another type or shape.
    """
    arrays = dict(model.initializers)
    for name, value in initializers.items():
        if name not in arrays:
            raise ModelError(f"the model has no initializer {name!r}; it has {', '.join(sorted(arrays)) or 'none'}")
        array, was = value.numpy(), arrays[name]
        if (array.dtype, array.shape) != (was.dtype, was.shape):
            rule = f"initializer {name!r} must keep its type and shape"
            raise ModelError(broken_rule(rule, (array.dtype, array.shape), (was.dtype, was.shape)))
        arrays[name] = array.copy()
    inputs, outputs = (tuple(_sized(info, sizes) for info in infos) for infos in (model.inputs, model.outputs))
    return replace(model, inputs=inputs, outputs=outputs, initializers=arrays)


def _sized(info: ValueInfo, sizes: Mapping[str, int]) -> ValueInfo:
    if info.shape is None:
        return info
    return replace(info, shape=[sizes.get(size, size) if isinstance(size, str) else size for size in info.shape])
