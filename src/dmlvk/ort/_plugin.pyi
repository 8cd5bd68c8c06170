"""The plug-in library: what ONNX Runtime loads."""

OLDEST: int
"""The oldest ONNX Runtime that it works with: 1.OLDEST."""

def serve(name: str, server: object, door: object, gil_check: int | None) -> None:
    """Takes the provider's name, the object that answers for it, a ``dmlvk.ort.provider.Server``, what ``_native.door``
    gives, and the address of ``PyGILState_Check``. The first ones stay."""
