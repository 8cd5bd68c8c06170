"""Lowering of ``ops.roi_gradient``: the gradients of regions of interest."""

from __future__ import annotations

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, SAMPLES
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import check_rounds, linear_grid
from dmlvk.kernels.roi.lowering import (
    check_samples,
    most_samples,
    position_constants,
    position_params,
    round_samples,
)
from dmlvk.kernels.roi_gradient.manifest import BOUNDS_WORDS
from dmlvk.kernels.roi_gradient.rules import ROI_ALIGN_GRAD, ROI_TILE_HEIGHT, ROI_TILE_WIDTH, RoiAlignGradProblem
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.ops.roi_gradient import RoiAlignGrad
from dmlvk.spec.tensor import TensorDesc

_INPUT, _INPUT_GRADIENT, _ROI, _BATCH = (input_range(slot) for slot in range(4))
_IMAGE_GRADIENT, _BOX_GRADIENT = output_range(0), output_range(1)

_INVOCATIONS = 256
"""The invocations of a workgroup, where the device has as many."""

_CHANNELS, _AVERAGE_CHANNELS = 4, 8
"""Channels that an invocation sums for at a time: so many share the weights that it reads."""

_HELD_CHUNKS = 16
"""Chunks whose weights a workgroup holds, where it has the shared memory: more than read most tiles."""

_MOST_PLACED = 4
"""Samples of an output along an axis that registers have room for."""

_BOX_OUTPUTS = 1 << 14
"""Outputs of a region that one workgroup sums for its box. On an H200, 1000 regions of 256 channels to 7x7 took 253 us in
float32 with all of a region's, 296 us with 4096 and 324 us with 1024."""


def _images(desc: RoiAlignGrad) -> TensorDesc:
    """A desc of the images' sizes: that of their gradient, or of the images themselves."""
    return desc.tensor("input_tensor" if desc.output_gradient_tensor is None else "output_gradient_tensor")


def _problem(desc: RoiAlignGrad) -> RoiAlignGradProblem:
    _, channels_stride, _, width_stride = _images(desc).effective_strides
    return RoiAlignGradProblem(rows_contiguous=_images(desc).sizes[1] == 1 or width_stride <= channels_stride)


def _variant(desc: RoiAlignGrad) -> dict[str, str]:
    return {"T": _images(desc).data_type.name}


def _params(desc: RoiAlignGrad) -> dict[str, int | float | tuple[int, ...]]:
    return position_params(desc, _images(desc), desc.tensor("input_gradient_tensor"))


def _value_params(desc: RoiAlignGrad) -> dict[str, int | tuple[int, ...]]:
    """The parameters of kernels that read images and gradients."""
    return {
        "channels": _images(desc).sizes[1],
        "input_strides": (desc.input_tensor or _images(desc)).effective_strides,
        "gradient_strides": desc.tensor("input_gradient_tensor").effective_strides,
    }


def _maximum(desc: RoiAlignGrad) -> dict[str, int]:
    return {"MAXIMUM": int(desc.reduction_function == ReduceFunction.MAX)}


