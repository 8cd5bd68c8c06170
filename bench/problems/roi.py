"""Regions of interest."""

from __future__ import annotations

from typing import Any

import dmlvk
from bench.problems.model import FLOAT32, FLOATS, Problem, nbytes
from dmlvk import InterpolationMode, ReduceFunction, TensorDataType, TensorDesc

IMAGES, REGIONS = (4, 256, 200, 304), 1000


def random_boxes(torch: Any, sizes: tuple[int, ...], kind: Any) -> Any:
    """Boxes of 8 to 64 x 8 to 50 pixels that lie in the images."""
    corner = torch.rand(sizes[0], 2) * torch.tensor([240.0, 150.0])
    extent = 8 + torch.rand(sizes[0], 2) * torch.tensor([56.0, 42.0])
    return torch.cat([corner, corner + extent], 1).to(kind)


def random_batches(torch: Any, sizes: tuple[int, ...], kind: Any) -> Any:
    """Batch entries of the images."""
    return torch.randint(0, IMAGES[0], sizes).int()


def _roi_align(data_type: TensorDataType) -> Problem:
    image = TensorDesc(data_type, IMAGES)
    boxes = TensorDesc(data_type, (1000, 4))
    batch = TensorDesc(TensorDataType.UINT32, (1000,))
    output = TensorDesc(data_type, (1000, 256, 7, 7))

    def rival(torch: Any, image: Any, boxes: Any, batch: Any) -> Any:
        import torchvision

        # Assembled once: only the kernel is timed.
        key = (boxes.data_ptr(), boxes.dtype)
        if key not in assembled:
            assembled[key] = torch.cat([batch.to(boxes.dtype)[:, None], boxes], 1).contiguous()
        return torchvision.ops.roi_align(image, assembled[key], (7, 7), 1.0, 2, aligned=True)

    assembled: dict[tuple[int, Any], Any] = {}
    return Problem(
        f"ROI align {data_type.name} 1000 of 4x256x200x304 to 7x7",
        dmlvk.RoiAlign1(
            input_tensor=image,
            roi_tensor=boxes,
            batch_indices_tensor=batch,
            output_tensor=output,
            reduction_function=ReduceFunction.AVERAGE,
            interpolation_mode=InterpolationMode.LINEAR,
            spatial_scale_x=1.0,
            spatial_scale_y=1.0,
            input_pixel_offset=0.5,
            output_pixel_offset=-0.5,
            out_of_bounds_input_value=0.0,
            minimum_samples_per_output=2,
            maximum_samples_per_output=2,
            align_regions_to_corners=False,
        ),
        rival,
        1 / 0.7,
        output.total_tensor_size_in_bytes + image.total_tensor_size_in_bytes,
        fill={"roi_tensor": random_boxes, "batch_indices_tensor": random_batches},
        tolerance=1e-4 if data_type is FLOAT32 else 1e-3,
    )


def _roi_pooling(data_type: TensorDataType) -> Problem:
    image = TensorDesc(data_type, (4, 256, 200, 304))
    regions = TensorDesc(data_type, (1, 1, 1000, 5))
    output = TensorDesc(data_type, (1000, 256, 7, 7))

    def random_regions(torch: Any, sizes: tuple[int, ...], kind: Any) -> Any:
        batch = torch.randint(0, 4, (sizes[2], 1))
        # Whole pixels, 7 times a whole number of them each way: halves round differently, and PyTorch's cells, whose sizes
        # are floats, may reach a pixel further than the specification's.
        corner = (torch.rand(sizes[2], 2) * torch.tensor([240.0, 150.0])).floor()
        extent = 7 * torch.randint(2, 8, (sizes[2], 2)) - 1
        return torch.cat([batch, corner, corner + extent], 1).to(kind).reshape(sizes)

    def rival(torch: Any, image: Any, regions: Any) -> Any:
        import torchvision

        return torchvision.ops.roi_pool(image, regions.reshape(-1, 5).to(image.dtype), (7, 7), 1.0)

    return Problem(
        f"ROI pooling {data_type.name} 1000 of 4x256x200x304 to 7x7",
        dmlvk.RoiPooling(
            input_tensor=image, roi_tensor=regions, output_tensor=output, spatial_scale=1.0, pooled_size=dmlvk.Size2D(7, 7)
        ),
        rival,
        0.0,
        nbytes(image, regions, output),
        fill={"roi_tensor": random_regions},
    )


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    return [make(data_type) for make in (_roi_align, _roi_pooling) for data_type in FLOATS]
