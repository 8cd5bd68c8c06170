"""Writes one architecture as an ONNX file, with its inputs and what PyTorch computes of them on the CPU.

    python -m dmlvk_bench.zoo.export ARCHITECTURE EXPORTER FOLDER

A process of its own for each, because exporters keep what they have traced, and some end the process.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
import warnings
from typing import Final

import numpy as np
import torch

from dmlvk_bench.zoo.architectures import Architecture, architectures

EXPORTERS: Final = ("torchscript", "dynamo")
"""PyTorch's two exporters: by tracing, and by ``torch.export``."""
_TORCHSCRIPT_OPSET: Final = 18


def export(architecture: Architecture, exporter: str, folder: pathlib.Path) -> None:
    """Writes ``model.onnx``, ``inputs.npz``, ``outputs.npz`` and ``export.json`` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # an operator of PyTorch's own, which neither exporter knows
    started = time.perf_counter()
    model, inputs = architecture.make()
    tensors = tuple(inputs.values())
    with torch.inference_mode():
        outputs = model(*tensors)
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
    facts = {"parameters": parameters, "seconds": time.perf_counter() - started, "torch": torch.__version__}
    (folder / "export.json").write_text(json.dumps(facts))


def main() -> int:
    name, exporter, folder = sys.argv[1:]
    (architecture,) = (one for one in architectures() if one.name == name)
    export(architecture, exporter, pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
