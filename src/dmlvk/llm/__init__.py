"""Language models on the GPU: ``load`` a file, then ``generate``, ``chat`` or ``logits``."""

from __future__ import annotations

from dmlvk.llm.model import Model, Usage, load
from dmlvk.llm.sampling import Sampling

__all__ = ["Model", "Sampling", "Usage", "load"]


def __dir__() -> list[str]:
    return list(__all__)
