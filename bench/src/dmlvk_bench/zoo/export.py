"""Writes one architecture as an ONNX file, with its inputs and what PyTorch computes of them on the CPU, in float32."""

from __future__ import annotations

import pathlib
import time
import warnings
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch

from dmlvk_bench.zoo.architectures import architectures

_TORCHSCRIPT_OPSET: Final = 18


def export(name: str, exporter: str, folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Writes ``model.onnx``, ``inputs.npz`` and ``outputs.npz`` into a folder, and gives the facts of the row.

    Args:
        name: The architecture's.
        exporter: One of ``EXPORTERS``.
        folder: The place of the files.
    """
    (architecture,) = (one for one in architectures() if one.name == name)
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # an operator of PyTorch's own, which neither exporter knows
    started = time.perf_counter()
    model, inputs = architecture.make()
    tensors = tuple(inputs.values())
    is_half = any(parameter.dtype is torch.float16 for parameter in model.parameters())
    with torch.inference_mode():
        outputs = model.float()(*(own.float() if own.dtype is torch.float16 else own for own in tensors))
    model = model.half() if is_half else model
    np.savez(folder / "inputs.npz", **{name: tensor.numpy() for name, tensor in inputs.items()})
    np.savez(folder / "outputs.npz", **{f"output_{index}": tensor.numpy() for index, tensor in enumerate(outputs)})
    path = str(folder / "model.onnx")
    names = {"input_names": list(inputs), "output_names": [f"output_{index}" for index in range(len(outputs))]}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            torch.onnx.export(model, tensors, path, dynamo=True, verbose=False, external_data=True, **names)
        else:
            torch.onnx.export(model, tensors, path, dynamo=False, opset_version=_TORCHSCRIPT_OPSET, **names)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    yield {"parameters": parameters, "seconds": time.perf_counter() - started, "torch": torch.__version__}
