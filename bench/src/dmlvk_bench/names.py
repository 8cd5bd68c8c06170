"""The words that the command takes: suites, rivals and stages. They are known before anything is measured or imported."""

from __future__ import annotations

from typing import Final

PROBLEM_SUITES: Final = ("ops", "matmul", "conv")
HEADLINE_SUITES: Final = (*PROBLEM_SUITES, "models", "launch")
"""The suites that the project's targets are about."""
USUAL_SUITES: Final = (*HEADLINE_SUITES, "host", "shapes")
SUITES: Final = (*USUAL_SUITES, "llm")
RIVALS: Final = ("torch", "onnxruntime", "ncnn")
STAGES: Final = ("export", "check", "time")
"""What is done with each file of the zoo."""
