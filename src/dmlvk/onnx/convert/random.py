"""Random numbers: Philox words of a state that the session keeps on the device, made into floats by arithmetic operators.

Each node has a state of its own, of which every run uses up as many words as it needs, whatever its shapes: each run gives
new numbers. The key is the node's ``seed``, so that two sessions of one model give the same numbers run for run (which are
not those of another runtime); without a seed a key is drawn when the node is first planned.

A number in [0, 1) is the upper 24 bits of a word over 2^24, exact in float32; other types round such numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.model import Array
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.seeds import drawn
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction, TensorDataType
from dmlvk.spec.schema import FLOATS, NUMERIC, ScaleBias

_ANY = (TensorDataType.FLOAT64, *NUMERIC)
_REAL = (TensorDataType.FLOAT64, *FLOATS)
_BITS = 24
"""The upper bits of a word: as many as a float32 holds."""
_FLOAT32, _UINT32, _BOOL = np.dtype(np.float32), np.dtype(np.uint32), np.dtype(np.bool_)


def _refuse_other_types(node: NodeFacts) -> None:
    if node.attribute("dtype", 0) == 0:
        node.takes(0, _REAL)
    elif node.element_type("dtype").kind != "f":
        raise node.unsupported(f"random numbers of type {node.element_type('dtype')} are not supported, only floats")


@converts("RandomUniform", 1, 22, types=_REAL, check=_refuse_other_types)
@converts("RandomUniformLike", 1, 22, types=_ANY, check=_refuse_other_types)
def random_uniform(node: Conversion) -> Value:
    """Numbers from low to the largest one below high: rounding must not make one that is out of range."""
    sizes, dtype = _described(node)
    kind = np.float16 if dtype == np.float16 else np.float32
    low, high = kind(node.attribute("low", 0.0)), kind(node.attribute("high", 1.0))
    if not (np.isfinite([low, high]).all() and low < high):
        raise node.invalid("low and high must be finite, and low below high", (low, high))
    (counts,) = _counts(node, sizes, 1)
    scale_bias = ScaleBias((float(high) - float(low)) * 2.0**-_BITS, float(low))
    below = float(np.nextafter(high, low))
    y = node.elementwise(ops.ElementWiseClip, counts, scale_bias=scale_bias, min=float(low), max=below)
    return cast_to(node, y, dtype)


@converts("RandomNormal", 1, 22, types=_REAL, check=_refuse_other_types)
@converts("RandomNormalLike", 1, 22, types=_ANY, check=_refuse_other_types)
def random_normal(node: Conversion) -> Value:
    """The method of Box and Muller: sqrt(-2 log(1 - u)) cos(2 pi v), at most 5.8 standard deviations from the mean."""
    sizes, dtype = _described(node)
    radius_counts, angle_counts = _counts(node, sizes, 2)
    # 1 - u has the distribution of u + 2^-24, which is never 0.
    logarithm = node.elementwise(ops.ElementWiseLog, radius_counts, scale_bias=ScaleBias(2.0**-_BITS, 2.0**-_BITS))
    radius = node.elementwise(ops.ElementWiseSqrt, logarithm, scale_bias=ScaleBias(-2.0, 0.0))
    cosine = node.elementwise(ops.ElementWiseCos, angle_counts, scale_bias=ScaleBias(2 * math.pi * 2.0**-_BITS, 0.0))
    standard = node.elementwise(ops.ElementWiseMultiply, radius, cosine)
    scale_bias = ScaleBias(float(node.attribute("scale", 1.0)), float(node.attribute("mean", 0.0)))
    return cast_to(node, node.elementwise(ops.ElementWiseIdentity, standard, scale_bias=scale_bias), dtype)


@converts("Bernoulli", 15, 22, types=_REAL, check=lambda node: node.element_type("dtype", _FLOAT32))
def bernoulli(node: Conversion) -> Value:
    """1 where a number in [0, 1) is below the input's, else 0."""
    probabilities = node[0]
    chosen = node.elementwise(
        ops.ElementWiseLogicalLessThan,
        _fractions(node, probabilities.sizes),
        cast_to(node, probabilities, _FLOAT32),
        dtype=_BOOL,
    )
    return cast_to(node, chosen, node.element_type("dtype", probabilities.dtype))


