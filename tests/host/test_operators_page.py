"""docs/operators.md is what tools/operators_page.py makes of the tables as they are, and says all that a row says."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from dmlvk.kernels.common.limitation import EVERY_OPERATOR
from dmlvk.kernels.common.registry import has_kernels, limitations_of
from dmlvk.spec import ops as _ops  # noqa: F401  # fills the registry
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.schema import REGISTRY, OperatorDesc

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "operators.md").read_text()
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
LIMITATIONS = PAGE.partition("## Limitations\n")[2]
ROWS = sorted(filter(has_kernels, REGISTRY.values()), key=lambda row: row.__name__)


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "operators_page.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_page_is_up_to_date() -> None:
    done = generate("--check")
    assert done.returncode == 0, f"run tools/operators_page.py\n{done.stderr}{done.stdout[:4000]}"


def test_a_stale_page_fails_with_what_differs(tmp_path: pathlib.Path) -> None:
    stale = tmp_path / "operators.md"
    stale.write_text(PAGE.replace("y = a + b.", "y = a - b."))
    done = generate("--check", "--output", str(stale))
    assert done.returncode == 1
    assert "-y = a - b." in done.stdout
    assert "+y = a + b." in done.stdout
    assert "is stale" in done.stderr
    assert "y = a - b." in stale.read_text(), "a check writes nothing"
    assert generate("--output", str(stale)).returncode == 0
    assert generate("--check", "--output", str(stale)).returncode == 0


def test_every_operator_has_a_section() -> None:
    described = {re.search(r"`(DML_OPERATOR_\w+)`", text)[1] for text in SECTIONS.values()}  # type: ignore[index]
    assert described == {operator.dml_name for operator in OperatorType} - {OperatorType.INVALID.dml_name}
    assert list(SECTIONS) and set(SECTIONS) == {row.__name__ for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_limitations_stand_with_the_operator_and_the_operator_with_them(row: type[OperatorDesc]) -> None:
    for limitation in limitations_of(row):
        (said,) = re.findall(rf"\*\*{limitation.name}\*\*: (.*?)(?=^- |\Z)", LIMITATIONS, re.MULTILINE | re.DOTALL)
        assert limitation.rule in said and limitation.devices in said
        general = limitation in EVERY_OPERATOR
        assert ("Operators: any." in said) == general
        assert (f"[{row.__name__}](#" in said) == (not general)
        assert (f"(#limitation-{limitation.name})" in SECTIONS[row.__name__]) == (not general)
    listed = re.findall(r"\(#limitation-(\w+)\)", SECTIONS[row.__name__])
    assert set(listed) <= {limitation.name for limitation in limitations_of(row)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_a_section_says_what_the_row_says(row: type[OperatorDesc]) -> None:
    text = SECTIONS[row.__name__]
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
