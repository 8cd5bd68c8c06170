"""What rules choose on four devices, none of which is here: a table, no rule that no device is given, no GPU's numbers."""

from __future__ import annotations

import ast
import pathlib
import re

import choices
import pytest

import dmlvk
from dmlvk.kernels.cached_attention.rules import CACHED_ATTENTION
from dmlvk.kernels.common.registry import LOWERINGS, lowering_of
from dmlvk.kernels.lowering import newest
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import build, variations
from dmlvk_bench.problems import all_problems

KERNELS = pathlib.Path(dmlvk.__file__).parent / "kernels"


SLOW = ("fields", "problems")


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[pytest.mark.slow] if part in SLOW else []) for part in choices.PARTS]
)
def test_what_is_chosen_is_the_table(part: str) -> None:
    expected, found = choices.expected(part), list(choices.PARTS[part]())
    changed = [f"-{line}" for line in expected if line not in set(found)]
    changed += [f"+{line}" for line in found if line not in set(expected)]
    assert found == expected, "python tests/choices.py writes the table again:\n" + "\n".join(changed[:40])


OF_PROMPTS = ("fragments", "cooperative", "tiles")
"""Rules of attention that the benchmark's causal prompts choose."""
NEVER_CHOSEN = {
    # What any device can run, for others to be compared with, or where a limit leaves nothing else.
    *(("Convolution", "naive"), ("Gemm", "naive"), ("MultiheadAttention1", "naive"), ("Rnn", "naive")),
    # Of the four those that reduce matrices know where elements lie, too.
    *(("MultiheadAttention1", "reductions"), ("MultiheadAttention1", "reductions split")),
    ("MultiheadAttention1", "cooperative split"),  # of half as many heads as the benchmark has: the ladders have it
    ("Rnn", "block"),  # more steps than the host prepares launches for: tests of long sequences have it
    # Sizes and layouts that neither the benchmark nor the quick cases have; the other cases run them.
    *(("AveragePooling1", "window"), ("AveragePoolingGrad", "elements"), ("MaxPoolingGrad", "indices")),
    *(("Convolution", "vector"), ("LocalResponseNormalizationGrad", "staged_groups"), ("ReverseSubsequences", "rows")),
    *(("PointwiseChain", "runs"), ("ValueScale2d", "channels")),
    *(("ResampleGrad1", "elements"), ("ResampleGrad1", "shared")),
    *(("CachedAttention", rule.name) for rule in CACHED_ATTENTION if rule.name not in OF_PROMPTS),
    ("RootMeanSquare", "twice"),
}
"""Rules, with their row, that no problem of the benchmark and no quick case gives to any of the four devices."""


@pytest.mark.slow
def test_every_rule_is_some_devices() -> None:
    descs = [problem.desc for problem in all_problems()]
    for row, entry in all_cases().items():
        descs += [build(row, variation).desc for variation in variations(entry, quick=True)]
    chosen = set()
    for desc in map(newest, descs):
        lowering = lowering_of(desc)
        assert lowering is not None
        chosen |= {(lowering.rules, choices.rule_of(desc, caps)) for caps in choices.DEVICES.values()}
    families = {lowering.rules: row.__name__ for row, lowering in reversed(LOWERINGS.items())}
    never = {(name, rule.name) for rules, name in families.items() for rule in rules if (rules, rule.name) not in chosen}
    assert never == NEVER_CHOSEN


_OF_A_GPU = {132, 264, 528, 1056, 2112}
"""An H200's processors, and what whole numbers of workgroups for each come to."""
_COUNTS = re.compile("MICROSECOND|PROCESSORS|WORKGROUPS|WAVE|BANDWIDTH|CLOCK|FILL")
_MOST_RATIO = 64


def numbers_of_one_gpu(source: str) -> list[str]:
    """Lines of a module with a count of processors, a time, a rate, or a constant of that name that is no ratio."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            is_rate = type(node.value) is float and (node.value >= 1e3 or 0 < node.value < 1e-2)
            if node.value in _OF_A_GPU or is_rate:
                found.append(f"{node.lineno}: {node.value}")
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and _COUNTS.search(target.id):
                literals = [own.value for own in ast.walk(node.value) if isinstance(own, ast.Constant)]
                named_rate = "MICROSECOND" in target.id or "CLOCK" in target.id
                if named_rate or any(isinstance(value, int | float) and value > _MOST_RATIO for value in literals):
                    found.append(f"{node.lineno}: {target.id}")
    return found


def test_kernels_hold_no_number_of_one_gpu() -> None:
    paths = [path for path in KERNELS.rglob("*.py") if path.name != "manifest.py"]
    assert paths
    found = {str(path.relative_to(KERNELS)): lines for path in paths if (lines := numbers_of_one_gpu(path.read_text()))}
    assert not found


def test_such_numbers_would_be_found() -> None:
    for source in ("_PROCESSORS = 132", "x < 528", "_WORKGROUPS = 1024", "_DISPATCH_MICROSECONDS = 2.5", "y / 3e6"):
        assert numbers_of_one_gpu(source), source
    assert not numbers_of_one_gpu("_WORKGROUPS = 8\n_WAVE = 0.25\nlanes = min(most, 1024)")
