"""The rules of AdamOptimizer."""

from __future__ import annotations

from dmlvk.kernels.common.access import Access
from dmlvk.kernels.common.rule import Rule, always

ADAM = (
    Rule(
        "groups",
        when=lambda p, caps: Access.ELEMENTS not in p.access(p.group_lanes),
        possible=always,
        because="rows of all seven tensors lie contiguous and start on groups: one index and an access of 16 bytes to each. "
        "H200, 2^26 parameters in float32: 4210 GB/s, PyTorch's fused Adam 3390; 2^27 in float16: 4210, 3590 by elements",
    ),
    Rule("elements", when=always, possible=always, because="any strides: one element of each tensor at a time"),
)
