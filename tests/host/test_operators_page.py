"""The reference of operators, which tools/operators_page.py makes of the tables, says all that a row says."""

from __future__ import annotations

import functools
import re

import operators_page
from together import together

from dmlvk.kernels.common.limitation import EVERY_OPERATOR
from dmlvk.kernels.common.registry import has_kernels, limitations_of
from dmlvk.spec import ops as _ops  # noqa: F401  # fills the registry
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.schema import REGISTRY, OperatorDesc

page = functools.cache(operators_page.page)  # seconds: not where processes only collect
ROWS = sorted(filter(has_kernels, REGISTRY.values()), key=lambda row: row.__name__)


@functools.cache
def sections() -> dict[str, str]:
    return dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", page(), re.MULTILINE | re.DOTALL))


def test_every_operator_has_a_section() -> None:
    described = {re.search(r"`(DML_OPERATOR_\w+)`", text)[1] for text in sections().values()}  # type: ignore[index]
    assert described == {operator.dml_name for operator in OperatorType} - {OperatorType.INVALID.dml_name}
    assert list(sections()) and set(sections()) == {row.__name__ for row in ROWS}


@together(ROWS, lambda row: row.__name__)
def test_limitations_stand_with_the_operator_and_the_operator_with_them(row: type[OperatorDesc]) -> None:
    for limitation in limitations_of(row):
        (said,) = re.findall(
            rf"\*\*{limitation.name}\*\*: (.*?)(?=^- |\Z)", page().partition("## Limitations\n")[2], re.MULTILINE | re.DOTALL
        )
        assert limitation.rule in said and limitation.devices in said
        general = limitation in EVERY_OPERATOR
        assert ("Operators: any." in said) == general
        assert (f"[{row.__name__}](#" in said) == (not general)
        assert (f"(#limitation-{limitation.name})" in sections()[row.__name__]) == (not general)
    listed = re.findall(r"\(#limitation-(\w+)\)", sections()[row.__name__])
    assert set(listed) <= {limitation.name for limitation in limitations_of(row)}


@together(ROWS, lambda row: row.__name__)
def test_a_section_says_what_the_row_says(row: type[OperatorDesc]) -> None:
    text = sections()[row.__name__]
    fields = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert list(fields) == [spec.name for spec in row.fields]
    for spec in row.fields:
        words = fields[spec.name]
        assert words.startswith("optional ") == spec.optional
        assert ("in place" in words) == (spec.name in row.in_place)
        for data_type in spec.data_types:
            kind, bits = re.fullmatch(r"(\D+)(\d+)", data_type.name).groups()  # type: ignore[union-attr]
            assert re.search(rf"\b{kind}( \d+)* {bits}\b", words), data_type
    assert f"level {row.feature_level().name[6:].replace('_', '.')}" in text
    assert ("can be fused" in text) == row.fusable
    assert ("runs as" in text) == (row.upgrade is not OperatorDesc.upgrade)
    assert "| error in ULP | allowed |" in text
