"""What language models keep from one call to the next: caches of keys and values, and the last inputs of a convolution."""

from __future__ import annotations

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import always, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import PaddingMode, TensorDataType
from dmlvk.spec.schema import FLOATS, NUMERIC

_INT64 = np.dtype(np.int64)


@converts("TensorScatter", 24, types=(TensorDataType.FLOAT64, *NUMERIC), moves=always)
def tensor_scatter(node: Conversion) -> Value:
    """A cache with an update in its rows from a place on, which each batch entry has of its own."""
    cache, update, starts = node[0], node[1], node.get(2)
    axis = node.axis(node.attribute("axis", -2), cache.rank)
    mode = node.attribute("mode", "linear")
    if mode not in ("linear", "circular"):
        raise node.invalid("mode must be 'linear' or 'circular'", mode)
    rows, length = update.sizes[axis] if update.rank == cache.rank else 0, cache.sizes[axis]
    if axis == 0 or rows > length or update.sizes != (*cache.sizes[:axis], rows, *cache.sizes[axis + 1 :]):
        rule = f"the update must have the cache's sizes, {cache.sizes}, but for fewer rows along axis {axis}, which is not 0"
        raise node.invalid(rule, update.sizes)
    if 0 in update.sizes:
        return cache
    places = node.launch(
        ops.FillValueSequence,
        output_tensor=node.new((rows, *(1,) * (cache.rank - axis - 1)), _INT64),
        value_data_type=TensorDataType.INT64,
        value_start=0,
        value_delta=1,
    )
    if starts is not None:
        if starts.sizes != cache.sizes[:1]:
            raise node.invalid("write_indices must have one number for each batch entry", starts.sizes, cache.sizes[:1])
        starts = node.reshape(starts, (cache.sizes[0], *(1,) * (cache.rank - 1)))
        places = starts if rows == 1 else node.elementwise(ops.ElementWiseAdd, starts, places)
        if mode == "circular":
            places = node.elementwise(ops.ElementWiseModulusFloor, places, node.upload(np.array(length, _INT64)))
    places = places.broadcast_to(update.sizes)
    y = node.new(cache.sizes, cache.dtype)
    return node.launch(ops.ScatterElements, cache, places, update, output_tensor=y, axis=axis)


def _refuse_causal_convolution(node: NodeFacts) -> None:
    activation = node.attribute("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise node.invalid("activation must be 'none', 'silu' or 'swish'", activation)


@converts("CausalConvWithState", 27, types=FLOATS, check=_refuse_causal_convolution)
def causal_convolution(node: Conversion) -> tuple[Value, Value]:
    """Each channel by a filter of its own, over the inputs of before and of now; the last of these are kept."""
    x, w, bias, past = node[0], node[1], node.get(2), node.get(3)
    if x.rank != 3 or w.rank != 3 or w.sizes[:2] != (x.sizes[1], 1):
        rule = "the input must be (batch, channels, length), and the filter (channels, 1, taps)"
        raise node.invalid(rule, (x.sizes, w.sizes))
    batch, channels = x.sizes[:2]
    kept = w.sizes[2] - 1
    if past is not None and past.sizes != (batch, channels, kept):
        raise node.invalid("the past state must have one element less than the filter", past.sizes, (batch, channels, kept))
    if bias is not None:
        if bias.sizes != (channels,):
            raise node.invalid("the bias must have one element for each channel", bias.sizes, (channels,))
        bias = node.reshape(bias, (1, channels, 1))
    whole = x if past is None else _joined(node, past, x)
    y = node.launch(
        ops.Convolution,
        whole,
        w,
        bias,
        output_tensor=node.new(x.sizes, x.dtype),
        strides=(1,),
        dilations=(1,),
        start_padding=(kept if past is None else 0,),
        end_padding=(0,),
        output_padding=(0,),
        group_count=channels,
    )
    if node.attribute("activation", "none") != "none":
        y = node.elementwise(ops.ActivationSwish, y, sigmoid_input_scale=1.0)
    return y, _last(node, whole, kept)


def _last(node: Conversion, x: Value, count: int) -> Value:
    """The last elements along the last axis, of fewer with zeros before them."""
    y, first = node.new((*x.sizes[:-1], count), x.dtype), (0,) * (x.rank - 1)
    missing = count - x.sizes[-1]
    if missing > 0:
        return node.launch(
            ops.Padding1,
            x,
            output_tensor=y,
            padding_mode=PaddingMode.CONSTANT,
            padding_value_data_type=y.data_type,
            padding_value=0,
            start_padding=(*first, missing),
            end_padding=(*first, 0),
        )
    return node.launch(
        ops.Slice1,
        x,
        output_tensor=y,
        input_window_offsets=(*first, -missing),
        input_window_sizes=y.sizes,
        input_window_strides=(1,) * x.rank,
    )


def _joined(node: Conversion, past: Value, x: Value) -> Value:
    """The elements before and the new ones along the last axis; either may be empty."""
    if 0 in past.sizes or 0 in x.sizes:
        return x if 0 in past.sizes else past
    whole = node.new((*x.sizes[:-1], past.sizes[-1] + x.sizes[-1]), x.dtype)
    return node.launch(ops.Join, input_tensors=(past, x), output_tensor=whole, axis=x.rank - 1)
