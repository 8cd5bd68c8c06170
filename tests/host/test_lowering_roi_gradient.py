"""The row and plans of ROI align's gradients, without a device."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Dispatch, Plan
from dmlvk.kernels.lowering import lower
from dmlvk.spec.enums import ReduceFunction, TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.spec.ops.roi_gradient import RoiAlignGrad
from dmlvk.spec.tensor import TensorDesc, TensorLayout, calculate_strides

FLOAT32, FLOAT16, UINT32 = (TensorDataType[name] for name in ("FLOAT32", "FLOAT16", "UINT32"))
GPU = Capabilities(workgroup_invocations=1024, shared_memory_bytes=49152)
IMAGES = (2, 40, 20, 40)


def desc(**changes: Any) -> RoiAlignGrad:
    """Both gradients, of 9 regions with 7 x 7 outputs."""
    tensors = {
        "input_tensor": TensorDesc(FLOAT32, IMAGES),
        "input_gradient_tensor": TensorDesc(FLOAT32, (9, IMAGES[1], 7, 7)),
        "roi_tensor": TensorDesc(FLOAT32, (1, 9, 4)),
        "batch_indices_tensor": TensorDesc(UINT32, (9,)),
        "output_gradient_tensor": TensorDesc(FLOAT32, IMAGES),
        "output_roi_gradient_tensor": TensorDesc(FLOAT32, (1, 9, 4)),
    }
    return RoiAlignGrad(**{**tensors, **changes})


def names(plan: Plan) -> list[str]:
    return [launch.kernel.kernel for launch in plan.dispatches if isinstance(launch, Dispatch)]


def constants(plan: Plan, kernel: str) -> dict[str, int]:
    launches = (launch for launch in plan.dispatches if isinstance(launch, Dispatch))
    return dict(next(launch.kernel.constants for launch in launches if launch.kernel.kernel == kernel))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"output_gradient_tensor": None, "output_roi_gradient_tensor": None}, "OutputGradientTensor"),
        ({"input_tensor": None}, "InputTensor"),
        (
            {"input_tensor": None, "output_roi_gradient_tensor": None, "reduction_function": ReduceFunction.MAX},
            "InputTensor",
        ),
        ({"output_gradient_tensor": TensorDesc(FLOAT32, (2, 40, 20, 39))}, "OutputGradientTensor"),
        ({"output_gradient_tensor": TensorDesc(FLOAT16, IMAGES)}, "OutputGradientTensor"),
        ({"input_gradient_tensor": TensorDesc(FLOAT32, (8, 40, 7, 7))}, "InputGradientTensor"),
        ({"input_gradient_tensor": TensorDesc(FLOAT32, (9, 39, 7, 7))}, "InputGradientTensor"),
        ({"output_roi_gradient_tensor": TensorDesc(FLOAT32, (9, 4))}, "OutputROIGradientTensor"),
        ({"reduction_function": ReduceFunction.SUM}, "ReductionFunction"),
        ({"maximum_samples_per_output": 0}, "MaximumSamplesPerOutput"),
    ],
)
def test_each_rule_is_checked(changes: dict[str, Any], field: str) -> None:
    desc().validate()
    with pytest.raises(InvalidArgumentError) as caught:
        desc(**changes).validate()
    assert caught.value.field == field


def test_sizes_follow_from_the_images() -> None:
    assert desc().inferred_output_sizes() == (IMAGES, (1, 9, 4))
    with pytest.raises(InvalidArgumentError, match="without InputTensor"):
        desc(input_tensor=None).inferred_output_sizes()


def test_only_what_is_wanted_runs() -> None:
    images, boxes = ["roi_align_chunks", "roi_align_image_gradient"], ["roi_align_box_gradient"]
    assert names(lower(desc(), GPU)) == images + boxes
    assert names(lower(desc(output_roi_gradient_tensor=None, input_tensor=None), GPU)) == images
    only_boxes = lower(desc(output_gradient_tensor=None), GPU)
    assert names(only_boxes) == boxes and only_boxes.temporary_bytes == 0


def test_temporary_memory_is_a_few_words_a_region() -> None:
    assert lower(desc(), GPU).temporary_bytes == 5 * 4 * 9
    # Many outputs: chunks of 8 x 8, and sums of the boxes in blocks of channels, from the next multiple of 256 bytes on.
    plan = lower(desc(input_gradient_tensor=TensorDesc(FLOAT32, (9, 40, 50, 50))), GPU)
    assert names(plan)[2:] == ["roi_align_box_gradient", "roi_align_box_gradient_merge"]
    ranges = {r for launch in plan.dispatches for r in launch.bindings if r.source.name == "TEMPORARY"}
    assert sorted((r.offset, r.nbytes) for r in ranges) == [(0, 5 * 4 * 9 * 49), (8960, 16 * 9 * 7)]
    assert plan.temporary_bytes == 8960 + 16 * 9 * 7


@pytest.mark.parametrize("reduction", [ReduceFunction.AVERAGE, ReduceFunction.MAX])
@pytest.mark.parametrize("caps", [Capabilities(), GPU], ids=["least", "GPU"])
def test_shared_memory_is_enough(caps: Capabilities, reduction: ReduceFunction) -> None:
    chosen = constants(lower(desc(reduction_function=reduction), caps), "roi_align_image_gradient")
    size, chunk, width = chosen["LOCAL_SIZE_X"], chosen["CHUNK"], chosen["TILE_WIDTH"]
    lists = 4 * (2 * size + size // 32)
    weights = 4 * chosen["BATCH"] * (chunk * (width + chosen["TILE_HEIGHT"]) + width + 4)
    winners = 8 * (size // width) * chosen["CHANNELS"] * chunk * chunk
    assert chosen["BATCH"] >= 8
    assert lists + (winners if reduction == ReduceFunction.MAX else weights) <= caps.shared_memory_bytes
    assert size <= caps.workgroup_invocations and size % width == 0 and chosen["TILE_HEIGHT"] <= width


def test_neighbours_take_what_the_images_have_side_by_side() -> None:
    channels_last = TensorDesc(FLOAT32, IMAGES, calculate_strides(TensorLayout.NHWC, IMAGES))
    for tensor, fastest in ((TensorDesc(FLOAT32, IMAGES), 0), (channels_last, 1)):
        chosen = constants(lower(desc(output_gradient_tensor=tensor), GPU), "roi_align_image_gradient")
        assert chosen["CHANNELS_FASTEST"] == fastest


def test_shapes_share_pipelines() -> None:
    kernels = [launch.kernel for launch in lower(desc(), GPU).dispatches if isinstance(launch, Dispatch)]
    image = TensorDesc(FLOAT32, (3, 40, 200, 99))
    other = desc(input_tensor=image, output_gradient_tensor=image, input_gradient_tensor=TensorDesc(FLOAT32, (9, 40, 8, 6)))
    assert [launch.kernel for launch in lower(other, GPU).dispatches if isinstance(launch, Dispatch)] == kernels


def test_few_equal_samples_are_placed_once() -> None:
    def chosen(**attributes: Any) -> tuple[int, int]:
        found = constants(lower(desc(**attributes), GPU), "roi_align_box_gradient")
        return found["FIXED"], found["SAMPLES"]

    assert chosen(minimum_samples_per_output=2, maximum_samples_per_output=2) == (1, 2)
    assert chosen(minimum_samples_per_output=0, maximum_samples_per_output=1) == (1, 1)
    assert chosen(maximum_samples_per_output=2) == (0, 1)
    assert chosen(minimum_samples_per_output=5, maximum_samples_per_output=5) == (0, 1)
    assert chosen(maximum_samples_per_output=1, reduction_function=ReduceFunction.MAX) == (0, 1)


def test_what_would_take_too_long_is_refused() -> None:
    lower(desc(minimum_samples_per_output=1024), GPU)
    with pytest.raises(UnsupportedError, match="MinimumSamplesPerOutput"):
        lower(desc(minimum_samples_per_output=1025), GPU)
    cpu = Capabilities(is_cpu=True)
    lower(desc(), cpu)
    with pytest.raises(UnsupportedError, match="65535 rounds"):
        lower(desc(minimum_samples_per_output=1024), cpu)
