"""The measured problems, each declared once: the desc, what a rival computes for it, the bytes that must move."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dmlvk
from dmlvk import InterpolationMode, ReduceFunction, TensorDataType, TensorDesc, calculate_strides
from dmlvk.schema import OperatorDesc
from dmlvk.tensor import element_bits

FLOAT32, FLOAT16, UINT8 = TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.UINT8
FLOATS = (FLOAT32, FLOAT16)


@dataclass(frozen=True)
class Problem:
    """One measured problem.

    Attributes:
        name: What the results call it.
        desc: The operator.
        rival: Given torch and the input tensors on its device, what the rival runs. What it gives for the same inputs
            in float32 is what both outputs are compared with.
        target: At least this ratio of rival time to ours; 0 for none.
        bytes_moved: Bytes that any implementation must read and write.
        copy_target: At least this share of the copy bandwidth of the same run; 0 for none.
        fill: Given torch, how an input is filled, by input field; standard normal numbers otherwise.
        tolerance: Largest difference from that, relative to the largest output.
    """

    name: str
    desc: OperatorDesc
    rival: Callable[..., Any]
    target: float
    bytes_moved: int
    copy_target: float = 0.0
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


def _nbytes(*tensors: TensorDesc) -> int:
    """Bytes of elements, those of a broadcast dimension counted once."""
    total = 0
    for tensor in tensors:
        steps = zip(tensor.sizes, tensor.effective_strides, strict=True)
        total += element_bits(tensor.data_type) // 8 * math.prod(size for size, step in steps if step)
    return total


CONTIGUOUS = {"target": 0.98, "copy_target": 0.95}
STRIDED = {"target": 0.0, "copy_target": 0.6}
SCALE = 0.0234375
"""Of the quantized problems: exact in every type."""


def _pointwise(
    name: str,
    row: type[OperatorDesc],
    tensors: Sequence[TensorDesc],
    rival: Callable[..., Any],
    goal: Mapping[str, float],
    **more: Any,
) -> Problem:
    """A problem of an operator whose tensors these are, in the struct's order."""
    slots = [spec.name for spec in row.fields if spec.kind.is_tensor]
    attributes = {key: more.pop(key) for key in list(more) if key not in ("fill", "tolerance")}
    *_, output = tensors
    tolerance = 1e-3 if FLOAT16 in (tensor.data_type for tensor in tensors) else 1e-5
    return Problem(
        f"{name} {output.data_type.name} {'x'.join(map(str, output.sizes))}",
        row(**dict(zip(slots, tensors, strict=True)), **attributes),
        rival,
        bytes_moved=_nbytes(*tensors),
        **{"tolerance": tolerance, **goal, **more},
    )


