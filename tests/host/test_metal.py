"""Every SPIR-V module becomes Metal's language if the profile "moltenvk" has what it needs, and not otherwise."""

from __future__ import annotations

import pytest
from translate_msl import KNOWN_GAPS, METAL_FEATURES, Translation, find_program, translate_all

from dmlvk.kernels.common.library import module_names
from dmlvk.kernels.manifest import KERNELS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def translations() -> list[Translation]:
    return translate_all(list(KERNELS.values()), find_program())


def test_every_module_is_translated_that_metal_can_run(translations: list[Translation]) -> None:
    assert {item.name for item in translations}.issuperset(module_names())
    problems = [problem for item in translations if (problem := item.problem())]
    assert not problems, "\n".join(problems)


def test_what_metal_lacks_is_few(translations: list[Translation]) -> None:
    """Most of the modules are translated: the profile's features are no excuse for more than these."""
    excused = {feature for item in translations if not item.text for feature in item.needs - METAL_FEATURES}
    assert excused <= {"float64", "bfloat16", "cooperative_matrix", "matrix_reductions"}
    for item in translations:
        assert item.text or item.needs - METAL_FEATURES or item.gap(), item.name


def test_gaps_of_an_old_translator_are_still_met_by_some_module(translations: list[Translation]) -> None:
    for gap in KNOWN_GAPS:
        assert any(gap.feature in item.needs for item in translations), gap.feature


def test_a_module_that_metal_cannot_take_is_a_failure_with_its_name(translations: list[Translation]) -> None:
    refused = [item for item in translations if "float64" in item.needs]
    assert refused
    for item in refused:
        assert not item.problem()
        said = item.problem(METAL_FEATURES | {"float64"})
        assert said.startswith(item.name)
        assert "double" in said


def test_a_row_that_asks_for_too_much_is_a_failure(translations: list[Translation]) -> None:
    item = next(item for item in translations if item.text and "int64" in item.needs)
    assert "int64" in item.problem(METAL_FEATURES - {"int64"})


def test_a_module_that_is_none_is_a_failure() -> None:
    broken = Translation("broken.spv", frozenset(), "", "SPIRV-Cross threw an exception: Invalid SPIRV format.")
    assert broken.problem() == "broken.spv: SPIRV-Cross threw an exception: Invalid SPIRV format."
    assert broken._replace(needs=frozenset({"integer_dot_product"})).problem(), "another message is no known gap"
