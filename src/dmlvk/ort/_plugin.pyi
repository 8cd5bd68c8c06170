"""The plug-in library: what ONNX Runtime loads."""

OLDEST: int
"""The oldest ONNX Runtime that it works with: 1.OLDEST."""

def serve(name: str, server: object) -> None:
    """Takes the provider's name and the object that answers for it, a ``dmlvk.ort.provider.Server``. The first ones stay."""
