"""The measured problems, each declared once: the desc, what a rival computes for it, the bytes that must move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dmlvk
from dmlvk import InterpolationMode, ReduceFunction, TensorDataType, TensorDesc
from dmlvk.schema import OperatorDesc

FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
FLOATS = (FLOAT32, FLOAT16)


@dataclass(frozen=True)
class Problem:
    """One measured problem.

    Attributes:
        name: What the results call it.
        desc: The operator.
        rival: Given torch and the input tensors on its device, what the rival runs. What it gives for the same inputs
            in float32 is what both outputs are compared with.
        target: At least this ratio of rival time to ours.
        bytes_moved: Bytes that any implementation must read and write.
        fill: Given torch, how an input is filled, by input field; standard normal numbers otherwise.
        tolerance: Largest difference from that, relative to the largest output.
    """

    name: str
    desc: OperatorDesc
    rival: Callable[..., Any]
    target: float
    bytes_moved: int
    fill: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    tolerance: float = 1e-5


def _floor_modulus(data_type: TensorDataType) -> Problem:
    tensor = TensorDesc(data_type, (1 << 28,))
    return Problem(
        f"floor modulus {data_type.name} 2^28",
        dmlvk.ElementWiseModulusFloor(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor),
        lambda torch, a, b: torch.remainder(a, b),
        0.98,
        3 * tensor.total_tensor_size_in_bytes,
        tolerance=1e-5 if data_type is FLOAT32 else 1e-3,
    )


def _normalization(
    name: str, data_type: TensorDataType, sizes: tuple[int, ...], axes: tuple[int, ...], rival: Any, target: float
) -> Problem:
    tensor = TensorDesc(data_type, sizes)
    return Problem(
        f"{name} {data_type.name} {'x'.join(map(str, sizes))}",
        dmlvk.MeanVarianceNormalization1(
            input_tensor=tensor, output_tensor=tensor, axes=axes, normalize_variance=True, epsilon=1e-5
        ),
        rival,
        target,
        2 * tensor.total_tensor_size_in_bytes,
        tolerance=1e-5 if data_type is FLOAT32 else 2e-3,
    )


def _roi_align(data_type: TensorDataType) -> Problem:
    image = TensorDesc(data_type, (4, 256, 200, 304))
    boxes = TensorDesc(data_type, (1000, 4))
    batch = TensorDesc(TensorDataType.UINT32, (1000,))
    output = TensorDesc(data_type, (1000, 256, 7, 7))

    def random_boxes(torch: Any, sizes: tuple[int, ...], kind: Any) -> Any:
        corner = torch.rand(sizes[0], 2, device="cuda") * torch.tensor([240.0, 150.0], device="cuda")
        extent = 8 + torch.rand(sizes[0], 2, device="cuda") * torch.tensor([56.0, 42.0], device="cuda")
        return torch.cat([corner, corner + extent], 1).to(kind)

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
        fill={
            "roi_tensor": random_boxes,
            "batch_indices_tensor": lambda torch, sizes, kind: torch.randint(0, 4, sizes, device="cuda").int(),
        },
        tolerance=1e-4 if data_type is FLOAT32 else 1e-3,
    )


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    image = (32, 256, 128, 128)
    found = [_floor_modulus(data_type) for data_type in FLOATS]
    for data_type in FLOATS:
        found += [
            _normalization(
                "layer norm, last axis",
                data_type,
                (16384, 8192),
                (1,),
                lambda torch, x: torch.nn.functional.layer_norm(x, x.shape[1:]),
                1.5,
            ),
            _normalization(
                "instance norm, axes {2,3}",
                data_type,
                image,
                (2, 3),
                lambda torch, x: torch.nn.functional.instance_norm(x),
                2.0,
            ),
            _normalization(
                "one-group norm, axes {1,2,3}",
                data_type,
                image,
                (1, 2, 3),
                lambda torch, x: torch.nn.functional.group_norm(x, 1),
                10.0,
            ),
        ]
    return found + [_roi_align(data_type) for data_type in FLOATS]
