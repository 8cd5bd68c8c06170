"""Plans of the gradient of local response normalization, without a device, and its oracle against finite differences."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tests.derivative import numerical_gradient

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.devices.model import H200
from dmlvk.kernels.common.plan import Dispatch, Plan, Source
from dmlvk.kernels.lowering import explain, lower
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk.verify.cases.model import generator
from dmlvk.verify.oracle.local_response_gradient import local_response_normalization_grad
from dmlvk.verify.oracle.normalization import local_response_normalization

FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
GPU = Capabilities(
    features=SUBGROUPS | {"storage16"}, workgroup_invocations=1024, storage_buffer_bytes=2**32 - 1, model=H200
)
CPU = Capabilities(features=GPU.features, is_cpu=True)
IMAGE = (32, 256, 56, 56)


def gradient(tensor: TensorDesc, **attributes: object) -> ops.LocalResponseNormalizationGrad:
    names = ("input_tensor", "input_gradient_tensor", "output_gradient_tensor")
    desc = ops.LocalResponseNormalizationGrad(**dict.fromkeys(names, tensor), **{"local_size": 5, **attributes})
    desc.validate()
    return desc


def chosen(desc: ops.LocalResponseNormalizationGrad) -> str:
    return next(rule.name for rule, holds in explain(desc, GPU) if holds)


def launched(plan: Plan) -> list[tuple[str, str, int]]:
    """Kernel, lanes and the length of runs of each dispatch."""
    made = [launch for launch in plan.dispatches if isinstance(launch, Dispatch)]
    assert all(KERNELS[one.kernel.kernel].members[1].name == "run" for one in made)
    return [
        (one.kernel.kernel, dict(one.kernel.variant)["LANES"], struct.unpack_from("<I", one.params, 4)[0]) for one in made
    ]


def test_short_regions_of_channels_need_no_memory() -> None:
    for data_type in (FLOAT32, FLOAT16):
        desc = gradient(TensorDesc(data_type, IMAGE))
        plan = lower(desc, GPU)
        assert (chosen(desc), plan.temporary_bytes) == ("groups", 0)
        assert launched(plan) == [("local_response_gradient", "4", 24)]
    channels_last = gradient(TensorDesc(FLOAT32, IMAGE, calculate_strides("NHWC", IMAGE)))
    assert chosen(channels_last) == "elements"
    assert launched(lower(channels_last, GPU)) == [("local_response_gradient", "1", 8)]


def test_runs_are_long_where_enough_fill_the_device() -> None:
    pipelines = set()
    for batch, run in ((1, 4), (16, 12), (256, 32)):
        plan = lower(gradient(TensorDesc(FLOAT32, (batch, *IMAGE[1:]))), GPU)
        assert launched(plan) == [("local_response_gradient", "4", run)]
        pipelines |= {launch.kernel for launch in plan.dispatches if isinstance(launch, Dispatch)}
    assert len(pipelines) == 2, "the length of runs is a parameter; one image has a dimension less"
    assert launched(lower(gradient(TensorDesc(FLOAT32, (1, 40, 4, 4))), CPU)) == [("local_response_gradient", "4", 32)]


@pytest.mark.parametrize("attributes", [{"cross_channel": False}, {"local_size": 17}], ids=["space", "many channels"])
def test_what_is_in_many_sums_is_kept(attributes: dict[str, object]) -> None:
    desc = gradient(TensorDesc(FLOAT16, IMAGE), **attributes)
    plan = lower(desc, GPU)
    assert chosen(desc) == ("staged" if "cross_channel" in attributes else "staged_groups")
    assert [name for name, *_ in launched(plan)] == ["local_response_terms", "local_response_gathered"]
    assert plan.temporary_bytes == 4 * 32 * 256 * 56 * 56
    written, read = plan.dispatches[0].bindings[2], plan.dispatches[1].bindings[2]
    assert written == read and written.source is Source.TEMPORARY and written.nbytes == plan.temporary_bytes


def test_whether_rows_are_whole_groups_is_known_beforehand() -> None:
    for sizes, strides, is_whole in (((2, 3, 4, 6), None, 1), ((2, 3, 5, 7), (120, 40, 7, 1), 0)):
        (made,) = lower(gradient(TensorDesc(FLOAT32, sizes, strides)), GPU, force="groups").dispatches
        assert isinstance(made, Dispatch)
        assert dict(made.kernel.constants)["WHOLE"] == is_whole


def test_rows_of_terms_start_on_groups() -> None:
    """Images of 35 pixels, each 40 apart: their terms are 36 apart."""
    desc = gradient(TensorDesc(FLOAT32, (2, 3, 5, 7), (120, 40, 7, 1)), local_size=17)
    assert lower(desc, GPU, force="staged_groups").temporary_bytes == 4 * 2 * 3 * 36
    assert lower(desc, GPU, force="staged").temporary_bytes == 4 * 2 * 3 * 35


def test_regions_that_a_cpu_cannot_finish_are_refused() -> None:
    plane = TensorDesc(FLOAT32, (1, 1, 256, 256))
    assert lower(gradient(plane, cross_channel=False, local_size=256), GPU).dispatches
    with pytest.raises(UnsupportedError, match="65535 rounds"):
        lower(gradient(plane, cross_channel=False, local_size=256), CPU)


@pytest.mark.parametrize("cross_channel", [True, False])
@pytest.mark.parametrize("local_size", [1, 2, 3, 4, 9])
def test_the_oracle_is_the_derivative_of_the_forward_oracle(cross_channel: bool, local_size: int) -> None:
    sizes = (2, 5, 3, 4)
    x, weights = (generator("local response", name).standard_normal(sizes) for name in ("x", "weights"))
    attributes = {"cross_channel": cross_channel, "local_size": local_size, "alpha": 0.75, "beta": 1.25, "bias": 0.5}
    tensor = TensorDesc(FLOAT32, sizes)
    forward = ops.LocalResponseNormalization(input_tensor=tensor, output_tensor=tensor, **attributes)
    expected = numerical_gradient(lambda values: local_response_normalization(forward, values).value, x, weights)
    found = local_response_normalization_grad(gradient(tensor, **attributes), x, weights).value
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)
