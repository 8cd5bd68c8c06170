"""A network in PyTorch, by the functions that its users call, eagerly or as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F

from dmlvk_bench.models.layers import (
    EPSILON,
    MASKED,
    Array,
    Weights,
    batch_norm_weights,
    convolution_weights,
    layer_norm_weights,
    linear_weights,
    table_weights,
)
from dmlvk_bench.models.networks import Network

Tensor: TypeAlias = Any
"""PyTorch's; its types are not there where it is not."""
LAYOUTS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
WARM_UPS = 3
"""Runs before a graph is captured, on a stream of their own, as PyTorch's manual asks."""


class TorchLayers:
    """Layers that compute; a value is a tensor. Weights go to the device when they are first used, filters in a layout."""

    def __init__(self, weights: Weights, dtype: torch.dtype, device: str, layout: torch.memory_format) -> None:
        self._weights = weights
        self._dtype = dtype
        self._device = device
        self._layout = layout
        self._kept: dict[str, list[Tensor]] = {}

    def _of(self, name: str, make: Callable[..., tuple[Array, ...]], *sizes: Any) -> list[Tensor]:
        if name not in self._kept:
            tensors = [torch.from_numpy(array).to(self._device, self._dtype) for array in make(self._weights, name, *sizes)]
            self._kept[name] = [tensor.to(memory_format=self._layout) if tensor.ndim == 4 else tensor for tensor in tensors]
        return self._kept[name]

    def convolution(self, x: Tensor, name: str, inputs: int, outputs: int, kernel: int, stride: int) -> Tensor:
        (weight,) = self._of(name, convolution_weights, inputs, outputs, kernel)
        return F.conv2d(x, weight, stride=stride, padding=kernel // 2)

    def batch_norm(self, x: Tensor, name: str, channels: int, scale: float) -> Tensor:
        weight, bias, mean, variance = self._of(name, batch_norm_weights, channels, scale)
        return F.batch_norm(x, mean, variance, weight, bias, eps=EPSILON)

    def relu(self, x: Tensor) -> Tensor:
        return F.relu(x, inplace=True)

    def tanh(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def gelu(self, x: Tensor) -> Tensor:
        return F.gelu(x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def max_pooling(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, 3, 2, 1)

    def image_means(self, x: Tensor) -> Tensor:
        return torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)

    def linear(self, x: Tensor, name: str, inputs: int, outputs: int) -> Tensor:
        return F.linear(x, *self._of(name, linear_weights, inputs, outputs))

    def embedding(self, indices: Tensor, name: str, count: int, width: int) -> Tensor:
        return F.embedding(indices, self._of(name, table_weights, count, width)[0])

    def positions(self, name: str, count: int, width: int) -> Tensor:
        return self._of(name, table_weights, count, width)[0][None]

    def layer_norm(self, x: Tensor, name: str, width: int) -> Tensor:
        scale, bias = self._of(name, layer_norm_weights, width)
        return F.layer_norm(x, (width,), scale, bias, EPSILON)

    def mask_bias(self, mask: Tensor) -> Tensor:
        return (1.0 - mask[:, None, None, :].to(self._dtype)) * MASKED

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, heads: int, sequence: int, width: int
    ) -> Tensor:
        q, k, v = (x.view(-1, sequence, heads, width).transpose(1, 2) for x in (query, key, value))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return attended.transpose(1, 2).reshape(-1, sequence, heads * width)

    def first(self, x: Tensor) -> Tensor:
        return x[:, 0]


class TorchNetwork:
    """A network with its weights on a device.

    Args:
        network: The network to compute.
        weights: The network's weights.
        device: "cuda" or "cpu".
        layout: A name of ``LAYOUTS``.
        graph: Whether a run is one CUDA graph, which a GPU alone has; else each function is called.
    """

    def __init__(self, network: Network, weights: Weights, device: str, layout: str, graph: bool) -> None:
        self._device = device
        self._build = network.build
        self._layout = LAYOUTS[layout]
        self._layers = TorchLayers(weights, torch.from_numpy(np.empty(0, network.dtype)).dtype, self._device, self._layout)
        self._graph = torch.cuda.CUDAGraph() if graph else None
        self._inputs: list[Tensor] = []
        self._outputs: tuple[Tensor, ...] = ()

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Hands the inputs over, computes and reads the outputs."""
        tensors = [torch.from_numpy(array) for array in feeds.values()]
        with torch.inference_mode():
            return [output.cpu().numpy() for output in self._computed(tensors)]

    def _computed(self, tensors: list[Tensor]) -> tuple[Tensor, ...]:
        if self._graph is None:
            return self._build(self._layers, *map(self._handed_over, tensors))
        if not self._inputs:
            self._capture(self._graph, tensors)
        for kept, tensor in zip(self._inputs, tensors, strict=True):
            kept.copy_(tensor)
        self._graph.replay()
        return self._outputs

    def _handed_over(self, tensor: Tensor) -> Tensor:
        moved = tensor.to(self._device)
        return moved.to(memory_format=self._layout) if moved.ndim == 4 else moved

    def _capture(self, graph: torch.cuda.CUDAGraph, tensors: list[Tensor]) -> None:
        self._inputs = [tensor.to(self._device) for tensor in tensors]

        def compute() -> tuple[Tensor, ...]:
            return tuple(self._build(self._layers, *map(self._handed_over, self._inputs)))

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                compute()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            self._outputs = compute()
