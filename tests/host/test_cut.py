"""Operators that are cut into parts: where each part starts, and that together they are the whole."""

from __future__ import annotations

import pytest
from plans import check_plan

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Dispatch, Range, Source
from dmlvk.kernels.common.shapes import check_launches
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, TensorDataType
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.ops.root_mean_square import RootMeanSquare
from dmlvk.spec.tensor import TensorDesc, element_bits


@pytest.mark.parametrize("data_type", [TensorDataType.FLOAT32, TensorDataType.FLOAT16])
@pytest.mark.parametrize("most", [100, 250, 1000])
def test_parts_start_at_whole_words_and_are_the_whole(data_type: TensorDataType, most: int) -> None:
    """Kernels rely on ranges that start at a multiple of 16 bytes, whatever the largest binding is."""
    count = 1003
    tensor = TensorDesc(data_type, (1, 1, 1, count))
    desc = ops.ElementWiseAdd(a_tensor=tensor, b_tensor=tensor, output_tensor=tensor)
    plan = lower(desc, Capabilities(features=Capabilities().features | {"storage16", "float16"}, storage_buffer_bytes=most))
    for place in (Range(Source.INPUT, 0), Range(Source.INPUT, 1), Range(Source.OUTPUT, 0)):
        own = [part for item in plan.dispatches for part in item.bindings if part[:2] == place[:2]]
        assert len(own) > 1 and all(part.offset % 16 == 0 and part.nbytes <= most for part in own)
        ends = [part.offset + part.nbytes for part in own]
        assert [part.offset for part in own] == [0, *ends[:-1]], "each starts where the one before ends"
        assert count * element_bits(data_type) // 8 <= ends[-1] <= count * element_bits(data_type) // 8 + 3


def test_a_normalization_by_mean_squares_is_cut_between_rows() -> None:
    rows, width, most = 50, 60, 4096
    tensor = TensorDesc(TensorDataType.FLOAT32, (rows, width))
    desc = RootMeanSquare(input_tensor=tensor, addend_tensor=tensor, output_tensor=tensor, sum_tensor=tensor, epsilon=1e-5)
    plan = lower(desc, Capabilities(storage_buffer_bytes=most))
    for place in (Range(Source.INPUT, 0), Range(Source.INPUT, 1), Range(Source.OUTPUT, 0), Range(Source.OUTPUT, 1)):
        bound = [part for item in plan.dispatches for part in item.bindings if part[:2] == place[:2]]
        own = list(dict.fromkeys(bound))  # read by fours and by numbers
        assert len(own) > 1 and all(part.offset % (4 * width) == 0 and part.nbytes <= most for part in own)
        ends = [part.offset + part.nbytes for part in own]
        assert [part.offset for part in own] == [0, *ends[:-1]] and ends[-1] == 4 * rows * width


def test_a_row_that_has_one_mean_is_not_cut() -> None:
    tensor = TensorDesc(TensorDataType.FLOAT32, (2, 2000))
    desc = RootMeanSquare(input_tensor=tensor, output_tensor=tensor, epsilon=1e-5)
    with pytest.raises(UnsupportedError):
        lower(desc, Capabilities(storage_buffer_bytes=4096))


def test_a_forced_rule_that_the_last_part_cannot_have() -> None:
    """Two of three columns lie side by side, and the last one alone does not: it has the rule that is chosen for it."""
    column = TensorDesc(TensorDataType.FLOAT32, (512, 3))
    desc = ops.CumulativeProduct(
        input_tensor=column,
        output_tensor=column,
        axis=0,
        axis_direction=AxisDirection.INCREASING,
        has_exclusive_product=False,
    )
    caps = Capabilities(storage_buffer_bytes=4096)
    for rule in possible_rules(desc, caps):
        plan = lower(desc, caps, force=rule)
        check_plan(plan, caps)
        scans = [
            item.kernel.kernel for item in plan.dispatches if isinstance(item, Dispatch) and "scan" in item.kernel.kernel
        ]
        assert scans[-1] == "scan_rows" and scans[0] == ("scan_rows" if rule == "rows" else "scan_columns")


def test_columns_of_which_only_the_first_starts_on_a_whole_word_are_copied() -> None:
    """Four columns of 1001 elements: a part that is bound as it lies would be all of them."""
    columns = TensorDesc(TensorDataType.FLOAT32, (1001, 4), (1, 1001))
    desc = ops.CumulativeProduct(
        input_tensor=columns,
        output_tensor=columns,
        axis=0,
        axis_direction=AxisDirection.INCREASING,
        has_exclusive_product=False,
    )
    caps = Capabilities(storage_buffer_bytes=4096)
    check_plan(lower(desc, caps), caps)


def test_an_operator_has_as_many_launches_as_are_allowed() -> None:
    caps = Capabilities(max_launches=100)
    check_launches(100, caps, "DML_OPERATOR_GEMM")
    with pytest.raises(UnsupportedError, match="101 launches"):
        check_launches(101, caps, "DML_OPERATOR_GEMM")
