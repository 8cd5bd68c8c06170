"""Attention over a cache, by each of its rules, against float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.devices.model import H200
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.common.plan import Source
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec.ops.cached_attention import CachedAttention
from dmlvk.verify.oracle.cached_attention import cached_attention

Array = NDArray[Any]
TYPES = {np.float32: TensorDataType.FLOAT32, np.float16: TensorDataType.FLOAT16}
_INPUTS = tuple(spec.name for spec in CachedAttention.fields if spec.kind.is_input)
_CACHE = ("cache_key_tensor", "cache_value_tensor")


def problem(
    lengths: tuple[int, ...],
    heads: tuple[int, int],
    *,
    rows: int = 1,
    size: int = 16,
    value_size: int = 0,
    capacity: int = 70,
    past: int | None = None,
    pairs: int = 0,
    positions: bool = False,
    bias: bool = False,
    sinks: bool = False,
    dtype: type[np.generic] = np.float32,
    **attributes: Any,
) -> tuple[CachedAttention, dict[str, Array]]:
    """A desc, and what its inputs and its cache hold; rows of the cache that do not count are NaN."""
    rng = np.random.default_rng(0)
    batch = len(lengths)

    def random(*sizes: int) -> Array:
        return rng.standard_normal(sizes).astype(dtype)

    packed = random(batch, rows, heads[0] + 2 * heads[1], size)
    arrays: dict[str, Array] = {
        "query_tensor": packed[:, :, : heads[0]],
        "key_tensor": packed[:, :, heads[0] : heads[0] + heads[1]],
        "value_tensor": random(batch, rows, heads[1], value_size) if value_size else packed[:, :, heads[0] + heads[1] :],
        "lengths_tensor": np.array(lengths, np.int32),
    }
    if pairs:
        angles = np.arange(capacity)[:, None] * 0.7 ** np.arange(pairs)
        arrays |= {"cosines_tensor": np.cos(angles).astype(dtype), "sines_tensor": np.sin(angles).astype(dtype)}
    if positions:
        arrays["positions_tensor"] = rng.integers(0, capacity, (batch, rows))
    if bias:
        arrays["bias_tensor"] = random(batch, heads[0], rows, capacity)
    if sinks:
        arrays["sinks_tensor"] = random(heads[0])
    for name, width in (("key", size), ("value", value_size or size)):
        before = random(batch, heads[1], capacity if past is None else past, width)
        for entry, length in enumerate(lengths):
            before[entry, :, max(length, 0) :] = np.nan
        arrays[f"cache_{name}_tensor" if past is None else f"past_{name}_tensor"] = before
    tensors = {name: TensorDesc(_type(array), array.shape) for name, array in arrays.items()}
    tensors |= {
        f"cache_{name}_tensor": TensorDesc(TYPES[dtype], (batch, heads[1], capacity, width))
        for name, width in (("key", size), ("value", value_size or size))
    }
    strides = tuple(step // packed.itemsize for step in packed.strides)
    for name in ("query_tensor", "key_tensor"):
        tensors[name] = TensorDesc(TYPES[dtype], arrays[name].shape, strides)
    if not value_size:
        tensors["value_tensor"] = TensorDesc(TYPES[dtype], arrays["value_tensor"].shape, strides)
    y = TensorDesc(TYPES[dtype], (batch, rows, heads[0], value_size or size))
    desc = CachedAttention(**tensors, output_tensor=y, scale=size**-0.5, **attributes)
    desc.validate()
    return desc, arrays


def _type(array: Array) -> TensorDataType:
    return {**TYPES, np.int32: TensorDataType.INT32, np.int64: TensorDataType.INT64}[array.dtype.type]


def bound(
    device: dmlvk.Device, desc: CachedAttention, arrays: dict[str, Array]
) -> tuple[list[BufferBinding | None], list[BufferBinding]]:
    """Inputs and outputs on the device: output, cache of keys, cache of values."""
    inputs: list[BufferBinding | None] = []
    for slot in desc.input_slots():
        if slot.tensor is None:
            inputs.append(None)
            continue
        array = arrays[slot.field.name]
        base = array if array.flags.c_contiguous else array.base
        assert base is not None
        start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        buffer = device.create_buffer(base.nbytes)
        buffer.write(base)
        inputs.append(BufferBinding(buffer, start, slot.tensor.total_tensor_size_in_bytes))
    outputs = []
    for slot in desc.output_slots():
        assert slot.tensor is not None
        buffer = device.create_buffer(slot.tensor.total_tensor_size_in_bytes)
        if slot.field.name in arrays:
            buffer.write(arrays[slot.field.name])
        outputs.append(BufferBinding(buffer))
    return inputs, outputs


def read(desc: CachedAttention, outputs: list[BufferBinding]) -> list[Array]:
    dtype = next(kind for kind, own in TYPES.items() if own is desc.tensor("output_tensor").data_type)
    found = zip(outputs, desc.output_slots(), strict=True)
    return [
        output.buffer.read()[: slot.tensor.total_tensor_size_in_bytes].view(dtype).reshape(slot.tensor.sizes)
        for output, slot in found
        if slot.tensor
    ]


def run(device: dmlvk.Device, desc: CachedAttention, arrays: dict[str, Array], rule: str = "") -> list[Array]:
    """Output, cache of keys, cache of values."""
    inputs, outputs = bound(device, desc, arrays)
    commands = device.create_command_list()
    ReadyOperator(device, desc, rule).record(commands, inputs, outputs)
    device.execute(commands)
    return read(desc, outputs)


QUICK = {"a word": ("step", "naive"), "dropped": ("step", "naive"), "more tiles than a band has": ("tiles",)}
"""The problems of the default tier, with the rules that they have there."""
PROBLEMS: dict[str, dict[str, Any]] = {
    "a word": {"lengths": (0, 33, 69), "heads": (4, 2), "pairs": 8},
    "everything": {
        "lengths": (7, 50),
        "heads": (3, 1),
        "rows": 2,
        "size": 24,
        "value_size": 8,
        "pairs": 6,
        "interleaved": True,
        "positions": True,
        "bias": True,
        "sinks": True,
        "window": 9,
        "softcap": 2.0,
    },
    "words of halves": {"lengths": (5, 68), "heads": (4, 4), "rows": 2, "size": 40, "pairs": 20, "dtype": np.float16},
    "a long cache": {"lengths": (590, 3), "heads": (2, 2), "capacity": 600, "sinks": True, "window": 500},
    "a prompt": {
        "lengths": (3, 40),
        "heads": (4, 2),
        "rows": 20,
        "pairs": 4,
        "window": 11,
        "softcap": 3.0,
        "sinks": True,
        "bias": True,
    },
    "a prompt of halves": {
        "lengths": (3, 60, 0),
        "heads": (4, 2),
        "rows": 140,
        "size": 64,
        "capacity": 220,
        "dtype": np.float16,
    },
    "more tiles than a band has": {"lengths": (0, 9, 4), "heads": (92, 46), "rows": 40, "capacity": 50},
    "a past elsewhere": {"lengths": (2, 6), "heads": (2, 1), "rows": 3, "size": 12, "capacity": 9, "past": 6, "pairs": 5},
    "dropped": {"lengths": (-5, 2**31 - 1, 8), "heads": (1, 1), "rows": 2, "capacity": 9, "pairs": 8},
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.full) for name in PROBLEMS])
def test_agrees_with_float64(device: dmlvk.Device, name: str) -> None:
    desc, arrays = problem(**PROBLEMS[name])
    cache = tuple(arrays[own] for own in _CACHE) if desc.past_key_tensor is None else None
    expected, keys, values = cached_attention(desc, *(arrays.get(own) for own in _INPUTS), cache=cache)
    half = desc.tensor("output_tensor").data_type is TensorDataType.FLOAT16
    ulp = 2.0**-11 if half else 2.0**-22
    for rule in QUICK.get(name, possible_rules(desc, device.capabilities)):
        y, *caches = run(device, desc, arrays, rule)
        assert np.all(np.abs(y - expected.value) <= ulp * (np.abs(expected.value) + 4 * expected.magnitude)), rule
        for found, wanted in zip(caches, (keys.value, values), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=ulp, atol=2 * ulp, err_msg=rule)


def test_one_plan_serves_every_length(device: dmlvk.Device) -> None:
    """A long cache in many parts gives what a short one does, whose keys are one part."""
    desc, arrays = problem((700, 20), (4, 2), capacity=1000, pairs=8)
    whole, *_ = run(device, desc, arrays)
    short = {name: array[:, :, :710].copy() if name in _CACHE else array for name, array in arrays.items()}
    sizes = {name: TensorDesc(TensorDataType.FLOAT32, short[name].shape) for name in _CACHE}
    alone, *_ = run(device, dataclasses.replace(desc, **sizes), short)
    np.testing.assert_allclose(whole, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_cpu", [True, False], ids=["as a CPU", "as a GPU"])
def test_the_last_part_brings_all_together_each_time(device: dmlvk.Device, is_cpu: bool) -> None:
    """Two steps of one list, submitted again and again: the counters are 0 wherever one begins. A CPU brings parts together
    one by one, a GPU many at once."""
    desc, arrays = problem((700, 20), (4, 2), capacity=1000, pairs=8)
    parted = dataclasses.replace(device.capabilities, is_cpu=is_cpu, model=H200)
    plan = lower(desc, parted)
    assert any(part.source is Source.COUNTERS for part in plan.dispatches[0].bindings), "several parts"
    expected, *_ = run(device, desc, arrays, "naive")
    inputs, outputs = bound(device, desc, arrays)
    others = [BufferBinding(device.create_buffer(expected.nbytes)), *outputs[1:]]
    commands = device.create_command_list()
    for targets in (outputs, others):
        ReadyOperator(device, desc, plan=plan).record(commands, inputs, targets)
    for _ in range(3):
        device.execute(commands)
        assert not device.counters().read().any()
        first, second = read(desc, outputs)[0], read(desc, others)[0]
        np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("rule", ["fragments", "reductions", "cooperative"])
def test_peaks_that_rise_behind_the_first_tile(device: dmlvk.Device, rule: str, size: int) -> None:
    """Weights too large for float16, of rows that see few keys and of rows that see many; the same bits each time."""
    desc, arrays = problem((0, 30), (4, 2), rows=200, size=size, capacity=240, dtype=np.float16)
    if rule not in possible_rules(desc, device.capabilities):
        pytest.skip(f"{rule} is not possible here")
    arrays["query_tensor"][..., 0] = 1.0
    arrays["key_tensor"][..., 0] = np.linspace(0, 400, 200)[:, np.newaxis]
    cache = tuple(arrays[own] for own in _CACHE)
    expected, *_ = cached_attention(desc, *(arrays.get(own) for own in _INPUTS), cache=cache)
    found = [run(device, desc, arrays, rule)[0] for _ in range(3)]
    np.testing.assert_allclose(found[0], expected.value, rtol=0, atol=2e-3 * np.abs(expected.value).max())
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
