"""Pooling's rows and plans, without a device."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk.enums import TensorDataType
from dmlvk.errors import InvalidArgumentError, UnsupportedError
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering import lower, newest
from dmlvk.kernels.lowering.registry import LOWERINGS
from dmlvk.kernels.plan import output_range
from dmlvk.kernels.select import POOLING, choose
from dmlvk.ops.pooling import AveragePooling, AveragePooling1, MaxPooling, MaxPooling1, MaxPooling2
from dmlvk.tensor import TensorDesc, calculate_strides

FLOAT32, UINT32, UINT64 = TensorDataType.FLOAT32, TensorDataType.UINT32, TensorDataType.UINT64
GPU = Capabilities(workgroup_invocations=1024, shared_memory_bytes=49152)


def arrays(window: tuple[int, ...], **changes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    ones, zeros = (1,) * len(window), (0,) * len(window)
    return {"window_size": window, "strides": ones, "start_padding": zeros, "end_padding": zeros, **changes}


def average(
    sizes: tuple[int, ...], output: tuple[int, ...], window: tuple[int, ...], layout: str = "", **changes: Any
) -> AveragePooling1:
    strides = calculate_strides(layout, sizes) if layout else None
    return AveragePooling1(
        input_tensor=TensorDesc(FLOAT32, sizes, strides),
        output_tensor=TensorDesc(FLOAT32, output),
        **{**arrays(window, dilations=(1,) * len(window)), **changes},
    )


def rule(desc: AveragePooling1 | MaxPooling2, caps: Capabilities = GPU) -> str:
    return choose(POOLING, LOWERINGS[type(desc)].problem(desc), caps).name


def test_older_rows_become_the_newest() -> None:
    tensor = TensorDesc(FLOAT32, (1, 2, 5, 5))
    shared = arrays((1, 1))
    both = {"input_tensor": tensor, "output_tensor": tensor}
    assert newest(AveragePooling(**both, **shared, include_padding=True)) == AveragePooling1(
        **both, **shared, include_padding=True, dilations=(1, 1)
    )
    assert newest(MaxPooling(**both, **shared)) == MaxPooling2(**both, **shared, dilations=(1, 1))
    indices = TensorDesc(UINT32, tensor.sizes)
    assert newest(MaxPooling1(**both, **shared, output_indices_tensor=indices)) == MaxPooling2(
        **both, **shared, output_indices_tensor=indices, dilations=(1, 1)
    )


def test_sizes_count_dilations_and_may_be_rounded_up() -> None:
    changes = {"strides": (2, 3), "dilations": (2, 1), "start_padding": (1, 0)}
    down = average((1, 1, 10, 12), (1, 1, 4, 4), (3, 3), **changes)
    assert down.inferred_output_sizes() == ((1, 1, 4, 4),)
    down.validate()
    for output, good in (((1, 1, 4, 4), True), ((1, 1, 5, 4), False), ((1, 1, 3, 4), False), ((1, 2, 4, 4), False)):
        desc = average((1, 1, 10, 12), output, (3, 3), **changes)
        if good:
            desc.validate()
        else:
            with pytest.raises(InvalidArgumentError, match="rounded down or up"):
                desc.validate()
    average((1, 1, 11, 12), (1, 1, 5, 4), (3, 3), **changes).validate()
    average((1, 1, 11, 12), (1, 1, 4, 4), (3, 3), **changes).validate()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"strides": (1,)}, "Strides"),
        ({"dilations": (1, 1, 1)}, "Dilations"),
        ({"window_size": (0, 1)}, "WindowSize"),
        ({"strides": (1, 0)}, "Strides"),
        ({"dilations": (0, 1)}, "Dilations"),
        ({"output_tensor": TensorDesc(TensorDataType.FLOAT16, (1, 2, 4, 4))}, "OutputTensor"),
        ({"output_tensor": TensorDesc(FLOAT32, (1, 2, 1, 4, 4))}, "OutputTensor"),
        ({"output_indices_tensor": TensorDesc(UINT32, (1, 2, 4, 5))}, "OutputIndicesTensor"),
        ({"output_indices_tensor": TensorDesc(FLOAT32, (1, 2, 4, 4))}, "OutputIndicesTensor"),
    ],
)
def test_each_rule_is_checked(changes: dict[str, Any], field: str) -> None:
    tensors = {
        "input_tensor": TensorDesc(FLOAT32, (1, 2, 5, 5)),
        "output_tensor": TensorDesc(FLOAT32, (1, 2, 4, 4)),
        "output_indices_tensor": TensorDesc(UINT32, (1, 2, 4, 4)),
    }
    values: dict[str, Any] = {**tensors, **arrays((2, 2), dilations=(1, 1))}
    MaxPooling2(**values).validate()
    with pytest.raises(InvalidArgumentError) as caught:
        MaxPooling2(**{**values, **changes}).validate()
    assert caught.value.field == field


def test_a_window_larger_than_the_padded_input_has_no_size() -> None:
    with pytest.raises(InvalidArgumentError, match="dilated window fits"):
        average((1, 1, 4, 4), (1, 1, 1, 1), (5, 1)).inferred_output_sizes()


def test_large_windows_far_apart_take_several_invocations() -> None:
    whole = average((8, 32, 7, 7), (8, 32, 1, 1), (7, 7))
    assert rule(whole) == "window"
    assert rule(whole, Capabilities(is_cpu=True)) == "outputs"
    assert rule(average((8, 32, 7, 7), (8, 32, 1, 1), (7, 7), "NHWC")) == "outputs"
    assert rule(average((1, 8, 26, 26), (1, 8, 14, 14), (13, 13))) == "outputs"
    assert rule(average((1, 8, 64, 64), (1, 8, 4, 4), (16, 16), strides=(16, 16))) == "window"
    assert rule(average((1, 8, 64, 64), (1, 8, 62, 62), (3, 3))) == "outputs"


@pytest.mark.parametrize("plane", [(6, 6), (7, 7), (64, 64), (300, 300)])
@pytest.mark.parametrize("caps", [GPU, Capabilities(), Capabilities(workgroup_invocations=192)])
def test_lanes_divide_the_workgroup(plane: tuple[int, int], caps: Capabilities) -> None:
    kernel = lower(average((1, 3, *plane), (1, 3, 1, 1), plane), caps, force="window").dispatches[0].kernel
    chosen = dict(kernel.constants)
    assert chosen["LOCAL_SIZE_X"] % chosen["LANES"] == 0
    assert chosen["LOCAL_SIZE_X"] <= caps.workgroup_invocations
    assert chosen["LANES"] & (chosen["LANES"] - 1) == 0


def test_batch_and_channels_are_walked_as_one_where_they_run_on() -> None:
    def rank(desc: AveragePooling1) -> int:
        return dict(lower(desc, GPU).dispatches[0].kernel.constants)["RANK"]

    assert rank(average((2, 3, 8, 8), (2, 3, 7, 7), (2, 2))) == 3
    assert rank(average((2, 3, 8, 8), (2, 3, 7, 7), (2, 2), "NHWC")) == 4
    assert rank(average((2, 3, 4, 8, 8), (2, 3, 3, 7, 7), (2, 2, 2))) == 4


def test_indices_are_words_and_a_binding_of_their_own() -> None:
    tensor = TensorDesc(FLOAT32, (1, 2, 5, 5))
    for indices, words in ((None, 0), (UINT32, 1), (UINT64, 2)):
        desc = MaxPooling2(
            input_tensor=tensor,
            output_tensor=tensor,
            output_indices_tensor=None if indices is None else TensorDesc(indices, tensor.sizes),
            **arrays((1, 1), dilations=(1, 1)),
        )
        dispatch = lower(desc, GPU).dispatches[0]
        assert dict(dispatch.kernel.constants)["INDEX_WORDS"] == words
        assert dispatch.bindings[2] == output_range(1 if words else 0)


def test_positions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="positions a dimension"):
        lower(average((1, 1, 4, 4), (1, 1, 4, 4), (1, 1), start_padding=(2**31, 0), strides=(2**31, 1)), GPU)
