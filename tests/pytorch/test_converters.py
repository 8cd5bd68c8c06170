"""Which of PyTorch's operators have converters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from dmlvk.torch.decompositions import decompositions
from dmlvk.torch.registry import ROWS

WITHOUT = {
    "aten._fft_c2r.default",
    "aten._fft_r2c.default",
    "aten._local_scalar_dense.default",
    "aten.nonzero.default",
    "aten.resize_.default",
    "aten.sym_storage_offset.default",
}
"""Core operators that nothing converts: complex numbers (_fft), numbers that Python reads (_local_scalar_dense), sizes that
follow from values (nonzero), an offset in memory, which the compiler itself knows (sym_storage_offset), and other sizes of a
tensor that is there (resize_), which graphs do not have."""


def core() -> Iterator[Any]:
    """PyTorch's core operators. (``dir(torch.ops.aten)`` lists only those that somebody has asked for.)"""
    qualified = (name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    for name in sorted({name.partition(".")[0] for name in qualified}):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ():
            operator = getattr(packet, overload)
            if torch.Tag.core in operator.tags:
                yield operator


def test_all_other_core_operators_have_a_converter_or_are_taken_apart() -> None:
    table = decompositions()
    assert {str(operator) for operator in core() if str(operator) not in ROWS and operator not in table} == WITHOUT


def test_each_row_is_of_an_operator_that_there_is() -> None:
    for name in ROWS:
        space, packet, overload = name.split(".")
        assert str(getattr(getattr(getattr(torch.ops, space), packet), overload)) == name