@converts("Multinomial", 7, 22, types=_REAL, check=lambda node: node.element_type("dtype", _FLOAT32))
def multinomial(node: Conversion) -> Value:
    """For each number in [0, 1), the number of classes whose running sum of probabilities is not above it."""
    logits, count = cast_to(node, node[0], _FLOAT32), int(node.attribute("sample_size", 1))
    if logits.rank != 2 or logits.sizes[1] < 1 or count < 1:
        rule = "the input must have the sizes (batch, classes), and sample_size be at least 1"
        raise node.invalid(rule, (logits.sizes, count))
    rows, classes = logits.sizes
    dtype = node.element_type("dtype", np.dtype(np.int32))
    if classes == 1:
        return node.fill((rows, count), dtype.type(0))
    shares, sums = node.new(logits.sizes, _FLOAT32), node.new(logits.sizes, _FLOAT32)
    node.launch(ops.ActivationSoftmax1, logits, output_tensor=shares, axes=(1,))
    node.launch(ops.CumulativeSummation, shares, output_tensor=sums, axis=1, has_exclusive_sum=False)
    # The last class has no bound: rounding may have left the last sum below 1.
    bounds = node.reshape(sums.shorten(1, classes - 1), (rows, 1, classes - 1))
    fractions = node.reshape(_fractions(node, (rows, count)), (rows, count, 1))
    passed = node.elementwise(
        ops.ElementWiseLogicalLessThanOrEqual, *node.broadcast(bounds, fractions), dtype=np.dtype(np.uint8)
    )
    passed = cast_to(node, passed, _UINT32)
    total = node.launch(
        ops.Reduce, passed, output_tensor=node.new((rows, count, 1), _UINT32), function=ReduceFunction.SUM, axes=(2,)
    )
    return cast_to(node, node.reshape(total, (rows, count)), dtype)


@converts("Dropout", 7, 10, 12, 13, 22, types=_ANY, host_inputs=(1, 2))
def dropout(node: Conversion) -> tuple[Value, Value | None]:
    """The input itself, and a mask that keeps everything; with ``training_mode``, x / (1 - ratio) where a number in [0, 1)
    is not below the ratio, else 0."""
    x, training = node[0], node.host(2)
    ratio = 0.5 if node.host(1) is None else float(node.known(1).item())
    if training is not None and training.item() and ratio > 0:
        return _dropped(node, x, ratio)
    if not node.wants(1):
        return x, None
    return x, node.upload(np.ones(x.sizes, x.dtype if node.node.version < 10 else _BOOL))


def _dropped(node: Conversion, x: Value, ratio: float) -> tuple[Value, Value]:
    if x.dtype.kind != "f":
        raise node.unsupported(
            f"training_mode is set, and with it a first input of type {x.dtype} is not supported, only floating-point ones"
        )
    fractions, bound = _fractions(node, x.sizes), node.upload(np.array(ratio, _FLOAT32))
    mask = node.elementwise(ops.ElementWiseLogicalGreaterThanOrEqual, fractions, bound, dtype=_BOOL)
    scale = 1.0 / (1.0 - ratio) if ratio < 1.0 else 0.0  # of none
    scaled = node.elementwise(ops.ElementWiseIdentity, x, scale_bias=ScaleBias(scale, 0.0))
    zero = node.upload(np.zeros((), x.dtype))
    return node.elementwise(ops.ElementWiseIf, mask, scaled, zero, dtype=x.dtype), mask


def _described(node: Conversion) -> tuple[Sizes, np.dtype[Any]]:
    """Sizes and type of the output: of the attributes, or of an input of which nothing else matters."""
    default = _FLOAT32
    if node.input_count:
        known = node.host(0)
        sizes, default = (node[0].sizes, node[0].dtype) if known is None else (known.shape, known.dtype)
    else:
        sizes = tuple(int(size) for size in node.attribute("shape", ()))
    return sizes, node.element_type("dtype", default)


def _initial_state(node: Conversion) -> Array:
    """A counter of 0 and the key: the bits of ``seed``, a float or an integer, or those drawn."""
    seed = node.attribute("seed", None)
    if seed is None:
        key = drawn()
    else:
        key = int(np.float32(seed).view(np.uint32)) if isinstance(seed, float) else int(seed) % 2**64
    return np.array([0, 0, 0, 0, key & 0xFFFFFFFF, key >> 32], _UINT32)


def _counts(node: Conversion, sizes: Sizes, count: int) -> list[Value]:
    """``count`` tensors of whole numbers below 2^24, float32, from the node's state, which moves on."""
    kept = node.kept(lambda: _initial_state(node))
    state = node.copy(kept)
    made = []
    for last in [False] * (count - 1) + [True]:
        bits, following = node.new(sizes, _UINT32), kept if last else node.new(kept.sizes, _UINT32)
        node.launch(ops.RandomGenerator, state, output_tensor=bits, output_state_tensor=following)
        upper = node.elementwise(ops.ElementWiseBitShiftRight, bits, node.upload(np.array(32 - _BITS, _UINT32)))
        made.append(cast_to(node, upper, _FLOAT32))
        state = following
    return made


def _fractions(node: Conversion, sizes: Sizes) -> Value:
    """Numbers in [0, 1), float32."""
    (counts,) = _counts(node, sizes, 1)
    return node.elementwise(ops.ElementWiseIdentity, counts, scale_bias=ScaleBias(2.0**-_BITS, 0.0))