def _image_gradient(
    desc: RoiAlignGrad, problem: RoiAlignGradProblem, caps: Capabilities
) -> tuple[tuple[Dispatch, ...], int]:
    """The dispatches, and the temporary bytes that they take: five words for each chunk of outputs."""
    gradient, output = desc.tensor("input_gradient_tensor"), desc.tensor("output_gradient_tensor")
    batch, channels, height, width = output.sizes
    maximum = desc.reduction_function == ReduceFunction.MAX
    size = min(_INVOCATIONS, caps.workgroup_invocations) // ROI_TILE_WIDTH * ROI_TILE_WIDTH
    # Chunks of which positions of maxima in all of a workgroup's channels fit the shared memory of the least device.
    chunk = 4 if maximum else 8
    lists = 8 * size + size // 8
    weights = 4 * (chunk * (ROI_TILE_WIDTH + ROI_TILE_HEIGHT) + ROI_TILE_WIDTH + 4)
    held = min(_HELD_CHUNKS, (caps.shared_memory_bytes - lists) // weights)
    groups = size // ROI_TILE_WIDTH
    each = min(_CHANNELS if maximum else _AVERAGE_CHANNELS, -(-channels // groups))

    rois, _, output_height, output_width = gradient.sizes
    items = rois * -(-output_height // chunk) * -(-output_width // chunk)
    # A tile may be read by every chunk.
    if maximum:
        down, across = (most_samples(desc, pixels) for pixels in (height, width))
        turns = -(-groups * each * chunk**2 // size)
        rounds = items * (turns * down * (1 + -(-across // round_samples(caps))) + chunk**2)
    else:
        zeros = -(-held * weights // (4 * size))
        rounds = items * (1 + chunk**2) + -(-items // held) * (zeros + most_samples(desc, ROI_TILE_WIDTH))
    check_rounds(rounds + items // 32, caps, desc.dml_name)

    bounds = Range(Source.TEMPORARY, 0, 0, 4 * BOUNDS_WORDS * items)
    shared = {"LOCAL_SIZE_X": size, **position_constants(desc), "CHUNK": chunk}
    tiles = -(-width // ROI_TILE_WIDTH) * -(-height // ROI_TILE_HEIGHT) * -(-channels // (groups * each)) * batch
    constants = {
        **_maximum(desc),
        "ROUND": round_samples(caps),
        "BATCH": held,
        "CHANNELS": each,
        "TILE_WIDTH": ROI_TILE_WIDTH,
        "TILE_HEIGHT": ROI_TILE_HEIGHT,
        "CHANNELS_FASTEST": int(not problem.rows_contiguous),
    }
    find_chunks = make_dispatch(
        "roi_align_chunks",
        (_ROI, _BATCH, bounds),
        linear_grid(-(-items // size), caps),
        variant=_variant(desc),
        constants=shared,
        **_params(desc),
        items=items,
    )
    gather = make_dispatch(
        "roi_align_image_gradient",
        (_INPUT_GRADIENT if desc.input_tensor is None else _INPUT, _INPUT_GRADIENT, _ROI, bounds, _IMAGE_GRADIENT),
        linear_grid(tiles, caps),
        variant=_variant(desc),
        constants={**shared, **constants},
        **_params(desc),
        **_value_params(desc),
        items=items,
        output_strides=output.effective_strides,
    )
    return (find_chunks, gather), bounds.nbytes


def _placed_samples(desc: RoiAlignGrad) -> int:
    """Samples of an output along an axis that an invocation keeps in registers, where all outputs have as many and those
    are few; else 0."""
    count = desc.maximum_samples_per_output
    fixed = count == max(1, desc.minimum_samples_per_output) and desc.reduction_function == ReduceFunction.AVERAGE
    return count if fixed and count <= _MOST_PLACED else 0


def _box_gradient(desc: RoiAlignGrad, caps: Capabilities, start: int) -> tuple[tuple[Dispatch, ...], int]:
    """The dispatches, and the temporary bytes that they take from `start`: 16 for each region and block of channels where
    there are several blocks."""
    rois, channels, height, width = desc.tensor("input_gradient_tensor").sizes
    size = 1 << (min(_INVOCATIONS, caps.workgroup_invocations).bit_length() - 1)
    most = size if caps.is_cpu else _BOX_OUTPUTS  # of a CPU, whose loops have few rounds, one round
    block = min(channels, max(1, most // (height * width)))
    blocks = -(-channels // block)
    down, across = (most_samples(desc, pixels) for pixels in _images(desc).sizes[2:])
    samples_rounds = down * (1 + -(-across // round_samples(caps)))
    at_once = min(height * width, size)
    turns = -(-height * width // at_once) * (1 + -(-block // (size // at_once)))
    check_rounds(turns * (1 + samples_rounds), caps, desc.dml_name)
    box_strides = desc.tensor("output_roi_gradient_tensor").effective_strides[-2:]
    temporary = 16 * rois * blocks if blocks > 1 else 0
    partials = Range(Source.TEMPORARY, 0, start, temporary) if temporary else _BOX_GRADIENT
    constants = {"LOCAL_SIZE_X": size, **position_constants(desc), **_maximum(desc)}
    placed = _placed_samples(desc)
    constants |= {"FIXED": int(placed > 0), "SAMPLES": max(placed, 1)}
    constants |= {"ROUND": round_samples(caps), "PARTIAL": int(blocks > 1)}
    gather = make_dispatch(
        "roi_align_box_gradient",
        (_INPUT, _INPUT_GRADIENT, _ROI, _BATCH, partials, _BOX_GRADIENT),
        linear_grid(rois * blocks, caps),
        variant=_variant(desc),
        constants=constants,
        **_params(desc),
        **_value_params(desc),
        roi_count=rois,
        box_strides=box_strides,
        block_channels=block,
    )
    if blocks == 1:
        return (gather,), 0
    merge = make_dispatch(
        "roi_align_box_gradient_merge",
        (partials, _BOX_GRADIENT),
        linear_grid(-(-4 * rois // size), caps),
        variant=_variant(desc),
        constants={"LOCAL_SIZE_X": size},
        roi_count=rois,
        blocks=blocks,
        box_strides=box_strides,
    )
    return (gather, merge), temporary


def _tiles(desc: RoiAlignGrad, problem: RoiAlignGradProblem, caps: Capabilities) -> Plan:
    check_samples(desc)
    dispatches: tuple[Dispatch, ...] = ()
    temporary = 0
    if desc.output_gradient_tensor is not None:
        dispatches, temporary = _image_gradient(desc, problem, caps)
    if desc.output_roi_gradient_tensor is not None:
        start = -(-temporary // 256) * 256
        own, nbytes = _box_gradient(desc, caps, start)
        dispatches += own
        temporary = start + nbytes if nbytes else temporary
    return Plan(dispatches, temporary_bytes=temporary)


register(
    RoiAlignGrad,
    problem=_problem,
    rules=ROI_ALIGN_GRAD,
    schedules={"tiles": _tiles},
    limitations=(LOOP_ROUNDS, SAMPLES),
)
