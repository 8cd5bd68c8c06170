"""ONNX Runtime's own operators on drawn sizes, attributes and optional inputs, against its CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from drawing import Draw, examples
from hypothesis import given
from hypothesis import strategies as st
from runtime_nodes import Array, Case, check, f16, f32, i8, i32, i64, random, u8, whole

SMALL = st.integers(1, 5)


def fused_convolution(draw: Draw) -> Case:
    groups, kernel = draw(st.sampled_from([1, 1, 2])), [draw(st.integers(1, 3)) for _ in range(2)]
    channels, outputs = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    sizes = [draw(st.integers(3, 9)) for _ in range(2)]
    pads, strides = [draw(st.integers(0, 1)) for _ in range(4)], [draw(st.integers(1, 2)) for _ in range(2)]
    activation, *numbers = draw(st.sampled_from([("Relu",), ("Tanh",), ("LeakyRelu", 0.2), ("Clip", -0.5, 0.75), ("",)]))
    settings: dict[str, Any] = {"group": groups, "pads": pads, "strides": strides, "kernel_shape": kernel}
    settings |= {"activation": activation} if activation else {}
    settings |= {"activation_params": [float(number) for number in numbers]} if numbers else {}
    x, w = random(draw(SMALL), channels, *sizes), random(outputs, channels // groups, *kernel)
    windows = [(sizes[i] + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i in range(2)]
    addend = random(x.shape[0], outputs, *windows, seed=1) if draw(st.booleans()) else None
    bias = random(outputs) if addend is not None or draw(st.booleans()) else None
    inputs = tuple(value for value in (x, w, bias, addend) if value is not None)
    return Case("FusedConv", inputs, settings)


def fused_product(draw: Draw) -> Case:
    rows, inner, columns = draw(SMALL), draw(SMALL), draw(SMALL)
    batch = draw(st.sampled_from([(), (2,), (2, 3)]))
    flags = {name: draw(st.integers(0, 1)) for name in ("transA", "transB")}
    a, b = random(*batch, rows, inner), random(*batch, inner, columns, seed=1)
    a, b = (x.swapaxes(-1, -2).copy() if flag else x for x, flag in zip((a, b), flags.values(), strict=True))
    if len(batch) and draw(st.booleans()):  # the first dimension comes before the last
        flags |= {"transBatchA": 1, "transBatchB": 1}
        a, b = (np.moveaxis(x, -2, 0).copy() for x in (a, b))
    return Case("FusedMatMul", (a, b), {**flags, "alpha": draw(st.sampled_from([1.0, 0.125]))})


def skip_normalization(draw: Draw) -> Case:
    batch, rows, width = draw(SMALL), draw(SMALL), draw(st.integers(2, 40))
    skip = random(*draw(st.sampled_from([(batch, rows, width), (1, rows, width), (rows, width)])), seed=1)
    scale, bias, offset = (random(width, seed=seed) for seed in range(3))
    rest = (bias, offset) if draw(st.booleans()) else (bias,) if draw(st.booleans()) else ()
    types, skipped = draw(st.sampled_from([((f32,), ()), ((f32,) * 4, (1, 2))]))
    settings = {"epsilon": draw(st.sampled_from([1e-12, 0.01]))}
    return Case("SkipLayerNormalization", (random(batch, rows, width), skip, scale, *rest), settings, types, skipped)


def quantized_pair(draw: Draw) -> Case:
    dtype = draw(st.sampled_from([u8, i8]))
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max) + 1
    sizes = (draw(SMALL), draw(SMALL), draw(SMALL))
    other = tuple(1 if draw(st.booleans()) else size for size in sizes)[draw(st.integers(0, 2)) :]
    parameters = [
        (np.array(draw(st.sampled_from([0.02, 0.07, 0.1])), f32), np.array(draw(st.integers(low, high - 1)), dtype))
        for _ in range(3)
    ]
    a, b = (whole(dtype, *own, low=low, high=high) for own in (sizes, other))
    op_type = draw(st.sampled_from(["QLinearAdd", "QLinearMul"]))
    return Case(op_type, (a, *parameters[0], b, *parameters[1], *parameters[2]), types=(dtype,), steps=1)


def product_of_few_bits(draw: Draw) -> Case:
    bits, block = draw(st.sampled_from([4, 8])), draw(st.sampled_from([16, 32, 64, 128, 256]))
    inner, columns, dtype = draw(st.integers(1, 300)), draw(st.integers(1, 20)), draw(st.sampled_from([f32, f16]))
    count = -(-inner // block)
    a, scale = random(draw(SMALL), inner, dtype=dtype), random(columns, count, dtype=dtype)
    zero_points: list[tuple[Array, ...]] = [(), (whole(u8, columns, -(-count * bits // 8)),)]
    if bits == 4:  # ONNX Runtime's CPU has no others for 8
        zero_points.append((random(columns, count, dtype=dtype),))
    inputs = (a, whole(u8, columns, count, block * bits // 8), scale, *draw(st.sampled_from(zero_points)))
    settings = {"K": inner, "N": columns, "block_size": block, "bits": bits}
    constants = tuple(range(1, len(inputs)))
    return Case("MatMulNBits", inputs, settings, (dtype,), constants=constants, relative=1e-5 if dtype == f32 else 3e-3)


def grouped_queries(draw: Draw) -> Case:
    shared, heads, size = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.sampled_from([16, 32]))
    past = draw(st.sampled_from([0, 0, 1, 7]))
    rows = draw(st.integers(1, 4))
    batch = draw(st.integers(1, 3)) if past == 0 or rows == 1 else 1
    total = past + rows
    lengths = [total - 1] * batch
    if past and rows == 1:
        lengths = [draw(st.integers(1, total - 1)) for _ in range(batch)]
    new = [random(batch, rows, count * size, seed=count) for count in (shared * heads, heads, heads)]
    packed = (np.concatenate(new, -1), None, None) if draw(st.booleans()) else tuple(new)
    before = tuple(random(batch, heads, past, size, seed=seed) for seed in range(2)) if past else (None, None)
    settings: dict[str, Any] = {"num_heads": shared * heads, "kv_num_heads": heads}
    tables: tuple[Array | None, ...] = (None, None)
    if draw(st.booleans()):
        settings |= {"do_rotary": 1, "rotary_interleaved": draw(st.integers(0, 1))}
        tables = tuple(random(12, size // 2, seed=seed) for seed in range(2))
    settings |= draw(st.sampled_from([{}, {}, {"local_window_size": 3}, {"scale": 0.5}]))
    settings |= draw(st.sampled_from([{}, {}, {"softcap": 1.5}, {"smooth_softmax": 1}]))
    bias = random(1, shared * heads, rows, total) if draw(st.booleans()) else None
    counts = np.array(lengths, i32), np.array(total, i32)
    inputs = (*packed, *before, *counts, *tables, None, bias)
    while inputs[-1] is None:
        inputs = inputs[:-1]
    compared = None if set(lengths) == {total - 1} else 1
    return Case("GroupQueryAttention", inputs, settings, (f32,) * 3, (), compared, constants=(6,))


def rotary(draw: Draw) -> Case:
    batch, rows, heads, pairs = draw(SMALL), draw(SMALL), draw(SMALL), draw(st.sampled_from([2, 4, 8]))
    rest = draw(st.sampled_from([0, 4]))
    settings: dict[str, Any] = {"interleaved": draw(st.integers(0, 1))}
    settings |= {"num_heads": heads, "rotary_embedding_dim": 2 * pairs} if rest else {}
    at = whole(i64, batch, rows, high=9) if draw(st.booleans()) else np.array([draw(st.integers(0, 4))], i64)
    tables = random(9, pairs), random(9, pairs, seed=1)
    return Case("RotaryEmbedding", (random(batch, rows, heads * (2 * pairs + rest)), at, *tables), settings)


@pytest.mark.parametrize(
    "build",
    [
        fused_convolution,
        fused_product,
        skip_normalization,
        quantized_pair,
        product_of_few_bits,
        grouped_queries,
        rotary,
    ],
    ids=lambda build: build.__name__,
)
@examples(4)
@given(data=st.data())
def test_drawn_operator(
    build: Callable[[Draw], Case],
    data: st.DataObject,
    make_session: Callable[..., Any],
    reference: Callable[..., list[Array]],
    assert_close: Callable[..., None],
) -> None:
    check(build(data.draw), make_session, reference, assert_close)
