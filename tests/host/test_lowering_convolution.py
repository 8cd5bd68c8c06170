"""Convolution's rules and plans, without a device."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import pytest

from dmlvk import ops
from dmlvk.enums import ConvolutionDirection, ConvolutionMode, TensorDataType
from dmlvk.errors import InvalidArgumentError, UnsupportedError
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.kernels.lowering.registry import LOWERINGS
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import Dispatch
from dmlvk.kernels.select.convolution import CONVOLUTION
from dmlvk.kernels.select.rule import choose
from dmlvk.schema import ScaleBias
from dmlvk.tensor import TensorDesc

FLOAT32 = TensorDataType.FLOAT32
GPU = Capabilities(workgroup_invocations=1024, shared_memory_bytes=49152)
CPU = Capabilities(workgroup_invocations=1024, minimum_subgroup_size=8, is_cpu=True)
LEAST = Capabilities()


def convolution(x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...] = (), **changes: Any) -> ops.Convolution:
    rank = len(x) - 2
    arrays: dict[str, Any] = dict.fromkeys(("strides", "dilations"), (1,) * rank)
    arrays |= dict.fromkeys(("start_padding", "end_padding", "output_padding"), (0,) * rank)
    desc = ops.Convolution(
        input_tensor=TensorDesc(FLOAT32, x), filter_tensor=TensorDesc(FLOAT32, w), **{**arrays, **changes}
    )
    return desc.replace(output_tensor=TensorDesc(FLOAT32, y or desc.inferred_output_sizes()[0]))


def chosen(desc: ops.Convolution, caps: Capabilities = GPU) -> str:
    return choose(CONVOLUTION, LOWERINGS[ops.Convolution].problem(desc), caps).name


def parameters(dispatch: Dispatch) -> dict[str, tuple[int, ...]]:
    """The parameter block, unpacked by the manifest row; floats as their bits."""
    words = iter(struct.unpack(f"<{len(dispatch.params) // 4}I", dispatch.params))
    members = KERNELS[dispatch.kernel.kernel].members
    return {member.name: tuple(itertools.islice(words, max(member.length, 1))) for member in members}


@pytest.mark.parametrize(
    ("desc", "on_gpu", "on_cpu"),
    [
        (convolution((1, 512, 1, 1), (128, 512, 1, 1)), "vector", "naive"),
        (convolution((1, 16, 14, 14), (16, 1, 3, 3), group_count=16), "depthwise", "depthwise"),
        (convolution((1, 64, 28, 28), (128, 64, 1, 1)), "tiled", "direct"),
        (convolution((1, 3, 32, 32), (16, 3, 3, 3), strides=(2, 2)), "direct", "direct"),
        (convolution((1, 4, 9, 9), (1, 4, 9, 9)), "naive", "naive"),
    ],
    ids=["vector", "depthwise", "pointwise", "stem", "window as large as the input"],
)
def test_rules(desc: ops.Convolution, on_gpu: str, on_cpu: str) -> None:
    assert (chosen(desc), chosen(desc, CPU)) == (on_gpu, on_cpu)


def test_depthwise_needs_forward_and_one_channel_a_group() -> None:
    backward = convolution((1, 4, 5, 5), (4, 1, 3, 3), group_count=4, direction=ConvolutionDirection.BACKWARD)
    assert "depthwise" not in possible_rules(backward, GPU)
    assert "depthwise" not in possible_rules(convolution((1, 8, 5, 5), (8, 2, 3, 3), group_count=4), GPU)
    wide = convolution((1, 4, 5, 99), (4, 1, 3, 3), group_count=4, dilations=(1, 40))
    assert "depthwise" not in possible_rules(wide, GPU)


def test_every_plan_keeps_to_the_least_device() -> None:
    for desc in (
        convolution((2, 64, 40, 40), (128, 64, 3, 3)),
        convolution((2, 64, 40, 40), (64, 1, 3, 3), group_count=64),
        convolution((3, 64, 1, 1), (500, 64, 1, 1)),
    ):
        for rule in possible_rules(desc, LEAST):
            (dispatch,) = lower(desc, LEAST, force=rule).dispatches
            spec = KERNELS[dispatch.kernel.kernel]
            constants = {**dict(spec.constants), **dict(dispatch.kernel.constants)}
            assert constants["LOCAL_SIZE_X"] * constants.get("LOCAL_SIZE_Y", 1) <= LEAST.workgroup_invocations
            assert constants.get("CHANNELS", 1) <= LEAST.minimum_subgroup_size


def test_a_reversed_filter_is_negative_strides_and_an_offset() -> None:
    desc = convolution((1, 2, 5, 5), (3, 2, 2, 3), mode=ConvolutionMode.CONVOLUTION)
    (dispatch,) = lower(desc, GPU, force="naive").dispatches
    block = parameters(dispatch)
    assert block["filter_offset"] == (5,)
    assert block["filter_strides"] == (12, 6, 0, 2**32 - 3, 2**32 - 1)


def test_backward_divides_positions_by_the_strides() -> None:
    desc = convolution(
        (1, 2, 5, 5), (2, 3, 2, 2), strides=(2, 3), start_padding=(1, 0), direction=ConvolutionDirection.BACKWARD
    )
    (dispatch,) = lower(desc, GPU, force="naive").dispatches
    block = parameters(dispatch)
    assert block["divisor"] == (1, 2, 3)
    assert block["position_step"] == (1, 1, 1)
    assert block["tap_step"] == (2**32 - 1,) * 3
    assert block["position_start"] == (0, 1, 0)
    assert dict(dispatch.kernel.constants)["HAS_DIVISOR"] == 1


def test_position_arithmetic_finds_the_taps_of_the_definition() -> None:
    """The formula of include/convolution.glsl against a list of all (input, tap, output) of a transposed convolution."""
    size, taps, stride, dilation, start = 5, 3, 2, 2, 1
    desc = convolution(
        (1, 1, size),
        (1, 1, taps),
        strides=(stride,),
        dilations=(dilation,),
        start_padding=(start,),
        direction=ConvolutionDirection.BACKWARD,
    )
    (dispatch,) = lower(desc, GPU, force="naive").dispatches
    block = {name: values[-1] for name, values in parameters(dispatch).items()}
    scattered = {(i * stride + t * dilation - start, t, i) for i in range(size) for t in range(taps)}
    gathered = set()
    for o in range(block["output_sizes"]):
        for t in range(taps):
            q = np.int32(np.uint32((o * block["position_step"] + t * block["tap_step"] + block["position_start"]) % 2**32))
            if q >= 0 and q % block["divisor"] == 0 and q // block["divisor"] < size:
                gathered.add((o, t, int(q) // block["divisor"]))
    assert gathered == {entry for entry in scattered if 0 <= entry[0] < block["output_sizes"]}


@pytest.mark.parametrize("sizes", [(1, 1, 8), (1, 1, 9), (1, 1, 10)])
def test_backward_takes_every_size_that_forward_returns_from(sizes: tuple[int, ...]) -> None:
    desc = convolution((1, 1, 3), (1, 1, 2), sizes, strides=(3,), direction=ConvolutionDirection.BACKWARD)
    desc.validate()


@pytest.mark.parametrize("sizes", [(1, 1, 7), (1, 1, 11), (1, 2, 8)])
def test_backward_refuses_other_sizes(sizes: tuple[int, ...]) -> None:
    desc = convolution((1, 1, 3), (1, 1, 2), sizes, strides=(3,), direction=ConvolutionDirection.BACKWARD)
    with pytest.raises(InvalidArgumentError, match="OutputTensor"):
        desc.validate()


def test_padding_beyond_31_bits_is_refused() -> None:
    desc = convolution((1, 1, 1), (1, 1, 1), (1, 1, 2), start_padding=(2**31,), strides=(2**31,))
    with pytest.raises(UnsupportedError, match="2\\*\\*31"):
        lower(desc, GPU)


def test_scale_bias_cannot_be_fused() -> None:
    clip = ops.ElementWiseClip(min=0.0, max=1.0, scale_bias=ScaleBias(2.0, 1.0))
    with pytest.raises(UnsupportedError, match="scale_bias"):
        lower(convolution((1, 1, 4), (1, 1, 1), fused_activation=clip), GPU)
