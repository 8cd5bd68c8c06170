"""The converters, one file a family; importing this package fills the registry."""

from dmlvk.torch.convert import elementwise, views

__all__ = ["elementwise", "views"]
