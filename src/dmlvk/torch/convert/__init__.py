"""The converters, one file a family; importing this package fills the registry."""

from dmlvk.torch.convert import (
    attention,
    convolution,
    creation,
    distances,
    elementwise,
    indexing,
    movement,
    normalization,
    pooling,
    products,
    random,
    recurrent,
    reductions,
    resample,
    sorting,
    views,
)

__all__ = [
    "attention",
    "convolution",
    "creation",
    "distances",
    "elementwise",
    "indexing",
    "movement",
    "normalization",
    "pooling",
    "products",
    "random",
    "recurrent",
    "reductions",
    "resample",
    "sorting",
    "views",
]
