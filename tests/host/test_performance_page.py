"""The page of measured figures says what the results say, and README's part is made of them as they are."""

from __future__ import annotations

import dataclasses

import page_samples
import performance_models
import performance_page
import write_readme

from dmlvk_bench import figures
from dmlvk_bench.results import Ceilings, LanguageRow, ProblemRow, Results, RivalTime, read

ROW = page_samples.row(
    "add",
    10.0,
    bytes_moved=500_000,
    share=0.5,
    same_size_copy_share=0.5,
    target=0.9,
    copy_target=0.0,
    rivals={},
)


def row(problem: str, ratio: float, **more: object) -> ProblemRow:
    torch = {"torch": RivalTime(us=10.0 * ratio, spread=0.0, ratio=ratio, difference=0.0, agrees=True)}
    return dataclasses.replace(ROW, problem=problem, rivals=torch, **more)


def results(*rows: ProblemRow) -> Results:
    return Results(page_samples.MACHINE, "full", {"torch": "2"}, ceilings=Ceilings(copy_gb_per_s=100.0), problems=list(rows))


def test_the_readme_is_current() -> None:
    assert write_readme.main(["--check"]) == 0, "run python tools/write_readme.py"


def test_the_readme_names_those_that_are_faster_and_what_was_not_timed() -> None:
    rivals = {
        "eager": {"ms": 1.0, "agrees": True},
        "graph": {"ms": 8.0, "agrees": True},
        "webgpu": {"ms": 8.0, "agrees": False},
    }
    rows = [{"architecture": "a", "right": True, "ms": 2.0, "rivals": rivals}, {"architecture": "b", "right": False}]
    llama = {"llama.cpp": {"prompt_per_s": 50.0, "new_per_s": 2.0}}
    models = [
        LanguageRow("a", batch, 1, 1, 1, 1, 100.0, 5.0, rivals) for batch, rivals in ((1, llama), (16, llama), (1, {}))
    ]
    text = write_readme.table(read(performance_page.HEADLINE), rows, rows, models)
    assert "prompts **2.00**, answers **2.50**, geometric means of 1 |" in text
    assert "[1 of 2 architectures]" in text and "in 1 of 2 files" in text
    assert "eager: **0.50**, geometric mean of 1 of those, faster than we are on 1." in text
    assert "graph: **4.00**, geometric mean of 1 of those, faster than we are on none; [later" in text
    assert "| not in the kept results |" in text, "a rival that was wrong has no time"


def test_the_picture_leaves_out_who_was_wrong() -> None:
    drawn = figures.networks(page_samples.results(), alone=True)
    assert ">1.92<" in drawn, "PyTorch's 2.5 ms beside 1.3"
    assert ">6.92<" not in drawn, "WebGPU's 9 ms were of wrong outputs"
    assert figures.networks(results()) == ""


def test_the_page_counts_every_problem_and_those_that_missed_a_target() -> None:
    found = read(performance_page.RESULTS)
    below = sum(map(found.missed, found.problems))
    page = performance_page.page(found)
    assert f"{len(found.problems)} problems, {below} below a target" in page
    tables = "\n".join([*performance_page.bytes_table(found), *performance_page.arithmetic_table(found)])
    assert tables.count("**") >= 2 * below, "each is bold"
    assert performance_models.misses(found) <= "\n".join(performance_models.section(found)).count("**") // 2


def test_problems_of_many_operations_have_a_table_of_their_own_and_their_group_a_mean() -> None:
    layer = {"operations": 123_400_000, "group": "layers", "group_target": 0.8}
    found = results(
        row("add", 1.0),
        row("conv a", 0.5, **layer),
        row("conv b", 2.0, **layer),
        row("gemv", 1.0, operations=9, copy_target=0.4),
    )
    lines = performance_page.arithmetic_table(found)
    assert "| conv a | 10.0 | **12.3** | 0.50 | **0.50** |  | 0.90 x |" in lines
    assert "| conv b | 10.0 | 12.3 | 0.50 | 2.00 |  | 0.90 x |" in lines
    assert lines[-1] == "Geometric mean of the 2 layers: 1.00 x PyTorch; target 0.80 x."
    assert [line.split("|")[1].strip() for line in performance_page.bytes_table(found)[2:]] == ["add", "gemv"]


def test_types_stand_side_by_side_and_what_missed_is_bold() -> None:
    found = results(row("softmax FLOAT32 8x8", 2.0), row("softmax FLOAT16 8x8", 0.8))
    assert performance_page.bytes_table(found)[2:] == [
        "| softmax 8x8 | 50 | 0.50 | 2.00 | 50 | **0.50** | **0.80** | 0.90 x |",
    ]


def test_a_rival_that_was_wrong_has_no_ratio_and_is_no_target() -> None:
    wrong = RivalTime(us=1.0, spread=0.0, ratio=0.1, difference=1.0, agrees=False)
    found = results(dataclasses.replace(ROW, rivals={"torch": wrong}))
    assert found.problems[0].ratio is None and not found.missed(found.problems[0])
    assert found.missed(dataclasses.replace(ROW, agrees=False)), "our own wrong result is"


def test_integers_are_compared_with_our_own_float16() -> None:
    name, other, _ = performance_page.INTEGERS[0]
    found = results(row(name, 1.0, operations=110), row(other, 1.0, operations=100))
    assert performance_page.arithmetic_table(found)[-1] == f"*{name}*: **1.10** x our *{other}*; target 1.20 x."
