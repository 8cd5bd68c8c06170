"""The words that the command takes: suites, rivals, stages and exporters. They are known before anything is imported."""

from __future__ import annotations

from typing import Final

PROBLEM_SUITES: Final = ("ops", "matmul", "conv")
HEADLINE_SUITES: Final = (*PROBLEM_SUITES, "models", "launch", "ladder")
"""The suites that the project's targets are about."""
USUAL_SUITES: Final = (*HEADLINE_SUITES, "host", "shapes")
SUITES: Final = (*USUAL_SUITES, "llm")
RIVALS: Final = ("torch", "onnxruntime", "ncnn")
STAGES: Final = ("export", "check", "time")
"""What is done with each file of the zoo."""
EXPORTERS: Final = ("torchscript", "dynamo")
"""PyTorch's two exporters: by tracing, and by ``torch.export``."""
BESIDE: Final = ("eager", "graph", "webgpu")
"""What the zoo times beside us: PyTorch's calls, PyTorch's CUDA graph, ONNX Runtime's WebGPU provider."""