def _gibibyte(data_type: TensorDataType) -> TensorDesc:
    return TensorDesc(data_type, (2**33 // element_bits(data_type),))


def _contiguous(data_type: TensorDataType) -> list[Problem]:
    x = _gibibyte(data_type)
    functions = {
        dmlvk.ActivationRelu: lambda torch, x: torch.relu(x),
        dmlvk.ActivationSigmoid: lambda torch, x: torch.sigmoid(x),
        dmlvk.ActivationGelu: lambda torch, x: torch.nn.functional.gelu(x),
        dmlvk.ElementWiseExp: lambda torch, x: torch.exp(x),
        dmlvk.ElementWiseSin: lambda torch, x: torch.sin(x),
    }
    found = [_pointwise(row.__name__, row, (x, x), rival, CONTIGUOUS) for row, rival in functions.items()]
    found.append(_pointwise("add", dmlvk.ElementWiseAdd, (x, x, x), lambda torch, a, b: a + b, CONTIGUOUS))
    fused = {"fused_activation": dmlvk.ActivationRelu()}
    return [
        *found,
        _pointwise(
            "add and relu", dmlvk.ElementWiseAdd1, (x, x, x), lambda torch, a, b: torch.relu(a + b), CONTIGUOUS, **fused
        ),
    ]


def _type_changes() -> list[Problem]:
    sizes = (1 << 28,)
    single, half, byte = (TensorDesc(kind, sizes) for kind in (FLOAT32, FLOAT16, UINT8))
    scale, zero_point = TensorDesc(FLOAT32, sizes, (0,)), TensorDesc(UINT8, sizes, (0,))

    def small(torch: Any, sizes: tuple[int, ...], kind: Any) -> Any:
        return 100 * torch.rand(sizes, device="cuda", dtype=kind)

    def constant(value: float) -> Callable[..., Any]:
        return lambda torch, sizes, kind: torch.full(sizes, value, device="cuda", dtype=kind)

    def quantize(torch: Any, x: Any, scale: Any, zero_point: Any) -> Any:
        return torch.quantize_per_tensor(x, SCALE, 117, torch.quint8).int_repr()

    def dequantize(torch: Any, x: Any, scale: Any, zero_point: Any) -> Any:
        return (x.float() - 117) * SCALE

    side = {"fill": {"scale_tensor": constant(SCALE), "zero_point_tensor": constant(117)}}
    quantized, restored = dmlvk.ElementWiseQuantizeLinear, dmlvk.ElementWiseDequantizeLinear
    to_byte: dict[str, Any] = {"fill": {"input_tensor": small}}
    return [
        _pointwise("cast FLOAT32 to", dmlvk.Cast, (single, half), lambda torch, x: x.half(), CONTIGUOUS),
        _pointwise("cast FLOAT16 to", dmlvk.Cast, (half, single), lambda torch, x: x.float(), CONTIGUOUS),
        _pointwise("cast FLOAT32 to", dmlvk.Cast, (single, byte), lambda torch, x: x.byte(), CONTIGUOUS, **to_byte),
        _pointwise("cast UINT8 to", dmlvk.Cast, (byte, single), lambda torch, x: x.float(), CONTIGUOUS),
        _pointwise("quantize to", quantized, (single, scale, zero_point, byte), quantize, CONTIGUOUS, **side),
        _pointwise("dequantize to", restored, (byte, scale, zero_point, single), dequantize, CONTIGUOUS, **side),
    ]


def _fill() -> Problem:
    def rival(torch: Any) -> Any:
        return torch.full((1 << 28,), 1.5, device="cuda")

    goal = {"target": 0.98}
    value = {"value_data_type": FLOAT32, "value": 1.5}
    return _pointwise("fill", dmlvk.FillValueConstant, (_gibibyte(FLOAT32),), rival, goal, **value)


def _strided(data_type: TensorDataType) -> list[Problem]:
    def tensor(sizes: tuple[int, ...], strides: tuple[int, ...] | None = None) -> TensorDesc:
        return TensorDesc(data_type, sizes, strides)

    matrix, image, cube = (16384, 8192), (64, 256, 64, 64), (16, 24, 40, 33, 129)
    nhwc = calculate_strides("NHWC", image)
    # Stored as dimensions 1, 0, 3, 2, 4, three elements of padding after each: no two merge, no row starts on a word.
    steps, reach = [0] * 5, 1
    for axis in (4, 2, 3, 0, 1):
        steps[axis] = reach
        reach = reach * cube[axis] + 3
    add, copy = dmlvk.ElementWiseAdd, dmlvk.ElementWiseIdentity

    def plus(torch: Any, a: Any, b: Any) -> Any:
        return a + b

    def contiguous(torch: Any, x: Any) -> Any:
        return x.clone(memory_format=torch.contiguous_format)

    return [
        _pointwise("add a row", add, (tensor(matrix), tensor(matrix, (0, 1)), tensor(matrix)), plus, STRIDED),
        _pointwise("add a column", add, (tensor(matrix), tensor(matrix, (1, 0)), tensor(matrix)), plus, STRIDED),
        _pointwise("NHWC to NCHW", copy, (tensor(image, nhwc), tensor(image)), contiguous, STRIDED),
        _pointwise(
            "NCHW to NHWC",
            copy,
            (tensor(image), tensor(image, nhwc)),
            lambda torch, x: x.contiguous(memory_format=torch.channels_last),
            STRIDED,
        ),
        _pointwise("add NCHW and NHWC", add, (tensor(image), tensor(image, nhwc), tensor(image)), plus, STRIDED),
        _pointwise("transpose", copy, (tensor(matrix, (1, matrix[0])), tensor(matrix)), contiguous, STRIDED),
        _pointwise("5-D strided copy", copy, (tensor(cube, tuple(steps)), tensor(cube)), contiguous, STRIDED),
        _pointwise("5-D strided add", add, (tensor(cube, tuple(steps)), tensor(cube), tensor(cube)), plus, STRIDED),
    ]


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    image = (32, 256, 128, 128)
    found = [_floor_modulus(data_type) for data_type in FLOATS]
    for data_type in FLOATS:
        found += _contiguous(data_type)
    found += [*_type_changes(), _fill()]
    for data_type in FLOATS:
        found += _strided(data_type)
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
