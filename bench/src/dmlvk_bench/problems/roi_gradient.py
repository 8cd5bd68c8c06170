"""The gradients of regions of interest."""

from __future__ import annotations

from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc, TensorLayout, calculate_strides
from dmlvk.verify.cases.model import uniform
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, FLOATS, Problem, nbytes
from dmlvk_bench.problems.roi import random_boxes, shrunk
from dmlvk_bench.problems.scale import Scale

_OUTPUT = (7, 7)
_SAMPLES = 2


def _desc(
    scale: Scale, data_type: TensorDataType, layout: TensorLayout = TensorLayout.NCHW, *, images: bool, boxes: bool
) -> dmlvk.RoiAlignGrad:
    def tensor(*sizes: int) -> TensorDesc:
        return TensorDesc(data_type, sizes, None if layout is TensorLayout.NCHW else calculate_strides(layout, sizes))

    sizes, regions = shrunk(scale)
    corners = TensorDesc(data_type, (regions, 4))
    return dmlvk.RoiAlignGrad(
        input_tensor=tensor(*sizes) if boxes else None,
        input_gradient_tensor=tensor(regions, sizes[1], *_OUTPUT),
        roi_tensor=corners,
        batch_indices_tensor=TensorDesc(TensorDataType.UINT32, (regions,)),
        output_gradient_tensor=tensor(*sizes) if images else None,
        output_roi_gradient_tensor=corners if boxes else None,
        minimum_samples_per_output=_SAMPLES,
        maximum_samples_per_output=_SAMPLES,
    )


def _images(scale: Scale, data_type: TensorDataType, layout: TensorLayout) -> Problem:
    sizes, regions = shrunk(scale)
    desc = _desc(scale, data_type, layout, images=True, boxes=False)
    assembled: dict[tuple[int, Any], Any] = {}

    def rival(torch: Any, gradient: Any, boxes: Any, batch: Any) -> Any:
        import torchvision  # noqa: F401  # registers the operator

        # Assembled once: only the kernel is timed.
        key = (boxes.data_ptr(), boxes.dtype)
        if key not in assembled:
            assembled[key] = torch.cat([batch.to(boxes.dtype)[:, None], boxes], 1).contiguous()
        return torch.ops.torchvision._roi_align_backward(gradient, assembled[key], 1.0, *_OUTPUT, *sizes, _SAMPLES, True)

    return Problem(
        f"ROI align gradient of images {data_type.name} {layout.name} {regions} of {'x'.join(map(str, sizes))} from 7x7",
        desc,
        rival,
        0.0,
        nbytes(*(slot.tensor for slot in (*desc.input_slots(), *desc.output_slots()) if slot.tensor is not None)),
        domains={"roi_tensor": random_boxes, "batch_indices_tensor": uniform(0, sizes[0] - 1)},
        tolerance=1e-4 if data_type is FLOAT32 else 1e-3,
    )


def _axis(torch: Any, start: Any, end: Any, count: int, pixels: int) -> tuple[Any, ...]:
    """The samples {region, sample} along an axis: pixels below and above, weight of the latter, slope, place in the box."""
    total = count * _SAMPLES
    place = (torch.arange(total, device=start.device) + 0.5) / total
    at = start[:, None] + (end - start)[:, None] * place - 0.5
    inside = at.clamp(0, pixels - 1)
    low = inside.floor()
    weight = inside - low
    return low.long(), (low.long() + 1).clamp(max=pixels - 1), weight, (weight != 0).float(), place


def _boxes(scale: Scale, data_type: TensorDataType) -> Problem:
    sizes, regions = shrunk(scale)
    desc = _desc(scale, data_type, images=False, boxes=True)

    def rival(torch: Any, images: Any, gradient: Any, boxes: Any, batch: Any) -> Any:
        """Nothing in PyTorch computes it, so its own operators do."""
        corners = boxes.float()
        left, right, x, slope_x, place_x = _axis(torch, corners[:, 0], corners[:, 2], _OUTPUT[1], images.shape[3])
        top, bottom, y, slope_y, place_y = _axis(torch, corners[:, 1], corners[:, 3], _OUTPUT[0], images.shape[2])
        x, slope_x, y, slope_y = (
            x[:, None, :, None],
            slope_x[:, None, :, None],
            y[:, :, None, None],
            slope_y[:, :, None, None],
        )

        def pixels(rows: Any, columns: Any) -> Any:  # {region, sample, sample, channel}
            return images[batch.long()[:, None, None], :, rows[:, :, None], columns[:, None, :]].float()

        four = [[pixels(rows, columns) for columns in (left, right)] for rows in (top, bottom)]
        dy = gradient.float().repeat_interleave(_SAMPLES, 2).repeat_interleave(_SAMPLES, 3).permute(0, 2, 3, 1) / _SAMPLES**2
        moves_x = (slope_x * torch.lerp(four[0][1] - four[0][0], four[1][1] - four[1][0], y) * dy).sum(3)
        moves_y = (slope_y * torch.lerp(four[1][0] - four[0][0], four[1][1] - four[0][1], x) * dy).sum(3)
        sums = []
        for near in (True, False):
            along_x, along_y = (1 - place if near else place for place in (place_x, place_y))
            sums += [(moves_x * along_x).sum((1, 2)), (moves_y * along_y[:, None]).sum((1, 2))]
        return torch.stack(sums, 1).to(boxes.dtype)

    return Problem(
        f"ROI align gradient of boxes {data_type.name} {regions} of {'x'.join(map(str, sizes))} from 7x7",
        desc,
        rival,
        0.0,
        nbytes(*(slot.tensor for slot in (*desc.input_slots(), *desc.output_slots()) if slot.tensor is not None)),
        domains={"roi_tensor": random_boxes, "batch_indices_tensor": uniform(0, sizes[0] - 1)},
        tolerance=1e-4 if data_type is FLOAT32 else 1e-3,
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    cases = [(data_type, TensorLayout.NCHW) for data_type in FLOATS]
    return [_images(scale, *case) for case in (*cases, (FLOAT16, TensorLayout.NHWC))] + [
        _boxes(scale, data_type) for data_type in FLOATS
    ]
