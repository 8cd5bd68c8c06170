"""What ``bench`` says of its results."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import page_samples
import pytest

from dmlvk.kernels.common.plan import Dispatch, KernelVariant, Plan
from dmlvk.kernels.manifest import KERNELS
from dmlvk_bench.command import line, summary, wrong
from dmlvk_bench.measure import limit, named_type
from dmlvk_bench.problems import all_problems
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.problems.scale import FULL
from dmlvk_bench.results import Ceilings, ProblemRow, Results, RivalTime, read

pytestmark = pytest.mark.quick

COPY = page_samples.row(
    "softmax FLOAT32 8x8",
    100.0,
    family="softmax",
    operator="ActivationSoftmax1",
    rule="rows",
    bytes_moved=300_000_000,
    share=0.75,
    same_size_copy_share=0.8,
    target=1.5,
    difference=1e-6,
    rivals={"torch": RivalTime(200.0, 0.01, 2.0, 1e-6, True), "ncnn": RivalTime(50.0, 0.01, 0.5, 1.0, False)},
)
PRODUCT = dataclasses.replace(
    COPY,
    problem="GEMM",
    suite="matmul",
    limit="float32_tflop_per_s",
    operations=4_000_000_000,
    share=0.5,
    target=0.9,
    copy_target=0.0,
    group="layers",
    group_target=3.0,
)
WRONG = dataclasses.replace(COPY, problem="bad", us=0.0, agrees=False, difference=0.25, rivals={})
RESULTS = Results(
    page_samples.MACHINE, "full", {"torch": "2"}, ceilings=Ceilings(copy_gb_per_s=4000.0, float32_tflop_per_s=80.0)
)


def with_rows(*rows: ProblemRow, **more: Any) -> Results:
    return dataclasses.replace(RESULTS, problems=list(rows), **more)


def test_a_line_has_the_limit_that_counts() -> None:
    words = line(COPY, with_rows(COPY))
    assert "3000.0 GB/s" in words and "0.75 of copy (0.80 of as many bytes)" in words
    assert "torch x2.00" in words and "ncnn x0.50 (WRONG)" in words
    assert "BELOW x1.50 and 0.90 of copy" in words
    words = line(PRODUCT, with_rows(PRODUCT))
    assert "40.000 TFLOP/s" in words and "0.50 of float32" in words and "target x0.90" in words
    words = line(WRONG, with_rows(WRONG))
    assert "WRONG: off 2.5e-01 by torch; not timed" in words and "GB/s" not in words


def test_a_run_ends_in_what_matters() -> None:
    results = with_rows(COPY, PRODUCT, skipped={"other": "no FLOAT64"}, failures={"torch": {"third": "out of memory"}})
    lines = "\n".join(summary(results))
    assert "ops: x2.00 of torch's speed (geometric mean of 1, 1 at least as fast)" in lines
    assert "geometric mean of 1 problems of layers: x2.00 (target 3.00)" in lines
    assert "not run: other: no FLOAT64" in lines
    assert "torch failed at third: out of memory" in lines
    assert "2 problems, 1 below a target, 0 models: all right" in lines
    assert "before the run was ended" not in lines
    ended = "\n".join(summary(with_rows(COPY, WRONG, complete=False, missing={"ncnn": "not installed"})))
    assert "before the run was ended: WRONG: bad" in ended and "not there: ncnn: not installed" in ended


def model(name: str, *agreed: bool, **more: Any) -> dict[str, Any]:
    return {"model": name, "rivals": {str(at): {"agrees": agrees} for at, agrees in enumerate(agreed)}, **more}


def test_a_model_is_wrong_where_no_rival_agrees_or_it_does_not_run() -> None:
    models = [model("alone"), model("good", True), model("mixed", False, True), model("bad", False, False)]
    broken = model("broken", error="no such operator")
    assert wrong(dataclasses.replace(RESULTS, models=[*models, broken], problems=[COPY, WRONG])) == ["bad", "bad", "broken"]


def test_a_file_is_replaced_as_a_whole(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    with_rows(COPY).write(path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "write_text", full)
        with pytest.raises(OSError, match="no space"):
            with_rows(COPY, PRODUCT).write(path)
    assert read(path) == with_rows(COPY)
    with_rows(COPY, PRODUCT).write(path)
    assert read(path) == with_rows(COPY, PRODUCT)
    assert [item.name for item in tmp_path.iterdir()] == ["results.json"]


def test_every_problem_has_a_limit_of_its_type() -> None:
    """The kernels that multiply matrices are among them, which no device of the test suite has."""
    known = Ceilings(float16_tflop_per_s=2.0, float32_tflop_per_s=1.0, int8_top_per_s=3.0)
    variant = next(KERNELS["gemm_cooperative"].combinations())
    matrices = Plan((Dispatch(KernelVariant("gemm_cooperative", variant), (), b"", (1, 1, 1)),))
    found: dict[tuple[str, str, str], Problem] = {}
    for problem in all_problems(FULL):
        data_type = named_type(problem)
        plain, by_matrices = (limit(problem, plan, data_type, known) for plan in (Plan(()), matrices))
        found.setdefault((data_type, plain, by_matrices), problem)
    products = {key: problem for key, problem in found.items() if key[1] != "copy_gb_per_s"}
    assert set(products) == {
        ("BFLOAT16", "float32_tflop_per_s", "matrix_float16_tflop_per_s"),
        ("FLOAT32", "float32_tflop_per_s", "matrix_float16_tflop_per_s"),
        ("FLOAT16", "float16_tflop_per_s", "matrix_float16_tflop_per_s"),
        ("INT8", "int8_top_per_s", "matrix_int8_top_per_s"),
    }
    assert all(key[2] == "copy_gb_per_s" for key in found if key[1] == "copy_gb_per_s")
    half = products["FLOAT16", "float16_tflop_per_s", "matrix_float16_tflop_per_s"]
    assert limit(half, Plan(()), "FLOAT16", Ceilings(float32_tflop_per_s=1.0)) == "float32_tflop_per_s"
    small = products["INT8", "int8_top_per_s", "matrix_int8_top_per_s"]
    assert limit(small, Plan(()), "INT8", Ceilings(float32_tflop_per_s=1.0)) == "float32_tflop_per_s"
