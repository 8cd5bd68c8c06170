"""Convolution: one large layer in both layouts and types, every layer shape of ResNet-50 and MobileNet-v2, depthwise.

Filters are OWNED_BY_DML, as a model's weights are: what repacks them is not in the times. cuDNN chooses its kernels by
measuring them beforehand.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import dmlvk
from dmlvk.spec import ops
from dmlvk.spec.enums import ConvolutionDirection, TensorDataType, TensorFlags
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, Group, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

SUITE = "conv"
_NETWORKS = Group("layers of ResNet-50 and MobileNet-v2, float32", 0.8)


class _Layer(NamedTuple):
    """A square window over square planes, padded so that a step of 1 keeps their size."""

    channels: int
    outputs: int
    size: int
    window: int = 1
    stride: int = 1
    depthwise: bool = False

    @property
    def name(self) -> str:
        """Its window and what differs from a plain one."""
        step = f" stride {self.stride}" if self.stride > 1 else ""
        kind = "depthwise" if self.depthwise else "convolution"
        return f"{kind} {self.window}x{self.window}{step} {self.channels} to {self.outputs} channels"

    @property
    def out(self) -> int:
        """Height and width of its output."""
        return (self.size - 1) // self.stride + 1

    @property
    def terms(self) -> int:
        """The number of terms of each sum."""
        return (1 if self.depthwise else self.channels) * self.window**2


RESNET_50 = (
    _Layer(3, 64, 224, 7, 2),
    _Layer(64, 64, 56),
    _Layer(64, 64, 56, 3),
    _Layer(64, 256, 56),
    _Layer(256, 64, 56),
    _Layer(256, 128, 56),
    _Layer(128, 128, 56, 3, 2),
    _Layer(128, 512, 28),
    _Layer(256, 512, 56, 1, 2),
    _Layer(512, 128, 28),
    _Layer(128, 128, 28, 3),
    _Layer(512, 256, 28),
    _Layer(256, 256, 28, 3, 2),
    _Layer(256, 1024, 14),
    _Layer(512, 1024, 28, 1, 2),
    _Layer(1024, 256, 14),
    _Layer(256, 256, 14, 3),
    _Layer(1024, 512, 14),
    _Layer(512, 512, 14, 3, 2),
    _Layer(512, 2048, 7),
    _Layer(1024, 2048, 14, 1, 2),
    _Layer(2048, 512, 7),
    _Layer(512, 512, 7, 3),
)
"""Its distinct layers; where planes shrink, the 3x3 layers have the stride (version 1.5)."""


def _blocks() -> tuple[_Layer, ...]:
    """Every distinct layer of MobileNet-v2 at 224x224: expanded six times, depthwise, and projected."""
    layers = [_Layer(3, 32, 224, 3, 2), _Layer(32, 32, 112, 3, 1, True), _Layer(32, 16, 112)]
    channels, size = 16, 112
    for outputs, count, stride in ((24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)):
        for step in (stride, *(1,) * (count - 1)):
            wide = 6 * channels
            layers += [_Layer(channels, wide, size), _Layer(wide, wide, size, 3, step, True)]
            size = (size - 1) // step + 1
            layers += [_Layer(wide, outputs, size)]
            channels = outputs
    return tuple(dict.fromkeys([*layers, _Layer(320, 1280, 7)]))


MOBILENET_V2 = _blocks()


def _shrunk(scale: Scale, layer: _Layer, batch: int) -> tuple[int, _Layer]:
    """Batch and layer at a scale: first there are fewer images, then smaller ones, then fewer channels."""

    def cut(sizes: Sizes) -> _Layer:
        _, size, channels, outputs = sizes
        return layer._replace(size=size, channels=channels, outputs=channels if layer.depthwise else outputs)

    def elements(sizes: Sizes) -> int:
        own = cut(sizes)
        return sizes[0] * max(own.channels * own.size**2, own.outputs * own.out**2)

    def operations(sizes: Sizes) -> int:
        own = cut(sizes)
        return 2 * sizes[0] * own.out**2 * own.outputs * own.terms

    sizes: Sizes = (batch, layer.size, layer.channels, layer.outputs)
    for free, least in (((0,), 1), ((1,), 7), ((2, 3), 1)):
        sizes = scale.fit(sizes, *free, elements=elements, operations=operations, least=least)
    return sizes[0], cut(sizes)


def _problem(
    scale: Scale,
    layer: _Layer,
    batch: int,
    data_type: TensorDataType = FLOAT32,
    layout: str = "NCHW",
    target: float = 0.0,
    **goal: Any,
) -> Problem:
    batch, layer = _shrunk(scale, layer, batch)
    padding = layer.window // 2
    groups = layer.channels if layer.depthwise else 1

    def tensor(*sizes: int, flags: TensorFlags = TensorFlags.NONE) -> TensorDesc:
        strides = calculate_strides(layout, sizes) if layout != "NCHW" else None
        return TensorDesc(data_type, sizes, strides, flags=flags)

    x = tensor(batch, layer.channels, layer.size, layer.size)
    w = tensor(layer.outputs, layer.channels // groups, layer.window, layer.window, flags=TensorFlags.OWNED_BY_DML)
    y = tensor(batch, layer.outputs, layer.out, layer.out)

    def rival(torch: Any, x: Any, w: Any) -> Any:
        return torch.nn.functional.conv2d(x, w, stride=layer.stride, padding=padding, groups=groups)

    desc = dmlvk.Convolution(
        input_tensor=x,
        filter_tensor=w,
        output_tensor=y,
        strides=(layer.stride,) * 2,
        dilations=(1, 1),
        start_padding=(padding,) * 2,
        end_padding=(padding,) * 2,
        output_padding=(0, 0),
        group_count=groups,
    )
    return Problem(
        f"{layer.name} {layout} {data_type.name} {batch}x{layer.size}x{layer.size}",
        desc,
        rival,
        bytes_moved=nbytes(x, w, y),
        operations=2 * math.prod(y.sizes) * layer.terms,
        tolerance=1e-3 if data_type is FLOAT16 else 1e-5,
        target=target,
        **goal,
    )


def _plain(
    scale: Scale,
    name: str,
    data_type: TensorDataType,
    sizes: tuple[int, ...],
    filters: tuple[int, ...],
    target: float,
    *,
    stride: int = 1,
    padding: int = 1,
    transposed: bool = False,
) -> Problem:
    """A layer over {batch, channels, spatial sizes}; the batch and the spatial sizes shrink with the scale. Transposed ones
    have filters {channels, outputs, taps}."""
    rank = len(sizes) - 2

    def desc_of(sizes: Sizes) -> ops.Convolution:
        x = TensorDesc(data_type, sizes)
        arrays: dict[str, Any] = {"strides": (stride,) * rank, "dilations": (1,) * rank, "output_padding": (0,) * rank}
        arrays |= dict.fromkeys(("start_padding", "end_padding"), (padding,) * rank)
        desc = dmlvk.Convolution(
            input_tensor=x,
            filter_tensor=TensorDesc(data_type, filters, flags=TensorFlags.OWNED_BY_DML),
            direction=ConvolutionDirection(int(transposed)),
            **arrays,
        )
        return desc.replace(output_tensor=TensorDesc(data_type, desc.inferred_output_sizes()[0]))

    def elements(sizes: Sizes) -> int:
        return max(math.prod(sizes), math.prod(desc_of(sizes).tensor("output_tensor").sizes))

    def operations(sizes: Sizes) -> int:
        """A transposed one has all filters at each input, others at each output."""
        spatial = sizes if transposed else desc_of(sizes).tensor("output_tensor").sizes
        return 2 * sizes[0] * math.prod(spatial[2:]) * math.prod(filters)

    def rival(torch: Any, x: Any, w: Any) -> Any:
        function = getattr(torch.nn.functional, f"conv{'_transpose' * transposed}{rank}d")
        return function(x, w, stride=stride, padding=padding)

    for free, least in (((0,), 1), (tuple(range(2, rank + 2)), max(4, stride))):
        sizes = scale.fit(sizes, *free, elements=elements, operations=operations, least=least)
    desc = desc_of(sizes)
    tensors = (desc.tensor(field) for field in ("input_tensor", "filter_tensor", "output_tensor"))
    return Problem(
        f"{name} {data_type.name} {'x'.join(map(str, sizes))}",
        desc,
        rival,
        bytes_moved=nbytes(*tensors),
        operations=operations(sizes),
        tolerance=1e-3 if data_type is FLOAT16 else 1e-5,
        target=target,
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    large = _Layer(256, 256, 56, 3)
    found = [
        _problem(scale, large, 32, target=0.9),
        _problem(scale, large, 32, layout="NHWC", target=0.9),
        _problem(scale, large, 32, FLOAT16, target=0.85),
        _problem(scale, large, 32, FLOAT16, "NHWC", target=0.5),
    ]
    for data_type in (FLOAT32, FLOAT16):
        for layout in ("NCHW", "NHWC"):
            for window, stride in ((3, 1), (3, 2), (5, 1), (5, 2)):
                layer = _Layer(256, 256, 56, window, stride, True)
                found.append(_problem(scale, layer, 32, data_type, layout, target=1.0, copy_target=0.8))
    for data_type, goals in ((FLOAT32, (0.9, 1.0)), (FLOAT16, (0.7, 0.7))):
        image, volume = (8, 256, 64, 64), (2, 64, 16, 32, 32)
        name = "transposed convolution 4x4 stride 2"
        found.append(_plain(scale, name, data_type, image, (256, 128, 4, 4), goals[0], stride=2, transposed=True))
        found.append(_plain(scale, "convolution 3x3x3", data_type, volume, (64, 64, 3, 3, 3), goals[1]))
        name, filters = "patches 16x16", (768, 3, 16, 16)
        found.append(_plain(scale, name, data_type, (8, 3, 224, 224), filters, 1.0, stride=16, padding=0))
        name, image, filters = "transposed patches 2x2", (1, 512, 64, 64), (512, 256, 2, 2)
        found.append(_plain(scale, name, data_type, image, filters, 1.0, stride=2, padding=0, transposed=True))
    for layer, batch, target in (
        (_Layer(320, 320, 64, 3), 2, 0.75),
        (_Layer(512, 512, 28), 32, 0.9),
        (_Layer(256, 256, 56, 3, 2), 32, 1.0),
        (RESNET_50[0], 32, 1.0),
        (_Layer(320, 4, 64, 3), 2, 1.0),
        (_Layer(128, 3, 512, 3), 1, 1.0),
    ):
        found.append(_problem(scale, layer, batch, FLOAT16, target=target))
    for batch in (1, 32):
        layers = dict.fromkeys((*RESNET_50, *MOBILENET_V2))
        found += [_problem(scale, layer, batch, group=_NETWORKS) for layer in layers]
    return found
