"""Models on the Vulkan devices of a Ray cluster: devices as resources, and predictors for ``ray.data``.

Needs Ray: ``pip install 'dmlvk[ray]'``.
"""

from __future__ import annotations

from dmlvk.spec.errors import MissingPackageError

try:
    import ray  # noqa: F401  # only to see whether it is there
except ImportError as error:
    raise MissingPackageError("dmlvk.ray needs the package ray: pip install 'dmlvk[ray]'") from error

from dmlvk.ray.devices import RESOURCE, assigned_device, resources
from dmlvk.ray.predictors import LlmPredictor, OnnxPredictor, predict
from dmlvk.ray.shared_model import SharedModel, share

__all__ = [
    "RESOURCE",
    "LlmPredictor",
    "OnnxPredictor",
    "SharedModel",
    "assigned_device",
    "predict",
    "resources",
    "share",
]
