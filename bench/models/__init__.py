"""Whole models beside ONNX Runtime's WebGPU provider and PyTorch: ``python -m bench.models``."""
